"""A 1x16x16 GEMM instruction matches whatever the loops' extents, order and spelling.

Enumerated: the chip's batch, the workload's batch, all six loop orders, both operand orders, and
the batch loop kept, left out, or joined by a unit loop of no meaning.
"""

from __future__ import annotations

from itertools import permutations, product
from pathlib import Path

import numpy as np
import pytest

import hwgen
from hwgen.model.functional import run
from hwgen.model.reference import random_inputs, run_reference
from hwgen.polyhedral.match.matching import Match, match
from hwgen.polyhedral.match.select import select
from hwgen.polyhedral.scop import build_scop
from hwgen.spec.hardware import HardwareSpec
from hwgen.spec.workload import Workload
from tests.sampling import QUICK, tiered

SPEC = Path(__file__).parents[2] / "hw_specs" / "vta.yaml"
ORDERS = list(permutations("mnk"))
SPELLINGS = ("kept", "missing", "extra")


def chip(batch: int) -> HardwareSpec:
    return hwgen.load_hardware(SPEC, {"BATCH": batch})


def gemm(rows: int, order: tuple[str, ...], commuted: bool, spelling: str) -> Workload:
    """C = int8(A . B^T), A with `rows` rows, spelt in one of many equal ways."""
    extents = {"m": rows, "n": 256, "k": 256}
    row = "" if spelling == "missing" else "m, "
    loops: dict[str, object] = {n: extents[n] for n in order if row or n != "m"}
    if spelling == "extra":
        loops["u"] = 1
    shape = "" if spelling == "missing" else f"{rows}, "
    product_text = f"b[n, k] * a[{row}k]" if commuted else f"a[{row}k] * b[n, k]"
    return hwgen.workload(
        "gemm",
        tensors={
            "a": f"int8[{shape}256]",
            "b": "int8[256, 256]",
            "acc": f"int32[{shape}256]",
            "c": f"int8[{shape}256]",
        },
        compute=[
            {"do": f"acc[{row}n] += {product_text}", "loops": loops},
            f"c[{row}n] = int8(acc[{row}n])",
        ],
    )


def matched(workload: Workload, hardware: HardwareSpec) -> list[Match]:
    scop = build_scop(workload)
    return match(scop, select(scop, hardware))


def compute_like_the_reference(workload: Workload, hardware: HardwareSpec) -> None:
    inputs = random_inputs(workload, seed=7)
    program = hwgen.compile_kernel(workload, hardware, options=QUICK).program
    shapes = {t.name: t.shape for t in workload.outputs}
    outputs = run(program, hardware, inputs, shapes=shapes).outputs
    np.testing.assert_array_equal(outputs["c"], run_reference(workload, inputs)["c"])


@pytest.mark.parametrize("batch", tiered([1, 2, 4], [1, 4]))
@pytest.mark.parametrize("rows", tiered([1, 2, 4], [1]))
def test_gemm_is_matched_in_every_spelling(batch: int, rows: int) -> None:
    hardware = chip(batch)
    seen = 0
    for order, commuted, spelling in product(ORDERS, (False, True), SPELLINGS):
        if spelling == "missing" and rows != 1:
            continue
        for found in matched(gemm(rows, order, commuted, spelling), hardware):
            update = next(o for o in found.selection.operations if o.kind == "update")
            assert update.intrinsic.name == "gemm"
            lanes = dict(found.lane[update.name])
            assert lanes["i"] == "k"
            assert lanes["o"] == "n"
            assert lanes["b"] == ("m" if batch > 1 and rows > 1 else None)
            assert found.iterations == -(-rows // batch) * 16 * 16
            seen += 1
    assert seen >= 24


@pytest.mark.parametrize("batch", [1, 2, 4])
def test_matched_spellings_compute_the_same(batch: int) -> None:
    hardware = chip(batch)
    for order, commuted, spelling in [
        (ORDERS[0], False, "kept"),
        (ORDERS[5], True, "missing"),
        (ORDERS[3], True, "extra"),
    ]:
        workload = gemm(1, order, commuted, spelling)
        compute_like_the_reference(workload, hardware)


def test_diagonal_access_needs_no_special_case() -> None:
    """Column n is scaled by b[n, n]: the block is the same for every k, so it is replicated."""
    workload = hwgen.workload(
        "diagonal",
        tensors={"a": "int8[4, 64]", "b": "int8[40, 40]", "s": "int32[4, 40]", "c": "int8[4, 40]"},
        compute=["s[m, n] += a[m, k] * b[n, n]", "c[m, n] = int8(s[m, n])"],
    )
    compute_like_the_reference(workload, chip(1))


def test_depthwise_products_run_along_the_diagonal() -> None:
    """One channel loop along rows and columns: the packed block is zero beside its diagonal."""
    workload = hwgen.load_workload(SPEC.parents[1] / "workloads" / "depthwise_conv2d.yaml")
    for found in matched(workload, chip(1)):
        update = next(o for o in found.selection.operations if o.kind == "update")
        assert dict(found.lane[update.name]) == {"b": None, "o": "c", "i": "c"}
        assert found.iterations == 32 // 16 * 28 * 28 * 3 * 3
