"""Constants of floating-point statements as immediates: selected, checked, simulated, emitted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import hwgen
from hwgen.codegen.emit_c import emit
from hwgen.codegen.nodes import Call, Node, calls, rewritten
from hwgen.codegen.program import Program
from hwgen.model.compiled import compile_model, have_compiler
from hwgen.model.functional import run
from hwgen.model.reference import random_inputs
from hwgen.passes.kernel import Kernel
from hwgen.spec.hardware import HardwareSpec
from hwgen.spec.workload import Workload
from hwgen.verify.check_program import check_program
from hwgen.verify.examine import Engine, examine
from tests.fuzz.edits import catch
from tests.planted.programs import mutations
from tests.sampling import QUICK

SPEC = Path(__file__).parents[2] / "hw_specs" / "npu_shared_buffer.yaml"
ANY_FLOAT = "immediates: {imm: {dtype: float32}}"
needs_compiler = pytest.mark.skipif(not have_compiler(), reason="no C compiler")
ENGINES = ["python", pytest.param("c", marks=needs_compiler)]
SCALE, SHIFT = float(np.float32(0.3)), float(np.float32(0.1))


@cache
def chip() -> HardwareSpec:
    return hwgen.load_hardware(SPEC)


@pytest.fixture
def changed(tmp_path: Path) -> Callable[..., HardwareSpec]:
    """The chip with parts of its text replaced."""

    def load(*changes: tuple[str, str]) -> HardwareSpec:
        text = SPEC.read_text(encoding="utf-8")
        for old, new in changes:
            assert old in text
            text = text.replace(old, new)
        path = tmp_path / SPEC.name
        path.write_text(text, encoding="utf-8")
        return hwgen.load_hardware(path)

    return load


def workload(statement: str, result: str = "[M, N]", dtype: str = "float32") -> Workload:
    tensors = {"x": f"{dtype}[M, N]", "y": f"{dtype}{result}"}
    return hwgen.workload("w", sizes={"M": 6, "N": 10}, tensors=tensors, compute=[statement])


@cache
def kernel(statement: str, result: str = "[M, N]") -> Kernel:
    return hwgen.compile_kernel(workload(statement, result), chip(), options=QUICK)


def immediates(program: Program) -> list[tuple[str, int | float]]:
    return [(c.intrinsic, v) for c in calls(program.body) for _, v in c.immediates]


AFFINE = "y[m, n] = max(x[m, n] * 0.3 + 0.1, 0.0)"
CASES: dict[str, tuple[str, str, list[tuple[str, int | float]]]] = {
    "affine": (AFFINE, "[M, N]", [("mul_imm", SCALE), ("add_imm", SHIFT)]),
    "row maximum": ("y[i] max= x[i, j]", "[M]", []),
    "row sum": ("y[i] += x[i, j] * -0.7", "[M]", [("mul_imm", float(np.float32(-0.7)))]),
    "exponentials": (
        "y[m, n] = exp(exp(x[m, n] * 0.25) * -0.3) + 2",
        "[M, N]",
        [("mul_imm", 0.25), ("mul_imm", -SCALE), ("add_imm", 2.0)],
    ),
    "tiny and large": (
        "y[m, n] = x[m, n] * 1e-42 + 16777217",
        "[M, N]",
        [("mul_imm", float(np.float32(1e-42))), ("add_imm", 16777216.0)],
    ),
}


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", CASES)
def test_constants_reach_the_kernel(name: str, engine: Engine) -> None:
    statement, result, expected = CASES[name]
    compiled = kernel(statement, result)
    assert immediates(compiled.program) == expected
    assert all(isinstance(v, float) for _, v in immediates(compiled.program))
    for seed in range(3):
        examine(compiled, random_inputs(compiled.workload, seed), engine)


def test_emitted_text() -> None:
    compiled = kernel(CASES["exponentials"][0])
    text = compiled.source.c
    assert "npu_unary_imm(NPU_MUL_IMM, " in text
    for literal in (", 0.25f, ", ", -0.3f, ", ", 2.0f, "):
        assert literal in text, literal
    assert "float imm0" in compiled.source.model
    assert "int64_t imm0" not in compiled.source.model
    assert "imm=-0.30000001192092896" in str(compiled.program)
    assert "imm=2.0" in str(compiled.match)


def test_a_negative_literal_stays_one_operand(changed: Callable[..., HardwareSpec]) -> None:
    hardware = changed(("{{ x.address }}, {{ imm }},", "{{ x.address }}, 0-{{ imm }},"))
    text = hwgen.compile_kernel(
        workload("y[m, n] = x[m, n] * -0.5"), hardware, options=QUICK
    ).source.c
    assert "0-(-0.5f)" in text


@pytest.mark.parametrize("engine", ENGINES)
def test_doubles(changed: Callable[..., HardwareSpec], engine: Engine) -> None:
    hardware = changed(("float32", "float64"))
    compiled = hwgen.compile_kernel(workload(AFFINE, dtype="float64"), hardware, options=QUICK)
    assert immediates(compiled.program) == [("mul_imm", 0.3), ("add_imm", 0.1)]
    assert "double imm0" in compiled.source.model
    assert ", 0.3, " in compiled.source.c
    examine(compiled, random_inputs(compiled.workload, 1), engine)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    ("immediate", "everything", "good", "bad"),
    [
        ("float32", "float64", "0.25", "0.3"),
        ("bfloat16", "float32", "-1.5", "0.3"),
        ("float16", "float32", "1024", "2049"),
    ],
)
def test_a_narrow_immediate_holds_what_it_holds_exactly(
    changed: Callable[..., HardwareSpec],
    engine: Engine,
    immediate: str,
    everything: str,
    good: str,
    bad: str,
) -> None:
    """Else it would not be the number that the reference computes with."""
    hardware = changed(
        (ANY_FLOAT, "immediates: {imm: {dtype: NARROW}}"),
        ("float32", everything),
        ("NARROW", immediate),
    )
    compiled = hwgen.compile_kernel(
        workload(f"y[m, n] = x[m, n] * {good}", dtype=everything), hardware
    )
    assert immediates(compiled.program) == [("mul_imm", float(good))]
    examine(compiled, random_inputs(compiled.workload, 1), engine)
    with pytest.raises(hwgen.HwgenError) as caught:
        hwgen.compile_kernel(workload(f"y[m, n] = x[m, n] * {bad}", dtype=everything), hardware)
    assert caught.value.code == "H301"
    assert f"constant {float(bad)} is no {immediate}" in str(caught.value)


@pytest.mark.parametrize(("number", "fits"), [("1", True), ("-0.75", True), ("1.5", False)])
def test_a_range_is_closed(changed: Callable[..., HardwareSpec], number: str, fits: bool) -> None:
    hardware = changed((ANY_FLOAT, "immediates: {imm: {dtype: float32, range: -1..1}}"))
    shifted = workload(f"y[m, n] = x[m, n] + {number}")
    if fits:
        compiled = hwgen.compile_kernel(shifted, hardware, options=QUICK)
        assert immediates(compiled.program) == [("add_imm", float(number))]
        examine(compiled, random_inputs(shifted, 1))
        return
    with pytest.raises(hwgen.HwgenError) as caught:
        hwgen.compile_kernel(shifted, hardware)
    assert caught.value.code == "H301"
    assert "constant 1.5 is outside the range -1..1 of imm" in str(caught.value)


def test_a_constant_that_no_float_holds_is_refused() -> None:
    with pytest.raises(hwgen.HwgenError) as caught:
        kernel("y[m, n] = x[m, n] * 1e39")
    assert caught.value.code == "H301"
    assert "constant 1e+39 is outside the range any finite float32 of imm" in str(caught.value)


@pytest.mark.parametrize("engine", ENGINES)
def test_immediates_are_passed_by_name(
    changed: Callable[..., HardwareSpec], engine: Engine
) -> None:
    """The order of declaration differs from that in which the constants are found."""
    hardware = changed(
        ('semantics: "dst[] = x[] * imm"', 'semantics: "dst[] = x[] * scale + shift"'),
        (
            ANY_FLOAT + '\n    emit: "npu_unary_imm(NPU_MUL_IMM, {{ dst.address }}, '
            "{{ x.address }}, {{ imm }},",
            "immediates: {shift: {dtype: float32}, scale: {dtype: float32}}\n"
            '    emit: "npu_affine({{ dst.address }}, {{ x.address }}, {{ scale }}, {{ shift }},',
        ),
    )
    compiled = hwgen.compile_kernel(workload(AFFINE), hardware, options=QUICK)
    (call,) = [c for c in calls(compiled.program.body) if c.immediates]
    assert dict(call.immediates) == {"scale": SCALE, "shift": SHIFT}
    assert ", 0.3f, 0.1f, " in compiled.source.c
    examine(compiled, random_inputs(compiled.workload, 1), engine)


def with_immediate(program: Program, value: int | float) -> Program:
    def edit(node: Node) -> tuple[Node, ...]:
        if isinstance(node, Call) and node.intrinsic == "mul_imm":
            return (replace(node, immediates=(("imm", value),)),)
        return (node,)

    return replace(program, body=rewritten(program.body, edit))


@pytest.mark.parametrize("value", [0.3, float("inf"), 1e39], ids=str)
def test_what_a_field_does_not_hold_is_found(value: float) -> None:
    compiled = kernel(AFFINE)
    program = with_immediate(compiled.program, value)
    with pytest.raises(hwgen.HwgenError) as caught:
        check_program(program, chip(), compiled.workload)
    assert caught.value.code == "H738"
    assert "any finite float32" in str(caught.value)
    with pytest.raises(hwgen.HwgenError) as caught:
        run(program, chip(), random_inputs(compiled.workload, 0), shapes={"y": (6, 10)})
    assert caught.value.code == "H716"


@needs_compiler
def test_the_c_model_checks_the_field(changed: Callable[..., HardwareSpec]) -> None:
    hardware = changed((ANY_FLOAT, "immediates: {imm: {dtype: float32, range: -1..1}}"))
    compiled = hwgen.compile_kernel(workload(AFFINE), hardware, options=QUICK)
    inputs = random_inputs(compiled.workload, 0)
    for value in (1.25, float("inf"), float("-inf")):
        source = emit(with_immediate(compiled.program, value), hardware, compiled.workload)
        with pytest.raises(hwgen.HwgenError) as caught:
            compile_model(source).run(inputs)
        assert caught.value.code == "H702"
        assert "immediate imm" in str(caught.value)


def test_wrong_immediates_are_caught() -> None:
    compiled = kernel(AFFINE)
    inputs = random_inputs(compiled.workload, 0)
    (mutation,) = [m for m in mutations(chip()) if m.name == "wrong immediate"]
    assert catch(compiled.program, chip(), compiled.workload, inputs) == ""
    for seed in range(4):
        mutant = mutation.mutate(compiled.program, seed)
        assert mutant is not None
        assert mutant != compiled.program
        assert catch(mutant, chip(), compiled.workload, inputs) == "H790"


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(("op", "start"), [("max=", "-inf"), ("min=", "inf")])
def test_extremes_start_at_infinity(
    changed: Callable[..., HardwareSpec], op: str, start: str, engine: Engine
) -> None:
    hardware = changed(
        ('"dst[] = -inf"', f'"dst[] = {start}"'), ('"dst[] max= x[]"', f'"dst[] {op} x[]"')
    )
    compiled = hwgen.compile_kernel(workload(f"y[i] {op} x[i, j]", "[M]"), hardware, options=QUICK)
    assert [c.intrinsic for c in calls(compiled.program.body)].count("lowest") == 1
    inputs = {"x": np.full((6, 10), np.float32(start), np.float32)}
    inputs["x"][1:] = random_inputs(compiled.workload, 0)["x"][1:]
    found = examine(compiled, inputs, engine)
    assert float(found.outputs["y"][0]) == float(start)
