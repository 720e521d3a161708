"""Blocks that run later over the ends of loops, and nests sunk into loops: when slots suffice."""

from __future__ import annotations

import pytest

from hwgen import HwgenError, Schedule
from tests.unit.tree.toy import CHAIN, MATMUL, refusal, start

COLUMNS = 4
"""Tiles in a row of them."""

TILES = """\
rows, columns, i, j = s.tile('c_i', 'c_j', 16, 12)
a = s.cache_read('a', 'local')
s.set_scope('b', 'local')
s.compute_at('b', columns)
s.compute_at(a, columns)
"""
"""4 x 4 tiles."""


def chain(script: str) -> Schedule:
    return start(CHAIN, "npu").replay(TILES + script)


SUMS = """\
c = s.cache_write('c', 'local')
rows, columns, i, j = s.tile('c_0', 'c_1', 16, 16)
s.compute_at(c, columns)
tiles, k = s.split('k', factor=16)
s.reorder(tiles, 'i', 'j', k)
begin = s.decompose_reduction(c, tiles)
"""
"""4 x 4 tiles of sums over 4 tiles."""

LATE = "s.sink('c', tiles, 'last')\ns.shift('c', [rows, columns, tiles], 1)\n"
EARLY = "s.sink(begin, tiles, 'first')\ns.shift(begin, [rows, columns], -1)\n"


def sums(script: str) -> Schedule:
    return start(MATMUL, "npu").replay(SUMS + script)


@pytest.mark.parametrize("lag", [-1, -2, -3, -4, -5, -15])
def test_a_tile_ahead_needs_a_slot_more(lag: int) -> None:
    """As many tiles as are brought in before one is used, and its own: over the ends of rows."""
    for slots, inside in ((-lag, False), (1 - lag, True)):
        s = chain(f"s.double_buffer(a, {slots})\ns.shift(a, [rows, columns], {lag})")
        assert (s.homes["a_local"] == s.loops("c")[:2]) == inside


@pytest.mark.parametrize("slots", range(1, 7))
@pytest.mark.parametrize("later", [-1, 1])
def test_a_whole_row_is_one_iteration_further_out(later: int, slots: int) -> None:
    stage = "a" if later < 0 else "'c'"
    buffers = "".join(f"s.double_buffer({t}, {slots})\n" for t in ("a", "'b'"))
    one = chain(f"{buffers}s.shift({stage}, rows, {later})")
    many = chain(f"{buffers}s.shift({stage}, [rows, columns], {COLUMNS * later})")
    assert dict(one.homes) == dict(many.homes)


def test_one_loop_is_a_shift_of_it() -> None:
    one, several = chain("s.shift(a, columns, -1)"), chain("s.shift(a, [columns], -1)")
    assert str(one) == str(several)
    assert one.trace() == several.trace()


@pytest.mark.parametrize("again", ["[rows, columns], 0", "rows, 0", "columns, 0"])
def test_no_iterations_take_a_shift_back(again: str) -> None:
    s = chain("")
    before = str(s)
    assert str(s.replay("s.shift('a_local', ['c_i_o', 'c_j_o'], -1)")) != before
    loops = again.replace("rows", "'c_i_o'").replace("columns", "'c_j_o'")
    assert str(s.replay(f"s.shift('a_local', {loops})")) == before


@pytest.mark.parametrize(
    "edit",
    ["s.split('c_j_o', factor=2)", "s.split('c_i_o', nparts=2)", "s.reorder('c_j_o', 'c_i_o')"],
)
def test_edits_of_the_loops_come_first(edit: str) -> None:
    error = refusal(CHAIN, f"{TILES}s.shift(a, [rows, columns], -1)\n{edit}", "npu")
    assert error.code == "H413"
    assert error.diagnostic.repair == "shift last"


def test_what_begins_sums_is_shifted_with_them() -> None:
    s = start(MATMUL, "npu").replay("s.shift('c', ['i', 'j'], 1)\ns.decompose_reduction('c', 'k')")
    begins, _, adds = str(s).splitlines()[-3:]
    assert begins == "    c[i, j] = 0.0  1 later in i, j"
    assert adds.endswith("  1 later in i, j")


@pytest.mark.parametrize(
    ("edits", "least"), [("", 1), (LATE, 2), (EARLY, 2), (LATE + EARLY, 2), (EARLY + LATE, 3)]
)
def test_slots_of_sums_that_begin_early_or_are_stored_late(edits: str, least: int) -> None:
    """Two, where a tile is stored before the next but one begins; else three."""
    for slots in (1, 2, 3):
        s = sums(f"s.double_buffer(c, {slots})\n{edits}")
        assert (len(s.homes["c_local"]) >= 2) == (slots >= least)


def test_sums_begin_before_they_are_added_to() -> None:
    with pytest.raises(HwgenError) as caught:
        sums("s.sink(begin, tiles, 'first')")
    assert caught.value.code == "H411"
    assert "an initialisation comes after a contribution" in caught.value.diagnostic.found


def test_what_is_sunk_runs_once_for_each_iteration_of_the_loops_outside() -> None:
    s = sums("s.sink('c', tiles, 'last')")
    assert "if k_o == 3:" in str(s)
    assert s.loops("c")[:3] == ("c_0_o", "c_1_o", "k_o")
    early = start(MATMUL, "npu").replay(SUMS)
    with pytest.raises(HwgenError, match="H411"):
        early.sink("c", "k_o", "first")


def test_several_loops_on_the_way() -> None:
    s = start(MATMUL, "npu").replay("c = s.cache_write('c', 'local')\ns.reorder('k', 'i', 'j')")
    s.sink("c", "i", "last")
    assert "if k == 63 and i == 63:" in str(s)


def test_what_stays_is_loaded_a_tile_ahead() -> None:
    s = start(MATMUL, "npu").replay(
        "rows, columns, i, j = s.tile('i', 'j', 16, 16)\nb = s.cache_read('b', 'local')\n"
        "s.compute_at(b, columns)\ns.retain(b, rows)\ns.shift(b, [rows, columns], -1)"
    )
    assert s.homes["b_local"] == ()
    with pytest.raises(HwgenError, match="H411"):
        s.shift("b_local", ["i_o", "j_o"], 1)
