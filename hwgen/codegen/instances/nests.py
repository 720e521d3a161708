"""That a processor's program executes exactly the instances which its tree intends.

Loops of the program are the tree's, by name, or coordinates of a launch that stand for them. So
each statement of the program is held against its block: where it runs, as iterations that are
counted (`sums.py`), and what it touches there, as functions of the loops (`forms.py`).
Threads that combine partial results add three more: how these begin, and where they meet.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from hwgen.codegen.instances.boxes import Comparison, Condition, conditions_of, settled
from hwgen.codegen.instances.forms import (
    Form,
    Ranges,
    known_form,
    remainder,
    total,
    variable,
)
from hwgen.codegen.instances.pieces import pieces_of
from hwgen.codegen.instances.points import Limits, Piece, value, witness
from hwgen.codegen.instances.refuted import refuted
from hwgen.codegen.instances.sums import Place
from hwgen.codegen.processor.combine import begins, goes_on
from hwgen.codegen.processor.lower import Placing
from hwgen.codegen.processor.program import (
    Allocate,
    Assign,
    Barrier,
    CombineAcrossThreads,
    For,
    If,
    IntrinsicCall,
    Keep,
    Launch,
    NestProgram,
    Node,
    OperandOf,
    PrefetchOf,
    Routine,
)
from hwgen.codegen.processor.storage import Placed
from hwgen.polyhedral.tree.loop_tree import RUNNING, Site, Stage
from hwgen.polyhedral.tree.reductions import beginning, neutral
from hwgen.polyhedral.tree.relations import combining
from hwgen.spec.expression import (
    Access,
    Binary,
    Call,
    Cast,
    Const,
    Expr,
    Name,
    Unary,
    children,
    names,
)


def check_nest_instances(program: NestProgram, placing: Placing) -> int:
    """Hold a processor's program against the tree that it was lowered from; how many blocks that
    has.

    Raises:
        HwgenError: H747 the first block whose instances or elements are others.
    """
    found: dict[str, list[_Run]] = {}
    for run in _runs(program.body, {}, ()):
        found.setdefault(run.block, []).append(run)
    check = _Check(program, placing)
    for site in placing.state.sites:
        for name, what in check.expected(site):
            check(name, what, found.pop(name, []))
    for block, runs in found.items():
        raise refuted("a statement of no block of the tree", str(runs[0].node), f"none of {block}")
    return len(placing.state.sites)


Statement = Assign | IntrinsicCall | CombineAcrossThreads


@dataclass(frozen=True, slots=True)
class _Run:
    """A statement with the loops and conditions around it."""

    node: Statement
    block: str
    ranges: Ranges
    conditions: tuple[Condition, ...]


def _combined(stage: str) -> str:
    return f"{stage} combined"


def _stored(stage: str) -> str:
    return f"{stage} stored"


def _runs(
    nodes: Sequence[Node], ranges: Ranges, conditions: tuple[Condition, ...]
) -> Iterator[_Run]:
    """Every statement, in textual order."""
    for node in nodes:
        match node:
            case For(name, bound, _, _, body):
                bounds = _least(bound)
                last = min(known_form(b, {}, ranges).interval(ranges)[1] for b in bounds)
                inner = {**ranges, name: (0, last)}
                below = (c for b in bounds for c in conditions_of(_below(name, b), {}, inner))
                yield from _runs(body, inner, (*conditions, *below))
            case If(condition, body):
                holds = conditions_of(condition, {}, ranges)
                yield from _runs(body, ranges, (*conditions, *holds))
            case Launch(_, coordinates, body):
                inner = {**ranges, **{v: (0, e) for _, v, e in coordinates}}
                yield from _runs(body, inner, conditions)
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
                yield _Run(node, _combined(node.stage), ranges, takes)
                stores = (c for e in node.stores for c in conditions_of(e, {}, ranges))
                yield _Run(node, _stored(node.stage), ranges, (*takes, *stores))
            case Barrier() | PrefetchOf():
                pass


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


@dataclass(frozen=True, slots=True)
class _Element:
    """An element of a buffer, over the program's variables."""

    buffer: str
    index: Form


_ElementOf = Callable[[Access, bool], _Element]
"""Where an access is; of what is written, in the partial results of threads."""


@dataclass(frozen=True)
class _Wanted:
    """What statements of one name are to execute. `points`: what tells their instances apart, by
    coordinate; `values`: of iterators; `elements`: of the accesses of `value`; `operands`: of an
    intrinsic's call."""

    ranges: Ranges
    conditions: tuple[Condition, ...]
    points: Mapping[str, Form]
    target: _Element
    op: str
    value: Expr
    values: Mapping[str, Form] = field(default_factory=dict[str, Form])
    elements: Mapping[Access, _Element] = field(default_factory=dict[Access, _Element])
    operands: tuple[tuple[str, _Element], ...] = ()
    intrinsic: str = ""
    threads: tuple[tuple[str, int], ...] = ()

    @property
    def loops(self) -> tuple[str, ...]:
        """Variables that are coordinates themselves."""
        return tuple(n for n in self.ranges if n in self.points)


@dataclass(frozen=True)
class _Check:
    """One program against its tree, statement by statement."""

    program: NestProgram
    placing: Placing
    place: Place = field(default_factory=Place)

    # What is to be

    def expected(self, site: Site) -> Iterator[tuple[str, _Wanted]]:
        """What the statements of a block are to execute, by what they are called."""
        block, stage = site.block, self.placing.state.stage[site.block.stage]
        over, ranges = self.variables(site)
        found = [*block.predicate]
        threads = combining(self.placing.state, site)
        if block.store_predicate is not None and not threads:
            found.append(block.store_predicate)
        bound = {n: known_form(e, over, ranges) for n, e in block.bindings}
        conditions = tuple(c for p in found for c in conditions_of(p, over, ranges))
        points = {v: variable(v) for v in ranges}

        def element(access: Access, writes: bool) -> _Element:
            placed = self.placing.partial.get((block.name, access.tensor)) if writes else None
            placed = placed or self.placing.placed[access.tensor]
            return self.element(placed, access, bound, over, ranges)

        target = element(stage.target, True)
        if block.part == "init":
            value = beginning(stage, self.placing.state.tensor[stage.tensor].dtype)
            reads = (value,) if isinstance(value, Access) else ()
            table = {a: element(a, False) for a in reads}
            yield block.name, _Wanted(ranges, conditions, points, target, "=", value, bound, table)
            return
        table = {a: element(a, False) for a in stage.reads} | {RUNNING: target}
        called = block.tensorized
        operands = () if called is None else called.operands
        accesses = {stage.target: target, **table}
        yield (
            block.name,
            _Wanted(
                ranges, conditions, points, target, stage.op, stage.value, bound, table,
                tuple((n, accesses[a]) for n, a in operands),
                called.intrinsic if called is not None else "",
            ),
        )  # fmt: skip
        if (block.name, stage.tensor) in self.placing.partial:
            yield from self.combined(site, stage, element)

    def variables(self, site: Site) -> tuple[dict[str, Form], Ranges]:
        """A block's loops as the program's variables, and how far these go."""
        named = {n: self.placing.variables.get(n, n) for n in site.names}
        ranges = {named[n]: (0, e) for n, e in site.extents.items()}
        return {n: variable(v) for n, v in named.items()}, ranges

    def element(
        self,
        placed: Placed,
        access: Access,
        bound: Mapping[str, Form],
        over: Mapping[str, Form],
        ranges: Ranges,
    ) -> _Element:
        """Where an access is, by the layout of its buffer."""
        buffer = self.program.buffer[placed.buffer.name]
        index = (known_form(i, bound, ranges) for i in access.indices)
        origins = (known_form(o, over, ranges).scaled(-1) for o in placed.box.origins)
        distances = [total(i, o) for i, o in zip(index, origins, strict=True)]
        table = {f"d{n}": form for n, form in enumerate(distances)}
        along = (known_form(d, table, ranges) for d in placed.dimensions)
        parts = [a.scaled(s) for a, s in zip(along, buffer.strides, strict=True)]
        if placed.turn:
            slot = remainder(over[placed.turn], buffer.slots, ranges)
            parts.append(slot.scaled(buffer.slot_elements))
        return _Element(buffer.name, total(*parts))

    def combined(
        self, site: Site, stage: Stage, element: _ElementOf
    ) -> Iterator[tuple[str, _Wanted]]:
        """Partial results of threads: how each begins, and where they meet, element by element."""
        threads = combining(self.placing.state, site)
        over, ranges = self.variables(site)
        depth = site.loops.index(threads[0]) + 1
        spatial = {n for n, _ in stage.spatial}
        used = {n for i, e in site.block.bindings if i in spatial for n in names(e)}
        around = {x.name for x in site.loops[:depth]}
        around |= {n for n in site.names if n in self.placing.variables}
        known = (around | used) & {*site.names}
        mine = [n for n in site.names if n in known]
        taken = {next(iter(over[n].names)): n for n in mine}
        own = {v: ranges[v] for v in taken}
        apart = {x.name for x in threads}
        guards = [p for p in site.block.predicate if {*names(p)} <= known - apart]
        conditions = tuple(c for p in guards for c in conditions_of(p, over, ranges))
        part, whole = element(stage.target, True), element(stage.target, False)
        points = {v: variable(v) for v, n in taken.items() if n in around}
        dtype = self.placing.state.tensor[stage.tensor].dtype
        zero, name = neutral(stage.op, dtype), site.block.name
        each = _Wanted(own, conditions, {**points, "#0": part.index}, part, "=", zero)
        yield begins(name), each
        both = {**points, "#0": part.index, "#1": whole.index}
        table = {stage.target: whole}
        if site.block.part != "whole":
            first = tuple(Comparison(over[x.name], "==") for x in threads)
            yield (
                goes_on(name),
                _Wanted(own, (*conditions, *first), both, part, "=", stage.target, {}, table),
            )
        extents = tuple((next(iter(over[x.name].names)), x.extent) for x in threads)
        meet = _Wanted(
            own, conditions, both, whole, stage.op, stage.target, {}, {stage.target: part},
            threads=extents,
        )  # fmt: skip
        yield _combined(name), meet
        stored = site.block.store_predicate
        more = () if stored is None else conditions_of(stored, over, ranges)
        yield _stored(name), replace(meet, conditions=(*conditions, *more))

    # What is

    def __call__(self, name: str, wanted: _Wanted, runs: Sequence[_Run]) -> None:
        for run in runs:
            self.same(name, wanted, run)
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

        if value(meant({}), self.place) == value(done({}), self.place):
            return
        odd = witness(meant, done, wanted.loops, self.place)
        where = ", ".join(f"{n} = {odd.point[n]}" for n in wanted.loops if n in odd.point)
        found, allowed = f"{name} at {where or 'its only iteration'}", "each of its instances once"
        if odd.meant is not None:
            found, allowed = f"{_times(odd.done)}: {found}", _times(odd.meant)
        raise refuted(f"{name} executes other instances than its tree intends", found, allowed)

    def points(self, wanted: _Wanted, run: _Run) -> dict[str, Form]:
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

    def same(self, name: str, wanted: _Wanted, run: _Run) -> None:
        """The statement is what its block computes, on the elements that it touches."""
        compared = _Compared(name, wanted, {**run.ranges, **wanted.ranges})
        match run.node:
            case Assign():
                compared.assign(run.node)
                compared.alike("a statement", "", wanted.intrinsic)
            case IntrinsicCall(_, intrinsic, operands, _, meaning, _):
                compared.assign(meaning)
                compared.alike("an intrinsic", intrinsic, wanted.intrinsic)
                named = tuple(n for n, _ in wanted.operands)
                compared.alike("operands", tuple(o.name for o in operands), named)
                for operand, (_, element) in zip(operands, wanted.operands, strict=True):
                    compared.operand(operand, element)
            case CombineAcrossThreads(_, coordinates, _, partial, _, op, target):
                compared.alike("threads", coordinates, wanted.threads)
                compared.alike("an operation", op, wanted.op)
                part = wanted.elements[wanted.value] if isinstance(wanted.value, Access) else None
                compared.alike("partial results", partial.tensor, part and part.buffer)
                compared.alike("a result", target.tensor, wanted.target.buffer)


@dataclass(frozen=True, slots=True)
class _Compared:
    """A statement against what it is to be. `ranges`: of all variables around it."""

    name: str
    wanted: _Wanted
    ranges: Ranges

    def alike(self, what: str, found: object, allowed: object) -> None:
        if found != allowed:
            raise refuted(f"{what} of {self.name} that is another", str(found), str(allowed))

    def assign(self, node: Assign) -> None:
        self.alike("an operation", node.op, self.wanted.op)
        if "#0" not in self.wanted.points:
            self.element(node.target, self.wanted.target)
            self.value(self.wanted.value, node.value)
            return
        self.alike("partial results", node.target.tensor, self.wanted.target.buffer)
        match self.wanted.value, node.value:
            case Access() as meant, Access(buffer):
                self.alike("a result", buffer, self.wanted.elements[meant].buffer)
            case meant, value:
                self.alike("a value", value, meant)

    def element(self, found: Access, meant: _Element) -> None:
        self.alike("a buffer", found.tensor, meant.buffer)
        self.index(known_form(found.indices[0], {}, self.ranges), meant, str(found))

    def operand(self, found: OperandOf, meant: _Element) -> None:
        first = known_form(found.access.indices[0], {}, self.ranges)
        steps = (variable(n).scaled(step) for n, step in found.steps)
        self.alike("a buffer", found.access.tensor, meant.buffer)
        self.index(total(first, *steps), meant, f"{found.access}, steps {dict(found.steps)}")

    def index(self, found: Form, meant: _Element, shown: str) -> None:
        if found != meant.index:
            what = f"an element of {self.name} that is another"
            raise refuted(what, shown, f"{meant.buffer}[{meant.index}]")

    def value(self, meant: Expr, found: Expr) -> None:
        """Both are the same expression, over elements and iterators."""
        match meant, found:
            case Access(), Access():
                self.element(found, self.wanted.elements[meant])
            case Name(name), _ if name in self.wanted.values:
                form = known_form(found, {}, self.ranges)
                if form != self.wanted.values[name]:
                    self.alike("an iterator", found, self.wanted.values[name])
            case (Binary(), Binary()) | (Unary(), Unary()) | (Cast(), Cast()) | (Call(), Call()):
                self.alike("an operation", _head(found), _head(meant))
                for one, other in zip(children(meant), children(found), strict=True):
                    self.value(one, other)
            case _:
                self.alike("a value", found, meant)


def _head(expr: Expr) -> str:
    match expr:
        case Binary(op) | Unary(op):
            return op
        case Cast(dtype):
            return f"to {dtype}"
        case Call(function, arguments):
            return f"{function} of {len(arguments)}"
        case _:
            return ""


def _times(count: int | None) -> str:
    return "once" if count == 1 else f"{count} times" if count else "never"
