"""Scripts that leave stages without calls: any legal one is completed, honoured and right."""

from __future__ import annotations

from math import prod
from pathlib import Path

import pytest

from hwgen.completing import complete_script
from hwgen.model.columns import moved_bytes
from hwgen.model.compiled import have_compiler
from hwgen.passes.kernel import Kernel
from hwgen.passes.nest_pipeline import compile_nest
from hwgen.passes.scripting import compile_script
from hwgen.pipeline import compile_workload
from hwgen.polyhedral.schedule.schedule import Schedule
from hwgen.spec.expression import DTYPES
from hwgen.spec.load import load_hardware, load_workload, make_workload
from hwgen.verify.check_program import check_program
from hwgen.verify.data import draw_inputs
from hwgen.verify.examine import examine
from tests.sampling import QUICK, tiered

ROOT = Path(__file__).parents[2]
NPU = "npu_shared_buffer"
TILES = "n_o, n_i = s.split('n', factor=16)\nk_o, k_i = s.split('k', factor=16)\n"
ROWS = """\
y_local = s.cache_write('y', 'local')
y_0_o, y_0_i = s.split('y_0', factor=64)
s.compute_at(y_local, y_0_o)
""" + "".join(
    f"s.set_scope('{t}', 'local')\ns.compute_at('{t}', y_0_o)\n"
    for t in ("s3", "h2", "s2", "h1", "s1")
)

CASES: dict[str, tuple[str, str, dict[str, int], str]] = {
    "a sum's tiles outside": (NPU, "linear_relu", {}, TILES + "s.reorder(k_o, n_o, n_i, k_i)"),
    "a cache alone": (NPU, "linear_relu", {}, "x_local = s.cache_read('x', 'local')"),
    "a cache inside of tiles": (
        NPU,
        "linear_relu",
        {"M": 4},
        TILES + "x_local = s.cache_read('x', 'local')\ns.compute_at(x_local, 'm')",
    ),
    "a sum beside its copy": (NPU, "linear_relu", {}, "s.cache_write('acc', 'local')"),
    "a producer in its reader's loops": (NPU, "linear_relu", {}, "s.compute_at('acc', 'y_n')"),
    "an initialisation apart": (NPU, "linear_relu", {}, "s.decompose_reduction('acc', 'k')"),
    "tiles in one of several phases": (NPU, "mlp", {}, "a, b = s.split('h1_h', factor=3)"),
    "rows that all phases share": (NPU, "mlp", {"M": 256}, ROWS),
    "tiles of a normalisation": (NPU, "layernorm", {"M": 40}, "a, b = s.split('y_m', factor=7)"),
    "loops of one as one": ("vta", "gemm", {}, "s.fuse('c_m', 'c_n')"),
    "calls of one stage alone": (
        "vta",
        "gemm",
        {"M": 8, "N": 32, "K": 32},
        "s.set_scope('acc', 'acc')\ns.decompose_reduction('acc', 'm')\n"
        "n_o, n_i = s.split('n_init', factor=16)\ns.tensorize(n_i, 'reset')",
    ),
    "more rows than sums have room for": (
        "vta",
        "gemm",
        {"M": 4096, "N": 32, "K": 16},
        "c_m_o, c_m_i = s.split('c_m', factor=4096)",
    ),
    "scales that a store applies": (
        "gemmini",
        "gemm_scaled",
        {"M": 40, "N": 32, "K": 48},
        "a, b = s.split('c_m', factor=8)",
    ),
    "two banks": ("vtcm_two_banks", "matmul", {"M": 32, "N": 32, "K": 64}, "s.split('m', 5)"),
    "sums that cannot leave the chip": (
        "gemmini",
        "gemm",
        {"M": 8, "N": 16, "K": 16},
        "s.reorder('m', 'k')",
    ),
    "a sum's calls without those of its start": (
        "vta",
        "gemm",
        {"M": 8, "N": 32, "K": 32},
        "s.set_scope('acc', 'acc')\n" + TILES + "s.reorder(n_o, k_o, n_i, k_i)\n"
        "s.decompose_reduction('acc', n_o)\ns.tensorize(n_i, 'gemm')",
    ),
    "a sum's calls on what is not brought": (
        "vtcm_two_banks",
        "matmul",
        {"M": 8, "N": 16, "K": 32},
        "c = s.cache_write('c', 'vmem')\ns.decompose_reduction(c, 'm')\ns.tensorize(c, 'matmul')",
    ),
    "sums that the host goes on with": (
        "gemmini",
        "gemm_requant",
        {"M": 16, "N": 32, "K": 32},
        "acc = s.cache_write('acc', 'acc')\na = s.cache_read('a', 'spad')\n"
        "s.split('a_spad_1', factor=16)\nb = s.cache_read('b', 'spad')",
    ),
    "what the host computes": (
        "davinci_core",
        "gemm",
        {"M": 8, "N": 16, "K": 16},
        "a, b = s.split('c_m', factor=4)",
    ),
}


def completed(case: str) -> Kernel:
    chip, name, sizes, script = CASES[case]
    hardware = load_hardware(ROOT / "hw_specs" / f"{chip}.yaml")
    workload = load_workload(ROOT / "workloads" / f"{name}.yaml", sizes)
    return complete_script(workload, hardware, script, "mine.py", QUICK)


THE_SAME = (
    "a cache inside of tiles",
    "a sum beside its copy",
    "an initialisation apart",
    "tiles in one of several phases",
    "loops of one as one",
    "scales that a store applies",
)
"""What begins as another case does, in another place or on another chip."""


@pytest.mark.parametrize("case", tiered([*CASES], [c for c in CASES if c not in THE_SAME][::6]))
def test_it_is_completed_as_it_begins(case: str) -> None:
    made = completed(case)
    workload, hardware = made.workload, made.hardware
    whole = made.script
    if not made.parts:  # else it agrees with the script, in its own order
        given = Schedule(workload, hardware).replay(CASES[case][3]).edits()
        assert Schedule(workload, hardware).replay(whole).edits()[: len(given)] == given
    assert compile_script(workload, hardware, whole).source.c == made.source.c
    check_program(made.program, hardware, workload)
    inputs = draw_inputs(workload, 1, "small")
    examine(made, inputs)
    if have_compiler():
        examine(made, inputs, "c")


@pytest.mark.parametrize(
    "script", ["", "n_o, n_i = s.split('n', factor=16)", "s.cache_read('a', 'inp')"]
)
def test_what_the_best_schedule_says_anyway_changes_nothing(script: str) -> None:
    chip = load_hardware(ROOT / "hw_specs" / "vta.yaml")
    workload = load_workload(ROOT / "workloads" / "gemm.yaml", {"M": 4, "N": 64, "K": 64})
    made = complete_script(workload, chip, script, "mine.py", QUICK)
    assert made.source.c == compile_workload(workload, chip, QUICK).source.c


def test_what_the_scheduler_adds_makes_no_script_slower() -> None:
    chip = load_hardware(ROOT / "hw_specs" / "cpu_generic.yaml")
    workload = load_workload(ROOT / "workloads" / "layernorm.yaml")
    made = compile_nest(workload, chip)
    again = compile_nest(workload, chip, made.script)
    assert again.source.c == made.source.c
    assert again.account.report is not None
    assert again.account.report.notes


def test_rows_that_all_phases_share_leave_nothing_between() -> None:
    made = completed("rows that all phases share")
    workload = made.workload
    least = sum(DTYPES[t.dtype] * prod(t.shape) for t in (*workload.inputs, *workload.outputs))
    assert moved_bytes(made.program, made.hardware, workload) == least


@pytest.mark.parametrize(
    ("rows", "split"), tiered([(1, 1), (1, 2), (2, 2), (2, 4), (4, 4)], [(2, 2)])
)
def test_lanes_split_off_leave_tiles_open(rows: int, split: int) -> None:
    """The loops around an instruction's lanes are none of tiles that nothing else stands in."""
    chip = load_hardware(ROOT / "hw_specs" / "vta.yaml", {"BATCH": rows})
    tensors = {"a": "int8[64, 64]", "b": "int8[64, 64]", "c": "int32[64, 64]", "d": "int8[64, 64]"}
    compute = ["c[i, j] += a[i, k] * b[j, k]", "d[p, q] = int8(c[p, q])"]
    workload = make_workload(name="unit", sizes={}, tensors=tensors, compute=compute)
    sizes = (("i", split), ("j", 16), ("k", 16))
    lines = [f"{n}_o, {n}_i = s.split('{n}', factor={size})" for n, size in sizes]
    script = "\n".join([*lines, "s.reorder(i_o, j_o, k_o, i_i, j_i, k_i)"])
    made = complete_script(workload, chip, script, "mine.py", QUICK)
    assert made.cycles <= 1.1 * compile_workload(workload, chip, QUICK).cycles
    examine(made, draw_inputs(workload, 1, "small"))
