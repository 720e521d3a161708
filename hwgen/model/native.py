"""A generated file for the machine that hwgen runs on: compiled and called from Python."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping

import numpy as np

from hwgen.codegen.processor.emit import NestSource
from hwgen.errors import HwgenError
from hwgen.model.c_compiler import AS_FOUND, Build, load_library
from hwgen.model.numeric import STORAGE, Array
from hwgen.spec.hardware import HardwareSpec
from hwgen.spec.workload import Workload

FLAGS = ("-std=c11", "-O2", "-fopenmp", "-march=native", "-w")
"""How the file is compiled."""


class NativeKernel:
    """A compiled file, as a Python function."""

    def __init__(self, source: NestSource, workload: Workload, function: Callable[..., None]):
        self.source = source
        self.workload = workload
        self._function = function

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """The outputs by name, for row-major inputs by name.

        Raises:
            HwgenError: H726 an input is missing or of another shape or data type.
        """
        arrays = [_input(name, self.workload, inputs) for name in self.source.inputs]
        outputs: dict[str, Array] = {}
        for name in self.source.outputs:
            tensor = self.workload.tensor[name]
            outputs[name] = np.zeros(tensor.shape, STORAGE[tensor.dtype])
        self._function(*(ctypes.c_void_p(a.ctypes.data) for a in (*arrays, *outputs.values())))
        return outputs


def run_native(
    source: NestSource,
    workload: Workload,
    inputs: Mapping[str, Array],
    hardware: HardwareSpec,
    build: Build = AS_FOUND,
) -> dict[str, Array]:
    """The outputs by name, for row-major inputs by name.

    Raises:
        HwgenError: as `compile_native` and `NativeKernel.run`.
    """
    return compile_native(source, workload, hardware, build).run(inputs)


def compile_native(
    source: NestSource, workload: Workload, hardware: HardwareSpec, build: Build = AS_FOUND
) -> NativeKernel:
    """Compile a generated file, or take it from the cache.

    Raises:
        HwgenError: H703 no C compiler; H704 the compiler fails; H705 the file is not C.
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
    return NativeKernel(source, workload, native_function(source, build))


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


def native_function(source: NestSource, build: Build = AS_FOUND) -> Callable[..., None]:
    """The compiled function, of pointers to inputs and outputs.

    Raises:
        HwgenError: H703 no C compiler; H704 the compiler fails.
    """
    function = load_library(source.text, source.name, FLAGS, build)[source.name]
    function.restype = None
    return function
