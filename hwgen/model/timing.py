"""Cycles of a program, at a cost that does not grow with its loops."""

from __future__ import annotations

from dataclasses import replace

from hwgen.codegen.program import Program
from hwgen.spec.hardware import HardwareSpec

from .bus import FOREVER
from .loop_runner import Zones
from .machine import Machine
from .scoreboard import cycle_costs
from .share import largest_share
from .stream import Stream
from .timing_result import TimingResult
from .turns import in_turn

FULL_OPERATIONS = 2048
"""Operations that `estimate_cycles` simulates with the chip's own queue capacities."""
LEAD_ENTRIES = 64
"""Queue capacity in the simulation of longer streams: fetch need not run further ahead."""
OPERATION_BUDGET = 20_000
"""Operations after which `estimate_cycles` accepts mean rates."""


def estimate_cycles(program: Program, hardware: HardwareSpec) -> TimingResult:
    """Cycles of a program, at a cost that does not grow with the trip counts of loops.

    Iterations are skipped where the state relative to now repeats and the code until there is
    the same; that changes nothing. Streams of more than `FULL_OPERATIONS` steps are simulated with
    queues of at most `LEAD_ENTRIES`, which matters where a unit is that far ahead of another.
    Past `OPERATION_BUDGET` steps, mean rates stand for iterations that do not exactly repeat, or
    repeat but for alignments and would take too long to do so, and `exact` is false.

    Raises:
        HwgenError: H761 on a deadlock, H763 and H764 on tokens that the chip cannot have.
    """
    if program.codes:
        return in_turn(program, lambda p: estimate_cycles(p, hardware))
    program = largest_share(program, hardware)
    full, long = (FOREVER, FULL_OPERATIONS, 0), (LEAD_ENTRIES, FOREVER, OPERATION_BUDGET)
    zones: Zones = {}
    for lead, limit, budget in (full, long):
        costs = cycle_costs(program, hardware)
        machine = Machine(hardware, costs, lead=lead)
        stream = Stream(
            program, hardware, costs, machine, skip=machine, budget=budget, limit=limit, zones=zones
        )
        stream.run()
        if not stream.truncated:
            whole = lead == FOREVER or not machine.waits_for_room
            return replace(machine.result(stream), exact=stream.exact and whole)
    raise AssertionError("the second run has no limit")
