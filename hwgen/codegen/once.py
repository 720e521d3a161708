"""What constants alone decide of a kernel: computed where they are packed, not in each call."""

from __future__ import annotations

from dataclasses import replace

from hwgen.codegen.c_names import indent
from hwgen.codegen.host_plan import HostPlan
from hwgen.codegen.nodes import Code
from hwgen.codegen.program import Program
from hwgen.spec.hardware import HardwareSpec
from hwgen.spec.workload import Tensor, Workload


def split_once(program: Program, workload: Workload) -> tuple[Program, Workload, Code | None]:
    """What each call runs, for which what is computed once is one more constant, its workload, and
    what is computed once; None where nothing is."""
    once = next((c for c in program.codes if c.once), None)
    if once is None:
        return program, workload, None
    known = program.tensors(workload)
    where = workload.location
    found = (known[name] for name in once.outputs)
    made = tuple(Tensor(t.name, t.dtype, t.shape, "input", True, where) for t in found)
    names = {t.name for t in made}
    rest = replace(
        program,
        inputs=(*program.inputs, *(t.name for t in made)),
        body=tuple(n for n in program.body if n is not once),
        between=tuple(a for a in program.between if a.name not in names),
    )
    others = tuple(t for t in workload.tensors if t.name not in names)
    return rest, replace(workload, tensors=(*others, *made)), once


def derive_signature(plan: HostPlan) -> str:
    """Of the function that computes these constants."""
    assert plan.once is not None
    tensors = {t.name: t for t in plan.inputs}
    given = [plan.parameter(tensors[n]) for n in plan.once.inputs]
    made = [plan.parameter(tensors[n]).removeprefix("const ") for n in plan.once.outputs]
    room = [f"void *{plan.workspace.pointer}"] if plan.workspace else []
    return f"void {plan.name}_derive({', '.join([*given, *made, *room])})"


def derived_rule(plan: HostPlan) -> str:
    """What the function does, for the header."""
    assert plan.once is not None
    made, given = (
        ", ".join(plan.identifiers[n] for n in names)
        for names in (plan.once.outputs, plan.once.inputs)
    )
    return f"Computes {made} once, from {given}"


def derive_call(plan: HostPlan, function: str) -> str:
    """A call of it, or of what does its work."""
    assert plan.once is not None
    names = [plan.identifiers[n] for n in (*plan.once.inputs, *plan.once.outputs)]
    room = [plan.workspace.pointer] if plan.workspace else []
    return f"{function}({', '.join([*names, *room])});"


def derive_function(plan: HostPlan, hardware: HardwareSpec) -> list[str]:
    """The function, where there is something to compute."""
    if plan.once is None:
        return []
    from hwgen.codegen.processor.emit import emit_code

    own = f"{plan.name}_once"
    code = emit_code(plan.once, hardware, own, plan.workspace is not None)
    body = indent([derive_call(plan, own)])
    return [*code, derive_signature(plan), "{", *body, "}", ""]
