"""Kernels with another program, or another time, than the compiler made."""

from __future__ import annotations

from dataclasses import replace

from hwgen.codegen.program import Program
from hwgen.model.timing import TimingResult
from hwgen.passes.kernel import Kernel


def with_program(kernel: Kernel, program: Program) -> Kernel:
    """The kernel with another program, in the time of its own."""
    changed = replace(kernel, lowering=replace(kernel.lowering, program=program))
    return with_timing(changed, kernel.timing)


def with_timing(kernel: Kernel, timing: TimingResult) -> Kernel:
    """The kernel in another time."""
    changed = replace(kernel)
    object.__setattr__(changed, "timing", timing)
    return changed
