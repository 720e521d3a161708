"""How a kernel was found: an account of the search."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from hwgen.errors import Diagnostic
from hwgen.passes.spilling import Spill
from hwgen.passes.start import Start
from hwgen.polyhedral.match.matching import Match
from hwgen.polyhedral.scop import Scop
from hwgen.polyhedral.search.search import Candidate, SearchResult

if TYPE_CHECKING:
    from hwgen.autoschedule.report import SearchReport
    from hwgen.passes.kernel import Kernel


@dataclass(frozen=True, slots=True)
class Account:
    """How a kernel was found; empty where its schedule is a user's own.

    `start`: the edits that say what is computed, before any that says how. `scop`, `chosen`: the
    form that was searched and its best candidate, of several phases those of the longest one.
    `matches`: those considered; `search`: what was looked at. `ways`: scops of all ways to compute
    the workload, which its bound is of; none of a phase that shares tensors with others, nor of
    several phases. `phases`: each as if it were a kernel; `spills`: what goes through off-chip
    memory between them. `report`: of the scheduler of a processor's loops; `notes`: what could not
    be proved. `fallen`: why units alone do not run it, where a processor computes a part.
    """

    start: Start | None = None
    scop: Scop | None = None
    chosen: Candidate | None = None
    matches: tuple[Match, ...] = ()
    search: SearchResult = field(default_factory=lambda: SearchResult(()))
    ways: tuple[Scop, ...] = ()
    phases: tuple[Kernel, ...] = ()
    spills: tuple[Spill, ...] = ()
    report: SearchReport | None = None
    notes: tuple[str, ...] = ()
    fallen: Diagnostic | None = None

    @classmethod
    def of_phases(
        cls, start: Start, cycles: int, phases: Sequence[Kernel], spills: Sequence[Spill]
    ) -> Account:
        """That of a kernel of several phases, which takes so many cycles."""
        longest = max(phases, key=lambda k: k.cycles).account
        search = sum((k.account.search for k in phases[1:]), phases[0].account.search)
        return cls(
            start,
            longest.scop,
            longest.chosen,
            tuple(m for k in phases for m in k.account.matches),
            replace(search, cycles=cycles),
            phases=tuple(phases),
            spills=tuple(spills),
        )

    def told(self, kernel: Kernel) -> list[str]:
        """What was looked at for a kernel, as text; nothing without a search."""
        if self.chosen is not None:
            return [self.search.told(kernel.bound.cycles)]
        return [str(self.report)] if self.report is not None else []
