"""Move: what a sum chooses by place is a tensor of its own, and so is what is computed in padding.

`b[i] += select(1 <= i + r, x[i + r - 1], 0) * w[r]` becomes `p[q] = select(1 <= q, x[q - 1], 0)`
and `b[i] += p[i + r] * w[r]`: padding that is written inside of a sum is padding, also where the
condition is around all of a product of integers. `p[q] = select(1 <= q, f(s[q - 1]), 0)` becomes
`t[q] = f(s[q])` and `p[q] = select(1 <= q, t[q - 1], 0)`.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from hwgen.passes.moves.padding_apart import is_padding
from hwgen.passes.start import Start
from hwgen.polyhedral.schedule.schedule import Schedule
from hwgen.polyhedral.tree.bind_expr import parts_to_bind
from hwgen.polyhedral.tree.loop_tree import Stage
from hwgen.polyhedral.tree.padding import is_by_place
from hwgen.spec.expression import Access, Binary, Call, Const, Expr, names


def places_apart(start: Start, statement: str) -> Iterator[Start]:
    """With the first part of a sum bound that is chosen by place, or what padding computes."""
    name = start.stages[statement]
    start = _factor_chosen(start, name)
    mine = next(s for s in start.workload.statements if s.name == statement)
    part = _chosen(start.state.stage[name], padding=is_padding(start.workload, mine))
    if part is not None:
        yield from start.where_legal(partial(Schedule.bind_expr, stage=name, expr=str(part)))


def _chosen(stage: Stage, *, padding: bool) -> Expr | None:
    """The part of a value that places choose, or decide; None where there is none to bind."""
    match stage.value:
        case Call("select", (_, chosen, _)) if padding:
            return None if isinstance(chosen, Access) else chosen
        case _:
            found = parts_to_bind(stage) if stage.reduces else []
            return next((p for p in found if is_by_place(p) and p != stage.value), None)


def _factor_chosen(start: Start, name: str) -> Start:
    """The same with one factor of a product chosen by place in place of the product, if it is one:
    the factor that moves with most of what decides."""
    stage = start.state.stage[name]
    match stage.value:
        case Call("select", (condition, Binary("*", left, right), Const() as zero)) if is_by_place(
            stage.value
        ):
            pass
        case _:
            return start
    deciding = {*names(condition)}
    orders = sorted(
        ((left, right), (right, left)), key=lambda pair: len(deciding - {*names(pair[0])})
    )
    for chosen, factor in orders:
        new = Binary("*", Call("select", (condition, chosen, zero)), factor)
        edit = partial(Schedule.rewrite_expr, stage=name, expr=str(stage.value), new=str(new))
        for form in start.where_legal(edit):
            return form
    return start
