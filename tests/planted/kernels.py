"""Kernels with another program, or another time, than the compiler made."""

from __future__ import annotations

from dataclasses import replace

from hwgen.codegen.program import Program
from hwgen.model.timing import TimingResult
from hwgen.passes.compilation import Compilation
from hwgen.passes.trees import TreeCompilation


def with_program(c: Compilation, program: Program) -> Compilation:
    """The kernel with another program, in the time of its own."""
    made = c.kernel.made
    changed = replace(made, lowered=replace(made.lowered, program=program))
    return _timed(c, changed, c.timing)


def with_timing(c: Compilation, timing: TimingResult) -> Compilation:
    """The kernel in another time."""
    return _timed(c, replace(c.kernel.made), timing)


def _timed(c: Compilation, made: TreeCompilation, timing: TimingResult) -> Compilation:
    object.__setattr__(made, "timing", timing)
    return replace(c, kernel=replace(c.kernel, made=made))
