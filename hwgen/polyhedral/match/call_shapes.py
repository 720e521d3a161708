"""How many calls a tile takes, and how long they are: hardware loops against the tile's extents."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

import numpy as np
from numpy.typing import NDArray

from hwgen.polyhedral.match.matching import Match
from hwgen.polyhedral.match.operations import Operation
from hwgen.spec.call_cycles import unhindered
from hwgen.spec.expression import evaluate
from hwgen.spec.hardware import HardwareLoop, Intrinsic

Sizes = NDArray[np.int64]
Together = tuple[tuple[str, ...], str]
"""Names of the operands that some loops move, and no others; the loop where it is by itself."""


def call_cycles(o: Operation, match: Match, tiles: Mapping[str, Sizes]) -> NDArray[np.float64]:
    """Cycles of the calls that do one tile of an operation, its transfers not counted.

    Loops that move the same operands count as one loop of all their iterations, which dense
    buffers make of them; but not those of windows, whose rows overlap or stand apart. Each hardware
    loop takes the longest of those that it can move.
    """
    left = _together(o, match, tiles)
    shape = np.broadcast_shapes(*(n.shape for n in left.values()), (1,))
    extents: dict[str, Sizes] = {}
    loops = sorted(o.intrinsic.loops, key=lambda x: (_reach(x, o, left), -x.extent.maximum))
    for loop in loops:
        most = loop.extent.maximum
        extent = np.ones(shape, np.int64)
        longest = np.ones(shape, np.int64)
        mine = [some for some in left if _moves(loop, o, some)]
        for some in mine:
            longest = np.maximum(longest, left[some])
        taken = np.zeros(shape, np.bool_)
        for some in mine:
            here = ~taken & (left[some] == longest) & (longest > 1)
            calls = -(-left[some] // most)
            extent = np.where(here, -(-left[some] // calls), extent)
            left[some] = np.where(here, calls, left[some])
            taken |= here
        extents[loop.name] = extent
    calls = np.ones(shape, np.int64)
    for count in left.values():
        calls = calls * count
    return calls * _cycles(o.intrinsic, extents, shape)


def _together(o: Operation, match: Match, tiles: Mapping[str, Sizes]) -> dict[Together, Sizes]:
    """Iterations of the loops that count as one."""
    found: dict[Together, Sizes] = {}
    for n in o.loops:
        moved: list[str] = []
        plain = True
        for p, storage in zip(o.intrinsic.operands, o.storages, strict=True):
            mine = [c for c in match.coordinate.get(storage, ()) if n in c.names]
            plain &= all(c.terms == ((n, 1),) for c in mine)
            if mine:
                moved.append(p.name)
        key = (tuple(sorted(moved)), "" if plain else n)
        found[key] = found.get(key, np.ones(1, np.int64)) * tiles[n]
    return dict(sorted(found.items()))


def _moves(loop: HardwareLoop, o: Operation, some: Together) -> bool:
    """Whether a hardware loop can move these operands and leave the others where they are."""
    moved, _ = some
    rules = ((p.name, loop.stride(p.name).range) for p in o.intrinsic.operands)
    return all(r.maximum > 0 if name in moved else r.minimum == 0 for name, r in rules)


def _reach(loop: HardwareLoop, o: Operation, left: Mapping[Together, Sizes]) -> int:
    return sum(_moves(loop, o, some) for some in left)


def _cycles(
    intrinsic: Intrinsic, extents: Mapping[str, Sizes], shape: tuple[int, ...]
) -> NDArray[np.float64]:
    """Cycles of calls of these extents, each combination worked out once."""
    names = list(extents)
    if not names:
        return np.full(shape, _once(intrinsic, {}))
    rows = np.stack([extents[name] for name in names])
    codes = np.zeros(shape, np.int64)
    for row in rows:
        codes = codes * (int(row.max()) + 1) + row
    _, first, inverse = np.unique(codes, return_index=True, return_inverse=True)
    each = [_once(intrinsic, dict(zip(names, map(int, rows[:, n]), strict=True))) for n in first]
    return np.array(each, np.float64)[inverse]


def _once(intrinsic: Intrinsic, extents: Mapping[str, int]) -> float:
    iterations = prod(extents.values())
    free = {"transfer": 0, "bursts": 1, "beats": 1, "iterations": iterations}
    return float(
        evaluate(intrinsic.cycles, {**free, **extents, **unhindered(intrinsic, iterations)})
    )
