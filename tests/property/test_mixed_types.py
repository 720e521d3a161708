"""Random workloads over every mixture of data types: the simulator and C, as users compile it, give
the reference's numbers."""

from __future__ import annotations

import pytest

import hwgen
from hwgen.model.c_compiler import build_in_turn
from hwgen.model.compiled import have_compiler
from hwgen.pipeline import compile_workload
from hwgen.spec.load import parse_workload
from hwgen.verify.data import STYLES, draw_inputs
from hwgen.verify.examine import examine
from tests.drawn_values import mixed_workload
from tests.sampling import QUICK, examples, tiered

CHIPS = ("cpu_generic", "x86_avx2", "gemmini")
"""Two processors and a host core."""
FOUND = (42,)
"""Seeds that found something once."""


def run(seed: int, chip: str) -> None:
    workload = parse_workload(mixed_workload(seed), file=f"mixed_{seed}.yaml")
    kernel = compile_workload(workload, hwgen.load_hardware(chip), QUICK)
    inputs = draw_inputs(workload, seed, STYLES[seed % len(STYLES)])
    examine(kernel, inputs)
    if have_compiler():
        examine(kernel, inputs, "c", build_in_turn(seed))


@pytest.mark.parametrize("chip", tiered(CHIPS, CHIPS[:1]))
def test_mixed_types_are_right(chip: str) -> None:
    for seed in sorted({*range(examples(25)), *FOUND}):
        try:
            run(seed, chip)
        except Exception as error:
            raise AssertionError(f"{chip}, mixed_workload({seed}): {error}") from error
