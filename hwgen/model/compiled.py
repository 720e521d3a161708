"""Generated C, compiled and called from Python."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from hwgen.codegen.emit_model import CODES
from hwgen.codegen.source import CSource, Parameter
from hwgen.errors import HwgenError, Location
from hwgen.model.c_compiler import AS_FOUND, Build, find_compiler, have_compiler, load_library
from hwgen.model.numeric import STORAGE

__all__ = ["FLAGS", "CompiledKernel", "compile_model", "find_compiler", "have_compiler"]

FLAGS = (
    "-std=c11", "-O3", "-march=native", "-w", "-fno-ivopts",
    "-Werror=implicit-function-declaration",
)  # fmt: skip
"""How the model is compiled. Without -fno-ivopts, gcc 12.2 gets addresses of some calls wrong whose
steps are constants (`tests/conformance/test_interleaved_banks.py` has one): it costs no speed."""


class CompiledKernel:
    """One kernel as a Python function: on its chip's model, or the chip's own text, which says of
    units (not `checked`) whether there was memory, and nothing of a processor alone."""

    def __init__(self, source: CSource, loaded: ctypes.CDLL, *, checked: bool = True) -> None:
        self.source, self._checked = source, checked
        self.function = loaded[source.function]
        self.function.restype = ctypes.c_int if source.model else None
        count = len(source.inputs) + len(source.outputs)
        self.function.argtypes = [ctypes.c_void_p] * count
        self.loaded = loaded

    def run(self, inputs: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """The outputs by name, for inputs by name; shapes and dtypes as in the workload.

        Raises:
            HwgenError: H701 an input is missing or of another shape or dtype; H702 one of the
                model's checks failed.
            MemoryError: there is none for images of tensors.
        """
        arrays = [_input(p, inputs) for p in self.source.inputs]
        outputs = {
            p.name: aligned(np.zeros(p.shape, STORAGE[p.dtype]), p.align)
            for p in self.source.outputs
        }
        if status := self.function(*(a.ctypes.data for a in [*arrays, *outputs.values()])):
            self.stop(status)
        return outputs

    def stop(self, status: int) -> NoReturn:
        """Raise what a status of the function other than 0 means.

        Raises:
            HwgenError: H702.
            MemoryError: there is none for images of tensors.
        """
        if not self._checked:
            raise MemoryError(f"{self.source.function}: no memory for images of tensors")
        told = self.loaded[f"{self.source.function}_message"]
        told.restype = ctypes.c_char_p
        message = told()
        raise HwgenError(
            "H702",
            f"the C model stopped: {CODES.get(status, f'code {status}')}",
            field=self.source.function,
            found=message.decode() if message else "",
            repair="report the workload, the spec and this message",
        )


def _input(parameter: Parameter, inputs: Mapping[str, NDArray[Any]]) -> NDArray[Any]:
    array = inputs.get(parameter.name)
    kind = STORAGE[parameter.dtype]
    if array is not None and array.shape == parameter.shape and array.dtype == kind:
        return aligned(np.ascontiguousarray(array), parameter.align)
    allowed = f"{kind}{list(parameter.shape)}"
    if array is None:
        raise HwgenError(
            "H701",
            f"input {parameter.name} is missing",
            field=parameter.name,
            found=", ".join(sorted(inputs)) or "nothing",
            allowed=allowed,
            repair=f"give {parameter.name}",
        )
    raise HwgenError(
        "H701",
        f"input {parameter.name} has another shape or data type",
        field=parameter.name,
        found=f"{array.dtype}{list(array.shape)}",
        allowed=allowed,
        repair=f"convert {parameter.name}",
    )


def aligned(array: NDArray[Any], align: int) -> NDArray[Any]:
    """The array, or a copy of it that begins at a multiple of so many bytes."""
    if align == 1 or array.ctypes.data % align == 0:
        return array
    room = np.empty(array.nbytes + align, np.uint8)
    start = -room.ctypes.data % align
    made: NDArray[Any] = np.ndarray(array.shape, array.dtype, room.data, start)
    made[...] = array
    return made


def compile_model(source: CSource, build: Build = AS_FOUND) -> CompiledKernel:
    """Compile the model of a kernel, or take it from the cache.

    Raises:
        HwgenError: H703 no C compiler; H704 the compiler fails; H707 a spec that is not trusted.
    """
    refuse_foreign(source.foreign)
    return CompiledKernel(source, load_library(source.model, source.function, FLAGS, build))


def refuse_foreign(spec: str) -> None:
    """Refuse to compile and run C with the text of a spec that is not trusted, if there is one.

    Raises:
        HwgenError: H707.
    """
    if spec:
        raise HwgenError(
            "H707",
            "C made of this spec is not run here: nobody has said that the spec is trusted",
            location=Location(spec),
            found="a processor's spec that does not come with hwgen; its templates become C",
            allowed="a chip that comes with hwgen, as it is; one that is trusted; or the simulator "
            "alone (engine python)",
            repair="read its templates, then say --trust, in Python trust=True",
        )
