"""A program's concrete events in stream order: calls with their numbers, and synchronisation.

The loop nest is evaluated in blocks of NumPy vectors, one row per loop iteration, so that a walk
costs about a microsecond per event and bounded memory, however long the program runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import repeat
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from hwgen.codegen.nodes import SERIAL, Call, If, Loop, Node, OfCode, Sync, SyncNode
from hwgen.codegen.program import Program
from hwgen.spec.expression import Const, Expr, evaluate
from hwgen.spec.expression import names as names_of
from hwgen.spec.intervals import interval

from .integers import evaluate_rows

BLOCK_EVENTS = 1 << 15
"""Events that are materialised at once, at most (a single innermost body may hold more)."""

Rows = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Team:
    """Parallel loops around a call. `loop` stands for the outermost one, which is in `outside`
    loops; `inside`: loops around a call down to the innermost one, that one included."""

    loop: int
    outside: int
    inside: int


@dataclass(frozen=True, slots=True)
class TracedCall:
    """A call site and the loop variables around it, outermost first. `team`: of the parallel loops
    among them; None without one."""

    call: Call
    variables: tuple[str, ...]
    team: Team | None = None


class CallEvent(NamedTuple):
    """One executed call.

    `addresses`: one per operand, in entries. `strides`: per operand, one per hardware loop.
    `extents`: one per hardware loop. `variant`: of the micro-kernel, 0 where there is none.
    `values`: those of `site.variables`.
    """

    site: TracedCall
    addresses: tuple[int, ...]
    strides: tuple[tuple[int, ...], ...]
    extents: tuple[int, ...]
    variant: int
    values: tuple[int, ...]

    @property
    def call(self) -> Call:
        return self.site.call

    def __str__(self) -> str:
        call = self.site.call
        kernel = f" {call.kernel}[{self.variant}]" if call.kernel else ""
        operands = ", ".join(
            f"{o.name}={o.buffer}@{address}" + (f" step {list(steps)}" if steps else "")
            for o, address, steps in zip(call.operands, self.addresses, self.strides, strict=True)
        )
        immediates = "".join(f", {name}={value}" for name, value in call.immediates)
        over = " x ".join(map(str, self.extents)) or "1"
        loops = ", ".join(
            f"{name}={value}" for name, value in zip(self.site.variables, self.values, strict=True)
        )
        where = f"site {call.site}" + (f", {loops}" if loops else "")
        return f"{call.intrinsic}{kernel}({operands}{immediates}) over {over} [{where}]"


Event = CallEvent | SyncNode


def walk(program: Program) -> Iterator[Event]:
    """Every call and synchronisation of a program in stream order, with loop variables resolved.

    Synchronisation is the program's own node, where it stands: a push or signal belongs to the
    last call of its source before it, a pop or wait to the next call of its target.
    """
    nodes = tuple(_compile(node, (), {}) for node in program.body)
    yield from _walk(nodes, {})


def calls(program: Program) -> Iterator[CallEvent]:
    """Only the calls of `walk`."""
    for event in walk(program):
        if isinstance(event, CallEvent):
            yield event


# The loop nest with its sites resolved, and an upper bound on the events of each node.


@dataclass(frozen=True, slots=True)
class _Leaf:
    token: SyncNode | None
    site: TracedCall | None
    events: int = 1


@dataclass(frozen=True, slots=True)
class _Loop:
    variable: str
    lower: Expr
    upper: Expr
    body: tuple[_Node, ...]
    body_events: int
    events: int


@dataclass(frozen=True, slots=True)
class _If:
    condition: Expr
    then: tuple[_Node, ...]
    otherwise: tuple[_Node, ...]
    events: int


_Node = _Leaf | _Loop | _If


def _compile(
    node: Node,
    variables: tuple[str, ...],
    ranges: Mapping[str, tuple[int, int]],
    team: Team | None = None,
) -> _Node:
    match node:
        case Call():
            return _Leaf(None, TracedCall(node, variables, team))
        case Sync():
            return _Leaf(node, None)
        case OfCode():
            raise AssertionError("code is run by itself")
        case Loop(variable, lower, upper, body):
            first = interval(lower, ranges)[0]
            last = interval(upper, ranges)[1] - 1
            inner = {**ranges, variable: (first, max(first, last))}
            if node.kind != SERIAL:
                depth = len(variables)
                team = replace(team or Team(id(node), depth, 0), inside=depth + 1)
            parts = tuple(_compile(n, (*variables, variable), inner, team) for n in body)
            events = _events(parts)
            return _Loop(variable, lower, upper, parts, events, events * max(0, last - first + 1))
        case If(condition, then, otherwise):
            yes = tuple(_compile(n, variables, ranges, team) for n in then)
            no = tuple(_compile(n, variables, ranges, team) for n in otherwise)
            return _If(condition, yes, no, max(_events(yes), _events(no)))


def _events(nodes: Sequence[_Node]) -> int:
    return sum(node.events for node in nodes)


def _walk(nodes: tuple[_Node, ...], environment: Mapping[str, int]) -> Iterator[Event]:
    """Descend until a part of the nest is small enough to materialise."""
    if _events(nodes) <= BLOCK_EVENTS:
        rows = {name: np.full(1, value, np.int64) for name, value in environment.items()}
        yield from _materialise(nodes, rows, 1)
        return
    for node in nodes:
        match node:
            case _Leaf():
                yield from _walk((node,), environment)
            case _If(condition, then, otherwise):
                yield from _walk(
                    then if evaluate(condition, environment) else otherwise, environment
                )
            case _Loop(variable, lower, upper, body, body_events):
                first, end = int(evaluate(lower, environment)), int(evaluate(upper, environment))
                if body_events > BLOCK_EVENTS:
                    for value in range(first, end):
                        yield from _walk(body, {**environment, variable: value})
                    continue
                step = max(1, BLOCK_EVENTS // max(1, body_events))
                for start in range(first, end, step):
                    count = min(step, end - start)
                    rows = {n: np.full(count, v, np.int64) for n, v in environment.items()}
                    rows[variable] = np.arange(start, start + count, dtype=np.int64)
                    yield from _materialise(body, rows, count)


class _Piece(NamedTuple):
    """Events of one leaf: their rows in the enclosing environment, and positions in that row."""

    events: list[Event]
    row: Rows
    position: Rows


def _materialise(
    nodes: tuple[_Node, ...], environment: Mapping[str, Rows], count: int
) -> list[Event]:
    counts, pieces = _expand(nodes, environment, count)
    offset = np.cumsum(counts) - counts
    events: list[Event | None] = [None] * int(counts.sum())
    for piece in pieces:
        places: list[int] = (offset[piece.row] + piece.position).tolist()
        for place, event in zip(places, piece.events, strict=True):
            events[place] = event
    done = [event for event in events if event is not None]
    assert len(done) == len(events)
    return done


def _expand(
    nodes: tuple[_Node, ...], environment: Mapping[str, Rows], count: int
) -> tuple[Rows, list[_Piece]]:
    """The number of events in each of `count` rows, and the events."""
    counts = np.zeros(count, np.int64)
    pieces: list[_Piece] = []
    every = np.arange(count, dtype=np.int64)
    for node in nodes:
        match node:
            case _Leaf(token, site):
                events: list[Event] = []
                if token is not None:
                    events = [token] * count
                elif site is not None:
                    events = _call_events(site, environment, count)
                pieces.append(_Piece(events, every, counts))
                counts = counts + 1
            case _If(condition, then, otherwise):
                truth = np.broadcast_to(evaluate_rows(condition, environment) != 0, (count,))
                more = np.zeros(count, np.int64)
                for rows, body in (
                    (np.flatnonzero(truth), then),
                    (np.flatnonzero(~truth), otherwise),
                ):
                    if not (rows.size and body):
                        continue
                    inner = {name: values[rows] for name, values in environment.items()}
                    amounts, found = _expand(body, inner, rows.size)
                    more[rows] = amounts
                    pieces.extend(
                        _Piece(p.events, rows[p.row], counts[rows[p.row]] + p.position)
                        for p in found
                    )
                counts = counts + more
            case _Loop(variable, lower, upper, body):
                first = np.broadcast_to(evaluate_rows(lower, environment), (count,))
                end = np.broadcast_to(evaluate_rows(upper, environment), (count,))
                trips = np.maximum(end - first, 0)
                total = int(trips.sum())
                if not total:
                    continue
                parent = np.repeat(every, trips)
                begin = np.cumsum(trips) - trips
                step = np.arange(total, dtype=np.int64) - begin[parent]
                inner = {name: values[parent] for name, values in environment.items()}
                inner[variable] = first[parent] + step
                amounts, found = _expand(body, inner, total)
                before = np.concatenate((np.zeros(1, np.int64), np.cumsum(amounts)))
                base = before[:-1] - before[begin[parent]] + counts[parent]
                pieces.extend(
                    _Piece(p.events, parent[p.row], base[p.row] + p.position) for p in found
                )
                counts = counts + before[begin + trips] - before[begin]
    return counts, pieces


def _call_events(site: TracedCall, environment: Mapping[str, Rows], count: int) -> list[Event]:
    call = site.call
    addresses = _columns([o.address for o in call.operands], environment, count)
    extents = _columns(call.extents, environment, count)
    strides = zip(*(_columns(o.strides, environment, count) for o in call.operands), strict=True)
    if all(isinstance(s, Const) for o in call.operands for s in o.strides):
        fixed = tuple(tuple(int(evaluate(s, {})) for s in o.strides) for o in call.operands)
        strides = repeat(fixed, count)
    variant = Const(0) if call.variant is None else call.variant
    variants = (v for (v,) in _columns([variant], environment, count))
    values = _lists([environment[name] for name in site.variables], count)
    return [
        CallEvent(site, *numbers)
        for numbers in zip(addresses, strides, extents, variants, values, strict=False)
    ]


def _columns(
    expressions: Sequence[Expr], environment: Mapping[str, Rows], count: int
) -> Iterator[tuple[int, ...]]:
    """One tuple of the expressions' values per row."""
    if not any(names_of(e) for e in expressions):
        return repeat(tuple(int(evaluate(e, {})) for e in expressions), count)
    columns = [np.broadcast_to(evaluate_rows(e, environment), (count,)) for e in expressions]
    return _lists(columns, count)


def _lists(columns: Sequence[Rows], count: int) -> Iterator[tuple[int, ...]]:
    if not columns:
        return repeat((), count)
    lists: list[list[int]] = [column.tolist() for column in columns]
    return zip(*lists, strict=True)
