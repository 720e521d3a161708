"""What an accumulation starts from: calls that set an accumulator to a value that changes nothing.

That value is the neutral element, or any other that no term of a `max=` or `min=` is beyond: at
least one term there is. It is set by one call, or set to another value and moved from there by a
second one in place.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from hwgen.errors import HwgenError
from hwgen.polyhedral.scop import Scop, ScopStatement
from hwgen.polyhedral.semantics import neutral_element, written
from hwgen.polyhedral.unify import unify
from hwgen.polyhedral.value_range import value_range
from hwgen.spec.expression import Binary, Call, Const, Expr, UpdateOp
from hwgen.spec.hardware import HardwareSpec, Intrinsic, Operand
from hwgen.spec.intervals import Interval


@dataclass(frozen=True, slots=True)
class Step:
    """A call on an accumulator alone."""

    intrinsic: Intrinsic
    immediates: tuple[tuple[str, int | float], ...] = ()


@dataclass(frozen=True, slots=True)
class Harmless:
    """Values that change nothing: from `neutral` to `last`, and `neutral` alone for floats."""

    neutral: int | float
    last: int | float

    @classmethod
    def of(cls, op: UpdateOp, neutral: int | float, terms: Interval | None) -> Harmless:
        """Of an accumulation: up to the range that all terms lie in, where that is known."""
        if op not in ("max=", "min=") or terms is None or not isinstance(neutral, int):
            return cls(neutral, neutral)
        return cls(neutral, terms[0] if op == "max=" else terms[1])

    def holds(self, value: int | float) -> bool:
        low, high = sorted((self.neutral, self.last))
        return low <= value <= high

    def moved(self, value: int | float) -> Iterator[tuple[int, Expr]]:
        """The ends that an integer may be brought to, each with what brings it there."""
        for goal in dict.fromkeys((self.neutral, self.last)):
            if isinstance(value, int) and isinstance(goal, int):
                yield goal, Binary("+", Const(value), Const(goal - value))
                yield goal, Call("max" if goal > value else "min", (Const(value), Const(goal)))


def beginning(
    hardware: HardwareSpec, scop: Scop, statement: ScopStatement, sums: Operand
) -> tuple[Step, ...]:
    """The calls that set what an update adds to, its operand `sums`, for a statement; none where
    there are none."""
    terms = value_range(statement.value, scop.dtype)
    wanted = Harmless.of(statement.op, starting_number(scop, statement), terms)
    setters = list(_setters(hardware, sums.memory))
    last = [(i, v) for i, v in setters if not sums.written_by or i.name in sums.written_by]
    for intrinsic, value in last:
        if value == wanted.neutral:
            return (Step(intrinsic),)
    for intrinsic, value in last:
        if wanted.holds(value):
            return (Step(intrinsic),)
    for intrinsic, value in setters:
        for step in _moves(hardware, sums, value, wanted):
            return (Step(intrinsic), step)
    return ()


def no_beginning(
    hardware: HardwareSpec, scop: Scop, statement: ScopStatement, memory: str
) -> HwgenError:
    """The error of an accumulation that nothing begins."""
    neutral = starting_number(scop, statement)
    what = statement.target.tensor if statement.ordered else f"`{statement.op}`"
    return HwgenError(
        "H305",
        f"no intrinsic sets {memory} to {neutral}, from which {what} starts",
        location=statement.source.location,
        field="compute",
        found=str(statement),
        allowed=f"an intrinsic with semantics `dst[...] = {neutral}` on memory {memory}; or one "
        f"that sets another number, with a second one that turns this number into {neutral}",
        repair=f"add such an intrinsic to {hardware.name}, or one that sets before it adds, with "
        f'semantics: ["dst[...] = {neutral}", "dst[...] {statement.op} ..."]',
        statement=statement.source.name,
    )


def starting_number(scop: Scop, statement: ScopStatement) -> int | float:
    """What an accumulation starts from: in order, the number that it says; else the neutral
    element."""
    match statement.start:
        case Const(number):
            return number
        case _:
            return neutral_element(statement.op, scop.dtype[statement.target.tensor])


def _setters(hardware: HardwareSpec, memory: str) -> Iterator[tuple[Intrinsic, int | float]]:
    """Intrinsics that set an entry of a memory to a constant, and the constant."""
    for intrinsic in hardware.intrinsics:
        only = written(intrinsic)
        if only is None or only[0].op != "=" or intrinsic.operand(only[1]).memory != memory:
            continue
        if isinstance(only[0].value, Const):
            yield intrinsic, only[0].value.value


def _moves(
    hardware: HardwareSpec, sums: Operand, value: int | float, wanted: Harmless
) -> Iterator[Step]:
    """Calls in place that bring an accumulator from one value to a wanted one."""
    ways = list(wanted.moved(value))
    for goal in dict.fromkeys(goal for goal, _ in ways):
        for intrinsic in hardware.intrinsics:
            only = written(intrinsic)
            if only is None or only[0].op != "=":
                continue
            if any(only[1] not in (o.name, o.same_as) for o in intrinsic.operands):
                continue
            if intrinsic.operand(only[1]).memory != sums.memory:
                continue
            if sums.written_by and intrinsic.name not in sums.written_by:
                continue
            fields = {i.name: i for i in intrinsic.immediates}
            for way in (w for g, w in ways if g == goal):
                for found in unify(only[0].value, way, fields):
                    if dict(found.operands) == {only[1]: Const(value)}:
                        yield Step(intrinsic, found.immediates)
