"""Move: a number in one factor of a sum of products is added apart.

`b[i] += (x[i, k] - 5) * w[k]` becomes a sum of products, which units form, and a sum of `w` alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from hwgen.passes.start import Start
from hwgen.polyhedral.schedule.schedule import Schedule
from hwgen.polyhedral.tree.distributing import shifted


def distribute(start: Start, statement: str) -> Iterator[Start]:
    """With the sum of a statement in two parts, where it is such a sum."""
    name = start.stages[statement]
    if shifted(start.state.stage[name].value) is not None:
        yield from start.where_legal(partial(Schedule.distribute, stage=name))
