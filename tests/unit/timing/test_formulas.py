"""The cost of kernels as formulas, held against the timing model and the counted bytes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from functools import cache
from math import ceil, floor
from pathlib import Path
from typing import Any

import pytest

from benchmarks.whole import simulate_timing
from hwgen.codegen.nodes import Call, If, Loop, Node, with_inner
from hwgen.codegen.program import Program
from hwgen.completing import compile_scripted
from hwgen.errors import HwgenError
from hwgen.model import tally as counting
from hwgen.model.columns import off_chip_traffic
from hwgen.model.cost_text import cost_text
from hwgen.model.formulas import Cost, cost_of
from hwgen.model.symbolic import Formula, shown, symbolic, value
from hwgen.model.tally import Parameters, tally
from hwgen.passes.kernel import Kernel
from hwgen.passes.scripting import compile_script
from hwgen.pipeline import compile_workload
from hwgen.spec.expression import Binary, Const, Name, evaluate
from hwgen.spec.grammar import parse_expression
from hwgen.spec.hardware import HardwareSpec
from hwgen.spec.load import load_hardware, load_workload, parse_hardware, parse_workload
from hwgen.spec.workload import Workload
from tests.fuzz.chips.draw import draw_of
from tests.hosts_beside import beside
from tests.samples import PAIRS, ROOT, SMALLER, tiled_gemm_requant
from tests.samples import chip as first_chip
from tests.sampling import QUICK, THOROUGH, examples, some, tiered
from tests.unit.timing.test_posted import posting

SCHEDULES = ROOT / "workloads" / "schedules"
SPECS = ROOT / "tests" / "specs"


@cache
def compiled(chip: Path, workload: Path, sizes: tuple[tuple[str, int], ...] = ()) -> Kernel:
    given = dict(sizes) or SMALLER.get((chip.stem, workload.stem), {})
    return compile_workload(load_workload(workload, given), load_hardware(chip), QUICK)


def named(chip: str, workload: str, **sizes: int) -> Kernel:
    where = ROOT / "workloads" / f"{workload}.yaml"
    return compiled(ROOT / "hw_specs" / f"{chip}.yaml", where, tuple(sizes.items()))


def read(text: str, numbers: Mapping[str, int]) -> Fraction:
    """What a printed formula comes to, by a reader that knows nothing of its making."""
    functions: dict[str, Any] = {"ceil": ceil, "floor": floor, "max": max, "min": min}
    given = {name: Fraction(n) for name, n in numbers.items()}
    return Fraction(eval(text, {"__builtins__": {}}, functions | given))


def number(formula: Formula, numbers: Mapping[str, int]) -> Fraction:
    return read(shown(formula), numbers)


def hold(cost: Cost, c: Kernel) -> None:
    """Every formula gives its number as it is printed, and the numbers are those of the models."""
    trips = {t.name: t.number for t in cost.parameters}
    assert len(trips) == len(cost.parameters)
    sizes = dict(c.workload.sizes)
    for parameter in cost.parameters:
        if " from " not in parameter.origin:
            assert read(parameter.origin, sizes) == parameter.number, parameter
    timed = {u.unit: u for u in c.timing.units}
    assert [u.unit for u in cost.units] == list(timed)
    for unit in cost.units:
        assert number(unit.formula, trips) == unit.number, unit
        found = timed[unit.unit]
        assert unit.busy == found.busy
        assert unit.posts or unit.number == found.busy - found.bus, unit
        assert unit.waits >= found.bus
        mine = [call for call in cost.calls if call.unit == unit.unit]
        assert sum(call.cycles * call.number for call in mine) == unit.number
    executed: dict[str, int] = {}
    for call in cost.calls:
        assert number(call.times, trips) == call.number
        assert number(call.rule, dict(call.given)) == call.cycles
        executed[call.name] = executed.get(call.name, 0) + call.number
    of_units = {n: k for n, k in c.timing.calls if n not in ("barrier", "fence", "processor")}
    assert {n: k for n, k in executed.items() if n in of_units} == of_units
    moved: dict[tuple[str, str], int] = {}
    for tensor in cost.tensors:
        assert number(tensor.formula, trips) == tensor.number
        if tensor.way:
            key = tensor.tensor, tensor.way
            moved[key] = moved.get(key, 0) + tensor.number
    counted = off_chip_traffic(c.program, c.hardware, c.workload)
    both = {(t.tensor, "load"): t.loaded for t in counted}
    both |= {(t.tensor, "store"): t.stored for t in counted}
    assert moved == {key: n for key, n in both.items() if n}
    elsewhere = sum(t.number for t in cost.tensors if not t.way)
    assert elsewhere == sum(code.memory_bytes for code in c.program.codes)


SOME = some(PAIRS, 4)


@pytest.mark.parametrize(("chip", "workload"), tiered(SOME, SOME[::3]), ids=lambda path: path.stem)
def test_formulas_give_what_the_models_count(chip: Path, workload: Path) -> None:
    c = compiled(chip, workload)
    hold(c.formulas, c)


@pytest.mark.parametrize(
    ("chip", "workload", "sizes"),
    [
        ("vta", "gemm_requant", {"M": 300, "N": 200, "K": 500}),
        pytest.param("npu_shared_buffer", "mlp", {"M": 333}, marks=THOROUGH),
        ("npu_shared_buffer", "matmul", {"M": 133, "N": 77, "K": 201}),
        ("vtcm_two_banks", "matmul", {"M": 133, "N": 77, "K": 201}),
        pytest.param("gemmini", "gemm_scaled", {"M": 200, "N": 90, "K": 300}, marks=THOROUGH),
        ("tpu_v1", "gemm_requant", {"M": 30, "N": 300, "K": 700}),
    ],
    ids=str,
)
def test_partial_tiles_and_ends_are_in_the_formulas(
    chip: str, workload: str, sizes: dict[str, int]
) -> None:
    c = named(chip, workload, **sizes)
    assert c.formulas.parameters
    hold(c.formulas, c)


@pytest.mark.parametrize("spec", ["two_stage_events", "two_stage_semaphores", "two_stage_barrier"])
def test_signals_and_waits_keep_units_busy_too(spec: str) -> None:
    c = compiled(SPECS / f"{spec}.yaml", ROOT / "workloads" / "matmul.yaml", (("K", 500),))
    hold(c.formulas, c)


def test_chips_that_are_drawn() -> None:
    """Banks, events, queues, hosts, lanes, configurations: whatever a draw has."""
    found = 0
    for seed in range(examples(12)):
        draw = draw_of(seed)
        try:
            workload, chip = parse_workload(draw.data[1]), parse_hardware(draw.data[0])
            c = compile_workload(workload, chip, QUICK)
        except HwgenError:
            continue  # Many a draw computes nothing; `tests.fuzz chips` says whether it should.
        hold(c.formulas, c)
        found += 1
    assert found > 3


@pytest.mark.parametrize(
    ("chip", "workload", "sizes"),
    [
        ("vta", "gemm_requant", {"M": 300, "N": 200, "K": 500}),
        # Bursts of rows that begin everywhere.
        ("npu_shared_buffer", "matmul", {"M": 133, "N": 77, "K": 201}),
    ],
    ids=str,
)
def test_the_timing_that_skips_nothing_agrees(
    chip: str, workload: str, sizes: dict[str, int]
) -> None:
    c = named(chip, workload, **sizes)
    whole = simulate_timing(c.lowering.program, c.hardware)
    for unit, found in zip(c.formulas.units, whole.units, strict=True):
        assert (unit.unit, unit.number) == (found.unit, found.busy - found.bus)


def test_what_is_written_by_hand_has_no_parameters_but_numbers() -> None:
    """Loops that are of no schedule are numbers; those that are have their trips."""
    program = tiled_gemm_requant(256, 256, 256)
    timing = simulate_timing(program, first_chip())
    for loops in ((), ("nt", "mt"), ("mt",)):
        parameters = Parameters(loops)
        counts, exact = tally(program, first_chip(), parameters)
        assert exact
        assert {p.name for p in parameters.all} <= {*loops}
        trips = {p.name: p.trips for p in parameters.all}
        sums = dict.fromkeys((u.unit for u in timing.units), Fraction(0))
        for kind, count in counts.items():
            for monomial, factor in count.items():
                times = Fraction(factor)
                for name in monomial:
                    times *= trips[name]
                sums[kind.unit] += times * kind.cycles
        assert sums == {u.unit: u.busy - u.bus for u in timing.units}


SCALED = (
    ("vta", "gemm_requant", (256, 64, 64), (1024, 64, 64), (("m", 32), ("n", 32), ("k", 32))),
    ("npu_shared_buffer", "matmul", (2048, 64, 64), (4096, 64, 64), (("m", 16), ("n", 32))),
)


@pytest.mark.parametrize(
    ("chip", "name", "sizes", "larger", "tiles"), tiered(SCALED, SCALED[1:]), ids=str
)
def test_other_trips_give_the_cost_of_a_larger_problem(
    chip: str,
    name: str,
    sizes: tuple[int, ...],
    larger: tuple[int, ...],
    tiles: tuple[tuple[str, int], ...],
) -> None:
    """With the same tiles, none of them partial, what grows with the trips grows so."""
    hardware = load_hardware(ROOT / "hw_specs" / f"{chip}.yaml")
    where = ROOT / "workloads" / f"{name}.yaml"

    def workload(extents: tuple[int, ...]) -> Workload:
        return load_workload(where, dict(zip("MNK", extents, strict=True)))

    wanted = "".join(f"{n}_o, {n}_i = s.split('{n}', factor={size})\n" for n, size in tiles)
    script = compile_scripted(workload(sizes), hardware, wanted, options=QUICK).script
    small = compile_script(workload(sizes), hardware, script).formulas
    large = compile_script(workload(larger), hardware, script).formulas
    trips = {t.name: t.number for t in large.parameters}
    assert trips.keys() == {t.name for t in small.parameters}
    assert trips != {t.name: t.number for t in small.parameters}
    assert [t.origin for t in small.parameters] == [t.origin for t in large.parameters]
    for mine, theirs in zip(small.units, large.units, strict=True):
        assert value(mine.formula, trips) == theirs.number, mine.unit
    for mine, theirs in zip(small.tensors, large.tensors, strict=True):
        assert value(mine.formula, trips) == theirs.number, mine.tensor


# What must be noticed


def again(c: Kernel, program: Program, hardware: HardwareSpec) -> Cost:
    trees = [part.tree for part in c.lowering.parts]
    return cost_of(program, hardware, c.workload, trees, c.timing)


def one_more_cycle(hardware: HardwareSpec, name: str) -> HardwareSpec:
    """A chip one of whose intrinsics takes a cycle more."""
    intrinsics = tuple(
        replace(i, cycles=Binary("+", i.cycles, Const(1))) if i.name == name else i
        for i in hardware.intrinsics
    )
    return replace(hardware, intrinsics=intrinsics)


@pytest.mark.parametrize("name", ["load_inp", "gemm", "store_out"])
def test_another_formula_of_a_call_is_noticed(name: str) -> None:
    c = named("vta", "gemm", M=256)
    hold(again(c, c.lowering.program, c.hardware), c)
    cost = again(c, c.lowering.program, one_more_cycle(c.hardware, name))
    with pytest.raises(AssertionError):
        hold(cost, c)
    (unit,) = (u for u in cost.units if u.unit == c.hardware.intrinsic[name].unit)
    times = sum(call.number for call in cost.calls if call.name == name)
    assert unit.waits == c.timing.unit(unit.unit).bus - times


def changed(program: Program, number: int) -> Program:
    """A program whose loop of a number, in textual order, runs once less; or whose condition holds
    always."""
    left = [number]

    def edit(nodes: tuple[Node, ...]) -> tuple[Node, ...]:
        made: list[Node] = []
        for node in nodes:
            calls = isinstance(node, If) and any(isinstance(n, Call) for n in node.then)
            left[0] -= isinstance(node, Loop) or calls
            if left[0] == -1 and isinstance(node, Loop):
                left[0] = -2
                made.append(replace(node, upper=Binary("-", node.upper, Const(1))))
            elif left[0] == -1 and isinstance(node, If):
                left[0] = -2
                made += node.then
            else:
                made.append(with_inner(node, edit))
        return tuple(made)

    return replace(program, body=edit(program.body))


def test_other_trips_of_a_loop_and_other_conditions_are_noticed() -> None:
    c = named("gemmini", "gemm_scaled", M=200, N=90, K=300)
    program, seen = c.lowering.program, 0
    while (mutant := changed(program, seen)) != program:
        with pytest.raises(AssertionError):
            hold(again(c, mutant, c.hardware), c)
        seen += 1
    assert seen > 5


# What is told beside


def test_posted_writes_wait_beside_the_formula() -> None:
    c = named("vta", "gemm", M=256)
    chip = posting(1, c.hardware)
    timing = simulate_timing(c.lowering.program, chip)
    trees = [part.tree for part in c.lowering.parts]
    cost = cost_of(c.lowering.program, chip, c.workload, trees, timing)
    (store,) = (u for u in cost.units if u.unit == "store")
    assert store.posts
    assert store.waits >= 0
    assert store.number + store.waits == timing.unit("store").busy
    assert "Those of store are for room in the buffer of posted writes too." in cost_text(cost)
    assert all(u.waits == timing.unit(u.unit).bus for u in cost.units if u.unit != "store")


def test_cycles_are_of_one_worker_and_bytes_of_all() -> None:
    sizes = {"M": 127, "N": 64, "K": 32}
    workload = load_workload(ROOT / "workloads" / "matmul.yaml", sizes)
    chip = load_hardware(ROOT / "hw_specs" / "x86_avx512.yaml", {"CORES": 2})
    script = (SCHEDULES / "matmul_two_cores.script").read_text(encoding="utf-8")
    c = compile_script(workload, chip, script)
    hold(c.formulas, c)
    assert c.formulas.shared
    assert "bytes those of all" in c.stage("cost")
    assert not named("vta", "gemm", M=256).formulas.shared


def test_what_a_processor_computes_is_a_number() -> None:
    workload = load_workload(ROOT / "workloads" / "layernorm.yaml")
    c = compile_workload(workload, beside("vta"), QUICK)
    assert c.program.codes
    hold(c.formulas, c)
    assert [u.unit for u in c.formulas.units][-1] == "processor"


def test_long_programs_are_counted_exactly_and_else_that_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    c = named("npu_shared_buffer", "matmul", M=12500, N=300, K=700)
    assert c.formulas.exact
    assert not c.formulas.timed
    text = c.stage("cost")
    assert "at a mean rate" not in text
    assert "at their mean rate" in text
    monkeypatch.setattr(counting, "EXACT_OPERATIONS", 100)
    sampled = again(c, c.lowering.program, c.hardware)
    assert not sampled.exact
    assert "at a mean rate" in cost_text(sampled)
    calls = dict(c.timing.calls)
    for cost in (c.formulas, sampled):
        trips = {t.name: t.number for t in cost.parameters}
        for unit in cost.units:
            assert number(unit.formula, trips) == unit.number
        for name in ("load", "matmul", "store"):
            assert sum(x.number for x in cost.calls if x.name == name) == calls[name]
    for unit, mean in zip(c.formulas.units, sampled.units, strict=True):
        assert mean.number == pytest.approx(unit.number, rel=0.001)


def test_a_loop_with_other_trips_has_another_parameter() -> None:
    parameters = Parameters(("m", "m_2"))
    assert [parameters.of("m", 0, 8), parameters.of("m", 1, 9)] == ["m", "m"]
    assert [parameters.of("m", 0, 7), parameters.of("m_2", 0, 3)] == ["m_3", "m_2"]
    assert [parameters.of("m", 4, 5), parameters.of("call0", 0, 9)] == ["", ""]
    assert parameters.all[0].bounds == [(0, 8), (1, 9)]


# The spec's expressions

FORMULAS = (
    "4 + ceil(n / 16)", "max(n, 4) + min(k, 3)", "7*n - 2*k + 1", "(n + 3) // 4", "n % 5 + n % k",
    "n << 2", "n >> k", "clip(n, 3, 9)", "select(n > k, n, 2*k)", "floor(n / k) + abs(k - n)",
    "ceil(0.5 * n)", "(n < k) + (n <= k) + (n > k) + (n >= k) + (n == k) + (n != k)",
    "(n > 3 and k > 1) + (n > 3 or k > 1) + (not n)", "ceil(-n / 7)", "1.25 * n + k / 4",
)  # fmt: skip


@pytest.mark.parametrize("text", FORMULAS)
def test_a_formula_means_what_the_expression_does(text: str) -> None:
    expression = parse_expression(text)
    formula = symbolic(expression)
    for n in (0, 1, 2, 3, 4, 7, 16, 33):
        for k in (1, 2, 5):
            names = {"n": n, "k": k}
            expected = ceil(evaluate(expression, names))
            ceiled = symbolic(parse_expression(f"ceil({text})"))
            assert value(ceiled, names) == expected, (text, names)
    for function in re.findall(r"ceil|floor|max|min", text):
        assert function in shown(formula)


def test_what_is_no_number_has_no_formula() -> None:
    with pytest.raises(TypeError):
        symbolic(parse_expression("exp(n)"))
    assert shown(symbolic(Name("n"))) == "n"
