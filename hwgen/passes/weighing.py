"""Narrow integers that units take as products with weights: what a sum of products widens and adds
need not be brought to the chip as wide integers first.

Weighing is an edit of the schedule (`weigh`), made before the search where that takes fewer cycles.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

from hwgen.errors import HwgenError, Tolerating
from hwgen.passes.covering import REFUSALS, UnitsOf
from hwgen.passes.kernel import Kernel
from hwgen.passes.moves.unit_weights import weight_type
from hwgen.passes.phase import Rival, SearchOptions, least_cycles, rearranged_bytes
from hwgen.passes.start import Start
from hwgen.polyhedral.match.matching import ranked_matches
from hwgen.polyhedral.match.select import select
from hwgen.polyhedral.phases import split_phases
from hwgen.polyhedral.schedule.schedule import Schedule
from hwgen.polyhedral.scop import Scop, build_scop, view_statements
from hwgen.polyhedral.search.bound import least_work
from hwgen.polyhedral.search.objective import Measure
from hwgen.polyhedral.tree.weighing import WIDE
from hwgen.spec.expression import DTYPES, Access, Cast, Expr
from hwgen.spec.workload import Workload


def surely_weighed(start: Start, units: UnitsOf, options: SearchOptions) -> Kernel | None:
    """A kernel with narrow integers weighed, of what takes longer without, whatever its schedule;
    None where that is not so, or cannot be told."""
    workload, hardware = start.workload, start.hardware
    if options.objective != "cycles" or len(split_phases(workload)) > 1:
        return None
    with Tolerating(REFUSALS):
        sketch = _sketch(start)
        if sketch is None or sketch.scop is None:
            return None
        least = least_cycles(workload, hardware)
        if sketch.least < least:
            found = sketch.kernel(units, options, (least,))
            return None if found is None else _with_way(found, build_scop(workload))
    return None


def weighed_if_better(made: Kernel, units: UnitsOf, options: SearchOptions) -> Kernel:
    """A kernel of a workload, or the same with narrow integers weighed if that is better by the
    objective."""
    if made.start.does("weigh"):
        return made
    sketch = _sketch(made.start)
    if sketch is None:
        return made
    most = _measured(made, options)
    worth = options.objective != "cycles" or (sketch.least,) < most
    found = sketch.kernel(units, options, most) if worth else None
    other = made.scop if found is not None else sketch.scop
    found = found or made
    return found if other is None or not made.account.ways else _with_way(found, other)


def _with_way(made: Kernel, other: Scop) -> Kernel:
    """A kernel whose bound is also of another way to compute the workload; of phases it is not."""
    account = made.account
    ways = (*account.ways, other) if account.ways else ()
    return made.with_account(replace(account, ways=ways))


@dataclass(frozen=True)
class _Sketch:
    """A start of which tensors are computed from products with weights, the scop of that where it
    is of one phase, and cycles below which no kernel of it gets whose phases follow each other."""

    start: Start
    scop: Scop | None
    least: float

    def kernel(self, units: UnitsOf, options: SearchOptions, most: Measure) -> Kernel | None:
        """Its kernel, if that is less than `most` by the objective."""
        found = None
        with Tolerating(REFUSALS):
            found = units(self.start)
        return found if found is not None and _measured(found, options) < most else None


def _measured(made: Kernel, options: SearchOptions) -> Measure:
    """A kernel by the objective, and its host, where that rearranges tensors in a shared memory."""
    packed = sum(i.bytes for i in made.program.images if not i.in_place)
    host = rearranged_bytes(made.hardware, packed)
    return options.measure(Rival.of(made, made.hardware, host, 0))


def _sketch(start: Start) -> _Sketch | None:
    """What to weigh of what is computed: all that can be; None where that is nothing, or where
    units do not compute it so."""
    hardware, dtype = start.hardware, weight_type(start.hardware)
    if not dtype:
        return None
    changed = start
    for tensor in _candidates(start.workload):
        with Tolerating(("H413", "H414")):
            changed = changed.edited(partial(Schedule.weigh, stage=tensor, dtype=dtype))
    if changed is start:
        return None
    scops = [build_scop(p.workload) for p in split_phases(changed.workload)]
    least = 0.0
    for scop in scops:
        try:
            group = next(ranked_matches(scop, select(scop, hardware)))
        except HwgenError as error:
            if not error.code.startswith(REFUSALS):
                raise
            if len(scops) == 1:
                return None
            continue  # Beside others it may have what it lacks alone.
        least += min(least_work(hardware, m) for m in group)
    return _Sketch(changed, scops[0] if len(scops) == 1 else None, least)


def _candidates(workload: Workload) -> list[str]:
    """The tensors that one statement alone sets, from integers narrower than what units add up."""
    views = view_statements(workload)
    targets = [s.target.tensor for s in workload.statements]
    found: list[str] = []
    for statement in workload.statements:
        tensor = statement.target.tensor
        read = statement.reads
        # Of tensors that several statements write, a stage reads one version or another.
        again = any(targets.count(t) > 1 for t in (tensor, *read))
        if statement.accumulates and not _is_element(statement.value):
            continue  # Products add up what they widen already.
        if statement in views or again:
            continue
        if any(DTYPES[workload.tensor[t].dtype] < DTYPES[WIDE] for t in read):
            found.append(tensor)
    return found


def _is_element(value: Expr) -> bool:
    """Whether a value is an element, perhaps cast."""
    return _is_element(value.operand) if isinstance(value, Cast) else isinstance(value, Access)
