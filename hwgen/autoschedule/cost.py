"""Closed-form cycles of a tiled reduction, over a whole grid of tile sizes at once.

The nest, outermost first: the other spatial loops, blocks of `r` and of `v` (in either order),
blocks of the reduction, tiles of `r` and `v`, the reduction, and a register tile of `rows` x
`columns` results. `v` runs in lanes; what depends on `r` alone is used once per row.

Cycles are the most that any resource takes (arithmetic and loads of the register tile; bytes into
each cache and out of memory), with a share of the rest that does not pass beside it, plus what
tiles and loops cost. What a machine takes for each is in its spec; numbers here count instructions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from math import log2, prod

import numpy as np
import numpy.typing as npt

from hwgen.autoschedule.nests import Nest, Operand
from hwgen.polyhedral.caches import busiest, filled, inside, own_room, stays_from
from hwgen.spec.hardware import HardwareSpec
from hwgen.spec.processor import Processor

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Structure:
    """What a grid leaves open: which iterators are `v` and `r` ("" for none), operands that are
    packed so that `v` is contiguous, iterators padded to whole tiles, and the order of blocks.

    `partial`: `v` is a part of the reduction, and its lanes are added up afterwards. `dot`: the
    iterator of the reduction that the compiler of the code runs in lanes by itself ("": `v` is).
    `widened`: operands are copied in the type of the sums, block by block.
    """

    v: str
    r: str = ""
    packed: tuple[str, ...] = ()
    padded: tuple[str, ...] = ()
    columns_first: bool = False
    partial: bool = False
    dot: str = ""
    widened: bool = False


@dataclass(frozen=True, slots=True)
class Point:
    """Tile sizes: a register tile, how many of them make a block, and the reduction's block (0:
    the whole reduction)."""

    columns: int
    rows: int
    column_tiles: int
    row_tiles: int
    depth: int
    cycles: float

    def __str__(self) -> str:
        depth = f", reduction by {self.depth}" if self.depth else ""
        return (
            f"register tile {self.rows} x {self.columns} in blocks of "
            f"{self.row_tiles} x {self.column_tiles}{depth}"
        )


@dataclass(frozen=True)
class Grid:
    """All points of a structure, and their cycles, infinite where pruned."""

    structure: Structure
    axes: tuple[npt.NDArray[np.int64], ...]
    cycles: Floats

    @property
    def considered(self) -> int:
        return len(self.cycles)

    @property
    def pruned(self) -> int:
        return int(np.count_nonzero(np.isinf(self.cycles)))

    def best(self) -> Point | None:
        """The cheapest point, the first one of equals; None where all are pruned."""
        i = int(np.argmin(self.cycles))
        if np.isinf(self.cycles[i]):
            return None
        columns, rows, column_tiles, row_tiles, depth = (int(axis[i]) for axis in self.axes)
        return Point(columns, rows, column_tiles, row_tiles, depth, float(self.cycles[i]))


def main_reduction(nest: Nest) -> str:
    """The longest iterator of the reduction."""
    return max(nest.reduction, key=lambda x: x[1])[0] if nest.reduction else ""


def lanes_of(nest: Nest, machine: Processor) -> int:
    return max(1, machine.lanes_bytes // nest.accumulator_bytes)


def grid(nest: Nest, hardware: HardwareSpec, structure: Structure) -> Grid:
    """Cycles at every combination of tile sizes."""
    extents = nest.extents
    lanes = 1 if structure.dot else lanes_of(nest, hardware.machine)
    wide, tall = extents[structure.v], extents.get(structure.r, 1)
    columns = sorted({min(wide, lanes * n) for n in (1, 2, 3, 4, 6)})
    rows = sorted({min(tall, n) for n in (1, 2, 3, 4, 5, 6, 7, 8, 12, 14)})
    blocks = (1, 2, 4, 8, 16, 32, 64, 128)
    column_tiles = (1,) if structure.partial else _counts(blocks, wide, columns[0])
    row_tiles = (1,) if structure.dot else _counts(blocks, tall, rows[0])
    length = extents.get(main_reduction(nest), 1)
    depths = [0]
    if not structure.partial and not structure.dot and not structure.widened:
        depths += [d for d in (64, 128, 256, 512) if 2 * d <= length]
    axes = tuple(
        a.ravel().astype(np.int64)
        for a in np.meshgrid(columns, rows, column_tiles, row_tiles, depths, indexing="ij")
    )
    return Grid(structure, axes, _cycles(nest, hardware, structure, axes))


def _counts(blocks: Sequence[int], extent: int, least: int) -> tuple[int, ...]:
    """Numbers of tiles per block, up to all of them."""
    most = -(-extent // least)
    return (*[b for b in blocks if b < most], most)


@dataclass(frozen=True)
class _Level:
    """A loop of the nest: its iterator, its trips, and the box of the iterator inside it."""

    iterator: str
    trips: Floats
    inside: Floats


def _cycles(
    nest: Nest,
    hardware: HardwareSpec,
    structure: Structure,
    axes: tuple[npt.NDArray[np.int64], ...],
) -> Floats:
    machine, costs = hardware.machine, hardware.machine.costs
    if structure.widened:
        wide_ = (replace(o, bytes=nest.accumulator_bytes) for o in nest.operands)
        nest = replace(nest, operands=tuple(wide_), narrow=False)
    columns, rows, column_tiles, row_tiles, depth = (a.astype(np.float64) for a in axes)
    extents = nest.extents
    width = lanes_of(nest, machine)
    lanes = 1 if structure.dot else width
    wide, tall = extents[structure.v], extents.get(structure.r, 1)
    main = structure.dot or main_reduction(nest)
    length = float(extents.get(main, 1))
    depth = np.where(depth > 0, depth, length)
    vectors = np.ceil(columns / lanes)
    tiles_v, tiles_r = np.ceil(wide / columns), np.ceil(tall / rows)

    step = _step(nest, machine, structure, vectors, rows, lanes)
    sizes = {structure.v: columns, structure.r: rows}
    for iterator, extent, size in ((structure.v, wide, columns), (structure.r, tall, rows)):
        if iterator and iterator not in structure.padded:
            step = np.where(extent % size == 0, step, step * costs.uneven_factor)
    for extent, size, tiles in ((wide, columns, column_tiles), (tall, rows, row_tiles)):
        even = np.ceil(extent / size) % tiles == 0
        step = np.where(even, step, step * costs.uneven_factor)
    others = prod(e for n, e in nest.spatial if n not in (structure.v, structure.r))
    added = prod(e for n, e in nest.reduction if n not in (main, structure.v))
    if structure.partial:
        reduction = float(added)
        instances = others * tiles_r
        reduction = added * tiles_v * (length if main != structure.v else 1.0)
        finish = rows * 4.0 + _joining(nest, machine, structure, vectors, rows, columns)
    elif structure.dot:
        # Of each run along the reduction: whole vectors, what is left one by one, and their sum.
        vectors_, left = divmod(int(length), width)
        tile = vectors * rows
        one_by_one = left * tile * nest.operations / machine.operations_per_cycle
        met = tile * 2.0 * log2(width) / machine.operations_per_cycle if vectors_ else 0.0
        step, reduction = vectors_ * step + one_by_one + met, float(added)
        instances = others * tiles_r * tiles_v
        lanes_after = np.minimum(columns * column_tiles, machine.lanes_bytes // nest.result_bytes)
        finish = tile * (1.0 + (3.0 + 2.0 * nest.operations) / lanes_after)
    else:
        reduction = added * np.ceil(length / depth) * depth
        instances = others * tiles_r * tiles_v
        after = np.minimum(columns, max(lanes, machine.lanes_bytes // nest.result_bytes))
        finish = np.ceil(columns / after) * rows * (3.0 + 2.0 * nest.operations)
    slices = np.ceil(length / depth)
    finish = finish * np.where(slices > 1, 1.0 + slices, 1.0) + 4.0
    work = instances * (reduction * step + finish)

    block_v, block_r = columns * column_tiles, rows * row_tiles
    at_once = others * np.ceil(wide / block_v) * np.ceil(tall / block_r)
    if structure.partial:
        at_once = others * np.ceil(tall / block_r)
    share = np.ceil(at_once / machine.workers) / at_once
    started = float(machine.start_cycles)
    start = np.where(at_once > 1, started, 0.0)
    share = np.where(work * (1 - share) > started, share, 1.0)
    start = np.where(share < 1.0, start, 0.0)
    times = [work * share]
    levels = _levels(nest, structure, columns, rows, block_v, block_r, depth)
    times += _traffic(nest, machine, levels, share)
    total = busiest(times, machine) + start
    if structure.partial:
        total = total + _met(nest, machine, structure, rows) * share
    if structure.widened:
        boxes = {structure.v: block_v, structure.r: block_r}
        copied, held_bytes = _widening(nest, machine, structure, boxes)
        total = total + copied * share
    else:
        held_bytes = np.zeros_like(total)
        total = total + _packing(nest, machine, structure)
    total = total + _padding(nest, machine, structure, sizes)

    accumulators = vectors * rows
    held = accumulators + vectors + 1 if machine.lanes_bytes else rows
    illegal = held > costs.registers
    illegal |= (slices > 1) & (block_v * block_r * nest.accumulator_bytes > _private(hardware) / 2)
    illegal |= held_bytes > _private(hardware) / 2
    illegal |= (rows > 1) & (row_tiles > tiles_r) | (column_tiles > tiles_v)
    return np.where(illegal, np.inf, total)


def _private(hardware: HardwareSpec) -> float:
    memory = hardware.workspace_of("thread")
    return float(memory.capacity_bytes or 2**40) if memory is not None else float(2**40)


def _step(
    nest: Nest,
    machine: Processor,
    structure: Structure,
    vectors: Floats,
    rows: Floats,
    lanes: int,
) -> Floats:
    """Cycles of one step of the reduction on one register tile."""
    costs = machine.costs
    arithmetic = vectors * rows * nest.operations
    if nest.narrow and not structure.dot:
        arithmetic = arithmetic * costs.narrow_factor
    loads = np.zeros_like(rows)
    late = np.zeros_like(rows)
    for operand in nest.operands:
        times = rows if structure.r and operand.uses(structure.r) else np.ones_like(rows)
        stride = operand.stride(structure.v)
        if structure.dot:
            loads += 2.0 * times * (vectors if operand.uses(structure.v) else 1.0)
        elif not operand.uses(structure.v):
            loads += times
        elif stride == 1 or operand.tensor in structure.packed:
            narrow = operand.bytes < nest.accumulator_bytes
            loads += vectors * times * (2.0 if narrow else 1.0)
        else:
            loads += vectors * times * lanes * costs.gather_cycles * costs.loads_per_cycle
        if _far(operand, nest, structure, costs.reach_bytes):
            late += costs.far_cycles * (vectors if operand.uses(structure.v) else 1.0)
    chain = costs.sum_cycles * nest.operations
    step = np.maximum(arithmetic / machine.operations_per_cycle, loads / costs.loads_per_cycle)
    return np.maximum(step, chain) + late + costs.step_cycles


def _far(operand: Operand, nest: Nest, structure: Structure, reach_bytes: float) -> bool:
    """Whether successive steps of the reduction touch memory far apart."""
    if structure.widened or operand.tensor in structure.packed or not nest.reduction:
        return False
    stride = operand.stride(nest.reduction[-1][0])
    return stride is None or abs(stride) * operand.bytes >= reach_bytes


def _levels(
    nest: Nest,
    structure: Structure,
    columns: Floats,
    rows: Floats,
    block_v: Floats,
    block_r: Floats,
    depth: Floats,
) -> list[_Level]:
    """The loops, outermost first."""
    ones = np.ones_like(columns)
    extents = nest.extents
    wide, tall = float(extents[structure.v]), float(extents.get(structure.r, 1))
    main = structure.dot or main_reduction(nest)
    levels = [
        _Level(n, ones * e, ones)
        for n, e in nest.spatial
        if n not in (structure.v, structure.r) and e > 1
    ]
    outer_v = _Level(structure.v, np.ceil(wide / block_v), np.minimum(block_v, wide))
    outer_r = _Level(structure.r, np.ceil(tall / block_r), np.minimum(block_r, tall))
    inner_r = _Level(structure.r, np.ceil(block_r / rows), rows)
    if structure.partial:
        whole_v = _Level(structure.v, np.ceil(wide / columns), columns)
        return [*levels, *([outer_r, inner_r] if structure.r else []), whole_v]
    outer = [outer_v, outer_r] if structure.columns_first else [outer_r, outer_v]
    levels += [x for x in outer if x.iterator]
    if main:
        levels.append(_Level(main, np.ceil(float(extents[main]) / depth), depth))
    inner_v = _Level(structure.v, np.ceil(block_v / columns), columns)
    levels += [x for x in (inner_r, inner_v) if x.iterator]
    levels += [_Level(n, ones * e, ones) for n, e in nest.reduction if n != main and e > 1]
    if main:
        levels.append(_Level(main, depth, ones))
    return levels


def footprint(operand: Operand, box: Mapping[str, Floats], line_bytes: int) -> Floats:
    """Bytes of the smallest box of elements that a box of iterations touches, in whole lines."""
    *outer, last = _sides(operand, box)
    line = min(line_bytes / operand.bytes, float(prod(operand.shape[-1:])))
    return reduce(np.multiply, outer, np.maximum(last, line)) * operand.bytes


def _sides(operand: Operand, box: Mapping[str, Floats]) -> list[Floats]:
    """Elements along each dimension of what a box of iterations touches."""
    some = next(iter(box.values()))
    sides: list[Floats] = []
    for steps, extent in zip(operand.steps, operand.shape, strict=True):
        size = np.full_like(some, float(extent))
        if steps is not None:
            reach = np.ones_like(some)
            for iterator, step in steps.items():
                reach = reach + abs(step) * (box[iterator] - 1.0)
            size = np.minimum(size, reach)
        sides.append(size)
    return sides or [np.ones_like(some)]


def _traffic(
    nest: Nest,
    machine: Processor,
    levels: list[_Level],
    share: Floats,
) -> list[Floats]:
    """Cycles to fill each cache from the next, and the last from memory."""
    ones = np.ones_like(share)
    boxes: list[dict[str, Floats]] = [{n: ones * e for n, e in nest.extents.items()}]
    counts = [ones]
    for level in levels:
        boxes.append({**boxes[-1], level.iterator: level.inside})
        counts.append(counts[-1] * level.trips)
    touched = [[footprint(o, b, machine.line_bytes) for b in boxes] for o in nest.operands]
    results = float(prod(e for _, e in nest.spatial) * nest.result_bytes)
    depths = range(len(boxes))
    together = [np.sum(np.array([t[d] for t in touched]), axis=0) for d in depths]
    times: list[Floats] = []
    for room, speed, own in filled(machine):
        moved = np.full_like(share, results)
        for operand, sizes in zip(nest.operands, touched, strict=True):
            moving = [operand.uses(x.iterator) for x in levels]
            from_ = [stays_from(moving, d) for d in depths]
            moved = moved + inside([counts[d] * sizes[d] for d in from_], together, room)
        times.append(moved / speed * (share if own else 1.0))
    return times


def _joining(
    nest: Nest,
    machine: Processor,
    structure: Structure,
    vectors: Floats,
    rows: Floats,
    columns: Floats,
) -> Floats:
    """Cycles to make one result of each row of partial ones, where lanes may share a sum in as many
    steps as halves have halves, and to begin with a tile: rows side by side are as many streams, of
    which the last alone has been asked for by then, unless the worker's own caches hold all."""
    costs, lanes = machine.costs, lanes_of(nest, machine)
    if nest.sums and machine.sums_in_lanes:
        joining = rows * (vectors + 2.0 * log2(lanes))
    else:
        joining = columns * np.maximum(rows, costs.sum_cycles)
    late = [o for o in nest.operands if o.size > own_room(machine)]
    streams = sum(o.uses(structure.v) and o.uses(structure.r) for o in late)
    return joining + streams * (rows - 1.0) * costs.far_cycles


def _met(nest: Nest, machine: Processor, structure: Structure, rows: Floats) -> Floats:
    """Cycles to bring into the first cache again what other stages touch too, where that of one
    tile has no room there beside as much that is made of it."""
    found = {o.tensor: o for o in nest.operands if o.met and o.uses(structure.v)}
    if not found or not machine.caches:
        return np.zeros_like(rows)
    room, rate, _ = filled(machine)[0]
    box = {n: np.full_like(rows, float(e)) for n, e in nest.extents.items()}
    box |= {n: np.ones_like(rows) for n, _ in nest.spatial}
    if structure.r:
        box[structure.r] = rows
    held = 2.0 * sum(footprint(o, box, machine.line_bytes) for o in found.values())
    moved = sum(o.size for o in found.values())
    return np.where(held > room, moved / rate, 0.0)


def _packing(nest: Nest, machine: Processor, structure: Structure) -> float:
    """Cycles of copying the operands that are packed."""
    total = 0.0
    for operand in nest.operands:
        if operand.tensor in structure.packed:
            elements = operand.size / operand.bytes
            work = elements * machine.costs.gather_cycles
            shared = work / machine.workers + machine.start_cycles
            total += max(min(work, shared), 2 * operand.size / machine.memory_bytes_per_cycle)
    return total


def outer_order(structure: Structure, others: Sequence[str]) -> list[str]:
    """The iterators of the loops around a block's tiles, outermost first."""
    own = [structure.v] if not structure.partial else []
    own += [structure.r] if structure.r else []
    if not structure.columns_first:
        return [*others, *own[::-1]]
    # What is copied for a block of columns then stays for all rows.
    return [structure.v, *others, *own[1:]] if structure.widened else [*others, *own]


def _widening(
    nest: Nest, machine: Processor, structure: Structure, blocks: Mapping[str, Floats]
) -> tuple[Floats, Floats]:
    """Cycles of copying what tiles need of each operand at the innermost loop around them that
    moves it, or at the outermost where none does, and the bytes of all copies together."""
    some, lanes = blocks[structure.v], lanes_of(nest, machine)
    others = [n for n, e in nest.spatial if n not in blocks and e > 1]
    trips = {n: np.ceil(nest.extents[n] / blocks.get(n, np.ones_like(some)))
             for n, _ in nest.spatial}  # fmt: skip
    box = {n: np.full_like(some, float(e)) for n, e in nest.reduction}
    box |= {n: blocks.get(n, np.ones_like(some)) for n, _ in nest.spatial}
    outer = outer_order(structure, others)
    first = np.zeros_like(some)
    for k, n in reversed([*enumerate(outer)]):
        first = np.where(trips[n] > 1, float(k), first)
    cycles, held = np.zeros_like(some), np.zeros_like(some)
    for operand in nest.operands:
        times, place = np.ones_like(some), first
        for k, n in enumerate(outer):
            place = np.where((trips[n] > 1) & operand.uses(n), float(k), place)
        for k, n in enumerate(outer):
            times = times * np.where(place >= k, trips[n], 1.0)
        *sides, last = _sides(operand, box)
        elements = reduce(np.multiply, sides, last)
        vectors = reduce(np.multiply, sides, np.ceil(last / lanes))
        turned = operand.tensor in structure.packed
        each = elements * machine.costs.gather_cycles if turned else vectors * 2.0
        cycles = cycles + times * each
        held = held + elements * operand.bytes
    return cycles, held


def _padding(
    nest: Nest, machine: Processor, structure: Structure, sizes: Mapping[str, Floats]
) -> Floats:
    """Cycles of copying the operands that are padded and not packed as well."""
    total = np.zeros_like(sizes[structure.v])
    for iterator in structure.padded:
        uneven = nest.extents[iterator] % sizes[iterator] != 0
        for operand in nest.operands:
            if operand.uses(iterator) and operand.tensor not in structure.packed:
                elements = operand.size / operand.bytes
                work = min(elements, elements / machine.workers + machine.start_cycles)
                total = total + np.where(uneven, work, 0.0)
    return total


def simple_cycles(
    elements: int, operations: int, moved: int, machine: Processor, bytes_: int
) -> float:
    """Cycles of a nest without reuse, in lanes on all workers where that pays."""
    lanes = max(1, machine.lanes_bytes // max(1, bytes_))
    work = elements * (operations + 2) / (lanes * machine.operations_per_cycle)
    shared = work / machine.workers + machine.start_cycles
    return max(min(work, shared), moved / machine.memory_bytes_per_cycle)
