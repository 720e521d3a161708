"""The compiler for chips with a processor, on one page: a workload and a chip in, a file out.

A schedule (a user's script, completed automatically unless told not to) becomes a program of loops
over flat buffers, and the program text. The automatic scheduler has no powers of its own: `script`
replays the whole schedule.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

from hwgen.autoschedule import DEFAULTS, Options, SearchReport, autoschedule
from hwgen.codegen.c_names import kernel_name
from hwgen.codegen.instances.nests import check_nest_instances
from hwgen.codegen.lower.program import Lowered
from hwgen.codegen.nodes import Code
from hwgen.codegen.processor.lower import lower_nest, lowered_nest
from hwgen.codegen.processor.races import check
from hwgen.codegen.program import Program
from hwgen.compiled import Compiled
from hwgen.errors import HwgenError
from hwgen.model.bound import Bound, lower_bound
from hwgen.model.timing import TimingResult, estimate_cycles
from hwgen.model.turns import PROCESSOR
from hwgen.polyhedral.tree.cost import NestCost, estimate_nest, nest_bound
from hwgen.schedule import Schedule
from hwgen.script_refit import exceeds
from hwgen.spec.hardware import HardwareSpec
from hwgen.spec.processor import Processor
from hwgen.spec.workload import Statement, Workload

CANNOT_BE_LOWERED = ("H51", "H62")
"""Storage, and nests, that a legal schedule may have and a processor may not."""
NEST_STAGES = ("state", "schedule", "script", "lower", "emit")
"""What `NestCompilation.stage` can show, in order."""


@dataclass(frozen=True, repr=False)
class NestCompilation(Compiled):
    """Every artefact of one compilation, in pipeline order. `report`: None where the schedule was
    taken as the script left it; `cost`: modelled cycles and traffic, block by block. `unproved`:
    blocks that are not proved to execute what the tree intends, and why; none but of forms that the
    proof does not know."""

    initial: str
    schedule: Schedule
    report: SearchReport | None
    cost: NestCost
    lowered: Lowered
    unproved: tuple[str, ...] = ()

    @property
    def program(self) -> Program:
        return self.lowered.program

    @property
    def lowering(self) -> Lowered:
        return self.lowered

    @cached_property
    def timing(self) -> TimingResult:
        return estimate_cycles(self.program, self.hardware)

    @cached_property
    def bound(self) -> Bound:
        return lower_bound(self.program, self.hardware)

    @cached_property
    def statements(self) -> tuple[Statement, ...]:
        return self.workload.statements

    @cached_property
    def main_intrinsic(self) -> str:
        return PROCESSOR

    @property
    def notes(self) -> tuple[str, ...]:
        return tuple(f"not proved to execute its tree: {u}" for u in self.unproved)

    @property
    def script(self) -> str:
        """The edits that lead to this schedule, as a script."""
        return self.schedule.trace()

    def stage(self, name: str) -> str:
        """The artefact of a stage as text.

        Raises:
            HwgenError: H007 where there is no such stage.
        """
        artefacts: dict[str, Callable[[], object]] = {
            "state": lambda: self.initial,
            "schedule": lambda: f"{self.report}\n{self.schedule}" if self.report else self.schedule,
            "script": lambda: self.script,
            "lower": lambda: "\n".join([str(self.program), *self.notes]),
            "emit": lambda: self.source.c,
        }
        if name not in artefacts:
            raise HwgenError(
                "H007",
                f"a chip with a processor has no stage {name}",
                field="--stage",
                found=name,
                allowed=", ".join(NEST_STAGES),
                repair="name one of these stages",
            )
        return str(artefacts[name]())


def compile_nest(
    workload: Workload,
    hardware: HardwareSpec,
    script: str | None = None,
    auto: bool = True,
    file: str = "script",
    options: Options = DEFAULTS,
) -> NestCompilation:
    """Compile a workload for a chip with a processor.

    Args:
        workload: what to compute.
        hardware: the chip.
        script: edits that come first, as `Schedule.trace` writes them; `file` is its name.
        auto: whether the schedule is completed automatically.
        options: of the automatic scheduler.

    Raises:
        HwgenError: H410 a workload that cannot be scheduled; H418 and what the primitives raise for
            a script; H51x storage that does not fit; H62x a nest that cannot be lowered; H747,
            H757 a program that is wrong.
    """
    machine = _processor(hardware)
    schedule = Schedule(workload, hardware)
    initial = str(schedule)
    bound = nest_bound(schedule.state, machine)
    if script is not None:
        schedule.replay(script, file)
    given = len(schedule.trace().splitlines())
    report = autoschedule(schedule, options) if auto else None
    while True:
        try:
            code, placing = lowered_nest(schedule.resolved, schedule.homes, hardware)
            break
        except HwgenError as error:
            if not error.code.startswith(CANNOT_BE_LOWERED):
                raise
            # What the automatic part asked for does not fit after all: take its last edit back.
            if report is None or len(schedule.trace().splitlines()) <= given:
                if error.code == "H513" and script is not None:
                    raise exceeds(schedule, script, file, error, _lowered) from None
                raise
            schedule.undo()
            undone = "edits at the end were taken back: their kernel cannot be lowered"
            report = replace(report, notes=(undone,))
    check(code, hardware)
    unproved = check_nest_instances(code, placing)
    cost = estimate_nest(schedule.resolved, hardware, bound)
    code = replace(code, cycles=cost.cycles, bound=bound, memory_bytes=cost.memory_bytes)
    program = Program(
        name=kernel_name(workload, hardware),
        hardware=hardware.name,
        workload=workload.name,
        inputs=code.inputs,
        outputs=code.outputs,
        body=(code,),
    )
    lowered = Lowered((), program, (placing,))
    made = NestCompilation(workload, hardware, initial, schedule, report, cost, lowered)
    return replace(made, unproved=unproved)


def _processor(hardware: HardwareSpec) -> Processor:
    if hardware.processor is None or hardware.units:
        raise HwgenError(
            "H621",
            f"{hardware.name} has {'units' if hardware.units else 'no processor'}",
            location=hardware.location,
            found="units with intrinsics",
            allowed="chips that are a processor alone",
            repair="hwgen.build(workload, hardware) takes chips of every kind",
        )
    return hardware.processor


def _lowered(schedule: Schedule) -> Code:
    return lower_nest(schedule.resolved, schedule.homes, schedule.hardware)
