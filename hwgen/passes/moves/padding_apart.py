"""Move: padding of what others compute is two statements.

`p[i] = select(1 <= i, x[i - 1], 0)` becomes `p[i] = 0; p[i + 1] = x[i]`: no instruction chooses
elements by where they are, and no host is there to do so in between.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from hwgen.passes.start import Start
from hwgen.polyhedral.schedule.schedule import Schedule
from hwgen.polyhedral.scop import view_statements
from hwgen.polyhedral.tree.padding import padded
from hwgen.spec.expression import Access
from hwgen.spec.workload import Statement, Workload


def padding_apart(start: Start, statement: str) -> Iterator[Start]:
    """With all elements set, then those inside; what these alone read is computed in its place."""
    mine = next(s for s in start.workload.statements if s.name == statement)
    if not is_padding(start.workload, mine):
        return
    made = start.edited(partial(Schedule.decompose_padding, stage=start.stages[statement]))
    inside = next(s for s in made.workload.statements if s.name == statement)
    if isinstance(inside.value, Access) and _only_read(made.workload, inside.value.tensor):
        inlined = made.where_legal(partial(Schedule.compute_inline, stage=inside.value.tensor))
        made = next(inlined, made)  # It may be a sum, which is copied.
    yield made


def is_padding(workload: Workload, statement: Statement) -> bool:
    """Whether a statement pads what others compute, and is the only one to write its tensor."""
    tensor = statement.target.tensor
    shape = workload.tensor[tensor].shape
    parts = padded(statement.target, statement.value, statement.loops, shape)
    if parts is None or statement.op != "=" or statement.folded:
        return False
    computed = {s.target.tensor for s in workload.statements}
    computed -= {s.target.tensor for s in view_statements(workload)}
    written = sum(s.target.tensor == tensor for s in workload.statements)
    return written == 1 and bool(statement.reads & computed)


def _only_read(workload: Workload, tensor: str) -> bool:
    """Whether a tensor is an intermediate of one statement, which one reads."""
    readers = [s for s in workload.statements if tensor in s.reads]
    writers = [s for s in workload.statements if s.target.tensor == tensor]
    inner = workload.tensor[tensor].role == "intermediate"
    return inner and (len(readers), len(writers)) == (1, 1)
