"""Whether every call finds the state that it depends on, on every way through a program.

What a call needs is rendered anew from its own extents, steps and immediates, as numbers; what
registers hold is followed through loops and conditions: which values may stand in one, whichever
branches are taken and however often loops run.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from hwgen.codegen.nodes import Call, Configure, If, Loop, Node, OfCode, Sync
from hwgen.codegen.program import Program
from hwgen.codegen.templates import Fields, argument, render
from hwgen.spec.expression import Const, Expr, evaluate, names
from hwgen.spec.hardware import HardwareSpec, Intrinsic

Register = tuple[str, int]
"""A configuration and the number of one of its registers."""

Held = tuple[tuple[str, str], ...]
"""What a register holds: C text by field."""

Problem = tuple[str, str, str]
"""What is wrong, where (or what was found), and what is allowed."""

NEVER: Held = ()
"""Of a register that nothing has written."""

VARYING = "varies: "
"""Begins what stands for a number that depends on loop counters."""

_NUMBER = re.compile(r"(?<![\w.])(\d+\.\d*(?:[eE][-+]?\d+)?f?)(?!\w)")


@dataclass(frozen=True, slots=True)
class _Effect:
    """What nodes do to a register: the values that they may leave, and whether they may leave it
    as it was."""

    left: frozenset[Held] = frozenset()
    may_keep: bool = True

    def then(self, later: _Effect) -> _Effect:
        left = later.left | self.left if later.may_keep else later.left
        return _Effect(left, self.may_keep and later.may_keep)

    def or_else(self, other: _Effect) -> _Effect:
        return _Effect(self.left | other.left, self.may_keep or other.may_keep)

    def on(self, before: frozenset[Held]) -> frozenset[Held]:
        """Values that may stand in a register after the nodes."""
        return self.left | before if self.may_keep else self.left


def configuration_problems(program: Program, hardware: HardwareSpec) -> Iterator[Problem]:
    """Calls that may find another state than they need, and writes that no register takes."""
    registers = [(c.name, n) for c in hardware.configurations for n in range(len(c.registers))]
    before = {register: frozenset([NEVER]) for register in registers}
    yield from _nodes(program.body, before, hardware)


def _nodes(
    nodes: tuple[Node, ...], before: Mapping[Register, frozenset[Held]], hardware: HardwareSpec
) -> Iterator[Problem]:
    """Problems of nodes, of which each register may hold some values before them."""
    state = dict(before)
    for node in nodes:
        match node:
            case Call():
                yield from _call(node, state, hardware)
            case Configure():
                problem = _write(node, hardware)
                if problem is not None:
                    yield problem
                    return  # what it would leave is not known
                state[node.configuration, node.register] = frozenset([node.values])
            case Loop():
                if _runs(node) != "never":
                    # Any iteration may be the first, or come after another one.
                    again = {r: v | _effect(node.body, r).left for r, v in state.items()}
                    yield from _nodes(node.body, again, hardware)
            case If(_, then, otherwise):
                yield from _nodes(then, state, hardware)
                yield from _nodes(otherwise, state, hardware)
            case Sync() | OfCode():
                pass
        if isinstance(node, Loop | If):
            state = {r: _effect((node,), r).on(v) for r, v in state.items()}


def _runs(loop: Loop) -> str:
    """Whether a loop runs at all: "always", "never", or "" where that depends on counters."""
    match loop.lower, loop.upper:
        case Const(low), Const(high):
            return "always" if low < high else "never"
        case _:
            return ""


def _effect(nodes: tuple[Node, ...], register: Register) -> _Effect:
    """What nodes do to a register."""
    total = _Effect()
    for node in nodes:
        match node:
            case Configure(configuration, number, values):
                if (configuration, number) == register:
                    total = _Effect(frozenset([values]), may_keep=False)
            case Loop():
                runs = _runs(node)
                once = _effect(node.body, register) if runs != "never" else _Effect()
                total = total.then(once if runs == "always" else once.or_else(_Effect()))
            case If(_, then, otherwise):
                total = total.then(_effect(then, register).or_else(_effect(otherwise, register)))
            case Call() | Sync() | OfCode():
                pass
    return total


def _write(node: Configure, hardware: HardwareSpec) -> Problem | None:
    given = hardware.configuration.get(node.configuration)
    if given is None:
        known = ", ".join(hardware.configuration) or "none"
        return "a write of state that the chip does not have", node.configuration, known
    if not 0 <= node.register < len(given.registers):
        return (
            f"{given.name} has no such register",
            str(node.register),
            f"0..{len(given.registers) - 1}",
        )
    fields = tuple(name for name, _ in node.values)
    if fields != given.fields:
        return (
            f"a write of {given.name} gives other fields",
            ", ".join(fields),
            ", ".join(given.fields),
        )
    return None


def _call(
    call: Call, state: Mapping[Register, frozenset[Held]], hardware: HardwareSpec
) -> Iterator[Problem]:
    intrinsic = hardware.intrinsic[call.intrinsic]
    where = f"site {call.site} ({call.intrinsic})"
    read = [name for name, _ in call.registers]
    depends = [name for name, _ in intrinsic.configuration]
    if sorted(read) != sorted(depends):
        yield (
            "a call reads other state than it depends on",
            f"{where}: {', '.join(read) or 'none'}",
            ", ".join(depends) or "none",
        )
        return
    for name, fields in intrinsic.configuration:
        number = dict(call.registers)[name]
        if (name, number) not in state:
            count = len(hardware.configuration[name].registers)
            yield f"{name} has no such register", f"{where}: {number}", f"0..{count - 1}"
            continue
        needed = tuple(
            (field, _rendered(template, intrinsic, call, hardware, f"{name}.{field}"))
            for field, template in fields
        )
        if any(VARYING in text for _, text in needed):
            yield (
                "a call needs state that changes with loop counters",
                f"{where}: {_text(needed)}",
                "extents and steps that are constants",
            )
            continue
        for held in sorted(state[name, number]):
            if not _same(held, needed):
                yield (
                    f"a call may find another state in {name}[{number}] than it needs",
                    f"{where}: {_text(held) if held else 'what the register held at the start'}",
                    _text(needed),
                )


def _text(held: Held) -> str:
    return ", ".join(f"{field}={value}" for field, value in held)


class _Number(float):
    """A float immediate as templates see it: a literal of C, whose text is compared as a number."""

    _suffix: str

    def __new__(cls, value: float, dtype: str) -> _Number:
        made = super().__new__(cls, value)
        made._suffix = "" if dtype == "float64" else "f"
        return made

    def __str__(self) -> str:
        digits, e, exponent = repr(float(self)).partition("e")
        text = f"{digits}{'' if '.' in digits else '.0'}{e}{exponent}{self._suffix}"
        return argument(text) if self < 0 else text


def _rendered(
    template: str, intrinsic: Intrinsic, call: Call, hardware: HardwareSpec, name: str
) -> str:
    """A field's C text, from a call's numbers."""
    values: dict[str, object] = dict(hardware.parameters)
    for iterator, lanes in intrinsic.narrowed(call.lanes).iterators:
        values[iterator] = Fields({"extent": lanes})
    for level, loop in enumerate(intrinsic.loops):
        if not loop.software:
            strides = {o.name: _number(o.strides[level]) for o in call.operands}
            extent = _number(call.extents[level])
            values[loop.name] = Fields({"extent": extent, "stride": Fields(strides)})
    given = dict(call.immediates)
    for field in intrinsic.immediates:
        value = given[field.name]
        values[field.name] = _Number(value, field.dtype) if field.is_float else value
    return render(template, values, intrinsic.location, f"configuration.{name}")


def _number(expr: Expr) -> str:
    """An extent's or a step's text."""
    return argument(f"{VARYING}{expr}" if names(expr) else str(int(evaluate(expr, {}))))


def _same(held: Held, needed: Held) -> bool:
    """Whether fields hold the same text, float literals compared as numbers."""
    if [field for field, _ in held] != [field for field, _ in needed]:
        return False
    return all(
        _parts(one) == _parts(other) for (_, one), (_, other) in zip(held, needed, strict=True)
    )


def _parts(text: str) -> list[str | float]:
    """A text cut at its float literals, which become numbers of their precision."""
    return [_literal(part) if n % 2 else part for n, part in enumerate(_NUMBER.split(text))]


def _literal(text: str) -> float:
    return float(np.float32(text[:-1])) if text.endswith("f") else float(text)
