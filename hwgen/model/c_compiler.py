"""C text as a library that is called from Python."""

from __future__ import annotations

import ctypes
import hashlib
import os
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from hwgen.errors import HwgenError
from hwgen.model.folders import cache_folder, trim, used

FLAGS_VARIABLE = "CFLAGS"
"""Environment variable with the flags after those of a kernel, as in `make`."""

_NAMES = ("cc", "gcc", "clang")
_TIMEOUT_SECONDS = 300
_DIGEST_BYTES = hashlib.sha256().digest_size

_loaded: dict[str, ctypes.CDLL] = {}


@dataclass(frozen=True, slots=True)
class Build:
    """A compiler by its name ("": the one found here) and flags, which come last."""

    compiler: str = ""
    flags: tuple[str, ...] = ()

    def variables(self) -> list[str]:
        """`CC` and `CFLAGS` as a shell sets them for this."""
        named = {"CC": self.compiler, FLAGS_VARIABLE: " ".join(self.flags)}
        return [f"{name}={shlex.quote(value)}" for name, value in named.items() if value]


AS_FOUND = Build()

_LEVELS = tuple(
    (*level, f"-std={standard}")
    for standard in ("gnu17", "c11")
    for level in (("-O2",), ("-O3", "-march=native"))
)
"""Flags that users compile with; gnu17 is what compilers take of their own accord."""
_NO_THREADS = ("-fno-openmp", "-fopenmp-simd")
"""Not every clang has the library that threads need."""


def user_builds() -> tuple[Build, ...]:
    """What users compile with: the compiler found here, and clang where there is one."""
    clang = "clang" if shutil.which("clang") else ""
    own = tuple(Build(flags=level) for level in _LEVELS)
    return (*own, *(Build(clang, (*level, *_NO_THREADS)) for level in _LEVELS if clang))


def find_compiler() -> tuple[str, ...] | None:
    """The command of a C compiler: `$CC`, else one of the usual names; None where there is none.

    Raises:
        HwgenError: H703 where `$CC` names no program.
    """
    if named := _words("CC"):
        program = shutil.which(named[0])
        if program is None:
            raise HwgenError(
                "H703",
                "CC names no program",
                found=f"CC={named[0]}",
                allowed="a C11 compiler on PATH, or a path",
                repair="set CC to one, or unset it",
            )
        return (program, *named[1:])
    return next(((found,) for name in _NAMES if (found := shutil.which(name))), None)


def have_compiler() -> bool:
    """Whether C can be compiled here."""
    return find_compiler() is not None


def need_compiler(name: str) -> tuple[str, ...]:
    """The command of the compiler of a name, else as `find_compiler`.

    Raises:
        HwgenError: H703 no C compiler.
    """
    compiler = (name,) if name else find_compiler()
    if compiler is None:
        raise HwgenError(
            "H703",
            "no C compiler found",
            found=f"none of {', '.join(_NAMES)} on PATH",
            allowed="any C11 compiler",
            repair="install gcc or clang, or set CC",
        )
    return compiler


def user_flags() -> tuple[str, ...]:
    """The words of `$CFLAGS`."""
    return _words(FLAGS_VARIABLE)


def build_in_turn(number: int) -> Build:
    """One of them."""
    builds = user_builds()
    return builds[number % len(builds)]


def load_library(
    text: str | Mapping[str, str], name: str, flags: tuple[str, ...], build: Build = AS_FOUND
) -> ctypes.CDLL:
    """The C text, or files of a folder by name, compiled with the flags, those of `$CFLAGS` and the
    build's, and loaded; once per process. Paths in flags begin at that folder.

    Libraries are kept in the user's cache, named by their content, the compiler and the machine's
    instruction set. One that is not as it was written counts as absent; without a cache nothing
    is left behind.

    Raises:
        HwgenError: H703 no C compiler; H704 the compiler fails.
    """
    compiler = need_compiler(build.compiler)
    flags = (*flags, *user_flags(), *build.flags)
    files = {f"{name}.c": text} if isinstance(text, str) else text
    content = [text] if isinstance(text, str) else [w for item in files.items() for w in item]
    words = "\n".join([*compiler, *flags, _target(compiler), *content])
    key = hashlib.sha256(words.encode()).hexdigest()[:32]
    if key not in _loaded:
        folder = _writable(cache_folder())
        kept = folder / f"{key}.so" if folder is not None else None
        with tempfile.TemporaryDirectory(prefix="hwgen-", dir=folder) as scratch:
            if kept is None or not _intact(kept):
                made = _compile(compiler, flags, files, name, Path(scratch))
                # Atomic: another process may be compiling the same text.
                kept = made if kept is None else made.replace(kept)
                if folder is not None:
                    trim(folder)
            used(kept)
            _loaded[key] = ctypes.CDLL(str(kept))
    return _loaded[key]


def object_bytes(
    files: Mapping[str, str],
    sources: Sequence[str],
    flags: tuple[str, ...],
    *,
    required: bool = True,
) -> dict[str, int] | None:
    """Bytes of code and constants in the object of each source, compiled among the files with the
    flags and those of `$CFLAGS`; None without a compiler or a program that reads its objects, and
    where the compiler may fail and does.

    Raises:
        HwgenError: H704 the compiler fails, where that is `required`.
    """
    compiler = find_compiler()
    if compiler is None:
        return None
    asked = _run([*compiler, "-print-prog-name=size"])  # That of the compiler's own target.
    reader = shutil.which(asked.stdout.strip() or "size")
    if reader is None:
        return None
    with tempfile.TemporaryDirectory(prefix="hwgen-") as scratch:
        folder = Path(scratch)
        _write(files, folder)
        done = _run([*compiler, *flags, *user_flags(), "-c", *sources], folder)
        if done.returncode != 0:
            if not required:
                return None
            raise refused(done, sources[0])
        read = _run([reader, *(str(Path(s).with_suffix(".o")) for s in sources)], folder)
    rows = [line.split() for line in read.stdout.splitlines()[1:]]
    if read.returncode != 0 or len(rows) != len(sources):
        return None
    return {source: int(row[0]) for source, row in zip(sources, rows, strict=True)}


def _words(variable: str) -> tuple[str, ...]:
    text = os.environ.get(variable, "")
    try:
        return tuple(shlex.split(text))
    except ValueError as error:
        raise HwgenError(
            "H706",
            f"the words of {variable} cannot be told apart",
            field=variable,
            found=f"{text!r}: {str(error).lower()}",
            allowed="words as a shell reads them",
            repair="close the quotation",
        ) from error


@cache
def _target(compiler: tuple[str, ...]) -> str:
    """What identifies the compiler and the instruction set: its predefined macros."""
    return _run([*compiler, "-march=native", "-dM", "-E", "-x", "c", os.devnull]).stdout


def machine_macros() -> frozenset[str]:
    """The macros that the compiler found here defines for this machine; none without a compiler."""
    compiler = find_compiler()
    text = _target(compiler) if compiler is not None else ""
    defined = (line.split(maxsplit=2) for line in text.splitlines())
    return frozenset(words[1] for words in defined if words[:1] == ["#define"])


def _run(words: Sequence[str], folder: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        words, capture_output=True, text=True, check=False, timeout=_TIMEOUT_SECONDS, cwd=folder
    )


def _write(files: Mapping[str, str], folder: Path) -> None:
    for file, text in files.items():
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).write_text(text, encoding="utf-8")


def _writable(folder: Path | None) -> Path | None:
    """The folder, made; None where it cannot be written."""
    if folder is None:
        return None
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return folder
    except OSError:
        return None


def _intact(library: Path) -> bool:
    """Whether a kept library ends in the digest of what is before. A loader reads past its end
    nothing, and of a damaged one whatever it finds."""
    try:
        content = library.read_bytes()
    except OSError:
        return False
    body, digest = content[:-_DIGEST_BYTES], content[-_DIGEST_BYTES:]
    return hashlib.sha256(body).digest() == digest


def _compile(
    compiler: tuple[str, ...],
    flags: tuple[str, ...],
    files: Mapping[str, str],
    name: str,
    folder: Path,
) -> Path:
    made = folder / "made.so"
    _write(files, folder)
    sources = [str(folder / file) for file in files if file.endswith(".c")]
    words = [*compiler, *flags, "-shared", "-fPIC", *sources, "-o", str(made), "-lm"]
    done = _run(words, folder)
    if done.returncode != 0:
        raise refused(done, name)
    with made.open("ab") as file:
        file.write(hashlib.sha256(made.read_bytes()).digest())
    return made


def refused(done: subprocess.CompletedProcess[str], name: str) -> HwgenError:
    return HwgenError(
        "H704",
        "the C compiler refuses the file",
        field=name,
        found=done.stderr.strip()[:2000] or f"exit status {done.returncode}",
        repair="use another compiler through CC, other flags through CFLAGS, or report this "
        "message",
    )
