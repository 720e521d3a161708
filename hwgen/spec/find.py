"""Files by path or bare name: the current folder's first, then those that come with hwgen."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal

from hwgen.errors import HwgenError, Location
from hwgen.spec.regular_file import read_regular
from hwgen.spec.source import MAX_BYTES

SUFFIXES = (".yaml", ".yml", ".json")
SPEC_FOLDER = "hw_specs"
WORKLOAD_FOLDER = "workloads"

Kind = Literal["spec", "workload"]

SIGNS: dict[Kind, tuple[str, str]] = {
    "spec": ("memories", "intrinsics"),
    "workload": ("tensors", "compute"),
}
"""Sections that tell what a file is."""
RECORD = "command"
"""The key that tells an object that `--json` prints from a file whose sections it repeats."""

_PACKAGE = Path(__file__).resolve().parents[1]
# A wheel has the folders inside the package; a checkout has them beside it.
_SHIPPED = _PACKAGE / "shipped" if (_PACKAGE / "shipped").is_dir() else _PACKAGE.parent


def find_spec(text: str) -> Path:
    """The file of a chip: a path, or a bare name.

    A bare NAME is `NAME.yaml` here (or `.yml`, `.json`) where that is a chip, then a file of
    hw_specs/ here, then one that comes with hwgen.

    Raises:
        HwgenError: H003 where there is none; H001 where it is a folder.
    """
    return _find(text, "spec", spec_folders(), _folders(WORKLOAD_FOLDER))


def find_workload(text: str, spec: Path | None = None) -> Path:
    """The file of a workload: a path, or a bare name.

    A bare NAME is `NAME.yaml` here (or `.yml`, `.json`) where that is a workload, then a file of
    workloads/ here, of workloads/ beside the folder of `spec`, or one that comes with hwgen.
    FOLDER/NAME is one of a folder in those, as `quantised/conv2d`.

    Raises:
        HwgenError: H003 where there is none; H001 where it is a folder.
    """
    return _find(text, "workload", workload_folders(spec), spec_folders())


def spec_folders() -> tuple[Path, ...]:
    """Where chips are looked for: here, and among those that come with hwgen."""
    return _folders(SPEC_FOLDER)


def workload_folders(spec: Path | None = None) -> tuple[Path, ...]:
    """Where workloads are looked for: here, next to the chip's folder, with hwgen."""
    beside = () if spec is None else (spec.resolve().parent.parent,)
    return _folders(WORKLOAD_FOLDER, *beside)


def shipped_in(folder: str) -> tuple[Path, ...]:
    """The files that come with hwgen, of hw_specs/ or workloads/, by name."""
    kind: Kind = "spec" if folder == SPEC_FOLDER else "workload"
    return files_in([f for f in (_SHIPPED / folder,) if f.is_dir()], kind)


def shipped(path: str) -> Path:
    """A file or folder that comes with hwgen, by its path in the repository."""
    return _SHIPPED / path


def _folders(name: str, *more: Path) -> tuple[Path, ...]:
    found: list[Path] = []
    for base in (Path(), *more, _SHIPPED):
        folder = base / name
        if folder.is_dir() and all(not folder.samefile(f) for f in found):
            found.append(folder)
    return tuple(found)


def files_in(folders: Sequence[Path], kind: Kind) -> tuple[Path, ...]:
    """The files in folders, by name; an earlier folder hides a later one's, and in one folder those
    of the kind hide others of their name."""
    found: dict[str, Path] = {}
    for folder in folders:
        inside: dict[str, list[Path]] = {}
        for path in sorted(folder.iterdir()):
            if path.suffix.lower() in SUFFIXES and path.is_file():
                inside.setdefault(path.stem, []).append(path)
        for stem, paths in inside.items():
            if stem not in found:
                several = paths[1:] and [p for p in paths if is_one(p, kind)]
                found[stem] = (several or paths)[0]
    return tuple(found[stem] for stem in sorted(found))


def named_files(kind: Kind) -> dict[str, Path]:
    """All files of a kind that a name reaches, by that, those in folders last; those found here are
    relative."""
    folders = spec_folders() if kind == "spec" else workload_folders()
    return {p.stem: p for p in _with_those_here(kind, folders)} | _nested(folders, kind)


def nearest_workloads(spec: Path) -> tuple[Path, ...]:
    """What is meant where no workload is named: those here, and the nearest workloads/ folder's."""
    return _with_those_here("workload", workload_folders(spec)[:1])


def _with_those_here(kind: Kind, folders: Sequence[Path]) -> tuple[Path, ...]:
    found = {p.stem: p for p in (*files_in(folders, kind), *_here(kind))}
    return tuple(found[stem] for stem in sorted(found))


def _here(kind: Kind) -> list[Path]:
    """The files of a kind in the current folder."""
    return [p for p in files_in([Path()], kind) if is_one(p, kind)]


def is_one(path: Path, kind: Kind) -> bool:
    """True if a file has a section of this kind, whether or not it is valid; also if it cannot be
    read: then whoever asks for it is told why."""
    try:
        text = read_regular(path, MAX_BYTES).decode("utf-8-sig", "replace")
    except HwgenError as problem:
        return problem.code != "H013"
    sections = _sections(text)
    return RECORD not in sections and not sections.isdisjoint(SIGNS[kind])


def _sections(text: str) -> set[str]:
    """The keys of the outermost mapping of YAML or JSON, as far as the text is either."""
    begins = re.match(r"(?:[^\S\n]*(?:#.*|---\s*)?\n)*( *)", text)
    indent = begins[1] if begins else ""
    if not text.startswith("{", begins.end() if begins else 0):
        key = re.compile(rf"^{indent}([\"\']?)(\w+)\1\s*:", re.MULTILINE)
        return {found[2] for found in key.finditer(text)}
    keys: set[str] = set()
    depth = 0
    for token in re.finditer(r'"((?:[^"\\]|\\.)*)"(\s*:)?|(\w+)\s*:|[][{}]', text):
        if token[0] in "[{":
            depth += 1
        elif token[0] in "]}":
            depth -= 1
        elif depth == 1 and (token[2] or token[3]):
            keys.add(token[1] or token[3])
    return keys


def nearest(name: str, known: Iterable[str]) -> str:
    """The known name most like a mistyped one, or nothing."""
    by_case = {k.lower(): k for k in sorted(known, reverse=True)}
    found = difflib.get_close_matches(name.lower(), sorted(by_case), n=1, cutoff=0.5)
    return by_case[found[0]] if found else ""


def _find(text: str, kind: Kind, folders: Sequence[Path], others: Sequence[Path]) -> Path:
    """The file of a spec or workload; `others`: where files of the other kind are."""
    path = Path(text)
    bare = bool(text) and path.name == text
    known = {p.stem: p for p in files_in(folders, kind)}
    here: list[Path] = []
    if bare and not (path.is_file() and path.suffix):
        # A folder or program called like a chip must not hide the chip.
        here = [h for s in SUFFIXES if (h := Path(text + s)).is_file()]
        for candidate in here:
            if is_one(candidate, kind):
                return candidate
        for stem, candidate in known.items():
            if text in (stem, candidate.name):
                return candidate
    if text and not bare and not path.is_absolute() and not os.path.lexists(path):
        inside = [f / (text + s) for f in folders for s in ("", *SUFFIXES)]
        if found := [p for p in inside if p.is_file()]:
            return found[0]
    if text and os.path.lexists(path) and not path.is_dir():
        return path  # A link that leads nowhere too: reading it says why.
    told = [p.stem for p in _with_those_here(kind, folders) if is_one(p, kind)]
    if text and path.is_dir():
        raise HwgenError(
            "H001",
            f"a {kind} is a file, this is a directory",
            location=Location(text),
            allowed=f"a path, or one of: {', '.join(told)}" if told else "a file",
        )
    nested = _nested(folders, kind)
    names = {**{n.rpartition("/")[2]: n for n in nested}, **{n: n for n in nested}}
    names |= {n: n for n in told}
    wanted = text.removesuffix(path.suffix) if path.suffix.lower() in SUFFIXES else text
    close = nearest(path.stem if path.is_absolute() else wanted, names)
    repair = f"did you mean {names[close]}?" if close else ""
    other: Kind = "workload" if kind == "spec" else "spec"
    found = text or "an empty name"
    if here:
        lacks = " nor ".join(SIGNS[kind])
        found = f"{text}, and {here[0]} here, which has neither {lacks}"
        repair = f"name {here[0]} with its ending, to see what it lacks"
    if any(text in (p.stem, p.name) for p in (*files_in(others, other), *_here(other))):
        repair = f"{text} is a {other}: --{other} {text}"
    raise HwgenError(
        "H003",
        f"there is no such {kind} file",
        found=found,
        allowed=f"a path, or one of: {', '.join([*told, *nested])}"
        if told or nested
        else "a path to a file",
        repair=repair,
    )


def _nested(folders: Sequence[Path], kind: Kind) -> dict[str, Path]:
    """What is found as FOLDER/NAME, by that; an earlier folder hides a later one's."""
    found: dict[str, Path] = {}
    for folder in folders:
        for inner in sorted(folder.iterdir()):
            for path in files_in([inner], kind) if inner.is_dir() else ():
                if is_one(path, kind):
                    found.setdefault(f"{inner.name}/{path.stem}", path)
    return dict(sorted(found.items()))
