"""Loops over runs of elements: the same results, without choices and short loops inside."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hwgen.codegen.nodes import Code, If, Keep, Loop, nodes
from hwgen.codegen.processor.runs import in_runs
from hwgen.model.code import run_code
from hwgen.passes.nest_pipeline import compile_nest
from hwgen.spec.expression import Access, Binary, Const, Name
from hwgen.spec.hardware import HardwareSpec
from hwgen.spec.load import load_hardware, parse_workload
from hwgen.spec.workload import Workload
from hwgen.verify.data import draw_inputs


def padded(rows: int, columns: int, channels: int, before: int, after: int) -> Workload:
    height, width = rows + before + after, columns + before + after
    inside = " and ".join(
        f"{n} >= {before} and {n} < {before + extent}"
        for n, extent in (("i", rows), ("j", columns))
    )
    value = f"select({inside}, x[i - {before}, j - {before}, c], 3)"
    return parse_workload(
        {
            "name": "padded",
            "tensors": {
                "x": f"int8[{rows}, {columns}, {channels}]",
                "y": f"int8[{height}, {width}, {channels}]",
            },
            "compute": [f"y[i, j, c] = int8({value} + 1)"],
        }
    )


def both(workload: Workload, hardware: HardwareSpec) -> tuple[Code, Code]:
    """The program of a workload, and the same in runs."""
    (code,) = compile_nest(workload, hardware).program.codes
    return code, replace(code, body=in_runs(code.body, code.array, hardware.machine))


@pytest.mark.parametrize(
    "sizes", [(5, 6, 16, 1, 1), (2, 2, 2, 1, 1), (4, 3, 3, 0, 2), (3, 4, 64, 2, 0), (2, 7, 8, 3, 1)]
)
def test_padding_is_rows(sizes: tuple[int, int, int, int, int]) -> None:
    workload, hardware = padded(*sizes), load_hardware("cpu_generic")
    plain, made = both(workload, hardware)
    inputs = draw_inputs(workload, 0)
    expected = run_code(plain, hardware, inputs).outputs["y"]
    np.testing.assert_array_equal(run_code(made, hardware, inputs).outputs["y"], expected)
    assert not any(isinstance(n, If) for n in nodes(made.body))


def test_a_row_of_an_image_is_one_loop() -> None:
    """Eight channels are no vector of bytes: a row of the interior is copied as a whole."""
    _, made = both(padded(5, 6, 8, 1, 1), load_hardware("cpu_generic"))
    assert 6 * 8 in {n.extent for n in nodes(made.body) if isinstance(n, Loop)}


@pytest.mark.parametrize(
    ("value", "extent"),
    [("a[i, c] + b[i, c]", 20 * 8), ("a[i, c] + z[c, i]", 20), ("a[i, c] + b[i, c] * i", 20)],
)
def test_lanes_go_on_where_all_elements_do(value: str, extent: int) -> None:
    """Not across another order of elements, nor where the value depends on the loop around."""
    tensors = {"a": "int8[20, 8]", "b": "int8[20, 8]", "z": "int8[8, 20]", "y": "int8[20, 8]"}
    used = {n: t for n, t in tensors.items() if f"{n}[" in f"{value} y["}
    workload = parse_workload(
        {"name": "sums", "tensors": used, "compute": [f"y[i, c] = int8({value})"]}
    )
    hardware = load_hardware("cpu_generic")
    plain, made = both(workload, hardware)
    inputs = draw_inputs(workload, 0)
    expected = run_code(plain, hardware, inputs).outputs["y"]
    np.testing.assert_array_equal(run_code(made, hardware, inputs).outputs["y"], expected)
    assert max(n.extent for n in nodes(made.body) if isinstance(n, Loop)) == extent


def test_only_choices_between_statements_cut_a_loop() -> None:
    """What holds more than statements, as a sum that is kept, is left as it is."""
    kept = Keep(Access("y", (Name("i"),)), ())
    choice = If(Binary(">=", Name("i"), Const(1)), (kept,))
    loop = Loop("i", Const(0), Const(4), (choice,), extent=4)
    machine = load_hardware("cpu_generic").machine
    assert in_runs((loop,), {}, machine) == (loop,)
