"""Call sites of a tree: every leaf's loops either stay around its calls or are absorbed by them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count

from hwgen.codegen.absorption import Absorption, Part, Walk, absorb_in_parts
from hwgen.codegen.lower.blocks import BlockCall, Covered
from hwgen.codegen.lower.nests import Leaf, Nest, Piece
from hwgen.codegen.lower.places import Place, Places
from hwgen.codegen.program import Buffer
from hwgen.codegen.sites import Address, Touch, modulo
from hwgen.errors import HwgenError
from hwgen.polyhedral.affine import Affine, affine, combine
from hwgen.polyhedral.nest.build import unique
from hwgen.polyhedral.nest.terms import apply, simplify
from hwgen.polyhedral.operations import Operation
from hwgen.spec.expression import Access, Const, Expr, add, names, substitute


@dataclass(frozen=True, slots=True)
class Around:
    """A loop that stays around calls: `for name in low ..< high`."""

    name: str
    low: int
    high: int


@dataclass(frozen=True, slots=True)
class CallSite:
    """Calls that differ in the loops around them alone. `repeats`: the variables of the loops that
    are left of those it absorbs; `guards`: where it runs at all."""

    index: int
    operation: Operation
    absorbed: Absorption
    addresses: tuple[Address, ...]
    touches: tuple[Touch, ...]
    loops: tuple[Around, ...]
    repeats: tuple[str, ...]
    guards: tuple[Expr, ...] = ()
    lanes: tuple[int, ...] = ()

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
        """The half-open interval that each of these runs over."""
        found = {x.name: (x.low, x.high) for x in self.loops}
        walks = zip(self.repeats, self.absorbed.outer, strict=True)
        return found | {name: (0, w.extent) for name, w in walks}


@dataclass(frozen=True, slots=True)
class Body:
    """A loop around sites."""

    loop: Around
    items: tuple[Item, ...]


Item = Body | CallSite


def sites_of(items: Sequence[Item]) -> Iterator[CallSite]:
    """Every site, in textual order."""
    for item in items:
        match item:
            case CallSite():
                yield item
            case Body():
                yield from sites_of(item.items)


@dataclass
class Builder:
    """One walk over a peeled tree."""

    covered: Covered
    places: Places
    buffers: Mapping[str, Buffer]
    numbers: Iterator[int] = field(default_factory=count)

    def items(self, pieces: Sequence[Piece], around: tuple[Around, ...] = ()) -> tuple[Item, ...]:
        """The tree of sites."""
        result: list[Item] = []
        for piece in pieces:
            chain = _chain(piece)
            if chain is not None:
                result += self._calls(*chain, around)
                continue
            assert isinstance(piece, Nest)
            here = Around(piece.name, piece.low, piece.high)
            result.append(Body(here, self.items(piece.body, (*around, here))))
        return tuple(result)

    def _calls(
        self, chain: Sequence[Nest], leaf: Leaf, around: tuple[Around, ...]
    ) -> Iterator[Item]:
        """The calls of a leaf in the loops directly around it."""
        call = self.covered.calls[leaf.block.name]
        lanes = {loop for _, loop in call.lanes if loop}
        held = [self.places[leaf.block.name, k] for k in range(len(call.operands))]
        offsets = [self._offset(leaf, a, p) for a, p in zip(call.operands, held, strict=True)]
        turns = [self._later(leaf, place.turn) for place in held]
        kept = {n for g in leaf.guards for n in names(g)}
        kept |= {n for turn in turns for n in turn.names}
        taking = self._taking_part(leaf, call, chain, kept)
        inside = [x for x in chain if x.name not in kept and x.name not in lanes]
        outside = tuple(
            Around(x.name, x.low, x.high) for x in chain if x.name in kept and x.name not in lanes
        )
        walks = [
            Walk(x.high - x.low, tuple(o.coefficient(x.name) for o in offsets)) for x in inside
        ]
        start = {x.name: x.low for x in inside} | dict.fromkeys(lanes, 0)
        start |= {x.name: x.low for x in (*around, *outside) if x.high == x.low + 1}
        fixed = [o.fix(start) for o in offsets]
        turns = [turn.fix(start) for turn in turns]
        found: list[Item] = []
        for part in absorb_in_parts(call.intrinsic.narrowed(taking), walks):
            here = (*around, *outside)
            found.append(self._site(leaf, call, fixed, turns, part, here, taking))
        for loop in reversed(outside):
            found = [Body(loop, tuple(found))]
        yield from found

    def _taking_part(
        self, leaf: Leaf, call: BlockCall, chain: Sequence[Nest], kept: set[str]
    ) -> tuple[int, ...]:
        """How many lanes of each iterator take part; () where all do."""
        spans = {x.name: (x.low, x.high) for x in chain}
        result: list[int] = []
        for iterator, extent in call.intrinsic.iterators:
            loop = dict(call.lanes)[iterator]
            fewer = iterator in call.intrinsic.partial
            low, high = spans.get(loop, (0, 0)) if loop else (0, 1 if fewer else extent)
            if loop in kept or low or not high or (high < extent and not fewer):
                raise HwgenError(
                    "H423",
                    f"{leaf.block.name} ends within the lanes of {call.intrinsic.name}",
                    found=f"{loop}: {low}..{high - 1} of {extent}",
                    allowed="the first lanes, or all where it has no field for fewer",
                    repair="pad the loop to a multiple of the lanes before splitting it",
                )
            result.append(high)
        return () if result == [e for _, e in call.intrinsic.iterators] else tuple(result)

    def _offset(self, leaf: Leaf, access: Access, place: Place) -> Affine:
        """The entry of an access from the first of its slot, over loops."""
        extents = self.covered.state.extents
        indices = [apply(i, leaf.block.binding, extents) for i in access.indices]
        lanes = {x for _, x in self.covered.calls[leaf.block.name].lanes if x}
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
                found=f"entry {entry}",
                allowed="a sum of loops, the same for all lanes of a call",
                repair="split loops to multiples of the lanes' extents",
            )
        return self._later(leaf, found)

    @staticmethod
    def _later(leaf: Leaf, function: Affine) -> Affine:
        """A function of a block's own iterations, over the loops that it runs later in."""
        constant = function.constant
        for loop, later in leaf.block.shifts:
            constant -= function.coefficient(loop) * later
        return Affine(function.terms, constant)

    def _site(
        self,
        leaf: Leaf,
        call: BlockCall,
        offsets: Sequence[Affine],
        turns: Sequence[Affine],
        part: Part,
        around: tuple[Around, ...],
        taking: tuple[int, ...],
    ) -> CallSite:
        block = leaf.block
        absorbed = part.absorbed
        taken = {x.name for x in around}
        repeats: list[str] = []
        for n in range(len(absorbed.outer)):
            repeats.append(unique(f"call{n}", taken))
            taken.add(repeats[-1])
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
            slot = modulo(turns[k], place.slots)
            constant += buffer.base + (0 if slot.terms else slot.constant * buffer.stride)
            turn = slot if slot.terms else None
            offset = combine(terms, constant)
            addresses.append(Address(place.name, offset, turn, place.slots, buffer.stride))
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
                )
            )
        operation = Operation(
            block.name, block.stage, "map", call.intrinsic,
            tuple(a.tensor for a in call.operands), call.immediates, (),
        )  # fmt: skip
        return CallSite(
            next(self.numbers), operation, absorbed, tuple(addresses), tuple(touches), around,
            tuple(repeats), leaf.guards, taking,
        )  # fmt: skip


def _offchip(place: Place, *, write: bool) -> Touch:
    """An access to what goes through off-chip memory, which is a place of its own."""
    assert place.image is not None
    entries = place.image.entries
    where = f"image {place.name}"
    return Touch(place.name, Affine(()), 1, write, where, 0, entries, entries, True, offchip=True)


def _chain(piece: Piece) -> tuple[list[Nest], Leaf] | None:
    """The loops around a leaf that hold nothing else; None where there are several leaves."""
    chain: list[Nest] = []
    while isinstance(piece, Nest):
        chain.append(piece)
        if len(piece.body) != 1:
            return None
        (piece,) = piece.body
    return chain, piece
