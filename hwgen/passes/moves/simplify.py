"""Move: a value in its simplest form.

`y[i] = select(x[i] > 0, x[i], 0)` becomes `y[i] = max(x[i], 0)`: fewer calls make it, and wordings
of one computation meet.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from hwgen.passes.start import Start
from hwgen.polyhedral.normal_form import normalise
from hwgen.polyhedral.schedule.schedule import Schedule
from hwgen.polyhedral.simplify import simplified
from hwgen.spec.expression import Access, Call, Const, Expr, Name, parts


def simplify(start: Start, statement: str) -> Iterator[Start]:
    """With the value of a statement simplified, where that changes more than how it is written."""
    name = start.stages[statement]
    if not name:
        return  # It only begins another's elements.
    value = start.state.stage[name].value
    dtypes = {t.name: t.dtype for t in start.state.tensors}
    new = simplified(value, dtypes)
    if _steps(new) < _steps(value) or normalise(new, dtypes) != normalise(value, dtypes):
        edit = partial(Schedule.rewrite_expr, stage=name, expr=str(value), new=str(new))
        yield from start.where_legal(edit)


def _steps(value: Expr) -> int:
    """How many operations a value has: a clip is two."""
    match value:
        case Access() | Const() | Name():
            mine = 0
        case Call("clip"):
            mine = 2
        case _:
            mine = 1
    return mine + sum(map(_steps, parts(value)))
