"""The whole compiler on one page: a workload and a chip in, a checked kernel out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from itertools import islice

from hwgen.codegen.allocation import Allocation, allocate
from hwgen.codegen.emit_c import CSource, emit
from hwgen.codegen.layout import BufferLayout, ImageLayout, buffer_layouts, image_layouts
from hwgen.codegen.lowering import lower
from hwgen.codegen.program import KernelProgram
from hwgen.codegen.sites import build_sites
from hwgen.codegen.synchronisation import synchronise
from hwgen.errors import HwgenError
from hwgen.model.timing import TimingResult, estimate_cycles
from hwgen.polyhedral import isl
from hwgen.polyhedral.dependences import Dependences, dependences
from hwgen.polyhedral.explain import Explanation, explain
from hwgen.polyhedral.matching import Match, ranked_matches
from hwgen.polyhedral.schedule import ScheduleTree, build_schedule
from hwgen.polyhedral.scop import Scop, build_scop
from hwgen.polyhedral.search import Candidate, SearchResult, search
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

ATTEMPTS = ((8, 2), (64, 2), (64, 1))
"""Candidates tried from the cheapest on, and slots of a buffer, until the hardware's limits allow
a kernel."""

MATCHES = 3
"""Groups of matches tried, the best first, until the hardware's limits allow a kernel."""

LIMITS = ("H405", "H612", "H613")
"""Errors of one schedule that another may not have."""

SIMULATED = 4
"""Candidates whose cycles are simulated at most before the best is taken."""


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
    workload: Workload, hardware: HardwareSpec, schedule: Candidate | None = None
) -> Compilation:
    """Compile a workload for a chip; `schedule` replaces the search's choice.

    Raises:
        HwgenError: H3xx where no intrinsics match, H4xx where no schedule exists or fits, or
            where looking for one takes too long.
    """
    with isl.bounded():
        scop = build_scop(workload)
        order = dependences(scop)
        groups = ranked_matches(scop, select(scop, hardware))
        refused: HwgenError | None = None
        tries = ((group, *attempt) for group in islice(groups, MATCHES) for attempt in ATTEMPTS)
        for matches, keep, slots in tries:
            try:
                found = search(hardware, matches, keep, slots)
                chosen = (schedule,) if schedule is not None else found.candidates
                kernel = _best(workload, hardware, scop, order, chosen)
            except HwgenError as error:
                if error.code not in LIMITS or schedule is not None:
                    raise
                refused = refused or error
                continue
            return Compilation(workload, hardware, scop, order, tuple(matches), found, kernel)
        assert refused is not None
        raise refused


def _best(
    workload: Workload,
    hardware: HardwareSpec,
    scop: Scop,
    order: Dependences,
    candidates: tuple[Candidate, ...],
) -> Kernel:
    """The fastest when simulated; cheapest estimates come first, so they bound the rest."""
    best: Kernel | None = None
    refused: HwgenError | None = None
    simulated = 0
    for candidate in candidates:
        if best is not None and (best.cycles <= candidate.cycles or simulated == SIMULATED):
            break
        try:
            kernel = build(workload, hardware, scop, order, candidate)
        except HwgenError as error:
            if error.code not in LIMITS:
                raise
            refused = refused or error
            continue
        simulated += 1
        if best is None or kernel.cycles < best.cycles:
            best = kernel
    if best is None:
        assert refused is not None
        raise refused
    return best


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
