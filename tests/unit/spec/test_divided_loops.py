"""Loops that indices divide, against the statement as it is written."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from hwgen.errors import HwgenError
from hwgen.model.reference import run_reference
from hwgen.pipeline import compile_kernel
from hwgen.spec.load import load_hardware, make_workload
from hwgen.spec.workload import Workload
from hwgen.verify.data import draw_inputs
from hwgen.verify.examine import examine
from tests.sampling import QUICK

NPU = load_hardware(Path(__file__).parents[3] / "hw_specs" / "npu_shared_buffer.yaml")
Point = tuple[int, ...]


def made(statement: str, **shapes: str) -> Workload:
    tensors = {n: f"float32[{s}]" for n, s in shapes.items()}
    return make_workload("divided", tensors=tensors, compute=[statement])


CASES: list[tuple[str, str, Point, Callable[[Point], Point]]] = [
    (
        "y[h, w, c] = x[h // 2, w // 3, c]",
        "2, 2, 5",
        (4, 6, 5),
        lambda p: (p[0] // 2, p[1] // 3, p[2]),
    ),
    (
        "y[h, w, c] = x[h // 2, w // 2, 4 * c + 2 * (h % 2) + w % 2]",
        "2, 3, 20",
        (4, 6, 5),
        lambda p: (p[0] // 2, p[1] // 2, 4 * p[2] + 2 * (p[0] % 2) + p[1] % 2),
    ),
    (
        "y[i] = x[i // 8, i // 4 % 2, i % 4]",
        "2, 2, 4",
        (16,),
        lambda p: (p[0] // 8, p[0] // 4 % 2, p[0] % 4),
    ),
]


@pytest.mark.parametrize(("statement", "shape", "written", "read"), CASES)
def test_a_divided_loop_is_split(
    statement: str, shape: str, written: Point, read: Callable[[Point], Point]
) -> None:
    workload = made(statement, x=shape, y=", ".join(map(str, written)))
    inputs = draw_inputs(workload, 1)
    found = run_reference(workload, inputs)["y"]
    for point in product(*map(range, written)):
        assert found[point] == inputs["x"][read(point)]
    examine(compile_kernel(workload, NPU, options=QUICK), inputs)


def test_elements_of_a_sum_may_be_chosen_so() -> None:
    workload = made("y[h // 2, w // 3] max= x[h, w]", x="4, 6", y="2, 2")
    inputs = draw_inputs(workload, 1)
    found = run_reference(workload, inputs)["y"]
    for h, w in product(range(2), range(2)):
        assert found[h, w] == inputs["x"][2 * h : 2 * h + 2, 3 * w : 3 * w + 3].max()
    examine(compile_kernel(workload, NPU, options=QUICK), inputs)


def test_one_loop_may_be_divided_several_times() -> None:
    """By 2 and 8: the smaller first, and what is left of the larger next."""
    workload = made("y[i] = x[i // 8, i % 2]", x="2, 2", y="16")
    (statement,) = workload.statements
    assert statement.loops == (("i_o_o", 2), ("i_o_i", 4), ("i_i", 2))
    assert str(statement) == "y[(i_o_o * 4 + i_o_i) * 2 + i_i] = x[i_o_o, i_i]"
    inputs = draw_inputs(workload, 2)
    wanted = [inputs["x"][i // 8, i % 2] for i in range(16)]
    np.testing.assert_array_equal(run_reference(workload, inputs)["y"], wanted)


def test_no_name_is_given_twice() -> None:
    workload = made("y[h, h_o] = x[h // 2, h_o]", x="2, 3", y="4, 3")
    assert [n for n, _ in workload.statements[0].loops] == ["h_o_", "h_i", "h_o"]


@pytest.mark.parametrize("index", ["h // 3", "(h + 1) // 2", "h // 2 + h // 3", "h // 0"])
def test_other_divisions_are_refused(index: str) -> None:
    with pytest.raises(HwgenError, match="factors of their extents") as caught:
        made(f"y[h] = x[{index}]", x="9", y="8")
    assert caught.value.code == "H215"
