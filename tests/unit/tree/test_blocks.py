"""Blocks and stages of a schedule, as Python people name them."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

import hwgen
from hwgen import HwgenError, Schedule


def product() -> Schedule:
    """A product on units, in tiles of their lanes, without calls."""
    workload = hwgen.load_workload("gemm", {"M": 16, "N": 64, "K": 64})
    s = Schedule(workload, hwgen.load_hardware("vta"))
    n_o, n_i = s.split("n", factor=16)
    k_o, k_i = s.split("k", factor=16)
    s.reorder(n_o, k_o, n_i, k_i)
    s.decompose_reduction("acc", k_o)
    return s


def refused(edit: Callable[[], object]) -> HwgenError:
    with pytest.raises(HwgenError) as caught:
        edit()
    return caught.value


def test_a_block_has_its_own_loops() -> None:
    s = product()
    init = s["acc_init"]
    assert init.loops == init.axis == ("m", "n_o", "n_i_init")
    assert init.reduce_axis == ()
    assert s.loops("acc_init") == init.loops
    assert s["acc"].loops == ("m", "n_o", "k_o", "n_i", "k_i")
    assert s["acc"].reduce_axis == ("k_o", "k_i")
    outer, inner = init.split("n_i", factor=4)  # The copied loop, by the name of the first.
    assert (outer, inner) == ("n_i_init_o", "n_i_init_i")


def test_a_block_is_no_stage() -> None:
    error = refused(product()["acc_init"].compute_root)
    assert (error.code, error.diagnostic.found) == ("H414", "acc_init is a block of stage acc")


def test_a_stage_lists_its_own_loops() -> None:
    error = refused(lambda: product()["c"].split("x", factor=4))
    assert (error.code, error.diagnostic.allowed) == ("H414", "c_m, c_n")
    error = refused(lambda: product()["c"].split("k", factor=4))
    assert error.diagnostic.found == "k was split into k_o and k_i"


@pytest.mark.parametrize(
    ("word", "repair"),
    [("op", "its loops are s['acc'].loops, or .axis and .reduce_axis"),
     ("tensorise", "did you mean 'tensorize'?")],
)  # fmt: skip
def test_a_word_that_stages_do_not_have(word: str, repair: str) -> None:
    stage: Any = product()["acc"]
    error = refused(lambda: getattr(stage, word).axis)
    assert (error.code, error.diagnostic.found) == ("H418", f"s['acc'].{word}")
    assert error.diagnostic.repair == repair
    assert not hasattr(stage, word)


def test_intrinsics_are_named() -> None:
    s: Any = product()
    chip = s.hardware
    assert refused(lambda: s.tensorize("n_i", chip.intrinsics)).diagnostic.found == (
        "intrinsics is a tuple of Intrinsic"
    )


def test_errors_of_a_schedule_name_a_line_of_its_trace() -> None:
    s = product()
    s.tensorize("acc_init", "gemm")
    error = refused(lambda: hwgen.build(s.workload, s.hardware, script=s, auto=False))
    assert str(error).startswith("schedule.trace():5: error[H422]: gemm cannot compute acc_init")
    assert s.trace().splitlines()[4] == "s.tensorize(acc_init, 'gemm')"


@pytest.mark.parametrize(
    ("loop", "intrinsic", "repair"),
    [
        ("c_n", "store_out", "split('c_n', 16), then tensorize('c_n_i', 'store_out')"),
        ("a_inp_0", "load_inp", "split('a_inp_1', 16), then tensorize('a_inp_1_i', 'load_inp')"),
        ("b_wgt_0", "load_wgt", "split('b_wgt_0', 16), split('b_wgt_1', 16), "
         "reorder('b_wgt_1_o', 'b_wgt_0_i'), then tensorize('b_wgt_0_i', 'load_wgt')"),
    ],
)  # fmt: skip
def test_a_loop_that_is_no_lane_is_split_as_the_error_says(
    loop: str, intrinsic: str, repair: str
) -> None:
    s = product()
    s.cache_read("a", "inp")
    s.cache_read("b", "wgt")
    error = refused(lambda: s.tensorize(loop, intrinsic))
    assert (error.code, error.diagnostic.repair) == ("H416", repair)
    for edit in re.findall(r"\w+\([^()]*\)", repair):
        s.replay(f"s.{edit}")


def test_a_loop_shorter_than_the_lanes_is_padded() -> None:
    workload = hwgen.load_workload("gemm", {"M": 1, "N": 8, "K": 16})
    s = Schedule(workload, hwgen.load_hardware("vta"))
    error = refused(lambda: s.tensorize("c_n", "store_out"))
    repair = "pad('c_n', 16), then tensorize('c_n', 'store_out')"
    assert (error.code, error.diagnostic.repair) == ("H416", repair)


def test_more_loops_than_lanes_are_refused() -> None:
    s = product()
    s.cache_read("a", "inp")
    s.split("a_inp_1", factor=16)
    s.reorder("a_inp_1_o", "a_inp_0")
    error = refused(lambda: s.tensorize("a_inp_0", "load_inp"))  # Both of 16, one lane.
    assert error.code == "H416"
    assert error.diagnostic.found == "16 iterations, as a loop inside that is one"
    assert error.diagnostic.repair == "tensorize('a_inp_1_i', 'load_inp')"
