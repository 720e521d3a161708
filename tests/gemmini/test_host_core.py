"""What the host core retires for the emitted C, against what the spec says that it takes."""

from __future__ import annotations

from functools import cache

import pytest

from tests.gemmini.emitted import Case, case, chip, compiled
from tests.gemmini.host_core import Retired, can_count, retired
from tests.sampling import WHOLE

pytestmark = pytest.mark.skipif(not can_count(), reason="no RISC-V compiler, or no emulator")

KERNELS = (
    case("gemm_unbiased", M=64, N=128, K=128),
    case("conv2d_scaled", H=14, W=14, C=32, O=32),
)
"""Smaller than those of `benchmarks/gemmini.py`, which retire 5.9 for a macro too."""


@cache
def _count(which: Case) -> Retired:
    return retired(compiled(which, WHOLE).source)


def test_cycles_of_an_instruction_are_what_the_emitted_c_retires() -> None:
    issue = chip().issue
    assert issue is not None
    counts = [_count(which) for which in KERNELS]
    mean = sum(c.issuing for c in counts) / sum(c.macros for c in counts)
    assert issue.cycles == round(mean), [round(c.per_macro, 2) for c in counts]


def test_every_macro_is_counted_and_what_is_packed_apart() -> None:
    """4 x 8 x 8 products of two macros each, and moves; nothing of them is packed."""
    product, padded = (_count(which) for which in KERNELS)
    assert 512 < product.macros < 1.2 * 512
    assert product.packing < 100
    # Each of the padded image's elements is written and copied, several a time.
    assert padded.packing > 16 * 16 * 32
