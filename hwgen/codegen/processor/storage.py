"""Buffers of tensors: extents, strides, slots, and the flat address of each access."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from hwgen.codegen.processor.boxes import Box, Use, box, minus
from hwgen.codegen.storages import Array
from hwgen.errors import HwgenError
from hwgen.polyhedral.tree.limits import aligned
from hwgen.polyhedral.tree.loop_tree import LoopTree, Storage, Tensor
from hwgen.polyhedral.tree.terms import interval, simplify
from hwgen.spec.expression import Binary, Const, Expr, Name, add, multiply, substitute
from hwgen.spec.hardware import HardwareSpec


@dataclass(frozen=True, slots=True)
class Placed:
    """A tensor's buffer. `dimensions`: the storage's indices over `d0, d1, ...`, each the distance
    from the box's origin. `home`: the loops around the buffer. `turn`: the loop whose iterations
    take turns in the slots."""

    buffer: Array
    box: Box
    dimensions: tuple[Expr, ...]
    home: tuple[str, ...]
    turn: str = ""

    def flat(self, use: Use) -> Expr:
        """The element that an access touches, over the loops around it."""
        extents = use.extents
        local = {
            f"d{n}": minus(index, origin, extents)
            for n, (index, origin) in enumerate(
                zip(use.access.indices, self.box.origins, strict=True)
            )
        }
        result: Expr = Const(0)
        for dimension, stride in zip(self.dimensions, self.buffer.strides, strict=True):
            result = add(result, multiply(substitute(dimension, local), Const(stride)))
        if self.turn:
            slot = Binary("%", Name(self.turn), Const(self.buffer.slots))
            result = add(result, multiply(slot, Const(self.buffer.slot_elements)))
        return simplify(result, extents)


def place(
    state: LoopTree,
    found: Mapping[str, list[Use]],
    homes: Mapping[str, tuple[str, ...]],
    hardware: HardwareSpec,
) -> dict[str, Placed]:
    """A buffer for every tensor that is touched, by tensor.

    Raises:
        HwgenError: H510 a caller's array that is to be stored otherwise; H511 slots in a loop whose
            iterations run at once; H512 a memory that not all who touch a tensor share.
    """
    result: dict[str, Placed] = {}
    for tensor in state.tensors:
        if tensor.name in found:
            storage = state.storage.get(tensor.name, Storage(tensor.name))
            home = homes.get(tensor.name, ())
            if tensor.role == "intermediate":
                result[tensor.name] = _inner(
                    state, tensor, storage, home, found[tensor.name], hardware
                )
            else:
                result[tensor.name] = _callers(tensor, storage)
    return result


def _callers(tensor: Tensor, storage: Storage) -> Placed:
    if storage != Storage(tensor.name):
        raise HwgenError(
            "H510",
            f"{tensor.name} is the caller's array",
            found=str(storage),
            allowed="row-major, as the caller gave it",
            repair=f"store a copy of {tensor.name} otherwise (cache_read, cache_write)",
        )
    buffer = Array(
        tensor.name, tensor.name, tensor.dtype, tensor.role, "", tensor.shape, dense(tensor.shape)
    )
    whole = Box(tuple(Const(0) for _ in tensor.shape), tensor.shape)
    return Placed(buffer, whole, _own(len(tensor.shape)), ())


def _own(rank: int) -> tuple[Expr, ...]:
    return tuple(Name(f"d{n}") for n in range(rank))


def _inner(
    state: LoopTree,
    tensor: Tensor,
    storage: Storage,
    home: tuple[str, ...],
    found: list[Use],
    hardware: HardwareSpec,
) -> Placed:
    touched = box(found, home, tensor.shape)
    dimensions = storage.layout or _own(len(tensor.shape))
    sizes = {f"d{n}": e for n, e in enumerate(touched.extents)}
    dimensions = tuple(simplify(e, sizes) for e in dimensions)
    lows = [interval(e, sizes)[0] for e in dimensions]
    dimensions = tuple(
        add(e, Const(-low)) if low else e for e, low in zip(dimensions, lows, strict=True)
    )
    extents = tuple(interval(e, sizes)[1] + 1 for e in dimensions)
    memory = storage.memory or hardware.machine.default_memory
    slots = storage.slots if home else 1  # A tile that none follows needs one.
    buffer = Array(
        tensor.name, tensor.name, tensor.dtype, tensor.role, memory, extents,
        aligned(extents, storage.aligns), slots, storage.bank, storage.address,
    )  # fmt: skip
    _check_shared(state, tensor.name, home, found, hardware, memory)
    if slots == 1:
        return Placed(buffer, touched, dimensions, home)
    if hardware.machine.runs(state.loop[home[-1]].kind) in ("parallel", "bind"):
        raise HwgenError(
            "H511",
            f"{tensor.name} cannot have {slots} slots",
            found=f"its home is inside {home[-1]} ({state.loop[home[-1]].kind})",
            allowed="tiles that consecutive iterations of a serial loop fill",
            repair=f"compute {tensor.name} inside a serial loop",
        )
    return Placed(buffer, touched, dimensions, home[:-1], home[-1])


def dense(extents: tuple[int, ...]) -> tuple[int, ...]:
    """Row-major strides."""
    return aligned(extents, ())


_FINER = {"kernel": ("block", "thread"), "block": ("thread",), "thread": ()}
"""Levels of workers that all see a buffer of a level."""


def _check_shared(
    state: LoopTree,
    tensor: str,
    home: tuple[str, ...],
    found: list[Use],
    hardware: HardwareSpec,
    memory: str,
) -> None:
    """Workers that run inside the home all see the buffer."""
    processor, workspace = hardware.machine, hardware.memory.get(memory)
    if workspace is None or workspace.kind != "workspace":
        raise HwgenError(
            "H512",
            f"{tensor} has no memory",
            found=memory,
            allowed=", ".join(m.name for m in hardware.of_kind("workspace")),
            repair="set_scope to one of these",
        )
    for use in found:
        for loop in use.loops:
            if processor.runs(loop.kind) not in ("parallel", "bind") or loop.name in home:
                continue
            kind = processor.loop[loop.kind]
            if kind.level not in _FINER[workspace.shared_by]:
                raise HwgenError(
                    "H512",
                    f"not all who touch {tensor} see it in {memory}",
                    found=f"{loop.name} ({loop.kind}) runs inside the home of {tensor}",
                    allowed=f"a memory that workers of level {kind.level} share",
                    repair=f"compute {tensor} inside {loop.name}, or another memory",
                )
    ways = {x: processor.runs(state.loop[x].kind) for x in home}
    many = next((x for x, way in ways.items() if way not in ("", "unroll")), "")
    if workspace.pool and not processor.launch and many:
        raise HwgenError(
            "H512",
            f"{tensor} in {memory} would be one buffer for all iterations of {many}",
            found=f"its home is inside {many} ({state.loop[many].kind}), and {memory} is one array",
            allowed="a home outside of loops whose iterations run at once",
            repair="another memory",
        )
    for loop in (x for x in home if ways[x] == "bind"):
        if processor.loop[state.loop[loop].kind].level in _FINER[workspace.shared_by]:
            raise HwgenError(
                "H512",
                f"{tensor} in {memory} would be one buffer for all iterations of {loop}",
                found=f"its home is inside {loop} ({state.loop[loop].kind})",
                allowed=f"a home outside of loops that are finer than a {workspace.shared_by}",
                repair="another memory",
            )


def at(placed: Placed, address_bytes: int) -> Placed:
    """The same buffer at a fixed address of its memory."""
    return replace(placed, buffer=replace(placed.buffer, address_bytes=address_bytes))
