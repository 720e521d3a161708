"""Modelled cycles and traffic of a scheduled nest on a processor, and the bound on them.

Each block is taken by itself: its instances on the workers, threads and lanes that its loops give
it, against the bytes that come from memory where each tile stays in the largest cache. Rates are
the spec's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import ceil, prod

from hwgen.polyhedral.tree.loop_tree import LoopTree, Site, Stage
from hwgen.polyhedral.tree.terms import addends, interval, simplify
from hwgen.spec.bounds import affine
from hwgen.spec.expression import (
    DTYPES,
    Access,
    Binary,
    Call,
    Expr,
    Name,
    children,
    names,
    substitute,
    walk,
)
from hwgen.spec.hardware import HardwareSpec
from hwgen.spec.processor import Processor


@dataclass(frozen=True, slots=True)
class BlockCost:
    """One block: cycles of its arithmetic, and bytes that it moves to and from memory."""

    block: str
    compute_cycles: float
    memory_bytes: float
    memory_cycles: float

    @property
    def cycles(self) -> float:
        return max(self.compute_cycles, self.memory_cycles)


@dataclass(frozen=True, slots=True)
class NestCost:
    """A whole kernel: its blocks one after another, and the starts of parallel loops. That `cycles`
    are no fewer than `bound` is checked (H791), not made so."""

    blocks: tuple[BlockCost, ...]
    start_cycles: int
    bound: int

    @property
    def cycles(self) -> int:
        return ceil(self.start_cycles + sum(b.cycles for b in self.blocks))

    @property
    def memory_bytes(self) -> int:
        return round(sum(b.memory_bytes for b in self.blocks))


def nest_bound(state: LoopTree, machine: Processor) -> int:
    """Cycles that no schedule goes below: the points of every reduction in all lanes of all
    workers; each output moved once, and each element of an input that is certainly read."""
    vectors = 0.0
    for stage in state.stages:
        if stage.kind == "compute" and stage.reduces:
            wide = max(1, machine.lanes_bytes // DTYPES[state.tensor[stage.tensor].dtype])
            vectors += prod(e for _, e in stage.iterators) / wide
    read: dict[str, int] = {}
    for stage in state.stages:
        for access in _evaluated(stage.value):
            count = _distinct(access, dict(stage.iterators))
            read[access.tensor] = max(count, read.get(access.tensor, 0))
    moved = sum(
        DTYPES[t.dtype] * (prod(t.shape) if t.role == "output" else read.get(t.name, 0))
        for t in state.tensors
        if t.role != "intermediate"
    )
    compute = vectors / (machine.operations_per_cycle * machine.workers)
    return max(1, int(max(compute, moved / machine.memory_bytes_per_cycle)))


def _evaluated(value: Expr) -> Iterator[Access]:
    """Accesses that every instance makes, whatever its conditions say."""
    match value:
        case Access():
            yield value
        case Call("select", (condition, _, _)):
            yield from _evaluated(condition)
        case Binary("and" | "or", left, _):
            yield from _evaluated(left)
        case _:
            for child in children(value):
                yield from _evaluated(child)


def _distinct(access: Access, extents: Mapping[str, int]) -> int:
    """A number of different elements that all instances touch at least.

    Sums of integer sets have at least as many elements as these have together, less one for each
    but the first; a dimension's loops count where no earlier dimension has used them.
    """
    count = 1
    free = dict(extents)
    for index in access.indices:
        form = affine(index)
        used = [n for n, _ in form.terms if n in free] if form else []
        count *= 1 + sum(free.pop(n) - 1 for n in used)
    return count


def estimate_nest(state: LoopTree, hardware: HardwareSpec, bound: int | None = None) -> NestCost:
    """Cycles and traffic of a state as it stands."""
    machine = hardware.machine
    blocks = tuple(_block(state, site, hardware) for site in state.sites)
    starts = {x.name: machine.loop[x.kind].start_cycles
              for x in state.loop.values() if x.kind in machine.loop}  # fmt: skip
    least = nest_bound(state, machine) if bound is None else bound
    return NestCost(blocks, sum(starts.values()), least)


def operations(value: Expr) -> int:
    """Arithmetic operations of a value, indices left out; at least one."""
    inside = {id(n) for a in walk(value) if isinstance(a, Access) for i in a.indices
              for n in walk(i)}  # fmt: skip
    return max(1, sum(isinstance(n, Call | Binary) and id(n) not in inside for n in walk(value)))


def _kinds(site: Site, machine: Processor, kind: str, level: str = "") -> int:
    """The product of the extents of a block's loops of a sort."""
    return prod(
        x.extent
        for x in site.loops
        if x.kind in machine.loop
        and machine.loop[x.kind].kind == kind
        and level in ("", machine.loop[x.kind].level)
    )


def _block(state: LoopTree, site: Site, hardware: HardwareSpec) -> BlockCost:
    machine = hardware.machine
    stage = state.stage[site.block.stage]
    points = prod(x.extent for x in site.loops)
    width = DTYPES[state.tensor[stage.tensor].dtype]
    work = operations(stage.value)
    if site.block.part == "init":
        work = 1 if stage.seed is None else operations(stage.seed)
    if machine.coordinates("block"):
        blocks = _kinds(site, machine, "bind", "block")
        threads = _kinds(site, machine, "bind", "thread")
        rate = float(min(threads, machine.operations_per_cycle))
        share = ceil(blocks / machine.workers) / blocks
    else:
        at_once = _kinds(site, machine, "parallel")
        lanes = min(_kinds(site, machine, "vectorize"), max(1, machine.lanes_bytes // width))
        rate = float(lanes * machine.operations_per_cycle)
        share = ceil(at_once / machine.workers) / at_once
    steps = prod(x.extent for x in site.loops if x.kind == "serial")
    compute = (points * work / rate + machine.iteration_cycles * steps) * share
    moved = _moved(state, site, stage, hardware)
    return BlockCost(site.block.name, compute, moved, moved / machine.memory_bytes_per_cycle)


def _moved(state: LoopTree, site: Site, stage: Stage, hardware: HardwareSpec) -> float:
    """Bytes from and to memory, where a tile that fits the largest cache is moved once."""
    room = max((c.usable_bytes for c in hardware.machine.caches), default=0.0)
    private = {m.name for m in hardware.of_kind("workspace") if m.shared_by != "kernel"}
    accesses = [stage.target, *stage.reads_in(site.block.part)]
    far = [a for a in accesses if state.storage[a.tensor].memory not in private]
    if not far:
        return 0.0
    depth = 0
    while depth < len(site.loops):
        if sum(_footprint(state, site, a, depth) for a in far) <= room:
            break
        depth += 1
    total = 0.0
    for access in far:
        trips = 1
        used = {n for i in access.indices for n in names(substitute(i, site.block.binding))}
        reused = True
        for loop in reversed(site.loops[:depth]):
            reused = reused and loop.name not in used
            trips *= 1 if reused else loop.extent
        total += _footprint(state, site, access, depth) * trips
    return total


def _footprint(state: LoopTree, site: Site, access: Access, depth: int) -> float:
    """Bytes of the box that the loops from a depth inwards touch."""
    tensor = state.tensor[access.tensor]
    inner: Mapping[str, int] = {
        x.name: (x.extent if n >= depth else 1) for n, x in enumerate(site.loops)
    }
    result = float(DTYPES[tensor.dtype])
    for index, extent in zip(access.indices, tensor.shape, strict=True):
        value = simplify(substitute(index, site.block.binding), site.extents)
        reach = 1
        for coefficient, term in addends(value):
            if term is not None and not isinstance(term, Name):
                loops = [n for n in names(term) if inner[n] > 1]
                low, high = interval(term, site.extents) if loops else (0, 0)
                reach += abs(coefficient) * (high - low)
            elif term is not None:
                reach += abs(coefficient) * (inner[term.name] - 1)
        result *= min(reach, extent)
    return result
