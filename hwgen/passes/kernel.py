"""A compiled kernel, whatever made its schedule: a program, its C, its cycles."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING

from hwgen.codegen.emit_c import emit, packing_cost
from hwgen.codegen.layout import BufferLayout
from hwgen.codegen.lower.literals import with_literals
from hwgen.codegen.lower.program import Lowered
from hwgen.codegen.program import Program
from hwgen.codegen.source import CSource
from hwgen.errors import HwgenError
from hwgen.model.arithmetic import arithmetic
from hwgen.model.bound import Bound, least_bound, lower_bound
from hwgen.model.columns import Energy, intrinsic_iterations, moved_bytes, program_energy
from hwgen.model.timing import TimingResult, estimate_cycles
from hwgen.model.turns import PROCESSOR
from hwgen.passes.account import Account
from hwgen.passes.start import Start
from hwgen.polyhedral import isl
from hwgen.polyhedral.dependences import Dependences, dependences
from hwgen.polyhedral.match.explain import Explanation, explain
from hwgen.polyhedral.match.matching import Match
from hwgen.polyhedral.match.select import every_match
from hwgen.polyhedral.schedule.schedule import Schedule
from hwgen.polyhedral.scop import Scop, views_of
from hwgen.polyhedral.search.tiling import Tiling
from hwgen.spec.hardware import HardwareSpec
from hwgen.spec.shown import Brief, assigned, clock_text, rate_text, seconds_text
from hwgen.spec.workload import Workload

if TYPE_CHECKING:
    from hwgen.model.formulas import Cost
    from hwgen.polyhedral.tree.cost import NestCost

REFUSALS = ("H3", "H4", "H5", "H6")
"""Beginnings of the codes of what units cannot run, or not within the limits of the chip."""

_NOTHING = "the units compute nothing, the processor everything"
_NO_CALLS = "no block has a call (tensorize)"


OF_PHASES = ("scop", "dependences", "match")
"""Stages that each phase has by itself, where there was a search."""

_OF_PROGRAM = ("_with_literals", "timing", "_offchip_bytes", "energies", "packing", "source")
"""What is known of a kernel however it was found."""


@dataclass(frozen=True, repr=False)
class Kernel(Brief):
    """A kernel for one workload on one chip: its schedule, what that was lowered to, and how it was
    found."""

    workload: Workload
    hardware: HardwareSpec
    schedule: Schedule
    lowering: Lowered
    account: Account = field(default_factory=Account)

    def with_account(self, account: Account) -> Kernel:
        """The same, found in another way."""
        made = replace(self, account=account)
        vars(made).update({n: v for n, v in vars(self).items() if n in _OF_PROGRAM})
        return made

    @property
    def start(self) -> Start:
        """The edits that a search began from, which found it."""
        assert self.account.start is not None
        return self.account.start

    @property
    def scop(self) -> Scop:
        """The form that was searched; of several phases that of the longest."""
        assert self.account.scop is not None
        return self.account.scop

    @property
    def tiling(self) -> Tiling:
        """The tiling that a search chose; of several phases that of the longest."""
        assert self.account.chosen is not None
        return self.account.chosen.tiling

    @property
    def match(self) -> Match:
        """The match of the tiling."""
        return self.tiling.match

    @property
    def unseen(self) -> float:
        """Estimated cycles of caches, which its timing does not see."""
        return self.account.chosen.unseen if self.account.chosen is not None else 0.0

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
        """Cycles below which no kernel of the workload on this chip gets; without a search for one,
        and of phases, no schedule of these intrinsics."""
        if not self.account.ways:
            return lower_bound(self.program, self.hardware)
        with isl.bounded():
            covers = (every_match(scop, self.hardware) for scop in self.account.ways)
            return least_bound(self.program, self.hardware, chain.from_iterable(covers))

    @cached_property
    def dependences(self) -> Dependences:
        """Pairs of instances that stay in order, to be read: legality asks of trees."""
        with isl.bounded():
            return dependences(self.scop)

    @cached_property
    def explanations(self) -> list[Explanation]:
        """Of each statement that was matched, what serves it and what does not, and why."""
        if self.account.phases:
            return [e for phase in self.account.phases for e in phase.explanations]
        with isl.bounded():
            return explain(self.scop, self.hardware, self.match)

    @cached_property
    def main_intrinsic(self) -> str:
        """The intrinsic that does most of the arithmetic."""
        if self.account.chosen is not None:
            return self.match.main_intrinsic

        found = intrinsic_iterations(self.program, self.hardware)
        every = self.hardware.intrinsics
        names = [i.name for i in every if found[i.name] and not self.hardware.offchip_operand(i)]
        most = max(names, key=lambda n: found[n], default="")
        return " + ".join(filter(None, [most, PROCESSOR if self.program.codes else ""]))

    @cached_property
    def cost(self) -> NestCost:
        """Modelled cycles and traffic of a processor alone, block by block."""
        from hwgen.polyhedral.tree.cost import estimate_nest

        (code,) = self.lowering.program.codes
        return estimate_nest(self.schedule.resolved, self.schedule.homes, self.hardware, code.bound)

    @property
    def script(self) -> str:
        """The primitives that make its schedule."""
        return self.schedule.trace()

    def artefacts(self) -> dict[str, Callable[[], object]]:
        """What can be shown of it, by stage."""
        absent = {"layout", "allocate", "cost", "model"} if self.nest else {"state"}
        absent |= {*OF_PHASES} if not self.parts else set()
        every: dict[str, Callable[[], object]] = {
            "scop": lambda: self.scop,
            "dependences": lambda: self.dependences,
            "match": lambda: self.match,
            "state": lambda: Schedule(self.workload, self.hardware),
            "schedule": lambda: "\n".join([*self.account.told(self), str(self.schedule)]),
            "layout": lambda: "\n".join(map(str, self.layouts.values())),
            "allocate": lambda: "\n".join(f"{b.place} {b.name}" for b in self.program.buffers),
            "lower": lambda: "\n".join([str(self.program), *self.account.notes]),
            "cost": self.cost_text,
            "emit": lambda: self.source.c,
            "model": lambda: self.source.model,
        }
        return {name: made for name, made in every.items() if name not in absent}

    def stage(self, name: str) -> str:
        """The artefact of a stage as text; of every phase where each has its own.

        Raises:
            HwgenError: H007 where there is no such stage.
        """
        if self.account.phases and name in OF_PHASES:
            phases = enumerate(self.account.phases)
            return "\n\n".join(f"phase {n}\n{phase.stage(name)}" for n, phase in phases)
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
        searched = [s for part in self.parts for s in part.scop.statements]
        moved = () if self.nest else views_of(self.workload)
        written = (s for s in self.workload.statements if s.target.tensor not in moved)
        return arithmetic(searched or written)

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
    def parts(self) -> tuple[Kernel, ...]:
        """Its phases, each as if it were a kernel, where it was searched for phase by phase; itself
        where there is one."""
        return self.account.phases or ((self,) if self.account.chosen is not None else ())

    @property
    def nest(self) -> bool:
        """Whether it is of a chip that is a processor alone: loops, without units."""
        return not self.hardware.units

    @property
    def on_processor_alone(self) -> bool:
        """Whether the units of a chip that has some compute nothing of it."""
        return bool(self.hardware.units) and not self.lowering.parts

    @property
    def notes(self) -> tuple[str, ...]:
        """What is not as its users might expect: what a processor does beside units, and what is
        moved though it need not be."""
        if self.nest:
            return self.account.notes
        fallen = self.account.fallen
        why = _NO_CALLS if fallen is None else f"{fallen.code} {fallen.message}"
        found = [f"{_NOTHING}: {why}"] if self.on_processor_alone else []
        found += [
            f"the processor computes {code.name}: {code.cycles:,} cycles, "
            f"{code.memory_bytes:,} bytes of memory"
            for code in self.program.codes
            if not code.once
        ]
        if self.packing:
            tensors = ", ".join(sorted(self.packing))
            count = round(sum(self.packing.values()))
            found.append(
                f"the host packs {tensors} in {count:,} instructions, not included in the cycles"
            )
        return (*found, *map(str, self.account.spills))

    @cached_property
    def packing(self) -> Mapping[str, float]:
        """Instructions in which the host packs or unpacks images off chip, by tensor, in each call;
        none where the chip's spec does not say what its code retires. No cycles of the kernel."""
        return packing_cost(self.program, self.hardware, self.workload)

    @property
    def ended_by(self) -> tuple[str, ...]:
        """What ended its search before that had looked at all that it meant to."""
        return self.account.search.ended_by

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
