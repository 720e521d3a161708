"""From a legal tree in which every block has its calls to the program that runs them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import TYPE_CHECKING

from hwgen.codegen.c_names import kernel_name
from hwgen.codegen.configuration import configured
from hwgen.codegen.layout import BufferLayout
from hwgen.codegen.lower.bands import unbanded
from hwgen.codegen.lower.block_parts import in_parts
from hwgen.codegen.lower.conflicts import Box
from hwgen.codegen.lower.filled import filled
from hwgen.codegen.lower.idle import without_idle
from hwgen.codegen.lower.lanes import lanes_of
from hwgen.codegen.lower.literals import check_literals
from hwgen.codegen.lower.live import addresses, apart, check_room
from hwgen.codegen.lower.meetings import meetings
from hwgen.codegen.lower.nests import peeled
from hwgen.codegen.lower.nodes import call_of, check_capacity, folded, repeated
from hwgen.codegen.lower.orders import in_best_order
from hwgen.codegen.lower.parts import joined
from hwgen.codegen.lower.place import Places
from hwgen.codegen.lower.places import places
from hwgen.codegen.lower.regions import Region, regions
from hwgen.codegen.lower.repeats import spread
from hwgen.codegen.lower.siblings import in_order
from hwgen.codegen.lower.sites import Builder, CallSite, Item, Known
from hwgen.codegen.lower.stream import Stream
from hwgen.codegen.lower.unfused import unfused
from hwgen.codegen.lower.workers import check_workers, parallel_loops
from hwgen.codegen.names import written
from hwgen.codegen.nodes import Code, If, Loop, Node, SyncNode
from hwgen.codegen.placement import Slot
from hwgen.codegen.program import MicroKernelDef, Program
from hwgen.codegen.reach import check_reach
from hwgen.codegen.synchronisation import SyncSite, synchronise
from hwgen.codegen.value_ranges import value_ranges
from hwgen.polyhedral.match.bind import BoundTree, bind
from hwgen.polyhedral.scop import views_of
from hwgen.polyhedral.tree.build import build_state
from hwgen.polyhedral.tree.loop_tree import Homes, LoopTree
from hwgen.spec.expression import Binary, Const, Expr, Name, conjunction
from hwgen.spec.hardware import HardwareSpec
from hwgen.spec.memory import Memory
from hwgen.spec.workload import Workload

if TYPE_CHECKING:
    from hwgen.codegen.processor.lower import Placing


@dataclass(frozen=True)
class Part:
    """What was decided of nests that units run. `tree`: the schedule's own; `whole`: by block,
    the loops of which it does whole blocks of lanes past the end."""

    tree: LoopTree
    covered: BoundTree
    places: Places
    whole: Mapping[str, Collection[str]]


@dataclass(frozen=True)
class Lowered:
    """A program, and what was decided on the way to it. `codes`: of what a processor runs."""

    parts: tuple[Part, ...]
    program: Program
    codes: tuple[Placing, ...] = ()

    @property
    def places(self) -> Places:
        """Where the tensor of each operand lives."""
        return {key: place for part in self.parts for key, place in part.places.items()}

    @property
    def layouts(self) -> dict[str, BufferLayout]:
        """How each buffer is laid out, by its name."""
        return {p.name: p.layout for p in self.places.values() if p.image is None}


def lower_tree(
    workload: Workload, hardware: HardwareSpec, state: LoopTree, homes: Homes
) -> Lowered:
    """The program of a legal state; `homes`: the loops around the buffer of each tensor.

    Raises:
        HwgenError: H421 to H423 blocks that their calls do not run; H502, H503, H511 buffers that
            cannot be; H512 what crosses between units and a processor on the chip; H61x where the
            chip cannot order, address or hold the calls; as `lower_nest` for a processor's nests.
    """
    parts: list[Part] = []
    codes: list[Placing] = []
    made: list[Program | Code] = []
    found = regions(workload, in_order(state, workload), homes, hardware)
    beside = any(not r.coded for r in found)
    ranges = value_ranges(workload, state)
    for region in found:
        if region.coded:
            code, placing = _code(region, None if beside else workload, hardware)
            # An array that is written may hold another tensor by then.
            same = [n for n in code.inputs if n in ranges and n not in written(code.body)]
            code = replace(code, ranges=tuple((n, ranges[n]) for n in same))
            codes.append(placing)
            made.append(code)
            continue
        part, program = _units(region, hardware)
        parts.append(part)
        made.append(configured(program, hardware))
    return Lowered(tuple(parts), joined(workload, hardware, state.tensor, made), tuple(codes))


def _code(region: Region, whole: Workload | None, hardware: HardwareSpec) -> tuple[Code, Placing]:
    """What the processor runs. `whole`: the workload, where it runs all of that; else units run
    other parts, and wait for it."""
    from hwgen.codegen.processor.lower import lower_nest
    from hwgen.polyhedral.tree.cost import estimate_nest, nest_bound

    code, placing = lower_nest(region.state, region.homes, hardware)
    if region.once:
        return replace(code, once=True), placing
    intended = region.state if whole is None else build_state(whole)
    bound = nest_bound(intended, hardware.machine)
    cost = estimate_nest(region.state, region.homes, hardware, bound)
    handover = hardware.machine.handover_cycles if whole is None else 0
    cycles = cost.cycles + handover
    figures = {"memory_bytes": cost.memory_bytes, "instructions": cost.instructions}
    return replace(code, cycles=cycles, bound=bound, **figures), placing


def _units(region: Region, hardware: HardwareSpec) -> tuple[Part, Program]:
    """What units run."""
    workload = region.workload
    views = views_of(workload)
    state, homes = unfused(region.state, region.homes)
    tree = without_idle(state)
    cover = spread(bind(tree, homes, hardware, views), hardware)
    cover = filled(in_parts(cover), hardware)
    lanes = lanes_of(cover)
    guarded = hardware.pipelined
    root = unbanded(cover.state.root, lanes.whole, guarded=guarded)
    ordered = {s.tensor for s in cover.state.stages if s.ordered}
    kinds = parallel_loops(state, hardware)
    check_workers(state, homes, hardware, kinds)
    pieces = peeled(root, lanes.whole, guarded=guarded, ordered=ordered, parallel=kinds)
    dense = places(cover, hardware, lanes)
    check_room(pieces, dense, hardware)
    known = Known.nothing()
    where = in_best_order(cover, dense, lanes.whole, known)

    def together(memory: Memory) -> Mapping[tuple[Slot, Slot], float]:
        items = Builder(cover, where, apart(where), kinds, known=known).items(pieces)
        return meetings(Stream(items), memory)

    buffers = addresses(pieces, where, hardware, together)
    items = Builder(cover, where, buffers, kinds, known=known).items(pieces)
    stream = Stream(items)
    held = {p.name: p for p in where.values()}
    images = [p.image for p in held.values() if p.image is not None]
    check_reach(workload, images, stream.sites)
    kernels: list[MicroKernelDef] = []
    emission = _Emission(kernels, _by_site(synchronise(hardware, stream)))
    body = emission.nodes(items)
    check_capacity(hardware, kernels)
    nodes = folded(body)
    check_literals(nodes, hardware)
    program = Program(
        name=kernel_name(workload, hardware),
        hardware=hardware.name,
        workload=workload.name,
        inputs=tuple(t.name for t in workload.inputs),
        outputs=tuple(t.name for t in workload.outputs),
        images=tuple(images),
        buffers=tuple(buffers.values()),
        kernels=tuple(kernels),
        body=nodes,
    )
    return Part(tree, cover, where, lanes.whole), program


def _by_site(syncs: Iterable[SyncSite]) -> dict[tuple[int, bool], list[SyncSite]]:
    found: dict[tuple[int, bool], list[SyncSite]] = {}
    for sync in syncs:
        found.setdefault((sync.site, sync.before), []).append(sync)
    return found


@dataclass(frozen=True, slots=True)
class _Emission:
    """The nodes of a tree of sites, synchronisation around the calls that need it."""

    kernels: list[MicroKernelDef]
    syncs: Mapping[tuple[int, bool], Sequence[SyncSite]]

    def nodes(self, items: Sequence[Item]) -> tuple[Node, ...]:
        result: list[Node] = []
        for item in items:
            if isinstance(item, CallSite):
                result += self._site(item)
            else:
                loop = item.loop
                body = self.nodes(item.items)
                result.append(Loop(loop.name, Const(loop.low), Const(loop.high), body, loop.kind))
        return tuple(result)

    def _site(self, site: CallSite) -> tuple[Node, ...]:
        call = repeated(site, call_of(site, self.kernels))
        before, after = (self.syncs.get((site.index, side), ()) for side in (True, False))
        nodes = (*_waits(site, before), call, *_waits(site, after))
        guard = conjunction(site.guards)
        return nodes if guard is None else (If(guard, nodes),)


def _waits(site: CallSite, syncs: Sequence[SyncSite]) -> tuple[Node, ...]:
    """The synchronisation on one side of a call, each where it is needed."""
    result: list[Node] = []
    for condition, group in groupby(syncs, lambda s: _where(site, s.boxes)):
        nodes: tuple[SyncNode, ...] = tuple(s.node for s in group)
        result += nodes if condition is None else (If(condition, nodes),)
    return tuple(result)


def _where(site: CallSite, boxes: Sequence[Box]) -> Expr | None:
    """The condition that loops are in one of some boxes; None where they always are."""
    found: Expr | None = None
    for box in boxes:
        parts: list[Expr] = []
        for loop, (low, high, step) in zip(site.loops, box, strict=True):
            name = Name(loop.name)
            if high == low + 1 and loop.high > loop.low + 1:
                parts.append(Binary("==", name, Const(low)))
                continue
            if low > loop.low:
                parts.append(Binary(">=", name, Const(low)))
            if (high - 1 - low) // step * step + step + low < loop.high:
                parts.append(Binary("<=", name, Const(high - 1)))
            if step > 1:
                parts.append(Binary("==", Binary("%", name, Const(step)), Const(low % step)))
        if not parts:
            return None
        here = conjunction(tuple(parts))
        assert here is not None
        found = here if found is None else Binary("or", found, here)
    return found
