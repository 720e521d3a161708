"""Call sites of a tree: every leaf's loops either stay around its calls or are absorbed by them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count

from hwgen.codegen.hardware_loops import Absorption, Part, Walk, absorb_in_parts
from hwgen.codegen.lower.nests import Leaf, Nest, Piece
from hwgen.codegen.lower.place import Place, Places
from hwgen.codegen.lower.ranges import Ranges, bounded
from hwgen.codegen.nodes import SERIAL, Intended
from hwgen.codegen.storages import Buffer
from hwgen.codegen.touches import Address, Runs, Touch, modulo, runs_of
from hwgen.errors import HwgenError
from hwgen.polyhedral.match.bind import BoundTree
from hwgen.polyhedral.match.operations import Operation
from hwgen.polyhedral.tree.binding import Binding
from hwgen.polyhedral.tree.build import unique
from hwgen.polyhedral.tree.loop_tree import Block
from hwgen.polyhedral.tree.terms import apply, simplify
from hwgen.spec.affine import Affine, affine, combine
from hwgen.spec.expression import Access, Const, Expr, Name, add, names, substitute


@dataclass(frozen=True, slots=True)
class Around:
    """A loop that stays around calls: `for name in low ..< high`; `kind`: as in the program."""

    name: str
    low: int
    high: int
    kind: str = SERIAL


@dataclass(frozen=True, slots=True)
class CallSite:
    """Calls that differ in the loops around them alone. `repeats`: the variables of the loops that
    are left of those it absorbs; `guards`: where it runs at all; `intended`: as in the program."""

    index: int
    operation: Operation
    absorbed: Absorption
    addresses: tuple[Address, ...]
    touches: tuple[Touch, ...]
    loops: tuple[Around, ...]
    repeats: tuple[str, ...]
    guards: tuple[Expr, ...] = ()
    lanes: tuple[int, ...] = ()
    intended: Intended | None = None

    @property
    def unit(self) -> str:
        return self.operation.intrinsic.unit

    @property
    def ranges(self) -> tuple[tuple[int, int], ...]:
        """The half-open intervals of the loops around it."""
        return tuple((x.low, x.high) for x in self.loops)

    @property
    def counters(self) -> tuple[str, ...]:
        """Variables of its addresses."""
        return (*self.repeats, *(x.name for x in self.loops))

    @property
    def spans(self) -> dict[str, tuple[int, int]]:
        """The half-open interval that each of these runs over, where the site runs."""
        found = _spans(self.loops, self.guards)
        walks = zip(self.repeats, self.absorbed.outer, strict=True)
        return found | {name: (0, w.extent) for name, w in walks}


@dataclass(frozen=True, slots=True)
class Body:
    """A loop around sites."""

    loop: Around
    items: tuple[Item, ...]


Item = Body | CallSite


@dataclass(frozen=True, slots=True)
class Known:
    """What has been found out about operands, by block and number: their entries, where their place
    has some strides; and their coordinates, where these are affine."""

    entries: dict[tuple[str, int, tuple[int, ...]], Affine]
    coordinates: dict[tuple[str, int], tuple[Affine, ...] | None]

    @classmethod
    def nothing(cls) -> Known:
        return cls({}, {})


def sites_of(items: Iterable[Item]) -> Iterator[CallSite]:
    """Every site, in textual order."""
    for item in items:
        match item:
            case CallSite():
                yield item
            case Body():
                yield from sites_of(item.items)


@dataclass
class Builder:
    """One walk over a peeled tree. `kinds`: of parallel loops, by name; `known`: what has been
    found out about entries before."""

    covered: BoundTree
    places: Places
    buffers: Mapping[str, Buffer]
    kinds: Mapping[str, str] = field(default_factory=dict[str, str])
    numbers: Iterator[int] = field(default_factory=count)
    known: Known = field(default_factory=Known.nothing)

    def items(self, pieces: Sequence[Piece], around: tuple[Around, ...] = ()) -> tuple[Item, ...]:
        """The tree of sites."""
        result: list[Item] = []
        for piece in pieces:
            chain = chain_of(piece)
            if chain is not None:
                result += self.calls(*chain, around)
                continue
            assert isinstance(piece, Nest)
            here = self.around(piece)
            result.append(Body(here, self.items(piece.body, (*around, here))))
        return tuple(result)

    def around(self, nest: Nest) -> Around:
        """A loop of C."""
        return Around(nest.name, nest.low, nest.high, self.kinds.get(nest.name, SERIAL))

    def calls(
        self, chain: Sequence[Nest], leaf: Leaf, around: tuple[Around, ...]
    ) -> Iterator[Item]:
        """The calls of a leaf in the loops directly around it."""
        call = leaf.block.call
        lanes = {loop for _, loop in call.lanes if loop}
        held = [self.places[leaf.block.name, k] for k in range(len(call.operands))]
        pairs = zip(call.operands, held, strict=True)
        offsets = [self._offset(leaf, k, a, p) for k, (a, p) in enumerate(pairs)]
        turns = [self._turn(leaf, a, p) for a, p in zip(call.operands, held, strict=True)]
        kept = {n for g in leaf.guards for n in names(g)}
        kept |= {n for turn in turns for n in turn.names} | {*self.kinds}
        taking = self._taking_part(leaf, call, chain, kept)
        inside = [x for x in chain if x.name not in kept and x.name not in lanes]
        outside = tuple(self.around(x) for x in chain if x.name in kept and x.name not in lanes)
        walks = [
            Walk(x.high - x.low, tuple(o.coefficient(x.name) for o in offsets)) for x in inside
        ]
        start = {x.name: x.low for x in inside} | dict.fromkeys(lanes, 0)
        here = (*around, *outside)
        spans = _spans(here, leaf.guards)
        start |= {n: low for n, (low, high) in spans.items() if high == low + 1}
        fixed = [o.fix(start) for o in offsets]
        turns = [turn.fix(start) for turn in turns]
        intended = _intended(leaf.block, here, inside)
        found: list[Item] = []
        stage = self.covered.state.stage[leaf.block.stage]
        ordered = stage.ordered and leaf.block.part != "init"
        for part in absorb_in_parts(call.intrinsic.narrowed(taking), walks, ordered=ordered):
            found.append(self._site(leaf, call, fixed, turns, part, here, taking, intended))
        for loop in reversed(outside):
            found = [Body(loop, tuple(found))]
        yield from found

    def _taking_part(
        self, leaf: Leaf, call: Binding, chain: Sequence[Nest], kept: set[str]
    ) -> tuple[int, ...]:
        """How many lanes of each iterator take part; () where all do."""
        spans = {x.name: (x.low, x.high) for x in chain}
        result: list[int] = []
        for iterator, extent in call.intrinsic.iterators:
            loop = dict(call.lanes)[iterator]
            fewer = iterator in call.intrinsic.partial
            alone = (0, 1 if iterator in call.single else extent)
            low, high = spans.get(loop, (0, 0)) if loop else alone
            if loop in kept or low or not high or (high < extent and not fewer):
                raise HwgenError(
                    "H423",
                    f"{leaf.block.name} ends within the lanes of {call.intrinsic.name}",
                    field=f"blocks.{leaf.block.name}",
                    found=f"{loop}: {low}..{high - 1} of {extent}",
                    allowed="the first lanes, or all where it has no field for fewer",
                    repair="pad the loop to a multiple of the lanes before splitting it",
                )
            result.append(high)
        return () if result == [e for _, e in call.intrinsic.iterators] else tuple(result)

    def _offset(self, leaf: Leaf, operand: int, access: Access, place: Place) -> Affine:
        """The entry of an access from the first of its slot, over loops."""
        key = leaf.block.name, operand, place.strides
        if key not in self.known.entries:
            found = self._coordinates(leaf, operand, access, place)
            if found is None:
                self.known.entries[key] = self._entry(leaf, access, place)
            else:
                steps = (*place.strides, *(step for _, _, step in place.rows))
                pairs = list(zip(found, steps, strict=True))
                terms = [(n, c * s) for f, s in pairs for n, c in f.terms]
                self.known.entries[key] = combine(terms, sum(f.constant * s for f, s in pairs))
        return self._later(leaf, self.known.entries[key])

    def _coordinates(
        self, leaf: Leaf, operand: int, access: Access, place: Place
    ) -> tuple[Affine, ...] | None:
        """The block of lanes that an access is in, by dimension, and its row there; None where some
        of them are not affine, though their sum may be."""
        if place.image is not None or place.dimensions:
            return None
        key = leaf.block.name, operand
        if key not in self.known.coordinates:
            extents = self.covered.state.extents
            indices = [apply(i, leaf.block.binding, extents) for i in access.indices]
            lanes = {x for _, x in leaf.block.call.lanes if x}
            found: list[Affine | None] = []
            for value in place.coordinates(indices, extents):
                found.append(None if lanes & set(names(value)) else affine(value))
            first = dict.fromkeys(lanes, Const(0))
            for value in place.row_coordinates(indices, extents):
                found.append(affine(simplify(substitute(value, first), extents)))
            known = tuple(f for f in found if f is not None)
            self.known.coordinates[key] = known if len(known) == len(found) else None
        return self.known.coordinates[key]

    def _entry(self, leaf: Leaf, access: Access, place: Place) -> Affine:
        extents = self.covered.state.extents
        indices = [apply(i, leaf.block.binding, extents) for i in access.indices]
        lanes = {x for _, x in leaf.block.call.lanes if x}
        first = dict.fromkeys(lanes, Const(0))
        entry = place.block(indices, extents)
        if place.image is not None and not place.image.lanes:
            entry = substitute(entry, first)
        apart = lanes & set(names(entry))
        entry = simplify(add(entry, substitute(place.row(indices, extents), first)), extents)
        found = affine(entry)
        if found is None or apart:
            raise HwgenError(
                "H423",
                f"{leaf.block.name} has no entry of {place.name} for each call",
                field=f"blocks.{leaf.block.name}",
                found=f"entry {entry}",
                allowed="a sum of loops, the same for all lanes of a call",
                repair="split loops to multiples of the lanes' extents",
            )
        return found

    def _turn(self, leaf: Leaf, access: Access, place: Place) -> Affine:
        """The number of the tile in use, whose remainder is its slot."""
        extents, indices = self.covered.state.extents, access.indices
        if place.rolled is not None:
            indices = tuple(apply(i, leaf.block.binding, extents) for i in indices)
        number = place.turned(indices, extents)
        if number is None:
            return self._later(leaf, place.turn)
        found = affine(number)
        lanes = {x for _, x in leaf.block.call.lanes if x}
        if found is None or not lanes.isdisjoint(found.names):
            raise HwgenError(
                "H423",
                f"{leaf.block.name} has no slot of {place.name} for each call",
                field=f"blocks.{leaf.block.name}",
                found=f"number {number}",
                allowed="a sum of loops, the same for all lanes of a call",
                repair="let the layout repeat along a dimension that no lane moves along",
            )
        return self._later(leaf, found)

    @staticmethod
    def _later(leaf: Leaf, function: Affine) -> Affine:
        """A function of a block's own iterations, over the loops that it runs later in."""
        if not leaf.block.shifts or not function.terms:
            return function
        constant = function.constant
        for loop, later in leaf.block.shifts:
            constant -= function.coefficient(loop) * later
        return Affine(function.terms, constant)

    def _site(
        self,
        leaf: Leaf,
        call: Binding,
        offsets: Sequence[Affine],
        turns: Sequence[Affine],
        part: Part,
        around: tuple[Around, ...],
        taking: tuple[int, ...],
        intended: Intended,
    ) -> CallSite:
        block = leaf.block
        absorbed = part.absorbed
        taken = {x.name for x in around}
        repeats: list[str] = []
        for n in range(len(absorbed.outer)):
            repeats.append(unique(f"call{n}", taken))
            taken.add(repeats[-1])
        spans = _spans(around, leaf.guards)
        addresses: list[Address] = []
        touches: list[Touch] = []
        for k, (operand, access) in enumerate(
            zip(call.intrinsic.operands, call.operands, strict=True)
        ):
            moved = zip(repeats, absorbed.outer, strict=True)
            terms = [*offsets[k].terms, *((n, w.strides[k]) for n, w in moved)]
            constant = offsets[k].constant + part.offsets[k]
            place = self.places[block.name, k]
            buffer = self.buffers.get(place.name)
            writes = access.tensor == block.stage and operand.access != "read"
            if buffer is None:
                addresses.append(Address(place.name, combine(terms, constant), None, 1, 0))
                if place.image is not None and place.image.role == "temporary":
                    touches.append(_offchip(place, write=writes))
                continue
            offset, runs = _touched(offsets[k], part, place, k)
            slot = modulo(turns[k], place.slots)
            kept = _never_again(slot, spans, place.slots)
            constant += buffer.base
            if kept:
                constant += slot.constant * buffer.stride
                terms += [(n, c * buffer.stride) for n, c in slot.terms]
            turn = None if kept else slot
            first = combine(terms, constant)
            addresses.append(Address(place.name, first, turn, place.slots, buffer.stride))
            touches.append(
                Touch(
                    place.name,
                    turns[k],
                    place.slots,
                    writes,
                    place.memory,
                    buffer.base,
                    buffer.slot_entries,
                    buffer.stride,
                    kept,
                    offset=offset,
                    runs=() if runs == ((0, buffer.slot_entries),) else runs,
                )
            )
        operation = Operation(
            block.name, block.stage, "map", call.intrinsic,
            tuple(a.tensor for a in call.operands), call.immediates, (),
        )  # fmt: skip
        return CallSite(
            next(self.numbers), operation, absorbed, tuple(addresses), tuple(touches), around,
            tuple(repeats), leaf.guards, taking, intended,
        )  # fmt: skip


def _touched(first: Affine, part: Part, place: Place, operand: int) -> tuple[Affine, Runs]:
    """Of a slot, what the calls of a site touch, from an entry on."""
    absorbed = part.absorbed
    walks = [
        (w.extent, w.strides[operand])
        for w in (*absorbed.hardware, *absorbed.sequence, *absorbed.outer)
    ]
    least, runs = runs_of((*walks, *((n, step) for _, n, step in place.rows)))
    return Affine(first.terms, first.constant + part.offsets[operand] + least), runs


def _intended(block: Block, around: Sequence[Around], inside: Sequence[Nest]) -> Intended:
    """A block's own iterations, over the loops around its calls; of those inside, of one alone."""
    later = dict(block.shifts)
    values = [(x.name, add(Name(x.name), Const(-later.get(x.name, 0)))) for x in around]
    alone = [x for x in inside if x.high == x.low + 1]
    values += [(x.name, Const(x.low - later.get(x.name, 0))) for x in alone]
    return Intended(block.name, tuple(values))


def _spans(loops: Sequence[Around], guards: Sequence[Expr]) -> dict[str, tuple[int, int]]:
    """The part of each loop's range in which guards that compare it with a number hold."""
    return {x.name: bounded(guards, x.name, x.low, x.high) for x in loops}


def _never_again(slot: Affine, spans: Ranges, slots: int) -> bool:
    """Whether slots are taken in order and none twice."""
    if not slot.terms:
        return 0 <= slot.constant < slots
    low, high = slot.interval({n: high - low for n, (low, high) in spans.items()})
    first = sum(c * spans[n][0] for n, c in slot.terms)
    return low + first >= 0 and high + first < slots


def _offchip(place: Place, *, write: bool) -> Touch:
    """An access to what goes through off-chip memory, which is a place of its own."""
    assert place.image is not None
    entries = place.image.entries
    where = f"image {place.name}"
    return Touch(place.name, Affine(()), 1, write, where, 0, entries, entries, True, offchip=True)


def chain_of(piece: Piece) -> tuple[list[Nest], Leaf] | None:
    """The loops around a leaf that hold nothing else; None where there are several leaves."""
    chain: list[Nest] = []
    while isinstance(piece, Nest):
        chain.append(piece)
        if len(piece.body) != 1:
            return None
        (piece,) = piece.body
    return chain, piece
