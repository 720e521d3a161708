"""Leaf costs: what the blocks of a shape take, before anything is known of what else runs.

Each block is calls of one intrinsic in one iteration of the loops around it; its numbers are arrays
over the shape's points.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import prod

import numpy as np

from hwgen.polyhedral.match.call_shapes import call_cycles
from hwgen.polyhedral.match.operations import Operation
from hwgen.polyhedral.search.bank_share import bank_shares
from hwgen.polyhedral.search.cost_tree import Array, Block
from hwgen.polyhedral.search.estimate_shape import Counts, Ends, Grid, Shape, held_runs
from hwgen.polyhedral.search.host_queues import anchor_unit
from hwgen.polyhedral.search.traffic import Rates, Transfer, start_beats, transfer_cycles
from hwgen.spec.hardware import HardwareLoop
from hwgen.spec.memory import WAYS


class Leaves:
    """The blocks of a shape's operations, buffers with so many slots of so many entries."""

    def __init__(self, shape: Shape, slots: dict[str, Counts], entries: dict[str, Counts]) -> None:
        self.shape = shape
        self.anchor = anchor_unit(shape.match)
        operations = shape.match.selection.operations
        self.shares = bank_shares(
            shape.hardware, operations, self.anchor, shape.placement, slots, entries
        )

    def transfer(self, o: Operation, storage: str, part: Grid | None = None) -> Block:
        """A load or a store of one box of a storage, or of a part that has so much of each loop."""
        shape, hardware = self.shape, self.shape.hardware
        depth, moving = shape.placement[storage], shape.match.moving(storage)
        filled = shape.boxes(storage, depth)
        if storage in shape.parts:
            filled = filled * shape.fresh(storage)

        def whole(extents: Grid) -> Transfer:
            return transfer_cycles(hardware, o, shape.match, extents, storage)

        def made() -> tuple[Transfer, Ends]:
            extents = shape.extents(depth) if part is None else part
            return whole(extents), shape.ends(moving, extents, depth, lambda x: whole(x).cycles)

        key = "ends", o.name, frozenset(shape.loops[:depth])
        one, ends = shape.cache.once(key, made) if part is None else made()
        cycles, beats, issued, written = (x * filled for x in one)
        share = self.shares.get(storage, np.zeros(1))
        beside = o.intrinsic.unit != self.anchor and bool(np.any(share > 0))
        block = replace(
            self._block(o, cycles, ends),
            calls=np.maximum(1, issued),
            issuing=self._issuing(o, issued),
            held=self.anchor if beside else "",
            share=share,
        )
        if o.kind == "store":
            return replace(block, written=written, posts=True)
        offchip = hardware.offchip_operand(o.intrinsic)
        assert offchip is not None
        return replace(block, bus=hardware.bus_of(offchip).name, beats=beats)

    def work(self, o: Operation, depth: int) -> Block:
        """An operation inside `depth` loops, whatever their order."""
        outer = frozenset(self.shape.loops[:depth])
        return self.shape.cache.once(("work", o.name, outer), lambda: self._work(o, depth))

    def _work(self, o: Operation, depth: int) -> Block:
        """The same; its number of tiles is that of the loops which move its iterations."""
        shape, hardware = self.shape, self.shape.hardware
        iterations = np.ones(1)
        for n in o.loops:
            iterations = iterations * shape.match.count[n]
        extents, filled = shape.extents(depth), shape.filled(o.loops, depth)
        tiles = shape.tiles(o, depth) * (np.ones(1) if shape.averaged else filled)

        def ends(cycles: Callable[[Grid], Array]) -> Ends:
            return shape.ends(o.loops, extents, depth, cycles)

        if not o.intrinsic.software_loops and o.intrinsic.micro_kernel is None:

            def called(extents: Grid) -> Array:
                return call_cycles(o, shape.match, extents)

            block = self._block(o, called(extents) * shape.mean(filled), ends(called))
        else:
            rates = Rates.of(o.intrinsic)
            rows = self._rows(o, depth)
            work = rates.per_iteration * iterations + self._held(o, rates.per_iteration * rows)
            calls = iterations / rows * o.intrinsic.instructions / tiles
            issuing = self._issuing(o, calls)
            each = np.maximum(work / tiles, issuing)

            def made(of: Grid) -> Array:
                return rates.fixed + each * prod(of[n] / extents[n] for n in o.loops)

            block = self._block(o, made(extents), ends(made))
            if hardware.issue is not None and o.intrinsic.software_loops:
                block = replace(block, calls=np.maximum(1, calls), issuing=issuing)
        beats = start_beats(hardware, o) * iterations / tiles if o.kind == "init" else np.zeros(1)
        if not np.any(beats > 0):
            return block
        offchip = hardware.offchip_operand(o.intrinsic)
        assert offchip is not None
        bus = hardware.bus_of(offchip)
        longer = np.maximum(block.cycles, beats + bus.read.latency_cycles)
        return replace(block, cycles=longer, bus=bus.name, beats=beats)

    def _block(self, o: Operation, cycles: Array, ends: Ends) -> Block:
        """An operation's block, with the buffers that it touches."""
        shape = self.shape
        touched: dict[str, list[str]] = {"read": [], "write": []}
        for operand, storage in zip(o.intrinsic.operands, o.storages, strict=True):
            held = storage in shape.placement and not shape.in_place(storage)
            if held and not shape.hardware.is_offchip(operand.memory):
                for way in WAYS[operand.access]:
                    touched[way].append(storage)
        reads, writes = (tuple(dict.fromkeys(names)) for names in touched.values())
        return Block(o.name, o.intrinsic.unit, cycles, reads, writes, ends=ends)

    def _issuing(self, o: Operation, calls: Array) -> Array:
        """Cycles in which a host issues calls."""
        issue = self.shape.hardware.issue
        return np.zeros(1) if issue is None else calls * issue.each(o.intrinsic)

    def _rows(self, o: Operation, depth: int) -> Array:
        """Iterations of one call among those that C loops repeat."""
        shape, match = self.shape, self.shape.match
        if not o.intrinsic.software_loops:
            return np.ones(1)
        tiles = shape.extents(depth)
        each = np.ones(1)
        for loop in (x for x in o.intrinsic.loops if not x.software):
            rows = np.ones(1)
            for n in o.loops:
                if match.block.get(n, 1) == 1 and self._steps(o, loop, n):
                    rows = np.maximum(rows, tiles[n] / np.ceil(tiles[n] / loop.extent.maximum))
            each = each * rows
        return each

    def _steps(self, o: Operation, loop: HardwareLoop, name: str) -> bool:
        """Whether a call's loop may run along one of an operation's, by the operands that moves."""
        match, named = self.shape.match, zip(o.intrinsic.operands, o.storages, strict=True)
        if o.written not in match.coordinate or name not in match.moving(o.written):
            return False
        moved = (p for p, s in named if s in match.coordinate and name in match.moving(s))
        return all(loop.stride(p.name).range.maximum for p in moved)

    def _held(self, o: Operation, call: Array) -> Array:
        """Cycles of bringing in the operand that the unit holds, beyond those of the `call` that it
        may happen beside, in all tiles together."""
        held = o.intrinsic.stationary
        if held is None:
            return np.zeros(1)
        hidden = call if held.overlaps else np.zeros(1)
        return np.maximum(0, held.cycles - hidden) * held_runs(self.shape, o)
