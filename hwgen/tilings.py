"""Tilings that are no trees yet, carried through to a program phase by phase.

What `compile_tree` does not lower (`docs/design/trees.md` names it) still comes this way.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from hwgen.codegen.allocation import Allocation, allocate
from hwgen.codegen.image_layout import ImageLayout, image_layouts
from hwgen.codegen.layout import BufferLayout, buffer_layouts
from hwgen.codegen.lowering import lower
from hwgen.codegen.program import KernelProgram
from hwgen.codegen.reach import check_reach
from hwgen.codegen.short_program import ShortProgram
from hwgen.codegen.sites import Site, build_sites
from hwgen.codegen.synchronisation import synchronise
from hwgen.codegen.temporaries import shared_image
from hwgen.errors import HwgenError
from hwgen.model.timing import TimingResult, estimate_cycles
from hwgen.polyhedral.dependences import dependences
from hwgen.polyhedral.schedule import ScheduleTree, build_schedule
from hwgen.polyhedral.scop import Scop
from hwgen.polyhedral.tiling import Tiling
from hwgen.spec.hardware import HardwareSpec
from hwgen.spec.workload import Workload


@dataclass(frozen=True, slots=True)
class Part:
    """One phase of a kernel: its tiling, and how its tensors and buffers are laid out."""

    tiling: Tiling
    images: Mapping[str, ImageLayout]
    layouts: Mapping[str, BufferLayout]


@dataclass(frozen=True)
class Tiled:
    """The program of one or several tilings."""

    workload: Workload
    hardware: HardwareSpec
    schedule: ScheduleTree
    images: dict[str, ImageLayout]
    layouts: dict[str, BufferLayout]
    allocation: Allocation
    program: KernelProgram

    @cached_property
    def timing(self) -> TimingResult:
        return estimate_cycles(self.program, self.hardware)

    def stage(self, name: str) -> str:
        """The artefact of a stage as text."""
        artefacts: dict[str, Callable[[], object]] = {
            "schedule": lambda: self.schedule,
            "layout": lambda: "\n".join(map(str, self.layouts.values())),
            "allocate": lambda: self.allocation,
        }
        return str(artefacts[name]())


def build_tiling(workload: Workload, hardware: HardwareSpec, scop: Scop, tiling: Tiling) -> Tiled:
    """The program of a tiling.

    Raises:
        HwgenError: as `assemble`.
    """
    tree = build_schedule(scop, tiling, dependences(scop))
    images = image_layouts(scop, hardware, tiling.match)
    part = Part(tiling, images, buffer_layouts(tiling, images))
    return assemble(workload, hardware, [part], tree)


def join_tilings(
    workload: Workload,
    hardware: HardwareSpec,
    found: Sequence[tuple[Scop, Tiling]],
    spilled: Sequence[str],
    longest: int,
) -> Tiled:
    """One program of all phases; `spilled`: what goes through off-chip memory between them.

    Raises:
        HwgenError: as `assemble`; H504 where phases store and load a tensor in different layouts.
    """
    images = [_images(*phase, hardware, number) for number, phase in enumerate(found)]
    for tensor in spilled:
        _share_image(workload, tensor, images)
    parts = [
        Part(tiling, mine, buffer_layouts(tiling, mine))
        for (_, tiling), mine in zip(found, images, strict=True)
    ]
    scop, tiling = found[longest]
    return assemble(workload, hardware, parts, build_schedule(scop, tiling, dependences(scop)))


def assemble(
    workload: Workload, hardware: HardwareSpec, parts: Sequence[Part], tree: ScheduleTree
) -> Tiled:
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
    return Tiled(workload, hardware, tree, by_name, layouts, allocation, program)


def _images(
    scop: Scop, tiling: Tiling, hardware: HardwareSpec, phase: int
) -> dict[str, ImageLayout]:
    """The phase's images under names of their own."""
    layouts = image_layouts(scop, hardware, tiling.match)
    return {
        key: replace(layout, image=replace(layout.image, name=f"p{phase}_{layout.image.name}"))
        for key, layout in layouts.items()
    }


def _share_image(workload: Workload, tensor: str, images: Sequence[dict[str, ImageLayout]]) -> None:
    """Let all phases use one image of a tensor, in place."""
    uses = [
        (layouts, key, layout)
        for layouts in images
        for key, layout in layouts.items()
        if layout.image.tensor == tensor
    ]
    (_, _, stored), *loads = uses
    shared = shared_image(workload.tensor[tensor], stored, [layout for _, _, layout in loads])
    for (layouts, key, _), layout in zip(uses, shared, strict=True):
        layouts[key] = layout
