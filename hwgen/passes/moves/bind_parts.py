"""Move: a part of a value is a statement of its own.

`y[i] = f(g(x[i]))` becomes `t[i] = g(x[i]); y[i] = f(t[i])`: each may be computed where both at
once are not.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from hwgen.passes.start import Start
from hwgen.polyhedral.schedule.schedule import Schedule
from hwgen.polyhedral.tree.bind_expr import parts_to_bind


def bind_parts(start: Start, statement: str) -> Iterator[Start]:
    """With a part of the value bound, the largest first; sums keep theirs.

    A part is not parted again: that is to bind the smaller one first.
    """
    name = start.stages[statement]
    stage = start.state.stage[name]
    bound = (r for e in start.edits if e.primitive == "bind_expr" for r in e.results)
    if stage.reduces or stage.ordered or name in bound:
        return
    for part in parts_to_bind(stage):
        if part != stage.value:
            # A condition is no number.
            yield from start.where_legal(partial(Schedule.bind_expr, stage=name, expr=str(part)))
