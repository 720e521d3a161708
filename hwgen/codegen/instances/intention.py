"""What a block of the tree intends: its instances, and the entry of each operand in them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from hwgen.codegen.instances.boxes import Comparison, Condition, Either, boxes, conditions_of
from hwgen.codegen.instances.forms import (
    Form,
    Ranges,
    divided,
    known_form,
    number,
    remainder,
    replaced,
    total,
    variable,
)
from hwgen.codegen.instances.points import Limits, Piece, Walk
from hwgen.codegen.instances.refuted import unproved
from hwgen.codegen.lower.place import Place
from hwgen.codegen.lower.program import Part
from hwgen.codegen.storages import Buffer
from hwgen.polyhedral.tree.binding import Binding
from hwgen.polyhedral.tree.loop_tree import Site


def entry(operand: int) -> str:
    """The coordinate of an operand's entry; no loop is called so."""
    return f"#{operand}"


@dataclass(frozen=True)
class Intention:
    """A block of the tree. `addresses`: of its operands in the first of their lanes, over its own
    loops; `places`: the buffer or image of each."""

    site: Site
    call: Binding
    ranges: Ranges
    conditions: tuple[Condition, ...]
    addresses: tuple[Form, ...]
    places: tuple[Place, ...]

    @property
    def name(self) -> str:
        return self.site.block.name

    @cached_property
    def lanes(self) -> tuple[str, ...]:
        """Its loops that are lanes of the call."""
        return tuple(dict.fromkeys(loop for _, loop in self.call.lanes if loop))

    @cached_property
    def slots(self) -> tuple[Form, ...]:
        """What of each address is not affine."""
        return tuple(Form(frozenset(a.quotients)) for a in self.addresses)

    def pieces(self, outer: Sequence[str], limits: Limits) -> Iterator[Piece]:
        """What is to be executed. `outer`: the loops of which points keep the value."""
        kept = {*outer, *self.lanes}
        flat = [a.steps for a in self.addresses]
        first = {entry(k): a.constant for k, a in enumerate(self.addresses)}
        steps: dict[str, dict[str, int]] = {}
        for loop in self.ranges:
            steps[loop] = {entry(k): f[loop] for k, f in enumerate(flat) if loop in f}
            if loop in kept:
                steps[loop][loop] = 1
        ranges = dict(self.ranges)
        for loop, (low, high) in limits.items():
            ranges[loop] = max(low, ranges[loop][0]), min(high, ranges[loop][1])
        for box in boxes(ranges, self.conditions):
            yield Piece(first, tuple(Walk(*box[x], steps[x]) for x in ranges))

    def shown(self, point: Mapping[str, int]) -> str:
        """A point as text: loops, then entries."""
        loops = [f"{n} = {point[n]}" for n in self.ranges if n in point]
        operands = enumerate(self.call.intrinsic.operands)
        entries = [f"{o.name}[{point[entry(k)]}]" for k, o in operands if entry(k) in point]
        where = ", ".join(loops) or "its only iteration"
        return f"{self.name} at {where}: {', '.join(entries) or 'some entries'}"


def intention(part: Part, buffers: Mapping[str, Buffer], site: Site) -> Intention:
    """What a block is to execute, from the tree, its call's lanes and the layouts.

    Raises:
        HwgenError: H747 a form that is not known.
    """
    block, call = site.block, site.block.call
    ranges = {n: (0, e) for n, e in site.extents.items()}
    whole = {n: site.extents[n] for n in part.whole.get(block.name, ())}
    found = (c for p in block.predicate for c in conditions_of(p, {}, ranges))
    conditions = tuple(_for_any(c, whole) for c in found)
    first = {loop: number(0) for _, loop in call.lanes if loop}
    bound = {n: known_form(e, {}, ranges) for n, e in block.bindings}
    addresses: list[Form] = []
    places: list[Place] = []
    for k, access in enumerate(call.operands):
        place = part.places[block.name, k]
        index = [known_form(i, bound, ranges) for i in access.indices]
        address = _address(place, buffers.get(place.name), index, ranges)
        addresses.append(replaced(address, first, ranges))
        places.append(place)
    return Intention(site, call, ranges, conditions, tuple(addresses), tuple(places))


def _address(place: Place, buffer: Buffer | None, index: Sequence[Form], ranges: Ranges) -> Form:
    """The entry that holds an element, by the layout of its buffer or image."""
    origins = [known_form(o, {}, ranges).scaled(-1) for o in place.origins]
    distances = [total(i, o) for i, o in zip(index, origins, strict=True)]
    cut = [divided(d, n, ranges) for d, n in zip(distances, place.sizes, strict=True)]
    table = {f"d{d}": form for d, form in enumerate(cut)}
    along = [known_form(e, table, ranges) for e in place.dimensions] or cut
    parts = [a.scaled(s) for a, s in zip(along, place.strides, strict=True)]
    for dimension, extent, step in place.rows:
        if dimension is not None:
            parts.append(remainder(distances[dimension], extent, ranges).scaled(step))
    if buffer is not None:
        terms = (variable(n).scaled(c) for n, c in place.turn.terms)
        turn = total(number(place.turn.constant), *terms)
        if place.rolled is not None:
            turn = known_form(place.rolled, table, ranges)
        slot = remainder(turn, place.slots, ranges)
        parts += [number(buffer.base), slot.scaled(buffer.stride)]
    return total(*parts)


def _for_any(condition: Condition, lanes: Mapping[str, int]) -> Condition:
    """The condition that another one holds for at least one lane."""
    if not lanes:
        return condition
    match condition:
        case Either(ways):
            return Either(tuple(tuple(_for_any(c, lanes) for c in way) for way in ways))
        case Comparison(slack, op):
            if slack.names.isdisjoint(lanes):
                return condition
            inside = {n: c for n, c in slack.steps.items() if n in lanes}
            divided_too = any(not q.of.names.isdisjoint(lanes) for q, _ in slack.quotients)
            if op not in ("<", "<=") or divided_too:
                raise unproved(f"lanes past the end, where {slack} {op} 0", "one affine bound")
            least = {n: 0 if c > 0 else lanes[n] - 1 for n, c in inside.items()}
            terms = frozenset((a, c) for a, c in slack.terms if a not in least)
            constant = slack.constant + sum(c * least[n] for n, c in inside.items())
            return Comparison(Form(terms, constant), op)
