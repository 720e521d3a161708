"""Layouts by hand over blocks of lanes: the same places, or refused."""

from __future__ import annotations

from itertools import product

import pytest

from hwgen.codegen.lower.by_hand import over_blocks
from hwgen.spec.expression import Expr, evaluate
from hwgen.spec.grammar import parse_expression

EXTENTS = (6, 32)
LANES = 4


def layout(*texts: str) -> tuple[Expr, ...]:
    return tuple(parse_expression(t) for t in texts)


@pytest.mark.parametrize(
    "texts",
    [
        ("d1 // 8", "d0", "d1 % 8"),
        ("d1 // 4", "d0", "d1 % 4"),
        ("d0", "d1"),
        ("d0 // 2", "d1 // 16", "d0 % 2", "d1 % 16"),
        ("d1 // 8 % 2", "d0 + d1 // 16", "d1 % 8"),
        ("d0 % 2", "d0 * 32 + d1"),
    ],
)
def test_elements_of_a_block_follow_each_other(texts: tuple[str, ...]) -> None:
    """The innermost dimension is LANES times that of the blocks plus the lane; others are alike."""
    given = layout(*texts)
    found = over_blocks(given, (1, LANES))
    assert found is not None
    for d0, d1 in product(*map(range, EXTENTS)):
        element = [evaluate(e, {"d0": d0, "d1": d1}) for e in given]
        block = [evaluate(e, {"d0": d0, "d1": d1 // LANES}) for e in found]
        assert element == [*block[:-1], block[-1] * LANES + d1 % LANES]


@pytest.mark.parametrize(
    "texts",
    [
        ("d1", "d0"),  # lanes are a row apart
        ("d0", "d1 * 2"),
        ("d0", "d1 + 1"),  # a block begins between two
        ("d1 // 6", "d0", "d1 % 6"),  # a block is in two places
        ("d1 % 8", "d0", "d1 // 8"),
        ("d0", "d1 + d1 % 8"),
        ("d0 + d1 % 4", "d1"),
    ],
)
def test_blocks_that_a_layout_parts_are_refused(texts: tuple[str, ...]) -> None:
    assert over_blocks(layout(*texts), (1, LANES)) is None


def test_a_layout_of_single_elements_is_itself() -> None:
    given = layout("d1", "d0")
    assert over_blocks(given, (1, 1)) == given


def test_lanes_along_two_dimensions_are_refused() -> None:
    assert over_blocks(layout("d0", "d1"), (2, LANES)) is None
