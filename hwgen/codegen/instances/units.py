"""That a program of calls executes exactly the instances which its tree intends.

Of each block of the tree, and of the calls that say they are its: the multiset of what is executed,
each point with the values of the loops around all these calls, the entries where the operands
begin, and the lanes that take part. Both are sums over boxes of loops (`sums.py`), one from the
tree's loops, predicates and layouts, the other from the program's loops, conditions, extents and
steps. What is not affine, a slot in use, depends on loops around the calls alone and is taken off
both. What calls say they are there for only names these loops: a wrong word makes the sums differ.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from hwgen.codegen.instances.boxes import Comparison, Condition, boxes, conditions_of
from hwgen.codegen.instances.forms import Form, Ranges, known_form, number, replaced, total
from hwgen.codegen.instances.intention import Intention, entry, intention
from hwgen.codegen.instances.pieces import piece_of
from hwgen.codegen.instances.points import Limits, Piece, Walk, check_same
from hwgen.codegen.instances.refuted import refuted, unproved
from hwgen.codegen.instances.sums import Place
from hwgen.codegen.instances.trees import check_trees
from hwgen.codegen.instances.variants import check_variants
from hwgen.codegen.lower.program import Part
from hwgen.codegen.nodes import Call, If, Loop, Node, OfCode, Sync
from hwgen.codegen.program import KernelLoop, Program
from hwgen.spec.expression import Const, Expr, Unary


def check_units(part: Part, program: Program) -> int:
    """Hold what units run against the tree that it was lowered from; how many blocks that has.

    Raises:
        HwgenError: H747 the first block whose instances or entries are others.
    """
    check_trees(part.tree, part.covered.state, part.covered.views)
    found: dict[str, list[_Run]] = {}
    for run in _runs(program.body, {}, ()):
        found.setdefault(run.block, []).append(run)
    check = _Check(program)
    for site in part.covered.state.sites:
        check(intention(part, program.buffer, site), found.pop(site.block.name, []))
    for block, runs in found.items():
        raise refuted("a call of no block of the tree", runs[0].where, f"no call for {block}")
    return len(part.covered.state.sites)


@dataclass(frozen=True, slots=True)
class _Run:
    """A call with the loops and conditions around it. `loops`: of its block, that it names."""

    call: Call
    block: str
    loops: Mapping[str, Expr]
    ranges: Ranges
    conditions: tuple[Condition, ...]

    @property
    def where(self) -> str:
        return f"site {self.call.site} ({self.call.intrinsic})"


def _runs(
    nodes: Sequence[Node], ranges: Ranges, conditions: tuple[Condition, ...]
) -> Iterator[_Run]:
    """Every call, in textual order."""
    for node in nodes:
        match node:
            case Loop(variable, lower, upper, body):
                ends = _number(lower, ranges), _number(upper, ranges)
                yield from _runs(body, {**ranges, variable: ends}, conditions)
            case If(condition, then, otherwise):
                holds = conditions_of(condition, {}, ranges)
                yield from _runs(then, ranges, (*conditions, *holds))
                if otherwise:
                    fails = conditions_of(Unary("not", condition), {}, ranges)
                    yield from _runs(otherwise, ranges, (*conditions, *fails))
            case Call():
                said = node.intended
                if said is None:
                    what = f"site {node.site} ({node.intrinsic})"
                    raise refuted("a call that is there for no block", what, "a block for each")
                yield _Run(node, said.block, dict(said.loops), ranges, conditions)
            case Sync() | OfCode():
                pass


def _number(expr: Expr, ranges: Ranges) -> int:
    if isinstance(expr, Const) and isinstance(expr.value, int):
        return expr.value  # As most are.
    found = known_form(expr, {}, ranges)
    if found.terms:
        raise unproved(str(expr), "a number")
    return found.constant


@dataclass(frozen=True)
class _Check:
    """One program against its tree, block by block."""

    program: Program
    place: Place = field(default_factory=Place)

    def __call__(self, block: Intention, runs: Sequence[_Run]) -> None:
        for run in runs:
            self.same_call(block, run)
        outer = _outer(block, runs)

        def meant(limits: Limits) -> Iterator[Piece]:
            return block.pieces(outer, limits)

        def done(limits: Limits) -> Iterator[Piece]:
            return (p for run in runs for p in self.pieces(block, run, outer, limits))

        along = (*outer, *block.lanes)
        check_same(block.name, meant, done, along, self.place, block.shown)

    def same_call(self, block: Intention, run: _Run) -> None:
        """The call is that of the block, on what the block works on."""
        call, where = run.call, f"{block.name}, {run.where}"
        if call.intrinsic != block.call.intrinsic.name:
            raise refuted("another intrinsic than the tree's", where, block.call.intrinsic.name)
        if call.immediates != block.call.immediates:
            found = f"{where}: {dict(call.immediates)}"
            raise refuted("other immediates than the tree's", found, f"{block.call.immediates}")
        for operand, place in zip(call.operands, block.places, strict=True):
            image = self.program.image.get(operand.buffer)
            if place.image is None:
                same = operand.buffer == place.name
            else:
                same = image is not None and replace(image, name=place.image.name) == place.image
            if not same:
                found = f"{where}: {operand.name} in {operand.buffer}"
                raise refuted("an operand in another place than its tensor", found, place.name)

    def pieces(
        self, block: Intention, run: _Run, outer: Sequence[str], limits: Limits
    ) -> Iterator[Piece]:
        """What a call executes."""
        inner = [*self.hardware_loops(run), *_lane_loops(block, run, limits)]
        within: list[Condition] = []
        for loop in outer:
            if loop in limits:
                at, (low, high) = known_form(run.loops[loop], {}, run.ranges), limits[loop]
                within.append(Comparison(total(number(low), at.scaled(-1)), "<="))
                within.append(Comparison(total(at, number(-high)), "<"))
        for box in boxes(run.ranges, (*run.conditions, *within)):
            piece = _around(block, run, box, outer)
            yield Piece(piece.first, (*piece.walks, *inner))

    def hardware_loops(self, run: _Run) -> Iterator[Walk]:
        """The loops of a call, or of its micro-kernel and the operations of that."""
        call = run.call
        kernel = self.program.kernel.get(call.kernel)
        if kernel is None:
            steps = [
                tuple(_number(o.strides[n], run.ranges) for o in call.operands)
                for n in range(len(call.extents))
            ]
            pairs = zip(call.extents, steps, strict=True)
            given = [KernelLoop(_number(e, run.ranges), s) for e, s in pairs]
        else:
            given = [*kernel.loops, *kernel.sequence]
            for box in boxes(run.ranges, run.conditions):
                check_variants(call, kernel, box)
        for loop in given:
            yield Walk(0, loop.extent, {entry(k): s for k, s in enumerate(loop.strides) if s})


def _outer(block: Intention, runs: Sequence[_Run]) -> tuple[str, ...]:
    """The block's loops whose value all its calls tell."""
    kept = [n for n in block.ranges if all(n in r.loops for r in runs)]
    for slot in block.slots:
        if inside := sorted(slot.names - {*kept}):
            what = f"{block.name}: an entry by a quotient of {inside[0]}"
            raise unproved(what, "one of loops around all its calls")
    return tuple(kept)


def _around(block: Intention, run: _Run, box: Ranges, outer: Sequence[str]) -> Piece:
    """What a call begins with, in a box of the loops around it."""
    alone = {n: number(low) for n, (low, high) in box.items() if high == low + 1}
    loops = {n: known_form(e, alone, box) for n, e in run.loops.items()}
    parts: dict[str, Form] = {n: loops[n] for n in outer}
    for k, (operand, slots) in enumerate(zip(run.call.operands, block.slots, strict=True)):
        address = known_form(operand.address, alone, box)
        parts[entry(k)] = total(address, replaced(slots, loops, box).scaled(-1))
        if parts[entry(k)].quotients:
            found = f"{block.name}, {run.where}: {operand.name} at {operand.address}"
            raise refuted("an entry that is not its element's", found, f"{block.addresses[k]}")
    if odd := next((n for n in outer if parts[n].quotients), ""):
        raise unproved(f"{run.where}: {odd} is not affine", "affine loops")
    return piece_of(box, parts)


def _lane_loops(block: Intention, run: _Run, limits: Limits) -> Iterator[Walk]:
    """Lanes that are loops of the block, as many as take part."""
    iterators = block.call.intrinsic.iterators
    taking = run.call.lanes or tuple(extent for _, extent in iterators)
    by_loop = dict(block.call.lanes)
    found: dict[str, int] = {}
    for (iterator, _), count in zip(iterators, taking, strict=True):
        loop = by_loop[iterator]
        if loop and found.setdefault(loop, count) != count:
            raise refuted("lanes of one loop that differ", run.where, f"{found[loop]} of each")
    for loop, count in found.items():
        low, high = limits.get(loop, (0, count))
        yield Walk(low, min(high, count), {loop: 1})
