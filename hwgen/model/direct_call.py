"""Calls of compiled C on NumPy arrays that it reads as they are, with as little Python as checks
of their types, shapes and places take."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from ctypes import addressof, c_char
from typing import Any

import numpy as np

from hwgen.model.compiled import CompiledKernel, aligned
from hwgen.model.numeric import STORAGE, Array
from hwgen.spec.workload import Workload

Outputs = Array | tuple[Array, ...]
DirectCall = Callable[[tuple[object, ...], Mapping[str, object]], Outputs | None]
"""The outputs for inputs by place and by name; None where an input is missing, or is no array that
the C function can read as it is."""


def direct_call(kernel: CompiledKernel, workload: Workload) -> DirectCall | None:
    """The function of arrays that a compiled kernel is; None where its C has other parameters than
    the workload has inputs and outputs.

    The call raises what `CompiledKernel.stop` does.
    """
    taken, made = kernel.source.inputs, kernel.source.outputs
    if [p.name for p in (*taken, *made)] != [t.name for t in (*workload.inputs, *workload.outputs)]:
        return None
    names = [p.name for p in taken]
    inputs = [
        (t.extents, kind := STORAGE[p.dtype], _multiple(kind, p.align))
        for p, t in zip(taken, workload.inputs, strict=True)
    ]
    outputs = [
        (t.extents, kind := STORAGE[p.dtype], _multiple(kind, p.align))
        for p, t in zip(made, workload.outputs, strict=True)
    ]
    function, stop, count = kernel.function, kernel.stop, len(names)
    array_type, empty = np.ndarray, np.empty

    def call(places: tuple[object, ...], named: Mapping[str, object]) -> Outputs | None:
        if named:
            rest = names[len(places) :]
            if len(rest) != len(named) or not all(name in named for name in rest):
                return None
            places = (*places, *(named[name] for name in rest))
        if len(places) != count:
            return None
        addresses: list[int] = []
        for array, (extents, kind, multiple) in zip(places, inputs, strict=True):
            if type(array) is not array_type or array.shape != extents or array.dtype != kind:
                return None
            address = _address(array)
            if not address or address % multiple:
                return None
            addresses.append(address)
        results: list[Array] = []
        for extents, kind, multiple in outputs:
            # Every element of an output is written: a workload that leaves one out is refused.
            result = empty(extents, kind)
            address = _address(result)
            if address % multiple:
                result = aligned(result, multiple)
                address = _address(result)
            results.append(result)
            addresses.append(address)
        if status := function(*addresses):
            stop(status)
        return results[0] if len(results) == 1 else tuple(results)

    return call


def _multiple(kind: np.dtype[Any], align: int) -> int:
    """The bytes of which an array begins at a multiple: both are powers of two."""
    return max(kind.alignment, align)


def _address(array: Any) -> int:
    """Where an array begins; 0 for one that is not contiguous. Its buffer gives that in a third of
    the time of `array.ctypes`, but ctypes takes none that may not be written."""
    try:
        return addressof(c_char.from_buffer(array))
    except TypeError:
        return array.ctypes.data if array.flags.c_contiguous else 0
