"""Operands that must be where the written one is: `dst[i] = src[i] + imm` with `src` the same."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from hwgen.codegen.emit_c import emit
from hwgen.codegen.nodes import Call, CallOperand, Node, calls, rewritten
from hwgen.codegen.program import Program
from hwgen.errors import HwgenError
from hwgen.model.compiled import compile_model, have_compiler
from hwgen.model.functional import run
from hwgen.model.reference import random_inputs, run_reference
from hwgen.pipeline import compile_kernel
from hwgen.spec.expression import Const, add
from hwgen.spec.hardware import HardwareSpec
from hwgen.spec.load import load_hardware, load_workload, parse_workload
from hwgen.spec.workload import Workload
from hwgen.verify.check_program import check_program
from tests import samples
from tests.planted.parts import with_operand, with_stride
from tests.samples import ROOT
from tests.sampling import QUICK

WORKLOAD = parse_workload(
    {
        "name": "raised",
        "tensors": {"x": "int32[5, 32]", "y": "int32[5, 32]"},
        "compute": ["y[m, n] = x[m, n] + 7"],
    }
)
INPUTS = random_inputs(WORKLOAD, 0)
EXPECTED = run_reference(WORKLOAD, INPUTS)["y"]


def chip(tmp_path: Path) -> Path:
    """A small chip without micro-kernels, whose addition in place has a field for what it reads."""
    text = (Path(__file__).parents[2] / "error" / "spec_same_as_apart.yaml").read_text()
    text = "".join(x for x in text.splitlines(keepends=True) if not x.startswith("  buf:"))
    start = text.index("intrinsics:")
    end = text.index("code:")
    text = text[:start] + INTRINSICS + text[end:]
    path = tmp_path / "chip.yaml"
    path.write_text(text)
    return path


INTRINSICS = """intrinsics:
  load:
    unit: dma
    iterators: {i: N}
    semantics: "dst[i] = src[i]"
    operands: {dst: {memory: acc}, src: {memory: dram, dtype: int32}}
    loops: {x: {extent: 1..64, strides: {dst: 1, src: 1}}}
    cycles: 5 + transfer
    emit: "load({{ src.address }}, {{ dst.address }}, {{ x.extent }});"
  add:
    unit: alu
    iterators: {i: N}
    semantics: "dst[i] = src[i] + imm"
    operands: {dst: {memory: acc}, src: {memory: acc, same_as: dst}}
    immediates: {imm: {dtype: int32, range: -128..127}}
    loops: {n: {extent: 1..8, strides: {dst: 1..8, src: 1..3}}}
    cycles: 2 + n
    emit: "add({{ dst.address }}, {{ src.address }}, {{ n.extent }}, {{ imm }});"
  store:
    unit: dma
    iterators: {i: N}
    semantics: "dst[i] = src[i]"
    operands: {dst: {memory: dram, dtype: int32}, src: {memory: acc}}
    cycles: 1 + transfer
    emit: "store({{ dst.address }}, {{ src.address }});"
"""


Edit = Callable[[CallOperand], CallOperand]


def reading(program: Program, change: Edit) -> Program:
    """Additions that read elsewhere."""

    def edit(node: Node) -> tuple[Node, ...]:
        if not isinstance(node, Call) or node.intrinsic != "add":
            return (node,)
        return (with_operand(node, 1, change(node.operands[1])),)

    return replace(program, body=rewritten(program.body, edit))


def apart(program: Program) -> Program:
    """What it reads one entry further than what it writes."""
    return reading(program, lambda o: replace(o, address=add(o.address, Const(1))))


def stepping(program: Program) -> Program:
    """What it reads moves otherwise than what it writes."""
    return reading(program, lambda o: with_stride(o, 0, Const(3)))


def test_both_fields_hold_one_address_and_one_stride(tmp_path: Path) -> None:
    hardware = load_hardware(chip(tmp_path))
    compiled = compile_kernel(WORKLOAD, hardware, options=QUICK)
    found = [c for c in calls(compiled.program.body) if c.intrinsic == "add"]
    assert found
    for call in found:
        dst, src = call.operands
        assert (dst.buffer, dst.address, dst.strides) == (src.buffer, src.address, src.strides)
    outputs = run(compiled.program, hardware, INPUTS).outputs
    np.testing.assert_array_equal(outputs["y"], EXPECTED)


def test_a_program_that_breaks_it_is_refused_and_does_not_run(tmp_path: Path) -> None:
    hardware = load_hardware(chip(tmp_path))
    compiled = compile_kernel(WORKLOAD, hardware, options=QUICK)
    wrong = apart(compiled.program)
    with pytest.raises(HwgenError, match="H745") as refused:
        check_program(wrong, hardware, WORKLOAD)
    assert "src has another address than dst" in refused.value.diagnostic.message
    with pytest.raises(HwgenError, match="H750"):
        run(wrong, hardware, INPUTS)


def outcomes(program: Program, hardware: HardwareSpec, workload: Workload) -> list[str]:
    """What the checker, the simulator and the C model say: nothing, or a code."""
    inputs = random_inputs(workload, 0)

    def check() -> None:
        check_program(program, hardware, workload)

    def simulate() -> None:
        same(run(program, hardware, inputs).outputs["y"])

    def execute() -> None:
        same(compile_model(emit(program, hardware, workload)).run(inputs)["y"])

    def same(found: NDArray[Any]) -> None:
        np.testing.assert_array_equal(found, run_reference(workload, inputs)["y"])

    codes: list[str] = []
    for look in (check, simulate, execute):
        try:
            look()
            codes.append("")
        except HwgenError as error:
            codes.append(error.diagnostic.code)
    return codes


@pytest.mark.skipif(not have_compiler(), reason="no C compiler")
@pytest.mark.parametrize(("rows", "codes"), [(1, ["", "", ""]), (5, ["H745", "H750", "H702"])])
def test_a_loop_that_runs_once_has_no_step(tmp_path: Path, rows: int, codes: list[str]) -> None:
    hardware = load_hardware(chip(tmp_path))
    workload = parse_workload(
        {
            "name": "raised",
            "tensors": {"x": f"int32[{rows}, 8]", "y": f"int32[{rows}, 8]"},
            "compute": ["y[m, n] = x[m, n] + 7"],
        }
    )
    program = compile_kernel(workload, hardware, options=QUICK).program
    assert outcomes(stepping(program), hardware, workload) == codes


@pytest.mark.skipif(not have_compiler(), reason="no C compiler")
def test_the_c_model_refuses_it_too(tmp_path: Path) -> None:
    hardware = load_hardware(chip(tmp_path))
    program = compile_kernel(WORKLOAD, hardware, options=QUICK).program
    right = compile_model(emit(program, hardware, WORKLOAD)).run(INPUTS)
    np.testing.assert_array_equal(right["y"], EXPECTED)
    with pytest.raises(HwgenError, match="H702") as refused:
        compile_model(emit(apart(program), hardware, WORKLOAD)).run(INPUTS)
    assert "src, the same as dst" in str(refused.value)


def test_micro_operations_with_an_immediate_name_their_entry_twice() -> None:
    """As the first chip's RTL needs it: an earlier spec left src 0, and every kernel was wrong."""
    workload = load_workload(ROOT / "workloads" / "gemm_requant.yaml", {"M": 32, "N": 64, "K": 32})
    compiled = compile_kernel(workload, samples.chip(), options=QUICK)
    found = [k for k in compiled.program.kernels if k.intrinsic.endswith("_imm")]
    assert {k.intrinsic for k in found} == {"shr_imm", "min_imm", "max_imm"}
    for kernel in found:
        numbers = (*kernel.bases, *(x.strides for x in (*kernel.loops, *kernel.sequence)))
        assert all(dst == src for dst, src in numbers)
    assert any(base[0] for kernel in found for base in kernel.bases)
