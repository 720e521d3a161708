"""What a command line names: files by path or bare name, and who owns each `--set`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from hwgen.errors import HwgenError, Location
from hwgen.spec.expression import DTYPES
from hwgen.spec.find import (
    WORKLOAD_FOLDER,
    Kind,
    find_spec,
    find_workload,
    nearest,
    nearest_workloads,
)
from hwgen.spec.load import load_workload
from hwgen.spec.source import read_document
from hwgen.spec.workload import Workload

LONGEST_VALUE = 19


@dataclass(frozen=True, slots=True)
class Assignment:
    """One `--set`; `owner` is empty where the name alone has to tell."""

    owner: Kind | Literal[""]
    name: str
    value: int

    def __str__(self) -> str:
        return f"{self.owner}{'.' if self.owner else ''}{self.name}={self.value}"


@dataclass(frozen=True, slots=True)
class WorkloadRequest:
    """A workload file, and the sizes and data types set for it."""

    path: Path
    sizes: tuple[tuple[str, int], ...]
    dtypes: tuple[tuple[str, str], ...] = ()

    def load(self, sizes: Mapping[str, int] | None = None) -> Workload:
        """The workload; `sizes` beside those of the request."""
        return load_workload(self.path, dict(self.sizes) | dict(sizes or {}), dict(self.dtypes))


@dataclass(frozen=True, slots=True)
class Request:
    """A chip's file, the parameters set for it, and the workloads to compile.

    `every`: no workload was named, so these are all that were found.
    """

    spec: Path
    parameters: tuple[tuple[str, int], ...]
    workloads: tuple[WorkloadRequest, ...]
    every: bool = False


def parse_assignments(texts: Sequence[str]) -> tuple[Assignment, ...]:
    """`NAME=VALUE`, `spec.NAME=VALUE` or `workload.NAME=VALUE`, each name once.

    Raises:
        HwgenError: H004 where a text has another form or a name occurs twice.
    """
    found: list[Assignment] = []
    for text in texts:
        matched = re.fullmatch(
            r"\s*(?:(spec|workload)\.)?([A-Za-z_]\w*)\s*=\s*([-+]?\d+)\s*", text, re.ASCII
        )
        foreign = re.fullmatch(r"\s*(\w+)\.(\w+\s*=.*)", text)
        if foreign is not None and foreign[1] not in ("spec", "workload"):
            rest = foreign[2].strip()
            raise HwgenError(
                "H004",
                f"{foreign[1]} is neither spec nor workload",
                found=f"--set {text}",
                allowed="NAME=VALUE, spec.NAME=VALUE or workload.NAME=VALUE",
                repair=f"--set {rest}, or where both have the name spec.{rest} or workload.{rest}",
            )
        if matched is None or len(matched[3]) > LONGEST_VALUE:
            raise HwgenError(
                "H004",
                "--set needs a name and an integer",
                found=text,
                allowed="NAME=VALUE, spec.NAME=VALUE or workload.NAME=VALUE, "
                f"VALUE of at most {LONGEST_VALUE} characters",
                repair=_malformed(text),
            )
        owner: Kind | Literal[""] = ""
        if matched[1] == "spec":
            owner = "spec"
        elif matched[1] == "workload":
            owner = "workload"
        new = Assignment(owner, matched[2], int(matched[3]))
        if any((a.owner, a.name) == (new.owner, new.name) for a in found):
            raise _twice(new.name, text)
        found.append(new)
    return tuple(found)


def _twice(name: str, text: str) -> HwgenError:
    return HwgenError("H004", f"--set gives {name} twice", found=text, repair="keep one of the two")


def _malformed(text: str) -> str:
    value = text.partition("=")[2].strip()
    if value in DTYPES:
        return f"a data type is set by --dtype {text.strip()}"
    if re.fullmatch(r"[-+]?\d+(,[-+]?\d+)+", value):
        return "one value; several go with generate"
    if span := re.fullmatch(r"(\d{1,4})\s*(?:\.\.|:|-)\s*(\d{1,4})", value):
        first, last = int(span[1]), int(span[2])
        several = ",".join(map(str, dict.fromkeys((first, (first + last) // 2, last))))
        return f"list the values: --set {text.partition('=')[0].strip()}={several}"
    return "for example --set M=64"


def resolve(
    spec: str, workloads: Sequence[str], settings: Sequence[str], dtypes: Sequence[str] = ()
) -> Request:
    """Find the files and give every `--set` and `--dtype` to its owner.

    Without workloads, all in the current folder and in the nearest workloads/ folder are taken; a
    size then goes to each workload that has it.

    Raises:
        HwgenError: H003 no such file, H004 malformed, H005 nobody knows the name, H006 both do;
            and whatever reading the files raises.
    """
    spec_path = find_spec(spec)
    every = not workloads
    if every:
        paths = nearest_workloads(spec_path)
        if not paths:
            raise HwgenError(
                "H003",
                "there are no workloads to choose from",
                allowed=f"files in {WORKLOAD_FOLDER}/",
                repair="name one with --workload PATH",
            )
    else:
        paths = tuple(dict.fromkeys(find_workload(w, spec_path) for w in workloads))
    parameters, sizes = assign(parse_assignments(settings), spec_path, paths, every=every)
    types = assign_types(parse_types(dtypes), paths, every=every)
    return Request(
        spec_path,
        parameters,
        tuple(WorkloadRequest(p, sizes[p], types[p]) for p in paths),
        every,
    )


def parse_types(texts: Sequence[str]) -> dict[str, str]:
    """`NAME=DTYPE`, each name once.

    Raises:
        HwgenError: H004 where a text has another form or a name occurs twice.
    """
    found: dict[str, str] = {}
    for text in texts:
        matched = re.fullmatch(r"\s*([A-Za-z_]\w*)\s*=\s*(\w+)\s*", text, re.ASCII)
        if matched is None:
            raise HwgenError(
                "H004",
                "--dtype needs a name and a data type",
                found=text,
                allowed="NAME=DTYPE, of a type or a tensor of the workload",
                repair="for example --dtype T=float16",
            )
        if matched[1] in found:
            raise HwgenError(
                "H004",
                f"--dtype gives {matched[1]} twice",
                found=text,
                repair="keep one of the two",
            )
        found[matched[1]] = matched[2]
    return found


def assign_types(
    given: Mapping[str, str], workloads: Sequence[Path], *, every: bool
) -> dict[Path, tuple[tuple[str, str], ...]]:
    """The data types that are set, by workload: each goes to those that have the name.

    Raises:
        HwgenError: H005 none has it; whatever reading the files raises.
    """
    types: dict[Path, tuple[tuple[str, str], ...]] = dict.fromkeys(workloads, ())
    known: dict[Path, tuple[str, ...]] = {}
    sizes: set[str] = set()
    for path in workloads if given else ():
        try:
            sizes.update(_section(path, "sizes"))
            known[path] = (*_section(path, "dtypes"), *_section(path, "tensors"))
        except HwgenError:
            if not every:
                raise
            known[path] = ()  # Reported when this file's turn comes.
    for name, dtype in given.items():
        having = [path for path in workloads if name in known[path]]
        if not having:
            anywhere = sorted({n for names in known.values() for n in names})
            close = nearest(name, anywhere)
            named = (
                f"one of these, or write dtypes: {{{name}: {dtype}}} there, and {name} for types"
            )
            if name in sizes:
                named = f"one of these: {name} is a size, which --set sets"
            raise HwgenError(
                "H005",
                f"nothing here is called {name}",
                location=Location(str(workloads[0])) if len(workloads) == 1 else None,
                found=f"--dtype {name}={dtype}",
                allowed=", ".join(anywhere),
                repair=f"did you mean {close}={dtype}?" if close else f"name {named}",
            )
        for path in having:
            types[path] = (*types[path], (name, dtype))
    return types


def assign(
    assignments: Sequence[Assignment], spec: Path, workloads: Sequence[Path], *, every: bool
) -> tuple[tuple[tuple[str, int], ...], dict[Path, tuple[tuple[str, int], ...]]]:
    """Parameters of the chip and sizes of each workload that assignments set, each once."""
    sizes: dict[Path, tuple[tuple[str, int], ...]] = dict.fromkeys(workloads, ())
    if not assignments:
        return (), sizes
    parameters: list[tuple[str, int]] = []
    in_spec = _section(spec, "parameters")
    in_workloads: dict[Path, tuple[str, ...]] = {}
    for path in workloads:
        try:
            in_workloads[path] = _section(path, "sizes")
        except HwgenError:
            if not every:
                raise
            in_workloads[path] = ()  # Reported when this file's turn comes.
    anywhere = {n for known in in_workloads.values() for n in known}
    given: set[tuple[bool, str]] = set()
    for a in assignments:
        mine = a.owner != "workload" and a.name in in_spec
        theirs = a.owner != "spec" and a.name in anywhere
        if mine and theirs:
            raise HwgenError(
                "H006",
                f"both the spec and the workload have {a.name}",
                found=f"--set {a}",
                repair=f"write spec.{a.name}={a.value} or workload.{a.name}={a.value}",
            )
        if (mine, a.name) in given:  # Once with its owner's name, once without.
            raise _twice(a.name, str(a))
        given.add((mine, a.name))
        if mine:
            parameters.append((a.name, a.value))
        elif theirs:
            for path, known in in_workloads.items():
                if a.name in known:
                    sizes[path] = (*sizes[path], (a.name, a.value))
        else:
            _unknown(a, in_spec, tuple(sorted(anywhere)))
    return tuple(parameters), sizes


def _section(path: Path, section: str) -> tuple[str, ...]:
    """The names in one mapping of a file, before it is validated."""
    data = read_document(path).data
    entries = data.get(section) if isinstance(data, dict) else None
    return tuple(entries) if isinstance(entries, dict) else ()


def _unknown(a: Assignment, in_spec: Sequence[str], in_workloads: Sequence[str]) -> None:
    spec_names = in_spec if a.owner != "workload" else ()
    workload_names = in_workloads if a.owner != "spec" else ()
    lists = (("spec", sorted(spec_names)), ("workload", workload_names))
    allowed = "; ".join(f"{kind}: {', '.join(known)}" for kind, known in lists if known)
    close = nearest(a.name, [*spec_names, *workload_names])
    no_workload = a.owner == "workload" and not in_workloads
    raise HwgenError(
        "H005",
        f"nothing here is called {a.name}",
        found=f"--set {a}",
        allowed="spec.NAME=VALUE alone, with no workload" if no_workload else allowed,
        repair=f"did you mean {close}={a.value}?" if close else "",
    )
