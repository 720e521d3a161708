"""Loops that take turns in the last iteration of others, lowered: right, and sooner done."""

from __future__ import annotations

from functools import cache

import pytest

from hwgen import Schedule
from hwgen.errors import HwgenError
from hwgen.model.c_compiler import have_compiler
from hwgen.passes.interleaving import End, interleaved
from hwgen.passes.kernel import Kernel
from hwgen.passes.trees import compile_tree
from hwgen.pipeline import compile_kernel
from hwgen.polyhedral.tree.loop_tree import Block, Site
from hwgen.spec.load import load_hardware, load_workload
from hwgen.verify.data import draw_inputs
from hwgen.verify.examine import examine
from tests.sampling import tiered
from tests.unit.tree.toy import ROOT

VTA = load_hardware(ROOT / "hw_specs" / "vta.yaml")

TILES = """\
c_acc = s.cache_write('c', 'acc')
rows, row = s.split('c_0', factor=32)
c_1_o, c_1_i = s.split('c_1', factor=16)
columns, column = s.split(c_1_o, factor=2)
s.reorder(rows, columns, row, column, c_1_i)
s.compute_at(c_acc, columns)
c_acc_n_o, c_acc_n_i = s.split('c_acc_n', factor=16)
s.set_scope('acc', 'acc')
s.compute_at('acc', columns)
n_o, n_i = s.split('n', factor=16)
k_o, k_i = s.split('k', factor=16)
s.reorder('m', n_o, k_o, n_i, k_i)
begin = s.decompose_reduction('acc', 'm')
a = s.cache_read('a', 'inp')
s.compute_at(a, columns)
a_o, a_i = s.split('a_inp_1', factor=16)
b = s.cache_read('b', 'wgt')
s.compute_at(b, columns)
b_0, b_2 = s.split('b_wgt_0', factor=16)
b_1, b_3 = s.split('b_wgt_1', factor=16)
s.reorder(b_0, b_1, b_2, b_3)
bias = s.cache_read('bias', 'acc')
bias_o, bias_i = s.split('bias_acc_0', factor=16)
s.double_buffer('acc', 2)
"""
CALLS = """
s.tensorize('n_i_init', 'reset')
s.tensorize(n_i, 'gemm')
s.tensorize(c_acc_n_i, 'add', 'shr_imm', 'max_imm', 'min_imm')
s.tensorize(c_1_i, 'store_out')
s.tensorize(a_i, 'load_inp')
s.tensorize(b_2, 'load_wgt')
s.tensorize(bias_i, 'load_acc')
"""


@cache
def made(edits: str = "", m: int = 64) -> Kernel:
    """Tiles of 32 x 32 results, narrowed by one unit and stored by another; it computes what it
    should, as a program and as C where there is a compiler."""
    sizes = {"M": m, "N": 64, "K": 32}
    workload = load_workload(ROOT / "workloads" / "gemm_requant.yaml", sizes)
    compilation = compile_tree(Schedule(workload, VTA).replay(TILES + edits + CALLS))
    examine(compilation, draw_inputs(workload, 1), "both" if have_compiler() else "python")
    return compilation


def turns(*sizes: int, within: str = "(rows, columns)") -> str:
    """Pieces of so many rows, and of those that are left."""
    return f"turn = s.interleave('c_acc_m', row, {sizes}, {within})\n"


SEVERAL = [(16,), (20, 8), (1, 30), (13, 11, 7), (40,)]


@pytest.mark.parametrize("sizes", tiered(SEVERAL, SEVERAL[::3], values=True))
def test_the_last_tile_comes_in_pieces(sizes: tuple[int, ...]) -> None:
    plain, found = made(), made(turns(*sizes))
    executed = dict(found.timing.calls)
    # Three tiles as before, and the last one.
    pieces = 1 if sizes == (40,) else len(sizes) + 1
    assert executed["store_out"] == executed["min_imm"] == 3 + pieces
    assert {k: v for k, v in executed.items() if k in ("gemm", "reset", "load_inp")} == {
        k: v for k, v in dict(plain.timing.calls).items() if k in ("gemm", "reset", "load_inp")
    }
    assert found.offchip_bytes == plain.offchip_bytes


@pytest.mark.parametrize(("within", "stores"), [("rows", 6), ("columns", 6), ("()", 8)])
def test_the_last_iteration_of_some_loops(within: str, stores: int) -> None:
    assert dict(made(turns(16, within=within)).timing.calls)["store_out"] == stores


def test_a_last_tile_that_ends_early() -> None:
    assert dict(made(turns(4, 4), m=42).timing.calls)["store_out"] == 3 + 3


def test_a_piece_comes_in_pieces() -> None:
    more = "s.interleave('c_acc_m', row, (28,), (rows, columns, turn))\n"
    found = made(turns(16) + more)
    assert dict(found.timing.calls)["store_out"] == 3 + 1 + 2


def test_slots_are_taken_in_turn() -> None:
    """What lives in each tile has its slot, however many turns there are."""
    found = made("s.double_buffer(a, 2)\n" + turns(16))
    assert found.schedule.homes["a_inp"] == found.schedule.homes["acc"] == ("c_0_o", "c_1_o_o")
    assert found.schedule.homes["c_acc"] == ("c_0_o", "c_1_o_o")


def test_what_needs_all_of_the_other_cannot_take_turns() -> None:
    with pytest.raises(HwgenError) as caught:
        made("s.reorder(column, row)\n" + "s.interleave('c_acc_m', column, (16,))\n")
    assert caught.value.code == "H411"


def end(made: float, stored: float, each: float) -> End:
    site = Site(Block("x", "whole", ()), (), ())
    return End(site, site, made, stored, each, (), {})


@pytest.mark.parametrize(
    ("costs", "extent", "cycles", "sizes"),
    [
        ((64, 64, 0), 64, 75, (11, 11, 11, 11, 11, 9)),  # As many as there may be.
        ((64, 64, 64), 64, 128, (64,)),  # A call more takes as long as all of it.
        ((90, 30, 5), 3, 110, (2, 1)),
        ((10, 90, 0), 3, 94, (1, 2)),
    ],
)
def test_pieces_are_as_large_as_both_units_like(
    costs: tuple[float, float, float], extent: int, cycles: int, sizes: tuple[int, ...]
) -> None:
    assert end(*costs).pieces(extent) == (cycles, sizes)


def test_the_search_stores_the_last_tile_in_pieces() -> None:
    sizes = {"H": 14, "W": 14, "C": 64, "O": 64, "R": 1, "P": 0, "S": 1}
    workload = load_workload(ROOT / "workloads" / "conv2d_requant.yaml", sizes)
    found = compile_kernel(workload, VTA)
    lines = found.script.splitlines()
    plain = "\n".join(x for x in lines if "s.interleave(" not in x)
    assert compile_tree(Schedule(workload, VTA).replay(plain)).cycles > found.cycles
    assert interleaved(found).cycles <= found.cycles
    again = compile_tree(Schedule(workload, VTA).replay(found.script))
    assert again.cycles == found.cycles
    examine(again, draw_inputs(workload, 1), "both" if have_compiler() else "python")
