"""Kernels of several phases: each found by itself, then run one after the other in one program.

Tensors that one phase leaves for another stay whole in a memory of the chip, and so do inputs that
several phases read: each byte crosses the bus once. Every phase is searched with what the others
hold meanwhile taken out of its memories.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from hwgen.codegen.image_layout import ImageLayout, image_layouts
from hwgen.codegen.layout import buffer_layouts
from hwgen.compilation import Compilation, Part, assemble
from hwgen.errors import HwgenError
from hwgen.model.bound import lower_bound
from hwgen.phase import SearchOptions, compile_phase
from hwgen.polyhedral.explain import Explanation
from hwgen.polyhedral.operations import Sharing
from hwgen.polyhedral.phases import Phase
from hwgen.polyhedral.scop import Scop
from hwgen.spec.expression import Access, walk
from hwgen.spec.hardware import HardwareSpec
from hwgen.spec.workload import Workload

OF_PHASES = ("scop", "dependences", "match", "schedule", "layout")
"""Stages that each phase has by itself."""


@dataclass(frozen=True)
class PhasedCompilation(Compilation):
    """A kernel of several phases. What only a phase has (scop, match, schedule) is that of the
    longest one; `phases` holds them all, as if each were a kernel."""

    phases: tuple[Compilation, ...] = ()

    @property
    def parts(self) -> tuple[Compilation, ...]:
        return self.phases

    @cached_property
    def explanations(self) -> list[Explanation]:
        return [e for phase in self.phases for e in phase.explanations]

    def stage(self, name: str) -> str:
        """The artefact of a stage as text; of every phase where each has its own.

        Raises:
            HwgenError: H007 where there is no such stage.
        """
        if name not in OF_PHASES:
            return super().stage(name)
        parts = (f"phase {n}\n{phase.stage(name)}" for n, phase in enumerate(self.phases))
        return "\n\n".join(parts)


@dataclass(frozen=True, slots=True)
class _Held:
    """A tensor that stays in a memory from phase `first` to phase `last`."""

    memory: str
    entries: int
    first: int
    last: int


def compile_phases(
    workload: Workload, hardware: HardwareSpec, phases: Sequence[Phase], options: SearchOptions
) -> PhasedCompilation:
    """Search every phase in turn, and join them.

    Raises:
        HwgenError: as `compile_kernel`; H408 where a phase would rearrange what another left.
    """
    held: dict[str, _Held] = {}
    last = _last_uses(phases)
    found: list[Compilation] = []
    for number, phase in enumerate(phases):
        memories = {n: h.memory for n, h in held.items()}
        sharing = sharing_of(phases, number, memories)
        taken = tuple(
            (n, h.memory, h.entries)
            for n, h in held.items()
            if h.last >= number and n not in inputs_of(phase)
        )
        compiled = _compiled(phase, hardware, options, sharing, taken)
        _check_views(compiled.scop, sharing)
        found.append(compiled)
        for storage in compiled.match.selection.storages:
            if storage.shape and storage.tensor not in held:
                entries = compiled.schedule.tiling.entries(storage.name)
                held[storage.tensor] = _Held(storage.memory, entries, number, last[storage.tensor])
    return join(workload, hardware, found)


def _compiled(
    phase: Phase,
    hardware: HardwareSpec,
    options: SearchOptions,
    sharing: Sharing,
    taken: Sequence[tuple[str, str, int]],
) -> Compilation:
    """The phase's kernel; where nothing fits beside the inputs kept for others, without these."""
    try:
        return compile_phase(phase.workload, hardware, options, sharing, taken)
    except HwgenError as error:
        if error.code != "H405" or not sharing.keeps:
            raise
        return compile_phase(phase.workload, hardware, options, replace(sharing, keeps=()), taken)


def inputs_of(phase: Phase) -> tuple[str, ...]:
    """Tensors that a phase reads from outside."""
    return tuple(t.name for t in phase.workload.inputs)


def sharing_of(phases: Sequence[Phase], number: int, held: Mapping[str, str]) -> Sharing:
    """What a phase shares with others, given the memories of what earlier ones hold."""
    phase, last = phases[number], _last_uses(phases)
    inputs = inputs_of(phase)
    return Sharing(
        tuple((n, held[n]) for n in inputs if n in held),
        phase.leaves,
        tuple(n for n in inputs if n not in held and (last[n] > number or _again(phase, n))),
    )


def _check_views(scop: Scop, sharing: Sharing) -> None:
    """What stays on the chip cannot be rearranged by the host."""
    taken = dict(sharing.takes)
    for view in scop.views:
        if view.source in taken:
            raise HwgenError(
                "H408",
                f"{view.tensor} rearranges {view.source}, which stays on the chip",
                location=scop.workload.location,
                field="compute",
                found=f"{view.tensor} is a view of {view.source}",
                allowed="views of inputs, which the host packs",
                repair=f"a workload for each phase, so that {view.source} is an input",
            )


def _again(phase: Phase, tensor: str) -> bool:
    """Whether statements of a phase read an input in more than one place."""
    reads = [
        node
        for s in phase.workload.statements
        for node in walk(s.value)
        if isinstance(node, Access) and node.tensor == tensor
    ]
    return len(reads) > 1


def _last_uses(phases: Sequence[Phase]) -> dict[str, int]:
    return {t.name: number for number, phase in enumerate(phases) for t in phase.workload.tensors}


def join(
    workload: Workload, hardware: HardwareSpec, found: Sequence[Compilation]
) -> PhasedCompilation:
    """One kernel of all phases."""
    parts: list[Part] = []
    for number, compiled in enumerate(found):
        images = _images(compiled, number)
        tiling = compiled.schedule.tiling
        parts.append(Part(tiling, images, buffer_layouts(tiling, images)))
    longest = max(found, key=lambda c: c.cycles)
    kernel = assemble(workload, hardware, parts, longest.schedule)
    search = sum((c.search for c in found[1:]), found[0].search)
    bound = lower_bound(kernel.program, hardware).cycles
    search = replace(search, cycles=kernel.cycles, bound=bound)
    return PhasedCompilation(
        workload,
        hardware,
        longest.scop,
        longest.dependences,
        tuple(m for c in found for m in c.matches),
        search,
        kernel,
        tuple(found),
    )


def _images(compilation: Compilation, phase: int) -> dict[str, ImageLayout]:
    """The phase's images under names of their own."""
    layouts = image_layouts(compilation.scop, compilation.hardware, compilation.match)
    return {
        key: replace(layout, image=replace(layout.image, name=f"p{phase}_{layout.image.name}"))
        for key, layout in layouts.items()
    }
