"""Forms of a workload, made by moves: the best of those that units compute.

Some are tried of every workload, others only where no calls compute a statement. What units have to
do at least says which form is compiled first, and which need not be.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from math import inf

from hwgen.constants import FORMS, FORMS_COMPILED
from hwgen.errors import HwgenError, Tolerating
from hwgen.passes.kernel import REFUSALS, Kernel
from hwgen.passes.moves import MOVES, all_begun, all_weighed
from hwgen.passes.moves.operations import all_known
from hwgen.passes.moves.start_from import start_from
from hwgen.passes.phase import Rival, SearchOptions, least_cycles, rearranged_bytes
from hwgen.passes.start import Start
from hwgen.polyhedral.match.operations import NOTHING_SHARED, Selection, Sharing
from hwgen.polyhedral.match.select import select
from hwgen.polyhedral.phases import split_phases
from hwgen.polyhedral.scop import build_scop
from hwgen.polyhedral.search.objective import Measure
from hwgen.spec.expression import Access
from hwgen.spec.hardware import HardwareSpec
from hwgen.spec.workload import Statement, Tensor, Workload

UNMADE = "H421"
"""The code of a tree with a block that no call computes."""

Compile = Callable[[Start], Kernel]
"""What makes a kernel of one form."""

_Statements = tuple[Statement, ...]


def best_form(
    forms: Sequence[Start],
    made_of: Compile,
    options: SearchOptions,
    instead: HwgenError | None = None,
    *,
    by_units: bool = True,
    spare: int = 0,
) -> Kernel:
    """The best kernel of some forms of one workload, of equals that of the first; `by_units`: units
    compute all, one phase after the other, so that some need not be compiled, and tensors that the
    host rearranges for them count. The first `spare` are compiled where units do not compute all
    of one of those behind them.

    Raises:
        HwgenError: where all are refused, why the first one is, or `instead` of that.
    """
    known: _Known = {}
    covers = [list(_covers(f, known)) if by_units and len(forms) > 1 else [] for f in forms]
    whole = [all(c.selection for c in phases) for phases in covers]
    if not whole[0] or (len(forms) == 1 and instead is None):
        return made_of(forms[0])
    least = [sum(c.least for c in phases) for phases in covers]
    if options.objective != "cycles":
        least = [0.0] * len(forms)
    measure = partial(_measured, options=options) if by_units else options.measure
    found: dict[int, Kernel] = {}
    reasons: dict[int, HwgenError] = {}
    most: Measure = (inf,)
    for n in sorted(range(len(forms)), key=lambda n: (n < spare, least[n])):
        if not whole[n] or most <= (least[n],):
            continue
        if n < spare and not all(k.program.codes for k in found.values()):
            continue
        with Tolerating(REFUSALS) as refused:
            found[n] = made_of(forms[n])
            most = min(most, measure(found[n]))
            continue
        reasons[n] = refused.error
    if not found:
        raise instead or reasons[min(reasons)]
    best = min(sorted(found), key=lambda n: measure(found[n]))
    made = found[best]
    if not made.account.ways:
        return made
    others = (c for n, c in enumerate(covers) if n != best and len(c) == 1 and whole[n])
    ways = tuple(build_scop(c[0].workload) for c in others)
    return made.with_account(replace(made.account, ways=(*made.account.ways, *ways)))


def _measured(made: Kernel, options: SearchOptions) -> Measure:
    """A kernel by the objective, and its host, where that rearranges tensors in a shared memory."""
    once = {t.name for t in made.workload.tensors if t.constant}
    images = (i for i in made.program.images if not i.in_place and i.tensor not in once)
    packed = sum(i.bytes for i in images)
    host = rearranged_bytes(made.hardware, packed)
    return options.measure(Rival.of(made, made.hardware, host, 0))


def all_forms(start: Start) -> list[Start]:
    """A start, and its forms in which all statements that a move helps are said otherwise."""
    begun, weighed = all_begun(start), all_weighed(start)
    if begun is not start and len(split_phases(begun.workload)) > 1:
        # Several phases take long to search: only where calls have less to do then.
        known: _Known = {}
        begun = begun if _least(begun, known) < _least(start, known) else start
    return [start, *(f for f in (begun, weighed) if f is not start)]


def _least(start: Start, known: _Known) -> float:
    """Cycles below which no kernel of a start gets; infinite where calls do not compute it."""
    return sum(inf if c.selection is None else c.least for c in _covers(start, known))


def started(start: Start, *, nearest: bool = False) -> Start:
    """The same, sums that calls compute only so starting from what is added to them; `nearest`:
    also where calls then refuse no other statement than before, for a reason that tells more."""
    if not any(any(start_from(start, name)) for name, stage in start.stages.items() if stage):
        return start
    return _started(start, {}, nearest=nearest)


def _started(start: Start, known: _Known, *, nearest: bool = False) -> Start:
    for about in _lacking(start, known):
        before = {*_lacking(start, known)}
        for form in start_from(start, about) if start.stages.get(about) else ():
            after = {*_lacking(form, known)}
            if after < before or (nearest and after == before):
                start = form
                break
    return start


def _lacking(start: Start, known: _Known) -> list[str]:
    """The first statement of each phase that no calls compute."""
    return [c.refused.statement for c in _covers(start, known) if c.refused is not None]


def nearest_refusal(start: Start, refused: HwgenError) -> HwgenError:
    """Why calls do not compute a start, which is `refused`, as it tells most."""
    covers = _covers(started(start, nearest=True), {})
    found = (c.refused for c in covers if c.refused is not None)
    return next((e for e in found if e.statement == refused.statement), refused)


def covered_forms(start: Start, refused: HwgenError) -> list[Start]:
    """Forms of a workload that units compute, with as few edits as that takes; `refused`: why they
    do not compute it as it is.

    Raises:
        HwgenError: `refused` where there is none.
    """
    unmade = refused.code == UNMADE
    first = _without_repeats(start) if unmade else start
    able = all_known(start.workload, start.hardware)
    found = [f for f in islice(_forms(first), FORMS_COMPILED) if f is not start] if able else []
    # Where there is none, what the one without repeats is refused for tells more.
    found = found or [first] * (first is not start)
    if not found:
        raise nearest_refusal(start, refused)
    return [form for f in found for form in all_forms(f)]


def _forms(start: Start) -> Iterator[Start]:
    """Forms of which calls compute every statement, with as few edits as that takes."""
    known: _Known = {}
    seen: set[_Statements] = set()
    waiting = deque([start])
    fewest: int | None = None
    while waiting and len(seen) < FORMS and fewest in (None, _counted(waiting[0])):
        form = waiting.popleft()
        if form.workload.statements in seen:
            continue
        seen.add(form.workload.statements)
        form = _started(form, known)
        lacking = next((c.refused for c in _covers(form, known) if c.refused is not None), None)
        if lacking is None:
            fewest = _counted(form) if form is not start else None
            yield form
        elif form.stages.get(lacking.statement):
            waiting += (made for move in MOVES for made in move(form, lacking.statement))


def _counted(form: Start) -> int:
    """How many edits say a form otherwise: sums that start from an addend need no more calls."""
    return sum(e.primitive != "start_from" for e in form.edits)


@dataclass(frozen=True, slots=True)
class _Cover:
    """The calls that compute a phase, and cycles below which none of its kernels gets; None and 0
    where no calls compute it, and why."""

    workload: Workload
    selection: Selection | None = None
    least: float = 0.0
    refused: HwgenError | None = None


_Known = dict[tuple[_Statements, Sharing], _Cover]
"""By phase and what it shares: what computes it."""


def _covers(start: Start, known: _Known) -> Iterator[_Cover]:
    """What computes each phase; `known`: what has been looked at, to which more is added."""
    held: dict[str, str] = {}
    for phase in split_phases(start.workload):
        takes = tuple((n, held[n]) for n in phase.takes if n in held)
        # What it computes for others may stay on the chip, or leave it.
        ways = (Sharing(takes, phase.leaves), NOTHING_SHARED)
        tried = [_cover(phase.workload, start.hardware, way, known) for way in ways]
        found = next((c for c in tried if c.selection is not None), tried[0])
        if found.selection is not None:
            held |= {s.tensor: s.memory for s in found.selection.storages if s.shape}
        yield found


def _cover(workload: Workload, hardware: HardwareSpec, sharing: Sharing, known: _Known) -> _Cover:
    key = workload.statements, sharing
    if key not in known:
        with Tolerating(REFUSALS) as refused:
            scop = build_scop(workload)
            found = select(scop, hardware, sharing)
            known[key] = _Cover(workload, found[0], least_cycles(scop, hardware, found))
            return known[key]
        known[key] = _Cover(workload, refused=refused.error)
    return known[key]


def _without_repeats(start: Start) -> Start:
    """The same without intermediates that repeat another one, as no call need do."""
    for tensor in _repeated(start.workload):
        start = start.inlined(tensor)
    return start


def _repeated(workload: Workload) -> list[str]:
    """Intermediates that repeat another one, their axes in any order."""
    inner = {t.name: t for t in workload.tensors if t.role == "intermediate"}
    found: list[str] = []
    for statement in workload.statements:
        own, value = inner.get(statement.target.tensor), statement.value
        if own is None or statement.op != "=" or not isinstance(value, Access):
            continue
        other = inner.get(value.tensor)
        writers = [s for s in workload.statements if s.target.tensor == own.name]
        if other is None or other.dtype != own.dtype or len(writers) > 1:
            continue
        if _axes(value, other) == _axes(statement.target, own):
            found.append(own.name)
    return found


def _axes(access: Access, tensor: Tensor) -> list[tuple[str, int]]:
    """An access by index and extent, in whatever order."""
    return sorted(zip(map(str, access.indices), tensor.shape, strict=True))
