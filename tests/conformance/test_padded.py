"""Padding of what a kernel computes: elements that are set, and those inside."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from hwgen.codegen.nodes import Assign, nodes
from hwgen.passes.fusing import fused
from hwgen.passes.nest_pipeline import compile_nest
from hwgen.passes.scripting import compile_script
from hwgen.pipeline import compile_kernel, compile_workload, rewritten
from hwgen.polyhedral.tree.padding import box_of
from hwgen.spec.expression import Call
from hwgen.spec.load import load_hardware, load_workload, make_workload
from hwgen.spec.workload import Workload
from hwgen.verify.data import draw_inputs
from hwgen.verify.examine import examine
from tests.sampling import QUICK, THOROUGH, tiered

ROOT = Path(__file__).parents[2]
NPU = load_hardware(ROOT / "hw_specs" / "npu_shared_buffer.yaml")


def block(**sizes: int) -> Workload:
    return load_workload(ROOT / "benchmarks" / "residual_block.yaml", sizes)


@THOROUGH
@pytest.mark.parametrize(
    "sizes",
    [{"H": 5, "W": 7, "C": 9}, pytest.param({"H": 8, "W": 8, "C": 16}, marks=THOROUGH)],
    ids=str,
)
def test_a_residual_block_is_right(sizes: dict[str, int]) -> None:
    found = compile_kernel(block(**sizes), NPU, options=QUICK)
    examine(found, draw_inputs(found.workload, 1), "both")
    assert len(found.account.phases) > 1
    assert not found.account.spills
    again = compile_script(found.workload, NPU, found.script)
    assert again.source.c == found.source.c


def test_padding_written_in_two_statements_is_the_same() -> None:
    given = rewritten(block(H=4, W=4, C=4), NPU).workload
    one = compile_kernel(given, NPU, options=QUICK)
    other = compile_kernel(block(H=4, W=4, C=4), NPU, options=QUICK)
    assert one.cycles == other.cycles
    examine(one, draw_inputs(given, 2))


@THOROUGH
def test_it_may_come_in_blocks() -> None:
    """Each block, of rows or of columns, sets its own borders."""
    given = rewritten(block(H=12, W=10, C=8), NPU)
    found = fused(given)
    assert found is not None
    assert re.search(r"s\.compute_at\(rp_pad, y_[hw]_o\)", found.script)
    examine(found, draw_inputs(given.given, 3))


def test_a_processor_has_loops_without_a_condition() -> None:
    compute = ["b[i] = a[i] * 2", "p[i] = select(i >= 1 and i <= 16, b[i - 1], 0)"]
    sums = {"do": "c[i] = p[i] + p[i + 2]", "loops": {"i": 16}}
    tensors = {n: f"float32[{18 if n == 'p' else 16}]" for n in "abpc"}
    given = make_workload("padded", tensors=tensors, compute=[*compute, sums])
    chip = load_hardware(ROOT / "hw_specs" / "cpu_generic.yaml")
    found = compile_nest(given, chip, "s.decompose_padding('p')\n", auto=False)
    assert "?" not in found.source.c
    examine(found, draw_inputs(given, 7), "both")


def test_a_sum_may_be_padded() -> None:
    given = make_workload(
        "shifted",
        tensors={"x": "float32[8, 8]", "h": "float32[8]", "p": "float32[10]", "y": "float32[10]"},
        compute=[
            "h[m] += x[m, k]",
            "p[i] = select(i >= 1 and i < 9, h[i - 1], 0.0)",
            "y[i] = p[i] + 1.0",
        ],
    )
    found = compile_kernel(given, NPU, options=QUICK)
    examine(found, draw_inputs(given, 5))


@pytest.mark.parametrize("last", [None, "y[h, w] = p[h, w] + t[h, w]"], ids=["all", "and more"])
def test_sums_stay_on_the_chip_while_all_is_set_around_them(last: str | None) -> None:
    """The phase that sums up sets the borders last, which read nothing of it."""
    compute = [
        "t[h, w] += x[h, k] * v[k, w]",
        "p[h, w] = select(h >= 1 and w >= 1, t[h - 1, w - 1], 0)",
        *([last] if last else []),
    ]
    tensors = dict.fromkeys("xvtp" + ("y" if last else ""), "float32[8, 8]")
    given = make_workload("shifted", tensors=tensors, compute=compute)
    found = compile_kernel(given, NPU, options=QUICK)
    assert "t" not in {s.tensor for s in found.account.spills}
    examine(found, draw_inputs(given, 8))


def test_the_value_may_be_computed_where_it_is_padded() -> None:
    compute = [
        "c[i, o] += x[i, k] * w[k, o]",
        "p[i, o] = select(2 <= i and i < 8 and o < 8, max(c[i - 2, o], 0), 0)",
        {"do": "y[i, o] = p[i, o] + p[i + 4, o]", "loops": {"i": 6, "o": 8}},
    ]
    tensors = {"x": "[6, 8]", "w": "[8, 8]", "c": "[6, 8]", "p": "[10, 9]", "y": "[6, 8]"}
    given = make_workload(
        "shifted", tensors={n: f"float32{s}" for n, s in tensors.items()}, compute=compute
    )
    found = compile_workload(given, NPU)
    examine(found, draw_inputs(given, 4))


def test_sums_are_changed_in_place_before_they_are_stored_elsewhere() -> None:
    """A unit that has a maximum of what it holds alone; what it stores lies a row further."""
    chip = load_hardware(ROOT / "hw_specs" / "x86_avx2.yaml")
    tensors = {"x": "[8, 24]", "w": "[24, 16]", "s": "[8, 16]", "y": "[10, 16]"}
    compute = ["s[m, n] += x[m, k] * w[k, n]", "y[i, j] = 0"]
    last = {"do": "y[m + 1, n] = max(s[m, n], 0)", "loops": {"m": 8, "n": 16}}
    typed = {n: f"float32{s}" for n, s in tensors.items()}
    given = make_workload("relu_below", tensors=typed, compute=[*compute, last])
    found = compile_kernel(given, chip, options=QUICK)
    assert "'relu'" in found.script
    examine(found, draw_inputs(given, 6))


@pytest.mark.parametrize(
    ("guard", "box"),
    [
        ("i >= 1 and i <= 4", {"i": (1, 4), "j": (0, 7)}),
        ("2 * i > 3 and 5 > j", {"i": (2, 5), "j": (0, 4)}),
        ("i == 3 and j - 2 >= 0", {"i": (3, 3), "j": (2, 7)}),
        ("not i > 3", None),
        ("i + j > 3", None),
        ("i > 3 or j > 3", None),
        ("i % 2 == 0", None),
        ("i > 7", None),
    ],
)
def test_the_box_of_a_guard(guard: str, box: dict[str, tuple[int, int]] | None) -> None:
    statement = make_workload(
        "guarded",
        tensors={"x": "float32[6, 8]", "y": "float32[6, 8]"},
        compute=[f"y[i, j] = select({guard}, x[i, j], 0)"],
    ).statements[0]
    assert isinstance(statement.value, Call)
    assert box_of(statement.value.arguments[0], dict(statement.loops)) == box


@pytest.mark.parametrize("name", tiered(["vta", "gemmini"], ["vta"]))
def test_two_padded_layers_are_no_slower_than_each_alone(name: str) -> None:
    """The host rescales in between, and pads what it makes: units do all products."""
    chip = load_hardware(ROOT / "hw_specs" / f"{name}.yaml")
    tensors = {"x": "int8[16, 16]", "w": "int8[16, 16]", "m": "int32[16]", "a": "int32[16, 16]"}
    after = {"h": "[16, 16]", "hp": "[18, 16]", "v": "[16, 3, 16]", "y": "[16, 16]"}
    tensors |= {n: f"int8{s}" for n, s in after.items()} | {"b": "int32[16, 16]"}
    compute = [
        "a[i, o] += x[i, c] * w[o, c]",
        "h[i, o] = int8(clip(int32((int64(a[i, o]) * int64(m[o])) >> 31), -128, 127))",
        "hp[i, c] = select(i >= 1 and i < 17, h[i - 1, c], 3)",
        "b[i, o] += hp[i + r, c] * v[o, r, c]",
        "y[i, o] = int8(clip(int32((int64(b[i, o]) * int64(m[o])) >> 31), -128, 127))",
    ]

    def made(*lines: str) -> Workload:
        used = {n: t for n, t in tensors.items() if re.search(rf"\b{n}\[", " ".join(lines))}
        return make_workload("layers", tensors=used, compute=[*lines])

    both, *alone = (made(*compute), made(*compute[:2]), made(*compute[2:]))
    found = compile_workload(both, chip)
    assert found.cycles <= 1.05 * sum(compile_workload(one, chip).cycles for one in alone)
    on_host = [n for code in found.program.codes for n in nodes(code.body)]
    assert not any(isinstance(n, Assign) and n.op == "+=" for n in on_host)
    examine(found, draw_inputs(both, 9), "both")
