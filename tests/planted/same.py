"""Defects of operands that must be where another operand is."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from hwgen.codegen.nodes import Call, Node, calls, rewritten
from hwgen.codegen.program import Program
from hwgen.spec.expression import Const, add
from hwgen.spec.hardware import HardwareSpec
from tests.fuzz.edits import Mutation
from tests.planted.parts import with_kernel, with_operand

APART = "H745"
ONE = Const(1)


def same_mutations(hardware: HardwareSpec) -> tuple[Mutation, ...]:
    """Of chips with operands that repeat the written one."""
    twins = {
        i.name: next(n for n, o in enumerate(i.operands) if o.same_as)
        for i in hardware.intrinsics
        if any(o.same_as for o in i.operands)
    }
    if not twins:
        return ()

    def apart(program: Program, seed: int) -> Program | None:
        """The second field one entry further, or 0."""
        sites = [c for c in calls(program.body) if c.intrinsic in twins]
        if not sites:
            return None
        chosen = Random(seed).choice(sites)
        at = twins[chosen.intrinsic]
        if kernel := program.kernel.get(chosen.kernel):
            bases = kernel.bases
            if seed % 2 and any(base[at] for base in bases):
                wrong = [(*b[:at], 0, *b[at + 1 :]) for b in bases]  # a field that is left out
            else:
                wrong = [(*b[:at], b[at] + 1, *b[at + 1 :]) for b in bases]
            return with_kernel(program, replace(kernel, bases=tuple(wrong)))

        def edit(node: Node) -> tuple[Node, ...]:
            if not isinstance(node, Call) or node.site != chosen.site:
                return (node,)
            operand = node.operands[at]
            return (with_operand(node, at, replace(operand, address=add(operand.address, ONE))),)

        return replace(program, body=rewritten(program.body, edit))

    return (Mutation("operands apart", apart, (APART,)),)
