"""The last step of a search: simulate the cheapest candidates, and what loads less than these."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from math import inf, isclose
from typing import Generic, Protocol, TypeVar

from hwgen.errors import HwgenError
from hwgen.polyhedral import isl
from hwgen.polyhedral.caches import through_caches
from hwgen.polyhedral.search.objective import Measure, Measured, Objective, measure
from hwgen.polyhedral.search.search import SCHEDULE_WORK, TOO_LONG, Candidate, SearchResult, Watch
from hwgen.polyhedral.search.tiling import Tiling
from hwgen.spec.hardware import HardwareSpec

NO_TREE = ("H301", "H411", "H413", "H421", "H422", "H423", "H424", "H503", "H504")
"""Errors of a tiling that primitives do not make, or of whose tree no calls are found."""

EXCEEDED = ("H405", "H502", "H611", "H612", "H613", "H614", "H615", "H616", "H618")
"""Errors of a schedule that exceeds the hardware's limits."""

LIMITS = (*EXCEEDED, *NO_TREE)
"""Errors of one schedule that another may not have."""

OF_MATCH = ("H301", "H422", "H423", "H424", "H503", "H504")
"""Those of them that are mostly for a match's lanes, whatever its tiles."""

UNLIKELY = 3
"""Tilings of one match with such an error, and none without: then its others are not tried."""

OF_CHIP = ("H611", "H616")
"""Errors that are mostly for what a chip lacks, whatever the schedule."""

LACKING = 24
"""Candidates with such an error, before any can be built, after which others are not tried."""

SIMULATED = 8
"""Candidates whose cycles are simulated at most before the best is taken."""

ERROR = 1.02
"""How much longer than it takes a schedule may be estimated to take."""

SLACK = 1.25
"""Estimates above the best simulated cycles by this factor are not simulated; none above them where
caches, which no simulation sees, are in both."""

NEAR = 1.02
"""Times what the best measures, up to which schedules are given another end."""

TIE, TIE_OF_PHASES = 1.005, 1.002
"""Cycles over the fastest schedule's up to which the one that moves fewer bytes off chip is
taken; of a phase among others."""


ALIKE = 1e-6
"""Estimated energies that differ by less are equal: they are sums of floats."""


class Ranked(Measured, Protocol):
    """A kernel to be ranked: `unseen` cycles of caches come to those of its timing."""

    @property
    def unseen(self) -> float: ...


K = TypeVar("K", bound=Ranked)

Ended = Callable[[K, float], K]
"""Gives a kernel the end that suits it, if it should take no more cycles then."""


def choose(
    hardware: HardwareSpec,
    found: SearchResult,
    build: Callable[[Candidate], K],
    watch: Watch,
    best: K | None = None,
    *,
    alone: bool = True,
    objective: Objective = "cycles",
    slack: float | None = None,
    refused: list[HwgenError] | None = None,
    ended: Ended[K] | None = None,
) -> tuple[K, SearchResult]:
    """The best when simulated: of `best` and the cheapest candidates. By cycles, it is of what
    takes as long as the fastest what moves fewest bytes. `alone`: not a
    phase, whose coarser tiles may be as fast by themselves, and delay those of others; `slack`: the
    part of its cycles by which a kernel with less traffic may be slower, in place of the usual one;
    `refused`: is told why candidates cannot be built; `ended`: gives a kernel the end
    that suits it.

    Where polyhedral computations take too long, the best until then.

    Raises:
        HwgenError: one of `LIMITS` where there is no best and no candidate can be built; what
            `build` raises besides; H407 where there is nothing until then.
    """
    cuts = list(found.cuts)
    if not alone:
        found = replace(found, near=())
    usual = TIE if alone else TIE_OF_PHASES
    tie = usual if slack is None else 1 + slack
    refused = [] if refused is None else refused
    tried = _Tried(hardware, build, best, watch, cuts, tie, objective, refused)
    try:
        with isl.bounded():
            _look(tried, found, watch)
            if ended is not None:
                tried.end(ended)
    except HwgenError as error:
        if error.code != "H407" or tried.best is None:
            raise
        cuts.append(TOO_LONG)
    return tried.chosen(), replace(
        found,
        simulated=tried.simulated,
        beside=len(tried.built) - tried.simulated,
        refused=len(tried.refused),
        compared=tuple((c.cycles, tried.cycles(kernel)) for c, kernel in tried.built if c.bound),
        cuts=tuple(dict.fromkeys(cuts)),
    )


def _look(tried: _Tried[K], found: SearchResult, watch: Watch) -> None:
    """Simulate the cheapest candidates, then what loads less."""
    least = min(c.bound for c in found.candidates)
    watch.expect(SIMULATED)
    built: set[object] = set()
    alike: set[tuple[float, int]] = set()
    for candidate in found.candidates:
        if tried.best is None and lacks(tried.refused):
            break
        if tried.hopeless(candidate):
            continue
        shape = _shape(candidate)
        # The same loops around the same loads, of operands in the place of each other.
        tiling = candidate.tiling
        lanes = tuple(sorted(tiling.match.storage_lane.items()))
        commuted = (candidate.cycles, tiling.loops, tuple(sorted(tiling.depths)), lanes)
        if tried.best is not None:
            cycles = tried.cycles(tried.best)
            if shape in built or commuted in built:
                continue  # another order of the same loops or loads
            if len(alike) == SIMULATED or not tried.worth(candidate, least):
                break
            if tried.ended():
                break
            if tried.objective == "cycles" and candidate.bound >= cycles:
                continue
        before = len(tried.built)
        kernel = tried.add(candidate)
        tried.simulated += len(tried.built) - before
        if kernel is not None:
            built |= {shape, commuted}
            # Loops with nothing inside but calls become theirs: tilings that differ in these alone
            # are one kernel.
            alike.add((tried.cycles(kernel), kernel.offchip_bytes))
        watch.step()
    if tried.best is None:
        raise tried.refused[0]
    if through_caches(tried.hardware):
        return  # What is loaded less is in the estimate.
    # What is compared with more slack is the fastest that the usual one finds.
    for slack in sorted({min(tried.tie, TIE), tried.tie}):
        _save(tried, found.near, slack)


def lacks(refused: Sequence[HwgenError]) -> bool:
    """Whether candidates are refused for what the chip lacks, so many that others will be, too."""
    return sum(error.code in OF_CHIP for error in refused) >= LACKING


def _shape(candidate: Candidate) -> object:
    """What candidates have in common that differ in the order of loops or loads alone."""
    tiling = candidate.tiling
    return (
        candidate.cycles,
        tiling.tiles,
        tuple(sorted(tiling.depths)),
        tuple(sorted(tiling.slots)),
    )


def _save(tried: _Tried[K], near: Sequence[Candidate], slack: float) -> None:
    """Simulate what loads less than the cheapest and should be as fast as the best, that with the
    least loads first, until something is; then what may be and loads even less, the fastest first.
    """
    assert tried.best is not None
    as_fast, limit = (x * tried.cycles(tried.best) for x in (slack, max(slack, TIE)))

    def first(some: Sequence[Candidate]) -> float:
        """The beats of the first that is as fast."""
        for candidate in some[:SIMULATED]:
            kernel = None if tried.ended() else tried.add(candidate)
            if kernel is not None and tried.cycles(kernel) <= as_fast:
                return candidate.beats
        return inf

    # Where some took less than their cost, so may others.
    off = min([1.0, *(tried.cycles(k) / c.cycles for c, k in tried.built if c.bound)])
    beats = first([c for c in near if off * c.cycles <= limit])
    less = [c for c in near if limit < off * c.cycles <= ERROR * limit and c.beats < beats]
    first(sorted(less, key=lambda c: c.cycles))


class _Tried(Generic[K]):
    """Kernels that were built and simulated, and the best of them and of an earlier one;
    `simulated`: how many of them are the search's candidates; `cuts`: why any is left out."""

    def __init__(
        self,
        hardware: HardwareSpec,
        build: Callable[[Candidate], K],
        best: K | None,
        watch: Watch,
        cuts: list[str],
        tie: float,
        objective: Objective,
        refused: list[HwgenError],
    ) -> None:
        self.hardware = hardware
        self.tie = tie
        self.slack = 1.0 if through_caches(hardware) else SLACK
        self.objective: Objective = objective
        self._build = build
        self._watch = watch
        self._cuts = cuts
        self._seen: dict[str, K | None] = {}
        self.best = best
        self.built: list[tuple[Candidate, K]] = []
        self.refused = refused
        self.simulated = 0
        self._full: list[tuple[Tiling, HwgenError]] = []
        self._trees: set[str] = set()
        self._no_trees: Counter[str] = Counter()

    def measure(self, kernel: K) -> Measure:
        """A kernel by the objective."""
        return (
            (self.cycles(kernel),)
            if self.objective == "cycles"
            else measure(kernel, self.objective)
        )

    @staticmethod
    def cycles(kernel: K) -> float:
        """Those of its timing, and of caches."""
        return kernel.cycles + kernel.unseen

    def worth(self, candidate: Candidate, least: float) -> bool:
        """Whether a candidate may be better than the best by more than a trifle; `least`: cycles
        below which none gets."""
        assert self.best is not None
        cycles = self.cycles(self.best)
        close = cycles <= least
        if self.objective == "cycles":
            return candidate.cycles <= self.slack * cycles and not close
        known = self.measure(self.best)[0]
        if isclose(candidate.moved, known, rel_tol=ALIKE):
            return not close
        return candidate.moved < known

    def hopeless(self, candidate: Candidate) -> bool:
        """Whether a match's tilings are no trees, as far as was tried."""
        match = str(candidate.tiling.match)
        return match not in self._trees and self._no_trees[match] >= UNLIKELY

    def ended(self) -> bool:
        """Whether a limit of the search is reached, and the rest is left out for that."""
        if self._watch.expired:
            self._cuts.append(self._watch.reason)
        return self._watch.expired

    def add(self, candidate: Candidate) -> K | None:
        """Simulate a schedule, once; None where the hardware does not allow it."""
        text = f"{candidate.tiling.match}\n{candidate.tiling}"
        if text in self._seen:
            return self._seen[text]
        self._seen[text] = None
        if (known := self._no_room(candidate)) is not None:
            self.refused.append(known)
            return None
        self._watch.spend(SCHEDULE_WORK)
        try:
            kernel = self._build(candidate)
        except HwgenError as error:
            if error.code not in LIMITS:
                raise
            self.refused.append(error)
            if error.code == "H502":
                self._full.append((candidate.tiling, error))
            if error.code in OF_MATCH:
                self._no_trees[str(candidate.tiling.match)] += 1
            return None
        self._trees.add(str(candidate.tiling.match))
        self._seen[text] = kernel
        self.built.append((candidate, kernel))
        self._known(kernel)
        return kernel

    def _known(self, kernel: K) -> None:
        """Take a kernel as the best, if it is."""
        if self.best is None or self.measure(kernel) < self.measure(self.best):
            self.best = kernel

    def end(self, ended: Ended[K]) -> None:
        """Give what would be chosen another end, and each of those that take the fewest cycles that
        should be chosen with it."""
        chosen = self.chosen()
        mine = [(c, k) for c, k in self.built if k is chosen]
        some = [*mine, *(x for x in self.leading() if x not in mine)]
        for candidate, kernel in some:
            fastest = min(self.cycles(k) for _, k in self.built)
            less = kernel.offchip_bytes < self.chosen().offchip_bytes or kernel is chosen
            other = ended(kernel, (self.tie if less else 1) * fastest)
            if other is not kernel:
                self.built.append((replace(candidate, bound=0.0), other))
                self._known(other)

    def _no_room(self, candidate: Candidate) -> HwgenError | None:
        """Why there is no room for a schedule: there was none for another with the same buffers in
        the same order of loops, none of which was larger."""
        tiling = candidate.tiling
        order = [x.loop for x in tiling.loops]
        for known, error in self._full:
            if (known.match, known.depths) != (tiling.match, tiling.depths):
                continue
            smaller = (known.taken(n) <= tiling.taken(n) for n, _ in tiling.depths)
            if order == [x.loop for x in known.loops] and all(smaller):
                return error
        return None

    def leading(self) -> list[tuple[Candidate, K]]:
        """Those that were built and are hardly worse than the best, the best first, of alike ones
        the first."""
        assert self.best is not None
        alike = {self.measure(kernel): (c, kernel) for c, kernel in reversed(self.built)}
        limit = NEAR * self.measure(self.best)[0]
        return [alike[known] for known in sorted(alike) if known[0] <= limit]

    def chosen(self) -> K:
        """The best, of equals the one that takes the least room; by cycles, of those as fast as the
        best but for a trifle, the one with the least traffic."""
        assert self.best is not None
        known = [self.best, *(kernel for _, kernel in self.built)]
        if self.objective != "cycles":
            return min(known, key=lambda k: (*self.measure(k), k.onchip_bytes))
        limit = self.tie * min(map(self.cycles, known))
        equal = [k for k in known if self.cycles(k) <= limit]
        return min(equal, key=lambda k: (k.offchip_bytes, self.cycles(k)))
