"""Blocks that run later than their own iterations, and tensors in one place: when slots suffice."""

from __future__ import annotations

import pytest

from hwgen import HwgenError, Schedule
from tests.unit.tree.toy import CHAIN, EXPS, ROWSUM, STEPS, refusal, start

INSIDE = "s.compute_at('b', 'c_i')\ns.set_scope('b', 'local')\n"

TILES = """\
c_local = s.cache_write('c', 'local')
rows, columns, c_0_i, c_1_i = s.tile('c_0', 'c_1', 16, 12)
s.compute_at(c_local, columns)
s.set_scope('t', 'local')
s.set_scope('b', 'local')
s.compute_at('t', columns)
s.compute_at('b', columns)
"""
"""4 x 4 tiles, and everything about one of them at once."""


def made(script: str) -> Schedule:
    return start(STEPS, "npu").replay(TILES + script)


@pytest.mark.parametrize(
    ("edit", "loops"),
    [
        ("s.split('c_i', factor=8)", "c_i_o, c_i_i, c_j"),
        ("s.fuse('c_i', 'c_j')", "c_i_c_j_f"),
        ("s.tile('c_i', 'c_j', 8, 8)", "c_i_o, c_j_o, c_i_i, c_j_i"),
    ],
)
def test_edits_of_the_loop_come_first(edit: str, loops: str) -> None:
    error = refusal(CHAIN, f"s.shift('c', 'c_i', 1)\n{edit}", "npu")
    assert error.code == "H413"
    assert error.diagnostic.found == f"loops {loops}"
    assert error.diagnostic.repair == "shift last"


@pytest.mark.parametrize(
    ("slots", "later", "inside"),
    [(1, 0, True), (1, 1, False), (2, 1, True), (2, 2, False), (3, 2, True), (5, 5, False)],
)
def test_too_few_slots_for_a_tile_take_its_buffer_outside(
    slots: int, later: int, inside: bool
) -> None:
    s = start(CHAIN, "npu").replay(f"{INSIDE}s.double_buffer('b', {slots})\n")
    assert s.homes["b"] == ("c_i",)
    s.shift("c", "c_i", later)
    assert s.homes["b"] == (("c_i",) if inside else ())


def test_earlier_is_later_of_all_others() -> None:
    s = start(CHAIN, "npu").replay(INSIDE)
    s.shift("b", "c_i", -1)
    assert s.homes["b"] == ()
    s.double_buffer("b", 2)
    assert s.homes["b"] == ("c_i",)


def test_readers_are_shifted_first_or_all_in_one_batch() -> None:
    error = refusal(CHAIN, f"{INSIDE}s.double_buffer('b', 2)\ns.shift('b', 'c_i', 1)", "npu")
    assert error.code == "H411"
    first, both = (start(CHAIN, "npu").replay(INSIDE) for _ in range(2))
    first.shift("c", "c_i", 1)
    first.shift("b", "c_i", 1)
    with both.batch():
        both.shift("b", "c_i", 1)
        both.shift("c", "c_i", 1)
    assert str(first) == str(both)
    assert first.homes["b"] == ("c_i",)


def test_no_iterations_take_a_shift_back() -> None:
    s = start(CHAIN, "npu").replay(INSIDE)
    before = str(s)
    s.shift("c", "c_i", 1)
    s.shift("c", "c_i", 0)
    assert str(s) == before


def test_a_stage_is_shifted_with_what_begins_its_sums() -> None:
    s = start(ROWSUM, "npu").replay("s.decompose_reduction('b', 'k')\ns.shift('b', 'i', 2)")
    begins, _, adds = str(s).splitlines()[-3:]
    assert begins == "  b[i] = 0.0  2 later in i"
    assert adds == "    b[i] += a[i, k]  2 later in i"


@pytest.mark.parametrize(
    ("user", "maker", "slots", "home"),
    [
        ((0, 1), (0, 0), 2, 2),
        ((1, 0), (0, 0), 4, 1),
        ((1, 0), (0, 0), 5, 2),
        # While the last columns of a row of tiles run, the first ones of the next are not made yet.
        ((1, -3), (0, 0), 2, 1),
        ((1, -3), (0, 0), 3, 1),
        ((1, -3), (0, 0), 4, 2),
        ((1, 0), (0, 2), 3, 1),
        ((1, 0), (0, 2), 4, 2),
    ],
)
def test_slots_of_tiles_in_two_loops(
    user: tuple[int, int], maker: tuple[int, int], slots: int, home: int
) -> None:
    """A tile is used a row of tiles later, or nearly: as many of them as a row has stay."""
    script = [f"s.double_buffer(c_local, {slots})"]
    for stage, shifts in (("'c'", user), ("c_local", maker)):
        for loop, later in zip(("rows", "columns"), shifts, strict=True):
            script.append(f"s.shift({stage}, {loop}, {later})")
    s = made("\n".join(script))
    assert s.homes["c_local"] == s.loops("c")[:home]


def shifted(alias: str, slots: dict[str, int]) -> Schedule:
    """t runs one tile later than b, c_local two; all of one column of tiles."""
    buffers = "".join(f"s.double_buffer('{t}', {n})\n" for t, n in slots.items())
    return made(
        f"{buffers}s.shift('c', columns, 2)\ns.shift('c_local', columns, 2)\n"
        f"s.shift('t', columns, 1)\n{alias}"
    )


@pytest.mark.parametrize(("tensor", "of"), [("t", "b"), ("b", "t")])
def test_what_shares_a_place_needs_its_slots(tensor: str, of: str) -> None:
    alias = f"s.alias('{tensor}', '{of}')"
    inside = shifted("", {"b": 2, "t": 2})
    assert inside.homes["b"] == inside.homes["t"] == inside.loops("c")[:2]
    with pytest.raises(HwgenError) as caught:
        inside.replay(alias)
    assert caught.value.code == "H411"
    assert caught.value.diagnostic.found.startswith(
        f"c_local uses a tile of {of} after b has made the one 2 iterations later, and there are 2 "
        "slots: c_local["
    )
    enough = shifted(alias, {"b": 3, "t": 3})
    assert enough.homes["b"] == enough.homes["t"] == enough.loops("c")[:2]


def test_the_slots_are_those_of_the_place() -> None:
    """Where b is in the place of t, how many slots b itself had does not count."""
    with pytest.raises(HwgenError) as caught:
        shifted("s.alias('b', 't')", {"b": 4, "t": 2})
    assert caught.value.diagnostic.found.startswith("c_local uses a tile of t after b has made")
    assert "2 slots" in caught.value.diagnostic.found


def test_what_begins_sums_may_stand_where_the_first_block_is() -> None:
    """At the start of the body, before what adds to it; not at its end."""
    s = start(EXPS, "npu")
    loop = s.rescale("top", 12)
    s.sink("z_run_0", loop, "start")
    first = s.state.sites[1].block
    assert first.name == "z_run_0"
    assert [str(p) for p in first.predicate] == [f"{loop} == 0"]
    assert s.state.site["z_run_0"].names[0] == loop
    with pytest.raises(HwgenError, match="H411"):
        s.sink("top_run_0", loop, "first")
