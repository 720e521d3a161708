"""One kernel with every artefact that led to it, and the last steps of making it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod

from hwgen.codegen.allocation import Allocation, allocate
from hwgen.codegen.image_layout import ImageLayout, image_layouts
from hwgen.codegen.layout import BufferLayout, buffer_layouts
from hwgen.codegen.lowering import lower
from hwgen.codegen.padding import padded
from hwgen.codegen.program import KernelProgram
from hwgen.codegen.reach import check_reach
from hwgen.codegen.short_program import ShortProgram
from hwgen.codegen.sites import Site, build_sites
from hwgen.codegen.synchronisation import synchronise
from hwgen.compiled import Compiled
from hwgen.errors import HwgenError
from hwgen.model.bound import Bound, least_bound, lower_bound
from hwgen.model.timing import TimingResult, estimate_cycles
from hwgen.model.traffic import off_chip_traffic
from hwgen.polyhedral import isl
from hwgen.polyhedral.dependences import Dependences
from hwgen.polyhedral.explain import Explanation, explain
from hwgen.polyhedral.matching import Match
from hwgen.polyhedral.schedule import ScheduleTree, build_schedule
from hwgen.polyhedral.scop import Scop, ScopStatement
from hwgen.polyhedral.search import Candidate, SearchResult
from hwgen.polyhedral.select import every_match
from hwgen.polyhedral.tiling import Tiling
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


@dataclass(frozen=True, slots=True)
class Part:
    """One phase of a kernel: its tiling, and how its tensors and buffers are laid out."""

    tiling: Tiling
    images: Mapping[str, ImageLayout]
    layouts: Mapping[str, BufferLayout]


@dataclass(frozen=True)
class Kernel:
    """One schedule carried through to a program, with its modelled cycles."""

    schedule: ScheduleTree
    images: dict[str, ImageLayout]
    layouts: dict[str, BufferLayout]
    allocation: Allocation
    program: KernelProgram
    timing: TimingResult
    offchip_bytes: int = 0
    """Bytes that all calls move between the chip and its images."""

    @property
    def cycles(self) -> int:
        """Modelled cycles of the whole kernel."""
        return self.timing.cycles


@dataclass(frozen=True)
class Compilation(Compiled):
    """Every artefact of one compilation, in pipeline order. `alone`: not a phase that has something
    in common with others, nor several phases."""

    scop: Scop
    dependences: Dependences
    matches: tuple[Match, ...]
    search: SearchResult
    kernel: Kernel
    alone: bool = True

    @property
    def parts(self) -> tuple[Compilation, ...]:
        """Its phases, each as if it were a kernel; itself where there is one."""
        return (self,)

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

    @cached_property
    def bound(self) -> Bound:
        """The cycles below which no kernel of the workload on this chip can get; of a phase, and of
        several together, no schedule of these intrinsics."""
        if not self.alone:
            return lower_bound(self.program, self.hardware)
        with isl.bounded():
            return least_bound(self.program, self.hardware, every_match(self.scop, self.hardware))

    @property
    def bounded(self) -> Compilation:
        """The same with the bound told to the search."""
        return replace(self, search=replace(self.search, bound=self.bound.cycles))

    @cached_property
    def explanations(self) -> list[Explanation]:
        with isl.bounded():
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
        with isl.bounded():
            return str(artefacts[name]())


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
    part = Part(tiling, images, buffer_layouts(tiling, images))
    return assemble(workload, hardware, [part], tree)


def build_padded(
    workload: Workload,
    hardware: HardwareSpec,
    scop: Scop,
    order: Dependences,
    candidate: Candidate,
) -> Kernel:
    """Carry one schedule through to a program, its buffers padded against bank conflicts where that
    is faster: rows that are apart may take more calls, or shorter bursts."""
    tiling = padded(scop, hardware, candidate.tiling)
    dense = build(workload, hardware, scop, order, candidate)
    if tiling is candidate.tiling:
        return dense
    try:
        apart = build(workload, hardware, scop, order, replace(candidate, tiling=tiling))
    except HwgenError as error:
        if error.code not in ("H502", "H616"):
            raise
        # There is room for the padding, but not where it is needed; or calls of fewer rows begin
        # further in an image than addresses go.
        return dense
    return apart if apart.cycles < dense.cycles else dense


def assemble(
    workload: Workload, hardware: HardwareSpec, parts: Sequence[Part], tree: ScheduleTree
) -> Kernel:
    """One program of all parts, one after the other; `tree` is the schedule that it shows.

    Raises:
        HwgenError: H502 where buffers do not fit, H503 where phases differ in a layout, H61x where
            the chip cannot order, address or hold the calls.
    """
    try:
        allocation = allocate(hardware, [(p.tiling, p.layouts) for p in parts])
    except HwgenError as error:
        tensor = workload.tensor.get(error.diagnostic.field.removeprefix("tensors."))
        raise error.at(tensor.location if tensor else workload.location) from None
    sites: list[Site] = []
    for phase, part in enumerate(parts):
        sites += build_sites(
            hardware, part.tiling, part.images, part.layouts, allocation, phase, len(sites)
        )
    by_name: dict[str, ImageLayout] = {}
    for layout in (i for part in parts for i in part.images.values()):
        # What one phase stores and others load is one image, as the store lays it out.
        by_name.setdefault(layout.image.name, layout)
    images = list(by_name.values())
    check_reach(workload, [layout.image for layout in images], sites)
    syncs = synchronise(hardware, ShortProgram(sites))
    program = lower(workload, hardware, images, allocation, sites, syncs)
    layouts = {
        allocation.buffer(name, phase): layout
        for phase, part in enumerate(parts)
        for name, layout in part.layouts.items()
    }
    timing = estimate_cycles(program, hardware)
    moved = sum(t.loaded + t.stored for t in off_chip_traffic(program, hardware, workload))
    return Kernel(tree, by_name, layouts, allocation, program, timing, moved)
