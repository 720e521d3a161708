"""Move: a clip to a part of a type's range is one to all of it, and another behind that.

`y[i] = int8(clip(v, -50, 127))` becomes `t[i] = int8(clip(v, -128, 127)); y[i] = int8(max(t[i],
-50))`: what narrows to a type saturates at its ends.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from hwgen.passes.start import Start
from hwgen.polyhedral.schedule.schedule import Schedule
from hwgen.polyhedral.simplify import simplified
from hwgen.polyhedral.tree.rewriting import clamped
from hwgen.spec.expression import Call, Cast, Const, Expr, walk
from hwgen.spec.hardware import HardwareSpec


def split_clips(start: Start, statement: str) -> Iterator[Start]:
    """With the clip of a statement's value in two, the first as an intrinsic has it; steps in order
    keep theirs."""
    name = start.stages[statement]
    stage = start.state.stage[name]
    value, found = stage.value, clamped(stage.value)
    if found is None or not isinstance(value, Cast) or stage.reduces:
        return
    for low, high in _ends(start.hardware, value.dtype):
        if (low, high) == (found.low, found.high) or low > found.low or found.high > high:
            continue
        inner = Cast(value.dtype, Call("clip", (found.value, Const(low), Const(high))))
        new: Expr = inner
        if low < found.low:
            new = Call("max", (new, Const(found.low)))
        if found.high < high:
            new = Call("min", (new, Const(found.high)))
        part, rest = str(inner), str(Cast(value.dtype, new))
        rewrite = partial(Schedule.rewrite_expr, stage=name, expr=str(value), new=rest)
        for form in start.where_legal(rewrite):
            yield from form.where_legal(partial(Schedule.bind_expr, stage=name, expr=part))


def _ends(hardware: HardwareSpec, dtype: str) -> list[tuple[int, int]]:
    """Between which numbers intrinsics clip what they narrow to a type, the narrowest first."""
    values = [
        n
        for i in hardware.intrinsics
        for a in i.semantics
        for n in walk(simplified(a.value, {o.name: o.dtype for o in i.operands}))
    ]
    clips = (clamped(v) for v in values if isinstance(v, Cast) and v.dtype == dtype)
    found = {(c.low, c.high) for c in clips if c is not None}
    return sorted(found, key=lambda ends: (ends[1] - ends[0], ends))
