"""Nests one after another in one loop, where what they touch then stays in caches; then workers.

Each outermost loop is merged with the nearest before it where that is legal and modelled to be
faster: with one that moves along the same dimension of an array, the shorter step tiled to the
longer. What is only touched inside needs the room of one iteration. Loops that gain nothing one by
one are then tried together with those after them: what all of them touch is met once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from functools import partial, reduce
from itertools import takewhile
from math import lcm

from hwgen.autoschedule.lanes import has_kind
from hwgen.autoschedule.nests import attempt, count, take_back
from hwgen.autoschedule.options import Options
from hwgen.autoschedule.report import Choice
from hwgen.constants import MERGED_LOOPS
from hwgen.polyhedral.schedule.schedule import Schedule
from hwgen.polyhedral.tree import loop_edits
from hwgen.polyhedral.tree.cost import NestCost, estimate_nest
from hwgen.polyhedral.tree.loop_tree import Loop, LoopTree, Node, blocks, sites
from hwgen.spec.affine import affine
from hwgen.spec.expression import substitute
from hwgen.spec.hardware import HardwareSpec
from hwgen.spec.processor import Processor


def share_loops(schedule: Schedule, given: tuple[str, ...]) -> list[Choice]:
    """Merge outermost loops, those around what was `given` apart; what was merged."""
    choices: list[Choice] = []
    for length in range(1, MERGED_LOOPS + 1):
        number = 1
        while number + length <= len(schedule.state.root):
            merged = _into_one_before(schedule, number, length, given)
            if merged is None:
                number += 1
            else:
                choices.append(merged)
    return choices


def _into_one_before(
    schedule: Schedule, number: int, length: int, given: tuple[str, ...]
) -> Choice | None:
    root = schedule.state.root
    second = root[number]
    if not _free(second, given):
        return None
    for earlier in reversed(range(number)):
        first = root[earlier]
        if not _free(first, given):
            break
        for pair in _pairs(schedule.state, first, second):
            chain = _chain(schedule.state, pair, (earlier, number, length), given)
            merged = root[number : number + length]
            apart = _apart(schedule.state, first, *merged)
            spared = _merged(schedule, chain, apart) if len(chain) == length else None
            if spared is not None:
                stages = ", ".join(next(blocks((n,))).stage for n in merged)
                return Choice(stages, f"in one loop with {next(blocks((first,))).stage}", -spared)
    return None


def _free(node: Node, given: tuple[str, ...]) -> bool:
    """Whether a node is a serial loop around nothing that was given."""
    if not isinstance(node, Loop) or node.kind != "serial":
        return False
    return all(b.stage not in given and b.tensorized is None for b in blocks((node,)))


# Which loops go together


@dataclass(frozen=True, slots=True)
class _Outer:
    """A nest's outermost loop of more than one iteration, and `tile` of these that go together;
    `units`: the loops of one iteration around it."""

    loop: str
    tile: int
    units: tuple[str, ...]


_Pair = tuple[_Outer, _Outer]


def _outer(node: Node) -> tuple[Loop, tuple[str, ...]] | None:
    units: list[str] = []
    while isinstance(node, Loop) and node.kind == "serial":
        if node.extent > 1:
            return node, tuple(units)
        units.append(node.name)
        inner, *more = node.body
        if more:
            break
        node = inner
    return None


def _pairs(state: LoopTree, first: Node, second: Node) -> Iterator[_Pair]:
    """Loops of two nests that move equally along an array; what the first computes first."""
    ours, theirs = _outer(first), _outer(second)
    if ours is None or theirs is None:
        return
    made = {b.stage for b in blocks((first,))}
    before, after = _steps(state, ours[0]), _steps(state, theirs[0])
    known: set[tuple[int, int]] = set()
    for array in sorted(before, key=lambda a: a[0] not in made):
        if array in after:
            step = lcm(before[array], after[array])
            tiles = (step // before[array], step // after[array])
            fits = all(t <= x.extent for t, (x, _) in zip(tiles, (ours, theirs), strict=True))
            if fits and tiles not in known:
                known.add(tiles)
                one, two = (
                    _Outer(x.name, t, units)
                    for t, (x, units) in zip(tiles, (ours, theirs), strict=True)
                )
                yield one, two


def _chain(
    state: LoopTree, pair: _Pair, places: tuple[int, int, int], given: tuple[str, ...]
) -> tuple[_Pair, ...]:
    """A pair, and with it pairs of the loop that this makes and loops that come after, as many as
    there are up to a length. `places`: of the first loop, of the second, and that length."""
    earlier, number, length = places
    chain = (pair,)
    while len(chain) < length:
        state = _after(state, chain[-1])
        if not _free(state.root[number], given):
            break
        more = next(_pairs(state, state.root[earlier], state.root[number]), None)
        if more is None:
            break
        chain = (*chain, more)
    return chain


def _steps(state: LoopTree, loop: Loop) -> Mapping[tuple[str, int], int]:
    """How far a loop moves along dimensions of arrays that are touched inside."""
    found: dict[tuple[str, int], int] = {}
    for site in sites((loop,)):
        stage = state.stage[site.block.stage]
        for access in (stage.target, *stage.reads_in(site.block.part)):
            for dimension, index in enumerate(access.indices):
                value = affine(substitute(index, site.block.binding))
                step = value.coefficient(loop.name) if value is not None else 0
                if step > 0:
                    found.setdefault((access.tensor, dimension), step)
    return found


# Whether it pays


def _merged(schedule: Schedule, chain: tuple[_Pair, ...], apart: AbstractSet[str]) -> float | None:
    """Cycles that are spared by merging loops, nodes that are `apart` left out; None, and nothing
    is done, where it is not legal or spares none. The model, which takes no time, is asked
    first."""
    hardware, state = schedule.hardware, schedule.state
    before = _cycles(_without(state, apart), schedule.homes, hardware)
    wanted = reduce(_after, chain, state)
    if _cycles(_without(wanted, apart), _deepest(wanted), hardware) >= before:
        return None
    made = count(schedule)
    if attempt(schedule, lambda: _merge(schedule, chain)) is not None:
        return None
    after = _cycles(_without(schedule.state, apart), schedule.homes, hardware)
    if after >= before:
        take_back(schedule, made)
        return None
    return before - after


def _merge(schedule: Schedule, chain: tuple[_Pair, ...]) -> None:
    with schedule.batch(blame=False):
        for pair in chain:
            loops: list[str] = []
            for outer in pair:
                name = outer.loop
                if outer.units:
                    schedule.reorder(name, *outer.units)
                if outer.tile > 1:
                    name, _ = schedule.split(name, factor=outer.tile)
                loops.append(name)
            schedule.merge(*loops)


def _after(state: LoopTree, pair: _Pair) -> LoopTree:
    """The state that merging would make."""
    loops: list[str] = []
    for outer in pair:
        name = outer.loop
        if outer.units:
            state = loop_edits.reorder(state, (name, *outer.units))
        if outer.tile > 1:
            state, name, _ = loop_edits.split(state, name, outer.tile, None)
        loops.append(name)
    return loop_edits.merge(state, *loops)


def _deepest(state: LoopTree) -> Mapping[str, tuple[str, ...]]:
    """Of tensors that stages write, all loops that are around everything that touches them: no home
    is further inside."""
    around: dict[str, tuple[str, ...]] = {}
    for site in state.sites:
        stage = state.stage[site.block.stage]
        for access in (stage.target, *stage.reads_in(site.block.part)):
            known = around.get(access.tensor, site.names)
            same = takewhile(lambda x: x[0] == x[1], zip(known, site.names, strict=False))
            around[access.tensor] = tuple(n for n, _ in same)
    return {t: n for t, n in around.items() if state.tensor[t].role == "intermediate"}


def _apart(state: LoopTree, *merged: Node) -> frozenset[str]:
    """Outermost nodes in front of and behind all that touch what some of them do."""
    touched = {a for node in merged for a in _arrays(state, node)}
    near = [not touched.isdisjoint(_arrays(state, n)) for n in state.root]
    begin, end = near.index(True), len(near) - near[::-1].index(True)
    return frozenset(n.name for n in (*state.root[:begin], *state.root[end:]))


def _arrays(state: LoopTree, node: Node) -> set[str]:
    stages = ((state.stage[b.stage], b.part) for b in blocks((node,)))
    return {a.tensor for s, part in stages for a in (s.target, *s.reads_in(part))}


def _without(state: LoopTree, apart: AbstractSet[str]) -> LoopTree:
    """The state without some outermost nodes."""
    return replace(state, root=tuple(n for n in state.root if n.name not in apart))


def _cycles(state: LoopTree, homes: Mapping[str, tuple[str, ...]], hardware: HardwareSpec) -> int:
    return cost_with_workers(state, homes, hardware).cycles


def cost_with_workers(
    state: LoopTree, homes: Mapping[str, tuple[str, ...]], hardware: HardwareSpec
) -> NestCost:
    """The modelled cost, the outermost loops run by workers where that is faster."""
    shared = _by_workers(state, hardware)
    costs = [estimate_nest(s, homes, hardware, 0) for s in (state, shared)]
    return min(costs, key=lambda c: c.cycles)


def _by_workers(state: LoopTree, hardware: HardwareSpec) -> LoopTree:
    """The state, workers running outermost loops that nothing is said about."""
    kind = has_kind(hardware.machine, "parallel")
    for node in state.root if kind else ():
        loops = _enough(node, hardware.machine) if _free(node, ()) else []
        if loops:
            name = loops[0]
            for inner in loops[1:]:
                state, name = loop_edits.fuse(state, name, inner)
            root = (replace(n, kind=kind) if isinstance(n, Loop) and n.name == name else n
                    for n in state.root)  # fmt: skip
            state = replace(state, root=tuple(root))
    return state


def _enough(node: Node, machine: Processor) -> list[str]:
    """Loops directly inside one another, as many as keep the workers busy; none where there is
    only one iteration."""
    found: list[str] = []
    trips = 1
    while isinstance(node, Loop) and node.kind == "serial" and trips < machine.workers:
        found.append(node.name)
        trips *= node.extent
        inner, *more = node.body
        if more:
            break
        node = inner
    return found if trips > 1 else []


# Workers


def share_out(schedule: Schedule, given: tuple[str, ...], options: Options) -> None:
    """Workers for each outermost loop that is modelled to be faster so; where a number of cycles is
    given, that takes more. None where each of them would need a part of the one workspace."""
    hardware = schedule.hardware
    machine = hardware.machine
    kind = has_kind(machine, "parallel")
    for node in schedule.state.root:
        loops = _enough(node, machine) if kind and _free(node, given) else []
        if not loops or (options.one_workspace and _allocates(schedule, loops[0])):
            continue
        alone = replace(schedule.state, root=(node,))
        cycles = estimate_nest(alone, schedule.homes, hardware, 0).cycles
        if options.parallel_cycles is None:
            shared = estimate_nest(_by_workers(alone, hardware), schedule.homes, hardware, 0).cycles
            worth = shared < cycles
        else:
            worth = cycles > options.parallel_cycles
        for count_ in range(len(loops), 0, -1) if worth else ():
            if attempt(schedule, partial(_share, schedule, loops[:count_])) is None:
                break


def _allocates(schedule: Schedule, loop: str) -> bool:
    """Whether each iteration of a loop takes a buffer from an allocator."""
    hardware, storage = schedule.hardware, schedule.resolved.storage
    inside = [t for t, home in schedule.homes.items() if loop in home]
    named = (storage[t].memory if t in storage else "" for t in inside)
    memories = (hardware.memory[m or hardware.machine.default_memory] for m in named)
    return any(m.free and not m.pool for m in memories)


def _share(schedule: Schedule, loops: list[str]) -> None:
    first = schedule.fuse(*loops) if len(loops) > 1 else loops[0]
    schedule.parallel(first)
