"""Where a host that issues calls in order puts them, so that no unit waits for it.

A queue holds few instructions: behind a long run of one unit's calls the host cannot issue those
of another. So what the next iteration needs is brought in before this one's work, and what the
last one computed is moved out after it, each where the buffer has two slots. Both keep their own
iteration's addresses; only their place in the program moves.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from hwgen.polyhedral.tiling import TileLoop

Ranges = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Placing:
    """Some iterations of a call, and where in the tile loops they stand: an expression over their
    own counters per loop. `edge`: before (-1) or after (1) all loops."""

    ranges: Ranges
    at: tuple[str, ...]
    edge: int = 0
    is_late: bool = False


def in_place(loops: Sequence[TileLoop], ranges: Ranges) -> Placing:
    """Calls that stand where their counters say."""
    return Placing(ranges, tuple(_name(loop) for loop in loops[: len(ranges)]))


def early(loops: Sequence[TileLoop], ranges: Ranges, within: bool = False) -> Iterator[Placing]:
    """Calls one iteration of the loops around them earlier; the first before all loops. `within`:
    in the first innermost iteration of that one."""
    depth = len(ranges)
    inner = ("0",) * (len(loops) - depth) if within else ()
    if all(low == 0 for low, _ in ranges):
        yield Placing(((0, 1),) * depth, (), -1)
    for turn in range(depth):
        low, high = max(ranges[turn][0], 1), ranges[turn][1]
        if low >= high or any(start > 0 for start, _ in ranges[turn + 1 :]):
            continue
        at = [_name(loop) for loop in loops[:turn]]
        at.append(f"{_name(loops[turn])} - 1")
        at += [str(loop.count - 1) for loop in loops[turn + 1 : depth]]
        own = (*ranges[:turn], (low, high), *(((0, 1),) * (depth - turn - 1)))
        yield Placing(own, (*at, *inner))


def late(loops: Sequence[TileLoop], ranges: Ranges) -> Iterator[Placing]:
    """Calls in the first innermost iteration of the next one of the loops around them; the last
    after all loops."""
    depth = len(ranges)
    inner = ("0",) * (len(loops) - depth)
    ends = [loop.count for loop in loops[:depth]]
    if all(high == end for (_, high), end in zip(ranges, ends, strict=True)):
        yield Placing(tuple((end - 1, end) for end in ends), (), 1)
    for turn in range(depth):
        low, high = ranges[turn][0], min(ranges[turn][1], ends[turn] - 1)
        rest = list(zip(ranges[turn + 1 :], ends[turn + 1 :], strict=True))
        if low >= high or any(stop < end for (_, stop), end in rest):
            continue
        at = [_name(loop) for loop in loops[:turn]]
        at.append(f"{_name(loops[turn])} + 1")
        at += ["0"] * (depth - turn - 1)
        last = tuple((end - 1, end) for _, end in rest)
        yield Placing((*ranges[:turn], (low, high), *last), (*at, *inner), 0, True)


def _name(loop: TileLoop) -> str:
    return f"{loop.loop}_tile"
