"""Schedules whose blocks are not the calls that they name: asked for as trees, each says what is
wrong; a script of them is refused as a tiling, at its line."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from hwgen.errors import HwgenError
from hwgen.passes.scripting import compile_script
from hwgen.passes.trees import compile_tree
from hwgen.polyhedral.schedule.schedule import Schedule
from hwgen.spec.load import load_hardware, make_workload
from hwgen.verify.data import draw_inputs
from hwgen.verify.examine import examine
from tests.conftest import Golden

HERE = Path(__file__).parent / "compile"
SPECS = Path(__file__).parents[2] / "hw_specs"

FLOATS = {"b": "float32[8, 16]", "a": "float32[8, 16]", "c": "float32[8, 16]"}
ROWS = """\
c_local = s.cache_write('c', 'local')
a_local = s.cache_read('a', 'local')
s.set_scope('b', 'local')
"""
CALLS = """\
s.tensorize('b', 'mul_imm')
s.tensorize(c_local, 'add_imm')
s.tensorize('c', 'store')
s.tensorize(a_local, 'load')
"""
BYTES = {"a": "int8[1, 256]", "b": "int8[{n}, 256]", "acc": "int32[1, {n}]", "c": "int8[1, {n}]"}
PRODUCT = """\
c_n_o, c_n_i = s.split('c_n', factor=16)
c_n_o_o, c_n_o_i = s.split(c_n_o, factor=1)
s.reorder(c_n_o_o, 'c_m', c_n_o_i, c_n_i)
s.set_scope('acc', 'acc')
s.compute_at('acc', c_n_o_o)
n_o, n_i = s.split('n', factor=16)
k_o, k_i = s.split('k', factor=16)
s.reorder(n_o, k_o, n_i, k_i)
acc_init = s.decompose_reduction('acc', n_o)
a_inp = s.cache_read('a', 'inp')
a_inp_1_o, a_inp_1_i = s.split('a_inp_1', factor=16)
b_wgt = s.cache_read('b', 'wgt')
s.compute_at(b_wgt, c_n_o_o)
b_wgt_0_o, b_wgt_0_i = s.split('b_wgt_0', factor=16)
b_wgt_1_o, b_wgt_1_i = s.split('b_wgt_1', factor=16)
s.reorder(b_wgt_0_o, b_wgt_1_o, b_wgt_0_i, b_wgt_1_i)
s.double_buffer(b_wgt, 2)
s.tensorize('n_i_init', 'reset')
s.tensorize(n_i, 'gemm')
s.tensorize(c_n_i, 'store_out')
s.tensorize(a_inp_1_i, 'load_inp')
s.tensorize(b_wgt_0_i, 'load_wgt')
"""

BEGUN = """\
n_o, n_i = s.split('n', factor=16)
k_o, k_i = s.split('k', factor=16)
s.reorder(n_o, k_o, n_i, k_i)
acc_init = s.decompose_reduction('acc', k_o)
s.tensorize(acc_init, 'reset')
s.tensorize(n_i, 'gemm')
a_inp = s.cache_read('a', 'inp')
b_wgt = s.cache_read('b', 'wgt')
s.tensorize(b_wgt, 'load_wgt')
"""
"""A schedule of the product whose loops are not split everywhere, in part without calls."""


def floats(script: str) -> tuple[Schedule, str]:
    workload = make_workload(
        "rows", tensors=FLOATS, compute=["b[i, j] = a[i, j] * 2", "c[i, j] = b[i, j] + 1"]
    )
    return Schedule(workload, load_hardware(SPECS / "npu_shared_buffer.yaml")), script


def product(columns: int, script: str) -> tuple[Schedule, str]:
    workload = make_workload(
        "product",
        tensors={n: t.format(n=columns) for n, t in BYTES.items()},
        compute=["acc[m, n] += a[m, k] * b[n, k]", "c[m, n] = int8(acc[m, n])"],
    )
    return Schedule(workload, load_hardware(SPECS / "vta.yaml")), script


CASES: dict[str, tuple[str, tuple[Schedule, str]]] = {
    "tree_without_calls": ("H421", floats("")),
    "tree_one_call_left_out": (
        "H421",
        floats(ROWS + CALLS.replace("s.tensorize(c_local, 'add_imm')\n", "")),
    ),
    "tree_another_call": ("H422", floats(ROWS + CALLS.replace("'add_imm'", "'mul_imm'"))),
    "tree_in_no_memory": ("H422", floats(ROWS.replace("s.set_scope('b', 'local')\n", "") + CALLS)),
    "tree_no_lanes": (
        "H422",
        product(40, PRODUCT.replace("tensorize(a_inp_1_i", "tensorize(a_inp_1_o")),
    ),
    "tree_one_block_of_the_processor": (
        "H512",
        product(32, BEGUN + "s.set_scope('acc', 'acc')\ns.tensorize(a_inp, 'load_inp')\n"),
    ),
    "tree_unsplit_copy": (
        "H503",
        product(
            32,
            PRODUCT.replace("a_inp_1_o, a_inp_1_i = s.split('a_inp_1', factor=16)\n", "").replace(
                "tensorize(a_inp_1_i", "tensorize(a_inp"
            ),
        ),
    ),
    "tree_other_memory": ("H422", product(32, PRODUCT.replace("'load_wgt'", "'load_inp'"))),
    "tree_no_beginning": (
        "H424",
        product(32, "".join(x for x in PRODUCT.splitlines(keepends=True) if "_init" not in x)),
    ),
    "tree_no_entry": (
        "H423",
        floats(
            ROWS
            + "s.storage_align('b', 0, 32)\nrows = s.fuse('i', 'j')\ns.split(rows, factor=12)\n"
            + CALLS
        ),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_tree_that_its_calls_do_not_run(case: str, golden: Golden) -> None:
    code, (empty, script) = CASES[case]
    schedule = Schedule(empty.workload, empty.hardware).replay(script)
    with pytest.raises(HwgenError) as caught:
        compile_tree(schedule)
    assert caught.value.code == code
    golden(HERE / f"{case}.txt", str(caught.value))


@pytest.mark.parametrize("case", CASES)
def test_a_script_of_it_is_refused_alike(case: str) -> None:
    code, (empty, script) = CASES[case]
    with pytest.raises(HwgenError) as caught:
        compile_script(empty.workload, empty.hardware, script)
    assert caught.value.code == code


def test_repairs_lead_to_a_kernel() -> None:
    """From a schedule that only its product has calls in, each error says what is next."""
    empty, _ = product(32, "")
    schedule = empty.replay(BEGUN)
    codes: list[str] = []
    while (error := refusal(schedule)) is not None:
        repair = error.diagnostic.repair.split(", or ")[0]
        codes.append(error.code)
        for edit in re.findall(r"\w+\([^()]*\)", repair):
            schedule.replay(f"s.{edit}")
    assert codes == ["H512", "H422", "H512", "H503"]
    kernel = compile_tree(schedule)
    assert not kernel.program.codes
    examine(kernel, draw_inputs(kernel.workload, 1))


def refusal(schedule: Schedule) -> HwgenError | None:
    try:
        compile_tree(schedule)
    except HwgenError as error:
        return error
    return None


def test_lanes_that_a_tensor_ends_within_are_padded() -> None:
    empty, script = product(40, PRODUCT)
    kernel = compile_tree(empty.replay(script))
    examine(kernel, draw_inputs(kernel.workload, 1))
    assert kernel.cycles == compile_script(empty.workload, empty.hardware, script).cycles
