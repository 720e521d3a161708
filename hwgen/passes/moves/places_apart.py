"""Move: what a sum chooses by place is a tensor of its own.

`b[i] += select(1 <= i + r, x[i + r - 1], 0) * w[r]` becomes `p[q] = select(1 <= q, x[q - 1], 0)`
and `b[i] += p[i + r] * w[r]`: padding that is written inside of a sum is padding.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from hwgen.passes.start import Start
from hwgen.polyhedral.schedule.schedule import Schedule
from hwgen.polyhedral.tree.bind_expr import parts_to_bind
from hwgen.polyhedral.tree.padding import is_by_place


def places_apart(start: Start, statement: str) -> Iterator[Start]:
    """With the first part of a sum bound that is chosen by place."""
    name = start.stages[statement]
    stage = start.state.stage[name]
    for part in parts_to_bind(stage) if stage.reduces else ():
        if is_by_place(part) and part != stage.value:
            yield from start.where_legal(partial(Schedule.bind_expr, stage=name, expr=str(part)))
            return
