"""Entry points: which chips they are for."""

from __future__ import annotations

from pathlib import Path

import pytest

import hwgen

ROOT = Path(__file__).resolve().parents[2]


def test_a_processor_has_an_entry_point_of_its_own() -> None:
    workload = hwgen.load_workload(ROOT / "workloads" / "gemm.yaml")
    processor = hwgen.load_hardware(ROOT / "hw_specs" / "cpu_generic.yaml")
    with pytest.raises(hwgen.HwgenError, match=r"H301.*no units"):
        hwgen.compile_kernel(workload, processor)
    assert hwgen.compile_nest(workload, processor, auto=False).cycles > 0


def test_a_schedule_made_by_hand_is_compiled() -> None:
    workload = hwgen.load_workload(ROOT / "workloads" / "relu.yaml")
    chip = hwgen.load_hardware(ROOT / "hw_specs" / "vta.yaml")
    s = hwgen.Schedule(workload, chip)
    onchip = s.cache_write("y", "acc")
    m_o, m_i = s.split("y_0", factor=7)
    n_o, n_i = s.split("y_1", factor=16)
    s.reorder(m_o, m_i, n_o, n_i)
    s.compute_at(onchip, m_o)
    lanes = s.split("n", factor=16)[1]
    loaded = s.cache_read("x", "acc")
    s.compute_at(loaded, m_o)
    loaded_lanes = s.split(s.loops(loaded)[-1], factor=16)[1]
    s.double_buffer(loaded, 2)
    s.tensorize(lanes, "max_imm")
    s.tensorize(n_i, "store_out")
    s.tensorize(loaded_lanes, "load_acc")
    kernel = hwgen.compile_schedule(s)
    assert not kernel.parts
    assert kernel.schedule is s
    assert kernel.cycles >= hwgen.compile_kernel(workload, chip).cycles
