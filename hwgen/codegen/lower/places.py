"""Where tensors live: buffers on the chip and images off it, as steps of their coordinates.

A tensor's dimension along which an entry's lanes run is cut by them: its coordinate counts entries.
A buffer holds the box of coordinates that its home's inside touches, one for each of its slots.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import lcm, prod

from hwgen.codegen.layout import BufferLayout
from hwgen.codegen.layout_order import dense
from hwgen.codegen.lower.cover import BlockCall, Covered
from hwgen.codegen.nest.boxes import Use, box, uses
from hwgen.codegen.program import Image
from hwgen.errors import HwgenError
from hwgen.polyhedral.affine import Affine
from hwgen.polyhedral.nest.aliases import places_of
from hwgen.polyhedral.nest.limits import aligned
from hwgen.polyhedral.nest.state import Site, State, Storage, Tensor
from hwgen.polyhedral.nest.terms import simplify
from hwgen.spec.expression import Access, Binary, Const, Expr, Name, add, multiply, names
from hwgen.spec.hardware import HardwareSpec, Memory, Operand

NO_TURN = Affine(())

Cut = tuple[tuple[int | None, int], ...]
"""For each dimension of an entry: the tensor's dimension that its lanes run along, and how many."""


@dataclass(frozen=True)
class Place:
    """A buffer or an image. `origins`: the index where its box begins; `sizes`: lanes that cut each
    dimension; `counts` and `strides`, in entries, of the coordinates. `turn`: over loops, the
    number of the tile in use, whose remainder by `slots` is its slot. `image`: where it is one."""

    name: str
    tensor: str
    memory: str
    origins: tuple[Expr, ...]
    sizes: tuple[int, ...]
    counts: tuple[int, ...]
    strides: tuple[int, ...]
    home: tuple[str, ...] = ()
    slots: int = 1
    turn: Affine = NO_TURN
    granule: int = 1
    reach: range = range(0)
    image: Image | None = None

    def offset(self, indices: Sequence[Expr], extents: Mapping[str, int]) -> Expr:
        """The entry of an element, from the first of its slot."""
        result: Expr = Const(0)
        for index, origin, size, stride in zip(
            indices, self.origins, self.sizes, self.strides, strict=True
        ):
            distance: Expr = Binary("-", index, origin)
            if size > 1:
                distance = Binary("//", distance, Const(size))
            result = add(result, multiply(distance, Const(stride)))
        return simplify(result, extents)

    @property
    def layout(self) -> BufferLayout:
        """What the allocation asks of it."""
        return BufferLayout(
            self.name, self.memory, self.slots, self.counts, self.strides, self._text(), (),
            self.granule,
        )  # fmt: skip

    def _text(self) -> str:
        """isl text of the map from the tensor's index to slot and entry."""
        index = [f"i{d}" for d in range(len(self.counts))]
        terms: list[str] = []
        for name, origin, size, stride in zip(
            index, self.origins, self.sizes, self.strides, strict=True
        ):
            distance = name if origin == Const(0) else f"{name} - ({origin})"
            distance = f"floor(({distance})/{size})" if size > 1 else distance
            terms.append(f"{stride}*({distance})" if stride != 1 else f"{distance}")
        slot = f"({self.turn}) mod {self.slots}" if self.slots > 1 else "0"
        parameters = sorted({n for o in self.origins for n in names(o)} | {*self.turn.names})
        head = f"[{', '.join(parameters)}] -> " if parameters else ""
        body = f"{self.tensor}[{', '.join(index)}] -> {self.memory}[{slot}, {' + '.join(terms)}]"
        return f"{head}{{ {body} }}"


def places(covered: Covered, hardware: HardwareSpec) -> dict[str, Place]:
    """Where each tensor lives, by name; those in the place of another, where that does.

    Raises:
        HwgenError: H423 a layout of another kind; H503 where calls disagree on the entries of a
            buffer.
    """
    state = covered.state
    home = places_of(state)
    found: dict[str, list[Use]] = {}
    for use in uses(state, state.root):
        found.setdefault(home.get(use.access.tensor, use.access.tensor), []).append(use)
    wanted = _wanted(covered, home)
    result: dict[str, Place] = {}
    for tensor in state.tensors:
        if tensor.name not in wanted:
            continue
        operands, cut = wanted[tensor.name]
        storage = state.storage.get(tensor.name, Storage(tensor.name))
        memory = operands[0].memory
        if hardware.memory[memory].kind == "offchip":
            result[tensor.name] = _image(tensor, operands[0], cut, hardware)
        else:
            result[tensor.name] = _buffer(
                covered, tensor, storage, found[tensor.name], operands, cut, hardware
            )
    return result | {t: result[r] for t, r in home.items() if r in result}


def _wanted(covered: Covered, home: Mapping[str, str]) -> dict[str, tuple[list[Operand], Cut]]:
    """By tensor, the operands that stand for it, and how they cut it."""
    result: dict[str, tuple[list[Operand], Cut]] = {}
    for site in covered.state.sites:
        call = covered.calls[site.block.name]
        for operand, access in zip(call.intrinsic.operands, call.operands, strict=True):
            cut = _cut(site, call, operand, access)
            tensor = home.get(access.tensor, access.tensor)
            operands, known = result.setdefault(tensor, ([], cut))
            if known != cut:
                raise HwgenError(
                    "H503",
                    f"calls disagree on the entries of {access.tensor}",
                    found=f"{_shown(known)}, and for {call.intrinsic.name} {_shown(cut)}",
                    allowed="one layout for a tensor",
                    repair=f"a copy of {access.tensor} for one of them (cache_read, cache_write)",
                )
            operands.append(operand)
    return result


def _shown(cut: Cut) -> str:
    return " x ".join(f"{n} of dimension {d}" if d is not None else str(n) for d, n in cut) or "1"


def _cut(site: Site, call: BlockCall, operand: Operand, access: Access) -> Cut:
    """How an operand's dimensions cut a tensor's."""
    from hwgen.polyhedral.nest.tensorize import steps

    lanes = dict(call.lanes)
    inner = {x for x in lanes.values() if x}
    result: list[tuple[int | None, int]] = []
    for iterator, extent in zip(operand.indices, operand.shape, strict=True):
        loop = lanes.get(iterator, "")
        step = steps(site, access, loop, inner) if loop else None
        moved = [d for d, s in enumerate(step or ()) if s]
        result.append((moved[0] if moved else None, extent))
    return tuple(result)


def _sizes(rank: int, cut: Cut) -> tuple[int, ...]:
    return tuple(prod(n for d, n in cut if d == dimension) for dimension in range(rank))


def _image(tensor: Tensor, operand: Operand, cut: Cut, hardware: HardwareSpec) -> Place:
    """A tensor in off-chip memory: entries in the tensor's order, then an entry's lanes."""
    rank = len(tensor.shape)
    sizes = _sizes(rank, cut)
    counts = tuple(-(-e // n) for e, n in zip(tensor.shape, sizes, strict=True))
    lanes = tuple(n for _, n in cut)
    index: list[Expr] = []
    for d in range(rank):
        expression: Expr = Name(f"p{d}")
        for position, (dimension, extent) in enumerate(cut):
            if dimension == d and extent > 1:
                expression = add(multiply(expression, Const(extent)), Name(f"p{rank + position}"))
        index.append(expression)
    role = "temporary" if tensor.role == "intermediate" else tensor.role
    memory = hardware.memory[operand.memory]
    reached = memory.shared and hardware.code.handles_are_pointers
    same = role != "temporary" and all(n == 1 for n in sizes) and operand.dtype == tensor.dtype
    image = Image(
        f"{tensor.name}_image", tensor.name, role, operand.dtype, counts, lanes, tuple(index), 0,
        in_place=reached and same, memory=operand.memory,
        shape=tensor.shape if role == "temporary" else (),
    )  # fmt: skip
    zero: tuple[Expr, ...] = (Const(0),) * rank
    return Place(
        image.name, tensor.name, operand.memory, zero, sizes, counts, dense(counts), image=image
    )


def _buffer(
    covered: Covered,
    tensor: Tensor,
    storage: Storage,
    found: list[Use],
    operands: Sequence[Operand],
    cut: Cut,
    hardware: HardwareSpec,
) -> Place:
    if storage.layout:
        raise HwgenError(
            "H423",
            f"{tensor.name} is not stored row by row",
            found=f"layout [{', '.join(map(str, storage.layout))}]",
            allowed="the tensor's own dimensions in their order, aligned or not",
            repair=f"storage_align({tensor.name!r}, axis, factor) spreads rows",
        )
    home = covered.homes.get(tensor.name, ())
    touched = box(found, home, tensor.shape)
    sizes = _sizes(len(tensor.shape), cut)
    counts = tuple(-(-e // n) for e, n in zip(touched.extents, sizes, strict=True))
    slots = storage.slots if home else 1  # A tile that none follows needs one.
    turn = _turn(covered.state, home, slots) if slots > 1 else NO_TURN
    memory = hardware.memory[operands[0].memory]
    low = max(o.address.minimum for o in operands)
    high = min(memory.capacity_entries, *(o.address.maximum + 1 for o in operands))
    place = Place(
        tensor.name, tensor.name, memory.name, touched.origins, sizes, counts,
        aligned(counts, storage.aligns), home, slots, turn,
        lcm(*(o.address.step for o in operands)), range(low, max(low, high)),
    )  # fmt: skip
    return replace(place, reach=_chosen(storage, place, memory))


def _chosen(storage: Storage, place: Place, memory: Memory) -> range:
    """The entries that calls reach of those that the schedule says a buffer is in."""
    low, high = place.reach.start, place.reach.stop
    if storage.bank is not None and memory.banks is not None:
        size = memory.banks.entries
        low, high = max(low, storage.bank * size), min(high, (storage.bank + 1) * size)
    if storage.address is not None:
        first = storage.address // memory.entry_bytes
        low, high = max(low, first), min(high, first + place.slots * place.layout.slot_entries)
    return range(low, max(low, high))


def _turn(state: State, home: Sequence[str], slots: int) -> Affine:
    """The number of the tile that a buffer with slots holds, from zero, modulo its slots."""
    terms: list[tuple[str, int]] = []
    radix = 1
    for name in reversed(home):
        if radix % slots:
            terms.append((name, radix % slots))
        radix *= state.loop[name].extent
    return Affine(tuple(sorted(terms)))
