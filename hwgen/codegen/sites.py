"""Call sites: every operation cut into rectangular pieces with constant extents.

Tails of different loops are different pieces, so that extents and steps are constants; addresses
are affine in tile counters plus slots. Time is a vector: position in a body, tile counter, and so
on inwards; calls of one site differ in tile counters and in the loops left around the call.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product

from hwgen.codegen.absorption import Absorption, Walk, absorb
from hwgen.codegen.allocation import Allocation
from hwgen.codegen.layout import (
    BufferLayout,
    ImageLayout,
    counter,
    storage_base,
    tile_base,
    tile_origin,
)
from hwgen.polyhedral.affine import Affine, combine
from hwgen.polyhedral.operations import Operation
from hwgen.polyhedral.tiling import TileLoop, Tiling
from hwgen.spec.hardware import HardwareSpec

INNER = 1 << 10
"""Position of the next inner tile loop in a body; what follows it comes after."""


@dataclass(frozen=True, slots=True)
class Address:
    """`offset` over tile counters and outer loops, plus the slot that `turn` selects."""

    buffer: str
    offset: Affine
    turn: Affine | None
    slots: int
    slot_entries: int


@dataclass(frozen=True, slots=True)
class Touch:
    """One buffer access of a site: the slot counter's value identifies the data's generation.
    Slot `n` is `memory[base + n * slot_entries :][: slot_entries]`."""

    buffer: str
    turn: Affine
    slots: int
    write: bool
    memory: str
    base: int
    slot_entries: int


@dataclass(frozen=True, slots=True)
class Site:
    """`ranges`: half-open tile-counter intervals of the enclosing `loops`, outermost first.
    `phase`: sites of one phase all run before those of the next."""

    index: int
    operation: Operation
    position: int
    ranges: tuple[tuple[int, int], ...]
    absorbed: Absorption
    addresses: tuple[Address, ...]
    touches: tuple[Touch, ...]
    loops: tuple[TileLoop, ...] = ()
    phase: int = 0

    @property
    def depth(self) -> int:
        return len(self.ranges)


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
    builder = _Builder(hardware, tiling, images, buffers, allocation, phase)
    for number, operation in enumerate(tiling.match.selection.operations):
        depth = tiling.operation_depth(operation)
        selection = tiling.match.selection
        before = operation.kind in ("load", "init") or selection.early(operation)
        inside = selection.inner(operation) and depth > tiling.spatial_depth
        position = number if before or inside else INNER + 1 + number
        for ranges, last in _pieces(tiling, operation, depth):
            result.append(builder.site(first + len(result), operation, position, ranges, last))
    return result


def _pieces(
    tiling: Tiling, operation: Operation, depth: int
) -> list[tuple[tuple[tuple[int, int], ...], frozenset[str]]]:
    """Boxes of tile counters in which the operation's extents are constant."""
    moving = set(operation.loops)
    options: list[list[tuple[tuple[int, int], bool]]] = []
    for loop in tiling.loops[:depth]:
        whole = ((0, loop.count), False)
        if loop.last != loop.tile and loop.loop in moving:
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

    def site(
        self,
        index: int,
        operation: Operation,
        position: int,
        ranges: tuple[tuple[int, int], ...],
        last: frozenset[str],
    ) -> Site:
        depth = len(ranges)
        walks = (
            self._copy_walks(operation, last)
            if operation.kind == "load"
            else self._loop_walks(operation, depth, last)
        )
        absorbed = absorb(operation.intrinsic, walks)
        outer = [f"call{i}" for i in range(len(absorbed.outer))]
        addresses: list[Address] = []
        for k, name in enumerate(operation.storages):
            moved = [(n, w.strides[k]) for n, w in zip(outer, absorbed.outer, strict=True)]
            addresses.append(self._address(operation, name, depth, last, moved))
        return Site(
            index,
            operation,
            position,
            ranges,
            absorbed,
            tuple(addresses),
            self._touches(operation),
            self.tiling.loops[:depth],
            self.phase,
        )

    def _steps(self, name: str, operation: Operation) -> tuple[tuple[Affine, ...], tuple[int, ...]]:
        """Coordinates and steps of an operand: its buffer's, or its image's off chip."""
        if name in self.buffers:
            return self.tiling.match.coordinate[name], self.buffers[name].strides
        layout = self.images[self._image_key(name, operation)]
        return layout.coordinates, layout.strides

    def _image_key(self, name: str, operation: Operation) -> str:
        if operation.kind == "load":
            return next(s for s in operation.storages if s in self.buffers)
        return name

    def _copy_walks(self, operation: Operation, last: frozenset[str]) -> list[Walk]:
        """One loop per coordinate of the copied box."""
        storage = next(s for s in operation.storages if s in self.buffers)
        box = self.tiling.box(storage, last)
        steps = [self._steps(name, operation)[1] for name in operation.storages]
        return [Walk(extent, tuple(s[d] for s in steps)) for d, extent in enumerate(box)]

    def _loop_walks(self, operation: Operation, depth: int, last: frozenset[str]) -> list[Walk]:
        """One loop per block counter of the operation."""
        extents = self.tiling.extents(depth, last)
        walks: list[Walk] = []
        for loop in operation.loops:
            strides: list[int] = []
            for name in operation.storages:
                coordinates, steps = self._steps(name, operation)
                strides.append(
                    sum(c.coefficient(loop) * s for c, s in zip(coordinates, steps, strict=True))
                )
            walks.append(Walk(extents[loop], tuple(strides)))
        return walks

    def _address(
        self,
        operation: Operation,
        name: str,
        depth: int,
        last: frozenset[str],
        moved: list[tuple[str, int]],
    ) -> Address:
        coordinates, steps = self._steps(name, operation)
        terms = list(moved)
        constant = 0
        inside = self.tiling.depth[name] if name in self.buffers else 0
        for coordinate, step in zip(coordinates, steps, strict=True):
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
        turn = modulo(counter(self.tiling, inside), layout.slots) if layout.slots > 1 else None
        return Address(
            self.allocation.buffer(name, self.phase),
            combine(terms, base + constant),
            turn,
            layout.slots,
            layout.slot_entries,
        )

    def _touches(self, operation: Operation) -> tuple[Touch, ...]:
        written = operation.intrinsic.semantics[0].target.tensor
        result: list[Touch] = []
        for operand, name in zip(operation.intrinsic.operands, operation.storages, strict=True):
            if name in self.buffers:
                turn = counter(self.tiling, self.tiling.depth[name])
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
                    )
                )
        return tuple(result)
