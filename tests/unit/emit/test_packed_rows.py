"""Packing copies whole rows where the tensor and its image have them alike."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from hwgen.model.compiled import have_compiler
from hwgen.passes.kernel import Kernel
from hwgen.pipeline import compile_kernel
from hwgen.spec.load import load_hardware, load_workload
from hwgen.verify.data import draw_inputs
from hwgen.verify.examine import examine
from tests.sampling import QUICK, tiered

ROOT = Path(__file__).resolve().parents[3]


def _compiled(**sizes: int) -> Kernel:
    workload = load_workload(ROOT / "workloads" / "conv2d_scaled.yaml", sizes)
    return compile_kernel(workload, load_hardware(ROOT / "hw_specs/gemmini.yaml"), options=QUICK)


def _fill(c: Kernel) -> str:
    found = re.search(r"_fill_xp_image\(.*?^\}", c.source.c, re.M | re.S)
    assert found is not None
    return found[0]


PACKED = [
    {"H": 5, "W": 7, "C": 16, "O": 16},
    {"H": 5, "W": 7, "C": 9, "O": 16, "P": 2, "R": 5},
    {"N": 2, "H": 4, "W": 6, "C": 16, "O": 5},
    {"H": 6, "W": 9, "C": 16, "O": 16, "S": 2},
    {"H": 6, "W": 1, "C": 17, "O": 16},
]


@pytest.mark.skipif(not have_compiler(), reason="no C compiler")
@pytest.mark.parametrize(
    "sizes",
    tiered(PACKED, PACKED[1::2]),
    ids=str,
)
def test_what_is_packed_in_rows_is_right(sizes: dict[str, int]) -> None:
    c = _compiled(**sizes)
    for seed in range(2):
        examine(c, draw_inputs(c.workload, seed), "c")


def test_a_padded_row_is_copied_at_once() -> None:
    """Between what stands on both sides of it; rows above and below are set at once."""
    text = _fill(_compiled(H=5, W=7, C=16, O=16))
    assert text.count("for (") == 1
    assert "memset(to, 0, 144 * sizeof *to);" in text
    assert "memset(to, 0, 16 * sizeof *to);" in text
    assert "memcpy(to + 16, &from[(p1 - 1) * 112], 112 * sizeof(int8_t));" in text
    assert "memset(to + 128, 0, 16 * sizeof *to);" in text
