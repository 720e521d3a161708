"""The automatic scheduler: completes what a user began, by public primitives, whatever refuses."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from hwgen.autoschedule.cost import Grid, Structure, footprint, grid
from hwgen.autoschedule.lanes import structures
from hwgen.autoschedule.nests import nest_of, operand
from hwgen.autoschedule.options import Options
from hwgen.autoschedule.search import autoschedule
from hwgen.codegen.processor.lower import lower_nest
from hwgen.errors import HwgenError
from hwgen.model.code import run_code
from hwgen.model.reference import random_inputs, run_reference
from hwgen.passes.nest_pipeline import compile_nest
from hwgen.polyhedral.schedule.schedule import Schedule
from hwgen.polyhedral.schedule.script import PRIMITIVES
from hwgen.polyhedral.tree.cost import estimate_nest
from hwgen.polyhedral.tree.edit import main_site
from hwgen.spec.expression import Access
from hwgen.spec.grammar import parse_expression
from hwgen.spec.hardware import HardwareSpec
from hwgen.spec.load import load_hardware, make_workload
from hwgen.spec.workload import Workload
from tests.samples import ROOT

CHIPS = ("cpu_generic", "cuda_generic")


@cache
def chip(name: str) -> HardwareSpec:
    return load_hardware(ROOT / "hw_specs" / f"{name}.yaml")


def matmul(m: int, n: int, k: int) -> Workload:
    return make_workload(
        "matmul",
        sizes={"M": m, "N": n, "K": k},
        tensors={"a": "int32[M, K]", "b": "int32[K, N]", "c": "int32[M, N]"},
        compute=["c[m, n] += a[m, k] * b[k, n]"],
    )


def chain() -> Workload:
    return make_workload(
        "chain",
        sizes={"M": 6, "N": 20},
        tensors={
            "x": "int32[M, N]", "t": "int32[M, N]", "u": "int32[M, N]", "y": "int32[M, N]",
        },
        compute=["t[m, n] = x[m, n] + 1", "u[m, n] = t[m, n] * 3", "y[m, n] = u[m, n] - 2"],
    )  # fmt: skip


def right(schedule: Schedule) -> bool:
    workload = schedule.workload
    inputs = random_inputs(workload, 0)
    program = lower_nest(schedule.resolved, schedule.homes, schedule.hardware)[0]
    found = run_code(program, schedule.hardware, inputs).outputs
    expected = run_reference(workload, inputs)
    return all(np.array_equal(found[n], expected[n]) for n in expected)


@pytest.mark.parametrize("name", CHIPS)
def test_the_result_is_a_script_of_primitives(name: str) -> None:
    s = Schedule(matmul(40, 48, 64), chip(name))
    report = autoschedule(s)
    called = [x.split("s.", 1)[1].split("(")[0] for x in s.trace().splitlines()]
    assert set(called) <= set(PRIMITIVES)
    assert str(Schedule(s.workload, s.hardware).replay(s.trace())) == str(s)
    assert report.considered > report.pruned > 0
    assert report.exhausted
    assert report.bound <= report.cycles
    assert right(s)


@pytest.mark.parametrize("name", CHIPS)
def test_it_is_faster_than_no_schedule(name: str) -> None:
    workload = matmul(96, 96, 96)
    plain = compile_nest(workload, chip(name), auto=False)
    assert 10 * compile_nest(workload, chip(name)).cycles < plain.cycles


@pytest.mark.parametrize("name", CHIPS)
def test_it_is_deterministic(name: str) -> None:
    found = [Schedule(matmul(17, 33, 20), chip(name)) for _ in range(2)]
    reports = [str(autoschedule(s)) for s in found]
    assert found[0].trace() == found[1].trace()
    assert reports[0] == reports[1]


@pytest.mark.parametrize("name", CHIPS)
def test_what_a_user_did_stays(name: str) -> None:
    s = Schedule(matmul(16, 24, 32), chip(name))
    m, _, k = s.loops("c")
    s.split(k, factor=8)
    s.split(m, factor=4)
    before = s.trace()
    loops = s.loops("c")
    report = autoschedule(s)
    assert s.trace().startswith(before)
    assert len(s.trace()) > len(before)
    assert s.loops("c") == loops
    assert [c.chosen.split(":")[0] for c in report.choices] == ["completed"]
    assert right(s)


def test_a_complete_schedule_is_left_alone() -> None:
    s = Schedule(matmul(16, 24, 32), chip("cpu_generic"))
    autoschedule(s)
    before = s.trace()
    report = autoschedule(s)
    assert s.trace() == before
    assert report.notes == ("the schedule was complete",)


def test_cheap_producers_are_inlined() -> None:
    s = Schedule(chain(), chip("cpu_generic"))
    autoschedule(s)
    assert s.buffers() == ("x", "y")
    assert right(s)


@pytest.mark.parametrize("name", CHIPS)
@pytest.mark.parametrize("primitive", ["compute_at", "set_scope", "reorder", "split"])
def test_a_refused_primitive_is_no_crash(
    name: str, primitive: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise HwgenError("H413", "refused for the test")

    monkeypatch.setattr(Schedule, primitive, refuse)
    c = compile_nest(matmul(9, 10, 11), chip(name), options=Options(attempts=3))
    assert f"s.{primitive}(" not in c.script
    assert right(c.schedule)


@pytest.mark.parametrize("name", CHIPS)
@pytest.mark.parametrize("sizes", [(1, 1, 1), (1, 7, 300), (31, 1, 5), (3, 2, 1)])
def test_degenerate_sizes(name: str, sizes: tuple[int, int, int]) -> None:
    s = Schedule(matmul(*sizes), chip(name))
    autoschedule(s)
    assert right(s)


def _grids() -> list[Grid]:
    s = Schedule(matmul(96, 64, 128), chip("cpu_generic"))
    nest = nest_of(s.state, "c")
    return [grid(nest, s.hardware, x) for x in structures(s.state, nest, s.hardware.machine)]


def test_no_point_is_below_the_bound() -> None:
    bound = 96 * 64 * 128 / (8 * 2 * 4)
    for found in _grids():
        assert found.considered > found.pruned
        assert float(np.min(found.cycles)) >= bound
        best = found.best()
        assert best is not None
        assert best.cycles == np.min(found.cycles)


def test_packing_pays_where_columns_are_strided() -> None:
    best = {g.structure: p.cycles for g in _grids() if (p := g.best()) is not None}
    along_k = [s for s in best if s.partial]
    packed = [s for s in best if s.packed == ("b",)]
    assert packed
    assert all(isinstance(s, Structure) for s in along_k)
    assert min(best, key=lambda s: best[s]).v == "n"


def _rows(op: str, n: int, also: str) -> int:
    """Rows of the register tile for sums along them."""
    w = make_workload(
        "rows",
        sizes={"M": 512, "N": n},
        tensors={"x": "float32[M, N]", "t": "float32[M]", "y": "float32[M, N]"},
        compute=[f"t[m] {op} x[m, n]", f"y[m, n] = {also}t[m]"],
    )
    s = Schedule(w, chip("x86_avx512"))
    nest = nest_of(s.state, "t")
    found = structures(s.state, nest, s.hardware.machine)
    (best,) = (grid(nest, s.hardware, x).best() for x in found if x.partial)
    assert best is not None
    return best.rows


def test_rows_go_side_by_side_where_lanes_share_no_sum() -> None:
    """Their sums then hide each other's latencies; else each row is a stream of its own."""
    assert _rows("+=", 768, "x[m, n] - ") == 1
    assert _rows("max=", 768, "x[m, n] - ") > 1


def test_rows_that_own_caches_hold_wait_for_nothing() -> None:
    """512 rows of 256 are there; of 512, each is a stream of its own."""
    assert [_rows("+=", n, "x[m, n] - ") > 1 for n in (256, 512)] == [True, False]


def test_a_tile_that_others_read_again_stays_in_the_first_cache() -> None:
    wide = [_rows("max=", 1024, also) for also in ("x[m, n] - ", "2 * ")]
    assert 2 * wide[0] * 1024 * 4 <= 0.6 * 32 * 1024  # And as much that is made of it.
    assert wide[0] <= wide[1]


def test_footprints_are_those_of_enumeration() -> None:
    s = Schedule(matmul(20, 20, 20), chip("cpu_generic"))
    read = operand(s.state, Access("a", (parse_expression("2*i + r"), parse_expression("j + 3*s"))))
    for i, r, j, t in ((1, 1, 1, 1), (3, 2, 4, 2), (5, 3, 2, 4), (20, 20, 20, 20)):
        box = {n: np.array([float(e)]) for n, e in (("i", i), ("r", r), ("j", j), ("s", t))}
        rows = {2 * x + y for x in range(i) for y in range(r) if 2 * x + y < 20}
        columns = {x + 3 * y for x in range(j) for y in range(t) if x + 3 * y < 20}
        hull = min(20, 2 * (i - 1) + r) * min(20, j + 3 * (t - 1))
        found = footprint(read, box, 1)[0]
        assert found == 4 * hull
        assert found >= 4 * len(rows) * len(columns)


def _products(inputs: str, sums: str, weights: str) -> Schedule:
    w = make_workload(
        "products",
        sizes={"M": 30, "N": 24, "K": 80},
        tensors={
            "x": f"{inputs}[M, K]",
            "w": f"{inputs}[{'N, K' if weights == 'n, k' else 'K, N'}]",
            "t": f"{sums}[M, N]",
            "y": f"{inputs}[M, N]",
        },
        compute=[f"t[m, n] += x[m, k] * w[{weights}]", f"y[m, n] = {inputs}(t[m, n])"],
    )
    return Schedule(w, chip("cpu_generic"))


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16"])
def test_compilers_add_products_of_narrow_integers_up_in_lanes(dtype: str) -> None:
    """The loop along what lies side by side is the innermost that is not unrolled, and its cycles
    are those of vectors."""
    s = _products(dtype, "int32", "n, k")
    assert "sums along k" in str(autoschedule(s))
    loops = [x for x in main_site(s.state, "t").loops if x.kind != "unroll"]
    assert (loops[-1].name, loops[-1].kind) == ("k", "serial")
    one_by_one = 30 * 24 * 80 / s.hardware.machine.operations_per_cycle
    assert 6 * estimate_nest(s.resolved, s.homes, s.hardware).cycles < one_by_one
    assert right(s)


@pytest.mark.parametrize(
    ("inputs", "sums", "weights"),
    [("float32", "float32", "n, k"), ("int32", "int32", "n, k"), ("int8", "int32", "k, n")],
    ids=["the order of floats is kept", "of whole words", "apart in memory"],
)
def test_other_sums_have_lanes_of_their_own(inputs: str, sums: str, weights: str) -> None:
    s = _products(inputs, sums, weights)
    assert "sums along" not in str(autoschedule(s))
    assert inputs == "float32" or right(s)


@pytest.mark.parametrize("outer", [(8, 16), (9, 7)], ids=["whole tiles", "odd"])
@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_narrow_operands_are_widened_block_by_block(dtype: str, outer: tuple[int, int]) -> None:
    """With the padding in the copy of a block, and no copy of a whole input."""
    high, wide = outer
    inside = f"h >= 1 and h < {high + 1} and v >= 1 and v < {wide + 1}"
    w = make_workload(
        "widened",
        sizes={"H": high, "W": wide, "C": 16, "O": 32},
        tensors={
            "x": f"{dtype}[H, W, C]", "xp": f"{dtype}[H + 2, W + 2, C]",
            "w": f"{dtype}[3, 3, C, O]", "t": "int32[H, W, O]", "y": f"{dtype}[H, W, O]",
        },
        compute=[
            f"xp[h, v, c] = select({inside}, x[h - 1, v - 1, c], 7)",
            "t[i, j, o] += xp[i + r, j + s, c] * w[r, s, c, o]",
            f"y[i, j, o] = {dtype}(t[i, j, o] >> 8)",
        ],
    )  # fmt: skip
    s = Schedule(w, chip("cpu_generic"))
    assert "operands widened" in str(autoschedule(s))
    assert {s.state.tensor[n].dtype for n in ("xp_stack", "w_stack", "t")} == {"int32"}
    homes = {n: s.homes[n] for n in ("xp_stack", "w_stack")}
    assert all(homes.values()), "inside loops"
    assert "xp" not in s.state.tensor
    assert right(s)
