"""Buffers in one place: what a guard keeps out of an iteration is no use of them there."""

from __future__ import annotations

from dataclasses import replace
from time import process_time

import pytest

from hwgen.codegen.nodes import Body, Call, If, Loop, Node, rewritten
from hwgen.spec.expression import Binary, Const, Expr, Name, add, multiply
from hwgen.verify.overlaps import Overlaps, decided
from tests.samples import chip
from tests.unit.timing.nests import operand, sizes
from tests.unit.timing.test_rules import program

T = Name("t")
U = Name("u")


def write(buffer: str, at: Expr | int = 0) -> Call:
    operands = operand("dst", buffer, at, 0, 1), operand("src", "bias", 0, 0, 1)
    return Call(0, "load_acc", "compute", operands, sizes(1, 1))


def read(buffer: str) -> Call:
    operands = operand("dst", "c", 0, 0, 1), operand("src", buffer, 0, 0, 1)
    return Call(1, "store_out", "store", operands, sizes(1, 1))


def loop(*body: Node, variable: str = "t", extent: int = 4) -> Loop:
    return Loop(variable, Const(0), Const(extent), body)


def from_on(left: Expr, first: int, *body: Node) -> If:
    return If(Binary(">=", left, Const(first)), body)


def until(left: Expr, end: int, *body: Node) -> If:
    return If(Binary("<", left, Const(end)), body)


def meet(*body: Node) -> bool:
    return Overlaps(program(*body), chip()).meet("x", "y")


X = write("x"), read("x")

APART = {
    "one after the other": (*X, write("y"), read("y")),
    "a store one tile later": (*X, loop(from_on(T, 1, read("y")), write("y")), read("y")),
    "two stages, one and two tiles later": (
        *X,
        loop(from_on(T, 2, read("y")), from_on(T, 1, write("y"), read("y")), write("y")),
        read("y"),
    ),
    "a store one step later of two loops": (
        *X,
        loop(loop(from_on(add(multiply(T, Const(4)), U), 1, read("y")), write("y"), variable="u")),
        read("y"),
    ),
    "a load one tile ahead": (write("y"), loop(read("y"), until(T, 3, write("y"))), *X),
    "the first iteration alone": (write("x"), loop(until(T, 1, read("x")), write("y"), read("y"))),
    "the last iteration alone": (loop(write("y"), read("y"), from_on(T, 3, write("x"))), read("x")),
    "neither of two guards": (
        *X,
        loop(
            If(Binary("or", Binary(">", T, Const(0)), Binary("!=", T, Const(0))), (read("y"),)),
            write("y"),
        ),
    ),
    "a loop that never runs": (*X, loop(read("y"), extent=0), write("y")),
}

MEETING = {
    "alive at once": (write("x"), write("y"), read("x")),
    "written by parts": (*X, loop(write("y", T), read("x"))),
    "a guard that is true at first": (*X, loop(until(T, 1, read("y")), write("y"))),
    "a guard that says nothing of the first": (
        *X,
        loop(If(Binary("==", Binary("%", T, Const(2)), Const(0)), (read("y"),)), write("y")),
    ),
    "the other branch at first": (
        *X,
        loop(If(Binary(">=", T, Const(1)), (write("y"),), (read("y"),))),
    ),
    "behind a guard of a later iteration": (
        loop(write("x"), from_on(T, 1, read("y")), read("x"), write("y")),
    ),
    "behind a guard of the last iteration": (
        loop(write("x"), write("y"), from_on(T, 3, read("x"))),
    ),
    "between two guards": (
        write("x"),
        loop(from_on(T, 1, until(T, 2, write("y"))), from_on(T, 2, until(T, 3, read("x")))),
    ),
    "a store no tile later": (*X, loop(from_on(T, 0, read("y")), write("y")), read("y")),
    "a store later in one loop of two": (
        *X,
        loop(loop(from_on(U, 1, read("y")), write("y"), variable="u"), write("x"), read("y")),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", APART)
def test_buffers_one_after_the_other_do_not_meet(name: str) -> None:
    assert not meet(*APART[name])


@pytest.mark.parametrize("name", MEETING)
def test_buffers_in_use_at_once_meet(name: str) -> None:
    assert meet(*MEETING[name])


@pytest.mark.parametrize(
    "name",
    [
        "a store one tile later",
        "a store one step later of two loops",
        "the first iteration alone",
        "neither of two guards",
    ],
)
def test_a_guard_that_lets_in_what_it_kept_out_is_found(name: str) -> None:
    def always(node: Node) -> Body:
        return (replace(node, condition=Const(1)),) if isinstance(node, If) else (node,)

    assert meet(*rewritten(APART[name], always))


def test_the_cost_of_nested_loops_is_small() -> None:
    body: tuple[Node, ...] = (write("x"), read("x"), write("y"), read("y"))
    for level in range(6):
        name = f"v{level}"
        body = (loop(*body, from_on(Name(name), 1, read("y")), variable=name),)
    started = process_time()
    assert not meet(*body)
    assert process_time() - started < 1


@pytest.mark.parametrize(
    ("op", "right", "holds"),
    [
        ("<", 4, True), ("<", 3, None), ("<", 1, False),
        ("<=", 3, True), ("<=", 2, None), ("<=", 0, False),
        (">", 0, True), (">", 1, None), (">", 3, False),
        (">=", 1, True), (">=", 2, None), (">=", 4, False),
        ("==", 4, False), ("==", 3, None), ("!=", 4, True), ("!=", 3, None),
    ],
)  # fmt: skip
def test_a_comparison_is_decided_where_all_values_agree(
    op: str, right: int, holds: bool | None
) -> None:
    condition = Binary(op, T, Const(right))  # type: ignore[arg-type]
    assert decided(condition, {"t": (1, 3)}) is holds
