"""Fit the loops around an intrinsic into its hardware loops and micro-operation sequence.

A call has loops, each with an extent and a step per operand. Loops that step like one are merged;
then every assignment to the hardware's loops is tried, the rest unrolls into the sequence where
the intrinsic has one, and what still remains becomes loops around the call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import permutations
from math import prod

import numpy as np

from hwgen.errors import HwgenError, Tolerating
from hwgen.spec.hardware import HardwareLoop, Intrinsic

MAX_CHECKED_ITERATIONS = 1 << 16
"""Iterations over which result latency is checked one by one."""


@dataclass(frozen=True, slots=True)
class Walk:
    """A loop: `extent` steps, each moving operand k by `strides[k]` entries."""

    extent: int
    strides: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Absorption:
    """Where each loop went: `hardware` has one entry per loop of the intrinsic, of which those
    written in C around it come first and take `repeated` iterations."""

    hardware: tuple[Walk, ...]
    sequence: tuple[Walk, ...]
    outer: tuple[Walk, ...]
    repeated: int = 1

    @property
    def calls(self) -> int:
        return prod(w.extent for w in self.outer)

    @property
    def issued(self) -> int:
        """Calls, those that C loops of the intrinsic repeat one by one."""
        return self.calls * self.repeated

    @property
    def operations(self) -> int:
        return prod(w.extent for w in self.sequence)

    @property
    def iterations(self) -> int:
        """Applications of the semantics in one call."""
        return self.operations * prod(w.extent for w in self.hardware)


def absorb(intrinsic: Intrinsic, loops: Sequence[Walk], *, ordered: bool = False) -> Absorption:
    """The absorption with the fewest calls, the shortest sequence, and the fewest rows. `ordered`:
    iterations that write the same entries stay in order.

    Raises:
        HwgenError: H614 where no extents that the fields allow run these iterations.
    """
    return _absorb(intrinsic, tuple(loops), ordered)


@dataclass(frozen=True, slots=True)
class Part:
    """Some of the iterations of a loop nest; `offsets`: where each operand's first one lies."""

    offsets: tuple[int, ...]
    absorbed: Absorption


def absorb_in_parts(
    intrinsic: Intrinsic, loops: Sequence[Walk], *, ordered: bool = False
) -> list[Part]:
    """The same iterations in as many absorptions as make the calls few: a loop that no call takes
    whole is cut where the last full call of it ends.

    Raises:
        HwgenError: H614 as `absorb`.
    """
    return list(_in_parts(intrinsic, tuple(loops), ordered))


@lru_cache(maxsize=4096)
def _in_parts(intrinsic: Intrinsic, loops: tuple[Walk, ...], ordered: bool) -> tuple[Part, ...]:
    whole = Part((0,) * len(intrinsic.operands), absorb(intrinsic, loops, ordered=ordered))
    if whole.absorbed.issued == 1 or intrinsic.micro_kernel is not None:
        return (whole,)
    own = intrinsic.loops[intrinsic.software_loops :]
    limits = {n for x in own for n in x.extent.among or (x.extent.maximum,) if n > 0}
    fewest, cut = whole.absorbed.issued, None
    # One cut after the other, the best first: all ways to cut all loops are too many.
    for n, walk in enumerate(loops):
        if ordered and not cuttable(loops, n, _written(intrinsic)):
            continue
        for limit in sorted(limits):
            first = walk.extent // limit * limit
            if not 0 < first < walk.extent or not _addressed(intrinsic, (walk,), first):
                continue
            head = (*loops[:n], Walk(first, walk.strides), *loops[n + 1 :])
            tail = (*loops[:n], Walk(walk.extent - first, walk.strides), *loops[n + 1 :])
            with Tolerating("H614"):  # a part too short for the fields
                both = (absorb(intrinsic, x, ordered=ordered).issued for x in (head, tail))
                if (issued := sum(both)) < fewest:
                    fewest, cut = issued, (head, tail, walk, first)
    if cut is None:
        return (whole,)
    head, tail, walk, first = cut
    later = (_moved(p, walk, first) for p in _in_parts(intrinsic, tail, ordered))
    return (*_in_parts(intrinsic, head, ordered), *later)


def cuttable(loops: Sequence[Walk], n: int, written: int) -> bool:
    """Whether all of a loop's first iterations may run before its last ones: no loop outside it
    comes back to the entries that it writes."""
    return loops[n].strides[written] != 0 or all(
        w.strides[written] != 0 or w.extent == 1 for w in loops[:n]
    )


def _moved(part: Part, walk: Walk, iterations: int) -> Part:
    offsets = (o + s * iterations for o, s in zip(part.offsets, walk.strides, strict=True))
    return Part(tuple(offsets), part.absorbed)


@lru_cache(maxsize=4096)
def _absorb(intrinsic: Intrinsic, loops: tuple[Walk, ...], ordered: bool) -> Absorption:
    order = Order(_written(intrinsic), loops if ordered else None)
    merged = order.merged(loops)
    if intrinsic.software_loops:
        return _repeated(intrinsic, merged, order)
    limited = tuple(part for w in merged for part in _within(intrinsic, w))
    names = [o.name for o in intrinsic.operands]
    best: tuple[tuple[int, int, int], Absorption] | None = None
    fitting = [[w for w in dict.fromkeys(limited) if _fits(x, w, names)] for x in intrinsic.loops]

    def promising(left: int) -> bool:
        return best is None or _fewest(intrinsic, left)[0] <= best[0][0]

    for chosen, rest in _choices(limited, fitting, promising):
        fewest = _fewest(intrinsic, prod(w.extent for w in rest))
        if best is not None and (*fewest, 1) >= best[0]:
            continue
        hardware = _fill(intrinsic, chosen, intrinsic.loops)
        if hardware is None:
            continue
        # Rows: a transfer's bursts cover one row each, so the innermost loop should be long.
        rows = prod(w.extent for w in hardware[:-1])
        if best is not None and (*fewest, rows) >= best[0]:
            continue
        candidate = _with_sequence(intrinsic, hardware, rest, order)
        if candidate is None:
            continue
        rank = (candidate.calls, candidate.operations, rows)
        if best is None or rank < best[0]:
            best = (rank, candidate)
    if best is None:
        raise _no_call(intrinsic, limited)
    return best[1]


def _fewest(intrinsic: Intrinsic, left: int) -> tuple[int, float]:
    """The fewest calls that take the iterations which hardware loops leave, and operations of each
    then."""
    micro = intrinsic.micro_kernel
    calls = left if micro is None else -(-left // micro.capacity_operations)
    return calls, left / calls


def _repeated(intrinsic: Intrinsic, merged: tuple[Walk, ...], order: Order) -> Absorption:
    """The absorption into a run of calls with the fewest of them: what the hardware's own loops
    do not take becomes C loops around the call."""
    count = intrinsic.software_loops
    inner = intrinsic.loops[count:]
    best: tuple[tuple[int, int, tuple[int, ...]], Absorption] | None = None
    every, names = prod(w.extent for w in merged), [o.name for o in intrinsic.operands]
    fitting = [[w for w in merged if _fits(x, _cut(w, x)[0], names)] for x in inner]
    for chosen, kept in _choices(merged, fitting):
        both = zip(chosen, inner, strict=True)
        cut = [None if walk is None else _cut(walk, loop) for walk, loop in both]
        taken = prod(x[0].extent for x in cut if x is not None)
        if best is not None and (1, every // taken) > best[0][:2]:
            continue
        hardware = _fill(intrinsic, tuple(None if x is None else x[0] for x in cut), inner)
        if hardware is None:
            continue
        rest = [*kept, *(x[1] for x in cut if x is not None and x[1] is not None)]
        candidate = _around(intrinsic, hardware, order.merged(rest, whole=False), order)
        if candidate is None:
            continue
        # As many iterations as fit in the innermost loop: a transfer's bursts cover its rows.
        inside = tuple(-w.extent for w in reversed(hardware))
        rank = (candidate.calls, candidate.repeated, inside)
        if best is None or rank < best[0]:
            best = (rank, candidate)
    if best is None:
        raise _no_call(intrinsic, merged)
    return best[1]


def _around(
    intrinsic: Intrinsic, hardware: tuple[Walk, ...], rest: Sequence[Walk], order: Order
) -> Absorption | None:
    """What the hardware's own loops leave as C loops around the call: in the order that brings in
    the stationary operand least often or, where results would be late, in one that writes elsewhere
    first; what cannot be repeated so, as what moves backwards, stands outside the run. None where
    even that is too early."""
    count, written = intrinsic.software_loops, _written(intrinsic)
    if not _addressed(intrinsic, rest):
        return None
    backwards = tuple(w for w in rest if min(w.strides) < 0)
    forwards = [w for w in rest if w not in backwards]
    least = max(0, len(forwards) - count)
    idle = Walk(1, (0,) * len(intrinsic.operands))
    tries = [(walks, least) for walks in order.kept(_stationary_inside(intrinsic, forwards))]
    tries += [
        (walks, outside)
        for walks in order.kept(_ordered(forwards, written))
        for outside in range(least, len(forwards) + 1)
    ]
    for ordered, outside in tries:
        around = ordered[outside:]
        loops = (*(idle for _ in range(count - len(around))), *around, *hardware)
        outer = (*backwards, *ordered[:outside])
        if order.holds((*outer, *loops)) and not hazard(intrinsic, loops, written):
            return Absorption(loops, (), outer, prod(w.extent for w in around))
    return None


def _written(intrinsic: Intrinsic) -> int:
    return [o.name for o in intrinsic.operands].index(intrinsic.written.name)


def _cut(walk: Walk, loop: HardwareLoop) -> tuple[Walk, Walk | None]:
    """A loop cut into what a hardware loop takes, and the loop around that."""
    if walk.extent in loop.extent:
        return walk, None
    inner = loop.extent.multiple(walk.extent)
    if not inner:
        return walk, None  # as it is, no call takes it
    outside = Walk(walk.extent // inner, tuple(s * inner for s in walk.strides))
    return Walk(inner, walk.strides), outside


def _stationary_inside(intrinsic: Intrinsic, walks: Sequence[Walk]) -> tuple[Walk, ...]:
    """C loops in an order that brings in the stationary operand least often; within that, those
    that do not move the written operand outside."""
    names, written = [o.name for o in intrinsic.operands], _written(intrinsic)
    held = names.index(intrinsic.stationary.operand) if intrinsic.stationary else written

    def rank(w: Walk) -> tuple[bool, bool, int, tuple[int, ...]]:
        return (not w.strides[held], w.strides[written] != 0, -w.extent, w.strides)

    return tuple(sorted(walks, key=rank))


def _no_call(intrinsic: Intrinsic, loops: Sequence[Walk]) -> HwgenError:
    counts = " x ".join(str(w.extent) for w in loops if w.extent > 1) or "1"
    own = [x for x in intrinsic.loops if not x.software]
    return HwgenError(
        "H614",
        f"no call of {intrinsic.name} runs these iterations",
        location=intrinsic.location,
        field=f"intrinsics.{intrinsic.name}.loops",
        found=f"loops of {counts} iterations",
        allowed="; ".join(f"{x.name} {x.extent}" for x in own),
        repair="loops whose extents and strides may be smaller",
    )


@dataclass(frozen=True, slots=True)
class Order:
    """The order that iterations which write the same entries keep, where they must: that of
    `loops`; None where they need not. `written`: the position of the written operand."""

    written: int
    loops: tuple[Walk, ...] | None

    def merged(self, loops: Sequence[Walk], *, whole: bool = True) -> tuple[Walk, ...]:
        """Loops with those joined that may be; `whole`: these are all loops, in their order."""
        active = [w for w in loops if w.extent > 1]
        if self.loops is None:
            return _merge(active)
        again = [w for w in active if not w.strides[self.written]]
        apart = [w for w in active if w.strides[self.written]]
        return (*(_joined(again) if whole else again), *_merge(apart))

    def kept(self, walks: Sequence[Walk]) -> Iterator[tuple[Walk, ...]]:
        """Orders of loops, the given one where all may be: loops that write the same entries again
        stand outside in every order, of which `holds` takes one."""
        if self.loops is None:
            yield tuple(walks)
            return
        again = [w for w in walks if not w.strides[self.written]]
        apart = [w for w in walks if w.strides[self.written]]
        for chosen in permutations(again):
            yield (*chosen, *apart)

    def holds(self, nest: Sequence[Walk]) -> bool:
        """Whether a loop nest keeps the order."""
        return self.loops is None or self._again(nest) == self._again(self.loops)

    def _again(self, nest: Sequence[Walk]) -> tuple[Walk, ...]:
        return _joined([w for w in nest if w.extent > 1 and not w.strides[self.written]])


def _joined(loops: Sequence[Walk]) -> tuple[Walk, ...]:
    """Neighbours joined whose step one continues: equal for nests that step alike, in order."""
    result: list[Walk] = []
    for w in loops:
        last = result[-1] if result else None
        if last is not None and last.strides == tuple(s * w.extent for s in w.strides):
            result[-1] = Walk(last.extent * w.extent, w.strides)
        else:
            result.append(w)
    return tuple(result)


def _merge(loops: list[Walk]) -> tuple[Walk, ...]:
    """Join loops whose step continues another's, for all operands."""
    changed = True
    while changed:
        changed = False
        for outer, inner in permutations(range(len(loops)), 2):
            a, b = loops[outer], loops[inner]
            if a.strides == tuple(s * b.extent for s in b.strides):
                rest = [w for i, w in enumerate(loops) if i not in (outer, inner)]
                loops = [*rest, Walk(a.extent * b.extent, b.strides)]
                changed = True
                break
    return tuple(loops)


def _within(intrinsic: Intrinsic, walk: Walk) -> Iterator[Walk]:
    """Cut a loop that is longer than any hardware loop takes into two exact factors."""
    extents = [loop.extent for loop in intrinsic.loops]
    if any(walk.extent in e for e in extents) or intrinsic.micro_kernel is not None:
        yield walk
        return
    inner = max((e.multiple(walk.extent) for e in extents), default=1)
    if not inner:
        yield walk
        return
    yield Walk(inner, walk.strides)
    yield Walk(walk.extent // inner, tuple(s * inner for s in walk.strides))


def _choices(
    loops: Sequence[Walk],
    fitting: Sequence[Sequence[Walk]],
    promising: Callable[[int], bool] = lambda _: True,
) -> Iterator[tuple[tuple[Walk | None, ...], Sequence[Walk]]]:
    """Every way to give some loops to hardware loops, each one of those that fit it, and the loops
    that are left; without ways that leave so many iterations that they are not `promising`."""
    if not fitting:
        yield (), loops
        return
    most = prod(max((w.extent for w in walks), default=1) for walks in fitting)
    if not promising(-(-prod(w.extent for w in loops) // most)):
        return
    for walk in (*dict.fromkeys(w for w in loops if w in fitting[0]), None):
        rest = list(loops)
        if walk is not None:
            rest.remove(walk)
        for others, left in _choices(rest, fitting[1:], promising):
            yield (walk, *others), left


def _fits(loop: HardwareLoop, walk: Walk, operands: Sequence[str]) -> bool:
    """Whether a hardware loop may take a loop, whatever the others take."""
    rules = (loop.stride(name) for name in operands)
    return walk.extent in loop.extent and all(
        rule.dense_after or step in rule.range
        for rule, step in zip(rules, walk.strides, strict=True)
    )


def _fill(
    intrinsic: Intrinsic, chosen: tuple[Walk | None, ...], loops: Sequence[HardwareLoop]
) -> tuple[Walk, ...] | None:
    """The hardware loops with their steps, or None where a rule forbids them."""
    result: dict[str, Walk] = {}
    names = [o.name for o in intrinsic.operands]
    for loop, walk in reversed(list(zip(loops, chosen, strict=True))):
        strides: list[int] = []
        extent = walk.extent if walk else 1
        if extent not in loop.extent:
            return None
        for position, operand in enumerate(names):
            stride = _stride(loop, operand, walk, position, result)
            if stride is None:
                return None
            strides.append(stride)
        result[loop.name] = Walk(extent, tuple(strides))
    return tuple(result[loop.name] for loop in loops)


def _stride(
    loop: HardwareLoop, operand: str, walk: Walk | None, position: int, inner: dict[str, Walk]
) -> int | None:
    rule = loop.stride(operand)
    if rule.dense_after:
        below = inner[rule.dense_after]
        dense = below.strides[position] * below.extent
        return dense if walk is None or walk.strides[position] == dense else None
    if walk is None:
        # A single iteration: the step is not taken; a dense one reads best where it is allowed.
        inside = next(reversed(inner.values()), None)
        dense = inside.strides[position] * inside.extent if inside else 0
        return dense if dense in rule.range else min(max(0, rule.range.minimum), rule.range.maximum)
    return walk.strides[position] if walk.strides[position] in rule.range else None


def _with_sequence(
    intrinsic: Intrinsic, hardware: tuple[Walk, ...], rest: Sequence[Walk], order: Order
) -> Absorption | None:
    """The rest unrolled as far as the rules allow; None where the hardware loops break one."""
    position = _written(intrinsic)
    if intrinsic.micro_kernel is None:
        if hazard(intrinsic, hardware, position) or not _addressed(intrinsic, rest):
            return None
        found = (Absorption(hardware, (), outer) for outer in order.kept(_ordered(rest, 0)))
        return next((a for a in found if order.holds((*a.outer, *a.hardware))), None)
    if not _addressed(intrinsic, rest):
        return None
    for walks in order.kept(_ordered(rest, position)):
        for cut in range(len(walks) + 1):
            candidate = Absorption(hardware, walks[cut:], walks[:cut])
            nest = (*candidate.outer, *hardware, *candidate.sequence)
            if order.holds(nest) and _legal(intrinsic, candidate, position):
                return candidate
    return None


def _addressed(intrinsic: Intrinsic, walks: Sequence[Walk], times: int = 1) -> bool:
    """Whether every operand moves by what its address field holds in loops around the hardware's
    own, `times` steps of each."""
    steps = [(k, o.address.step) for k, o in enumerate(intrinsic.operands) if o.address.step > 1]
    return all(w.strides[k] * times % step == 0 for k, step in steps for w in walks)


def _ordered(walks: Sequence[Walk], position: int) -> tuple[Walk, ...]:
    """Loops that do not move the written operand outside those that do; of these, those with the
    furthest steps outside, so that what lies together is touched together."""

    def rank(w: Walk) -> tuple[bool, int, int, tuple[int, ...]]:
        furthest = max(map(abs, w.strides)) if w.extent > 1 else -1
        return w.strides[position] != 0, -furthest, -w.extent, w.strides

    return tuple(sorted(walks, key=rank))


def _legal(intrinsic: Intrinsic, candidate: Absorption, position: int) -> bool:
    micro = intrinsic.micro_kernel
    assert micro is not None
    if candidate.operations > micro.capacity_operations:
        return False
    if not candidate.sequence and not any(w.extent > 1 for w in candidate.hardware):
        return True
    sequence = addresses(candidate.sequence, position)
    for distance in range(1, micro.rewrite_distance):
        if (sequence[distance:] == sequence[:-distance]).any():
            return False
    return not hazard(intrinsic, (*candidate.hardware, *candidate.sequence), position)


def addresses(walks: Sequence[Walk], position: int) -> np.ndarray:
    """Addresses of one operand over all iterations, outermost loop first, from zero."""
    result = np.zeros(1, dtype=np.int64)
    for walk in walks:
        steps = np.arange(walk.extent, dtype=np.int64) * walk.strides[position]
        result = (result[:, None] + steps[None, :]).ravel()
    return result


def hazard(intrinsic: Intrinsic, walks: tuple[Walk, ...], position: int) -> bool:
    """Whether an iteration rewrites what one less than the result latency before it wrote."""
    if intrinsic.result_latency_iterations <= 1:
        return False
    shortened = list(walks)
    while prod(w.extent for w in shortened) > MAX_CHECKED_ITERATIONS:
        longest = max(range(len(shortened)), key=lambda i: shortened[i].extent)
        # The pattern of a loop repeats: its first steps show every distance.
        shortened[longest] = Walk(min(8, shortened[longest].extent), shortened[longest].strides)
    written = addresses(shortened, position)
    return any(
        bool((written[distance:] == written[:-distance]).any())
        for distance in range(1, min(intrinsic.result_latency_iterations, len(written)))
    )
