"""Counts from the loops against the simulator, which counts what it does."""

from __future__ import annotations

from pathlib import Path

import pytest

from hwgen.model.arithmetic import arithmetic
from hwgen.model.bound import lower_bound
from hwgen.model.columns import off_chip_traffic
from hwgen.model.functional import run
from hwgen.model.reference import random_inputs
from hwgen.pipeline import compile_kernel
from hwgen.polyhedral.scop import build_scop
from hwgen.report.movement import compulsory_bytes, memory_traffic
from hwgen.spec.load import load_hardware, load_workload
from hwgen.spec.workload import Workload
from tests.samples import chip, gemm_requant_workload, gemm_workload
from tests.sampling import QUICK

X86 = load_hardware(Path("hw_specs/x86_avx2.yaml"))


@pytest.mark.parametrize(
    "workload",
    [gemm_workload(2, 20, 40), gemm_requant_workload(32, 64, 64), gemm_workload(64, 256, 256)],
)
def test_traffic_of_every_memory_is_what_the_simulator_moves(workload: Workload) -> None:
    c = compile_kernel(workload, chip(), options=QUICK)
    shapes = {t.name: t.shape for t in workload.outputs}
    moved = run(c.program, c.hardware, random_inputs(workload, 0), shapes=shapes)
    simulated = {(t.memory, t.tensor, t.direction): t.bytes for t in moved.traffic}
    counted: dict[tuple[str, str, str], int] = {}
    for t in memory_traffic(c.program, c.hardware):
        counted |= {(t.memory, t.tensor, "read"): t.read, (t.memory, t.tensor, "write"): t.written}
    assert {key: n for key, n in counted.items() if n} == simulated


def test_what_is_updated_off_chip_crosses_the_bus_both_ways() -> None:
    sizes = {"M": 8, "N": 24, "K": 512}
    c = compile_kernel(load_workload(Path("workloads/matmul.yaml"), sizes), X86)
    moved = {t.tensor: t for t in off_chip_traffic(c.program, c.hardware, c.workload)}
    assert "store_add" in str(c.program)
    assert moved["c"].loaded == moved["c"].stored - moved["c"].size > 0
    ran = run(c.program, c.hardware, random_inputs(c.workload, 0))
    simulated = {t.direction: t.bytes for t in ran.traffic if (t.memory, t.tensor) == ("dram", "c")}
    assert simulated == {"read": moved["c"].loaded, "write": moved["c"].stored}


def test_compulsory_bytes_are_each_tensor_once_where_nothing_is_padded() -> None:
    c = compile_kernel(gemm_workload(64, 256, 256), chip(), options=QUICK)
    assert compulsory_bytes(c.program, c.hardware) == {
        "a": 64 * 256,
        "b": 256 * 256,
        "c": 64 * 256,
    }


def test_compulsory_reads_are_the_bound_of_the_bus() -> None:
    c = compile_kernel(gemm_workload(1, 256, 256), chip(), options=QUICK)
    least = compulsory_bytes(c.program, c.hardware)
    bus = c.hardware.bus[c.hardware.offchip.bus]
    need = dict(lower_bound(c.program, c.hardware).per_resource)[f"bus {bus.name} read"]
    assert need == (least["a"] + least["b"]) // bus.beat_bytes


def test_a_multiply_add_is_two_operations_and_a_conversion_none() -> None:
    assert arithmetic(build_scop(gemm_workload(4, 32, 48)).statements) == 2 * 4 * 32 * 48
    with_bias = arithmetic(build_scop(gemm_requant_workload(4, 32, 48)).statements)
    # The bias, the shift, and the clip as a minimum of a maximum.
    assert with_bias == 2 * 4 * 32 * 48 + 4 * 32 * 4
