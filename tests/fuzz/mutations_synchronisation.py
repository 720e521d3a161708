"""Deliberate defects of a program's synchronisation that checkers must find, for each kind that a
chip may have."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random

from hwgen.codegen.emit_sync import sync_nodes
from hwgen.codegen.nodes import (
    Barrier,
    Call,
    If,
    Loop,
    Node,
    Pop,
    Push,
    Signal,
    Sync,
    SyncNode,
    Wait,
    calls,
    nodes,
)
from hwgen.codegen.program import Program
from hwgen.spec.expression import Const
from hwgen.spec.hardware import Barriers, Events, HardwareSpec, Scoreboard, Tokens
from tests.fuzz.edits import Edit, Mutation, double, drop, in_a_body, on_one, rewritten

RACE, DEADLOCK, LEFT_OVER, OVERFLOW, REMOVABLE = "H760", "H761", "H762", "H765", "H766"
TOKENS = (RACE, DEADLOCK, LEFT_OVER)
EVENTS = (*TOKENS, OVERFLOW)
ORDER = (*EVENTS, REMOVABLE)
NOT_THERE = "H739"


def synchronisation_mutations(hardware: HardwareSpec) -> tuple[Mutation, ...]:
    """Those of the chip's kind of synchronisation; a scoreboard's are of its fences."""
    match hardware.synchronization:
        case Tokens():
            return (
                Mutation("dropped push", on_one(_is(Push), drop), TOKENS),
                Mutation("dropped pop", on_one(_is(Pop), drop), TOKENS),
                Mutation("surplus push", on_one(_is(Push), double), TOKENS),
                Mutation("surplus pop", on_one(_is(Pop), double), TOKENS),
                Mutation("surplus exchange", on_one(_is(Push), _exchange), (REMOVABLE,)),
                Mutation("reversed push", on_one(_is(Push), _reversed), (*TOKENS, NOT_THERE)),
                Mutation("early push", _early(Push), TOKENS),
                Mutation("unguarded token", on_one(_guards, _unguarded), TOKENS),
            )
        case Events():
            return (
                Mutation("dropped signal", on_one(_is(Signal), drop), EVENTS),
                Mutation("dropped wait", on_one(_is(Wait), drop), EVENTS),
                Mutation("surplus signal", on_one(_is(Signal), double), EVENTS),
                Mutation("surplus wait", on_one(_is(Wait), double), EVENTS),
                Mutation("reversed signal", on_one(_is(Signal), _reversed), (*EVENTS, NOT_THERE)),
                Mutation("early signal", _early(Signal), EVENTS),
                Mutation("late wait", _late(Wait), (*EVENTS, REMOVABLE)),
                Mutation("wrong flag", on_one(_is_flagged, _next_flag), (*EVENTS, NOT_THERE)),
                Mutation("too few flags", _fewer_flags, (OVERFLOW,)),
                Mutation("unguarded event", on_one(_guards, _unguarded), EVENTS),
            )
        case Barriers() | Scoreboard():
            return (
                Mutation("dropped barrier", on_one(_is(Barrier), drop), (RACE,)),
                Mutation("surplus barrier", on_one(_is(Barrier), double), (REMOVABLE,)),
                Mutation("late barrier", _late(Barrier), (RACE, REMOVABLE)),
                Mutation("barrier for another unit", _other_unit(hardware), (RACE, NOT_THERE)),
                Mutation("barrier for a run less", _less, (RACE, NOT_THERE)),
            )
        case None:
            return ()


def _is(kind: type[Sync]) -> Callable[[Node], bool]:
    return lambda node: isinstance(node, kind)


def _is_flagged(node: Node) -> bool:
    return isinstance(node, Signal | Wait)


def _is_for_one(node: Node) -> bool:
    return isinstance(node, Barrier) and bool(node.unit)


def _less(program: Program, seed: int) -> Program | None:
    """So many more of a unit's calls may still run as any run has; one, where there are no runs."""
    more = max(map(_run, nodes(program.body)), default=1)

    def less(node: Node) -> tuple[Node, ...]:
        assert isinstance(node, Barrier)
        return (replace(node, outstanding=node.outstanding + more),)

    return on_one(_is_for_one, less)(program, seed)


def _run(node: Node) -> int:
    """Calls of a loop with one call site and nothing else inside."""
    match node:
        case Call():
            return 1
        case Loop(_, Const(lower), Const(upper), (inside,)):
            return int(upper - lower) * _run(inside)
        case _:
            return 0


def _exchange(node: Node) -> tuple[Node, ...]:
    """A token given and taken once more than needed, on the same edge."""
    assert isinstance(node, Push)
    return (node, Pop(node.source, node.target), node)


def _reversed(node: Node) -> tuple[Node, ...]:
    assert isinstance(node, Push | Signal)
    return (replace(node, source=node.target, target=node.source),)


def _next_flag(node: Node) -> tuple[Node, ...]:
    assert isinstance(node, Signal | Wait)
    return (replace(node, first=node.first + 1),)


def _guards(node: Node) -> bool:
    """Whether a condition decides on synchronisation and nothing else."""
    if not isinstance(node, If) or node.otherwise:
        return False
    return all(isinstance(n, Sync) for n in node.then)


def _unguarded(node: Node) -> tuple[Node, ...]:
    assert isinstance(node, If)
    return node.then


def _early(kind: type[Push | Signal]) -> Edit:
    """Moved before the call that it announces."""

    def edit(program: Program, seed: int) -> Program | None:
        places = {
            unit: {o.buffer for c in calls(program.body) if c.unit == unit for o in c.operands}
            for unit in {c.unit for c in calls(program.body)}
        }

        def pairs(nodes: tuple[Node, ...]) -> list[int]:
            return [
                i
                for i in range(1, len(nodes))
                if isinstance(sync := nodes[i], kind)
                and isinstance(call := nodes[i - 1], Call)
                and call.unit == sync.source
                # Else it passes on what a third unit did, and may well be early.
                and not places[sync.target].isdisjoint(o.buffer for o in call.operands)
            ]

        return in_a_body(program, seed, pairs, _swapped)

    return edit


def _late(kind: type[Wait | Barrier]) -> Edit:
    """Moved after the call that it stands before."""

    def pairs(nodes: tuple[Node, ...]) -> list[int]:
        return [
            i
            for i in range(1, len(nodes))
            if isinstance(nodes[i - 1], kind) and isinstance(nodes[i], Call)
        ]

    return lambda program, seed: in_a_body(program, seed, pairs, _swapped)


def _swapped(nodes: tuple[Node, ...], i: int) -> tuple[Node, ...]:
    return (*nodes[: i - 1], nodes[i], nodes[i - 1], *nodes[i + 1 :])


def _fewer_flags(program: Program, seed: int) -> Program | None:
    """An edge that takes one flag less in turn, at both ends."""
    nodes = [n for n in sync_nodes(program.body) if isinstance(n, Signal) and n.count > 1]
    if not nodes:
        return None
    chosen = Random(seed).choice(nodes)

    def fewer(node: Node) -> tuple[Node, ...]:
        if not isinstance(node, Signal | Wait):
            return (node,)
        same = (node.source, node.target) == (chosen.source, chosen.target)
        return (replace(node, count=node.count - 1),) if same else (node,)

    return replace(program, body=rewritten(program.body, fewer))


def _other_unit(hardware: HardwareSpec) -> Edit:
    units = [unit.name for unit in hardware.units]

    def other(node: Node) -> tuple[SyncNode, ...]:
        assert isinstance(node, Barrier)
        following = (units.index(node.unit) + 1) % len(units) if node.unit else 0
        return (Barrier(units[following]),)

    return on_one(_is(Barrier), other)
