"""Move: an integer is scaled by one, as a float that holds it.

`y[i] = int8(clip(v, -128, 127))` becomes `t[i] = v; y[i] = int8(clip(round(float32(t[i]) * 1.0),
-128, 127))`: what narrows a sum may scale it, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from hwgen.passes.start import Start
from hwgen.polyhedral.schedule.schedule import Schedule
from hwgen.polyhedral.tree.rewriting import clamped, unscaled
from hwgen.spec.expression import Access, Binary, Call, Cast, Const, Expr, Name, walk
from hwgen.spec.hardware import HardwareSpec


def unit_scales(start: Start, statement: str) -> Iterator[Start]:
    """With what a statement clips scaled by one, in the types in which intrinsics scale; steps in
    order keep theirs."""
    name = start.stages[statement]
    stage = start.state.stage[name]
    value, found = stage.value, clamped(stage.value)
    if found is None or not isinstance(value, Cast) or stage.reduces:
        return
    if unscaled(found.value) is not found.value:
        return
    for dtype in _scaled(start.hardware, value.dtype):
        own = Call("round", (Binary("*", Cast(dtype, found.value), Const(1.0)),))
        new = Cast(value.dtype, Call("clip", (own, Const(found.low), Const(found.high))))
        edit = partial(Schedule.rewrite_expr, stage=name, expr=str(value), new=str(new))
        bind = partial(Schedule.bind_expr, stage=name, expr=str(found.value))
        for form in start.where_legal(edit):
            plain = isinstance(found.value, Access)
            yield from (form,) if plain else form.where_legal(bind)


def _scaled(hardware: HardwareSpec, narrow: str) -> list[str]:
    """The floats in which intrinsics scale by an immediate what they clip and narrow to a type."""
    found: set[str] = set()
    values = (n for i in hardware.intrinsics for a in i.semantics for n in walk(a.value))
    for value in (v for v in values if isinstance(v, Cast) and v.dtype == narrow):
        clip = clamped(value)
        inner: Expr | None = None if clip is None else clip.value
        match inner:
            case Call("round", (Binary("*", Cast(dtype), Name()),)):
                found.add(dtype)
            case _:
                pass
    return sorted(found)
