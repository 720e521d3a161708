"""Move: an intermediate stands where it is read.

`t[i] = g(x[i]); y[i] = f(t[i])` becomes `y[i] = f(g(x[i]))`, which one instruction may compute that
leaves what is between nowhere. A sum of which another adds up each element once is a part of it:
`t[i] += x[i, k]; y[0] += t[i]` becomes `y[0] += x[i, k]`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import partial

from hwgen.constants import POLYNOMIAL_TERMS
from hwgen.passes.moves.operations import fits_one
from hwgen.passes.moves.simplify import simplify
from hwgen.passes.start import Start
from hwgen.polyhedral.schedule.schedule import Schedule
from hwgen.polyhedral.simplify import simplified
from hwgen.polyhedral.tree.distributing import shifted
from hwgen.spec.affine import affine
from hwgen.spec.expression import DTYPES, Access, Expr, Name, map_accesses, walk
from hwgen.spec.typecheck import is_float
from hwgen.spec.workload import Statement, Workload


def inline(start: Start, statement: str) -> Iterator[Start]:
    """With an intermediate inlined: a statement's own, one that it reads, or one that is computed
    from its own; as far as an instruction has as many operations."""
    workload = start.workload
    mine = next(s for s in workload.statements if s.name == statement)
    own = mine.target.tensor
    read = (a.tensor for a in walk(mine.value) if isinstance(a, Access))
    from_it = (s.target.tensor for s in workload.statements if own in s.reads)
    for tensor in dict.fromkeys((own, *read, *from_it)):
        readers = [s for s in workload.statements if tensor in s.reads]
        writers = [s for s in workload.statements if s.target.tensor == tensor]
        if workload.tensor[tensor].role != "intermediate" or (len(readers), len(writers)) != (1, 1):
            continue
        if any(s.accumulates for s in writers) or readers[0].ordered:
            continue
        value = _with(readers[0].value, tensor, writers[0].value, workload)
        mine = fits_one(value, start.hardware) or shifted(value) is not None
        if mine or _is_step(workload, writers[0]):
            yield from _inlined(start, tensor, readers[0].name)


def all_inlined(start: Start) -> Start:
    """With all intermediates inlined that are one step of a chain: set once, read once, where each
    element is set from that one; or sums of which another adds up each once. The values are left to
    be simplified."""
    for statement in start.workload.statements:
        mine = next(s for s in start.workload.statements if s.name == statement.name)
        step = _is_step(start.workload, mine) or _is_part_of_sum(start.workload, mine)
        if step and _is_short(start, mine):
            inlined = partial(Schedule.compute_inline, stage=mine.target.tensor)
            start = next(start.where_legal(inlined), start)
    return start


def _is_part_of_sum(workload: Workload, statement: Statement) -> bool:
    """Whether a statement sums up elements for another, which adds up each of its sums once."""
    tensor = statement.target.tensor
    readers = [s for s in workload.statements if tensor in s.reads]
    if workload.tensor[tensor].role != "intermediate" or len(readers) != 1:
        return False
    value, (reader,) = readers[0].value, readers
    if statement.op != reader.op or statement.op == "=" or len(statement.reads) != 1:
        return False
    functions = [affine(i) for i in value.indices] if isinstance(value, Access) else [None]
    extents = dict(reader.loops)
    known = [f for f in functions if f is not None and f.is_injective(extents)]
    moving = Counter(n for f in known for n in f.names if extents[n] > 1)
    return len(known) == len(functions) and moving == Counter(n for n in extents if extents[n] > 1)


def _is_short(start: Start, statement: Statement) -> bool:
    """Whether a value stays short in the place of the tensor that it sets: a proof holds it and a
    simpler one against each other, and no longer ones."""
    tensor, stage = statement.target.tensor, start.state.stage
    (reader,) = (s.target.tensor for s in start.workload.statements if tensor in s.reads)
    if tensor not in stage or reader not in stage:
        return False
    values = stage[tensor].value, stage[reader].value
    return 2 * sum(1 for v in values for _ in walk(v)) <= POLYNOMIAL_TERMS


def _is_step(workload: Workload, statement: Statement) -> bool:
    """Whether a statement sets an intermediate of which another reads each element once."""
    tensor = statement.target.tensor
    readers = [s for s in workload.statements if tensor in s.reads]
    writers = [s for s in workload.statements if s.target.tensor == tensor]
    own = workload.tensor[tensor]
    if own.role != "intermediate" or (len(readers), len(writers)) != (1, 1):
        return False
    if is_float(own.dtype) and DTYPES[own.dtype] < DTYPES["float32"]:
        return False  # It is rounded once more than what stands in its place.
    (reader,) = readers
    sets = [s for s in (statement, reader) if s.op == "="]
    if statement not in sets or reader.ordered or any(s.folded for s in sets):
        return False
    reads = [n for n in walk(reader.value) if isinstance(n, Access) and n.tensor == tensor]
    loops = {n for n, extent in reader.loops if extent > 1}
    named = [i.name for i in reads[0].indices if isinstance(i, Name)]
    return len(reads) == 1 and loops <= {*named}


def _inlined(start: Start, tensor: str, reader: str) -> Iterator[Start]:
    """With what sets a tensor in the one statement that reads it, as simple as that is then."""
    for form in start.where_legal(partial(Schedule.compute_inline, stage=tensor)):
        yield next(simplify(form, reader), form)


def _with(value: Expr, tensor: str, inlined: Expr, workload: Workload) -> Expr:
    """A value in which another stands for each element of a tensor, simplified."""
    dtypes = {t.name: t.dtype for t in workload.tensors}
    whole = map_accesses(value, lambda a: inlined if a.tensor == tensor else a)
    return simplified(whole, dtypes)
