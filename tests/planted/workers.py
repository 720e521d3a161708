"""Defects of loops whose iterations run on different workers."""

from __future__ import annotations

from dataclasses import replace

from hwgen.codegen.nodes import SERIAL, Call, Loop, Node, calls
from hwgen.spec.expression import Const, names
from hwgen.spec.hardware import HardwareSpec
from tests.fuzz.edits import Mutation, on_one


def worker_mutations(hardware: HardwareSpec) -> tuple[Mutation, ...]:
    """Of chips whose workers have units of their own."""
    machine = hardware.processor
    if machine is None or machine.units_shared_by == "kernel":
        return ()
    kinds = [x.name for x in machine.loops if x.kind == "parallel"]
    if not kinds:
        return ()

    def writes_again(call: Call, variable: str) -> bool:
        """Whether every iteration writes the same entries of what all workers share."""
        rules = hardware.intrinsic[call.intrinsic].operands
        return any(
            rule.access != "read"
            and hardware.memory[rule.memory].shared_by == "kernel"
            and variable not in names(operand.address)
            for operand, rule in zip(call.operands, rules, strict=True)
        )

    def carries(node: Node) -> bool:
        match node:
            case Loop(variable, Const(int(first)), Const(int(end)), body) if end - first > 1:
                serial = node.kind == SERIAL
                return serial and any(writes_again(c, variable) for c in calls(body))
            case _:
                return False

    def at_once(node: Node) -> tuple[Node, ...]:
        assert isinstance(node, Loop)
        return (replace(node, kind=kinds[0]),)

    found = ("H717", "H751")
    return (Mutation("iterations at once", on_one(carries, at_once), found),)
