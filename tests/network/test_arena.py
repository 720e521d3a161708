"""The plan of the arena: no two live buffers overlap, and the checker sees it if they do."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hwgen.errors import HwgenError
from hwgen.network.arena import Arena, Live, Place, check_arena, plan_arena


@st.composite
def buffers(draw: st.DrawFn) -> list[Live]:
    found: list[Live] = []
    for n in range(draw(st.integers(0, 14))):
        first = draw(st.integers(0, 9))
        last = first + draw(st.integers(0, 5))
        align = draw(st.sampled_from([1, 4, 64]))
        found.append(Live(f"b{n}", draw(st.integers(1, 300)), align, first, last))
    return found


def step_bytes(found: list[Live], step: int) -> int:
    return sum(b.bytes for b in found if b.first <= step <= b.last)


@given(buffers())
def test_live_buffers_share_no_byte(found: list[Live]) -> None:
    arena = plan_arena(found)
    for step in range(16):
        used: set[int] = set()
        for place in arena.places:
            if place.live.first <= step <= place.live.last:
                own = set(range(place.offset, place.offset + place.live.bytes))
                assert not used & own
                used |= own
    assert sorted(p.live.name for p in arena.places) == sorted(b.name for b in found)
    assert all(p.offset % p.live.align == 0 for p in arena.places)
    assert arena.bytes == max((p.end for p in arena.places), default=0)
    assert arena.bound == max((step_bytes(found, s) for s in range(16)), default=0)
    assert arena.gap >= 0
    assert plan_arena(list(reversed(found))) == arena


def test_a_chain_takes_no_more_than_its_largest_step() -> None:
    chain = [Live(f"t{n}", size, 1, n, n + 1) for n, size in enumerate((40, 10, 30, 20, 25))]
    arena = plan_arena(chain)
    assert (arena.bytes, arena.bound, arena.gap) == (50, 50, 0)


A, B = Live("a", 8, 4, 0, 2), Live("b", 8, 4, 2, 3)
RIGHT = Arena((Place(A, 0), Place(B, 8)), 16, 16, 4)


def test_a_right_plan_passes() -> None:
    check_arena(RIGHT, [A, B])


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (replace(RIGHT, places=(Place(A, 0), Place(B, 4))), "share bytes at step 1"),
        (replace(RIGHT, places=(Place(A, 0), Place(B, 9))), "not aligned"),
        (replace(RIGHT, bytes=15), "leaves the arena"),
        (replace(RIGHT, places=(Place(A, 0),)), "without a place"),
        (replace(RIGHT, places=(Place(A, 0), Place(replace(B, bytes=4), 8))), "without a place"),
        (replace(RIGHT, align=2), "not aligned"),
    ],
)
def test_a_wrong_plan_is_noticed(wrong: Arena, said: str) -> None:
    with pytest.raises(HwgenError) as told:
        check_arena(wrong, [A, B])
    assert told.value.code == "H804"
    assert said in told.value.diagnostic.found
