"""Calls whose iterations collide in every way, against a scalar interpreter in stream order."""

from __future__ import annotations

from itertools import product
from math import prod

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hwgen.codegen.nodes import Call
from hwgen.errors import HwgenError
from hwgen.model import execution
from hwgen.model.functional import run
from hwgen.spec.expression import Access, Assign, Binary, Const, Expr, Name, evaluate, walk
from hwgen.spec.expression import Call as Function
from hwgen.spec.hardware import Intrinsic
from tests.unit.model.toy import ENTRIES, LANES, call, chip, intrinsic, program

INTRINSICS = [
    intrinsic("mac", ["dst[i] += a[i, j] * src[j]"]),
    intrinsic("scale", ["dst[j] = dst[j] + src[j] * imm"]),
    intrinsic("copy", ["dst[j] = src[j]"]),
    intrinsic("top", ["dst[j] max= src[j]"]),
    intrinsic("low", ["dst[i] min= a[i, j]"]),
    intrinsic("twice", ["dst[j] = src[j] - 1", "dst[j] = dst[j] * 3"]),
    intrinsic("clear", ["dst[j] = 0"]),
    intrinsic("total", ["dst[i] += a[i, j]"]),
    intrinsic("powers", ["dst[j] += dst[j] * src[j]"]),
]


def wrap(number: int) -> int:
    return (number + (1 << 31)) % (1 << 32) - (1 << 31)


def number(expr: Expr, local: list[list[int]], at: dict[str, int], lane: dict[str, int]) -> int:
    """The value of an expression at one point of the lanes, in int32."""
    match expr:
        case Const(value):
            return int(value)
        case Name(name):
            return lane[name]
        case Access(tensor, indices):
            *outer, last = (lane[i.name] for i in indices if isinstance(i, Name))
            return local[at[tensor] + (outer[0] if outer else 0)][last]
        case Binary(op, left, right):
            a, b = number(left, local, at, lane), number(right, local, at, lane)
            return wrap({"+": a + b, "-": a - b, "*": a * b}[op])
        case Function(("max" | "min") as name, (left, right)):
            pick = max if name == "max" else min
            return pick(number(left, local, at, lane), number(right, local, at, lane))
        case _:
            raise AssertionError(expr)


def step(
    statement: Assign, rules: Intrinsic, local: list[list[int]], at: dict[str, int], imm: int
) -> None:
    """One statement of one iteration: every value first, then every update."""
    extents = dict(rules.iterators)
    used = {
        n.name for n in (*walk(statement.target), *walk(statement.value)) if isinstance(n, Name)
    }
    names = [n for n in extents if n in used]
    points = [
        dict(zip(names, p, strict=True)) | {"imm": imm}
        for p in product(*(range(extents[n]) for n in names))
    ]
    values = [number(statement.value, local, at, p) for p in points]
    for point, value in zip(points, values, strict=True):
        (index,) = statement.target.indices
        assert isinstance(index, Name)
        entry, lane = at["dst"], point[index.name]
        old = local[entry][lane]
        match statement.op:
            case "=":
                local[entry][lane] = wrap(value)
            case "+=":
                local[entry][lane] = wrap(old + value)
            case "max=":
                local[entry][lane] = max(old, value)
            case "min=":
                local[entry][lane] = min(old, value)


def interpret(rules: Intrinsic, made: Call, start: npt.NDArray[np.int32]) -> list[list[int]]:
    local: list[list[int]] = start.tolist()
    imm = int(dict(made.immediates).get("imm", 0))
    extents = [int(evaluate(e, {})) for e in made.extents]
    for position in product(*map(range, extents)):
        at = {
            o.name: int(evaluate(o.address, {}))
            + sum(i * int(evaluate(s, {})) for i, s in zip(position, o.strides, strict=True))
            for o in made.operands
        }
        for statement in rules.semantics:
            step(statement, rules, local, at, imm)
    return local


@st.composite
def collisions(draw: st.DrawFn) -> tuple[Intrinsic, Call]:
    rules = draw(st.sampled_from(INTRINSICS))
    extents = draw(st.lists(st.integers(1, 3), min_size=3, max_size=3))
    operands: dict[str, tuple[str, int, list[int]]] = {}
    for operand in rules.operands:
        strides = draw(st.lists(st.integers(-1, 3), min_size=3, max_size=3))
        ends = [(e - 1) * s for e, s in zip(extents, strides, strict=True)]
        low = -sum(min(0, e) for e in ends)
        high = ENTRIES - prod(operand.shape) // LANES - sum(max(0, e) for e in ends)
        near = draw(st.sampled_from([low, min(high, low + 1), min(high, low + 4)]))
        operands[operand.name] = ("all", near, strides)
    immediates = {"imm": draw(st.integers(-9, 9))} if rules.immediates else {}
    return rules, call(1, rules.name, operands, extents, immediates)


START = np.random.default_rng(7).integers(-(1 << 31), 1 << 31, (ENTRIES, LANES)).astype(np.int32)


@settings(max_examples=120, deadline=None)
@given(collisions(), st.sampled_from([16, 1 << 22]))
def test_any_call_is_executed_as_in_order(case: tuple[Intrinsic, Call], block: int) -> None:
    rules, made = case
    whole = execution.BLOCK_ELEMENTS
    execution.BLOCK_ELEMENTS = block
    try:
        result = run(program(made), chip(*INTRINSICS), {"x": START})
    finally:
        execution.BLOCK_ELEMENTS = whole
    assert result.outputs["y"].tolist() == interpret(rules, made, START)


def test_a_running_sum_needs_order() -> None:
    """Each entry adds the one before, which the same call has just changed."""
    scale = INTRINSICS[1]
    made = call(
        1, "scale", {"dst": ("all", 1, (0, 0, 1)), "src": ("all", 0, (0, 0, 1))}, (1, 1, 9),
        {"imm": 1},
    )  # fmt: skip
    start = np.ones((ENTRIES, LANES), np.int32)
    result = run(program(made), chip(scale), {"x": start}).outputs["y"]
    assert result[:12, 0].tolist() == [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 1, 1]


@pytest.mark.parametrize(
    ("distance", "latency", "code"),
    [(1, 1, ""), (1, 2, "H721"), (2, 2, ""), (2, 3, "H721"), (0, 9, ""), (3, 3, "")],
)
def test_results_arrive_late(distance: int, latency: int, code: str) -> None:
    """Iteration i writes entry i + distance, and reads entry i."""
    rules = intrinsic("copy", ["dst[j] = src[j]"], latency)
    made = call(
        1, "copy",
        {"dst": ("all", distance, (0, 0, 1)), "src": ("all", 0, (0, 0, 1))}, (1, 1, 8),
    )  # fmt: skip
    found = ""
    try:
        run(program(made), chip(rules), {"x": START})
    except HwgenError as error:
        found = error.code
    assert found == code


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
def test_floats_accumulate(dtype: str) -> None:
    rules = intrinsic("mac", ["dst[i] += a[i, j] * src[j]"], dtype=dtype)
    made = call(
        1, "mac",
        {
            "dst": ("all", 0, (0, 0, 1)), "src": ("all", 20, (0, 1, 0)),
            "a": ("all", 30, (0, 2, 0)),
        },
        (1, 3, 4),
    )  # fmt: skip
    from hwgen.model.numeric import Value, load, store

    numbers = np.reshape(np.arange(ENTRIES * LANES, dtype=np.float64) % 5 - 2.0, (ENTRIES, LANES))
    stored = store(Value(numbers, "float64"), dtype)
    result = run(program(made, dtype=dtype), chip(rules, dtype=dtype), {"x": stored})
    expected = np.array(numbers)
    for t, k in product(range(4), range(3)):
        for i, j in product(range(2), range(2)):
            expected[t, i] += numbers[30 + 2 * k + i, j] * numbers[20 + k, j]
    found = load(result.outputs["y"], dtype).array
    np.testing.assert_array_equal(found.astype(np.float64), expected)
