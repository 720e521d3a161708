"""Schedules for processors whose parallel loops start workers: register tiles under cache tiles."""

from __future__ import annotations

from math import prod

from hwgen.autoschedule.cost import Point, Structure, lanes_of, main_reduction, outer_order
from hwgen.autoschedule.nests import (
    Nest,
    Operand,
    attempt,
    is_read_in_place,
    lone_loops,
    loop_of,
    nest_of,
    partner_loops,
)
from hwgen.polyhedral.schedule.schedule import Schedule
from hwgen.polyhedral.tree.cost import sums_in_vectors
from hwgen.polyhedral.tree.edit import main_site
from hwgen.polyhedral.tree.loop_tree import LoopTree, Stage
from hwgen.spec.expression import DTYPES, Access, Cast, Name, names
from hwgen.spec.hardware import HardwareSpec
from hwgen.spec.processor import Processor
from hwgen.spec.typecheck import is_float


def private_memory(hardware: HardwareSpec) -> str:
    """Where one worker alone keeps what it accumulates."""
    own = hardware.workspace_of("thread")
    return own.name if own is not None else hardware.machine.default_memory


def has_kind(machine: Processor, kind: str) -> str:
    """The first loop kind of a sort that the chip has; "" for none."""
    return next((x.name for x in machine.loops if x.kind == kind), "")


# What there is to choose from


def structures(state: LoopTree, nest: Nest, machine: Processor) -> list[Structure]:
    """Every choice of the loops of a register tile, of what is packed and padded, and of order."""
    stage = state.stage[nest.stage]
    extents = nest.extents
    long = [n for n, e in nest.spatial if e > 1]
    result: list[Structure] = []
    for v in long:
        for r in [n for n in long if n != v] or [""]:
            good = [n for n in (v, r) if n and _paddable(stage, n)]
            for packed in _packings(stage, nest, v):
                if not _contiguous(nest, v, packed):
                    continue
                for first in (False, True) if r else (False,):
                    for padded in ((), tuple(good)) if good else ((),):
                        result.append(Structure(v, r, packed, padded, first))
                    if nest.narrow and v == nest.contiguous:
                        result.append(Structure(v, r, packed, (), first, widened=True))
    for k, extent in nest.reduction:
        straight = all(not o.uses(k) or o.stride(k) == 1 for o in nest.operands)
        if extent > 1 and straight and any(o.uses(k) for o in nest.operands):
            result += [
                Structure(k, r, partial=True) for r in (long or [n for n, _ in nest.spatial][-1:])
            ]
    for k in _dots(state, nest, machine):
        result += [
            Structure(v, r, columns_first=first, dot=k)
            for v in long
            for r in [n for n in long if n != v] or [""]
            for first in ((False, True) if r else (False,))
        ]
    if not result and long:
        v = long[-1]
        result = [Structure(v, r) for r in [n for n in long if n != v] or [""]]
    assert all(s.v in extents for s in result)
    return result


def _dots(state: LoopTree, nest: Nest, machine: Processor) -> list[str]:
    """Iterators of a reduction along which compilers of the code add products up in lanes."""
    if not sums_in_vectors(state, state.stage[nest.stage], machine):
        return []
    return [
        k
        for k, extent in nest.reduction
        if extent > 1
        and any(o.uses(k) for o in nest.operands)
        and all(not o.uses(k) or o.stride(k) == 1 for o in nest.operands)
    ]


def _contiguous(nest: Nest, v: str, packed: tuple[str, ...]) -> bool:
    """Whether some operand moves with `v`, by one element where it does."""
    moving = [o for o in nest.operands if o.uses(v)]
    return all(o.stride(v) == 1 or o.tensor in packed for o in moving)


def _packings(stage: Stage, nest: Nest, v: str) -> list[tuple[str, ...]]:
    """None, each single operand that can be packed, and all of them."""
    able = [
        o.tensor
        for o in nest.operands
        if o.uses(v)
        and all(
            i == Name(v) or v not in names(i)
            for a in stage.reads
            if a.tensor == o.tensor
            for i in a.indices
        )
        and sum(a.tensor == o.tensor for a in stage.reads) == 1
    ]
    able = list(dict.fromkeys(able))
    several = [tuple(able)] if len(able) > 1 else []
    return [(), *((t,) for t in able), *several]


def _paddable(stage: Stage, iterator: str) -> bool:
    """Whether an iterator stands alone in every index that it is in."""
    accesses: list[Access] = [stage.target, *stage.reads]
    return all(i == Name(iterator) or iterator not in names(i) for a in accesses for i in a.indices)


# Making one choice


def schedule_nest(
    schedule: Schedule,
    nest: Nest,
    structure: Structure,
    point: Point,
    machine: Processor,
) -> None:
    """Tile a reduction and its consumer.

    Raises:
        HwgenError: what a primitive raises where it refuses.
    """
    if not structure.widened:
        nest = read_padding(schedule, nest, structure)
    target, renamed = _pad(schedule, nest, structure, point)
    if nest_of(schedule.state, target).post:
        schedule.set_scope(target, private_memory(schedule.hardware))
    else:
        target = schedule.cache_write(target, private_memory(schedule.hardware))
    copies = _widen(schedule, nest, target) if structure.widened else {}
    renamed |= {o.tensor: copy for copy, o in copies.items()}
    _pack(schedule, target, structure, point, renamed, machine)
    kernel = target
    if structure.partial:
        kernel = _factor(schedule, target, structure.v, point.columns, inner=True)
    elif point.depth:
        kernel = _factor(schedule, target, main_reduction(nest), point.depth, inner=False)
    if kernel != target:
        schedule.set_scope(kernel, private_memory(schedule.hardware))
    if not structure.partial and not structure.dot:
        _lanes_last(schedule, kernel, structure.v)
    wide = "" if structure.partial else _before_narrowing(schedule, target)
    outer, tile = _tile_consumer(schedule, target, structure, point, machine, wide)
    block = [*outer][-1] if outer else tile
    if wide:
        schedule.compute_at(wide, tile)
        _finish(schedule, [*lone_loops(schedule, wide)[0]], machine)
    if kernel == target:
        schedule.compute_at(target, tile)
        for copy, operand in copies.items():
            moving = [n for n, i in outer.items() if i and operand.uses(i)]
            if outer:
                schedule.compute_at(copy, moving[-1] if moving else next(iter(outer)))
            else:  # Workers share it.
                schedule.set_scope(copy, machine.default_memory)
            if operand.tensor not in structure.packed:
                _vectorize_copy(schedule, copy, lanes_of(nest, machine))
        if structure.dot:
            _dot_tile(schedule, target, structure, point, tile, machine)
            return
    elif structure.partial:
        schedule.compute_at(target, tile)
        schedule.compute_at(kernel, tile)
        if machine.sums_in_lanes:
            attempt(schedule, lambda: schedule.vectorize(schedule.loops(target)[-1]))
    else:
        schedule.compute_at(target, block)
        schedule.compute_at(kernel, _tile_sums(schedule, target, structure, point, block))
    _register_tile(schedule, nest, kernel, structure, target, machine)


def _lanes_last(schedule: Schedule, kernel: str, v: str) -> None:
    """Sums of one vector side by side, which compilers otherwise have in no register."""
    own = [f"d{n}" for n in range(len(schedule.state.stage[kernel].target.indices))]
    places = [n for n, i in enumerate(schedule.state.stage[kernel].target.indices) if i == Name(v)]
    if places and places[0] != len(own) - 1:
        layout = ", ".join([*(d for n, d in enumerate(own) if n != places[0]), own[places[0]]])
        schedule.transform_layout(kernel, f"[{', '.join(own)}] -> [{layout}]")


def _before_narrowing(schedule: Schedule, target: str) -> str:
    """The stage that takes sums of integers, in their type: what it gives is narrowed after it, so
    that compilers have lanes of one type. "" where it narrows nothing, or lanes of several types
    are as fast."""
    state, costs = schedule.state, schedule.hardware.machine.costs
    post, dtype = nest_of(state, target).post, state.tensor[target].dtype
    if not post or is_float(dtype) or costs.narrow_factor <= 1:
        return ""
    match state.stage[post].value:
        case Cast(narrow, _) if DTYPES[narrow] < DTYPES[dtype]:
            return schedule.cache_write(post, private_memory(schedule.hardware), dtype)
        case _:
            return ""


def _vectorize_copy(schedule: Schedule, copy: str, lanes: int) -> None:
    """Lanes for the innermost loop of a copy, where it fills them."""
    loops = schedule.loops(copy)
    if loops and schedule.extent(loops[-1]) >= lanes:
        attempt(schedule, lambda: schedule.vectorize(loops[-1]))


def _pad(
    schedule: Schedule, nest: Nest, structure: Structure, point: Point
) -> tuple[str, dict[str, str]]:
    """Whole tiles: the stage that computes, and what its operands are called now."""
    target, renamed = nest.stage, {o.tensor: o.tensor for o in nest.operands}
    for iterator, size in ((structure.v, point.columns), (structure.r, point.rows)):
        if iterator not in structure.padded or nest.extents[iterator] % size == 0:
            continue
        before = set(schedule.buffers())
        schedule.pad(loop_of(schedule, target, iterator), size)
        made = [b for b in schedule.buffers() if b not in before]
        state = schedule.state
        for name in made:
            sources = [a.tensor for a in state.stage[name].reads]
            if state.stage[name].kind == "copy":
                old = next(k for k, v in renamed.items() if v == sources[0])
                renamed[old] = name
                if sources[0] != old:
                    schedule.compute_inline(sources[0])
        cropped, target = target, next(n for n in made if state.stage[n].reduces)
        if state.tensor[cropped].role == "intermediate" and state.readers(cropped):
            schedule.compute_inline(cropped)
    return target, renamed


def _pack(
    schedule: Schedule,
    target: str,
    structure: Structure,
    point: Point,
    renamed: dict[str, str],
    machine: Processor,
) -> None:
    """Operands with the columns of one register tile side by side."""
    for tensor in structure.packed:
        name = renamed[tensor]
        if name == tensor:
            name = schedule.cache_read(name, machine.default_memory, target)
        access = next(a for a in schedule.state.stage[target].reads if a.tensor == name)
        own = [f"d{n}" for n in range(len(access.indices))]
        place = next(n for n, i in enumerate(access.indices) if i == Name(structure.v))
        rest = [d for n, d in enumerate(own) if n != place]
        width = point.columns
        layout = ", ".join([f"{own[place]} // {width}", *rest, f"{own[place]} % {width}"])
        schedule.transform_layout(name, f"[{', '.join(own)}] -> [{layout}]")


def _widen(schedule: Schedule, nest: Nest, target: str) -> dict[str, Operand]:
    """Copies of the operands in the type of the sums: each with its operand, whose padding it
    holds."""
    dtype, copies = schedule.state.tensor[target].dtype, dict[str, Operand]()
    for operand in nest.operands:
        memory = private_memory(schedule.hardware)
        copy = schedule.cache_read(operand.tensor, memory, target, dtype=dtype)
        if is_read_in_place(schedule.state, operand.tensor):
            schedule.compute_inline(operand.tensor)
        copies[copy] = operand
    return copies


def read_padding(schedule: Schedule, nest: Nest, structure: Structure) -> Nest:
    """The nest with padding of what it reads read in place; a copy side by side holds its own."""
    plain = (o.tensor for o in nest.operands if o.tensor not in structure.packed)
    padded = [n for n in plain if is_read_in_place(schedule.state, n)]
    for tensor in dict.fromkeys(padded):
        schedule.compute_inline(tensor)
    return nest_of(schedule.state, nest.stage) if padded else nest


def _factor(schedule: Schedule, target: str, iterator: str, size: int, inner: bool) -> str:
    """Partial sums: over blocks of the reduction, or one per lane."""
    outside, inside = schedule.split(loop_of(schedule, target, iterator), factor=size)
    rank = len(schedule.state.stage[target].target.indices)
    return schedule.rfactor(target, inside if inner else outside, axis=rank if inner else 0)


def _cut(
    schedule: Schedule, loop: str, size: int, tiles: int
) -> tuple[list[str], list[str], list[str]]:
    """A loop over blocks, one over tiles in a block, one in a tile; none where it would be idle."""
    extent = schedule.extent(loop)
    outer: list[str] = []
    inner: list[str] = []
    if size == 1:
        outer = [loop]
    elif size >= extent:
        inner = [loop]
    else:
        first, second = schedule.split(loop, factor=size)
        outer, inner = [first], [second]
    if outer and 1 < tiles < schedule.extent(outer[0]):
        first, second = schedule.split(outer[0], factor=tiles)
        return [first], [second], inner
    if outer and tiles > 1:
        return [], outer, inner
    return outer, [], inner


def _tile_consumer(
    schedule: Schedule,
    target: str,
    structure: Structure,
    point: Point,
    machine: Processor,
    between: str,
) -> tuple[dict[str, str], str]:
    """The consumer's loops over blocks, tiles and a register tile; those around the tiles, with
    the iterator of each, and the innermost of a tile. `between`: as of `partner_loops`."""
    post, loops = partner_loops(schedule, target, between)
    chosen = [structure.v] if not structure.partial else []
    chosen += [structure.r] if structure.r else []
    others = [n for n in schedule.loops(post) if n not in {loops[i] for i in chosen}]
    wide = (point.columns, point.column_tiles)
    if structure.dot:  # Lanes of the consumer run over all the columns of a block.
        wide = (point.columns * point.column_tiles, 1)
    sizes = {structure.v: wide, structure.r: (point.rows, point.row_tiles)}
    cut = {i: _cut(schedule, loops[i], *sizes[i]) for i in chosen}
    around = {x: i for i in chosen for x in cut[i][0]}
    around |= {n: next((i for i, x in loops.items() if x == n), "") for n in others}
    order = outer_order(structure, [around[n] for n in others])
    tiles = [x for i in chosen[::-1] for x in cut[i][1]]
    inner = [x for i in chosen[::-1] for x in cut[i][2]]
    outer = sorted(around, key=lambda n: order.index(around[n]))
    if not outer and not tiles:
        extra, rest = schedule.split(inner[0], nparts=1)
        outer, inner = [extra], [rest, *inner[1:]]
    if len([*outer, *tiles, *inner]) > 1:
        schedule.reorder(*outer, *tiles, *inner)
    tile = (tiles or outer)[-1]
    if inner and not structure.partial:
        _finish(schedule, inner, machine)
    return {n: around.get(n, "") for n in outer}, tile


def _finish(schedule: Schedule, inner: list[str], machine: Processor, lanes: int = 0) -> None:
    """Lanes for the innermost loop, unrolled ones around it; whatever the chip has of these.

    `lanes`: of one vector; the innermost loop is cut so that compilers need not find that out.
    """
    around, last = inner[:-1], inner[-1]
    if lanes and schedule.extent(last) > lanes and schedule.extent(last) % lanes == 0:
        vectors, last = schedule.split(last, factor=lanes)
        around = [*around, vectors]
    if has_kind(machine, "vectorize"):
        attempt(schedule, lambda: schedule.vectorize(last))
    if has_kind(machine, "unroll"):
        for loop in around:
            attempt(schedule, lambda x=loop: schedule.unroll(x))


def inside(schedule: Schedule, stage: str, iterator: str, loop: str) -> list[str]:
    """The loops inside another that an iterator of a stage runs over."""
    site = main_site(schedule.state, stage)
    inner = site.names[site.names.index(loop) + 1 :]
    if iterator not in site.block.binding:
        return []
    return [n for n in inner if n in names(site.block.binding[iterator])]


def _tile_sums(
    schedule: Schedule, target: str, structure: Structure, point: Point, block: str
) -> str:
    """The loops that add partial sums up, in the register tiles of a block; the innermost loop
    over such tiles."""
    site = main_site(schedule.state, target)
    reduction = [n for i, _ in schedule.state.stage[target].reduction
                 for n in inside(schedule, target, i, block)]  # fmt: skip
    tiles: list[str] = []
    inner: list[str] = []
    for iterator, size in ((structure.r, point.rows), (structure.v, point.columns)):
        for loop in inside(schedule, target, iterator, block) if iterator else []:
            first, second, third = _cut(schedule, loop, size, 1)
            tiles += [*first, *second]
            inner += third
    assert site.block.part == "whole"
    order = [*reduction, *tiles, *inner]
    if len(order) > 1:
        schedule.reorder(*order)
    schedule.decompose_reduction(target, reduction[0])
    place = (tiles or reduction)[-1]
    if inner:
        attempt(schedule, lambda: schedule.vectorize(inner[-1]))
    return place


def _register_tile(
    schedule: Schedule,
    nest: Nest,
    kernel: str,
    structure: Structure,
    target: str,
    machine: Processor,
) -> None:
    """The reduction around the rows and columns of one register tile, set to zero beforehand."""
    loops, reduction = lone_loops(schedule, kernel)
    depth = len(main_site(schedule.state, kernel).names) - len(loops)
    columns = _columns(schedule, kernel, structure, target)
    adding = [n for n in loops if n in reduction]
    lanes = [n for n in loops if n in columns]
    rows = [n for n in loops if n not in reduction and n not in columns]
    order = [*adding, *rows, *lanes]
    if len(order) > 1 and order != list(loops):
        schedule.reorder(*order)
    if adding:
        schedule.decompose_reduction(kernel, adding[0])
    # Lanes of narrow operands are more than those of their sums: compilers see to both.
    width = 0 if nest.narrow else lanes_of(nest_of(schedule.state, kernel), machine)
    if rows or lanes:
        _finish(schedule, [*rows, *lanes], machine, width)
    if adding:
        inner = schedule.state.site[f"{kernel}_init"].names[depth:]
        if inner:
            _finish(schedule, list(inner), machine, width)


def _dot_tile(
    schedule: Schedule,
    kernel: str,
    structure: Structure,
    point: Point,
    tile: str,
    machine: Processor,
) -> None:
    """The tiles of a block's columns, each with the reduction around its rows and columns, all of
    which are unrolled: a compiler then has one sum for each, along what lies side by side."""
    reduction = [n for i, _ in schedule.state.stage[kernel].reduction if i != structure.dot
                 for n in inside(schedule, kernel, i, tile)]  # fmt: skip
    reduction += inside(schedule, kernel, structure.dot, tile)
    outer: list[str] = []
    inner: list[str] = []
    for iterator, size in ((structure.r, point.rows), (structure.v, point.columns)):
        for loop in inside(schedule, kernel, iterator, tile) if iterator else []:
            first, second, third = _cut(schedule, loop, size, 1)
            outer += [*first, *second]
            inner += third
    schedule.reorder(*outer, *reduction, *inner)
    schedule.decompose_reduction(kernel, reduction[0])
    if has_kind(machine, "unroll"):
        depth = len(main_site(schedule.state, kernel).names) - len(reduction) - len(inner)
        beginning = schedule.state.site[f"{kernel}_init"].names[depth:]
        for loop in (*inner, *beginning):
            attempt(schedule, lambda x=loop: schedule.unroll(x))


def _columns(schedule: Schedule, kernel: str, structure: Structure, target: str) -> set[str]:
    """Loops of the kernel that run over the columns of a register tile."""
    binding = main_site(schedule.state, kernel).block.binding
    if not structure.partial:
        return set(names(binding[structure.v]))
    added = [i for i, _ in schedule.state.stage[target].reduction if i in binding]
    known = {i for i, _ in schedule.state.stage[kernel].spatial}
    return {n for i in added if i in known for n in names(binding[i])}


# Nests without reuse


def schedule_simple(schedule: Schedule, stage: str, machine: Processor, *, busy: bool) -> None:
    """Lanes along the result's last dimension, rows around; `busy`: enough work for workers.

    Raises:
        HwgenError: what a primitive raises where it refuses.
    """
    state = schedule.state
    loops = list(schedule.loops(stage))
    if not loops:
        return
    target = state.stage[stage].target
    last = names(target.indices[-1])[-1:] if target.indices else ()
    inner = loop_of(schedule, stage, last[0]) if last else loops[-1]
    outer = [n for n in loops if n != inner]
    if outer and loops[-1] != inner:
        schedule.reorder(*outer, inner)
    lanes = lanes_of(nest_of(state, stage), machine)
    if busy and prod(schedule.extent(n) for n in outer) < machine.workers:
        wide = schedule.extent(inner)
        part = -(-wide // machine.workers)
        part = -(-part // (4 * lanes)) * 4 * lanes
        if part < wide:
            _, inner = schedule.split(inner, factor=part)
    if has_kind(machine, "vectorize"):
        attempt(schedule, lambda: schedule.vectorize(inner))


def complete(schedule: Schedule, stage: str, machine: Processor) -> list[str]:
    """Workers for a nest's outermost loop, lanes for its innermost; what was accepted."""
    done: list[str] = []
    loops = schedule.loops(stage)
    wide = has_kind(machine, "parallel") and schedule.extent(loops[0]) > 1
    if wide and attempt(schedule, lambda: schedule.parallel(loops[0])) is None:
        done.append(f"{loops[0]} parallel")
    target = schedule.state.stage[stage].target
    inner = loops[-1]
    binding = main_site(schedule.state, stage).block.binding
    last = names(target.indices[-1]) if target.indices else ()
    contiguous = any(inner in names(binding[n]) for n in last)
    free = schedule.state.loop[inner].kind == "serial"
    free = free and contiguous and bool(has_kind(machine, "vectorize"))
    if free and attempt(schedule, lambda: schedule.vectorize(inner)) is None:
        done.append(f"{inner} in lanes")
    return done
