"""Defects of accumulations whose steps must run in order."""

from __future__ import annotations

from hwgen.codegen.nodes import Call, Loop, Node, calls
from hwgen.codegen.rewrite import bind
from hwgen.polyhedral.semantics import folds, updates
from hwgen.spec.expression import Binary, Const, Name, names
from hwgen.spec.hardware import HardwareSpec
from tests.fuzz.edits import Mutation, on_one


def order_mutations(hardware: HardwareSpec) -> tuple[Mutation, ...]:
    """Of chips with intrinsics that make each value from the last one, and are no sums."""
    running = {
        i.name for i in hardware.intrinsics if folds(i) and [op for op, _ in updates(i)] == ["="]
    }
    if not running:
        return ()

    def written(call: Call, access: str) -> dict[str, set[str]]:
        """The buffers that a call accesses so, and the loops that move it there."""
        rules = hardware.intrinsic[call.intrinsic].operands
        both = zip(call.operands, rules, strict=True)
        return {o.buffer: set(names(o.address)) for o, rule in both if rule.access == access}

    def steps_in(node: Node) -> bool:
        """A loop that comes back to what its calls update, and does not set it."""
        match node:
            case Loop(variable, Const(int(first)), Const(int(end)), body) if end - first > 1:
                inside = list(calls(body))
                steps = [c for c in inside if c.intrinsic in running]
                updated = {b: v for c in steps for b, v in written(c, "update").items()}
                begun = {b for c in inside for b in written(c, "write")}
                stays = all(variable not in moving for moving in updated.values())
                return bool(steps) and stays and begun.isdisjoint(updated)
            case _:
                return False

    def backwards(node: Node) -> tuple[Node, ...]:
        assert isinstance(node, Loop)
        assert isinstance(node.lower, Const)
        assert isinstance(node.upper, Const)
        ends = Const(int(node.lower.value) + int(node.upper.value) - 1)
        turned = Binary("-", ends, Name(node.variable))
        return (
            Loop(node.variable, node.lower, node.upper, bind(node.body, {node.variable: turned})),
        )

    return (Mutation("accumulation backwards", on_one(steps_in, backwards), ("H790",)),)
