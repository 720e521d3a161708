"""The walk agrees with a plain interpreter of loops."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import pytest

from hwgen.codegen.nodes import Call, If, Loop, Node, Pop, Push, Sync
from hwgen.codegen.program import Program
from hwgen.errors import HwgenError
from hwgen.model import trace
from hwgen.model.trace import CallEvent, Event, walk
from hwgen.spec.expression import Binary, Const, Name, evaluate
from tests.samples import load_bound_gemm, tiled_gemm_requant

Key = tuple[object, ...]


def interpret(nodes: tuple[Node, ...], values: Mapping[str, int]) -> Iterator[Key]:
    """The events by the obvious recursion."""
    for node in nodes:
        match node:
            case Sync():
                yield (node,)
            case If(condition, then, otherwise):
                yield from interpret(then if evaluate(condition, values) else otherwise, values)
            case Loop(variable, lower, upper, body):
                for i in range(int(evaluate(lower, values)), int(evaluate(upper, values))):
                    yield from interpret(body, {**values, variable: i})
            case Call():
                yield (
                    node.site,
                    tuple(evaluate(o.address, values) for o in node.operands),
                    tuple(tuple(evaluate(s, values) for s in o.strides) for o in node.operands),
                    tuple(evaluate(e, values) for e in node.extents),
                    0 if node.variant is None else evaluate(node.variant, values),
                    tuple(values.items()),
                )
            case _:
                raise AssertionError(node)


def key(event: Event) -> Key:
    if isinstance(event, CallEvent):
        named = tuple(zip(event.site.variables, event.values, strict=True))
        return (
            event.call.site,
            event.addresses,
            event.strides,
            event.extents,
            event.variant,
            named,
        )
    return (event,)


PROGRAMS = [load_bound_gemm(), tiled_gemm_requant(256, 256, 64), tiled_gemm_requant(16, 16, 16)]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.name)
@pytest.mark.parametrize("block", [1, 7, 40, 1 << 15])
def test_events_are_those_of_a_plain_interpreter(
    program: Program, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trace, "BLOCK_EVENTS", block)
    assert [key(e) for e in walk(program)] == list(interpret(program.body, {}))


def test_bounds_may_depend_on_outer_loops_and_be_empty() -> None:
    i, j = Name("i"), Name("j")
    inner = If(Binary("==", Binary("%", j, Const(2)), i), (Push("a", "b"),), (Pop("a", "b"),))
    nodes = (
        Loop("i", Const(-1), Const(4), (Loop("j", i, Const(2), (inner,)), Pop("b", "a"))),
        Loop("k", Const(3), Const(1), (Push("x", "y"),)),
    )
    program = replace(load_bound_gemm(), body=nodes)
    assert [key(e) for e in walk(program)] == list(interpret(nodes, {}))


def test_events_print_their_numbers() -> None:
    first = next(trace.calls(load_bound_gemm()))
    assert str(first) == (
        "load_inp(dst=a_local@0 step [16, 1], src=a_image@0 step [16, 1]) over 1 x 16 [site 0]"
    )


def test_an_unbound_name_is_an_error() -> None:
    program = load_bound_gemm()
    loop = program.body[1]
    assert isinstance(loop, Loop)
    with pytest.raises(HwgenError, match="H728"):
        list(walk(replace(program, body=loop.body)))
