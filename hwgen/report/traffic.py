"""Off-chip bytes that a program moves, summed over its loops without running them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

from hwgen.codegen.program import Call, If, KernelProgram, Loop, Node, Pop, Push
from hwgen.spec.expression import DTYPES, Expr, evaluate, names
from hwgen.spec.hardware import HardwareSpec
from hwgen.spec.workload import Workload

Bytes = dict[tuple[str, bool], int]
"""(tensor, written) to bytes."""


@dataclass(frozen=True, slots=True)
class TensorTraffic:
    """Bytes of one tensor that cross the bus; `size`: its bytes in the caller's memory."""

    tensor: str
    role: str
    loaded: int
    stored: int
    size: int

    @property
    def times(self) -> float:
        """How often each byte crosses the bus, padding counted."""
        return (self.loaded + self.stored) / self.size


def off_chip_traffic(
    program: KernelProgram, hardware: HardwareSpec, workload: Workload
) -> tuple[TensorTraffic, ...]:
    """Bytes per input and output tensor, in the workload's order.

    Micro-operations and instruction fetch are not tensors and not counted.
    """
    total: Bytes = {}
    for node in program.body:
        _add(total, _Sum(program, hardware).node(node, {}), 1)
    return tuple(
        TensorTraffic(
            t.name,
            t.role,
            total.get((t.name, False), 0),
            total.get((t.name, True), 0),
            prod(t.shape) * DTYPES[t.dtype],
        )
        for t in (*workload.inputs, *workload.outputs)
    )


def _add(total: Bytes, more: Bytes, times: int) -> None:
    for key, count in more.items():
        total[key] = total.get(key, 0) + count * times


class _Sum:
    """Sums over loops; a part that does not depend on a loop's variable is counted once."""

    def __init__(self, program: KernelProgram, hardware: HardwareSpec) -> None:
        self._program = program
        self._hardware = hardware
        self._needs: dict[int, frozenset[str]] = {}
        self._known: dict[tuple[int, tuple[int, ...]], Bytes] = {}

    def node(self, node: Node, values: Mapping[str, int]) -> Bytes:
        needs = self.needs(node)
        key = id(node), tuple(values[n] for n in sorted(needs))
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = self._count(node, values)
        return known

    def _count(self, node: Node, values: Mapping[str, int]) -> Bytes:
        total: Bytes = {}
        match node:
            case Push() | Pop():
                pass
            case Call():
                iterations = prod(int(evaluate(e, values)) for e in node.extents)
                operands = self._hardware.intrinsic[node.intrinsic].operands
                for operand, declared in zip(node.operands, operands, strict=True):
                    image = self._program.image.get(operand.buffer)
                    if image is not None:
                        written = declared.access != "read"
                        _add(total, {(image.tensor, written): iterations * image.entry_bytes}, 1)
            case If(condition, then, otherwise):
                for child in then if evaluate(condition, values) else otherwise:
                    _add(total, self.node(child, values), 1)
            case Loop(variable, lower, upper, body):
                first, end = int(evaluate(lower, values)), int(evaluate(upper, values))
                for child in body:
                    if variable not in self.needs(child):
                        _add(total, self.node(child, values), max(0, end - first))
                        continue
                    for value in range(first, end):
                        _add(total, self.node(child, {**values, variable: value}), 1)
        return total

    def needs(self, node: Node) -> frozenset[str]:
        """The variables from outside that a node's traffic depends on."""
        known = self._needs.get(id(node))
        if known is None:
            known = self._needs[id(node)] = self._find(node)
        return known

    def _find(self, node: Node) -> frozenset[str]:
        match node:
            case Push() | Pop():
                return frozenset()
            case Call():
                return _names(node.extents) if self._moves((node,)) else frozenset()
            case If(condition, then, otherwise):
                inside = frozenset[str]().union(*map(self.needs, (*then, *otherwise)))
                return inside | _names((condition,)) if self._moves((node,)) else frozenset()
            case Loop(variable, lower, upper, body):
                inside = frozenset[str]().union(*map(self.needs, body))
                return (inside - {variable}) | _names((lower, upper))

    def _moves(self, nodes: tuple[Node, ...]) -> bool:
        """Whether anything in these nodes touches off-chip memory."""
        for node in nodes:
            match node:
                case Call():
                    if any(o.buffer in self._program.image for o in node.operands):
                        return True
                case If(_, then, otherwise):
                    if self._moves((*then, *otherwise)):
                        return True
                case Loop():
                    if self._moves(node.body):
                        return True
                case Push() | Pop():
                    pass
        return False


def _names(expressions: tuple[Expr, ...]) -> frozenset[str]:
    return frozenset(n for e in expressions for n in names(e))
