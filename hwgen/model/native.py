"""A generated file for the machine that hwgen runs on: compiled and called from Python."""

from __future__ import annotations

import ctypes
import hashlib
import subprocess
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import numpy as np

from hwgen.codegen.nest.emit import NestSource
from hwgen.errors import HwgenError
from hwgen.model.compiled import find_compiler
from hwgen.model.numeric import STORAGE, Array
from hwgen.spec.hardware import HardwareSpec
from hwgen.spec.workload import Workload

FLAGS = ("-std=c11", "-O2", "-fopenmp", "-march=native", "-shared", "-fPIC", "-w")
"""How the file is compiled."""

_TIMEOUT_SECONDS = 300


def run_native(
    source: NestSource,
    workload: Workload,
    inputs: Mapping[str, Array],
    hardware: HardwareSpec,
) -> dict[str, Array]:
    """The outputs by name, for row-major inputs by name.

    Raises:
        HwgenError: H703 no C compiler; H704 the compiler fails; H705 the file is not C;
            H726 an input is missing or of another shape or data type.
    """
    processor = hardware.processor
    if processor is None or processor.language != "c":
        raise HwgenError(
            "H705",
            f"{source.name} does not run on this machine",
            found="no processor" if processor is None else processor.language,
            allowed="processors that are programmed in C",
            repair="compile the file with the chip's own tools",
        )
    library = compile_native(source.text, source.name)
    arrays = [_input(name, workload, inputs) for name in source.inputs]
    outputs: dict[str, Array] = {}
    for name in source.outputs:
        tensor = workload.tensor[name]
        outputs[name] = np.zeros(tensor.shape, STORAGE[tensor.dtype])
    function = ctypes.CDLL(str(library))[source.name]
    function.restype = None
    function(*(ctypes.c_void_p(a.ctypes.data) for a in (*arrays, *outputs.values())))
    return outputs


def _input(name: str, workload: Workload, inputs: Mapping[str, Array]) -> Array:
    tensor = workload.tensor[name]
    given = inputs.get(name)
    if given is None or given.shape != tensor.shape or given.dtype != STORAGE[tensor.dtype]:
        raise HwgenError(
            "H726",
            f"an input tensor is missing or does not fit: {name}",
            location=tensor.location,
            found="nothing" if given is None else f"{given.dtype}{list(given.shape)}",
            allowed=f"{STORAGE[tensor.dtype]}{list(tensor.shape)}",
        )
    return np.ascontiguousarray(given)


@cache
def _folder() -> Path:
    """Where this process keeps what it compiled."""
    return Path(tempfile.mkdtemp(prefix="hwgen-native-"))


def compile_native(text: str, name: str) -> Path:
    """The shared library of a C file; each text is compiled once.

    Raises:
        HwgenError: H703 no C compiler; H704 the compiler fails.
    """
    compiler = find_compiler()
    if compiler is None:
        raise HwgenError(
            "H703",
            "no C compiler found",
            found="none on PATH",
            allowed="any C11 compiler",
            repair="install gcc or clang, or set CC",
        )
    key = hashlib.sha256("\n".join([compiler, *FLAGS, text]).encode()).hexdigest()[:32]
    library = _folder() / f"{key}.so"
    if library.exists():
        return library
    code = library.with_suffix(".c")
    code.write_text(text, encoding="utf-8")
    done = subprocess.run(
        [compiler, *FLAGS, str(code), "-o", str(library), "-lm"],
        capture_output=True, text=True, check=False, timeout=_TIMEOUT_SECONDS,
    )  # fmt: skip
    if done.returncode != 0:
        raise HwgenError(
            "H704",
            "the C compiler refuses the file",
            field=name,
            found=done.stderr.strip()[:2000] or f"exit status {done.returncode}",
            repair="use another compiler through CC, or report this message",
        )
    return library
