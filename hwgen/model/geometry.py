"""The addresses that one call touches: dimensions, regions, and whether iterations are independent.

Offsets count entries from an operand's address. A dimension is an extent and one stride per
operand; dimensions run outermost first, in the order in which the hardware iterates.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
import numpy.typing as npt

from hwgen.codegen.program import KernelLoop

Dims = tuple[KernelLoop, ...]
Offsets = npt.NDArray[np.int64]


def normalised(loops: Sequence[KernelLoop]) -> Dims:
    """The same iterations with as few loops: extents of 1 dropped, dense neighbours merged."""
    dims: list[KernelLoop] = []
    for loop in loops:
        if loop.extent == 1:
            continue
        if dims and all(
            outer == inner * loop.extent
            for outer, inner in zip(dims[-1].strides, loop.strides, strict=True)
        ):
            dims[-1] = KernelLoop(dims[-1].extent * loop.extent, loop.strides)
        else:
            dims.append(loop)
    return tuple(dims)


def iterations(dims: Dims) -> int:
    return prod(d.extent for d in dims)


def starts(dims: Dims, operand: int) -> Offsets:
    """Each iteration's first entry, in order."""
    total = np.zeros(1, np.int64)
    for d in dims:
        steps = np.arange(d.extent, dtype=np.int64) * d.strides[operand]
        total = (total[:, np.newaxis] + steps).ravel()
    return total


@dataclass(frozen=True, slots=True)
class Region:
    """The entries that an operand touches: `low` to `high`, both included; all of them if
    `offsets` is None."""

    low: int
    high: int
    offsets: Offsets | None


def reach(dims: Dims, operand: int, span: int) -> tuple[int, int]:
    """Lowest and highest entry that an operand of `span` entries touches."""
    ends = [(d.extent - 1) * d.strides[operand] for d in dims]
    return sum(min(e, 0) for e in ends), sum(max(e, 0) for e in ends) + span - 1


def region(dims: Dims, operand: int, span: int) -> Region:
    low, high = reach(dims, operand, span)
    covered = span
    for stride, extent in sorted((abs(d.strides[operand]), d.extent) for d in dims):
        if stride > covered:
            return Region(low, high, _touched(dims, operand, span))
        covered += stride * (extent - 1)
    return Region(low, high, None)


def _touched(dims: Dims, operand: int, span: int) -> Offsets:
    first = np.unique(starts(tuple(d for d in dims if d.strides[operand]), operand))
    return np.unique(first[:, np.newaxis] + np.arange(span, dtype=np.int64))


def injective(dims: Dims, operand: int, span: int) -> bool:
    """Whether no entry is touched by two iterations."""
    covered = span
    for stride, extent in sorted((abs(d.strides[operand]), d.extent) for d in dims):
        if stride < covered:
            if not stride:
                return False
            break
        covered += stride * (extent - 1)
    else:
        return True
    low, high = reach(dims, operand, span)
    if iterations(dims) * span > high - low + 1:
        return False
    ordered = np.sort(starts(dims, operand))
    return bool((np.diff(ordered) >= span).all())


def independent(
    dims: Dims, written: int, spans: Sequence[int], sharing: Sequence[tuple[int, int]]
) -> bool:
    """Whether no iteration touches what another one writes.

    `sharing`: the other operands in the written operand's memory, each with its address
    relative to the written one's.
    """
    if not injective(dims, written, spans[written]):
        return False
    return all(
        _same(dims, written, other, spans, relative)
        or not overlap(dims, written, other, spans, relative)
        for other, relative in sharing
    )


def _same(dims: Dims, written: int, other: int, spans: Sequence[int], relative: int) -> bool:
    return (
        relative == 0
        and spans[written] == spans[other]
        and all(d.strides[written] == d.strides[other] for d in dims)
    )


def overlap(dims: Dims, written: int, other: int, spans: Sequence[int], relative: int) -> bool:
    """Whether another operand touches an entry that this one writes, in whatever iteration."""
    ours, theirs = region(dims, written, spans[written]), region(dims, other, spans[other])
    low, high = theirs.low + relative, theirs.high + relative
    if high < ours.low or low > ours.high:
        return False
    if ours.offsets is None and theirs.offsets is None:
        return True
    return bool(np.isin(_entries(theirs) + relative, _entries(ours)).any())


def _entries(where: Region) -> Offsets:
    if where.offsets is not None:
        return where.offsets
    return np.arange(where.low, where.high + 1, dtype=np.int64)


def stale_iteration(
    dims: Dims, written: int, spans: Sequence[int], sharing: Sequence[tuple[int, int]], latency: int
) -> tuple[int, int] | None:
    """The first iteration that touches what one of the `latency - 1` before it wrote, and the
    distance; the written operand itself counts."""
    writes = starts(dims, written)
    touches = [(writes, spans[written])]
    touches += [(starts(dims, other) + at, spans[other]) for other, at in sharing]
    for distance in range(1, latency):
        before = writes[:-distance]
        for where, span in touches:
            after = where[distance:]
            hit = (after < before + spans[written]) & (before < after + span)
            if hit.any():
                return int(np.argmax(hit)) + distance, distance
    return None


def rewritten_operation(sequence: Dims, written: int, distance: int) -> tuple[int, int] | None:
    """The first operation of a sequence that writes where one of the `distance - 1` before it
    wrote, and how far before."""
    writes = starts(sequence, written)
    for back in range(1, distance):
        same = writes[back:] == writes[:-back]
        if same.any():
            return int(np.argmax(same)) + back, back
    return None
