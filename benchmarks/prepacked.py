"""Emitted C for this machine, with constants packed and all that they decide computed before."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from time import process_time

import numpy as np

from benchmarks.mkl import FLAGS
from hwgen.model.c_compiler import load_library
from hwgen.model.numeric import STORAGE, Array
from hwgen.pipeline import compile_workload
from hwgen.spec.hardware import HardwareSpec
from hwgen.spec.workload import Workload
from tests.native_calls import Call, Room, native_calls

ALIGN = 64


@dataclass(frozen=True)
class Prepacked:
    """`run`: the kernel on `arrays`, which must stay; `output`: the one that it writes; `took`: CPU
    seconds of the search, without the C compiler."""

    run: Callable[[], object]
    arrays: Mapping[str, Array]
    output: str
    took: float

    @property
    def result(self) -> Array:
        """What the last run has written."""
        return self.arrays[self.output]


def prepacked(workload: Workload, hardware: HardwareSpec, inputs: Mapping[str, Array]) -> Prepacked:
    """Compile a workload of one output for a chip with units that this machine has."""
    start = process_time()
    kernel = compile_workload(workload, hardware)
    took = process_time() - start
    source = kernel.source
    library = load_library(source.c, source.function, (*FLAGS, "-lm"))
    calls = native_calls(kernel, library)
    arrays = {name: _aligned(room) for name, room in calls.rooms.items()}
    for name, values in inputs.items():
        arrays[name][...] = values

    def prepared(call: Call) -> Callable[[], object]:
        function = library[call.function]
        pointers = [ctypes.c_void_p(arrays[name].ctypes.data) for name in call.arguments]

        def run() -> None:
            if function(*pointers) != 0 and call.status:
                raise SystemExit("no memory")

        return run

    for call in calls.before:
        prepared(call)()
    (output,) = source.outputs
    return Prepacked(prepared(calls.packed or calls.plain), arrays, output.name, took)


def _aligned(room: Room) -> Array:
    """An array that begins where a vector does."""
    place = np.empty(room.bytes + ALIGN, np.uint8)
    start = -place.ctypes.data % ALIGN
    return np.ndarray(room.shape, STORAGE[room.dtype], place.data, start)
