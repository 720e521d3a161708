"""The compiler for chips with a processor, on one page: a workload and a chip in, a file out.

A schedule (a user's script, completed automatically unless told not to) becomes a program of loops
over flat buffers, and the program text. The automatic scheduler has no powers of its own: `script`
replays the whole schedule.
"""

from __future__ import annotations

from dataclasses import replace

from hwgen.autoschedule.options import DEFAULTS, Options
from hwgen.errors import HwgenError, Tolerating
from hwgen.passes.account import Account
from hwgen.passes.kernel import Kernel
from hwgen.passes.script_refit import exceeds
from hwgen.passes.trees import compile_tree
from hwgen.polyhedral.schedule.schedule import Schedule
from hwgen.spec.hardware import HardwareSpec
from hwgen.spec.workload import Workload

CANNOT_BE_LOWERED = ("H51", "H62")
"""Storage, and nests, that a legal schedule may have and a processor may not."""


def compile_nest(
    workload: Workload,
    hardware: HardwareSpec,
    script: str | None = None,
    auto: bool = True,
    file: str = "script",
    options: Options = DEFAULTS,
) -> Kernel:
    """Compile a workload for a chip with a processor.

    Args:
        workload: what to compute.
        hardware: the chip.
        script: edits that come first, as `Schedule.trace` writes them; `file` is its name.
        auto: whether the schedule is completed automatically.
        options: of the automatic scheduler.

    Raises:
        HwgenError: H222, H225 elements that no statement writes; H418 and what the primitives raise
            for a script; H51x storage that does not fit; H62x a nest that cannot be lowered; H747,
            H757 a program that is wrong.
    """
    from hwgen.autoschedule.search import autoschedule
    from hwgen.codegen.instances.nests import check_nest_instances
    from hwgen.codegen.processor.races import check

    _check_processor(hardware)
    schedule = Schedule(workload, hardware)
    if script is not None:
        schedule.replay(script, file)
    given, plain = len(schedule.edits()), schedule.copy()
    report = autoschedule(schedule, options) if auto else None
    if report is not None and given and _is_faster(plain, schedule):
        added = "the script as it is: nothing that was added is modelled to be faster"
        schedule, report = plain, replace(report, choices=(), notes=(added,))
    while True:
        try:
            made = compile_tree(schedule)
            break
        except HwgenError as error:
            if not error.code.startswith(CANNOT_BE_LOWERED):
                raise
            # What the automatic part asked for does not fit after all: take its last edit back.
            if report is None or len(schedule.edits()) <= given:
                if error.code == "H513" and script is not None:
                    raise exceeds(schedule, script, file, error) from None
                raise
            schedule.undo()
            undone = "edits at the end were taken back: their kernel cannot be lowered"
            report = replace(report, notes=(undone,))
    (code,), (placing,) = made.lowering.program.codes, made.lowering.codes
    check(code, hardware)
    unproved = check_nest_instances(code, placing)
    notes = tuple(f"not proved to execute its tree: {u}" for u in unproved)
    return made.with_account(Account(report=report, notes=notes))


def _is_faster(plain: Schedule, completed: Schedule) -> bool:
    """Whether a schedule that can be lowered is modelled to be faster than what was made of it."""
    from hwgen.polyhedral.tree.cost import estimate_nest

    before, after = (
        estimate_nest(s.resolved, s.homes, s.hardware).cycles for s in (plain, completed)
    )
    if before < after:
        with Tolerating(CANNOT_BE_LOWERED):
            compile_tree(plain)
            return True
    return False


def _check_processor(hardware: HardwareSpec) -> None:
    if hardware.processor is None or hardware.units:
        raise HwgenError(
            "H621",
            f"{hardware.name} has {'units' if hardware.units else 'no processor'}",
            location=hardware.location,
            found="units with intrinsics",
            allowed="chips that are a processor alone",
            repair="hwgen.build(workload, hardware) takes chips of every kind",
        )
