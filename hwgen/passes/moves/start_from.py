"""Move: sums start from what is added to them afterwards, a greatest element from its first term.

`acc[m] += x[m, k]; y[m] = f(acc[m] + b[m])` becomes `acc[m] = b[m]; acc[m] += x[m, k];
y[m] = f(acc[m])`: a call loads what sums start from, where none adds it to them.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from hwgen.passes.start import Start
from hwgen.polyhedral.match.loads import loaders
from hwgen.polyhedral.schedule.schedule import Schedule
from hwgen.polyhedral.semantics import updates
from hwgen.spec.expression import Access, walk
from hwgen.spec.hardware import HardwareSpec


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
        able = found or (added and _loads_sums(start.hardware, tensor.dtype))
        for other in reads if able and not sums.continues else ():
            if other != tensor.name and workload.tensor[other].dtype == tensor.dtype:
                name = start.stages[sums.name]
                yield from start.where_legal(partial(Schedule.start_from, stage=name, tensor=other))


def _loads_sums(hardware: HardwareSpec, dtype: str) -> bool:
    """Whether a call brings elements of a type to where another adds to them."""
    adding = (i for i in hardware.intrinsics if any(op == "+=" for op, _ in updates(i)))
    return any(loaders(hardware, i.written.memory, dtype, constant=True) for i in adding)
