"""What every compiled kernel has, whatever made its schedule: a program, its C, its cycles."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from hwgen.codegen.emit_c import emit, packing_cost
from hwgen.codegen.layout import BufferLayout
from hwgen.codegen.lower.literals import with_literals
from hwgen.codegen.lower.program import Lowered
from hwgen.codegen.program import Program
from hwgen.codegen.source import CSource
from hwgen.errors import HwgenError
from hwgen.model.arithmetic import arithmetic
from hwgen.model.bound import Bound, lower_bound
from hwgen.model.energy import Energy, program_energy
from hwgen.model.timing import TimingResult, estimate_cycles
from hwgen.model.traffic import moved_bytes
from hwgen.polyhedral import isl
from hwgen.spec.hardware import HardwareSpec
from hwgen.spec.shown import Brief, assigned, clock_text, rate_text, seconds_text
from hwgen.spec.workload import Statement, Workload

if TYPE_CHECKING:
    from hwgen.model.formulas import Cost
    from hwgen.passes.compilation import Compilation
    from hwgen.polyhedral.scop import ScopStatement


_NO_CALLS = "the units compute nothing, the processor everything: no block has a call (tensorize)"


@dataclass(frozen=True, repr=False)
class Compiled(Brief, ABC):
    """A kernel for one workload on one chip."""

    workload: Workload
    hardware: HardwareSpec

    @property
    @abstractmethod
    def lowering(self) -> Lowered:
        """The trees that the program was lowered from, and what was decided on the way."""

    @property
    def program(self) -> Program:
        """All that was decided."""
        return self._with_literals

    @cached_property
    def _with_literals(self) -> Program:
        return with_literals(self.lowering.program, self.hardware)

    @property
    def layouts(self) -> Mapping[str, BufferLayout]:
        """How each buffer is laid out, by its name."""
        return self.lowering.layouts

    @cached_property
    def timing(self) -> TimingResult:
        """Its modelled time, unit by unit."""
        return estimate_cycles(self.lowering.program, self.hardware)

    @cached_property
    def bound(self) -> Bound:
        """Cycles below which no schedule of these intrinsics can get."""
        return lower_bound(self.program, self.hardware)

    @cached_property
    @abstractmethod
    def statements(self) -> tuple[ScopStatement | Statement, ...]:
        """What it computes."""

    @cached_property
    @abstractmethod
    def main_intrinsic(self) -> str:
        """The intrinsic that does most of the arithmetic."""

    @property
    @abstractmethod
    def script(self) -> str:
        """The primitives that make its schedule."""

    def artefacts(self) -> dict[str, Callable[[], object]]:
        """What can be shown of it, by stage."""
        return {
            "layout": lambda: "\n".join(map(str, self.layouts.values())),
            "allocate": lambda: "\n".join(f"{b.place} {b.name}" for b in self.program.buffers),
            "lower": lambda: self.program,
            "cost": self.cost_text,
            "emit": lambda: self.source.c,
            "model": lambda: self.source.model,
        }

    def stage(self, name: str) -> str:
        """The artefact of a stage as text.

        Raises:
            HwgenError: H007 where there is no such stage.
        """
        found = {**self.artefacts(), "script": lambda: self.script}
        if name not in found:
            raise HwgenError(
                "H007",
                f"this kernel has no stage {name}",
                field="--stage",
                found=name,
                allowed=", ".join(found),
                repair="name one of the stages",
            )
        with isl.bounded():
            return str(found[name]())

    def brief(self) -> str:
        by = f" ({self.bound.resource})" if self.bound.resource else ""
        sizes = f", {assigned(self.workload.sizes)}" if self.workload.sizes else ""
        speed = f" ({self.speed})" if self.speed else ""
        figures = f"{self.cycles:,} cycles{speed}, lower bound {self.bound.cycles:,}{by}"
        figures += ", all on the processor" if self.on_processor_alone else ""
        return f"{self.workload.name} on {self.hardware.name}{sizes}: {figures}"

    @property
    def cycles(self) -> int:
        """Modelled cycles of the whole kernel."""
        return self.timing.cycles

    @cached_property
    def operations(self) -> int:
        """Arithmetic operations of the workload; a multiply-add is two."""
        return arithmetic(self.statements)

    @property
    def seconds(self) -> float | None:
        """The cycles by the chip's clock; None where its file has none."""
        clock = self.hardware.clock_hz
        return None if clock is None else self.cycles / clock

    @property
    def speed(self) -> str:
        """Seconds, the clock and operations per second, as text; "" without a clock."""
        if not self.seconds:
            return ""
        rate = rate_text(self.operations / self.seconds)
        return f"{seconds_text(self.seconds)} at {clock_text(self.hardware)}, {rate}"

    @property
    def offchip_bytes(self) -> int:
        """Bytes that calls move between the chip and its images, and a processor in its memory."""
        return self._offchip_bytes

    @cached_property
    def _offchip_bytes(self) -> int:
        return moved_bytes(self.lowering.program, self.hardware, self.workload)

    @property
    def onchip_bytes(self) -> int:
        """Bytes of the buffers on the chip, all their slots."""
        memory = self.hardware.memory
        buffers = self.lowering.program.buffers
        return sum(b.entries * memory[b.memory].entry_bytes for b in buffers)

    @property
    def energy(self) -> float:
        """Picojoules of its calls and their accesses, as far as the chip's file says."""
        return self.energies.picojoules

    @cached_property
    def energies(self) -> Energy:
        """The same, part by part."""
        return program_energy(self.lowering.program, self.hardware)

    @property
    def parts(self) -> tuple[Compilation, ...]:
        """Its phases, each as if it were a kernel, where it was searched for phase by phase."""
        return ()

    @property
    def on_processor_alone(self) -> bool:
        """Whether the units of a chip that has some compute nothing of it."""
        return bool(self.hardware.units) and not self.lowering.parts

    @property
    def notes(self) -> tuple[str, ...]:
        """What is not as its users might expect: what a processor does beside units, and what is
        moved though it need not be."""
        found = [_NO_CALLS] if self.on_processor_alone else []
        found += [
            f"the processor computes {code.name}: {code.cycles:,} cycles, "
            f"{code.memory_bytes:,} bytes of memory"
            for code in self.program.codes
        ]
        if self.packing:
            tensors = ", ".join(sorted(self.packing))
            count = round(sum(self.packing.values()))
            found.append(
                f"the host packs {tensors} in {count:,} instructions, not included in the cycles"
            )
        return tuple(found)

    @cached_property
    def packing(self) -> Mapping[str, float]:
        """Instructions in which the host packs or unpacks images off chip, by tensor, in each call;
        none where the chip's spec does not say what its code retires. No cycles of the kernel."""
        return packing_cost(self.program, self.hardware, self.workload)

    @property
    def ended_by(self) -> tuple[str, ...]:
        """What ended its search before that had looked at all that it meant to."""
        return ()

    @cached_property
    def source(self) -> CSource:
        return emit(self.program, self.hardware, self.workload)

    @cached_property
    def formulas(self) -> Cost:
        """Cycles by unit and bytes by tensor as formulas over the trips of loops."""
        from hwgen.model.formulas import cost_of

        trees = [part.tree for part in self.lowering.parts]
        return cost_of(self.lowering.program, self.hardware, self.workload, trees, self.timing)

    def cost_text(self) -> str:
        """The same as text."""
        from hwgen.model.cost_text import cost_text

        return cost_text(self.formulas)

    @property
    def files(self) -> dict[str, str]:
        """The kernel's files by name."""
        return self.source.files
