"""Periods of expressions, against their values."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from hwgen.model.periodicity import Watched, value, zones
from hwgen.spec.expression import Binary, BinaryOp, Call, Const, Expr, Name

_ARITHMETIC: tuple[BinaryOp, ...] = ("+", "-")
_DIVISION: tuple[BinaryOp, ...] = ("//", "%")
_COMPARISON: tuple[BinaryOp, ...] = ("<", "<=", ">", ">=", "==", "!=")
INNER = (0, 3)


def _combine(inner: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
    return st.one_of(
        st.builds(Binary, st.sampled_from(_ARITHMETIC), inner, inner),
        st.builds(Binary, st.sampled_from(_DIVISION), inner, st.integers(1, 6).map(Const)),
        st.builds(Binary, st.just("*"), inner, st.integers(-3, 3).map(Const)),
        st.builds(Call, st.sampled_from(("min", "max")), st.tuples(inner, inner)),
        st.builds(Binary, st.sampled_from(_COMPARISON), inner, inner),
    )


_LEAVES: st.SearchStrategy[Expr] = st.one_of(
    st.integers(-8, 8).map(Const), st.sampled_from(("v", "w")).map(Name)
)
EXPRESSIONS = st.recursive(_LEAVES, _combine, max_leaves=6)


@settings(max_examples=150, deadline=None)
@given(EXPRESSIONS, st.sampled_from([0, 8]), st.integers(0, 3), st.integers(1, 40))
def test_zones_repeat(expr: Expr, modulus: int, start: int, length: int) -> None:
    span = (start, start + length - 1)
    found = zones([Watched(expr, modulus)], "v", span, {"w": INNER})
    assert [z.start for z in found] == [start, *(z.end for z in found[:-1])]
    assert found[-1].end == span[1] + 1
    for zone in found:
        if not zone.period:
            continue
        for w in range(INNER[0], INNER[1] + 1):
            for v in range(zone.start, zone.end - zone.period):
                here = value(expr, {"v": v, "w": w})
                later = value(expr, {"v": v + zone.period, "w": w})
                assert (later - here) % modulus == 0 if modulus else later == here


def test_double_buffering_and_tails_are_understood() -> None:
    v = Name("v")
    step = Binary("+", Binary("*", v, Const(6)), Name("w"))
    watched = [
        Watched(Binary("%", step, Const(4))),
        Watched(Binary(">=", step, Const(2))),
        Watched(Call("min", (Const(16), Binary("-", Const(100), Binary("*", v, Const(16)))))),
        Watched(Binary("*", v, Const(3)), 8),
    ]
    found = [(z.start, z.end, z.period) for z in zones(watched, "v", (0, 6), {"w": (0, 5)})]
    # First and last iterations by themselves; in between, slots and alignment repeat.
    assert found == [(0, 1, 0), (1, 6, 8), (6, 7, 0)]
