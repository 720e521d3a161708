"""What the C model finds of a defect, by itself."""

from __future__ import annotations

from collections.abc import Mapping

from hwgen.codegen.emit_c import emit
from hwgen.codegen.program import Program
from hwgen.errors import HwgenError
from hwgen.model.compiled import compile_model
from hwgen.model.numeric import Array
from hwgen.model.reference import run_reference
from hwgen.spec.hardware import HardwareSpec
from hwgen.spec.workload import Workload


def found_by_model(
    program: Program, hardware: HardwareSpec, workload: Workload, inputs: Mapping[str, Array]
) -> str:
    """The fault with which the model stops, or what else is wrong; "" where nothing is."""
    try:
        outputs = compile_model(emit(program, hardware, workload)).run(inputs)
    except HwgenError as error:
        return error.diagnostics[0].message
    expected = run_reference(workload, inputs)
    wrong = (t.name for t in workload.outputs if (outputs[t.name] != expected[t.name]).any())
    return next((f"{name} is wrong" for name in wrong), "")
