"""What the host core retires for the emitted C, against what the model says that it takes."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest

from hwgen.codegen.emit_c import emit
from tests.gemmini.emitted import Case, case, chip, compiled
from tests.gemmini.host_core import (
    Retired,
    can_count,
    can_read_loops,
    host_cycles,
    innermost,
    retired,
)
from tests.sampling import THOROUGH, WHOLE, tiered

counted = pytest.mark.skipif(not can_count(), reason="no RISC-V compiler, or no emulator")
read = pytest.mark.skipif(not can_read_loops(), reason="no compiler for x86-64, or no objdump")

KERNELS = (
    case("gemm_unbiased", M=64, N=128, K=128),
    case("conv2d_scaled", H=14, W=14, C=64, O=32),
)
"""Smaller than those of `benchmarks/gemmini.py`, which retire 2.5 to 3.7 for a macro."""
UNROLLED = (case("gemm_unbiased", M=128, N=128, K=128), KERNELS[1])
"""Whose innermost loops are worth unrolling."""
IN_PARTS = case("gemm_unbiased", M=192, N=512, K=128)
"""Whose addresses in the accumulators move with every loop: of 32 bits, which the core widens at
each macro, they make it 5.5."""
MOST = 4.05
"""Instructions of the host for a macro."""


@cache
def _count(which: Case) -> Retired:
    return retired(compiled(which, WHOLE).source)


@counted
@pytest.mark.parametrize("which", tiered([*KERNELS, IN_PARTS], [KERNELS[0], IN_PARTS]), ids=str)
def test_a_macro_takes_few_instructions(which: Case) -> None:
    assert _count(which).per_macro <= MOST


@read
@pytest.mark.parametrize("which", tiered(UNROLLED, UNROLLED[:1]), ids=str)
def test_innermost_loops_have_few_instructions_for_a_macro(which: Case) -> None:
    """As text, so on any such machine; and more where loops are not unrolled."""
    c = compiled(which, WHOLE)
    loops = innermost(c.source)
    assert sum(n for n, _ in loops) >= 8
    each = sum(n for _, n in loops) / sum(n for n, _ in loops)
    assert each <= MOST, loops
    issue = c.hardware.issue
    assert issue is not None
    rolled = replace(c.hardware, issue=replace(issue, unroll=None))
    loops = innermost(emit(c.program, rolled, c.workload))
    assert sum(n for _, n in loops) / sum(n for n, _ in loops) > each


@counted
@pytest.mark.parametrize("which", tiered([*KERNELS, IN_PARTS], [KERNELS[0], IN_PARTS]), ids=str)
def test_the_models_cycles_are_what_the_emitted_c_retires(which: Case) -> None:
    """Within a sixth: how a compiler allots registers is not modelled, nor are conditions. Of 32
    channels the convolution has loops of two iterations around few calls: a third more than is
    retired, as a compiler unrolls them."""
    modelled = host_cycles(compiled(which, WHOLE).program, chip())
    assert modelled == pytest.approx(_count(which).issuing, rel=1 / 6)


@THOROUGH
@counted
def test_every_macro_is_counted_and_what_is_packed_apart() -> None:
    """4 x 8 x 8 products of two macros each, and moves; nothing of them is packed."""
    product, padded = (_count(which) for which in KERNELS)
    assert 512 < product.macros < 1.2 * 512
    assert product.packing < 100
    # Each byte of the padded image is written once, in whole rows: at most 8 of them at a time.
    assert 16 * 16 * 64 / 8 < padded.packing < 16 * 16 * 64
