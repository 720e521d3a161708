"""A processor beside units: what no intrinsics compute runs there, and the whole is right."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random

import numpy as np
import pytest

from hwgen.codegen.nodes import Assign, Code, Loop, Node, calls
from hwgen.codegen.program import Program
from hwgen.errors import HwgenError
from hwgen.model.c_compiler import have_compiler
from hwgen.model.functional import run
from hwgen.model.reference import run_reference
from hwgen.model.turns import PROCESSOR
from hwgen.passes.scripting import compile_script
from hwgen.passes.trees import compile_tree
from hwgen.pipeline import compile_kernel, compile_workload
from hwgen.polyhedral.schedule.schedule import Schedule
from hwgen.report.html import page
from hwgen.report.recording import record
from hwgen.report.text import describe, measure
from hwgen.report.trace_events import trace
from hwgen.spec.expression import Binary, Const
from hwgen.spec.load import load_hardware, load_workload, make_workload, parse_workload
from hwgen.spec.workload import Workload
from hwgen.verify.check_program import check_program
from hwgen.verify.data import draw_inputs
from hwgen.verify.examine import examine
from tests.fuzz.chips.workloads import random_workload
from tests.hosts_beside import beside
from tests.property.oracle import read
from tests.sampling import QUICK, THOROUGH, examples, tiered

WORKLOADS = Path(__file__).parents[2] / "workloads"

CHIPS = ("vta", "gemmini", "npu_shared_buffer", "vtcm_two_banks", "davinci_core", "tpu_v1")

TENSORS = {
    "a": "int8[4, 32]",
    "b": {"type": "int8[16, 32]", "constant": True},
    "c": {"type": "int8[16]", "constant": True},
    "s": "int32[4, 16]",
    "t": "int8[4, 16]",
    "y": "int8[4, 16]",
}
PRODUCT = ["s[i, j] += a[i, k] * b[j, k]", "t[i, j] = int8(s[i, j] >> 4)"]


def divided() -> Workload:
    """A product, and a division that no units do."""
    last = "y[i, j] = int8((t[i, j] + c[j]) // 3)"
    return make_workload("divided", tensors=TENSORS, compute=[*PRODUCT, last])


def in_turns() -> Workload:
    """Two products with a division between."""
    tensors = {**TENSORS, "d": "int8[16, 16]", "u": "int32[4, 16]", "z": "int8[4, 16]"}
    more = ["u[i, j] += y[i, k] * d[j, k]", "z[i, j] = int8(u[i, j] >> 2)"]
    last = "y[i, j] = int8((t[i, j] + c[j]) // 3)"
    return make_workload("in_turns", tensors=tensors, compute=[*PRODUCT, last, *more])


def padded() -> Workload:
    """Two products, between them a division whose rows the host moves for the second."""
    tensors = {**TENSORS, "p": "int8[5, 16]", "d": "int8[16, 16]", "u": "int32[5, 16]"}
    last = "y[i, j] = int8((t[i, j] + c[j]) // 3)"
    moved = "p[i, j] = select(i >= 1, y[i - 1, j], 0)"
    more = ["u[i, j] += p[i, k] * d[j, k]", "z[i, j] = int8(u[i, j] >> 2)"]
    tensors["z"] = "int8[5, 16]"
    return make_workload("padded", tensors=tensors, compute=[*PRODUCT, last, moved, *more])


def guarded() -> Workload:
    """What depends on data, which no units of any chip do."""
    return make_workload(
        "guarded",
        tensors={"x": "int8[5]", "t": "int8[5]", "y": "int8[5]"},
        compute=["t[i] = select(x[i] > 0, x[i], 5)", "y[i] = int8(t[i] + 1)"],
    )


def widened() -> Workload:
    """A sum that no call of vta stores, with a bias that it starts from."""
    return make_workload(
        "widened",
        tensors={
            "a": "int8[5, 40]",
            "b": {"type": "int8[24, 40]", "constant": True},
            "bias": "int32[24]",
            "s": "int32[5, 24]",
            "y": "int32[5, 24]",
        },
        compute=["s[i, j] += a[i, k] * b[j, k]", "y[i, j] = s[i, j] + bias[j]"],
    )


def sides(program: Program) -> str:
    """Who runs the parts: u for units, p for the processor."""
    return "".join("p" if isinstance(p, Code) else "u" for p in program.parts)


MADE = (divided, in_turns, padded, guarded)


@pytest.mark.parametrize(
    ("made", "chip"),
    [
        pytest.param(made, chip, marks=THOROUGH if (m + c) % 3 else ())
        for m, made in enumerate(MADE)
        for c, chip in enumerate(CHIPS)
    ],
)
def test_every_chip_computes_them(chip: str, made: Callable[[], Workload]) -> None:
    compiled = compile_workload(made(), beside(chip), QUICK)
    assert compiled.program.codes
    engine = "both" if have_compiler() else "python"
    examine(compiled, draw_inputs(compiled.workload, 1), engine)


@pytest.mark.parametrize(
    ("name", "sizes", "who"),
    [
        ("gemm", {"M": 5, "N": 24, "K": 24}, "up"),
        ("conv2d", {"H": 9, "W": 9, "C": 16, "O": 32}, "up"),
    ],
)
def test_sums_of_a_shipped_chip_stay_on_its_units(
    name: str, sizes: dict[str, int], who: str
) -> None:
    """Results say nothing of who computes them, and a host alone is many times slower."""
    root = Path(__file__).resolve().parents[2]
    workload = load_workload(root / "workloads" / f"{name}.yaml", sizes)
    made = compile_workload(workload, load_hardware(root / "hw_specs" / "gemmini.yaml"), QUICK)
    assert sides(made.program) == who


def test_units_do_what_they_can() -> None:
    """Sums stay with them, and the report says what does not."""
    compiled = compile_workload(in_turns(), beside("vta"), QUICK)
    assert sides(compiled.program) == "upu"
    computes, packs = compiled.notes
    assert computes.startswith("the processor computes y: ")
    assert packs.startswith("the host packs b in ")
    code = compiled.program.codes[0]
    assert compiled.timing.unit(PROCESSOR).busy == code.cycles
    units = [p for p in compiled.program.parts if isinstance(p, Program)]
    assert [{*p.inputs} for p in units] == [{"a", "b"}, {"y", "d"}]
    with pytest.raises(HwgenError, match="H301"):
        compile_kernel(in_turns(), beside("vta"), options=QUICK)


def test_without_code_nothing_changes() -> None:
    """A processor that has nothing to do leaves no trace in the kernel."""
    workload = load_workload(WORKLOADS / "gemm_requant.yaml", {"M": 16, "N": 32, "K": 32})
    compiled = compile_workload(workload, beside("vta"), QUICK)
    alone = replace(beside("vta"), processor=None)
    assert str(compiled.program) == str(compile_workload(workload, alone, QUICK).program)


@pytest.mark.parametrize("made", [divided, in_turns])
def test_its_script_makes_it_again(made: Callable[[], Workload]) -> None:
    compiled = compile_workload(made(), beside("gemmini"), QUICK)
    again = compile_script(made(), beside("gemmini"), compiled.script)
    assert again.source.c == compiled.source.c


LAYERS = {
    ("gemmini", "fully_connected"): "matmul",
    ("gemmini", "conv2d"): "matmul",
    ("gemmini", "average_pool"): "matmul",
    ("vta", "fully_connected"): "gemm",
    ("vta", "conv2d"): "gemm",
    ("vta", "average_pool"): "gemm",
}
"""Quantised layers of TFLite Micro, with the intrinsic that sums up."""


@pytest.mark.parametrize(("chip", "layer"), tiered([*LAYERS], [*LAYERS][1:4]))
def test_quantised_layers_sum_on_the_chip(chip: str, layer: str) -> None:
    """Products and sums on the array, fixed-point rounding on the processor."""
    workload = load_workload(WORKLOADS / "quantised" / f"{layer}.yaml")
    compiled = compile_workload(workload, beside(chip), QUICK)
    units = [p for p in compiled.program.parts if isinstance(p, Program)]
    assert LAYERS[chip, layer] in {c.intrinsic for p in units for c in calls(p.body)}
    examine(compiled, draw_inputs(workload, 3))


@pytest.mark.parametrize(
    ("chip", "first"),
    [
        pytest.param("vta", 4, marks=THOROUGH),
        ("gemmini", 0),
        pytest.param("vta", 0, marks=THOROUGH),
    ],
)
def test_random_workloads_all_compile(chip: str, first: int) -> None:
    seen = set[str]()
    for seed in range(first, first + examples(5)):
        drawn = random_workload(Random(seed).choice)
        workload = read(lambda d=drawn: parse_workload(d))
        if workload is not None:
            compiled = compile_workload(workload, beside(chip), QUICK)
            examine(compiled, draw_inputs(workload, seed))
            seen.add(sides(compiled.program))
    assert len(seen) > 1


def test_what_stays_on_the_chip_does_not_cross() -> None:
    """Units' memories are theirs while they run."""
    hardware = beside("vta")
    last = "y[i, j] = int8((t[i, j] + s[i, j] + c[j]) // 3)"
    schedule = Schedule(
        make_workload("divided", tensors=TENSORS, compute=[*PRODUCT, last]), hardware
    )
    schedule.replay(compile_workload(divided(), hardware, QUICK).script)
    with pytest.raises(HwgenError, match="not all who touch s see it in acc"):
        compile_tree(schedule)


def test_reports_show_the_processor_in_its_turn() -> None:
    compiled = compile_workload(in_turns(), beside("vta"), QUICK)
    recording = record(compiled.program, compiled.hardware, compiled.timing, 10_000)
    assert recording.complete
    (code,) = (c for c in recording.calls if c.unit == PROCESSOR)
    before = [c for c in recording.calls if c.number < code.number]
    after = [c for c in recording.calls if c.number > code.number]
    assert before
    assert after
    assert max(c.end for c in before) <= code.start
    assert min(c.start for c in after) >= code.end
    assert "processor computes y" in describe(measure(compiled))


@pytest.mark.parametrize("made", [in_turns, widened])
def test_a_page_and_a_trace_show_all_parts(made: Callable[[], Workload]) -> None:
    compiled = compile_workload(made(), beside("vta"), QUICK)
    units = [p for p in compiled.program.parts if isinstance(p, Program)]
    text = page(compiled)
    assert all(name in text for p in units for name in p.outputs)
    assert PROCESSOR in str(trace(compiled))


# Mutations


def _coded(program: Program, code: Code) -> Program:
    body = tuple(code if isinstance(n, Code) else n for n in program.body)
    return replace(program, body=body)


def _first_code(program: Program) -> Program:
    codes = [n for n in program.body if isinstance(n, Code)]
    return replace(program, body=(*codes, *(n for n in program.body if n not in codes)))


def _input_written(program: Program) -> Program:
    (code,) = program.codes
    return _coded(program, replace(code, outputs=("c",)))


def _another_array(program: Program) -> Program:
    return replace(program, between=tuple(replace(a, dtype="int32") for a in program.between))


@pytest.mark.parametrize("mutate", [_first_code, _input_written, _another_array])
def test_wrong_hand_overs_are_found(mutate: Callable[[Program], Program]) -> None:
    hardware = beside("vta")
    program = compile_workload(divided(), hardware, QUICK).program
    check_program(program, hardware, divided())
    with pytest.raises(HwgenError, match="H746"):
        check_program(mutate(program), hardware, divided())


def _with_assign(nodes: tuple[Node, ...], change: Callable[[Assign], Assign]) -> tuple[Node, ...]:
    return tuple(
        change(n)
        if isinstance(n, Assign)
        else replace(n, body=_with_assign(n.body, change))
        if isinstance(n, Loop)
        else n
        for n in nodes
    )


def _shorter(nodes: tuple[Node, ...]) -> tuple[Node, ...]:
    (loop,) = nodes
    assert isinstance(loop, Loop)
    return (replace(loop, upper=Const(loop.extent - 1)),)


def _next_element(nodes: tuple[Node, ...]) -> tuple[Node, ...]:
    def shifted(assign: Assign) -> Assign:
        (index,) = assign.target.indices
        target = replace(assign.target, indices=(Binary("+", index, Const(1)),))
        return replace(assign, target=target)

    return _with_assign(nodes, shifted)


@pytest.mark.parametrize("mutate", [_shorter, _next_element])
def test_wrong_code_is_found(
    mutate: Callable[[tuple[Node, ...]], tuple[Node, ...]],
) -> None:
    """The simulator executes what the program says of the processor too."""
    hardware, workload = beside("vta"), divided()
    program = compile_workload(workload, hardware, QUICK).program
    (code,) = program.codes
    inputs = draw_inputs(workload, 0)
    run(program, hardware, inputs)
    wrong = replace(code, body=mutate(code.body))
    with pytest.raises(HwgenError, match="H729"):
        run(_coded(program, wrong), hardware, inputs)


def test_sums_that_no_call_stores_leave_in_planes() -> None:
    """The units sum up, the processor puts together; a script says the same."""
    workload, vta = widened(), beside("vta")
    compiled = compile_workload(workload, vta, QUICK)
    assert sides(compiled.program) == "up"
    assert compiled.workload == workload
    first = compiled.program.parts[0]
    assert isinstance(first, Program)
    assert [o for o in first.outputs if "_plane" in o] == [f"y_plane{q}" for q in range(4)]
    assert "gemm" in {c.intrinsic for c in calls(first.body)}
    examine(compiled, draw_inputs(workload, 3), "both" if have_compiler() else "python")
    again = compile_script(workload, vta, compiled.script)
    assert str(again.program) == str(compiled.program)


def test_planes_that_are_swapped_are_found() -> None:
    compiled = compile_workload(widened(), beside("vta"), QUICK)
    names = {"y_plane0": "y_plane1", "y_plane1": "y_plane0"}
    units = compiled.program.parts[0]
    assert isinstance(units, Program)
    images = tuple(replace(i, tensor=names.get(i.tensor, i.tensor)) for i in units.images)
    wrong = replace(compiled.program, images=images)
    inputs = draw_inputs(compiled.workload, 0)
    expected = run_reference(compiled.workload, inputs)["y"]
    assert np.array_equal(run(compiled.program, compiled.hardware, inputs).outputs["y"], expected)
    assert not np.array_equal(run(wrong, compiled.hardware, inputs).outputs["y"], expected)


def test_an_input_kept_for_two_products_is_no_load_of_what_follows_the_processor() -> None:
    """A gated product with a residual: `x` stays on the chip for both branches, and the sum that
    adds it behind the processor's turn loads it for itself."""
    tensors = {
        "x": "int8[8, 32]",
        **{n: {"type": "int8[64, 32]", "constant": True} for n in ("wg", "wu")},
        "wd": {"type": "int8[32, 64]", "constant": True},
        **dict.fromkeys(("gs", "us"), "int32[8, 64]"),
        **dict.fromkeys(("g", "u", "h"), "int8[8, 64]"),
        "ds": "int32[8, 32]",
        "y": "int8[8, 32]",
    }
    compute = [
        "gs[m, f] += x[m, d] * wg[f, d]",
        "g[m, f] = int8(clip(gs[m, f] >> 6, 0, 127))",
        "us[m, f] += x[m, d] * wu[f, d]",
        "u[m, f] = int8(clip(us[m, f] >> 6, -128, 127))",
        "h[m, f] = int8(clip((g[m, f] * u[m, f]) >> 7, -128, 127))",
        "ds[m, e] += h[m, f] * wd[e, f]",
        "y[m, e] = int8(clip((ds[m, e] >> 6) + x[m, e], -128, 127))",
    ]
    workload = make_workload("gated", tensors=tensors, compute=compute)
    compiled = compile_workload(workload, beside("vta"), QUICK)
    assert sides(compiled.program) == "upu"
    examine(compiled, draw_inputs(workload, 1), "python")
