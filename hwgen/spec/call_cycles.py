"""Cycles of a call, and of a run of calls that stands for one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import lru_cache
from itertools import product
from math import prod

from hwgen.spec.expression import evaluate
from hwgen.spec.hardware import Intrinsic
from hwgen.spec.memory import BANK_CYCLES

OF_ALL_CALLS = ("transfer", "bursts", "beats")
"""What a formula may name that a run of calls has once."""

MOST_SHAPES = 4096
"""Combinations of hardware loop extents that are all looked at for the best rate."""


def run_cycles(
    intrinsic: Intrinsic,
    extents: Sequence[int],
    steps: Sequence[int],
    names: Mapping[str, int],
    *,
    fresh: bool = True,
) -> float:
    """Cycles of all calls that software loops repeat, one after the other.

    `extents`: of all loops; `steps`: how the stationary operand moves in each, where there is one;
    `names`: what else the formula may use; `fresh`: whether the first call brings that operand.
    What `transfer`, `bursts` and `beats` stand for is that of all calls together, and is counted
    once.
    """
    count = intrinsic.software_loops
    given = formula_names(intrinsic, extents, names)
    if not count:
        return evaluate(intrinsic.cycles, given)
    idle = given | dict.fromkeys(OF_ALL_CALLS, 0)
    each = evaluate(intrinsic.cycles, idle)
    moved = evaluate(intrinsic.cycles, given) - each
    held = intrinsic.stationary
    if held is None or not fresh:
        return prod(extents[:count]) * each + moved
    inside = repeats(extents[:count], steps[:count])
    runs = prod(extents[:count]) // inside
    return runs * (held.first(each) + (inside - 1) * each) + moved


def formula_names(
    intrinsic: Intrinsic, extents: Sequence[int], names: Mapping[str, int]
) -> dict[str, int]:
    """What the formula of one call may use, each call of a run being one."""
    given = dict(names)
    given |= {loop.name: n for loop, n in zip(intrinsic.loops, extents, strict=False)}
    if intrinsic.software_loops:
        given["iterations"] = prod(extents[intrinsic.software_loops :])
    return given


def repeats(extents: Sequence[int], steps: Sequence[int]) -> int:
    """Consecutive iterations of a loop nest for which an operand stays: the innermost loops in
    which it does not move, or that run once."""
    inside = 1
    for extent, step in zip(reversed(extents), reversed(steps), strict=True):
        if step and extent > 1:
            break
        inside *= extent
    return inside


def unhindered(intrinsic: Intrinsic, iterations: int) -> dict[str, int]:
    """`bank_cycles` of a call whose accesses are all in banks of their own, where it has them."""
    at_once = intrinsic.iterations_per_cycle
    return {BANK_CYCLES: -(-iterations // at_once)} if at_once else {}


@lru_cache(maxsize=256)
def best_rate(intrinsic: Intrinsic) -> Fraction:
    """The fewest cycles per iteration of any call, or of any micro-kernel that fits the chip, its
    transfers and its waits for banks not counted."""
    loops = intrinsic.loops[intrinsic.software_loops :]
    ranges: list[Sequence[int]] = [range(x.extent.minimum, x.extent.maximum + 1) for x in loops]
    micro = intrinsic.micro_kernel
    ranges.append(range(1, micro.capacity_operations + 1) if micro else range(1, 2))
    if prod(len(r) for r in ranges) > MOST_SHAPES:
        ranges = [r[-1:] for r in ranges]
    free = dict.fromkeys(OF_ALL_CALLS, 0)
    rates: list[Fraction] = []
    for extents in product(*ranges):
        count = prod(extents)
        names = free | {x.name: n for x, n in zip(loops, extents, strict=False)}
        names |= {"operations": extents[-1], "iterations": count} | unhindered(intrinsic, count)
        rates.append(Fraction(evaluate(intrinsic.cycles, names)) / count)
    return min(rates)


def shortest_call(intrinsic: Intrinsic) -> float:
    """Cycles of the shortest call, its transfers not counted."""
    loops = intrinsic.loops[intrinsic.software_loops :]
    names = dict.fromkeys(OF_ALL_CALLS, 0) | {x.name: 1 for x in loops}
    names |= {"operations": 1, "iterations": 1} | unhindered(intrinsic, 1)
    return evaluate(intrinsic.cycles, names)
