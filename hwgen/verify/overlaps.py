"""Whether buffers in one place are in use one after the other, whatever a program's loops run.

Iterations of a loop are told apart where a guard may come out otherwise: what a software pipeline
runs a tile later stands in the text before what it needs, and its guard is false at first.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import reduce
from itertools import pairwise

from hwgen.codegen.nodes import Body, Call, If, Loop, Node, calls, inner
from hwgen.codegen.program import Program
from hwgen.model.periodicity import cuts, difference_interval, interval
from hwgen.spec.expression import Binary, Expr, Unary, names
from hwgen.spec.hardware import HardwareSpec
from hwgen.spec.intervals import Interval, Ranges

Access = tuple[str, bool, frozenset[str]]
"""A buffer, whether all that is there is written, and the loops that move the place."""

Guard = tuple[If, tuple[Loop, ...]]
"""A condition inside a loop, and the loops between the two, outermost first."""


@dataclass(slots=True)
class Overlaps:
    """The accesses of a program, by the node in which they are."""

    program: Program
    hardware: HardwareSpec
    _held: dict[int, frozenset[str]] = field(default_factory=dict[int, frozenset[str]])
    _guards: dict[int, tuple[Guard, ...]] = field(default_factory=dict[int, tuple[Guard, ...]])
    _accesses: dict[int, list[Access]] = field(default_factory=dict[int, list[Access]])

    def meet(self, one: str, other: str) -> bool:
        """Whether what comes back to one of two buffers after the other, in the text or in a later
        iteration, finds there what the other left: it does not first write all of it."""
        return _Pair(self, frozenset((one, other))).after(self.program.body, {}, "") is None

    def held(self, node: Node) -> frozenset[str]:
        """The buffers and images that a node's calls touch."""
        known = self._held.get(id(node))
        if known is None:
            known = frozenset(o.buffer for c in calls((node,)) for o in c.operands)
            self._held[id(node)] = known
        return known

    def guards(self, loop: Loop) -> tuple[Guard, ...]:
        """Those in a loop that depend on its variable."""
        known = self._guards.get(id(loop))
        if known is None:
            found = _guards(loop.body, ())
            known = tuple(g for g in found if loop.variable in names(g[0].condition))
            self._guards[id(loop)] = known
        return known

    def accesses(self, call: Call) -> list[Access]:
        """Writes last."""
        known = self._accesses.get(id(call))
        if known is None:
            rules = self.hardware.intrinsic[call.intrinsic].operands
            found = (
                (o.buffer, rule.access == "write", frozenset(names(o.address)))
                for o, rule in zip(call.operands, rules, strict=True)
            )
            known = self._accesses[id(call)] = sorted(found, key=lambda access: access[1])
        return known


def _guards(body: Body, loops: tuple[Loop, ...]) -> Iterator[Guard]:
    for node in body:
        if isinstance(node, If):
            yield node, loops
        yield from _guards(inner(node), (*loops, node) if isinstance(node, Loop) else loops)


@dataclass(frozen=True, slots=True)
class _Pair:
    """Two buffers, of which one is the last in use."""

    of: Overlaps
    buffers: frozenset[str]

    def after(
        self, body: Body, ranges: Ranges, last: str, around: frozenset[str] = frozenset()
    ) -> str | None:
        """The buffer last used after some nodes; None where they meet. `around`: variables of
        loops around both, each of whose iterations writes a part where one moves the place."""
        for node in body:
            if self.buffers & self.of.held(node) <= {last}:
                continue
            match node:
                case Call():
                    for buffer, whole, moving in self.of.accesses(node):
                        if buffer not in self.buffers:
                            continue
                        if last not in ("", buffer) and not (whole and around.isdisjoint(moving)):
                            return None
                        last = buffer
                case Loop():
                    found = self._after_loop(node, ranges, last, around)
                    if found is None:
                        return None
                    last = found
                case If(condition, then, otherwise):
                    holds = decided(condition, ranges)
                    for part, runs in ((then, holds is not False), (otherwise, not holds)):
                        found = self.after(part, ranges, last, around) if runs else last
                        if found is None:
                            return None
                        last = found
                case _:
                    pass
        return last

    def _after_loop(
        self, loop: Loop, ranges: Ranges, last: str, around: frozenset[str]
    ) -> str | None:
        if self.buffers <= self.of.held(loop):
            around |= {loop.variable}
        for first, final in self._spans(loop, ranges):
            inside = {**ranges, loop.variable: (first, final)}
            # A second time finds what the first left; a third would find the same.
            for _ in range(1 + (first < final)):
                before = last
                found = self.after(loop.body, inside, last, around)
                if found is None:
                    return None
                last = found
                if last == before:
                    break
        return last

    def _spans(self, loop: Loop, ranges: Ranges) -> Iterator[Interval]:
        """The iterations of a loop, parted where what runs of the two may change."""
        within = _with_all(ranges, loop)
        first, final = within[loop.variable]
        if first > final:
            return
        turns = {first, final + 1}
        for node, loops in self.of.guards(loop):
            if self.buffers & self.of.held(node):
                rest = {**reduce(_with_all, loops, within), loop.variable: (0, 0)}
                turns.update(cuts(node.condition, loop.variable, (first, final), rest))
        yield from ((start, end - 1) for start, end in pairwise(sorted(turns)))


def _with_all(ranges: Ranges, loop: Loop) -> dict[str, Interval]:
    """Ranges, and that of a loop inside them."""
    low, high = interval(loop.lower, ranges)[0], interval(loop.upper, ranges)[1]
    return {**ranges, loop.variable: (low, high - 1)}


def decided(condition: Expr, ranges: Ranges) -> bool | None:
    """Whether a condition holds for all values of its names; None where for some, perhaps."""
    match condition:
        case Binary("and" | "or" as op, left, right):
            settles, ends = op == "or", (decided(left, ranges), decided(right, ranges))
            return settles if settles in ends else None if None in ends else not settles
        case Unary("not", operand):
            holds = decided(operand, ranges)
            return holds if holds is None else not holds
        case Binary("==" | "!=" as op, left, right):
            low, high = difference_interval(left, right, ranges)
            same = True if low == high == 0 else None if low <= 0 <= high else False
            return same if same is None or op == "==" else not same
        case Binary("<" | "<=" | ">" | ">=" as op, left, right):
            if op in (">", ">="):
                left, right = right, left
            low, high = difference_interval(left, right, ranges)
            bound = 0 if op in ("<", ">") else 1
            return True if high < bound else None if low < bound else False
        case _:
            low, high = interval(condition, ranges)
            return bool(low) if low == high else None
