"""Fields that leave out some numbers: addresses that are multiples, strides and extents in sets."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from hwgen.codegen.emit_c import emit
from hwgen.codegen.nodes import Call, Node, calls, rewritten
from hwgen.codegen.program import Program
from hwgen.errors import HwgenError
from hwgen.model.compiled import compile_model, have_compiler
from hwgen.model.functional import run
from hwgen.model.reference import random_inputs, run_reference
from hwgen.passes.kernel import Kernel
from hwgen.pipeline import compile_kernel
from hwgen.spec.expression import Const, add
from hwgen.spec.load import load_hardware, parse_workload
from hwgen.verify.check_program import check_program
from tests.planted.parts import with_operand, with_stride
from tests.samples import ROOT
from tests.sampling import QUICK

CHIP = load_hardware(ROOT / "tests" / "specs" / "granules.yaml")
ADDED = {
    "a row": ("x: int32[20]", "w: int32[20]", "y[n] = x[n] + w[n]"),
    "rows of five": ("x: int32[7, 20]", "w: int32[7, 20]", "y[m, n] = x[m, n] + w[m, n]"),
    "rows of one": ("x: int32[9, 4]", "w: int32[9, 4]", "y[m, n] = x[m, n] + w[m, n]"),
    "a row for all": ("x: int32[12, 36]", "w: int32[36]", "y[m, n] = x[m, n] + w[n]"),
    "transposed": (
        "x: int32[6, 5, 12]", "w: int32[5, 6, 12]", "y[m, k, n] = x[m, k, n] + w[k, m, n]"
    ),
    "many": ("x: int32[33, 28]", "w: int32[33, 28]", "y[m, n] = x[m, n] + w[m, n]"),
    "a constant": ("x: int32[5, 12]", "", "y[m, n] = x[m, n] + 4"),
}  # fmt: skip


@cache
def compiled(name: str) -> Kernel:
    *inputs, statement = ADDED[name]
    tensors = dict(i.split(": ") for i in inputs if i)
    data = {"name": "added", "tensors": {**tensors, "y": tensors["x"]}, "compute": [statement]}
    found = compile_kernel(parse_workload(data), CHIP, options=QUICK)
    assert found.parts
    return found


@pytest.mark.parametrize("name", ADDED)
def test_kernels_are_found_that_the_fields_can_hold(name: str) -> None:
    c = compiled(name)
    check_program(c.program, CHIP, c.workload)
    inputs = random_inputs(c.workload, 0)
    shapes = {"y": c.workload.tensor["y"].shape}
    outputs = run(c.program, CHIP, inputs, shapes=shapes).outputs
    np.testing.assert_array_equal(outputs["y"], run_reference(c.workload, inputs)["y"])
    if have_compiler():
        np.testing.assert_array_equal(compile_model(c.source).run(inputs)["y"], outputs["y"])


def test_a_constant_that_is_not_in_the_list_has_no_instruction() -> None:
    data = {
        "name": "added",
        "tensors": {"x": "int32[8]", "y": "int32[8]"},
        "compute": ["y[n] = x[n] + 3"],
    }
    with pytest.raises(HwgenError, match="H301"):
        compile_kernel(parse_workload(data), CHIP, options=QUICK)


def changed(call: Call, what: str) -> Call:
    """The first operand four entries further, its step 3, or an extent of 3."""
    dst = call.operands[0]
    match what:
        case "address":
            moved = replace(dst, address=add(dst.address, Const(4)))
            return with_operand(call, 0, moved)
        case "stride":
            return with_operand(call, 0, with_stride(dst, 0, Const(3)))
        case _:
            return replace(call, extents=(Const(3), *call.extents[1:]))


def broken(program: Program, what: str) -> Program:
    def edit(node: Node) -> tuple[Node, ...]:
        if isinstance(node, Call) and node.intrinsic == "add":
            return (changed(node, what),)
        return (node,)

    return replace(program, body=rewritten(program.body, edit))


BROKEN = {"address": "H713", "stride": "H715", "extent": "H714"}


@pytest.mark.parametrize(("what", "code"), BROKEN.items())
def test_what_a_field_cannot_hold_does_not_run(what: str, code: str) -> None:
    """Each number lies between the bounds of its field; a template may divide it by 8 and lose
    what is over, so that two tiles are one."""
    c = compiled("rows of five")
    assert any(call.intrinsic == "add" for call in calls(c.program.body))
    wrong = broken(c.program, what)
    with pytest.raises(HwgenError, match=code) as refused:
        run(wrong, CHIP, random_inputs(c.workload, 0))
    assert ("step 8" if what == "address" else "{1, 2, 4") in str(refused.value)
    if have_compiler():
        with pytest.raises(HwgenError, match="H702"):
            compile_model(emit(wrong, CHIP, c.workload)).run(random_inputs(c.workload, 0))
