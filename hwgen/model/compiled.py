"""The generated C model, compiled and called from Python."""

from __future__ import annotations

import ctypes
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hwgen.codegen.emit_c import CSource, Parameter
from hwgen.codegen.emit_model import CODES
from hwgen.errors import HwgenError

FLAGS = ("-std=c99", "-O3", "-march=native", "-shared", "-fPIC", "-w", "-fno-ivopts")
"""How the model is compiled. Without -fno-ivopts, gcc 12.2 gets addresses of some calls wrong whose
steps are constants (`tests/conformance/test_interleaved_banks.py` has one): it costs no speed."""

_NAMES = ("cc", "gcc", "clang")
_TIMEOUT_SECONDS = 300


def find_compiler() -> str | None:
    """The path of a C compiler: `$CC` first, then the usual names; None where there is none."""
    wanted = os.environ.get("CC", "").split()
    candidates = [*wanted[:1], *_NAMES]
    return next((found for name in candidates if (found := shutil.which(name))), None)


def have_compiler() -> bool:
    """Whether a model can be compiled here."""
    return find_compiler() is not None


class CompiledKernel:
    """One kernel on its chip's model, as a Python function."""

    def __init__(self, source: CSource, library: Path) -> None:
        self.source = source
        self.library = library
        loaded = ctypes.CDLL(str(library))
        self._function = loaded[source.function]
        self._function.restype = ctypes.c_int
        self._message = loaded[f"{source.function}_message"]
        self._message.restype = ctypes.c_char_p

    def run(self, inputs: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """The outputs by name, for inputs by name; shapes and dtypes as in the workload.

        Raises:
            HwgenError: H701 an input is missing or of another shape or dtype; H702 one of the
                model's checks failed.
        """
        arrays = [_input(p, inputs) for p in self.source.inputs]
        outputs = {p.name: np.zeros(p.shape, p.dtype) for p in self.source.outputs}
        status = self._function(
            *(ctypes.c_void_p(a.ctypes.data) for a in [*arrays, *outputs.values()])
        )
        if status != 0:
            message = self._message()
            raise HwgenError(
                "H702",
                f"the C model stopped: {CODES.get(status, f'code {status}')}",
                field=self.source.function,
                found=message.decode() if message else "",
                repair="report the workload, the spec and this message",
            )
        return outputs


def _input(parameter: Parameter, inputs: Mapping[str, NDArray[Any]]) -> NDArray[Any]:
    array = inputs.get(parameter.name)
    allowed = f"{parameter.dtype}{list(parameter.shape)}"
    if array is None:
        raise HwgenError(
            "H701",
            f"input {parameter.name} is missing",
            field=parameter.name,
            found=", ".join(sorted(inputs)) or "nothing",
            allowed=allowed,
            repair=f"give {parameter.name}",
        )
    dtype = str(array.dtype)
    if array.shape != parameter.shape or dtype != parameter.dtype:
        raise HwgenError(
            "H701",
            f"input {parameter.name} has another shape or data type",
            field=parameter.name,
            found=f"{dtype}{list(array.shape)}",
            allowed=allowed,
            repair=f"convert {parameter.name}",
        )
    return np.ascontiguousarray(array)


def compile_model(source: CSource) -> CompiledKernel:
    """Compile the model of a kernel, or take it from the cache.

    The cache is `$HWGEN_CACHE_DIR`, else `hwgen` in the user's cache directory; entries are named
    by their content, the compiler and the machine's instruction set.

    Raises:
        HwgenError: H703 no C compiler; H704 the compiler fails.
    """
    compiler = find_compiler()
    if compiler is None:
        raise HwgenError(
            "H703",
            "no C compiler found",
            found=f"none of {', '.join(_NAMES)} on PATH",
            allowed="any C99 compiler",
            repair="install gcc or clang, or set CC",
        )
    text = "\n".join([compiler, *FLAGS, _target(compiler), source.model])
    key = hashlib.sha256(text.encode()).hexdigest()[:32]
    library = _cache_directory() / f"{key}.so"
    if not library.exists():
        _compile(compiler, source, library)
    return CompiledKernel(source, library)


@cache
def _target(compiler: str) -> str:
    """What identifies the compiler and the instruction set: its predefined macros."""
    done = subprocess.run(
        [compiler, "-march=native", "-dM", "-E", "-x", "c", os.devnull],
        capture_output=True, text=True, check=False, timeout=_TIMEOUT_SECONDS,
    )  # fmt: skip
    return done.stdout


@cache
def _cache_directory() -> Path:
    """A directory of the user's that can be written."""
    named = os.environ.get("HWGEN_CACHE_DIR")
    base = os.environ.get("XDG_CACHE_HOME")
    wanted = Path(named) if named else Path(base or Path.home() / ".cache") / "hwgen"
    try:
        wanted.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=wanted):
            return wanted
    except OSError:
        return Path(tempfile.mkdtemp(prefix="hwgen-"))


def _compile(compiler: str, source: CSource, library: Path) -> None:
    with tempfile.TemporaryDirectory(dir=library.parent) as scratch:
        code = Path(scratch) / f"{source.function}.c"
        made = Path(scratch) / "model.so"
        code.write_text(source.model)
        done = subprocess.run(
            [compiler, *FLAGS, str(code), "-o", str(made), "-lm"],
            capture_output=True, text=True, check=False, timeout=_TIMEOUT_SECONDS,
        )  # fmt: skip
        if done.returncode != 0:
            raise HwgenError(
                "H704",
                "the C compiler refuses the model",
                field=source.function,
                found=done.stderr.strip()[:2000] or f"exit status {done.returncode}",
                repair="use another compiler through CC, or report this message",
            )
        # Atomic: another process may be compiling the same model.
        made.replace(library)
