"""Blocks that run later over the ends of loops, lowered: each at its time, right, and no longer."""

from __future__ import annotations

from functools import cache
from itertools import product
from math import prod
from textwrap import dedent

import pytest

from hwgen import Schedule
from hwgen.codegen.lower.bands import ways
from hwgen.codegen.nodes import calls
from hwgen.errors import HwgenError
from hwgen.passes.kernel import Kernel
from hwgen.passes.trees import compile_tree
from hwgen.polyhedral.tree import legality
from hwgen.spec.expression import evaluate
from hwgen.spec.hardware import HardwareSpec
from hwgen.spec.load import load_hardware, parse_workload
from hwgen.verify.data import draw_inputs
from hwgen.verify.examine import examine
from tests.conftest import Mutate
from tests.hosts import NPU, behind_a_host
from tests.sampling import tiered


@cache
def chip(order: str) -> HardwareSpec:
    """The chip with tokens between its units, or behind a host that issues in order."""
    return load_hardware(NPU, {"T": 4}) if order == "tokens" else behind_a_host(4)


TILES = """\
a = s.cache_read('a', 'local')
b = s.cache_read('b', 'local')
c = s.cache_write('c', 'local')
rows, columns, i, j = s.tile('c_0', 'c_1', 8, 8)
s.compute_at(c, columns)
tiles, k_i = s.split('k', factor=8)
k_o, k = s.split(k_i, factor=4)
m_o, m = s.split('m', factor=4)
n_o, n = s.split('n', factor=4)
s.reorder(tiles, m_o, n_o, k_o, m, n, k)
begin = s.decompose_reduction(c, tiles)
s.compute_at(a, tiles)
s.compute_at(b, tiles)
"""
"""Tiles of 8 x 8 x 8, of which the last ones may be smaller."""

CALLS = """
s.tensorize(a, 'load')
s.tensorize(b, 'load')
s.tensorize(begin, 'zero')
s.tensorize(c, 'matmul')
s.tensorize('c', 'store')
"""


def gemm(order: str, edits: str, m: int = 20, n: int = 28, k: int = 36) -> Schedule:
    """Tiles, edits, calls."""
    tensors = {"a": f"float32[{m}, {k}]", "b": f"float32[{k}, {n}]", "c": f"float32[{m}, {n}]"}
    data: dict[str, object] = {
        "name": "gemm", "tensors": tensors, "compute": ["c[m, n] += a[m, k] * b[k, n]"],
    }  # fmt: skip
    return Schedule(parse_workload(data), chip(order)).replay(TILES + edits + CALLS)


def right(schedule: Schedule) -> Kernel:
    """The kernel of a schedule, which computes what it should."""
    compilation = compile_tree(schedule)
    examine(compilation, draw_inputs(schedule.workload, 1), "python")
    return compilation


def buffers(*names: str, slots: int = 2) -> str:
    return "".join(f"s.double_buffer({name}, {slots})\n" for name in names)


def ahead(*names: str, by: int = 1) -> str:
    return "".join(f"s.shift({name}, [rows, columns, tiles], -{by})\n" for name in names)


LATE = "s.sink('c', tiles, 'last')\ns.shift('c', [rows, columns, tiles], 1)\n"
EARLY = "s.sink(begin, tiles, 'first')\ns.shift(begin, [rows, columns], -1)\n"
PIPELINE = buffers("a", "b", "c") + ahead("a", "b") + LATE + EARLY

ORDERS = ("tokens", "host")


@pytest.mark.parametrize("extents", [(3, 2), (2, 3, 4), (4, 1, 3)])
def test_each_iteration_has_one_way_and_its_time(extents: tuple[int, ...]) -> None:
    whole = [(0, e) for e in extents]
    size = prod(extents)
    for lag in range(-size - 1, size + 2):
        times: list[int] = []
        for way in ways(lag, whole, extents):
            for own in product(*(range(*span) for span in way.own)):
                at = [a + k for a, k in zip(own, way.later, strict=True)]
                inner = zip(at[1:], extents[1:], strict=True)
                assert all(0 <= t < e for t, e in inner)
                linear = now = 0
                for a, t, e in zip(own, at, extents, strict=True):
                    linear, now = linear * e + a, now * e + t
                assert now == linear + lag
                times.append(now)
        assert sorted(times) == [n + lag for n in range(size)]


ENDS = [(20, 28, 36), (32, 16, 24), (8, 20, 40), (20, 8, 8), (5, 3, 2)]


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("sizes", tiered(ENDS, [ENDS[4]], values=True))
@pytest.mark.parametrize(
    "edits",
    [
        PIPELINE,
        buffers("a", "b", slots=4) + ahead("a", "b", by=3),
        buffers("a", slots=3) + buffers("b") + ahead("a", by=2) + ahead("b"),
        buffers("c", slots=3) + EARLY + LATE,
        "s.retain(b, rows)\n" + buffers("a", "b", "c") + ahead("a", "b") + LATE,
        buffers("a", "b", "c", slots=5) + "s.shift('c', [rows, columns], 3)\n",
    ],
)
def test_pipelines_over_the_ends_of_loops(
    order: str, sizes: tuple[int, int, int], edits: str
) -> None:
    right(gemm(order, edits, *sizes))


def test_a_host_gets_conditions_and_not_as_many_bodies() -> None:
    """Of a load: the first one, those in a row of tiles, and those for the next row or column."""
    sizes = (32, 40, 48)
    bodies = [right(gemm("host", edits, *sizes)).program.body for edits in ("", PIPELINE)]
    plain, moved = ([x.intrinsic for x in calls(body)] for body in bodies)
    assert moved.count("matmul") == plain.count("matmul") == 1
    assert moved.count("load") <= 2 * 4


def test_units_work_on_several_tiles_at_once() -> None:
    sizes = (32, 40, 48)
    for order in ORDERS:
        plain, moved = (right(gemm(order, edits, *sizes)).cycles for edits in ("", PIPELINE))
        assert moved < 0.9 * plain


def test_tails_of_sums_are_loops_of_their_own() -> None:
    """So that a call takes all rows of a tail, and not each row its two parts."""
    script = """
    a = s.cache_read('a', 'local')
    b = s.cache_read('b', 'local')
    c = s.cache_write('c', 'local')
    k_o, k_i = s.split('k', factor=4)
    s.reorder('m', 'n', k_o, k_i)
    begin = s.decompose_reduction(c, 'm')
    """
    data: dict[str, object] = {
        "name": "gemm",
        "tensors": {"a": "float32[4, 6]", "b": "float32[6, 4]", "c": "float32[4, 4]"},
        "compute": ["c[m, n] += a[m, k] * b[k, n]"],
    }
    schedule = Schedule(parse_workload(data), chip("tokens")).replay(dedent(script) + CALLS)
    found = [x for x in calls(right(schedule).program.body) if x.intrinsic == "matmul"]
    assert [[int(evaluate(e, {})) for e in x.extents] for x in found] == [[4, 4, 4], [4, 4, 2]]


def nothing(*_: object) -> None:
    """Stands in for a check that finds nothing wrong."""


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(
    "edits",
    [
        buffers("a", "b") + ahead("a", "b", by=2),
        buffers("c", slots=2) + EARLY + LATE,
        buffers("c", slots=1) + LATE,
    ],
)
def test_too_few_slots_would_be_found(mutate: Mutate, order: str, edits: str) -> None:
    """With what legality says the buffers are at home further out; without it, values are wrong."""
    right(gemm(order, edits, 16, 16, 24))
    mutate(legality, "overtaken", nothing)
    with pytest.raises(HwgenError):
        right(gemm(order, edits, 16, 16, 24))
