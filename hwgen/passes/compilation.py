"""One kernel with every artefact that led to it, and the last steps of making it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from math import prod

from hwgen.codegen.lower.program import Lowered
from hwgen.codegen.program import Program
from hwgen.model.bound import Bound, least_bound
from hwgen.model.timing import TimingResult
from hwgen.passes.compiled import Compiled
from hwgen.passes.spilling import Spill
from hwgen.passes.start import Start
from hwgen.passes.trees import TreeCompilation, compile_padded
from hwgen.polyhedral import isl
from hwgen.polyhedral.dependences import Dependences, dependences
from hwgen.polyhedral.match.explain import Explanation, explain
from hwgen.polyhedral.match.matching import Match
from hwgen.polyhedral.match.operations import NOTHING_SHARED, Sharing
from hwgen.polyhedral.match.select import every_match
from hwgen.polyhedral.schedule.schedule import Schedule
from hwgen.polyhedral.scop import Scop, ScopStatement
from hwgen.polyhedral.search.search import Candidate, SearchResult
from hwgen.polyhedral.search.tiling import Tiling
from hwgen.polyhedral.search.tiling_script import PhasePlan, apply_tilings
from hwgen.spec.shown import Brief

OF_PHASES = ("scop", "dependences", "match")
"""Stages that each phase has by itself."""


@dataclass(frozen=True, repr=False)
class Kernel(Brief):
    """A tiling carried through to a program, as the tree that primitives make of it. `tiling`: that
    of the phase that takes longest, where there are several. `unseen`: estimated cycles of caches,
    which its timing does not see, to rank it by."""

    tiling: Tiling
    made: TreeCompilation
    unseen: float = 0.0

    def brief(self) -> str:
        return f"{self.program.name}: {self.cycles:,} cycles, {self.offchip_bytes:,} bytes off chip"

    @property
    def program(self) -> Program:
        """What it is lowered to, with constants as operands."""
        return self.made.lowered.program

    @property
    def timing(self) -> TimingResult:
        return self.made.timing

    @property
    def cycles(self) -> int:
        """Modelled cycles of the whole kernel."""
        return self.timing.cycles

    @property
    def offchip_bytes(self) -> int:
        return self.made.offchip_bytes

    @property
    def onchip_bytes(self) -> int:
        return self.made.onchip_bytes

    @property
    def energy(self) -> float:
        return self.made.energy


@dataclass(frozen=True, repr=False)
class Compilation(Compiled):
    """Every artefact of one compilation, in pipeline order. `alone`: not a phase that has something
    in common with others, nor several phases. `phases`: of a kernel of several, each as if it were
    a kernel; what only a phase has (scop, match, schedule) is then that of the longest one.
    `spills`: what goes through off-chip memory between them. `start`: the edits that say what is
    computed, before any that says how. `others`: scops of other starts, as its bound is of all ways
    to compute the workload."""

    start: Start
    scop: Scop
    matches: tuple[Match, ...]
    search: SearchResult
    kernel: Kernel
    alone: bool = True
    others: tuple[Scop, ...] = ()
    phases: tuple[Compilation, ...] = ()
    spills: tuple[Spill, ...] = ()

    @classmethod
    def of_phases(
        cls,
        start: Start,
        made: TreeCompilation,
        phases: Sequence[Compilation],
        spills: Sequence[Spill],
    ) -> Compilation:
        """The kernel of several phases, which is made as a tree."""
        longest = max(phases, key=lambda c: c.cycles)
        search = sum((c.search for c in phases[1:]), phases[0].search)
        return cls(
            made.workload,
            made.hardware,
            start,
            longest.scop,
            tuple(m for c in phases for m in c.matches),
            replace(search, cycles=made.timing.cycles),
            Kernel(longest.tiling, made),
            alone=False,
            phases=tuple(phases),
            spills=tuple(spills),
        )

    @property
    def parts(self) -> tuple[Compilation, ...]:
        """Its phases, each as if it were a kernel; itself where there is one."""
        return self.phases or (self,)

    @property
    def notes(self) -> tuple[str, ...]:
        return (*super().notes, *map(str, self.spills))

    @cached_property
    def dependences(self) -> Dependences:
        """Pairs of instances that stay in order, to be read: legality asks of trees."""
        with isl.bounded():
            return dependences(self.scop)

    @cached_property
    def statements(self) -> tuple[ScopStatement, ...]:
        return tuple(s for part in self.parts for s in part.scop.statements)

    @cached_property
    def main_intrinsic(self) -> str:
        operations = self.match.selection.operations
        computing = [o for o in operations if o.kind in ("update", "map")] or [*operations]
        updates = [o for o in computing if o.kind == "update"]
        count = self.match.count
        return max(
            updates or computing, key=lambda o: prod(count[n] for n in o.loops)
        ).intrinsic.name

    @property
    def ended_by(self) -> tuple[str, ...]:
        return self.search.ended_by

    @cached_property
    def timing(self) -> TimingResult:
        return self.kernel.timing

    @property
    def tiling(self) -> Tiling:
        return self.kernel.tiling

    @property
    def match(self) -> Match:
        return self.tiling.match

    @property
    def lowering(self) -> Lowered:
        return self.kernel.made.lowered

    @cached_property
    def bound(self) -> Bound:
        """The cycles below which no kernel of the workload on this chip can get; of a phase, and of
        several together, no schedule of these intrinsics."""
        if not self.alone:
            return super().bound
        with isl.bounded():
            covers = (every_match(scop, self.hardware) for scop in (self.scop, *self.others))
            return least_bound(self.program, self.hardware, chain.from_iterable(covers))

    @cached_property
    def explanations(self) -> list[Explanation]:
        if self.phases:
            return [e for phase in self.phases for e in phase.explanations]
        with isl.bounded():
            return explain(self.scop, self.hardware, self.match)

    @property
    def schedule(self) -> Schedule:
        return self.kernel.made.schedule

    @property
    def script(self) -> str:
        return self.schedule.trace()

    def stage(self, name: str) -> str:
        """The artefact of a stage as text; of every phase where each has its own.

        Raises:
            HwgenError: H007 where there is no such stage.
        """
        if not self.phases or name not in OF_PHASES:
            return super().stage(name)
        parts = (f"phase {n}\n{phase.stage(name)}" for n, phase in enumerate(self.phases))
        return "\n\n".join(parts)

    def artefacts(self) -> dict[str, Callable[[], object]]:
        return {
            "scop": lambda: self.scop,
            "dependences": lambda: self.dependences,
            "match": lambda: self.match,
            "schedule": lambda: f"{self.search.told(self.bound.cycles)}\n{self.schedule}",
            **super().artefacts(),
        }


def build(
    start: Start, scop: Scop, candidate: Candidate, sharing: Sharing = NOTHING_SHARED
) -> Kernel:
    """Carry one schedule through to a program, its buffers padded where that is faster. `sharing`:
    what a phase has in common with others.

    Raises:
        HwgenError: as `apply_tilings`, `compile_tree`.
    """
    tiling = candidate.tiling
    shared = [s for s in tiling.match.selection.storages if s.shape]
    stays = {s.tensor: s.memory for s in shared if s.tensor in sharing.leaves}
    resident = dict(sharing.takes) | stays
    assert not (resident and start.edits), "what phases share is of workloads as they are"
    schedule = (
        Schedule(start.given, start.hardware, resident) if resident else start.schedule.copy()
    )
    first = tuple(start.stages.get(s.name, "") for s in start.workload.statements)
    apply_tilings(schedule, [PhasePlan(scop, tiling, first, sharing.leaves)])
    return Kernel(tiling, compile_padded(schedule), candidate.unseen)
