"""Where sums begin: the first iteration of a reduction, apart from the rest."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from hwgen.codegen.absorption import Walk
from hwgen.codegen.pipelining import Ranges
from hwgen.polyhedral.operations import Operation
from hwgen.polyhedral.tiling import Tiling


def starts(tiling: Tiling, operation: Operation, ranges: Ranges) -> list[tuple[Ranges, bool]]:
    """A piece's iterations cut into those of the reduction's first tile, if an intrinsic begins the
    sums there, and the rest. The first ones come first."""
    if operation.first is None:
        return [(ranges, False)]
    reduction = tiling.match.selection.reduction
    mine = [n for n in range(len(ranges)) if tiling.loops[n].loop in reduction]
    result: list[tuple[Ranges, bool]] = []
    if all(ranges[n][0] == 0 for n in mine):
        result.append((_with(ranges, mine, None), True))
    for count, n in enumerate(mine):
        low, high = max(ranges[n][0], 1), ranges[n][1]
        if low < high and all(ranges[k][0] == 0 for k in mine[:count]):
            result.append((_with(ranges, mine[:count], (n, (low, high))), False))
    return result


def _with(
    ranges: Ranges, first: Collection[int], other: tuple[int, tuple[int, int]] | None
) -> Ranges:
    """Ranges with some at their first value and one replaced."""
    result = [(0, 1) if n in first else span for n, span in enumerate(ranges)]
    if other is not None:
        result[other[0]] = other[1]
    return tuple(result)


def at_start(walks: Sequence[Walk], positions: Collection[int]) -> list[Walk]:
    """Loops, of which some do their first iteration only."""
    return [Walk(1, w.strides) if n in positions else w for n, w in enumerate(walks)]
