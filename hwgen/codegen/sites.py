"""Call sites: every operation cut into rectangular pieces with constant extents.

Tails of different loops are different pieces, so that extents and steps are constants; addresses
are affine in tile counters plus slots. Time is a vector: position in a body, tile counter, and so
on inwards; calls of one site differ in tile counters and in the loops left around the call.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product

from hwgen.codegen.absorption import Absorption, Part, Walk, absorb_in_parts
from hwgen.codegen.allocation import Allocation
from hwgen.codegen.image_layout import ImageLayout
from hwgen.codegen.layout import (
    BufferLayout,
    counter,
    storage_base,
    tile_base,
    tile_origin,
)
from hwgen.codegen.pipelining import Placing, Ranges, early, in_place, late
from hwgen.codegen.positions import Position, Share, Side
from hwgen.codegen.program import Image
from hwgen.codegen.starts import at_start, starts
from hwgen.codegen.walks import Cut, Steps, cuts, store_key, walks_of
from hwgen.polyhedral.affine import Affine, combine
from hwgen.polyhedral.operations import Operation
from hwgen.polyhedral.tiling import TileLoop, Tiling
from hwgen.spec.hardware import HardwareSpec


@dataclass(frozen=True, slots=True)
class Address:
    """`offset` over tile counters and outer loops, plus the slot that `turn` selects."""

    buffer: str
    offset: Affine
    turn: Affine | None
    slots: int
    slot_stride: int


@dataclass(frozen=True, slots=True)
class Touch:
    """One buffer access of a site: the slot counter's value identifies the data's generation.
    Slot `n` is `memory[base + n * slot_stride :][: slot_entries]`. `kept`: each generation has a
    slot of its own. `offchip`: an image that several phases share."""

    buffer: str
    turn: Affine
    slots: int
    write: bool
    memory: str
    base: int
    slot_entries: int
    slot_stride: int
    kept: bool = False
    offchip: bool = False


@dataclass(frozen=True, slots=True)
class Site:
    """`ranges`: half-open tile-counter intervals of the enclosing `loops`, outermost first.
    `phase`: sites of one phase all run before those of the next. `at`: the iteration in which it
    stands, over its own counters, which may be another than its own; `edge`: before (-1) or after
    (1) all loops. `lanes`: as a call states them."""

    index: int
    operation: Operation
    position: Position
    ranges: tuple[tuple[int, int], ...]
    absorbed: Absorption
    addresses: tuple[Address, ...]
    touches: tuple[Touch, ...]
    loops: tuple[TileLoop, ...] = ()
    phase: int = 0
    at: tuple[str, ...] = ()
    edge: int = 0
    lanes: tuple[int, ...] = ()

    @property
    def unit(self) -> str:
        return self.operation.intrinsic.unit

    @property
    def depth(self) -> int:
        return len(self.ranges)

    @property
    def repeats(self) -> tuple[str, ...]:
        """Variables of the loops that are left of those it absorbs."""
        return tuple(f"call{i}" for i in range(len(self.absorbed.outer)))

    @property
    def counters(self) -> tuple[str, ...]:
        """Variables of its addresses: of the loops around its calls, then of the tile loops."""
        tiles = (f"{loop.loop}_tile" for loop in self.loops)
        return (*self.repeats, *tiles)

    @property
    def spans(self) -> dict[str, tuple[int, int]]:
        """The half-open interval that each of these runs over; tile loops first."""
        found = {f"{x.loop}_tile": r for x, r in zip(self.loops, self.ranges, strict=True)}
        walks = zip(self.repeats, self.absorbed.outer, strict=True)
        return found | {name: (0, w.extent) for name, w in walks}


def build_sites(
    hardware: HardwareSpec,
    tiling: Tiling,
    images: Mapping[str, ImageLayout],
    buffers: Mapping[str, BufferLayout],
    allocation: Allocation,
    phase: int = 0,
    first: int = 0,
) -> list[Site]:
    """Every call site, in textual order, numbered from `first`."""
    result: list[Site] = []
    begun: Position | None = None
    builder = _Builder(hardware, tiling, images, buffers, allocation, phase)
    for number, operation in enumerate(tiling.match.selection.operations):
        position = builder.position(number, operation)
        for calls in builder.calls(operation):
            place = position
            if hardware.pipelined and operation.kind == "update":
                # What was computed before is stored once this unit has begun.
                if begun is not None:
                    place = replace(position, share=Share.REST)
                begun = position
            elif calls.placed.is_late and begun is not None:
                place = replace(begun, share=Share.MOVED_STORES)
            result.append(builder.site(first + len(result), place, calls))
    return result


@dataclass(frozen=True, slots=True)
class _Calls:
    """Calls of one operation (its first ones perhaps by another intrinsic) with equal extents:
    where they stand, the loops that are at their last tile, which iterations they are, and how many
    lanes take part."""

    operation: Operation
    placed: Placing
    last: frozenset[str]
    part: Part
    lanes: tuple[int, ...]


def _pieces(
    tiling: Tiling, operation: Operation, depth: int
) -> list[tuple[tuple[tuple[int, int], ...], frozenset[str]]]:
    """Boxes of tile counters in which the operation's extents are constant."""
    moving = set(operation.loops)
    once = tiling.once(operation)
    tails = dict(tiling.match.tails)
    options: list[list[tuple[tuple[int, int], bool]]] = []
    for loop in tiling.loops[:depth]:
        whole = ((0, loop.count), False)
        if loop.loop in once:
            options.append([((0, 1), False)])
        elif (loop.last != loop.tile or loop.loop in tails) and loop.loop in moving:
            options.append([((0, loop.count - 1), False), ((loop.count - 1, loop.count), True)])
        else:
            options.append([whole])
    pieces: list[tuple[tuple[tuple[int, int], ...], frozenset[str]]] = []
    for choice in product(*options):
        ranges = tuple(r for r, _ in choice)
        last = frozenset(
            loop.loop for loop, (_, tail) in zip(tiling.loops, choice, strict=False) if tail
        )
        pieces.append((ranges, last))
    return pieces


def _offchip_touch(image: Image, write: bool) -> Touch:
    """An access to what goes through off-chip memory, which is a place of its own."""
    entries = image.entries
    place = f"image {image.name}"
    return Touch(image.name, Affine(()), 1, write, place, 0, entries, entries, True, offchip=True)


def modulo(function: Affine, slots: int) -> Affine:
    """A function with the same value modulo `slots` and the smallest coefficients."""
    return combine([(n, c % slots) for n, c in function.terms], function.constant % slots)


@dataclass(frozen=True)
class _Builder:
    hardware: HardwareSpec
    tiling: Tiling
    images: Mapping[str, ImageLayout]
    buffers: Mapping[str, BufferLayout]
    allocation: Allocation
    phase: int

    def position(self, number: int, operation: Operation) -> Position:
        """Where an operation stands among those of one body."""
        tiling = self.tiling
        selection, depth = tiling.match.selection, tiling.operation_depth(operation)
        if operation.kind == "init" and self.moves(operation, depth):
            # Where its slot is stored in the same iteration, after that.
            return Position(Side.BEHIND, len(selection.operations) + number)
        before = operation.kind in ("load", "init") or selection.early(operation)
        inside = selection.inner(operation) and depth > tiling.spatial_depth
        return Position(Side.BEFORE if before or inside else Side.BEHIND, number)

    def calls(self, operation: Operation) -> Iterator[_Calls]:
        """The calls of an operation, in order."""
        depth = self.tiling.operation_depth(operation)
        for ranges, last in _pieces(self.tiling, operation, depth):
            for some, starting in starts(self.tiling, operation, ranges):
                for done, part, lanes in self.parts(operation, depth, last, starting):
                    for placed in self.places(operation, some):
                        yield _Calls(done, placed, last, part, lanes)

    def parts(
        self, operation: Operation, depth: int, last: frozenset[str], starting: bool
    ) -> Iterator[tuple[Operation, Part, tuple[int, ...]]]:
        """The calls of one piece of an operation; `starting`: it begins the sums."""
        steps = {name: self._steps(name, operation) for name in operation.storages}
        walks = walks_of(self.tiling, operation, steps, depth, last)
        reduction = set(self.tiling.match.selection.reduction)
        for cut in cuts(self.tiling, operation, walks, depth, last):
            lanes = self.tiling.match.lanes_in(operation, cut.ends)
            begins = starting and reduction.isdisjoint(cut.past)
            for done, part in self._absorbed(operation, cut, lanes, starting=begins):
                moved = (a + b for a, b in zip(part.offsets, cut.offsets, strict=True))
                yield done, Part(tuple(moved), part.absorbed), lanes

    def _absorbed(
        self, operation: Operation, cut: Cut, lanes: tuple[int, ...], *, starting: bool
    ) -> Iterator[tuple[Operation, Part]]:
        """The calls of some iterations."""
        walks, intrinsic = list(cut.walks), operation.intrinsic.narrowed(lanes)
        ordered = self.tiling.match.selection.in_order(operation)
        if not starting or operation.first is None:
            for part in absorb_in_parts(intrinsic, walks, ordered=ordered):
                yield operation, part
            return
        reduction = [
            n
            for n, loop in enumerate(operation.loops)
            if loop in self.tiling.match.selection.reduction and walks[n].extent > 1
        ]
        first = replace(operation, intrinsic=operation.first)
        beginning = operation.first.narrowed(lanes)
        for part in absorb_in_parts(beginning, at_start(walks, reduction)):
            yield first, part
        places = list(enumerate(reduction))
        for n, position in reversed(places) if ordered else places:
            rest = at_start(walks, reduction[:n])
            moved = walks[position].strides
            rest[position] = Walk(walks[position].extent - 1, moved)
            for part in absorb_in_parts(intrinsic, rest, ordered=ordered):
                offsets = tuple(a + b for a, b in zip(part.offsets, moved, strict=True))
                yield operation, Part(offsets, part.absorbed)

    def moves(self, operation: Operation, depth: int) -> bool:
        """Whether an operation inside so many tile loops stands in another iteration than its own:
        a load or store of another unit than those that compute, with a slot to spare."""
        if not depth or not self.hardware.pipelined or operation.kind in ("update", "map"):
            return False
        computing = {
            o.intrinsic.unit
            for o in self.tiling.match.selection.operations
            if o.kind in ("update", "map")
        }
        apart = bool(computing) and operation.intrinsic.unit not in computing
        onchip = [s for s in operation.storages if s in self.tiling.slot]
        if operation.kind == "store":
            # What it reads must stay an iteration longer: loads refill their slots before that.
            loaded = {
                s
                for o in self.tiling.match.selection.operations
                if o.kind == "load"
                for s in o.storages
            }
            if not loaded.isdisjoint(onchip):
                return False
        return apart and all(self.tiling.slot[s] > 1 for s in onchip)

    def places(self, operation: Operation, ranges: Ranges) -> list[Placing]:
        """Where the calls of one piece stand."""
        loops = self.tiling.loops
        if not self.moves(operation, len(ranges)):
            return [in_place(loops, ranges)]
        if operation.kind == "store":
            return list(late(loops, ranges))
        return list(early(loops, ranges, within=operation.kind == "init"))

    def site(self, index: int, position: Position, calls: _Calls) -> Site:
        """One call site."""
        operation, placed, last, part = calls.operation, calls.placed, calls.last, calls.part
        depth = len(placed.ranges)
        absorbed = part.absorbed
        outer = [f"call{i}" for i in range(len(absorbed.outer))]
        addresses: list[Address] = []
        for k, name in enumerate(operation.storages):
            moved = [(n, w.strides[k]) for n, w in zip(outer, absorbed.outer, strict=True)]
            address = self._address(operation, name, depth, last, moved)
            start = Affine(address.offset.terms, address.offset.constant + part.offsets[k])
            addresses.append(replace(address, offset=start))
        return Site(
            index,
            operation,
            position,
            placed.ranges,
            absorbed,
            tuple(addresses),
            self._touches(operation),
            self.tiling.loops[:depth],
            self.phase,
            placed.at,
            placed.edge,
            calls.lanes,
        )

    def _steps(self, name: str, operation: Operation) -> Steps:
        """Coordinates and steps of an operand: its buffer's, or its image's off chip."""
        if name in self.buffers:
            return self.buffers[name].steps(self.tiling.match.coordinate[name])
        return self.images[self._image_key(name, operation)].steps

    def _image_key(self, name: str, operation: Operation) -> str:
        if operation.kind == "load":
            return next(s for s in operation.storages if s in self.buffers)
        return store_key(operation, name, self.images)

    def _address(
        self,
        operation: Operation,
        name: str,
        depth: int,
        last: frozenset[str],
        moved: list[tuple[str, int]],
    ) -> Address:
        steps = self._steps(name, operation)
        terms = list(moved)
        constant = 0
        for coordinate, step in zip(steps.coordinates, steps.strides, strict=True):
            here = (
                tile_base(self.tiling, coordinate, depth, last)
                if operation.kind == "load"
                else tile_origin(self.tiling, coordinate, depth)
            )
            start = Affine(())
            if name in self.buffers:
                held = self.tiling.match.selection.storage(name)
                start = storage_base(self.tiling, held, coordinate)
            terms += [(n, step * c) for n, c in here.terms]
            terms += [(n, -step * c) for n, c in start.terms]
            constant += step * (here.constant - start.constant)
        if name not in self.buffers:
            image = self.images[self._image_key(name, operation)].image.name
            return Address(image, combine(terms, constant), None, 1, 0)
        layout = self.buffers[name]
        base = self.allocation.base(name, self.phase)
        stride = self.allocation.stride(name, self.phase)
        number, turn = counter(self.tiling, name), None
        if self.tiling.kept(name):
            terms += [(n, stride * c) for n, c in number.terms]
        elif layout.slots > 1:
            turn = modulo(number, layout.slots)
        return Address(
            self.allocation.buffer(name, self.phase),
            combine(terms, base + constant),
            turn,
            layout.slots,
            stride,
        )

    def _touches(self, operation: Operation) -> tuple[Touch, ...]:
        written = operation.intrinsic.semantics[0].target.tensor
        result: list[Touch] = []
        for operand, name in zip(operation.intrinsic.operands, operation.storages, strict=True):
            if name not in self.buffers:
                image = self.images[self._image_key(name, operation)].image
                if image.role == "temporary":
                    result.append(_offchip_touch(image, operand.name == written))
            if name in self.buffers:
                turn = counter(self.tiling, name)
                layout = self.buffers[name]
                result.append(
                    Touch(
                        self.allocation.buffer(name, self.phase),
                        turn,
                        layout.slots,
                        operand.name == written,
                        layout.memory,
                        self.allocation.base(name, self.phase),
                        layout.slot_entries,
                        self.allocation.stride(name, self.phase),
                        self.tiling.kept(name),
                    )
                )
        return tuple(result)
