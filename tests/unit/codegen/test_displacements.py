"""What of an address a C compiler writes into a call, and what it keeps in a register."""

from __future__ import annotations

import pytest

from hwgen.model.ends import Ends
from hwgen.spec.expression import Binary, Const, Expr, Name, displaced

K, R = Name("k"), Binary("*", Name("r"), Const(1024))


@pytest.mark.parametrize(
    ("address", "base", "displacement"),
    [
        (Const(7), Const(0), 7),
        (K, K, 0),
        (Binary("+", Const(64), Binary("+", R, K)), Binary("+", R, K), 64),
        (Binary("+", Binary("+", Const(2), K), Const(3)), K, 5),
        (Binary("*", Binary("+", K, Const(1)), Const(2)), None, 0),
    ],
)
def test_numbers_are_apart_from_what_moves(
    address: Expr, base: Expr | None, displacement: int
) -> None:
    assert displaced(address) == (base if base is not None else address, displacement)


def test_a_shift_moves_ends_since_then_and_none_that_come_later() -> None:
    ends = Ends(1)
    ends.enter(0)
    ends.finish(0, 7)
    before = ends.done
    ends.enter(0)
    ends.finish(0, 10)
    ends.shift([100], before)
    ends.enter(0)
    ends.finish(0, 120)
    assert [ends.end(0, n) for n in (1, 2, 3, 4)] == [7, 110, 120, -1]
    assert ends.age(0, 3, 115) == 5
    assert ends.age(0, 2, 115) == 0
