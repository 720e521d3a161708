"""Scripts of chips with units, compiled as they are."""

from __future__ import annotations

from hwgen.errors import HwgenError, Location
from hwgen.passes.kernel import Kernel
from hwgen.passes.script_refit import exceeds
from hwgen.passes.trees import compile_tree
from hwgen.polyhedral.schedule.schedule import Schedule
from hwgen.spec.hardware import HardwareSpec
from hwgen.spec.workload import Workload


def compile_script(
    workload: Workload, hardware: HardwareSpec, script: str, file: str = "script"
) -> Kernel:
    """Compile the schedule that a script makes, as it is.

    Raises:
        HwgenError: H418 a line that is no edit, H411 to H417 an edit that is refused; what
            `compile_tree` raises, H502 with the nearest lines that fit.
    """
    return _compile(Schedule(workload, hardware).replay(script, file), script, file)


def compile_schedule(schedule: Schedule) -> Kernel:
    """Compile a schedule for a chip with units, as it is. (`compile_nest` is for processors.)

    Raises:
        HwgenError: as `compile_script`.
    """
    return _compile(schedule, schedule.trace(), "")


def _compile(schedule: Schedule, script: str, file: str) -> Kernel:
    try:
        return compile_tree(schedule)
    except HwgenError as error:
        if error.code != "H502":
            raise _placed(error, schedule, file) from None
        raise exceeds(schedule, script, file, error) from None


def _placed(error: HwgenError, schedule: Schedule, file: str) -> HwgenError:
    """The error at the line that names the calls of the block that it is about, where it is about
    one."""
    name = error.diagnostic.field.removeprefix("blocks.")
    site = schedule.state.site.get(name)
    if not file or site is None or site.block.tensorized is None:
        return error
    called = site.block.tensorized.loop or name
    edits = schedule.edits()
    lines = [e.line for e in edits if e.primitive == "tensorize" and e.arguments[0] == called]
    return error.at(Location(file, lines[-1])) if lines else error
