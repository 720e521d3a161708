"""Writes of state: random programs find what they need, with few writes; and the checker of it.

The placement, the checker and the executed trace are three opinions; here they are compared.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from itertools import count
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hwgen.codegen.configuration import configured, needed
from hwgen.codegen.nodes import Barrier, Call, CallOperand, Configure, If, Loop, Node
from hwgen.codegen.nodes import nodes as all_nodes
from hwgen.codegen.program import Program
from hwgen.model.configuration_check import configuration_problems
from hwgen.model.trace import CallEvent, walk
from hwgen.spec.expression import Binary, Const, Expr, Name
from hwgen.spec.hardware import HardwareSpec
from hwgen.spec.load import load_hardware
from tests.sampling import examples

SPEC = Path(__file__).parents[2] / "specs" / "row_array.yaml"
RELAXED = settings(deadline=None, derandomize=True, max_examples=examples(60))
FOUR = Const(4)


@cache
def chip(registers: int) -> HardwareSpec:
    """The chip, with so many registers for its loads."""
    hardware = load_hardware(SPEC)
    values = tuple((("id", n),) for n in range(registers))
    return replace(
        hardware,
        configurations=tuple(
            replace(c, registers=values) if c.name == "move" else c for c in hardware.configurations
        ),
    )


def load(step: int, rows: Expr = FOUR) -> Call:
    """A load whose state is that of one step; every fifth needs another width too."""
    name = "load_weights" if step % 5 == 4 else "load_rows"
    return move(name, "load", ("dst", "src"), (Const(1), Const(step)), rows)


def store(step: int, shift: int) -> Call:
    moved = move("store", "store", ("dst", "src"), (Const(step), Const(1)), Const(4))
    return replace(moved, immediates=(("shift", shift),))


def move(
    name: str, unit: str, operands: tuple[str, str], steps: tuple[Expr, Expr], rows: Expr
) -> Call:
    still = (Const(0),) * 5
    return Call(
        0,
        name,
        unit,
        tuple(
            CallOperand(o, f"{o}_place", Const(0), (*still, step))
            for o, step in zip(operands, steps, strict=True)
        ),
        (*([Const(1)] * 5), rows),
    )


def program(nodes: tuple[Node, ...]) -> Program:
    return Program("k", "row_array", "w", (), (), (), (), (), numbered(nodes, count()))


def numbered(nodes: tuple[Node, ...], sites: Iterator[int]) -> tuple[Node, ...]:
    result: list[Node] = []
    for node in nodes:
        match node:
            case Call():
                result.append(replace(node, site=next(sites)))
            case Loop():
                result.append(replace(node, body=numbered(node.body, sites)))
            case If(condition, then, otherwise):
                yes = numbered(then, sites)
                result.append(If(condition, yes, numbered(otherwise, sites)))
            case _:
                result.append(node)
    return tuple(result)


@st.composite
def bodies(
    draw: st.DrawFn, leaves: st.SearchStrategy[Node], variables: tuple[str, ...] = ()
) -> tuple[Node, ...]:
    """Nodes inside loops over some variables."""
    result: list[Node] = []
    for _ in range(draw(st.integers(1, 3))):
        kind = draw(st.sampled_from(("leaf", "leaf", "loop", "if"))) if len(variables) < 3 else ""
        if kind == "loop":
            variable = f"l{len(variables)}"
            upper: Expr = Const(draw(st.integers(0, 3)))
            if variables and draw(st.booleans()):
                upper = Name(variables[-1])
            inside = draw(bodies(leaves, (*variables, variable)))
            result.append(Loop(variable, Const(0), upper, inside))
        elif kind == "if" and variables:
            condition = Binary(
                draw(st.sampled_from(("==", "<", ">="))),
                Name(draw(st.sampled_from(variables))),
                Const(draw(st.integers(0, 2))),
            )
            then = draw(bodies(leaves, variables))
            otherwise = draw(st.one_of(st.just(()), bodies(leaves, variables)))
            result.append(If(condition, then, otherwise))
        else:
            result.append(draw(leaves))
    return tuple(result)


def calls_of(values: int) -> st.SearchStrategy[Node]:
    """Loads of so many different states, stores of three, and a fence."""
    return st.one_of(
        st.integers(1, values).map(load),
        st.integers(1, values).map(load),
        st.integers(1, 3).map(lambda n: store(1, n)),
        st.just(Barrier("")),
    )


def wrong_in_trace(made: Program, hardware: HardwareSpec) -> list[int]:
    """Sites of executed calls that find another state than they need."""
    registers: dict[tuple[str, int], tuple[tuple[str, str], ...]] = {}
    wrong: list[int] = []
    for event in walk(made):
        if isinstance(event, Configure):
            registers[event.configuration, event.register] = event.values
        elif isinstance(event, CallEvent):
            names = [name for name, _ in hardware.intrinsic[event.call.intrinsic].configuration]
            wants = {name: needed(hardware, event.call, name) for name in names}
            held = {name: registers.get((name, n), ()) for name, n in event.call.registers}
            if held != wants:
                wrong.append(event.call.site)
    return wrong


def writes(made: Program) -> list[Configure]:
    return [node for node in all_nodes(made.body) if isinstance(node, Configure)]


def without_writes(nodes: tuple[Node, ...]) -> tuple[Node, ...]:
    result: list[Node] = []
    for node in nodes:
        match node:
            case Configure():
                pass
            case Call():
                result.append(replace(node, registers=()))
            case Loop():
                result.append(replace(node, body=without_writes(node.body)))
            case If(condition, then, otherwise):
                result.append(If(condition, without_writes(then), without_writes(otherwise)))
            case _:
                result.append(node)
    return tuple(result)


@given(st.integers(1, 3), st.data())
@RELAXED
def test_every_call_finds_its_state(registers: int, data: st.DataObject) -> None:
    hardware = chip(registers)
    before = program(data.draw(bodies(calls_of(6))))
    made = configured(before, hardware)
    assert list(configuration_problems(made, hardware)) == []
    assert wrong_in_trace(made, hardware) == []
    assert without_writes(made.body) == before.body


@given(st.integers(1, 3), st.data())
@RELAXED
def test_each_value_is_written_once_where_there_are_registers_for_all(
    registers: int, data: st.DataObject
) -> None:
    hardware = chip(registers)
    made = configured(program(data.draw(bodies(calls_of(registers)))), hardware)
    called = [n for n in all_nodes(made.body) if isinstance(n, Call)]
    loads = [w for w in writes(made) if w.configuration == "move"]
    values = {needed(hardware, c, "move") or () for c in called if c.unit == "load"}
    assert sorted(w.values for w in loads) == sorted(values)
    assert len({w.register for w in loads}) == len(loads)
    assert all(node in made.body[: len(writes(made))] for node in loads)


def test_a_loop_whose_calls_agree_is_written_before() -> None:
    hardware = chip(1)
    inner = (Loop("l1", Const(0), Const(9), (load(2),)), Loop("l1", Const(0), Const(9), (load(3),)))
    made = configured(program((load(1), Loop("l0", Const(0), Const(4), inner))), hardware)
    (first, _, outer) = made.body
    assert isinstance(first, Configure)
    assert isinstance(outer, Loop)
    assert [type(node) for node in outer.body] == [Configure, Loop, Configure, Loop]


def test_the_value_that_is_needed_most_keeps_a_register() -> None:
    hardware = chip(2)
    body: tuple[Node, ...] = (load(1), load(2), load(3), load(2))
    made = configured(program((Loop("l", Const(0), Const(8), body),)), hardware)
    of = {c.site: dict(c.registers)["move"] for c in all_nodes(made.body) if isinstance(c, Call)}
    assert of[1] == of[3]
    assert of[0] == of[2] != of[1]
    assert sum(isinstance(n, Configure) for n in all_nodes(made.body[-1:])) == 2


def test_what_a_loop_leaves_as_it_found_it_is_not_written_again() -> None:
    hardware = chip(1)
    inner: tuple[Node, ...] = (load(1), If(Binary("==", Name("l"), Const(5)), (load(2), load(1))))
    made = configured(program((load(1), Loop("l", Const(0), Const(8), inner), load(1))), hardware)
    assert [w.values[0][1] for w in writes(made)] == ["1 * 8", "2 * 8", "1 * 8"]


def test_a_loop_that_never_runs_leaves_the_register_alone() -> None:
    hardware = chip(1)
    idle = Loop("l", Const(0), Const(0), (load(1), load(2)))
    made = configured(program((load(1), idle, load(2))), hardware)
    assert list(configuration_problems(made, hardware)) == []
    assert wrong_in_trace(made, hardware) == []


# The checker.


def write(step: int, register: int = 0, width: str = "8") -> Configure:
    values = (("step", f"{step} * {width}"), ("width", width))
    return Configure("move", register, values)


def reading(step: int, register: int = 0) -> Call:
    return replace(load(step), registers=(("move", register),))


def problems(*nodes: Node, registers: int = 2) -> list[str]:
    found = configuration_problems(program(nodes), chip(registers))
    return [message for message, _, _ in found]


OTHER = "a call may find another state in move[0] than it needs"


def test_a_write_reaches_later_calls() -> None:
    assert problems(write(1), reading(1), reading(1)) == []
    assert problems(write(1), reading(2)) == [OTHER]
    assert problems(reading(1), write(1)) == [OTHER]
    assert problems(write(1, 1), reading(1)) == [OTHER]
    assert problems(write(1), write(2), reading(1)) == [OTHER]


def test_iterations_come_after_each_other() -> None:
    def loop(*body: Node, upper: Expr = FOUR) -> Loop:
        return Loop("l", Const(0), upper, body)

    assert problems(write(1), loop(reading(1), write(2), reading(2))) == [OTHER]
    assert problems(write(1), loop(write(1), reading(1), write(2), reading(2))) == []
    assert problems(loop(write(1)), reading(1)) == []
    assert problems(loop(write(1), upper=Name("n")), reading(1)) == [OTHER]
    assert problems(write(1), loop(write(1), upper=Name("n")), reading(1)) == []
    assert problems(write(1), loop(write(2), reading(9), upper=Const(0)), reading(1)) == []


def test_both_branches_count() -> None:
    def branch(then: tuple[Node, ...], otherwise: tuple[Node, ...] = ()) -> If:
        return If(Binary("==", Name("l"), Const(0)), then, otherwise)

    assert problems(branch((write(1),)), reading(1)) == [OTHER]
    assert problems(branch((write(1),), (write(1),)), reading(1)) == []
    assert problems(write(1), branch((write(2),)), reading(1)) == [OTHER]
    assert problems(write(1), branch((reading(1),), (write(2), reading(2)))) == []


def test_what_a_call_reads_and_a_write_gives() -> None:
    assert problems(write(1), load(1)) == ["a call reads other state than it depends on"]
    assert problems(write(1), reading(1, 5)) == ["move has no such register"]
    assert problems(write(1, 5)) == ["move has no such register"]
    assert problems(Configure("moves", 0, ())) == ["a write of state that the chip does not have"]
    fields = (("width", "8"), ("step", "1 * 8"))
    assert problems(Configure("move", 0, fields)) == ["a write of move gives other fields"]
    extra = replace(store(1, 1), registers=(("out", 0), ("move", 0)))
    assert problems(write(1), extra) == ["a call reads other state than it depends on"]


def test_a_step_that_changes_is_refused() -> None:
    changing = replace(
        move("load_rows", "load", ("dst", "src"), (Const(1), Name("l")), Const(2)),
        registers=(("move", 0),),
    )
    made = Loop("l", Const(0), Const(2), (write(1), changing))
    assert problems(made) == ["a call needs state that changes with loop counters"]


def test_an_extent_that_no_field_needs_may_change() -> None:
    rows = replace(load(1, Name("l")), registers=(("move", 0),))
    assert problems(write(1), Loop("l", Const(1), Const(3), (rows,))) == []


leaves = st.one_of(
    st.tuples(st.integers(1, 2), st.integers(0, 1)).map(lambda t: reading(*t)),
    st.tuples(st.integers(1, 2), st.integers(0, 1)).map(lambda t: write(*t)),
)


@given(bodies(leaves))
@settings(deadline=None, derandomize=True, max_examples=examples(80))
def test_what_the_checker_accepts_runs_with_the_right_state(nodes: tuple[Node, ...]) -> None:
    made = program((write(1), write(2, 1), *nodes))
    found = list(configuration_problems(made, chip(2)))
    wrong = wrong_in_trace(made, chip(2))
    if not any(isinstance(node, Loop | If) for node in made.body):
        assert bool(found) == bool(wrong)
    if not found:
        assert wrong == []


@pytest.mark.parametrize("value", [0.0078125, 0.1, 1e-9, 3.0, 1e20, 123456.789])
def test_floats_are_compared_as_numbers(value: float) -> None:
    hardware = load_hardware(SPEC)
    intrinsic = hardware.intrinsic["store"]
    (shift,) = intrinsic.immediates
    scaled = replace(shift, dtype="float32", range=None)
    needs = (("out", (("step", "{{ r.stride.dst }}"), ("shift", "{{ shift }} / {{ shift }}"))),)
    other = replace(intrinsic, immediates=(scaled,), configuration=needs)
    hardware = replace(
        hardware,
        intrinsics=tuple(other if i.name == "store" else i for i in hardware.intrinsics),
    )
    made = configured(program((replace(store(1, 0), immediates=(("shift", value),)),)), hardware)
    assert list(configuration_problems(made, hardware)) == []
    near = replace(store(1, 0), immediates=(("shift", value * 1.001),), registers=(("out", 0),))
    assert list(configuration_problems(program((*writes(made), near)), hardware)) != []
