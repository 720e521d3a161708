"""Cycles in which a host issues a call: what the C that is emitted for it retires, by its shape."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod

from hwgen.codegen.nodes import Body, Call, Loop
from hwgen.codegen.software_loops import UNROLL, run_loops
from hwgen.spec.expression import Const, Expr, evaluate, names
from hwgen.spec.hardware import HardwareSpec, Intrinsic


@dataclass(frozen=True, slots=True)
class Around:
    """A loop around a call: its variable, its iterations, and whether it is unrolled."""

    variable: str
    turns: int
    unrolled: bool


def issuing_cycles(call: Call, extents: Sequence[int], hardware: HardwareSpec) -> int:
    """Of a call whose loops run so often, with the C loops around it.

    Each instruction takes `cycles`, each iteration of a loop that is not unrolled `loop_cycles`,
    and each value of an operand's address `operand_cycles`: it is computed in the innermost loop
    that moves it, and in an unrolled loop, whose iterations have places of their own, once for
    each of them, outside of all loops around that do not move it.
    """
    issue = hardware.issue
    assert issue is not None
    intrinsic = hardware.intrinsic[call.intrinsic]
    found = 0
    known = replace(call, extents=tuple(map(Const, extents))) if not call.kernel else call
    for node, around in _emitted(run_loops(known, hardware), ()):
        times = prod(loop.turns for loop in around)
        if isinstance(node, Loop):
            found += issue.loop_cycles * times
            continue
        found += intrinsic.instructions * issue.cycles * times
        addresses = (_computed(address, around) for address in _given(node, intrinsic))
        found += issue.operand_cycles * sum(addresses)
    return found


def _emitted(
    body: Body, around: tuple[Around, ...]
) -> Iterator[tuple[Loop | Call, tuple[Around, ...]]]:
    """The calls, and the loops that are not unrolled, each with the loops of its iterations."""
    for node in body:
        match node:
            case Loop(variable, lower, upper, inner):
                turns = int(evaluate(upper, {})) - int(evaluate(lower, {}))
                unrolled = UNROLL in dict(node.pragmas)
                inside = (*around, Around(variable, turns, unrolled))
                if not unrolled:
                    yield node, inside
                yield from _emitted(inner, inside)
            case Call():
                yield node, around
            case _:
                raise AssertionError("a run is loops around calls")


def _given(call: Call, intrinsic: Intrinsic) -> Iterator[Expr]:
    """The addresses that a call's instructions are given: not of what the unit holds already."""
    held = intrinsic.stationary
    for operand in call.operands:
        if held is None or held.operand != operand.name or call.fresh != Const(0):
            yield operand.address


def _computed(address: Expr, around: Sequence[Around]) -> int:
    """How often an address is computed."""
    moved = [loop.variable in names(address) for loop in around]
    rolled = [n for n, loop in enumerate(around) if moved[n] and not loop.unrolled]
    times = prod(loop.turns for n, loop in enumerate(around) if moved[n] and loop.unrolled)
    if rolled:
        times *= prod(loop.turns for loop in around[: rolled[-1] + 1] if not loop.unrolled)
    return times
