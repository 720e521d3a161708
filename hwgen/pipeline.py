"""The whole compiler on one page: a workload and a chip in, a checked kernel out."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import chain, islice

from hwgen.cache import ScheduleCache
from hwgen.codegen.allocation import Allocation, allocate
from hwgen.codegen.emit_c import CSource, emit
from hwgen.codegen.layout import BufferLayout, ImageLayout, buffer_layouts, image_layouts
from hwgen.codegen.lowering import lower
from hwgen.codegen.program import KernelProgram
from hwgen.codegen.sites import build_sites
from hwgen.codegen.synchronisation import synchronise
from hwgen.errors import HwgenError
from hwgen.model.bound import lower_bound
from hwgen.model.timing import TimingResult, estimate_cycles
from hwgen.polyhedral import isl
from hwgen.polyhedral.dependences import Dependences, dependences
from hwgen.polyhedral.explain import Explanation, explain
from hwgen.polyhedral.matching import Match, ranked_matches
from hwgen.polyhedral.schedule import ScheduleTree, build_schedule
from hwgen.polyhedral.scop import Scop, build_scop
from hwgen.polyhedral.search import TIME_LIMIT, Candidate, Progress, SearchResult, Watch, search
from hwgen.polyhedral.search_bound import least_work
from hwgen.polyhedral.search_choose import LIMITS, choose
from hwgen.polyhedral.selection import select
from hwgen.spec.hardware import HardwareSpec
from hwgen.spec.workload import Workload

STAGES = (
    "scop",
    "dependences",
    "match",
    "schedule",
    "layout",
    "allocate",
    "lower",
    "emit",
    "model",
)

ATTEMPTS = ((24, 2), (64, 2), (64, 1))
"""Candidates tried from the cheapest on, and slots of a buffer, until the hardware's limits allow
a kernel."""

MATCHES = 3
"""Groups of matches considered, the best first."""


@dataclass(frozen=True)
class SearchOptions:
    """`seconds`: when to end a search with what it has (never); `progress`: told of its steps;
    `cache`: where results are kept (nowhere)."""

    seconds: float | None = None
    progress: Progress | None = None
    cache: ScheduleCache | None = None


@dataclass(frozen=True)
class Kernel:
    """One schedule carried through to a program, with its modelled cycles."""

    schedule: ScheduleTree
    images: dict[str, ImageLayout]
    layouts: dict[str, BufferLayout]
    allocation: Allocation
    program: KernelProgram
    timing: TimingResult

    @property
    def cycles(self) -> int:
        """Modelled cycles of the whole kernel."""
        return self.timing.cycles


@dataclass(frozen=True)
class Compilation:
    """Every artefact of one compilation, in pipeline order."""

    workload: Workload
    hardware: HardwareSpec
    scop: Scop
    dependences: Dependences
    matches: tuple[Match, ...]
    search: SearchResult
    kernel: Kernel

    @property
    def match(self) -> Match:
        return self.kernel.schedule.tiling.match

    @property
    def program(self) -> KernelProgram:
        return self.kernel.program

    @property
    def schedule(self) -> ScheduleTree:
        return self.kernel.schedule

    @property
    def layouts(self) -> dict[str, BufferLayout]:
        return self.kernel.layouts

    @property
    def allocation(self) -> Allocation:
        return self.kernel.allocation

    @property
    def cycles(self) -> int:
        return self.kernel.cycles

    @cached_property
    def source(self) -> CSource:
        return emit(self.program, self.hardware, self.workload)

    @cached_property
    def explanations(self) -> list[Explanation]:
        return explain(self.scop, self.hardware, self.match)

    def stage(self, name: str) -> str:
        """The artefact of a stage as text.

        Raises:
            HwgenError: H007 where there is no such stage.
        """
        artefacts: dict[str, Callable[[], object]] = {
            "scop": lambda: self.scop,
            "dependences": lambda: self.dependences,
            "match": lambda: self.match,
            "schedule": lambda: f"{self.search}\n{self.schedule}",
            "layout": lambda: "\n".join(map(str, self.layouts.values())),
            "allocate": lambda: self.allocation,
            "lower": lambda: self.program,
            "emit": lambda: self.source.c,
            "model": lambda: self.source.model,
        }
        if name not in artefacts:
            raise HwgenError(
                "H007",
                f"no stage {name}",
                field="--stage",
                found=name,
                allowed=", ".join(STAGES),
                repair="name one of the stages",
            )
        return str(artefacts[name]())


def compile_kernel(
    workload: Workload,
    hardware: HardwareSpec,
    schedule: Candidate | None = None,
    options: SearchOptions = SearchOptions(),
) -> Compilation:
    """Compile a workload for a chip; `schedule` replaces the search's choice.

    Raises:
        HwgenError: H3xx where no intrinsics match, H4xx where no schedule exists or fits, or
            where looking for one takes too long.
    """
    with isl.bounded():
        scop = build_scop(workload)
        order = dependences(scop)
        parts = (workload, hardware, scop, order)
        if schedule is not None:
            kernel = build(*parts, schedule)
            given = SearchResult((schedule,))
            return Compilation(*parts, (schedule.tiling.match,), given, kernel)
        groups = islice(ranked_matches(scop, select(scop, hardware)), MATCHES)
        if options.cache is None:
            return _search(*parts, groups, options)[0]
        key = options.cache.key(workload, hardware)
        matches: list[list[Match]] = []
        known = options.cache.read(key)
        if known is not None:
            matches = list(islice(groups, known.group + 1))
            found = known.restore(hardware, matches)
            try:
                if found is not None:
                    kernel = build(*parts, found.candidates[0])
                    if kernel.cycles == found.cycles:
                        return Compilation(*parts, tuple(matches[-1]), found, kernel)
            except HwgenError as error:
                if not error.code.startswith(("H4", "H5", "H6")):
                    raise
        result, group = _search(*parts, chain(matches, groups), options)
        if not any(cut.startswith(TIME_LIMIT) for cut in result.search.cuts):
            position = result.matches.index(result.match)
            options.cache.write(key, group, position, result.search, result.schedule.tiling)
        return result


def _search(
    workload: Workload,
    hardware: HardwareSpec,
    scop: Scop,
    order: Dependences,
    groups: Iterable[list[Match]],
    options: SearchOptions,
) -> tuple[Compilation, int]:
    """The best kernel over all groups of matches, and its group's number."""
    simulated = partial(build, workload, hardware, scop, order)
    best: Kernel | None = None
    total = SearchResult((), matches=0)
    group: list[Match] = []
    chosen = 0
    refused: HwgenError | None = None
    watch = Watch(options.seconds, options.progress)
    for number, matches in enumerate(groups):
        good = [m for m in matches if best is None or least_work(hardware, m) < best.cycles]
        total += SearchResult((), matches=0, matches_too_slow=len(matches) - len(good))
        if best is not None and good and watch.expired:
            total += SearchResult((), matches=0, cuts=(watch.reason,))
            break
        for keep, slots in ATTEMPTS[: len(ATTEMPTS) if best is None else 1] if good else ():
            try:
                found = search(hardware, good, keep, slots, watch)
                kernel, found = choose(hardware, found, simulated, watch, best)
            except HwgenError as error:
                if error.code not in LIMITS:
                    raise
                refused = refused or error
                continue
            if kernel is best:
                total += found
            else:
                best, total, group, chosen = kernel, found + total, matches, number
            break
    if best is None:
        assert refused is not None
        raise refused
    bound = lower_bound(best.program, hardware).cycles
    total = replace(total, cycles=best.cycles, bound=bound)
    return Compilation(workload, hardware, scop, order, tuple(group), total, best), chosen


def build(
    workload: Workload,
    hardware: HardwareSpec,
    scop: Scop,
    order: Dependences,
    candidate: Candidate,
) -> Kernel:
    """Carry one schedule through to a program."""
    tiling = candidate.tiling
    tree = build_schedule(scop, tiling, order)
    images = image_layouts(scop, hardware, tiling.match)
    layouts = buffer_layouts(tiling)
    allocation = allocate(hardware, tiling.match.selection, layouts)
    sites = build_sites(hardware, tiling, images, layouts, allocation)
    tokens = synchronise(hardware, tiling.loops, sites)
    program = lower(workload, hardware, tiling, images, allocation, sites, tokens)
    timing = estimate_cycles(program, hardware)
    return Kernel(tree, images, layouts, allocation, program, timing)
