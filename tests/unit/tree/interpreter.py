"""Runs a state as it is written, slowly, with a fresh buffer per iteration of each home.

It knows nothing of the legality check: a buffer starts empty, and reading what is not there fails.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Mapping

from hwgen.polyhedral.tree.loop_tree import Block, Homes, Loop, LoopTree, Node, Stage
from hwgen.polyhedral.tree.relations import SEQUENTIAL
from hwgen.spec.expression import Access, Binary, Call, Cast, Const, Expr, Name, Unary, names

Values = dict[tuple[int, ...], int]
NEUTRAL = {"=": 0, "+=": 0, "max=": -(1 << 31), "min=": (1 << 31) - 1}
MOST = 20_000
"""Instances that one run may have."""


class TooLongError(Exception):
    """More instances than a test has time for."""


class Machine:
    """The buffers while a state runs; iterations at once run in the order of a seed."""

    def __init__(
        self, state: LoopTree, homes: Homes, inputs: Mapping[str, Values], seed: int = 0
    ) -> None:
        self.state = state
        self.homes = homes
        self.buffers: dict[str, Values] = {n: dict(v) for n, v in inputs.items()}
        self.random = random.Random(seed)
        self.steps = 0
        self.together: set[str] = set()  # loops whose iterations combine what they add up

    def run(self) -> dict[str, Values]:
        """The outputs.

        Raises:
            KeyError: an element is read that no instance wrote in this iteration of its home.
            TooLongError: after `MOST` instances.
        """
        self._empty(())
        self._nodes(self.state.root, {})
        return {t.name: self.buffers[t.name] for t in self.state.tensors if t.role == "output"}

    def _empty(self, home: tuple[str, ...]) -> None:
        for tensor, at in self.homes.items():
            if at == home:
                self.buffers[tensor] = {}

    def _nodes(self, nodes: tuple[Node, ...], at: dict[str, int]) -> None:
        for node in nodes:
            match node:
                case Block():
                    self._block(node, at)
                case Loop():
                    order = list(range(node.extent))
                    if node.combines:
                        self.together.add(node.name)
                    if node.kind not in SEQUENTIAL and not node.combines:
                        self.random.shuffle(order)
                    for value in order:
                        inside = at | {node.name: value}
                        self._empty(tuple(inside))
                        self._nodes(node.body, inside)

    def _combined(self, stage: Stage, block: Block) -> bool:
        reduced = {i for i, _ in stage.reduction}
        loops = {n for i, e in block.bindings if i in reduced for n in names(e)}
        return block.part != "init" and not loops.isdisjoint(self.together)

    def _block(self, block: Block, at: dict[str, int]) -> None:
        self.steps += 1
        if self.steps > MOST:
            raise TooLongError
        stage = self.state.stage[block.stage]
        conditions = [*block.predicate]
        # Where iterations combine a sum, the condition says which of them store it, not who adds.
        if block.store_predicate is not None and not self._combined(stage, block):
            conditions.append(block.store_predicate)
        if not all(self.value(c, at) for c in conditions):
            return
        point = {n: self.value(e, at) for n, e in block.bindings}
        place = tuple(self.value(i, point) for i in stage.target.indices)
        buffer = self.buffers[stage.tensor]
        if block.part == "init":
            buffer[place] = NEUTRAL[stage.op]
            return
        if block.part == "whole" and _first(stage, point):
            buffer[place] = NEUTRAL[stage.op]
        value = self.value(stage.value, point)
        match stage.op:
            case "=":
                buffer[place] = value
            case "+=":
                buffer[place] += value
            case "max=":
                buffer[place] = max(buffer[place], value)
            case "min=":
                buffer[place] = min(buffer[place], value)

    def value(self, expr: Expr, at: Mapping[str, int]) -> int:
        """The value of an expression over loops or iterators."""
        match expr:
            case Const(number):
                return int(number)
            case Name(name):
                return at[name]
            case Access(tensor, indices):
                return self.buffers[tensor][tuple(self.value(i, at) for i in indices)]
            case Unary(op, operand):
                inner = self.value(operand, at)
                return -inner if op == "-" else int(not inner)
            case Cast(_, operand):
                return self.value(operand, at)
            case Binary(op, left, right):
                return _binary(op, self.value(left, at), self.value(right, at))
            case Call("select", (condition, then, other)):
                return self.value(then if self.value(condition, at) else other, at)
            case Call(function, arguments):
                values = [self.value(a, at) for a in arguments]
                return {"max": max, "min": min}[function](values)


def _first(stage: Stage, point: Mapping[str, int]) -> bool:
    return all(point[n] == 0 for n, _ in stage.reduction)


def _binary(op: str, a: int, b: int) -> int:
    match op:
        case "+":
            return a + b
        case "-":
            return a - b
        case "*":
            return a * b
        case "//":
            return a // b
        case "%":
            return a % b
        case "<" | "<=" | ">" | ">=" | "==" | "!=":
            table = {"<": a < b, "<=": a <= b, ">": a > b, ">=": a >= b, "==": a == b}
            return int(table.get(op, a != b))
        case "and":
            return int(bool(a) and bool(b))
        case "or":
            return int(bool(a) or bool(b))
        case _:
            raise AssertionError(op)


def values(state: LoopTree, seed: int = 0) -> dict[str, Values]:
    """Small values for every input."""
    source = random.Random(seed)
    return {
        t.name: {
            place: source.randint(-9, 9)
            for place in itertools.product(*(range(e) for e in t.shape))
        }
        for t in state.tensors
        if t.role == "input"
    }
