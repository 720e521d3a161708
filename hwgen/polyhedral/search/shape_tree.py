"""The tree of a shape: its loops around the blocks of its operations, as a tiling is written.

Loops that nothing stands between are one. Where a host issues calls in order, loads run a tile
ahead and stores a tile behind; so do the loads of a unit that stores as well.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import prod

import numpy as np
from numpy.typing import NDArray

from hwgen.polyhedral.match.operations import Operation
from hwgen.polyhedral.search.cost_tree import ONE, Array, Block, Counts, Machine, Node, Repeat
from hwgen.polyhedral.search.estimate_shape import Grid, Shape, box_extents
from hwgen.polyhedral.search.host_queues import stored_in_parts
from hwgen.polyhedral.search.leaf import Leaves
from hwgen.polyhedral.search.resident import fitting
from hwgen.polyhedral.search.tiling import TOGETHER
from hwgen.spec.hardware import HardwareSpec


def machine_of(hardware: HardwareSpec) -> Machine:
    """What of a chip decides how long its units wait for one another."""
    board, issued = hardware.scoreboard, hardware.issue is not None
    queues = {u.name: u.queue_entries or 1 << 30 for u in hardware.units if issued}
    return Machine(queues, 0 if board is None else board.cycles)


@dataclass
class ShapeTree:
    """The trees of a shape's points; which of them is a point's, `variants` tells."""

    shape: Shape
    slots: dict[str, Counts]
    entries: dict[str, Counts]
    _front: list[list[Block]] = field(default_factory=list[list[Block]])
    _back: list[list[Block]] = field(default_factory=list[list[Block]])
    _ahead: list[Block] = field(default_factory=list[Block])
    _behind: list[Block] = field(default_factory=list[Block])
    _rest: list[Block] = field(default_factory=list[Block])

    @cached_property
    def leaves(self) -> Leaves:
        """What its blocks take."""
        return Leaves(self.shape, self.slots, self.entries)

    @cached_property
    def turns(self) -> Counts:
        """Iterations of the loops inside those that all operations share."""
        return self.shape.trips(frozenset(self.shape.loops[self.shape.spatial :]))

    @cached_property
    def _shifted(self) -> dict[str, NDArray[np.bool_]]:
        """Where operations stand in another tile than their own, of those that somewhere do: of
        other units than compute, with a version to spare."""
        shape, operations = self.shape, self.shape.match.selection.operations
        begins = () if shape.hardware.pipelined else ("init",)
        kinds = ("update", "map", *begins)
        working = {o.intrinsic.unit for o in operations if o.kind in kinds}
        loaded = {s for o in operations if o.kind == "load" for s in o.storages}
        found = {name: spare for name, (spare, _) in self._spread.items()}
        for o in operations:
            held = [s for s in o.storages if s in shape.placement and not shape.in_place(s)]
            if self._may_shift(o) and o.intrinsic.unit not in working and o.name not in found:
                spare = np.ones(1, np.bool_)
                for storage in held:
                    spare = spare & (self.slots[storage] > 1)
                if spare.any() and not (o.kind == "store" and loaded & {*held}):
                    found[o.name] = spare
        return found

    @cached_property
    def _spread(self) -> dict[str, tuple[NDArray[np.bool_], Grid]]:
        """The loads that come in parts, one with each load of the same unit further in: where, with
        a version to spare and room for parts of one size; and what a part has of each loop."""
        shape, match = self.shape, self.shape.match
        loads = {o.written: o for o in match.selection.operations if o.kind == "load"}
        found: dict[str, tuple[NDArray[np.bool_], Grid]] = {}
        for storage, o in loads.items() if not shape.hardware.pipelined else ():
            depth, unit = shape.placement.get(storage, 0), o.intrinsic.unit
            deeper = (n for n in loads if shape.placement.get(n, 0) > depth)
            kept = storage in shape.parts or match.selection.storage(storage).shape
            if kept or depth == 0 or all(loads[n].intrinsic.unit != unit for n in deeper):
                continue
            times, extents = self._cut(storage, depth)
            taken = {n: count * self.entries[n] for n, count in self.slots.items()}
            taken[storage] = np.ceil(taken[storage] * times)
            room = fitting(shape.hardware, match, lambda n, taken=taken: taken[n])
            found[o.name] = room & (self.slots[storage] > 1), extents
        return found

    def _cut(self, storage: str, depth: int) -> tuple[Array, Grid]:
        """By how many times a load is larger in as many parts as the next loop further in has
        iterations, along the loop where that is least; and what a part has of each loop."""
        shape, extents = self.shape, self.shape.extents(depth)
        count, least = shape.trips(frozenset((shape.loops[depth],))), np.full(1, np.inf)
        found = extents
        for coordinate in shape.match.coordinate[storage]:
            (whole,) = box_extents([coordinate], extents)
            part = -(-whole // count)
            times = np.where(whole > 1, part * count / whole, np.inf)
            cut = {n: np.minimum(extents[n], part) for n in coordinate.names}
            found = {
                n: np.where(times < least, cut.get(n, e), found[n]) for n, e in extents.items()
            }
            least = np.minimum(least, times)
        return least, found

    def _may_shift(self, o: Operation) -> bool:
        """Whether a host that issues calls in order is to find work between an operation and what
        waits for it, or one unit loads and stores."""
        shape, operations = self.shape, self.shape.match.selection.operations
        if o.kind == "load":
            storing = {x.intrinsic.unit for x in operations if x.kind == "store"}
            ahead = shape.hardware.pipelined or o.intrinsic.unit in storing
            return ahead and shape.placement.get(o.written, 0) > 0
        sums = any(x.kind == "update" for x in operations)
        behind = shape.hardware.pipelined and sums and shape.spatial > 0
        return behind and o.kind in ("store", "init")

    @cached_property
    def variants(self) -> Counts:
        """A number for each point: those with the same one have one tree."""
        number = np.zeros(1, np.int64)
        if self.shape.hardware.pipelined:
            number = (self.turns > TOGETHER).astype(np.int64)
        for spare in self._shifted.values():
            number = 2 * number + spare
        return number

    def _shift(self, o: Operation, variant: int) -> bool:
        """Whether an operation stands in another tile in a variant."""
        names = [*self._shifted]
        return o.name in names and bool(variant >> (len(names) - 1 - names.index(o.name)) & 1)

    def nodes(self, variant: int) -> tuple[Node, ...]:
        """The tree of the points with this number."""
        operations = self.shape.match.selection.operations
        depths = self._innermost + 1
        self._front, self._back = ([[] for _ in range(depths)] for _ in range(2))
        self._ahead, self._behind, self._rest = [], [], []
        behind = any(o.kind == "store" and self._shift(o, variant) for o in operations)
        for o in operations:
            if o.kind in ("load", "store"):
                self._transfer(o, shifted=self._shift(o, variant))
            elif self._shift(o, variant):
                block = replace(self._work(o), shift=-1)
                at = self._part(second=bool(variant >> len(self._shifted)))
                self._front[-1].append(replace(block, at=at))
                self._ahead.append(block)
            else:
                self._compute(o, behind=behind)
        self._back[-1] += self._rest
        self._front[0] += self._ahead
        self._back[0][:0] = self._behind
        return self._loops()

    def _transfer(self, o: Operation, *, shifted: bool) -> None:
        """Add a load or a store."""
        storage = next(s for s in o.storages if s in self.shape.placement)
        depth = self.shape.placement[storage]
        if self.shape.in_place(storage):
            return
        block = self.leaves.transfer(o, storage)
        if o.kind == "store" and shifted:
            block = replace(block, shift=1)
            self._back[-1].append(self._stored_behind(o, block))
            self._behind.append(block)
        elif o.kind == "store":
            self._back[self._storing_depth(storage)].append(block)
        elif shifted and o.name in self._spread:
            part = self.leaves.transfer(o, storage, self._spread[o.name][1])
            self._front[depth + 1].insert(0, replace(part, shift=-1))
            self._ahead.append(replace(block, shift=-1))
        else:
            block = replace(block, shift=-int(shifted))
            # Before what is first to read it.
            place = self._back if self._read_behind(storage) else self._front
            place[depth].append(replace(block, at=self._first_pass(storage)))
            self._ahead += [block] * shifted

    def _read_behind(self, storage: str) -> bool:
        """Whether what reads a storage first does so behind the loops further in; for a host that
        issues in order, loads come first all the same."""
        if self.shape.hardware.pipelined:
            return False
        o = next(
            o
            for o in self.shape.match.selection.operations
            if o.kind != "load" and storage in o.storages
        )
        return self.shape.placement[storage] == self._depth(o) and not self._before(o)

    def _before(self, o: Operation) -> bool:
        """Whether work comes before the loops further in."""
        selection = self.shape.match.selection
        return o.kind == "init" or selection.early(o) or selection.inner(o)

    def _work(self, o: Operation) -> Block:
        return self.leaves.work(o, self._depth(o))

    def _depth(self, o: Operation) -> int:
        """How many loops are around work."""
        return self._innermost if self.shape.match.selection.inner(o) else self.shape.spatial

    def _compute(self, o: Operation, *, behind: bool) -> None:
        """Add work; `behind`: of a tile that is stored after the first part of the next one's."""
        block, depth = self._work(o), self._depth(o)
        if behind and o.kind == "update" and self._begins(o):
            # The calls that begin sums come first, in loops of their own.
            share = self._first_calls(o) / self.turns
            first, rest = (_scaled(block, x) for x in (share * self.turns, 1 - share))
            self._front[depth].append(replace(first, at=self._part(second=False)))
            self._rest.append(rest)
        elif self._before(o):
            self._front[depth].append(block)
        else:
            self._back[depth].append(block)

    def _begins(self, o: Operation) -> bool:
        """Whether calls of an update begin sums themselves, the first one of each."""
        operations = self.shape.match.selection.operations
        return all(x.kind != "init" or x.written != o.written for x in operations)

    def _first_calls(self, o: Operation) -> Array:
        """The part of a tile's calls that begin sums, of those inside all loops."""
        match, tiles = self.shape.match, self.shape.extents(len(self.shape.loops))
        moving, share = match.moving(o.written), np.ones(1)
        for n in (x for x in o.loops if x not in moving):
            share = share / tiles[n]
        return share

    @cached_property
    def _innermost(self) -> int:
        """How many loops are around the sums: those inside of which they alone are become loops of
        their calls."""
        shape, operations = self.shape, self.shape.match.selection.operations
        placed = [d for s, d in shape.placement.items() if not shape.in_place(s)]
        several = sum(shape.match.selection.inner(o) for o in operations) > 1
        if several or shape.hardware.pipelined:
            return len(shape.loops)
        return max(shape.spatial, *placed)

    def _first_pass(self, storage: str) -> tuple[tuple[str, int], ...]:
        """The only iterations in which a storage is loaded whose tiles come in parts that stay."""
        if storage not in self.shape.parts:
            return ()
        return tuple((n, 0) for n in sorted(self.shape.around(storage).still))

    def _part(self, *, second: bool) -> tuple[tuple[str, int], ...]:
        """The first or the second part of a tile's work."""
        rest = self.shape.loops[self.shape.spatial :]
        return tuple((n, int(second and n == rest[-1])) for n in rest)

    def _stored_behind(self, o: Operation, block: Block) -> Block:
        """A store behind the first part of the next tile's work, or a part behind each."""
        if stored_in_parts(self.shape.hardware, self.shape.match) is not o:
            return replace(block, at=self._part(second=False))
        return _scaled(block, 1 / self.turns)

    def _storing_depth(self, storage: str) -> int:
        """How many loops are around a store: of what is in the place of an input, those around a
        tile."""
        shape = self.shape
        operations = shape.match.selection.operations
        loaded = any(o.kind == "load" and storage in o.storages for o in operations)
        return shape.spatial if loaded else min(shape.placement[storage], shape.spatial)

    def _loops(self) -> tuple[Node, ...]:
        """The loops around all blocks."""
        shape, front, back = self.shape, self._front, self._back
        innermost = self._innermost
        body: tuple[Node, ...] = (*front[innermost], *back[innermost])
        mine: list[str] = []
        named: dict[str, Group] = {}
        fresh = self._fresh(innermost)
        for depth in reversed(range(innermost)):
            mine.insert(0, shape.loops[depth])
            own = self._fresh(depth)
            cut = front[depth] or back[depth] or own or depth in (0, shape.spatial)
            if not cut and self._still(depth) == self._still(depth - 1):
                continue
            group = Group(" ".join(mine), {n: shape.trips(frozenset((n,))) for n in mine})
            named |= dict.fromkeys(mine, group)
            loop = Repeat(group.name, shape.trips(frozenset(mine)), body, fresh)
            body = (*front[depth], loop, *back[depth])
            mine, fresh = [], own
        return tuple(_in_groups(node, named) for node in body)

    def _still(self, depth: int) -> list[bool]:
        """Which tiles that come in parts stay for a loop."""
        name = self.shape.loops[depth]
        return [name in self.shape.around(s).still for s in sorted(self.shape.parts)]

    def _fresh(self, depth: int) -> tuple[str, ...]:
        return tuple(s for s, d in self.shape.placement.items() if d == depth)

    @property
    def versions(self) -> dict[str, Counts]:
        """Of each buffer; 0 where no write waits for what has been read."""
        board = self.shape.hardware.scoreboard
        waits = board is None or not board.renames
        none = np.zeros(1, np.int64)
        return {
            s: self.slots[s] if waits and s not in self.shape.parts else none
            for s in self.shape.placement
        }


def _scaled(block: Block, share: Array) -> Block:
    """A part of a block."""
    each = {n: getattr(block, n) * share for n in ("cycles", "issuing", "beats", "written")}
    return replace(block, calls=np.maximum(1, block.calls * share), **each)


@dataclass(frozen=True, slots=True)
class Group:
    """Loops that nothing stands between, and their iterations."""

    name: str
    trips: Mapping[str, Counts]

    def ends(self, block: Block) -> tuple[Array, Array]:
        """What part of itself a block is in the last iteration of all loops, and on average in the
        others."""
        ends = {n: part for n, part in block.ends if n in self.trips}
        last, every = prod(ends.values(), start=ONE), prod(self.trips.values(), start=ONE)
        if len(self.trips) == 1:
            return last, ONE
        mean = prod((1 - (1 - part) / self.trips[n] for n, part in ends.items()), start=ONE)
        return last, np.where(every > 1, (mean * every - last) / np.maximum(1, every - 1), ONE)


def _in_groups(node: Node, named: Mapping[str, Group]) -> Node:
    """The same, blocks told in which iterations of joined loops they run, and are shorter."""
    if isinstance(node, Repeat):
        return replace(node, body=tuple(_in_groups(n, named) for n in node.body))
    at: dict[str, int] = {}
    for name, number in node.at:
        group = named[name].name
        at[group] = max(number, at.get(group, 0))
    made, ends = node, list[tuple[str, Array]]()
    for group in {named[n].name: named[n] for n, _ in node.ends if n in named}.values():
        last, others = group.ends(node)
        if len(group.trips) > 1:
            made, last = _scaled(made, others), last / others
        ends.append((group.name, last))
    return replace(made, at=tuple(at.items()), ends=tuple(ends))
