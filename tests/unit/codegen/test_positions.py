"""The order of what stands in the body of a tile loop."""

from __future__ import annotations

from random import Random

from hwgen.codegen.positions import INNER_LOOP, Position, Share, Side


def test_positions_sort_as_they_run() -> None:
    in_order = [
        Position(Side.BEFORE, 0),
        Position(Side.BEFORE, 1),
        Position(Side.BEFORE, 1, Share.MOVED_STORES),
        Position(Side.BEFORE, 1, Share.REST),
        Position(Side.BEFORE, 2),
        Position(Side.BEFORE, 5000),
        INNER_LOOP,
        Position(Side.BEHIND, 0),
        Position(Side.BEHIND, 0, Share.REST),
        Position(Side.BEHIND, 1),
    ]
    shuffled = list(in_order)
    Random(3).shuffle(shuffled)
    assert shuffled != in_order
    assert sorted(shuffled) == in_order
