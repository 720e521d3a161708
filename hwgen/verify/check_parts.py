"""Static checks of what units and a processor hand to each other, and of what a processor runs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from hwgen.codegen.nodes import Code, inner, nodes
from hwgen.codegen.processor.races import check
from hwgen.codegen.program import Program
from hwgen.spec.hardware import HardwareSpec
from hwgen.spec.workload import Workload

Problem = tuple[str, str, str]


class Subject(Protocol):
    """What is checked."""

    @property
    def program(self) -> Program: ...
    @property
    def hardware(self) -> HardwareSpec: ...
    @property
    def workload(self) -> Workload | None: ...


def part_problems(subject: Subject) -> Iterator[Problem]:
    """Tensors that a part takes before anything has made them, or in another form, outputs that
    nothing makes.

    Raises:
        HwgenError: H757 code that is wrong.
    """
    program, hardware, workload = subject.program, subject.hardware, subject.workload
    if not program.codes:
        return
    if hardware.processor is None:
        yield "code without a processor", program.codes[0].name, "calls of units"
        return
    given = {*program.inputs} - {*program.outputs}
    known = {*given}
    for part in program.parts:
        if missing := sorted({*part.inputs} - known):
            yield "tensors are taken before they are made", ", ".join(missing), ", ".join(known)
        if again := sorted({*part.outputs} & given):
            yield "an input is written", ", ".join(again), "other tensors"
        known |= {*part.outputs}
        if isinstance(part, Code):
            check(part, hardware)
            yield from _forms(part, program, workload)
    if missing := sorted({*program.outputs} - known):
        yield "outputs that nothing makes", ", ".join(missing), "each of them"
    if any(isinstance(x, Code) for n in program.body for x in nodes(inner(n))):
        yield "code inside of a loop", program.name, "code at the root of a program"


def _forms(code: Code, program: Program, workload: Workload | None) -> Iterator[Problem]:
    """Arrays that the code takes for others than they are."""
    between = {a.name: (a.dtype, a.extents) for a in program.between}
    tensors = () if workload is None else (*workload.inputs, *workload.outputs)
    known = between | {t.name: (t.dtype, t.shape) for t in tensors}
    for name in (*code.inputs, *code.outputs):
        array = code.array[name]
        form = (array.dtype, array.extents)
        if name in known and form != known[name]:
            yield f"{name} is another array", str(form), str(known[name])
