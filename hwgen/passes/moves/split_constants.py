"""Move: a number that no field holds is added in several steps.

`y[i] = x[i] + 40000` becomes `y[i] = x[i] + 32767 + 7233` where immediates have 16 bits.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from hwgen.constants import CONSTANT_STEPS
from hwgen.passes.start import Start
from hwgen.polyhedral.schedule.schedule import Schedule
from hwgen.polyhedral.tree.bind_expr import parts_to_bind
from hwgen.spec.expression import Binary, Const, Expr, Name, walk
from hwgen.spec.hardware import HardwareSpec, Immediate


def split_constants(start: Start, statement: str) -> Iterator[Start]:
    """With the first such number in a statement's value split for the fields that take most of
    it."""
    name = start.stages[statement]
    for part in parts_to_bind(start.state.stage[name]):
        match part:
            case Binary("+" | "-" as op, left, Const(int(number))):
                steps = _steps(number if op == "+" else -number, start.hardware)
                if len(steps) > 1:
                    new = str(_added(left, steps))
                    edit = partial(Schedule.rewrite_expr, stage=name, expr=str(part), new=new)
                    yield from start.where_legal(edit)  # Sums of floats have an order.
                    return
            case _:
                pass


def _steps(number: int, hardware: HardwareSpec) -> list[int]:
    """The fewest numbers that fields hold, and which add up to one; itself where one does, or where
    it would take too many."""
    ranges = [f.range for f in _added_fields(hardware) if f.range is not None]
    most = max((r.maximum if number > 0 else -r.minimum for r in ranges), default=0)
    sign, size = (1, number) if number > 0 else (-1, -number)
    if most < 1 or size > CONSTANT_STEPS * most:
        return [number]
    whole, rest = divmod(size, most)
    return [sign * most] * whole + [sign * rest] * (rest > 0)


def _added_fields(hardware: HardwareSpec) -> Iterator[Immediate]:
    """The immediates that intrinsics add to something."""
    for intrinsic in hardware.intrinsics:
        nodes = [n for a in intrinsic.semantics for n in walk(a.value)]
        added = {n.right.name for n in nodes if isinstance(n, Binary) and isinstance(n.right, Name)}
        yield from (f for f in intrinsic.immediates if f.name in added)


def _added(value: Expr, steps: list[int]) -> Expr:
    for step in steps:
        value = Binary("+" if step > 0 else "-", value, Const(abs(step)))
    return value
