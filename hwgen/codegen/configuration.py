"""Writes of the state that calls depend on: as few as possible, outside the loops.

Where a configuration has a register for every combination of values that the kernel's calls need,
each is written once, at the start. Else the values needed most often have registers of their own,
and the last register serves the rest: it is written where it does not hold what the next call
needs, in front of the outermost loop whose calls all need the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from hwgen.codegen.c_expr import Helpers, IndexText
from hwgen.codegen.call_values import immediate_values, loop_values
from hwgen.codegen.nodes import Call, Configure, If, Loop, Node, inner, rewritten
from hwgen.codegen.program import Program
from hwgen.codegen.templates import render
from hwgen.spec.expression import Const
from hwgen.spec.hardware import Configuration, HardwareSpec

Values = tuple[tuple[str, str], ...]
"""The C text of each field."""


def configured(program: Program, hardware: HardwareSpec) -> Program:
    """The program with its state written."""
    body = program.body
    for configuration in reversed(hardware.configurations):
        body = _Writer(hardware, configuration, body).body()
    return replace(program, body=body)


def needed(hardware: HardwareSpec, call: Call, configuration: str) -> Values | None:
    """What a call needs a configuration to hold; None where it does not depend on it.

    Raises:
        HwgenError: H601 where a template fails.
    """
    intrinsic = hardware.intrinsic[call.intrinsic]
    fields = next((found for name, found in intrinsic.configuration if name == configuration), None)
    if fields is None:
        return None
    text = IndexText(Helpers("", {}), {}, {})
    values: dict[str, object] = dict(hardware.parameters)
    values |= loop_values(intrinsic, call, text)
    values |= immediate_values(intrinsic, call.immediates)
    return tuple(
        (
            field,
            render(template, values, intrinsic.location, f"configuration.{configuration}.{field}"),
        )
        for field, template in fields
    )


@dataclass(frozen=True)
class _Writer:
    """One configuration's writes. `known`: by the identity of a call in `nodes`, what it needs."""

    hardware: HardwareSpec
    configuration: Configuration
    nodes: tuple[Node, ...]
    known: dict[int, Values | None] = field(default_factory=dict[int, "Values | None"])

    def body(self) -> tuple[Node, ...]:
        weight: dict[Values, float] = {}
        self._weigh(self.nodes, 1.0, weight)
        if not weight:
            return self.nodes
        registers = len(self.configuration.registers)
        own = list(weight)
        if len(own) > registers:
            # The first of equals: dictionaries keep the order of the text.
            often = sorted(weight, key=lambda v: -weight[v])[: registers - 1]
            own = [v for v in own if v in often]
        number = {values: n for n, values in enumerate(own)}
        start = tuple(self._write(n, values) for values, n in number.items())
        if len(own) == len(weight):
            return (*start, *self._assigned(self.nodes, number))
        # A chip may do nothing before each of its configurations is written.
        first = next(values for values in weight if values not in number)
        shared, _ = self._shared(self.nodes, number, first)
        return (*start, self._write(registers - 1, first), *shared)

    def _needs(self, call: Call) -> Values | None:
        if id(call) not in self.known:
            self.known[id(call)] = needed(self.hardware, call, self.configuration.name)
        return self.known[id(call)]

    def _write(self, register: int, values: Values) -> Configure:
        return Configure(self.configuration.name, register, values)

    def _weigh(self, nodes: Sequence[Node], times: float, weight: dict[Values, float]) -> None:
        for node in nodes:
            match node:
                case Call():
                    values = self._needs(node)
                    if values is not None:
                        weight[values] = weight.get(values, 0) + times
                case Loop(_, Const(low), Const(high), body):
                    self._weigh(body, times * max(0, high - low), weight)
                case _:
                    self._weigh(inner(node), times, weight)

    def _read(self, call: Call, number: Mapping[Values, int]) -> Call:
        """The call with the register that it reads."""
        values = self._needs(call)
        if values is None:
            return call
        register = number.get(values, len(self.configuration.registers) - 1)
        return replace(call, registers=((self.configuration.name, register), *call.registers))

    def _assigned(self, nodes: Sequence[Node], number: Mapping[Values, int]) -> tuple[Node, ...]:
        return rewritten(
            tuple(nodes), lambda n: (self._read(n, number) if isinstance(n, Call) else n,)
        )

    def _shared(
        self, nodes: Sequence[Node], number: Mapping[Values, int], holds: Values | None
    ) -> tuple[tuple[Node, ...], Values | None]:
        """Nodes with writes of the last register, and what it then holds, if that is known."""
        result: list[Node] = []
        last = len(self.configuration.registers) - 1
        for node in nodes:
            weight: dict[Values, float] = {}
            self._weigh((node,), 1.0, weight)
            wanted = [values for values in weight if values not in number]
            if len(wanted) == 1:
                if holds != wanted[0]:
                    result.append(self._write(last, wanted[0]))
                holds = wanted[0]
            if len(wanted) <= 1:
                result += self._assigned((node,), number)
                continue
            match node:
                case Loop():
                    # An iteration finds what stood there before the loop, or what the one before
                    # left: something is known where these are the same.
                    body, after = self._shared(node.body, number, holds)
                    if after != holds:
                        body, after = self._shared(node.body, number, None)
                    result.append(replace(node, body=body))
                    holds = after if _runs(node) or after == holds else None
                case If(condition, then, otherwise):
                    yes, one = self._shared(then, number, holds)
                    no, other = self._shared(otherwise, number, holds)
                    result.append(If(condition, yes, no))
                    holds = one if one == other else None
                case _:
                    raise AssertionError("a call needs one value of each field")
        return tuple(result), holds


def _runs(loop: Loop) -> bool:
    """Whether a loop is known to run at all."""
    match loop.lower, loop.upper:
        case Const(low), Const(high):
            return low < high
        case _:
            return False
