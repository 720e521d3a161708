"""That what was compiled executes exactly the instances which its tree intends."""

from __future__ import annotations

from hwgen.codegen.instances.refuted import refuted
from hwgen.codegen.instances.units import check_units
from hwgen.codegen.lower.program import Lowered
from hwgen.codegen.program import Program
from hwgen.passes.kernel import Kernel
from hwgen.verify.check_program import check_program


def check_compiled(made: Kernel) -> None:
    """Every check of a program that runs nothing, on what was compiled. That of a processor alone
    was held against its tree when it was made (`compile_nest`), which tells what is not proved.

    Raises:
        HwgenError: H731 to H746, as `check_program`; H747, as `check_instances`.
    """
    check_program(made.program, made.hardware, made.workload)
    if made.hardware.units:
        check_instances(made.program, made.lowering)


def check_instances(program: Program, lowering: Lowered) -> None:
    """Hold a program against the trees that it was lowered from.

    Raises:
        HwgenError: H747 other instances, or other entries, than a tree intends.
    """
    parts = [p for p in program.parts if isinstance(p, Program)]
    for part, own in zip(lowering.parts, parts, strict=True):
        check_units(part, own)
    if not lowering.codes:
        return
    from hwgen.codegen.instances.nests import check_nest_instances

    for placing, code in zip(lowering.codes, program.codes, strict=True):
        if unproved := check_nest_instances(code, placing):
            raise refuted(
                "not proved to execute what its tree intends", unproved[0], "a known form"
            )
