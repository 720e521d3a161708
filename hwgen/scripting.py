"""Scripts of chips with units: written from a compilation, compiled as they are, or completed."""

from __future__ import annotations

from collections.abc import Iterator

from hwgen.pipeline import Compilation, compile_kernel
from hwgen.polyhedral import isl
from hwgen.polyhedral.matching import Match, ranked_matches
from hwgen.polyhedral.scop import Scop, build_scop
from hwgen.polyhedral.search import Candidate
from hwgen.polyhedral.selection import select
from hwgen.polyhedral.tiling import Tiling
from hwgen.schedule import Schedule
from hwgen.spec.hardware import HardwareSpec
from hwgen.spec.workload import Workload
from hwgen.tiling_lift import lift
from hwgen.tiling_script import apply_tiling


def script_of(compilation: Compilation) -> str:
    """The primitives that make a compilation's schedule.

    Raises:
        HwgenError: H419 where primitives cannot say it.
    """
    schedule = Schedule(compilation.workload, compilation.hardware)
    apply_tiling(schedule, compilation.scop, compilation.schedule.tiling)
    return schedule.trace()


def compile_script(
    workload: Workload, hardware: HardwareSpec, script: str, file: str = "script"
) -> Compilation:
    """Compile the schedule that a script makes, as it is.

    Raises:
        HwgenError: H418 a line that is no edit, H411 to H417 an edit that is refused, H420 where
            the chip's calls cannot run the schedule; whatever `compile_kernel` raises.
    """
    schedule = Schedule(workload, hardware).replay(script, file)
    with isl.bounded():
        scop = build_scop(workload)
        tiling = lift(schedule, scop, every_match(scop, hardware))
    return compile_kernel(workload, hardware, schedule=_candidate(tiling))


def every_match(scop: Scop, hardware: HardwareSpec) -> Iterator[Match]:
    """Every way to run a workload, the best first."""
    for group in ranked_matches(scop, select(scop, hardware)):
        yield from group


def _candidate(tiling: Tiling) -> Candidate:
    return Candidate(tiling, 0, 0)
