"""Nodes counted by what is wanted of them, against a walk of the program node by node."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from math import prod

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hwgen.codegen.nodes import Call, If, Loop, Node
from hwgen.codegen.program import Program
from hwgen.model.columns import count_calls, intrinsic_iterations
from hwgen.model.loop_runner import LoopRunner
from hwgen.model.periodicity import Zone
from hwgen.model.tally import Parameters, executed
from hwgen.spec.expression import Binary, Const, Expr, evaluate
from tests.samples import chip, tiled_gemm_requant
from tests.unit.timing.nests import gemm_nest

BOUNDARY = Const(24)
Found = Counter[tuple[int, tuple[int, ...]]]


def wanted(call: Call) -> Sequence[Expr]:
    """How often a call runs, and how its operands are aligned."""
    return *call.extents, *(Binary("%", o.address, BOUNDARY) for o in call.operands)


def runs(
    nodes: Sequence[Node], values: Mapping[str, int]
) -> Iterator[tuple[Call, tuple[int, ...]]]:
    """Every call that runs, one after the other, and the values of what is wanted of it."""
    for node in nodes:
        match node:
            case Call():
                yield node, tuple(int(evaluate(e, values)) for e in wanted(node))
            case Loop(name, lower, upper, body):
                for n in range(int(evaluate(lower, values)), int(evaluate(upper, values))):
                    yield from runs(body, {**values, name: n})
            case If(condition, then, otherwise):
                yield from runs(then if evaluate(condition, values) else otherwise, values)
            case _:
                pass


def by_walk(program: Program) -> Found:
    return Counter((call.site, values) for call, values in runs(program.body, {}))


def by_tally(program: Program, *loops: str) -> Found:
    """The same as the tally has it; loops that are parameters run as often as these say."""
    parameters = Parameters(loops)
    found: Found = Counter()
    for run in executed(program, chip(), Call, wanted, parameters):
        trips = {p.name: p.trips for p in parameters.all}
        times = sum(n * prod(trips[name] for name in names) for names, n in run.count.items())
        assert times == int(times)
        found[run.node.site, run.values] += int(times)
    return found


PROGRAMS = (
    gemm_nest((3, 2, 5), (4, 3, 2), tail_rows=1),
    gemm_nest((7, 5, 3), (5, 7, 1), tail_rows=4),
    tiled_gemm_requant(256, 256, 256),
)


@pytest.mark.parametrize("program", PROGRAMS, ids=("tails", "odd", "conditions"))
def test_every_execution_is_counted_once(program: Program) -> None:
    assert by_tally(program) == by_walk(program)
    assert count_calls(program, chip()) == by_walk(program).total()
    work: Counter[str] = Counter()
    sites = {call.site: call for call, _ in runs(program.body, {})}
    for (site, values), times in by_walk(program).items():
        call = sites[site]
        each = prod(values[: len(call.extents)])
        each = program.kernel[call.kernel].iterations if call.kernel else each
        work[call.intrinsic] += each * times
    assert intrinsic_iterations(program, chip()) == work


@settings(max_examples=15, deadline=None)
@given(
    st.tuples(st.integers(1, 6), st.integers(1, 5), st.integers(1, 5)),
    st.tuples(st.integers(1, 6), st.integers(1, 4), st.integers(1, 4)),
    st.integers(0, 3),
)
def test_nests_that_are_drawn(
    tiles: tuple[int, int, int], tile: tuple[int, int, int], tail: int
) -> None:
    program = gemm_nest(tiles, tile, tail_rows=tail % tile[0])
    assert by_tally(program) == by_walk(program)


def test_polynomials_give_the_same_at_their_trips() -> None:
    for program in PROGRAMS:
        loops = {n.variable for n in program.body if isinstance(n, Loop)}
        assert loops
        assert by_tally(program, *loops) == by_walk(program)


def test_periods_that_are_too_short_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Alignments count: no iteration stands for one whose bursts begin elsewhere."""
    program = PROGRAMS[1]
    right = LoopRunner._zones  # pyright: ignore[reportPrivateUsage]

    def short(self: LoopRunner, first: int, end: int, settled: bool = False) -> tuple[Zone, ...]:
        return tuple(Zone(z.start, z.end, 1, 1) for z in right(self, first, end, settled))

    monkeypatch.setattr(LoopRunner, "_zones", short)
    assert by_tally(program) != by_walk(program)
