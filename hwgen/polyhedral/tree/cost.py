"""Modelled cycles and traffic of a scheduled nest on a processor, and the bound on them.

Blocks run one after another: each its instances on the workers, threads and lanes that its loops
give it, beside what it brings into each cache and from memory (`cache_traffic.py`). The busiest of
these counts whole, and a share of the others. Rates are the spec's.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil, prod

import numpy as np

from hwgen.polyhedral.caches import busiest, filled
from hwgen.polyhedral.tree.cache_traffic import TreeTraffic
from hwgen.polyhedral.tree.idle_steps import plain
from hwgen.polyhedral.tree.instructions import retired
from hwgen.polyhedral.tree.loop_tree import LoopTree, Site, Stage
from hwgen.polyhedral.tree.padding import is_by_place
from hwgen.spec.affine import affine
from hwgen.spec.expression import (
    DTYPES,
    Access,
    Binary,
    Call,
    Expr,
    children,
    names,
    substitute,
    walk,
)
from hwgen.spec.hardware import HardwareSpec
from hwgen.spec.processor import Processor
from hwgen.spec.typecheck import is_float


@dataclass(frozen=True, slots=True)
class BlockCost:
    """One block: cycles of its arithmetic, bytes that it moves to and from memory, and cycles of
    all: the busiest of arithmetic, caches and memory, and of the others what does not pass beside
    it."""

    block: str
    compute_cycles: float
    memory_bytes: float
    memory_cycles: float
    cycles: float


@dataclass(frozen=True, slots=True)
class NestCost:
    """A whole kernel: its blocks one after another, and the starts of parallel loops. That `cycles`
    are no fewer than `bound` is checked (H791), not made so. `instructions`: that it retires, where
    the machine's spec counts them."""

    blocks: tuple[BlockCost, ...]
    start_cycles: int
    bound: int
    instructions: int = 0

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


def estimate_nest(
    state: LoopTree,
    homes: Mapping[str, tuple[str, ...]],
    hardware: HardwareSpec,
    bound: int | None = None,
) -> NestCost:
    """Cycles and traffic of a state as it stands, whose tensors have `homes`."""
    state, machine = plain(state), hardware.machine
    unseen = frozenset(m.name for m in hardware.of_kind("workspace") if m.shared_by != "kernel")
    whole = TreeTraffic(state, homes, machine, unseen)
    own = replace(whole, workers=machine.workers) if machine.workers > 1 else whole
    levels = [
        ((own if private else whole).brought(room), rate) for room, rate, private in filled(machine)
    ]
    given = machine.instructions
    counted: Mapping[str, float] = {} if given is None else retired(state, given)
    blocks = tuple(_block(state, site, machine, levels, counted) for site in state.sites)
    starts = {x.name: machine.loop[x.kind].start_cycles
              for x in state.loop.values() if x.kind in machine.loop}  # fmt: skip
    least = nest_bound(state, machine) if bound is None else bound
    return NestCost(blocks, sum(starts.values()), least, ceil(sum(counted.values())))


def operations(value: Expr, innermost: Collection[str]) -> int:
    """Arithmetic operations of a value; at least one. Left out: indices, and choices by place that
    do not depend on the iterators of the `innermost` loop, as they are made outside of it."""
    inside = {id(n) for a in walk(value) if isinstance(a, Access) for i in a.indices
              for n in walk(i)}  # fmt: skip
    for choice in walk(value):
        condition = choice.arguments[0] if isinstance(choice, Call) else choice
        if is_by_place(choice) and set(names(condition)).isdisjoint(innermost):
            inside |= {id(choice), *map(id, walk(condition))}
    return max(1, sum(isinstance(n, Call | Binary) and id(n) not in inside for n in walk(value)))


def _kinds(site: Site, machine: Processor, kind: str, level: str = "") -> int:
    """The product of the extents of a block's loops of a sort."""
    return prod(
        x.extent
        for x in site.loops
        if machine.runs(x.kind) == kind and level in ("", machine.loop[x.kind].level)
    )


def _summed(state: LoopTree, site: Site, machine: Processor) -> int:
    """Iterations of the loop along which compilers add products up in lanes; 1: none."""
    stage = state.stage[site.block.stage]
    inner = next((x for x in reversed(site.loops) if machine.runs(x.kind) != "unroll"), None)
    if not sums_in_vectors(state, stage, machine) or inner is None or inner.kind in machine.loop:
        return 1
    steps = {_step(state, access, site.block.binding, inner.name) for access in stage.reads}
    own = _step(state, stage.target, site.block.binding, inner.name)
    return inner.extent if own == 0 and steps <= {0, 1} and 1 in steps else 1


def sums_in_vectors(state: LoopTree, stage: Stage, machine: Processor) -> bool:
    """Whether a stage adds products of integers up that compilers of the code do in lanes."""
    dtypes = [state.tensor[a.tensor].dtype for a in stage.reads]
    narrow = all(not is_float(d) and DTYPES[d] <= machine.dot_bytes for d in dtypes)
    return stage.op == "+=" and narrow and state.tensor[stage.tensor].dtype == "int32"


def sums_narrow(state: LoopTree, stage: Stage) -> bool:
    """Whether a stage adds up integers alone, all of them narrower than their sum."""
    dtypes = [state.tensor[a.tensor].dtype for a in stage.reads]
    least = DTYPES[state.tensor[stage.tensor].dtype]
    narrow = all(not is_float(d) and DTYPES[d] < least for d in dtypes)
    return stage.op == "+=" and bool(dtypes) and narrow


def _step(state: LoopTree, access: Access, binding: Mapping[str, Expr], loop: str) -> int | None:
    """Elements by which a loop moves an access; None where that is not constant."""
    step = 0
    for index, extent in zip(access.indices, state.tensor[access.tensor].shape, strict=True):
        form = affine(substitute(index, binding))
        if form is None:
            return None
        step = step * extent + form.coefficient(loop)
    return step


def _block(
    state: LoopTree,
    site: Site,
    machine: Processor,
    levels: Sequence[tuple[Mapping[str, float], float]],
    instructions: Mapping[str, float],
) -> BlockCost:
    """`levels`: bytes by block into each cache, the last from memory, and how many pass a cycle;
    `instructions`: of each block, where they are counted."""
    stage = state.stage[site.block.stage]
    points = prod(x.extent for x in site.loops)
    width = DTYPES[state.tensor[stage.tensor].dtype]
    inner = next((x.name for x in reversed(site.loops) if x.extent > 1), "")
    last = [i for i, e in site.block.bindings if inner in names(e)]
    work = operations(stage.value, last)
    if site.block.part == "init":
        work = 1 if stage.seed is None else operations(stage.seed, last)
    together = 1
    if machine.coordinates("block"):
        blocks = _kinds(site, machine, "bind", "block")
        threads = _kinds(site, machine, "bind", "thread")
        rate = float(min(threads, machine.operations_per_cycle))
        share = ceil(blocks / machine.workers) / blocks
    else:
        at_once = _kinds(site, machine, "parallel")
        most = max(1, machine.lanes_bytes // width)
        together = min(_summed(state, site, machine), most)
        lanes = max(together, min(_kinds(site, machine, "vectorize"), most))
        rate = float(lanes * machine.operations_per_cycle)
        if lanes > together and site.block.part != "init" and sums_narrow(state, stage):
            rate = rate / machine.costs.narrow_factor
        share = ceil(at_once / machine.workers) / at_once
    counted = ("", "parallel")  # Workers count the iterations that they take.
    steps = prod(x.extent for x in site.loops if machine.runs(x.kind) in counted) / together
    compute = (points * work / rate + machine.iteration_cycles * steps) * share
    name = site.block.name
    if instructions:
        compute = instructions[name] / rate * share
    times = [brought.get(name, 0.0) / rate for brought, rate in levels]
    moved, _ = levels[-1]
    cycles = float(busiest([np.array(t) for t in (compute, *times)], machine))
    return BlockCost(name, compute, moved.get(name, 0.0), times[-1], cycles)
