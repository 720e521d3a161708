"""Move: an integer is scaled by one, as a float that holds it.

`y[i] = int8(clip(v, -128, 127))` becomes `t[i] = v; y[i] = int8(clip(round(float32(t[i]) * 1.0),
-128, 127))`: what narrows a sum may scale it, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from hwgen.passes.moves.unit_weights import weight_type
from hwgen.passes.start import Start
from hwgen.polyhedral.schedule.schedule import Schedule
from hwgen.polyhedral.tree.edit import value_dtype
from hwgen.polyhedral.tree.rewriting import bounded, clamped, unscaled
from hwgen.polyhedral.tree.weighing import WIDE
from hwgen.polyhedral.value_range import value_range
from hwgen.spec.expression import Access, Binary, Call, Cast, Const, Expr, Name, walk
from hwgen.spec.hardware import HardwareSpec


def unit_scales(start: Start, statement: str) -> Iterator[Start]:
    """With what a statement clips scaled by one, in the types in which intrinsics scale; steps in
    order keep theirs."""
    name = start.stages[statement]
    stage = start.state.stage[name]
    dtypes = {t.name: t.dtype for t in start.state.tensors}
    value, found = stage.value, bounded(stage.value, dtypes)
    if found is None or stage.reduces or unscaled(found.value) is not found.value:
        return
    narrow, whole = value_dtype(value, dtypes), found.value
    held = value_range(whole, dtypes)
    if isinstance(whole, Access) and held is not None and dtypes[whole.tensor] != WIDE:
        whole = Cast(WIDE, whole)
    for dtype in _scaled(start.hardware, narrow):
        own = Call("round", (Binary("*", Cast(dtype, whole), Const(1.0)),))
        new = Cast(narrow, Call("clip", (own, Const(found.low), Const(found.high))))
        edit = partial(Schedule.rewrite_expr, stage=name, expr=str(value), new=str(new))
        bind = partial(Schedule.bind_expr, stage=name, expr=str(whole))
        for form in start.where_legal(edit):
            if isinstance(whole, Access):
                yield form
                continue
            for parted in form.where_legal(bind):
                # What is only widened would be an image of its own, made by the host.
                yield from _weighed(parted) if whole is not found.value else (parted,)


def _weighed(start: Start) -> Iterator[Start]:
    """With the part that was bound last as a product with a weight."""
    (part,) = start.edits[-1].results
    dtype = weight_type(start.hardware)
    if dtype:
        yield from start.where_legal(partial(Schedule.weigh, stage=part, dtype=dtype))


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
