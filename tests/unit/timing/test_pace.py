"""Units that wait for each other's results alone: what repeats is skipped, and changes nothing."""

from __future__ import annotations

from itertools import count
from pathlib import Path
from random import Random
from typing import cast

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from benchmarks.whole import simulate_timing
from hwgen.codegen.nodes import Call, Loop, Node
from hwgen.codegen.program import Program
from hwgen.codegen.sync_nodes import Barrier
from hwgen.model import loop_runner
from hwgen.model.footprints import Space
from hwgen.model.machine import Machine
from hwgen.model.pace import Pace, Shift
from hwgen.model.periodicity import Use
from hwgen.model.scoreboard import Board, cycle_costs
from hwgen.model.stream import Costs, Operation, Stream
from hwgen.model.timing import TimingResult, estimate_cycles
from hwgen.pipeline import compile_workload
from hwgen.spec.expression import Const, Expr, Name, add, multiply
from hwgen.spec.hardware import HardwareSpec
from hwgen.spec.load import load_hardware, load_workload
from tests.sampling import EVERYTHING, THOROUGH, examples, tiered
from tests.unit.timing.nests import image, operand

ROOT = Path(__file__).parents[3]
KERNELS: list[tuple[str, dict[str, int]]] = [
    ("matmul", {"M": 8, "N": 24, "K": 256}),
    ("matmul", {"M": 13, "N": 50, "K": 300}),
    ("matmul", {"M": 37, "N": 65, "K": 33}),
    ("linear_relu", {"M": 20, "N": 40, "K": 30}),
    ("attention", {"L": 33, "D": 16}),
    ("mlp", {"M": 2, "K": 24, "H": 32, "G": 20, "N": 16}),
]


LANES = 8, 16
CASES = [
    (*kernel, lanes)
    for n, kernel in enumerate(KERNELS)
    for lanes in (LANES if EVERYTHING else (LANES[n % 2],))
]
"""Else of each kernel the one or the other."""


def vectors(lanes: int) -> HardwareSpec:
    return load_hardware(ROOT / "hw_specs" / f"x86_avx{'512' if lanes == 16 else '2'}.yaml")


def counted(result: TimingResult) -> tuple[object, ...]:
    return result.cycles, result.units, result.calls, result.busy_by_name, result.busy_by_site


def skipping(program: Program, hardware: HardwareSpec) -> TimingResult:
    """A run that skips every repetition it finds."""
    costs = cycle_costs(program, hardware)
    machine = Machine(hardware, costs)
    stream = Stream(program, hardware, costs, machine, skip=machine)
    stream.run()
    return machine.result(stream)


@pytest.mark.parametrize(("name", "given", "lanes"), tiered(CASES, CASES[2:3]))
def test_what_is_estimated_is_what_is_simulated(
    name: str, given: dict[str, int], lanes: int
) -> None:
    hardware = vectors(lanes)
    workload = load_workload(ROOT / "workloads" / f"{name}.yaml", given)
    program = compile_workload(workload, hardware).program
    estimated, simulated = estimate_cycles(program, hardware), simulate_timing(program, hardware)
    assert estimated.exact
    assert counted(estimated) == counted(simulated)


def test_units_that_wait_for_barriers_get_on_alike() -> None:
    """With barriers only where all that moved did so by as much as these; without, units that
    wait for nothing may differ."""
    pace = Pace(2, 0)
    before = pace.counts()
    assert pace.steady(before, Shift([5, 4], [], 0, 0))
    pace.passed()
    assert pace.steady(before, Shift([5, 5], [], 5, 0))
    assert pace.steady(before, Shift([5, 0], [], 5, 0))
    assert not pace.steady(before, Shift([5, 4], [], 5, 0))
    assert not pace.steady(before, Shift([5, 5], [], 4, 0))


def test_what_is_read_is_settled_once_the_last_write_lets_others_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    board = Board(cast("Costs", None), 2, 3, renames=True)
    monkeypatch.setattr(board, "_spaces", [Space("m", 4, 2, onchip=False)])
    read = Use(0, 1, False)
    assert board.settled(read, 0)
    board.enter(Operation(1, 0, "write", 0, touches=((0, 0, True),)))
    assert not board.settled(read, 1000)
    assert board.settled(Use(0, 0, False), 5)  # Its own calls are in order.
    board.finish(0, 10, [0, 0])
    assert not board.settled(read, 12)
    assert board.settled(read, 13)


REGISTERS = 6
UNITS = {"pack": "load", "load": "load", "fma": "fma", "zero": "fma", "store": "store"}


def drawn(draw: Random, site: int, loops: tuple[str, ...]) -> Call:
    """A call whose addresses move with the loops around it, but for registers and for most of what
    is packed into `rows`."""

    def moved(*strides: int) -> Expr:
        found: Expr = Const(draw.randrange(4))
        for loop in loops:
            found = add(found, multiply(Name(loop), Const(draw.choice(strides))))
        return found

    def register() -> Expr:
        return Const(draw.randrange(REGISTERS))

    lines, anywhere = (0, 16, 64), (0, 1, 7, 16)
    kinds: dict[str, list[tuple[str, str, Expr]]] = {
        "pack_row": [("dst", "r", moved(0, 0, 0, 7)), ("src", "a", moved(*lines))],
        "pack": [("dst", "p", moved(*anywhere)), ("src", "a", moved(*lines))],
        "load": [("dst", "z", register()), ("src", "p", moved(*anywhere))],
        "load_direct": [("dst", "z", register()), ("src", "a", moved(*lines))],
        "fma": [("c", "z", register()), ("a", "r", moved(*anywhere)), ("b", "z", register())],
        "fma_direct": [("c", "z", register()), ("a", "a", moved(*lines)), ("b", "z", register())],
        "zero": [("dst", "z", register())],
        "store": [("dst", "c", moved(*lines)), ("src", "z", register())],
        "store_add": [("dst", "c", moved(*lines)), ("src", "z", register())],
    }
    often = ["fma", "fma", "load", *kinds]
    name = draw.choice(often)
    given = tuple(operand(n, buffer, at) for n, buffer, at in kinds[name])
    return Call(site, name, UNITS[name.split("_")[0]], given, ())


def nest(seed: int) -> Program:
    """Loops around calls and each other, a fence now and then."""
    draw, sites = Random(seed), count()

    def body(loops: tuple[str, ...]) -> tuple[Node, ...]:
        nodes: list[Node] = []
        for _ in range(draw.randint(1, 4)):
            if draw.random() < 0.4 and len(loops) < 3:
                variable = f"i{next(sites)}"
                inside = body((*loops, variable))
                nodes.append(Loop(variable, Const(0), Const(draw.choice([3, 7, 15])), inside))
            elif draw.random() < 0.05:
                nodes.append(Barrier(""))
            else:
                nodes += [drawn(draw, next(sites), loops) for _ in range(draw.randint(1, 3))]
        return tuple(nodes)

    images = (image("a", "float32", (1 << 16,), (1, 1)), image("c", "float32", (1 << 16,), (1, 1)))
    outer = Loop("o", Const(0), Const(draw.choice([5, 12])), body(("o",)))
    return Program("p", "x", "w", ("a",), ("c",), images, (), (), (outer,))


@THOROUGH
@settings(max_examples=examples(25), deadline=None)
@example(4)
@example(31)
@example(131)
@given(st.integers(0, 1 << 32))
def test_nests_that_are_drawn_are_skipped_exactly(seed: int) -> None:
    hardware, program = vectors(16), nest(seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop_runner, "STEP_OPERATIONS", 1)
        skipped = skipping(program, hardware)
    assert counted(skipped) == counted(simulate_timing(program, hardware))


def test_a_product_is_simulated_in_a_part_of_its_operations() -> None:
    """Panels that are read at other addresses each time do not keep its loops from repeating."""
    hardware = vectors(8)
    program = compile_workload(
        load_workload(ROOT / "workloads" / "matmul.yaml", {}), hardware
    ).program
    machine = Machine(hardware, costs := cycle_costs(program, hardware))
    stream = Stream(program, hardware, costs, machine, skip=machine)
    stream.run()
    assert 20 * stream.emitted < sum(count for _, count in machine.result(stream).calls)
