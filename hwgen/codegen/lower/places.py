"""Where tensors live: buffers on the chip and images off it, as steps of their coordinates.

A tensor's dimension along which an entry's lanes run is cut by them: its coordinate counts entries,
and where the lanes of an operand are several entries (rows), those follow each other. A buffer
holds the box of coordinates that its home's inside touches, one for each of its slots.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import lcm

from hwgen.codegen.layout import dense
from hwgen.codegen.lower.by_hand import over_blocks
from hwgen.codegen.lower.images import axes, image_of
from hwgen.codegen.lower.lanes import Lanes
from hwgen.codegen.lower.panels import in_walk_order
from hwgen.codegen.lower.place import NO_TURN, Place, Places
from hwgen.codegen.lower.tiles import tiled
from hwgen.codegen.processor.boxes import Box, Use, box, uses
from hwgen.errors import HwgenError
from hwgen.polyhedral.match.bind import BoundTree
from hwgen.polyhedral.match.cuts import Cut, cut_of, longest, sizes_of
from hwgen.polyhedral.match.repairs import lane_loops, recipe
from hwgen.polyhedral.tree.aliases import places_of
from hwgen.polyhedral.tree.binding import Binding
from hwgen.polyhedral.tree.loop_tree import LoopTree, Site, Storage, Tensor
from hwgen.polyhedral.tree.rolling import repeated
from hwgen.polyhedral.tree.terms import interval, simplify
from hwgen.spec.affine import Affine, combine
from hwgen.spec.expression import Const, Expr, names
from hwgen.spec.hardware import HardwareSpec, Operand
from hwgen.spec.memory import Memory


@dataclass(frozen=True, slots=True)
class _Held:
    """Operands that stand for one tensor in one form, how they cut it, whose they are, and the
    entry before which their blocks end."""

    cut: Cut
    operands: list[Operand]
    uses: list[tuple[str, int]]
    stop: int


def places(covered: BoundTree, hardware: HardwareSpec, lanes: Lanes) -> Places:
    """Where the tensor of each operand lives; one in the place of another, where that does.

    Raises:
        HwgenError: H503 where calls disagree on the entries of a tensor that they write.
    """
    state = covered.state
    home = places_of(state)
    found: dict[str, list[Use]] = {}
    for use in uses(state, state.root):
        found.setdefault(home.get(use.access.tensor, use.access.tensor), []).append(use)
    result: dict[tuple[str, int], Place] = {}
    for name, forms in _wanted(covered, home, hardware).items():
        tensor = state.tensor[name]
        for number, held in enumerate(forms):
            memory = hardware.memory[held.operands[0].memory]
            if memory.kind == "offchip":
                suffix = f"_{number + 1}" if number else ""
                place = _image(covered, tensor, held, lanes, hardware, suffix)
                if memory.constants_only and not memory.by_element:
                    sites = [(state.site[b], k) for b, k in held.uses]
                    taken = [(s, s.block.call.operands[k]) for s, k in sites]
                    place = in_walk_order(place, taken, state.extents)
            else:
                storage = state.storage.get(name, Storage(name))
                place = _buffer(covered, tensor, storage, found[name], held, memory)
            result |= dict.fromkeys(held.uses, place)
    return result


def _wanted(
    covered: BoundTree, home: Mapping[str, str], hardware: HardwareSpec
) -> dict[str, list[_Held]]:
    """By tensor, the forms in which calls want it: one but of an input, which the host lays out
    for each of them."""
    result: dict[str, list[_Held]] = {}
    for site in covered.state.sites:
        call = site.block.call
        for k, (operand, access) in enumerate(
            zip(call.intrinsic.operands, call.operands, strict=True)
        ):
            again = dict(covered.again.get(access.tensor, ()))
            cut = cut_of(site, call.lanes, operand, access, again)
            memory = hardware.memory[operand.memory]
            if memory.kind == "offchip" and memory.by_element:
                cut = _taken(call, operand, cut)
            tensor = home.get(access.tensor, access.tensor)
            forms = result.setdefault(tensor, [])
            several = _laid_out(covered, tensor)
            use, stop = (site.block.name, k), call.intrinsic.stop(operand)
            for n, held in enumerate(forms):
                same = (held.operands[0].memory, held.operands[0].dtype) == (
                    operand.memory,
                    operand.dtype,
                )
                offchip = hardware.is_offchip(operand.memory)
                both = longest(held.cut, cut, exact=offchip) if same else None
                if both is not None:
                    operands, stop = [*held.operands, operand], min(held.stop, stop)
                    forms[n] = _Held(both, operands, [*held.uses, use], stop)
                    break
            else:
                if forms and not several:
                    raise _differ(covered, home, tensor, forms[0], (site.block.name, cut))
                forms.append(_Held(cut, [operand], [use], stop))
    return result


def _taken(call: Binding, operand: Operand, cut: Cut) -> Cut:
    """The same with one lane of those along which no loop runs, where one takes part."""
    pairs = zip(cut, operand.indices, strict=True)
    return tuple((d, 1 if d is None and i in call.single else n) for (d, n), i in pairs)


def _laid_out(covered: BoundTree, tensor: str) -> bool:
    """Whether the host lays a tensor out, and may do so in several ways."""
    resident = tensor in covered.state.storage and covered.state.storage[tensor].memory
    is_input = covered.state.tensor[tensor].role == "input" and not resident
    return is_input or tensor in covered.views


def _differ(
    covered: BoundTree, home: Mapping[str, str], tensor: str, held: _Held, other: tuple[str, Cut]
) -> HwgenError:
    """The error of a tensor that the calls of two blocks take by other entries: about a block of
    those on it whose loops would agree if they were split into lanes, if there is one."""
    known, (block, cut) = held.uses[0][0], other
    repair = f"the same lanes, or a copy of {tensor} for one of them (cache_read, cache_write)"
    for site in covered.users[tensor]:
        call, name = site.block.call, site.block.name
        marked = site.block.tensorized
        if marked is None or marked.intrinsic != call.intrinsic.name:
            continue  # One call of several, which no script has as a block.
        lanes = lane_loops(site, call.intrinsic, call.operands)
        split = (
            cut_of(site, lanes, o, a)
            for o, a in zip(call.intrinsic.operands, call.operands, strict=True)
            if home.get(a.tensor, a.tensor) == tensor
        )
        agrees = any(longest(s, c, exact=False) is not None for s in split for c in (held.cut, cut))
        edits, changed = recipe(covered.state, site, call.intrinsic, call.operands)
        if changed and agrees and not {*lanes} <= {*call.lanes}:
            known, block, repair = known if name == block else block, name, edits
            break
    named = dict.fromkeys((known, block))
    return HwgenError(
        "H503",
        f"calls disagree on the entries of {tensor}",
        field=f"blocks.{block}",
        found="; ".join(_taking(covered.state.site[n]) for n in named),
        allowed="one layout for a tensor that calls write",
        repair=repair,
    )


def _taking(site: Site) -> str:
    """The loops that a block's call takes as lanes, of those around it."""
    call = site.block.call
    loops = {i: x or "no loop" for i, x in call.lanes}
    lanes = (f"{i}: {e} by {loops[i]}" for i, e in call.intrinsic.iterators if e > 1)
    around = ", ".join(f"{n}: {e}" for n, e in site.extents.items())
    return (
        f"{call.intrinsic.name} runs lanes {', '.join(lanes) or 'of one element'} in "
        f"{site.block.name}, whose loops are {around or 'none'}"
    )


def _image(
    covered: BoundTree,
    tensor: Tensor,
    held: _Held,
    lanes: Lanes,
    hardware: HardwareSpec,
    suffix: str,
) -> Place:
    """A tensor in off-chip memory."""
    sizes = sizes_of(len(tensor.shape), held.cut)
    multiples = [lanes.padding(tensor.name, d) for d in range(len(sizes))]
    multiples = [lcm(n, m) if m > 1 else 1 for n, m in zip(sizes, multiples, strict=True)]
    padded = tuple(-(-e // m) * m for e, m in zip(tensor.shape, multiples, strict=True))
    view = covered.views.get(tensor.name)
    source = covered.state.tensor[view.source] if view is not None else tensor
    image = image_of(tensor, held.operands[0], held.cut, padded, hardware, view, source, suffix)
    zero: tuple[Expr, ...] = (Const(0),) * len(tensor.shape)
    order = axes(len(sizes), held.cut, by_element=hardware.memory[image.memory].by_element)
    if order is not None:
        sizes = (1,) * len(sizes)
    at = order or range(len(sizes))
    steps = dense(image.outer)
    counts = tuple(image.outer[at.index(d)] for d in range(len(sizes)))
    strides = tuple(steps[at.index(d)] for d in range(len(sizes)))
    return Place(image.name, tensor.name, image.memory, zero, sizes, counts, strides, image=image)


def _buffer(
    covered: BoundTree,
    tensor: Tensor,
    storage: Storage,
    found: list[Use],
    held: _Held,
    memory: Memory,
) -> Place:
    operands, rank = held.operands, len(tensor.shape)
    home = covered.homes.get(tensor.name, ())
    around = tiled(covered.state, tensor.name, home)
    touched = box(found, around, tensor.shape)
    sizes = sizes_of(rank, held.cut)
    counts = tuple(-(-e // n) for e, n in zip(touched.extents, sizes, strict=True))
    slots = storage.slots if home else 1  # A tile that none follows needs one.
    turn = _turn(covered.state, home, slots) if slots > 1 else NO_TURN
    slots, turn = _by_tile(covered.state, around[len(home) :], touched, slots, turn)
    rows = held.cut[: len(held.cut) - len(memory.entry_shape)]
    steps = dense([n for _, n in rows])
    low = max(o.address.minimum for o in operands)
    high = min(memory.capacity_entries, held.stop)
    dimensions = _dimensions(tensor, storage, sizes)
    rolled: Expr | None = None
    if dimensions:
        spans = {f"d{d}": n for d, n in enumerate(counts)}
        dimensions = tuple(simplify(e, spans) for e in dimensions)
        repeats = repeated(dimensions) if slots == 1 else None
        if repeats is not None:
            (rolled, slots), dimensions = repeats, dimensions[1:] or (Const(0),)
        counts = tuple(interval(e, spans)[1] + 1 for e in dimensions)
    place = Place(
        tensor.name, _origin(covered.state, tensor.name), memory.name, touched.origins,
        sizes, counts, (),
        tuple((d, n, k) for (d, n), k in zip(rows, steps, strict=True)), home, slots, turn,
        lcm(*(o.address.step for o in operands)), range(low, max(low, high)),
        dimensions=dimensions, aligns=_aligns(storage, memory), rolled=rolled,
    )  # fmt: skip
    place = replace(place, strides=place.arranged(range(len(counts))))
    return replace(place, reach=_fixed(place, storage, memory))


def _dimensions(tensor: Tensor, storage: Storage, sizes: Sequence[int]) -> tuple[Expr, ...]:
    """A storage's own dimensions, over the distances from the box's origin in blocks of lanes; ()
    for the tensor's.

    Raises:
        HwgenError: H503 where they part what calls take together.
    """
    found = over_blocks(storage.layout, sizes) if storage.layout else ()
    if found is None:
        raise HwgenError(
            "H503",
            f"{tensor.name} has a layout of single elements",
            found=f"[{', '.join(map(str, storage.layout))}]",
            allowed=f"the elements that its calls take, {list(sizes)}, next to each other",
            repair="a layout whose innermost dimension has these in whole, or that of the calls",
        )
    return found


def _origin(state: LoopTree, tensor: str) -> str:
    """What a buffer holds a part of: the tensor that it is a copy of, or that is a copy of it."""
    while True:
        stage = state.stage.get(tensor)
        copies = [s for s in state.readers(tensor) if s.kind == "copy"]
        if stage is not None and stage.kind == "copy" and stage.reads:
            tensor = stage.reads[0].tensor
        elif len(copies) == len(state.readers(tensor)) == 1 and stage is not None:
            if state.tensor[copies[0].tensor].role != "output":
                return tensor
            return copies[0].tensor
        else:
            return tensor


def _aligns(storage: Storage, memory: Memory) -> tuple[tuple[int, int, int], ...]:
    """A storage's strides by hand, in entries of its memory.

    Raises:
        HwgenError: H516 where they part entries.
    """
    size = 1 if memory.by_element else memory.entry_elements
    for axis, factor, offset in storage.aligns:
        if factor % size or offset % size:
            raise in_parts(storage.tensor, axis, factor, offset, size)
    return tuple((d, factor // size, offset // size) for d, factor, offset in storage.aligns)


def in_parts(tensor: str, axis: int, factor: int, offset: int, size: int) -> HwgenError:
    """The error of padding that does not consist of whole entries."""
    whole = -(-factor // size) * size
    return HwgenError(
        "H516",
        f"{tensor} is padded within an entry",
        found=f"axis {axis} of {tensor} in steps of {factor}*n + {offset} elements",
        allowed=f"multiples of {size} elements, one entry",
        repair=f"storage_align({tensor!r}, {axis}, {whole}, {offset // size * size})",
    )


def _fixed(place: Place, storage: Storage, memory: Memory) -> range:
    """The entries where a buffer may be: those that the user put it into."""
    reach = place.reach
    if storage.address is not None:
        start = storage.address // memory.entry_bytes
        end = min(reach.stop, start + place.slots * place.slot_entries)
        # Where calls cannot address its beginning, there is no room at all.
        reach = range(start, end if start >= reach.start else start)
    elif storage.bank is not None and memory.banks is not None:
        size = memory.banks.entries
        low, high = storage.bank * size, (storage.bank + 1) * size
        reach = range(max(reach.start, low), min(reach.stop, high))
    return reach


def _by_tile(
    state: LoopTree, loops: Sequence[str], touched: Box, slots: int, turn: Affine
) -> tuple[int, Affine]:
    """Slots, and the number of the one in use, where each tile over some loops has its own."""
    moving = {n for o in touched.origins for n in names(o)}
    terms: list[tuple[str, int]] = []
    tiles = 1
    for name in reversed([n for n in loops if n in moving]):
        terms.append((name, tiles))
        tiles *= state.loop[name].extent
    outer = [(n, c * tiles) for n, c in turn.terms]
    return slots * tiles, combine([*outer, *terms], turn.constant * tiles)


def _turn(state: LoopTree, home: Sequence[str], slots: int) -> Affine:
    """The number of the tile that a buffer with slots holds, from zero, modulo its slots."""
    terms: list[tuple[str, int]] = []
    radix = 1
    for name in reversed(home):
        if radix % slots:
            terms.append((name, radix % slots))
        radix *= state.loop[name].extent
    return Affine(tuple(sorted(terms)))
