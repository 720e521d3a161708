"""Search: tile sizes, orders, placements and buffer counts, ranked by the cost of their trees.

For every order of the spatial loops and every useful placement of each operand's load, the cost of
all tile sizes is one walk over a tree of NumPy arrays. Points that exceed a memory are dropped
while the grid grows; points whose work alone takes longer than the best known, as soon as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from textwrap import fill
from time import perf_counter

import numpy as np
from numpy.typing import NDArray

from hwgen.constants import TAIL_GAIN, TAIL_SIZES
from hwgen.polyhedral.match.matching import Match
from hwgen.polyhedral.search.bound import least_work, work_bound
from hwgen.polyhedral.search.capacity import nothing_fits
from hwgen.polyhedral.search.estimate import (
    ALMOST,
    NEAR,
    Estimate,
    Front,
    Wanted,
    estimate,
)
from hwgen.polyhedral.search.estimate_moved import moved_cost
from hwgen.polyhedral.search.estimate_shape import Cache, Grid, Shape
from hwgen.polyhedral.search.levels import has_levels, levels
from hwgen.polyhedral.search.objective import Objective
from hwgen.polyhedral.search.promising import promising
from hwgen.polyhedral.search.space import (
    LAST_RESORT,
    Placed,
    Restriction,
    Space,
    active_depth,
    choose_space,
    coarser,
    length,
    smaller,
)
from hwgen.polyhedral.search.tiling import Tiling, inner_name
from hwgen.spec.hardware import HardwareSpec
from hwgen.spec.workload import Workload

SHRINK = 0.7
"""The grid is rebuilt when this part of it or less can still be among the best."""

THRIFTY = 64
"""Candidates that are kept because they load little, of one order of loops."""

LOOKED_AT, PROMISING = 1 << 20, 32
"""Points of a space above which not all are costed, and how many of its orders and placements then
are at all tile sizes: the best of all at few of these."""

WIDTH = 100
"""Columns of the result's text."""

TIME_LIMIT, WORK_LIMIT = "time limit", "work limit"
"""How the reason starts for which a search is not exhausted where it had to end."""

TOO_LONG = "polyhedral computations that take too long"
"""The reason where isl gave up."""

WORK = 10_000_000
"""Work after which a search ends with what it has: counted, so that neither the machine nor its
load decides. Kernels in `workloads/` need less than half of it."""

COSTED = 7 / 8
"""Part of the work after which no more points are costed: the rest is for simulating the best."""

SCHEDULE_WORK = 100_000
"""Work of lowering and simulating one schedule; that of costing one point is 1."""

Cycles = NDArray[np.float64]

Allows = Callable[[Match, Placed], bool]
"""Whether a match's tile loops may have an order, and its loads their places."""

Tiles = tuple[tuple[str, int], ...]
"""The size of each loop's tiles, in blocks."""

Progress = Callable[[int, int], None]
"""Called with the steps done and all steps known so far."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A tiling with its estimated cycles, a lower bound on them (0: they are those of the same
    tiling with another end), and the beats on the bus that its loads are estimated to take.
    `moved`: off-chip bytes or energy, where these are looked for; `unseen`: of the cycles, those of
    caches, which no simulation sees; `placed`: its order and placements, where all sizes were not
    looked at."""

    tiling: Tiling
    cycles: float
    bound: float = 0.0
    beats: float = 0.0
    moved: float = 0.0
    unseen: float = 0.0
    placed: Placed | None = None

    @property
    def rank(self) -> tuple[float, float]:
        """What is looked for, the most important first."""
        return self.moved, self.cycles


@dataclass(frozen=True, slots=True)
class SearchResult:
    """The best candidates, cheapest first, and how the space was covered. `near`: candidates that
    are hardly slower than the cheapest and load less, those that load least first.

    Every one of `points` is exactly one of: `evaluated`; `too_large`, its smallest
    buffers exceed a memory; `too_slow`, its work alone takes longer than the best known;
    `left_out`, for the reasons in `cuts`. The best of `simulated` points and of `beside` schedules
    that load less or end otherwise took `cycles`; `refused` ones exceed a limit of the hardware.
    `matches`: considered, `matches_too_slow`: more whose work alone takes longer. `compared`:
    cycles of points that were simulated, as estimated and as simulated.
    """

    candidates: tuple[Candidate, ...]
    near: tuple[Candidate, ...] = ()
    points: int = 0
    evaluated: int = 0
    too_large: int = 0
    too_slow: int = 0
    cuts: tuple[str, ...] = ()
    matches: int = 1
    matches_too_slow: int = 0
    simulated: int = 0
    beside: int = 0
    refused: int = 0
    cycles: int = 0
    compared: tuple[tuple[float, float], ...] = ()

    @property
    def left_out(self) -> int:
        return self.points - self.evaluated - self.too_large - self.too_slow

    @property
    def exhausted(self) -> bool:
        """Whether no point was left out without a proof that others are better."""
        return not self.cuts

    @property
    def ended_by(self) -> tuple[str, ...]:
        """The limits of time and work at which the search ended early."""
        limits = (TIME_LIMIT, WORK_LIMIT, TOO_LONG)
        return tuple(c for c in self.cuts if c.startswith(limits))

    def __add__(self, other: SearchResult) -> SearchResult:
        """Both searches' counts, the candidates of the first."""
        return replace(
            self,
            points=self.points + other.points,
            evaluated=self.evaluated + other.evaluated,
            too_large=self.too_large + other.too_large,
            too_slow=self.too_slow + other.too_slow,
            cuts=tuple(dict.fromkeys((*self.cuts, *other.cuts))),
            matches=self.matches + other.matches,
            matches_too_slow=self.matches_too_slow + other.matches_too_slow,
            simulated=self.simulated + other.simulated,
            beside=self.beside + other.beside,
            refused=self.refused + other.refused,
            compared=self.compared + other.compared,
        )

    def __str__(self) -> str:
        return self.told()

    def told(self, bound: int = 0) -> str:
        """The account in words; `bound`: cycles below which no kernel gets, 0 where not asked."""
        if not self.points:
            head = "search: none, the schedule was given"
        else:
            matches = _count(self.matches, "match", "matches")
            counts = [f"{self.evaluated:,} costed"]
            if self.too_large:
                counts.append(f"{self.too_large:,} pruned as too large for a memory")
            if self.too_slow:
                counts.append(f"{self.too_slow:,} pruned by the bound on their work")
            if self.left_out:
                counts.append(f"{self.left_out:,} left out")
            space = (
                "all of the space" if self.exhausted else f"not exhausted: {'; '.join(self.cuts)}"
            )
            head = f"search: {self.points:,} points of {matches}, {', '.join(counts)}; {space}"
            if self.matches_too_slow:
                pruned = _count(self.matches_too_slow, "other match", "other matches")
                head += f"; {pruned} pruned by the bound on their work"
        if not self.cycles:
            return fill(head, WIDTH)
        refused = f" and {self.refused} refused by the hardware's limits" if self.refused else ""
        beside = f", {self.beside} more beside them" if self.beside else ""
        ratio = f", {self.cycles / bound:.3f} x its lower bound of {bound:,}" if bound else ""
        return fill(
            f"{head}. {self.simulated} simulated{beside}{refused}: the best takes "
            f"{self.cycles:,} cycles{ratio}.",
            WIDTH,
        )


def _count(number: int, one: str, many: str) -> str:
    return f"{number} {one if number == 1 else many}"


class Watch:
    """Steps of a search, and the moment at which it has to end with what it has: after so much
    `work`, and after so many `seconds` where somebody asks for that."""

    def __init__(
        self,
        seconds: float | None = None,
        progress: Progress | None = None,
        work: int = WORK,
    ) -> None:
        self._end = None if seconds is None else perf_counter() + seconds
        self._progress = progress
        self._seconds = seconds
        self._work = work
        self._spent = 0
        self._done = 0
        self._all = 0

    def expect(self, steps: int) -> None:
        """Announce steps."""
        self._all += steps

    def step(self, steps: int = 1) -> None:
        """Report steps as done."""
        self._done += steps
        if self._progress is not None:
            self._progress(self._done, max(self._done, self._all))

    def spend(self, work: int) -> None:
        """Count work as done."""
        self._spent += work

    @property
    def expired(self) -> bool:
        return self._spent >= self._work or self._late

    @property
    def costed(self) -> bool:
        """Whether what is left of the work is for simulating what was found."""
        return self._spent >= COSTED * self._work or self._late

    @property
    def _late(self) -> bool:
        return self._end is not None and perf_counter() > self._end

    @property
    def reason(self) -> str:
        """Why an expired search is not exhausted."""
        if self._spent >= COSTED * self._work:
            return f"{WORK_LIMIT} of {self._work:,} reached"
        return f"{TIME_LIMIT} of {self._seconds:g} s reached"


def search(
    hardware: HardwareSpec,
    matches: Sequence[Match],
    keep: int = 8,
    slots: int = 2,
    watch: Watch | None = None,
    fixed: Mapping[str, int] | None = None,
    workload: Workload | None = None,
    objective: Objective = "cycles",
    allows: Allows | None = None,
) -> SearchResult:
    """Rank the schedules of all matches, with at most `slots` copies of a buffer alive at once.

    `fixed`: tile sizes, in blocks, that are given; `workload`: whose tensors an error points at;
    `objective`: by what, and by cycles where that is equal; `allows`: orders and placements.

    Matches are visited by the bound on their work, orders and placements in a fixed order.

    Raises:
        HwgenError: H405 where not even single-block tiles fit the memories and micro-kernels.
    """
    state = _Search(hardware, keep, slots, watch or Watch(), objective, allows)
    given = tuple(sorted((fixed or {}).items()))
    for match in sorted(matches, key=lambda m: least_work(hardware, m)):
        whole, space = choose_space(hardware, match, given)
        levels = has_levels(whole) and objective == "cycles" and allows is None
        if levels and state.cover_levels(whole):
            continue
        before = state.result
        if not state.cover(whole, space) and space.restriction.whole:
            state.result = before
            state.cover(whole, smaller(Space(hardware, match, LAST_RESORT, given)))
    if not state.found:
        raise nothing_fits(hardware, matches, fixed or {}, workload)
    state.look_closer(fixed or {})
    cheapest = _cheapest(state.found, keep)
    # Of candidates that nothing tells apart, one.
    near = {
        (c.beats, c.cycles): c
        for c in reversed(state.near)
        if c.cycles <= NEAR * cheapest[0].cycles and c.beats < cheapest[0].beats
    }
    return replace(
        state.result,
        candidates=tuple(cheapest),
        near=tuple(near[key] for key in sorted(near)),
        matches=len(matches),
    )


def _cheapest(found: Sequence[Candidate], keep: int) -> list[Candidate]:
    """The cheapest schedules, of equals those found first; of the same found more than once, what
    loads less deep inside loops of one iteration counts as it is cheapest."""
    matches = {id(c.tiling.match): c.tiling.match for c in found}
    texts = {key: str(match) for key, match in matches.items()}
    distinct: dict[object, Candidate] = {}
    for c in sorted(found, key=lambda c: c.rank):
        distinct.setdefault((texts[id(c.tiling.match)], _key(c.tiling)), c)
    return [*distinct.values()][:keep]


def _key(tiling: Tiling) -> object:
    """What tilings of a match have in common that are the same."""
    return tiling.loops, tiling.depths, tiling.slots, tiling.parts


class _Search:
    """What is known so far: candidates, counts, and the cost that a point has to beat."""

    def __init__(
        self,
        hardware: HardwareSpec,
        keep: int,
        slots: int,
        watch: Watch,
        objective: Objective,
        allows: Allows | None,
    ) -> None:
        self.hardware = hardware
        self.keep = keep
        self.slots = slots
        self.watch = watch
        self.objective: Objective = objective
        self.allows = allows
        self.found: list[Candidate] = []
        self.near: list[Candidate] = []
        self.front = Front()
        self.limit = np.inf
        self.least = np.inf
        self.result = SearchResult((), matches=0)

    def cover(self, whole: Space, space: Space) -> bool:
        """Evaluate a space, part of the whole one; whether any of its points is feasible."""
        grid, too_large = space.grid()
        size, before = length(grid), len(self.found)
        allows = self.allows
        every = [p for p in space.every() if allows is None or allows(space.match, p)]
        shapes, promising = len(every), every
        self.watch.expect(shapes)
        evaluated, visited, looked = 0, 0, 0
        cuts = _cuts(whole, space)
        if size * shapes > LOOKED_AT and shapes > PROMISING and self._possible(space, grid):
            promising, each = self._promising(space, every)
            looked = each * (shapes - len(promising))
            self.watch.spend(each * shapes)
            cuts.append("most orders and placements at few tile sizes")
        for found, count in self._evaluate(space, grid, promising) if size else ():
            self.found += found
            evaluated += count
            visited += 1
            self.watch.spend(count)
            self.watch.step()
            if self.watch.costed and self.found:
                cuts.append(self.watch.reason)
                break
        if size and visited < shapes:
            self.watch.step(shapes - visited)
        self.result += SearchResult(
            (),
            points=max(whole.tiles * whole.shapes, space.tiles * space.shapes),
            evaluated=evaluated + looked,
            too_large=too_large * shapes,
            too_slow=size * visited - evaluated,
            cuts=tuple(cuts),
            matches=0,
        )
        return len(self.found) > before

    def look_closer(self, fixed: Mapping[str, int]) -> None:
        """Cost other sizes of tiles beside those of the cheapest, but for `fixed` ones: as many of
        each loop, the last of them shorter. Only what gains more than a trifle is kept."""
        shapes: dict[object, list[Candidate]] = {}
        cheapest = _cheapest(self.found, self.keep) if self.objective == "cycles" else []
        for c in cheapest:
            self.limit, self.least = min(self.limit, c.cycles / TAIL_GAIN), 0.0
            if c.placed is not None:
                loops, placement, parts = c.placed
                key = id(c.tiling.match), loops, tuple(sorted(placement.items())), parts
                shapes.setdefault(key, []).append(c)
        for first, *others in shapes.values():
            assert first.placed is not None
            match, known = first.tiling.match, {c.tiling.tiles for c in (first, *others)}
            sizes = {s for tiles in known for s in _beside(match, tiles, fixed)} - known
            if not sizes or self.watch.costed:
                continue
            names = [n for n, _ in first.tiling.tiles]
            columns = zip(*([k for _, k in row] for row in sorted(sizes)), strict=True)
            grid = {n: np.array(c, np.int64) for n, c in zip(names, columns, strict=True)}
            space = Space(self.hardware, match, Restriction())
            for found, count in self._evaluate(space, grid, [first.placed]):
                self.found += found
                self.watch.spend(count)
                slow = len(sizes) - count
                self.result += SearchResult(
                    (), points=len(sizes), evaluated=count, too_slow=slow, matches=0
                )

    def cover_levels(self, space: Space) -> bool:
        """Evaluate tiles of two levels; whether any is feasible."""
        points, best, limit = 0, list[tuple[float, Callable[[], Candidate]]](), np.inf
        for at in levels(space):
            shape = Shape(
                self.hardware, space.match, at.grid, at.loops, at.spatial, at.placement, at.cache,
                1, added=at.parts,
            )  # fmt: skip
            found = estimate(shape, Wanted(self.keep, limit=self.limit))
            points += (fitting := int(np.count_nonzero(np.isfinite(found.cycles))))
            self.watch.spend(fitting)
            for i in map(int, self._best(found.cycles, np.zeros(found.cycles.shape))):
                if np.isfinite(found.cycles[i]):
                    made = partial(self._candidate, shape, found, i)
                    best.append((float(found.cycles[i]), made))
            if self.limit < limit:
                best = [(cycles, made) for cycles, made in best if cycles <= self.limit]
                limit = self.limit
            if self.watch.expired and (best or self.found):
                break
        distinct: dict[object, Candidate] = {}
        for _, made in sorted(best, key=lambda x: x[0]):
            if len(distinct) == self.keep:
                break
            candidate = made()
            distinct.setdefault(_key(candidate.tiling), candidate)
        self.found += distinct.values()
        cuts = ("larger tiles around few that registers hold, and in few sizes",)
        self.result += SearchResult((), points=points, evaluated=points, matches=0, cuts=cuts)
        return points > 0

    def _candidate(
        self,
        shape: Shape,
        found: Estimate,
        i: int,
        bound: float = 0.0,
        moved: float = 0.0,
        placed: Placed | None = None,
    ) -> Candidate:
        tiling = _tiling(shape, found.slots, i)
        numbers = (float(found.cycles[i]), bound, float(found.beats[i]), moved)
        return Candidate(tiling, *numbers, float(found.unseen[i]), placed)

    def _possible(self, space: Space, grid: Grid) -> bool:
        """Whether any point of a grid can be among the best."""
        floor = work_bound(self.hardware, space.match, grid)
        return self.objective != "cycles" or bool((floor <= self.limit).any())

    def _promising(self, space: Space, every: Sequence[Placed]) -> tuple[list[Placed], int]:
        """The orders and placements that are best at few tile sizes, those with tiles in parts and
        the others apart; and how many these sizes are."""
        grid, _ = coarser(space, len(every)).grid()
        if not length(grid):
            return [*every], 0
        cache = Cache()
        shapes = [self._shape(space, grid, placed, cache) for placed in every]
        kept = promising(shapes, PROMISING, self.objective)
        return [every[n] for n in kept], length(grid)

    def _shape(self, space: Space, grid: Grid, placed: Placed, cache: Cache) -> Shape:
        return Shape(
            self.hardware, space.match, grid, placed.loops, len(space.spatial), placed.placement,
            cache, self.slots, placed.parts,
        )  # fmt: skip

    def _evaluate(
        self, space: Space, grid: Grid, every: Sequence[Placed]
    ) -> Iterator[tuple[list[Candidate], int]]:
        """The best of each order and placement; points that cannot be among them are dropped."""
        floor = work_bound(self.hardware, space.match, grid)
        cache, known = Cache(), dict[object, Estimate]()
        for placed in every:
            # The bound is one of cycles.
            alive = floor <= self.limit if self.objective == "cycles" else floor < np.inf
            if np.count_nonzero(alive) < SHRINK * len(alive):
                grid = {n: v[alive] if len(v) > 1 else v for n, v in grid.items()}
                floor, cache, known = floor[alive], Cache(), dict[object, Estimate]()
            if not len(floor):
                yield [], 0
                continue
            shape = self._shape(space, grid, placed, cache)
            moved = np.zeros(len(floor))
            wanted = Wanted(self.keep, self.limit, NEAR * self.least, self.front)
            if self.objective != "cycles":
                moved = np.broadcast_to(moved_cost(shape, self.objective), floor.shape)
                wanted = Wanted(len(floor), among=moved <= self.limit)
            made = estimate(shape, wanted, known)
            cycles, beats = made.cycles, made.beats
            best = self._best(cycles, moved)
            near = self._near(cycles, beats) if self.objective == "cycles" else best[:0]
            points = {
                i: self._candidate(shape, made, i, float(floor[i]), float(moved[i]), placed)
                for i in map(int, (*best, *near))
                if np.isfinite(cycles[i])
            }
            self.near += [points[int(i)] for i in near]
            found = [points[int(i)] for i in best if int(i) in points]
            yield found, len(cycles)

    def _best(self, cycles: Cycles, moved: Cycles) -> NDArray[np.int64]:
        """The points of a shape that may be among the best, the first one first."""
        cost = (
            cycles if self.objective == "cycles" else np.where(np.isfinite(cycles), moved, np.inf)
        )
        good = np.flatnonzero(cost <= self.limit)
        best = good[np.lexsort((cycles[good], moved[good]))[: self.keep]]
        if len(best) == self.keep:
            self.limit = min(self.limit, float(cost[best[-1]]))
        return best

    def _near(self, cycles: Cycles, beats: Cycles) -> NDArray[np.int64]:
        """The points of a shape that are hardly slower than the best and load less than others."""
        self.least = min(self.least, float(cycles.min()))
        near = np.flatnonzero(cycles <= NEAR * self.least)
        self.front = self.front.with_points(beats[near], cycles[near])
        near = near[np.lexsort((cycles[near], beats[near]))]
        before = np.minimum.accumulate(np.concatenate(([np.inf], cycles[near])))[:-1]
        return near[cycles[near] < ALMOST * before][-THRIFTY:]


def _beside(match: Match, tiles: Tiles, fixed: Mapping[str, int]) -> Iterator[Tiles]:
    """Tile sizes that make as many tiles as some do."""
    every: list[list[tuple[str, int]]] = []
    for loop, size in tiles:
        blocks = match.count[loop]
        most = (blocks - 1) // (-(-blocks // size) - 1) if size < blocks else blocks
        most = size if loop in fixed else most
        sizes = {size + (most - size) * n // TAIL_SIZES for n in range(TAIL_SIZES + 1)}
        every.append([(loop, k) for k in sorted(sizes)])
    yield from product(*every)


def _cuts(whole: Space, space: Space) -> list[str]:
    """What a space leaves out of the whole one, in words."""
    cuts: list[str] = []
    every = replace(space, restriction=replace(space.restriction, ends=False))
    if space.restriction.ends and space.shapes < every.shapes:
        cuts.append("some loads only outermost or innermost")
    names = (*space.spatial, *space.reduction)
    short = [n for n in names if len(space.sizes(n)) == 1 < len(whole.sizes(n))]
    if short:
        cuts.append("short reduction loops kept whole")
    if any(len(space.sizes(n)) < len(whole.sizes(n)) for n in names if n not in short):
        cuts.append("tile sizes of long loops thinned")
    if len(space.spatial) > space.restriction.ordered:
        cuts.append(f"orders of {space.restriction.ordered} loops only")
    return cuts


def _tiling(shape: Shape, slots: dict[str, NDArray[np.int64]], i: int) -> Tiling:
    def at(values: NDArray[np.int64]) -> int:
        return int(values[i] if len(values) > 1 else values[0])

    tiles = {n: at(v) for n, v in shape.grid.items()}
    large = [n for n in shape.loops if n not in shape.match.count]
    return Tiling(
        shape.match,
        tuple((n, size) for n, size in tiles.items() if n not in large),
        tuple(n for n in shape.loops[: shape.spatial] if n not in large),
        tuple(
            (n, active_depth(shape.match, tiles, shape.loops, d) + shape.in_place(n))
            for n, d in shape.placement.items()
        ),
        tuple((n, at(v)) for n, v in slots.items()),
        tuple((inner_name(n), tiles[n]) for n in large),
        shape.added,
    )
