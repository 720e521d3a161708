"""Padding of what a kernel computes, taken apart before the search: no instruction chooses elements
by where they are, and no host is there to do so in between. One sets all elements, another those
inside. That is an edit of the schedule (`decompose_padding`).
"""

from __future__ import annotations

from functools import partial

from hwgen.errors import Tolerating
from hwgen.passes.start import Start
from hwgen.polyhedral.schedule.schedule import Schedule
from hwgen.polyhedral.scop import view_statements
from hwgen.polyhedral.tree.padding import padded
from hwgen.spec.expression import Access
from hwgen.spec.workload import Statement, Workload


def with_padding_apart(start: Start) -> Start:
    """The same without padding of what is computed."""
    for statement in start.workload.statements:
        if not _is_padding(start.workload, statement):
            continue
        start = start.edited(
            partial(Schedule.decompose_padding, stage=start.stages[statement.name])
        )
        inside = next(s for s in start.workload.statements if s.name == statement.name)
        if isinstance(inside.value, Access) and _only_read(start.workload, inside.value.tensor):
            with Tolerating("H413"):  # It may be a sum, which is copied.
                start = start.inlined(inside.value.tensor)
    return start


def _is_padding(workload: Workload, statement: Statement) -> bool:
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
