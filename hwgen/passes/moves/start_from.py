"""Move: sums start from what is added to them afterwards, a greatest element from its first term.

`acc[m] += x[m, k]; y[m] = f(acc[m] + b[m])` becomes `acc[m] = b[m]; acc[m] += x[m, k];
y[m] = f(acc[m])`: a call loads what sums start from, where none adds it to them.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from hwgen.passes.start import Start
from hwgen.polyhedral.schedule.schedule import Schedule
from hwgen.spec.expression import Access, walk


def start_from(start: Start, statement: str) -> Iterator[Start]:
    """With the sums that a statement reads, or the extremum that it finds, started from each tensor
    of their type that it reads besides."""
    workload = start.workload
    mine = next(s for s in workload.statements if s.name == statement)
    reads = dict.fromkeys(n.tensor for n in walk(mine.value) if isinstance(n, Access))
    for sums in workload.statements:
        tensor = workload.tensor[sums.target.tensor]
        added = sums.op == "+=" and tensor.name in reads
        found = sums.op in ("max=", "min=") and sums is mine
        for other in reads if (added or found) and not sums.continues else ():
            if other != tensor.name and workload.tensor[other].dtype == tensor.dtype:
                name = start.stages[sums.name]
                yield from start.where_legal(partial(Schedule.start_from, stage=name, tensor=other))
