"""What one instruction does at once and a workload says in several statements."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import hwgen
from hwgen.codegen.nodes import Code, calls
from hwgen.codegen.program import Program
from hwgen.errors import HwgenError
from hwgen.model.compiled import have_compiler
from hwgen.passes.kernel import Kernel
from hwgen.passes.scripting import compile_script
from hwgen.passes.start import Start
from hwgen.pipeline import compile_kernel, compile_workload
from hwgen.spec.hardware import HardwareSpec
from hwgen.spec.load import load_hardware, load_workload, make_workload
from hwgen.verify.data import draw_inputs
from hwgen.verify.examine import examine
from tests.sampling import QUICK, THOROUGH, tiered

ROOT = Path(__file__).parents[2]
ENGINE = "both" if have_compiler() else "python"
QUANTISED = (
    ("hw_specs/tpu_v1.yaml", "fully_connected", "requantize_all", "u"),
    ("hw_specs/tpu_v1.yaml", "conv2d", "requantize", "pu"),
    ("tests/specs/requantising.yaml", "conv2d_single_rounding", "requantise", "pu"),
)


def _chip(name: str) -> HardwareSpec:
    return load_hardware(ROOT / name, trust=True)


def _used(program: Program) -> set[str]:
    units = [p for p in program.parts if isinstance(p, Program)]
    return {c.intrinsic for p in units for c in calls(p.body)}


def _inlined(made: Kernel) -> list[object]:
    """Stages that were inlined before the search."""
    edits = made.start.edits
    return [e.arguments[0] for e in edits if e.primitive == "compute_inline"]


@pytest.mark.parametrize(
    ("chip", "layer", "intrinsic", "sides"),
    tiered(QUANTISED, [q for q in QUANTISED if "tpu" not in q[0]]),
)
def test_quantised_layers_are_requantised_on_the_chip(
    chip: str, layer: str, intrinsic: str, sides: str
) -> None:
    """All but the parameters of channels, which the processor makes."""
    workload = load_workload(ROOT / "workloads" / "quantised" / f"{layer}.yaml")
    compiled = compile_workload(workload, _chip(chip), QUICK)
    assert intrinsic in _used(compiled.program)
    parts = compiled.program.parts
    assert "".join("p" if isinstance(p, Code) else "u" for p in parts) == sides
    examine(compiled, draw_inputs(workload, 1), ENGINE)


def test_one_statement_or_two() -> None:
    """The same kernel; a script says what is inlined."""
    workload = load_workload(ROOT / "workloads" / "quantised" / "fully_connected.yaml")
    chip = _chip("hw_specs/tpu_v1.yaml")
    two = compile_kernel(workload, chip, options=QUICK)
    one = compile_kernel(Start(workload, chip).inlined("hi").workload, chip, options=QUICK)
    assert _inlined(two) == ["hi"]
    assert not _inlined(one)
    assert str(two.program) == str(one.program)
    script = two.script
    assert script.startswith("s.compute_inline('hi')\n")
    assert str(compile_script(workload, chip, script).program) == str(two.program)


def test_a_temporary_of_an_instruction_is_an_intermediate_of_a_workload() -> None:
    """`docs/spec-advanced.md` promises it."""
    chip = load_hardware(ROOT / "tests" / "specs" / "several.yaml")
    workload = make_workload(
        "blended",
        tensors=dict.fromkeys(("x", "z", "low", "y"), "int16[8, 24]") | {"t": "int32[8, 24]"},
        compute=[
            "t[m, n] = x[m, n] * z[m, n] >> 4",
            "low[m, n] = int16(t[m, n])",
            "y[m, n] = int16(max(t[m, n], low[m, n] + 3) >> 1)",
        ],
    )
    compiled = compile_kernel(workload, chip, options=QUICK)
    assert "blend" in _used(compiled.program)
    assert set(_inlined(compiled)) == {"t", "low"}
    examine(compiled, draw_inputs(workload, 1), ENGINE)


def test_what_others_read_too_stays() -> None:
    """An output is no value in between, so that nothing computes it on these units."""
    workload = load_workload(ROOT / "workloads" / "quantised" / "fully_connected.yaml")
    tensors = tuple(replace(t, role="output") if t.name == "hi" else t for t in workload.tensors)
    with pytest.raises(HwgenError, match="H301"):
        compile_kernel(replace(workload, tensors=tensors), _chip("hw_specs/tpu_v1.yaml"))


def test_what_repeats_another_tensor_is_no_block() -> None:
    """Between two phases, where no call of the chip copies what is in its memory."""
    workload = make_workload(
        "chain",
        sizes={"M": 20, "K": 24, "H": 17, "N": 8},
        tensors={
            "x": "float32[M, K]",
            "w": "float32[H, K]",
            "v": "float32[N, H]",
            "s": "float32[M, H]",
            "h": "float32[M, H]",
            "y": "float32[M, N]",
        },
        compute=[
            "s[i, j] += x[i, r] * w[j, r]",
            "h[i, j] = s[i, j]",
            "y[i, k] += h[i, j] * v[k, j]",
        ],
    )
    compiled = compile_kernel(workload, _chip("hw_specs/npu_shared_buffer.yaml"), options=QUICK)
    assert _inlined(compiled) == ["h"]
    examine(compiled, draw_inputs(workload, 1), ENGINE)


@THOROUGH
def test_a_transpose_of_what_another_phase_leaves_is_no_block() -> None:
    workload = make_workload(
        "turned",
        tensors={
            "x": "float32[8, 12, 5]",
            "w": "float32[8, 9]",
            "t": "float32[8, 12]",
            "u": "float32[12, 8]",
            "y": "float32[12, 9]",
        },
        compute=[
            "t[i, j] max= x[i, j, k]",
            "u[j, i] = t[i, j]",
            "y[j, n] += u[j, i] * w[i, n]",
        ],
    )
    compiled = compile_kernel(workload, _chip("hw_specs/vtcm_two_banks.yaml"), options=QUICK)
    assert _inlined(compiled) == ["u"]
    examine(compiled, draw_inputs(workload, 1), ENGINE)


def test_what_no_calls_compute_is_named_not_a_copy_before_it() -> None:
    """The copy could be inlined; that nothing computes the last statement is the reason."""
    workload = hwgen.workload(
        "named",
        tensors={
            "a": "float32[9, 16]", "b": "float32[6, 16]", "s": "float32[9, 6]",
            "h": "float32[9, 6]", "d": "float32[6, 24]", "t": "float32[9, 24]",
            "y": "float32[9, 24]",
        },
        compute=[
            "s[i, j] += a[i, r] * b[j, r]",
            "h[i, j] = s[i, j]",
            "t[i, k] += h[i, j] * d[j, k]",
            "y[i, k] = exp(min(t[i, k], 0))",
        ],
    )  # fmt: skip
    with pytest.raises(HwgenError) as caught:
        compile_workload(workload, hwgen.load_hardware("npu_shared_buffer"))
    assert caught.value.code == "H301"
    assert "min(t[i, k], 0)" in str(caught.value)
