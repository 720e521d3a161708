"""Every operation of a program simulated: what `estimate_cycles` must agree with."""

from __future__ import annotations

from hwgen.codegen.program import Program
from hwgen.model.machine import Machine
from hwgen.model.scoreboard import cycle_costs
from hwgen.model.share import largest_share
from hwgen.model.stream import Stream
from hwgen.model.timing_result import TimingResult
from hwgen.model.turns import in_turn
from hwgen.spec.hardware import HardwareSpec


def simulate_timing(
    program: Program, hardware: HardwareSpec, *, timeline: bool = False
) -> TimingResult:
    """Simulate every operation of a program.

    Raises:
        HwgenError: H761 on a deadlock, H763 and H764 on tokens that the chip cannot have.
    """
    if program.codes:
        return in_turn(program, lambda p: simulate_timing(p, hardware, timeline=timeline))
    program = largest_share(program, hardware)
    costs = cycle_costs(program, hardware)
    machine = Machine(hardware, costs, timeline=timeline)
    stream = Stream(program, hardware, costs, machine)
    stream.run()
    return machine.result(stream)
