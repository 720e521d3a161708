"""That a processor's program executes exactly the instances which its tree intends.

Loops of the program are the tree's, by name, or coordinates of a launch that stand for them. So
each statement of the program is held against its block: where it runs, as iterations that are
counted (`sums.py`), and what it touches there, as functions of the loops (`forms.py`).
Threads that combine partial results add three more: how these begin, and where they meet.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from hwgen.codegen.instances.boxes import Condition, conditions_of, settled
from hwgen.codegen.instances.forms import Form, Ranges, known_form
from hwgen.codegen.instances.nest_intention import combined_of, expected, stored_of
from hwgen.codegen.instances.pieces import pieces_of
from hwgen.codegen.instances.points import Limits, Piece, check_same
from hwgen.codegen.instances.refuted import UnprovedError, refuted
from hwgen.codegen.instances.statements import Statement, Wanted, check_statement
from hwgen.codegen.instances.sums import Place, Vector
from hwgen.codegen.nodes import (
    Allocate,
    Assign,
    Code,
    CombineAcrossThreads,
    If,
    IntrinsicCall,
    Keep,
    Launch,
    Loop,
    Node,
    PrefetchOf,
    Routine,
    ThreadBarrier,
    nodes,
)
from hwgen.codegen.processor.lower import Placing
from hwgen.spec.expression import Access, Binary, Call, Const, Expr, Name, Unary


def check_nest_instances(program: Code, placing: Placing) -> tuple[str, ...]:
    """Hold a processor's program against the tree that it was lowered from; what is not proved of
    it, as conditions are of a form that is not known.

    Raises:
        HwgenError: H747 the first block whose instances or elements are others.
    """
    found: dict[str, list[_Run]] = {}
    for run in _runs(program.body, {}, ()):
        found.setdefault(run.block, []).append(run)
    check = _Check()
    open_ones: list[str] = []
    for site in placing.state.sites:
        for name, what in expected(program, placing, site):
            try:
                check(name, what, found.pop(name, []))
            except UnprovedError as why:
                open_ones.append(f"{name}: {why.diagnostic.found}")
    for block, runs in found.items():
        raise refuted("a statement of no block of the tree", str(runs[0].node), f"none of {block}")
    return tuple(open_ones)


@dataclass(frozen=True, slots=True)
class _Run:
    """A statement with the loops and conditions around it."""

    node: Statement
    block: str
    ranges: Ranges
    conditions: tuple[Condition, ...]


def _runs(
    body: Sequence[Node], ranges: Ranges, conditions: tuple[Condition, ...]
) -> Iterator[_Run]:
    """Every statement, in textual order."""
    for node in body:
        match node:
            case Loop(name, _, bound, body):
                bounds = _least(bound)
                last = min(known_form(b, {}, ranges).interval(ranges)[1] for b in bounds)
                inner = {**ranges, name: (0, last)}
                below = (c for b in bounds for c in conditions_of(_below(name, b), {}, inner))
                yield from _runs(body, inner, (*conditions, *below))
            case If(condition, then, otherwise):
                for side, body in ((condition, then), (Unary("not", condition), otherwise)):
                    holds = conditions_of(side, {}, ranges) if body else ()
                    yield from _runs(body, ranges, (*conditions, *holds))
            case Launch(_, coordinates, body):
                inner = {**ranges, **{v: (0, e) for _, v, e in coordinates}}
                yield from _runs(body, inner, conditions)
            case Keep(target, body) if not _updated(target, body):
                raise refuted("an element kept that nothing updates", str(target), "its targets")
            case Allocate(_, body) | Keep(_, body) | Routine(_, body):
                yield from _runs(body, ranges, conditions)
            case Assign():
                yield _Run(node, node.block, ranges, conditions)
            case IntrinsicCall():
                inner = {**ranges, **{n: (0, e) for n, e in node.loops}}
                yield _Run(node, node.meaning.block, inner, conditions)
            case CombineAcrossThreads():
                takes = (c for e in node.participates for c in conditions_of(e, {}, ranges))
                takes = (*conditions, *takes)
                yield _Run(node, combined_of(node.stage), ranges, takes)
                stores = (c for e in node.stores for c in conditions_of(e, {}, ranges))
                yield _Run(node, stored_of(node.stage), ranges, (*takes, *stores))
            case ThreadBarrier() | PrefetchOf():
                pass
            case _:
                raise AssertionError("code has no calls of units")


def _updated(target: Access, body: tuple[Node, ...]) -> bool:
    """Whether all that is executed updates one element."""
    found = [n for n in nodes(body) if isinstance(n, Statement)]
    return all(isinstance(n, Assign) and n.target == target for n in found)


def _below(name: str, bound: Expr) -> Expr:
    return Binary("<", Name(name), bound)


def _least(expr: Expr) -> list[Expr]:
    """The expressions of which one is the least."""
    match expr:
        case Call("min", (left, right)):
            return [*_least(left), *_least(right)]
        case Binary("+", left, Const() as by):
            return [Binary("+", e, by) for e in _least(left)]
        case _:
            return [expr]


@dataclass(frozen=True)
class _Check:
    """One program against its tree, statement by statement."""

    place: Place = field(default_factory=Place)

    def __call__(self, name: str, wanted: Wanted, runs: Sequence[_Run]) -> None:
        for run in runs:
            check_statement(name, wanted, run.node, run.ranges, run.conditions)
        if len(runs) == 1 and {*wanted.points} == {*wanted.ranges}:
            inside, left = settled(wanted.ranges, wanted.conditions)
            ranges, others = settled(runs[0].ranges, runs[0].conditions)
            idle = (r for n, r in ranges.items() if n not in inside)
            same = all(ranges.get(n) == r for n, r in inside.items())
            if left == others and same and all(high == low + 1 for low, high in idle):
                return

        def meant(limits: Limits) -> Iterator[Piece]:
            return pieces_of(wanted.ranges, wanted.conditions, wanted.points, limits)

        def done(limits: Limits) -> Iterator[Piece]:
            for run in runs:
                yield from pieces_of(run.ranges, run.conditions, self.points(wanted, run), limits)

        def shown(point: Vector) -> str:
            where = ", ".join(f"{n} = {point[n]}" for n in wanted.loops if n in point)
            return f"{name} at {where or 'its only iteration'}"

        check_same(name, meant, done, wanted.loops, self.place, shown)

    @staticmethod
    def points(wanted: Wanted, run: _Run) -> dict[str, Form]:
        """What tells the instances of a statement apart, as it has them."""
        node, ranges = run.node, {**run.ranges, **wanted.ranges}
        found = {c: form for c, form in wanted.points.items() if c in wanted.ranges}
        match node:
            case CombineAcrossThreads():
                found["#0"] = known_form(node.partial.indices[0], {}, ranges)
                found["#1"] = known_form(node.target.indices[0], {}, ranges)
            case Assign(_, target, _, Access(_, (index,))) if "#1" in wanted.points:
                found["#0"] = known_form(target.indices[0], {}, ranges)
                found["#1"] = known_form(index, {}, ranges)
            case Assign(_, target) if "#0" in wanted.points:
                found["#0"] = known_form(target.indices[0], {}, ranges)
            case _:
                pass
        return found
