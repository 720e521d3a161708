"""Forms of a workload that units compute: found by moves on the statement that no calls compute."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from itertools import islice

from hwgen.errors import HwgenError, Tolerating
from hwgen.passes.kernel import Kernel
from hwgen.passes.moves import MOVES
from hwgen.passes.moves.operations import all_known
from hwgen.passes.phase import SearchOptions
from hwgen.passes.start import Start
from hwgen.polyhedral.match.operations import NOTHING_SHARED, Selection, Sharing
from hwgen.polyhedral.match.select import select
from hwgen.polyhedral.phases import split_phases
from hwgen.polyhedral.scop import build_scop
from hwgen.spec.expression import Access
from hwgen.spec.hardware import HardwareSpec
from hwgen.spec.workload import Statement, Tensor, Workload

REFUSALS = ("H3", "H4", "H5", "H6")
"""Beginnings of the codes of what units cannot run, or not within the limits of the chip."""

UNMADE = "H421"
"""The code of a tree with a block that no call computes."""

FORMS = 64
"""Forms of one workload that are looked at."""

COMPILED = 4
"""Of those that units compute wholly, so many are compiled."""

UnitsOf = Callable[[Start], Kernel]
"""What units make alone of what is left to be searched."""

_Statements = tuple[Statement, ...]


def compile_covered(
    start: Start, units: UnitsOf, options: SearchOptions, refused: HwgenError
) -> Kernel:
    """The best kernel of the forms of a workload that units compute; `refused`: why they do not
    compute it as it is.

    Raises:
        HwgenError: `refused` where there is none; of blocks that no call computes, why a form is
            refused.
    """
    first = _without_repeats(start) if refused.code == UNMADE else start
    able = all_known(start.workload, start.hardware)
    forms = [*islice(_forms(first), COMPILED)] if able else []
    found: list[Kernel] = []
    reasons: list[HwgenError] = []
    # Where there is none, what the one without repeats is refused for tells more.
    for form in (f for f in forms or [first] if f is not start):
        with Tolerating(REFUSALS) as tolerated:
            found.append(units(form))
            continue
        reasons.append(tolerated.error)
    if found:
        return min(found, key=options.measure)
    raise reasons[0] if reasons and refused.code == UNMADE else refused


def _forms(start: Start) -> Iterator[Start]:
    """Forms of which calls compute every statement, with as few edits as that takes."""
    covered: _Covered = {}
    seen: set[_Statements] = set()
    waiting = deque([start])
    fewest: int | None = None
    while waiting and len(seen) < FORMS and fewest in (None, len(waiting[0].edits)):
        form = waiting.popleft()
        if form.workload.statements in seen:
            continue
        seen.add(form.workload.statements)
        about = _uncovered(form, covered)
        if about is None:
            fewest = len(form.edits) if form is not start else None
            yield form
        elif about and form.stages.get(about):
            waiting += (made for move in MOVES for made in move(form, about))


_Covered = dict[tuple[_Statements, Sharing], tuple[Selection | None, str]]
"""By phase and what it shares: the calls that compute it, or the statement that none compute."""


def _uncovered(start: Start, covered: _Covered) -> str | None:
    """The first statement that no intrinsics compute in its phase; "" where what is refused is
    about no statement alone, None where nothing is. `covered`: what is known, to which more is
    added."""
    held: dict[str, str] = {}
    for phase in split_phases(start.workload):
        takes = tuple((n, held[n]) for n in phase.takes if n in held)
        # What it computes for others may stay on the chip, or leave it.
        ways = (Sharing(takes, phase.leaves), NOTHING_SHARED)
        tried = [_selected(phase.workload, start.hardware, way, covered) for way in ways]
        found = next((selection for selection, _ in tried if selection is not None), None)
        if found is None:
            return tried[0][1]
        held |= {s.tensor: s.memory for s in found.storages if s.shape}
    return None


def _selected(
    workload: Workload, hardware: HardwareSpec, sharing: Sharing, covered: _Covered
) -> tuple[Selection | None, str]:
    key = workload.statements, sharing
    if key not in covered:
        with Tolerating(REFUSALS) as refused:
            covered[key] = select(build_scop(workload), hardware, sharing)[0], ""
            return covered[key]
        covered[key] = None, refused.error.statement
    return covered[key]


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
