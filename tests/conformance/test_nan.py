"""NaN, infinities, zeros of both signs and subnormal numbers: one answer in the reference, the
simulator, the C model and the C that runs, on every chip with floats."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import cast

import numpy as np
import pytest

from hwgen.errors import HwgenError, Tolerating
from hwgen.model.c_compiler import load_library
from hwgen.model.compiled import CompiledKernel, have_compiler
from hwgen.model.numeric import Array
from hwgen.model.reference import run_reference
from hwgen.passes.kernel import Kernel
from hwgen.pipeline import compile_kernel, compile_workload
from hwgen.spec.hardware import HardwareSpec
from hwgen.spec.hints import hints
from hwgen.spec.load import load_hardware, parse_hardware
from hwgen.spec.load import make_workload as made_workload
from hwgen.spec.source import read_document
from hwgen.spec.workload import Workload
from hwgen.verify.compare import compare, unexplained
from hwgen.verify.data import draw_inputs
from hwgen.verify.examine import compile_case, examine
from hwgen.verify.natural.draws import Spec
from tests.conformance.test_registers import NATIVE, ROOT, STRICT
from tests.fuzz.chips.text import yaml_text
from tests.sampling import tiered
from tests.small_npu import SPEC

FLOATS = ("cpu_generic", "cuda_generic", "davinci_core", "npu_shared_buffer", "vtcm_two_banks",
          "x86_avx2", "x86_avx512")  # fmt: skip
SPECIAL = [np.nan, -np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-45, -1e-45, 3.4e38, -3.4e38, 1.0, -2.0]
ENGINE = "both" if have_compiler() else "python"
VALUES = {
    "relu": "max(x[i, j], 0)",
    "relu6": "clip(x[i, j], 0, 6)",
    "least": "min(x[i, j], 0.5)",
    "greater": "max(x[i, j], z[i, j])",
}


def make_workload(name: str, tensors: dict[str, str], compute: list[str]) -> Workload:
    return made_workload(name, tensors=tensors, compute=compute)


ADDING = ["npu_shared_buffer", "vtcm_two_banks", "x86_avx512"]


@cache
def chip(name: str) -> HardwareSpec:
    return load_hardware(ROOT / "hw_specs" / f"{name}.yaml")


def narrow(hardware: HardwareSpec) -> str:
    return "float16" if hardware.name == "davinci_core" else "float32"


def elementwise(value: str, dtype: str = "float32") -> Workload:
    tensors = {"x": f"{dtype}[16, 48]", "y": f"{dtype}[16, 48]"}
    if "z[" in value:
        tensors["z"] = tensors["x"]
    return make_workload("elementwise", tensors, [f"y[i, j] = {value}"])


def reduction(op: str, dtype: str = "float32") -> Workload:
    tensors = {"x": f"{dtype}[16, 48]", "y": f"{dtype}[16]"}
    return make_workload("reduction", tensors, [f"y[i] {op} x[i, j]"])


def compiled(workload: Workload, name: str) -> Kernel | None:
    """None where the chip's instructions do not compute it."""
    with Tolerating("H301"):
        return compile_case(workload, chip(name), 0)
    return None


def every_pair(workload: Workload) -> dict[str, Array]:
    """Special values, every one beside every other one among `x` and `z`."""
    found: dict[str, Array] = {}
    for number, tensor in enumerate(workload.inputs):
        at = np.arange(np.prod(tensor.shape))
        with np.errstate(over="ignore"):
            values = np.array(SPECIAL)[at % 12 if number == 0 else at // 12 % 12]
            found[tensor.name] = np.reshape(values, tensor.shape).astype(tensor.dtype)
    return found


@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize("name", tiered(FLOATS, FLOATS[::3]))
@pytest.mark.filterwarnings("error")
def test_extremes_of_special_values_are_the_same_everywhere(name: str, value: str) -> None:
    workload = elementwise(VALUES[value], narrow(chip(name)))
    made = compiled(workload, name)
    if made is None:
        return
    passed = examine(made, every_pair(workload), ENGINE)
    assert not passed.comparison.vacuous


@pytest.mark.parametrize("op", tiered(["max=", "min=", "+="], ["max=", "+="]))
@pytest.mark.parametrize("name", tiered(FLOATS, FLOATS[::3]))
@pytest.mark.filterwarnings("error")
def test_folds_of_special_values_are_the_same_everywhere(name: str, op: str) -> None:
    if name == "davinci_core" and op == "+=":
        pytest.skip("its sums are of float32")
    workload = reduction(op, narrow(chip(name)))
    made = compiled(workload, name)
    if made is None:
        return
    for seed in range(5):
        examine(made, draw_inputs(workload, seed, "special"), ENGINE)


@pytest.mark.skipif(not NATIVE, reason="this machine has no AVX-512")
@pytest.mark.parametrize("name", ["x86_avx2", "x86_avx512"])
@pytest.mark.parametrize("columns", [32, 13])
def test_the_instructions_themselves_keep_a_nan(name: str, columns: int) -> None:
    """The vendor's C, not the model: whole vectors, and tails of lanes."""
    workload = make_workload(
        "relu_of_product",
        {"a": "float32[5, 7]", "b": f"float32[7, {columns}]", "s": f"float32[5, {columns}]",
         "y": f"float32[5, {columns}]"},
        ["s[i, j] += a[i, k] * b[k, j]", "y[i, j] = max(s[i, j], 0)"],
    )  # fmt: skip
    made = compile_workload(workload, chip(name))
    assert "max_ps(" in made.source.c
    kernel = CompiledKernel(made.source, load_library(made.source.c, "nan", STRICT))
    for seed in range(4):
        inputs = draw_inputs(workload, seed, "special")
        inputs["a"][2, seed] = np.nan
        found = compare(workload, inputs, kernel.run(inputs), run_reference(workload, inputs))
        assert found.difference is None
        assert any(t.nan for t in found.tensors)


def npu(changes: dict[str, dict[str, object]]) -> HardwareSpec:
    """The chip of one shared buffer with other fields of some intrinsics, without the others of the
    same form."""
    spec = cast(Spec, read_document(SPEC).data)
    for name, fields in changes.items():
        spec["intrinsics"][name] |= fields
    return parse_hardware(spec)


RELU = "dst[] = max(x[], 0)"
ZERO_FIRST = "dst[] = max(0, x[])"
GREATER: dict[str, object] = {"semantics": "dst[] = max(x[], y[])"}


@pytest.mark.parametrize(
    ("rule", "semantics", "executed"),
    [
        ("propagate", RELU, "dst[] = max(x[], 0)"),
        ("any", RELU, "dst[] = max(x[], 0)"),
        ("second", RELU, "dst[] = select(x[] > 0, x[], 0)"),
        ("second", ZERO_FIRST, "dst[] = max(0, x[])"),
        ("number", RELU, "dst[] = select(x[] > 0, x[], 0)"),
        ("number", ZERO_FIRST, "dst[] = select(x[] > 0, x[], 0)"),
        ("second", "dst[] = clip(x[], 0, 6)",
         "dst[] = select(select(x[] > 0, x[], 0) < 6, select(x[] > 0, x[], 0), 6)"),
        ("second", "dst[] = min(6, max(0, x[]))", "dst[] = min(6, max(0, x[]))"),
        ("second", "dst[] max= x[]", "dst[] = select(dst[] > x[], dst[], x[])"),
        ("number", "dst[] min= x[]", "dst[] = select(dst[] < x[] or x[] != x[], dst[], x[])"),
    ],
)  # fmt: skip
def test_semantics_say_what_is_executed(rule: str, semantics: str, executed: str) -> None:
    made = npu({"relu": {"semantics": semantics, "nan": rule}})
    assert str(made.intrinsic["relu"].semantics[0]) == executed
    assert made.intrinsic["relu"].nan == rule


@pytest.mark.parametrize(
    ("rule", "semantics", "used"),
    [("second", RELU, False), ("second", ZERO_FIRST, True), ("number", RELU, False),
     ("any", RELU, True)],
)  # fmt: skip
def test_an_instruction_is_used_where_it_keeps_a_nan(rule: str, semantics: str, used: bool) -> None:
    hardware = npu({"relu": {"semantics": semantics, "nan": rule}})
    workload = elementwise(VALUES["relu"])
    if not used:
        with pytest.raises(HwgenError) as caught:
            compile_workload(workload, hardware)
        assert caught.value.code == "H301"
        # What it computes, it still does.
        workload = elementwise("select(x[i, j] > 0, x[i, j], 0)")
    made = compile_workload(workload, hardware)
    passed = examine(made, every_pair(workload), ENGINE)
    assert "NPU_RELU" in made.source.c
    assert not any(t.unbounded for t in passed.comparison.tensors)


@pytest.mark.parametrize("rule", ["second", "number"])
def test_a_fold_that_loses_a_nan_is_no_maximum_of_a_workload(rule: str) -> None:
    hardware = npu({"row_max": {"nan": rule}})
    with pytest.raises(HwgenError) as caught:
        compile_workload(reduction("max="), hardware)
    assert caught.value.code == "H301"
    compile_workload(reduction("max="), npu({"row_max": {"nan": "any"}}))


def test_check_says_that_an_instruction_loses_a_nan(tmp_path: Path) -> None:
    spec = cast(Spec, read_document(SPEC).data)
    for semantics, wanted in ((RELU, 1), (ZERO_FIRST, 0)):
        spec["intrinsics"]["relu"] |= {"semantics": semantics, "nan": "second"}
        path = tmp_path / "chip.yaml"
        path.write_text(yaml_text(spec), encoding="utf-8")
        found = [h for h in hints(load_hardware(path), read_document(path)) if "nan" in h.text]
        assert len(found) == wanted
        assert all("relu is dst[] = select(x[] > 0, x[], 0)" in h.text for h in found)


@pytest.mark.parametrize("rule", ["second", "number"])
def test_simulator_and_c_model_execute_the_rule(rule: str) -> None:
    """An instruction whose operands both may be NaN, asked for in its own words."""
    text = {
        "second": "select(x[i, j] > z[i, j], x[i, j], z[i, j])",
        "number": "select(x[i, j] > z[i, j] or z[i, j] != z[i, j], x[i, j], z[i, j])",
    }
    hardware = npu({"add": {**GREATER, "nan": rule}})
    workload = elementwise(text[rule])
    made = compile_workload(workload, hardware)
    assert "NPU_ADD" in made.source.c
    passed = examine(made, every_pair(workload), ENGINE)
    assert sum(t.nan for t in passed.comparison.tensors) > 0
    with pytest.raises(HwgenError):
        compile_workload(elementwise(VALUES["greater"]), hardware)


def test_a_maximum_of_sums_then_a_rectifier_on_vectors() -> None:
    workload = make_workload(
        "w",
        {"y1": "float32[16, 1]", "t2": "float32[16, 16]", "t3": "float32[5]"},
        ["y1[m, l] max= t2[m, m] + t3[j]", "y1[k, l] = max(y1[k, l], 0)"],
    )
    made = compile_workload(workload, chip("x86_avx512"))
    inputs = draw_inputs(workload, 0)
    inputs["t2"][3, 3] = np.nan
    examine(made, inputs, ENGINE)


@pytest.mark.parametrize("name", tiered(ADDING, ADDING[:1]))
@pytest.mark.parametrize(
    "value",
    ["(x[i, j] + z[i, j]) + (x[j, i] + z[j, i])", "x[i, j] + (z[i, j] + x[j, i])"],
)  # fmt: skip
def test_sums_of_floats_in_one_statement_keep_their_order(name: str, value: str) -> None:
    tensors = dict.fromkeys("xzy", "float32[64, 64]")
    workload = make_workload("chain", tensors, [f"y[i, j] = {value}"])
    examine(compile_workload(workload, chip(name)), draw_inputs(workload, 0))


HALVES = {"x": "float16[16, 16]", "z": "float16[16, 16]", "y": "float16[16, 16]"}


@pytest.mark.parametrize(
    ("value", "steps"),
    [("x[i, j] + z[i, j] + x[j, i]", 2), ("max(x[i, j] + z[i, j], 0)", 1),
     ("(x[i, j] + z[i, j]) * x[j, i] * 0.5 + 0.25", 4)],
)  # fmt: skip
def test_units_that_hold_halves_round_every_operation(value: str, steps: int) -> None:
    workload = make_workload("halves", HALVES, [f"y[i, j] = {value}"])
    made = compile_kernel(workload, chip("davinci_core"))
    inputs = draw_inputs(workload, 0)
    passed = examine(made, inputs)
    reference = run_reference(workload, inputs)
    assert unexplained(workload, inputs, reference, reference) is None
    strict = unexplained(workload, inputs, passed.outputs, reference)
    assert (strict is None) == (steps == 1), "one rounding more shows"
