"""Schedules for processors with a grid of blocks of threads: an output tile per block, a register
tile per thread, operands staged in the block's shared memory by all of its threads."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from math import prod

import numpy as np

from hwgen.autoschedule.cost import Floats, footprint, main_reduction
from hwgen.autoschedule.lanes import has_kind, inside
from hwgen.autoschedule.nests import Nest, attempt, lone_loops, loop_of, partner_loops
from hwgen.constants import STAGED_PADDING, UNSTAGED_READ
from hwgen.polyhedral.schedule.schedule import Schedule
from hwgen.spec.beginnings import undetermined
from hwgen.spec.hardware import HardwareSpec
from hwgen.spec.memory import Memory
from hwgen.spec.processor import Processor


@dataclass(frozen=True, slots=True)
class Tiling:
    """`x`, `y`: iterators tiled ("" for none); `threads` and `each` (results per thread) along
    (y, x); `depth`: block of the reduction (0: all of it); `staged`: operands copied to shared
    memory."""

    x: str
    y: str
    threads: tuple[int, int]
    each: tuple[int, int]
    depth: int
    staged: tuple[str, ...]
    cycles: float

    def __str__(self) -> str:
        text = f"{self.threads[0]} x {self.threads[1]} threads of {self.each[0]} x {self.each[1]}"
        text += f", reduction by {self.depth}" if self.depth else ""
        return text + (f", {', '.join(self.staged)} staged" if self.staged else "")


def ranked(nest: Nest, hardware: HardwareSpec) -> tuple[list[Tiling], int, int]:
    """Tilings, cheapest first; how many were considered, and how many some limit excludes."""
    long = [n for n, e in nest.spatial if e > 1] or [n for n, _ in nest.spatial][-1:]
    two = len(hardware.machine.coordinates("thread")) > 1
    found: list[Tiling] = []
    considered = pruned = 0
    able = tuple(dict.fromkeys(o.tensor for o in nest.operands))
    stageable = hardware.workspace_of("block") is not None and len(able) == len(nest.operands)
    for x in long:
        for y in [n for n in long if n != x and two] or [""]:
            for staged in ((), able) if stageable else ((),):
                some, cycles = _grid(nest, hardware, x, y, staged)
                considered += len(cycles)
                pruned += int(np.count_nonzero(np.isinf(cycles)))
                for i in np.argsort(cycles, kind="stable"):
                    if np.isfinite(cycles[i]):
                        ty, tx, ry, rx, depth = (int(a[i]) for a in some)
                        found.append(
                            Tiling(x, y, (ty, tx), (ry, rx), depth, staged, float(cycles[i]))
                        )
    found.sort(key=lambda t: t.cycles)
    return found, considered, pruned


def _grid(
    nest: Nest, hardware: HardwareSpec, x: str, y: str, staged: tuple[str, ...]
) -> tuple[list[Floats], Floats]:
    """Every combination of sizes, and its cycles (infinite where a limit excludes it)."""
    machine, extents = hardware.machine, nest.extents
    wide, tall = extents[x], extents.get(y, 1)
    main = main_reduction(nest)
    length = extents.get(main, 1)
    some = [1, 2, 4, 8]
    depths = [0, *(d for d in (8, 16, 32, 64) if staged and 2 * d <= length)]
    axes = [
        a.ravel().astype(np.float64)
        for a in np.meshgrid(
            [1, 2, 4, 8, 16, 32] if y else [1],
            [8, 16, 32, 64, 128, 256],
            some if y else [1],
            some,
            depths,
            indexing="ij",
        )
    ]
    ty, tx, ry, rx, depth = axes
    by, bx = ty * ry, tx * rx
    threads = ty * tx
    depth = np.where(depth > 0, depth, float(length))
    others = prod(e for n, e in nest.spatial if n not in (x, y))
    rest = prod(e for n, e in nest.reduction if n != main)
    count = others * np.ceil(tall / by) * np.ceil(wide / bx)
    slices = np.ceil(length / depth)
    box = {n: np.ones_like(ty) for n, _ in nest.spatial}
    box |= {n: np.full_like(ty, float(e)) for n, e in nest.reduction if n != main}
    box[x] = np.minimum(bx, float(wide))
    if y:
        box[y] = np.minimum(by, float(tall))
    if main:
        box[main] = depth

    costs = machine.costs
    busy = np.minimum(1.0, threads / (machine.operations_per_cycle * costs.hiding_threads))
    steps = slices * depth * rest
    work = by * bx * steps * nest.operations / machine.operations_per_cycle / busy
    held = np.zeros_like(ty)
    moved = np.zeros_like(ty)
    fetch = np.zeros_like(ty)
    shared = hardware.workspace_of("block")
    parted = shared.banks if shared is not None else None
    banks = float(parted.ways if parted is not None else machine.warp)
    for operand in nest.operands:
        across, down = operand.uses(x), bool(y) and operand.uses(y)
        words = (rx if across else 1.0) * (ry if down else 1.0)
        spread = rx if across else 1.0 / np.minimum(machine.warp, tx)
        bytes_ = footprint(operand, box, 1 if operand.tensor in staged else machine.line_bytes)
        if operand.tensor in staged:
            held = held + bytes_
            moved = moved + bytes_ * slices
            fetch = fetch + threads * words * spread / rx / banks
        else:
            moved = moved + UNSTAGED_READ * bytes_ * slices
            stride = operand.stride(x)
            apart = 1.0 if stride == 1 or not across else costs.apart_factor
            fetch = fetch + UNSTAGED_READ * threads * words * spread * apart / banks
    tile = by * bx
    several = slices > 1
    extra = np.where(
        several,
        slices * (2.0 * tile / banks + 2.0 * costs.barrier_cycles),
        2.0 * costs.barrier_cycles,
    )
    held = held + np.where(several, tile * nest.accumulator_bytes, 0.0)
    block = np.maximum(work, fetch * steps) + extra + tile * nest.operations / banks
    waves = np.ceil(count / machine.workers)
    memory = count * moved / machine.memory_bytes_per_cycle
    out = prod(e for _, e in nest.spatial) * nest.result_bytes / machine.memory_bytes_per_cycle
    out *= 1.0 if x == nest.contiguous else costs.apart_factor
    cycles = np.maximum(waves * block, memory + out) + costs.serial_share * np.minimum(
        waves * block, memory
    )

    illegal = threads > machine.threads
    illegal |= (tx > 2 * wide) | (ty > 2 * tall) | (by > 2 * tall) | (bx > 2 * wide)
    own = hardware.workspace_of("thread")
    if own is not None and own.capacity_bytes:
        illegal |= ry * rx * nest.accumulator_bytes > own.capacity_bytes / 2
    if shared is not None and shared.capacity_bytes:
        illegal |= held * STAGED_PADDING > shared.capacity_bytes
    if not np.any(~illegal):  # A problem smaller than any block.
        illegal = (threads > machine.threads) | (tx != tx.min()) | (rx > 1) | (ry > 1) | (ty > 1)
    axes[4] = np.where(several, depth, 0.0)
    return axes, np.where(illegal, np.inf, cycles)


def schedule_nest(schedule: Schedule, nest: Nest, tiling: Tiling, machine: Processor) -> None:
    """Tile a reduction and its consumer over blocks and threads.

    Raises:
        HwgenError: what a primitive raises where it refuses.
    """
    chip = schedule.hardware
    shared, own = chip.workspace_of("block"), chip.workspace_of("thread")
    assert own is not None
    tiler = _Tiler(schedule, tiling, machine)
    target = nest.stage
    place = shared.name if tiling.depth and shared is not None else own.name
    if nest.post:
        schedule.set_scope(target, place)
    else:
        target = schedule.cache_write(target, place)
    kernel = target
    if tiling.depth:
        loop = loop_of(schedule, target, main_reduction(nest))
        outside, _ = schedule.split(loop, factor=tiling.depth)
        kernel = schedule.rfactor(target, outside)
        schedule.set_scope(kernel, own.name)
    post, loops = partner_loops(schedule, target)
    if tiling.depth:
        grid, step = tiler.staged_sums(target, post, loops)
        tiler.thread_loops(target, grid, kernel)
        tiler.share_rest(post, grid)
    else:
        step = tiler.whole_sums(target, post, loops)
    _registers(schedule, kernel, machine)
    for tensor in tiling.staged:
        assert shared is not None
        copy = schedule.cache_read(tensor, shared.name, kernel)
        schedule.compute_at(copy, step)
        _align(schedule, copy, shared)
        tiler.share_rest(copy, step)
    for loop, kind in tiler.binds:  # Last: until then every value is seen by all.
        schedule.bind(loop, kind)


@dataclass(frozen=True)
class _Tiler:
    """Loops over blocks and threads. `binds`: loops, and the coordinates that they are going to
    be."""

    schedule: Schedule
    tiling: Tiling
    machine: Processor
    binds: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])

    def _grid(self, loops: list[str]) -> str:
        """The loops as one coordinate of blocks."""
        grid = self.schedule.fuse(*loops) if len(loops) > 1 else loops[0]
        self.binds.append((grid, self.machine.coordinates("block")[0].name))
        return grid

    @property
    def _chosen(self) -> list[tuple[str, int]]:
        """The iterators of a block's tile, and their places in its shape."""
        along = [(self.tiling.x, 1)]
        return [(self.tiling.y, 0), *along] if self.tiling.y else along

    def _blocks(self, loops: dict[str, str]) -> Iterator[tuple[str, str, int]]:
        """Of each loop over a tile's elements, one over blocks and one inside, and its place."""
        for iterator, place in self._chosen:
            size = self.tiling.threads[place] * self.tiling.each[place]
            yield (*self.schedule.split(loops[iterator], factor=size), place)

    def _bind_threads(self, threads: list[str]) -> None:
        kinds = self.machine.coordinates("thread")
        self.binds.extend((x, k.name) for x, k in zip(reversed(threads), kinds, strict=False))

    def whole_sums(self, target: str, post: str, loops: dict[str, str]) -> str:
        """Each thread adds its results up from start to end; the grid."""
        schedule = self.schedule
        mine = {loops[i] for i, _ in self._chosen}
        others = [n for n in schedule.loops(post) if n not in mine]
        blocks: list[str] = []
        threads: list[str] = []
        inner: list[str] = []
        for block, rest, place in self._blocks(loops):
            thread, own = schedule.split(rest, factor=self.tiling.each[place])
            blocks.append(block)
            threads.append(thread)
            inner.append(own)
        schedule.reorder(*others, *blocks, *threads, *inner)
        grid = self._grid([*others, *blocks])
        self._bind_threads(threads)
        schedule.compute_at(target, threads[-1])
        return grid

    def staged_sums(self, target: str, post: str, loops: dict[str, str]) -> tuple[str, str]:
        """A block's sums, block of the reduction by block; the grid, and the loop over those."""
        schedule = self.schedule
        mine = {loops[i] for i, _ in self._chosen}
        others = [n for n in schedule.loops(post) if n not in mine]
        pairs = [(block, rest) for block, rest, _ in self._blocks(loops)]
        blocks = [block for block, _ in pairs]
        schedule.reorder(*others, *blocks, *(rest for _, rest in pairs))
        grid = self._grid([*others, *blocks])
        schedule.compute_at(target, grid)
        stage = schedule.state.stage[target]
        steps = [n for i, _ in stage.reduction for n in inside(schedule, target, i, grid)]
        rest = [n for i, _ in self._chosen for n in inside(schedule, target, i, grid)]
        schedule.reorder(*steps, *rest)
        return grid, steps[-1]

    def thread_loops(self, target: str, grid: str, kernel: str) -> None:
        """The block's tile over threads, each of which computes its part of the sums."""
        threads: list[str] = []
        inner: list[str] = []
        for iterator, place in self._chosen:
            for loop in inside(self.schedule, target, iterator, grid):
                thread, own = self.schedule.split(loop, factor=self.tiling.each[place])
                threads.append(thread)
                inner.append(own)
        self.schedule.reorder(*threads, *inner)
        self._bind_threads(threads)
        self.schedule.compute_at(kernel, threads[-1])

    def share_rest(self, stage: str, outer: str) -> None:
        """A stage's loops inside another, over the threads of the block."""
        around = self.schedule.loops(stage)
        loops = list(around[around.index(outer) + 1 :])
        if not loops:
            return
        ty, tx = self.tiling.threads
        kinds = self.machine.coordinates("thread")
        one = self.schedule.fuse(*loops) if len(loops) > 1 else loops[0]
        _, part = self.schedule.split(one, factor=ty * tx)
        if self.tiling.y:
            first, second = self.schedule.split(part, factor=tx)
            self.binds.extend([(first, kinds[1].name), (second, kinds[0].name)])
        else:
            self.binds.append((part, kinds[0].name))


def _registers(schedule: Schedule, kernel: str, machine: Processor) -> None:
    """The reduction outside of a thread's results, which are set to zero beforehand."""
    loops, reduction = lone_loops(schedule, kernel)
    adding = [n for n in loops if n in reduction]
    rest = [n for n in loops if n not in reduction]
    if not adding:
        return
    if rest:
        schedule.reorder(*adding, *rest)
    schedule.decompose_reduction(kernel, adding[0])
    if has_kind(machine, "unroll"):
        for loop in rest:
            attempt(schedule, lambda x=loop: schedule.unroll(x))


def _align(schedule: Schedule, tensor: str, memory: Memory) -> None:
    """An odd number of bank words between rows, so that a column lies in different banks."""
    state = schedule.state
    rank = len(state.tensor[tensor].shape)
    width = {"int8": 1, "uint8": 1, "int16": 2, "uint16": 2, "float16": 2, "bfloat16": 2}.get(
        state.tensor[tensor].dtype, 4
    )
    words = memory.banks.run // width if memory.banks is not None else 0
    if words and rank > 1:
        attempt(schedule, lambda: schedule.storage_align(tensor, rank - 2, 2 * words, words))


def _latency_hidden(machine: Processor) -> int:
    """Threads of a block where nothing is reused: no more than hide their latencies."""
    return min(round(machine.operations_per_cycle * machine.costs.hiding_threads), machine.threads)


def schedule_simple(schedule: Schedule, stage: str, machine: Processor) -> None:
    """One thread per result, neighbours side by side; one for all that share results.

    Raises:
        HwgenError: what a primitive raises where it refuses.
    """
    loops = list(schedule.loops(stage))
    found = schedule.state.stage[stage]
    if not loops:
        return
    shared = undetermined(found.target.indices, found.iterators) if found.continues else set[str]()
    apart = [n for n, _ in found.spatial if n not in shared]
    spatial = [n for n in loops if n in {loop_of(schedule, stage, x) for x in apart}]
    adding = [n for n in loops if n not in spatial]
    if not spatial:
        return
    if adding and loops != [*spatial, *adding]:
        schedule.reorder(*spatial, *adding)
    one = schedule.fuse(*spatial) if len(spatial) > 1 else spatial[0]
    block, thread = schedule.split(one, factor=_latency_hidden(machine))
    schedule.bind(block, machine.coordinates("block")[0].name)
    schedule.bind(thread, machine.coordinates("thread")[0].name)


def complete(schedule: Schedule, stage: str, machine: Processor) -> list[str]:
    """Blocks for a nest's outermost loop, threads for the next; what was accepted."""
    done: list[str] = []
    loops = schedule.loops(stage)
    kinds = (machine.coordinates("block")[0].name, machine.coordinates("thread")[0].name)
    for loop, kind in zip(loops, kinds, strict=False):
        if attempt(schedule, lambda x=loop, k=kind: schedule.bind(x, k)) is not None:
            break
        done.append(f"{loop} bound to {kind}")
    return done
