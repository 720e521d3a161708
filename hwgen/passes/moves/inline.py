"""Move: an intermediate stands where it is read.

`t[i] = g(x[i]); y[i] = f(t[i])` becomes `y[i] = f(g(x[i]))`, which one instruction may compute that
leaves what is between nowhere.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from hwgen.passes.moves.operations import fits_one
from hwgen.passes.start import Start
from hwgen.polyhedral.schedule.schedule import Schedule
from hwgen.spec.expression import Access, walk


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
        if fits_one(readers[0].value, tensor, writers[0].value, start.hardware):
            yield from start.where_legal(partial(Schedule.compute_inline, stage=tensor))
