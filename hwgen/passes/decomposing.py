"""Padding of what a kernel computes, taken apart before the search: no instruction chooses elements
by where they are, and no host is there to do so in between. One sets all elements, another those
inside.

That is an edit of the schedule (`decompose_padding`); the search sees the workload that the edit
makes, and its schedule is then made again in one of the user's own.
"""

from __future__ import annotations

from dataclasses import replace

from hwgen.errors import Tolerating
from hwgen.passes.inlining import without
from hwgen.polyhedral.schedule.script import Edit
from hwgen.polyhedral.scop import view_statements
from hwgen.polyhedral.tree.padding import padded
from hwgen.spec.expression import Access
from hwgen.spec.workload import Statement, Workload


def with_padding(statement: str) -> str:
    """The name of the statement that sets all elements, before one that sets those inside."""
    return f"{statement}_pad"


def decomposed(workload: Workload) -> tuple[Workload, tuple[Edit, ...]]:
    """The workload without padding of what it computes, and the edits that make it so."""
    edits: list[Edit] = []
    for statement in workload.statements:
        found = _parts(workload, statement)
        if found is None:
            continue
        tensor = statement.target.tensor
        edits.append(Edit("decompose_padding", (tensor,), (), ()))
        statements = [x for s in workload.statements for x in (found if s == statement else [s])]
        workload = replace(workload, statements=tuple(statements))
        source = found[-1].value
        if isinstance(source, Access) and _only_read(workload, source.tensor):
            with Tolerating("H413"):  # It may be a sum, which is copied.
                workload = without(workload, source.tensor)
                edits.append(Edit("compute_inline", (source.tensor,), (), ()))
    return workload, tuple(edits)


def _parts(workload: Workload, statement: Statement) -> tuple[Statement, Statement] | None:
    """What sets all elements and those inside, where a statement pads what others compute, and is
    the only one to write its tensor."""
    tensor = statement.target.tensor
    shape = workload.tensor[tensor].shape
    parts = padded(statement.target, statement.value, statement.loops, shape)
    if parts is None or statement.op != "=" or statement.folded:
        return None
    computed = {s.target.tensor for s in workload.statements}
    computed -= {s.target.tensor for s in view_statements(workload)}
    written = sum(s.target.tensor == tensor for s in workload.statements)
    if written > 1 or not statement.reads & computed:
        return None
    return (
        replace(statement, name=with_padding(statement.name), value=parts.constant),
        replace(statement, loops=parts.iterators, target=parts.target, value=parts.value),
    )


def _only_read(workload: Workload, tensor: str) -> bool:
    """Whether a tensor is an intermediate of one statement, which one reads."""
    readers = [s for s in workload.statements if tensor in s.reads]
    writers = [s for s in workload.statements if s.target.tensor == tensor]
    inner = workload.tensor[tensor].role == "intermediate"
    return inner and (len(readers), len(writers)) == (1, 1)
