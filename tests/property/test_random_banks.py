"""Random chips with banks: right kernels; ports are granted and counted as the rules say."""

from __future__ import annotations

from random import Random

import pytest

from hwgen.codegen.program import Program
from hwgen.errors import HwgenError
from hwgen.pipeline import compile_kernel
from hwgen.spec.hardware import HardwareSpec
from hwgen.spec.load import parse_hardware, parse_workload
from hwgen.spec.workload import Workload
from hwgen.verify.natural.draws import Pick, Tape
from tests.fuzz.chips.banks import draw_banks
from tests.fuzz.chips.draw import random_chip
from tests.fuzz.chips.suited import workload_for
from tests.property.oracle import judge
from tests.sampling import EVERYTHING
from tests.unit.timing.test_banks import agree
from tests.unit.timing.test_banks import judge as judge_ports

TRIES = 6
"""Chips drawn per test until one of them, with banks, can run its workload."""


def drawn(seed: int) -> tuple[HardwareSpec, Workload, Program] | None:
    """A chip, a workload and its kernel; None where one is refused or no memory has banks."""
    pick = Pick(Tape(Random(seed)).choose)
    spec = random_chip(pick)
    draw_banks(spec, pick)
    try:
        hardware = parse_hardware(spec)
        if not any(m.banks for m in hardware.memories):
            return None
        workload = parse_workload(workload_for(spec, pick.choose))
        return hardware, workload, compile_kernel(workload, hardware).program
    except HwgenError:
        return None


@pytest.mark.parametrize("seed", range(10 if EVERYTHING else 3))
def test_random_chips_with_banks(seed: int) -> None:
    for number in range(TRIES):
        found = drawn(1000 * number + seed)
        if found is not None:
            hardware, workload, program = found
            assert judge(workload, hardware) == ""
            judge_ports(program, hardware)
            agree(program, hardware)
            return
    pytest.skip("no chip with banks runs its workload")
