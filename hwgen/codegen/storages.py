"""Where a program's tensors lie: off-chip images, on-chip buffers, arrays of a processor."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from math import prod
from typing import Literal

from hwgen.codegen.layout import dense
from hwgen.polyhedral.tree.loop_tree import Role
from hwgen.spec.affine import Affine, affine
from hwgen.spec.expression import DTYPES, Expr


@dataclass(frozen=True, slots=True)
class Image:
    """A tensor as the chip's off-chip memory holds it: a dense array of shape `outer + lanes`.

    Position `p0, p1, ...` holds the tensor's element at `index` (expressions over `p0...`),
    or `fill` where that lies outside the tensor. `lanes`: the shape of one entry. For an input,
    several positions may hold one element; otherwise, each element has one position.
    `dtype` differs from the tensor's, `tensor_dtype`, only for inputs, by a conversion that loses
    nothing; "" where it does not differ, as nothing is converted into `supplied` images.
    `in_place`: it is the tensor itself, where the caller has it; nothing is packed or unpacked.
    A tensor that the host's core takes over between units is an `output` of the calls that store it
    and an `input` of those that load it.
    A `temporary` is what one phase of the kernel stores and others load: the host gives it room,
    puts `fill` into entries wholly outside the tensor, whose `shape` stands here, and no more.
    `memory`: the off-chip memory that it lies in; "" for the first that holds what changes.
    `supplied`: of an input that no caller gives, what its tensor, whose `shape` then stands here,
    holds everywhere.
    """

    name: str
    tensor: str
    role: Literal["input", "output", "temporary"]
    dtype: str
    outer: tuple[int, ...]
    lanes: tuple[int, ...]
    index: tuple[Expr, ...]
    fill: int | float
    in_place: bool = False
    shape: tuple[int, ...] = ()
    memory: str = ""
    supplied: int | None = None
    tensor_dtype: str = ""

    @property
    def entries(self) -> int:
        return prod(self.outer)

    @property
    def entry_bytes(self) -> int:
        return prod(self.lanes) * DTYPES[self.dtype]

    @property
    def bytes(self) -> int:
        return self.entries * self.entry_bytes

    def keeps_order(self, shape: tuple[int, ...]) -> bool:
        """Whether it holds the elements of a tensor of a shape in the tensor's own order, each
        once; it may pad between them."""
        steps: dict[str, int] = {}
        for index, step in zip(self.index, dense(shape), strict=True):
            function = affine(index)
            if function is None:
                return False
            for name, coefficient in function.terms:
                steps[name] = steps.get(name, 0) + coefficient * step
        extents = (*self.outer, *self.lanes)
        moved = [steps.get(f"p{n}", 0) for n, extent in enumerate(extents) if extent > 1]
        return all(a > b for a, b in pairwise([*moved, 0]))

    def is_tensor(self, dtype: str, shape: tuple[int, ...]) -> bool:
        """Whether it is a tensor of a type and a shape as the host has it: the same elements in the
        same order, nothing between, before or behind them."""
        extents = (*self.outer, *self.lanes)
        if self.dtype != dtype or prod(extents) != prod(shape):
            return False
        ranges = {f"p{n}": extent for n, extent in enumerate(extents)}
        functions: list[tuple[Affine, int]] = []
        for index, extent, step in zip(self.index, shape, dense(shape), strict=True):
            function = affine(index)
            if function is None:
                return False
            low, high = function.interval(ranges)
            if low < 0 or high >= extent:
                return False
            functions.append((function, step))
        return all(
            sum(f.coefficient(f"p{n}") * step for f, step in functions) == own
            for n, (extent, own) in enumerate(zip(extents, dense(extents), strict=True))
            if extent > 1
        )

    def __str__(self) -> str:
        shape = list(self.outer + self.lanes)
        where = ", in place" if self.in_place else ""
        return f"image {self.name}: {self.dtype}{shape} of {self.tensor}{where}"


@dataclass(frozen=True, slots=True)
class Buffer:
    """An on-chip buffer: `slots` copies of `slot_entries`, the first from entry `base` on, each
    `slot_stride` entries after the one before; 0: they follow each other.

    `layout` is the isl text of the map from tensor index to (slot, offset in entries, lane).
    `banks`: the bank that each slot begins in; () where the memory has none, or interleaved ones.
    """

    name: str
    memory: str
    tensor: str
    base: int
    slots: int
    slot_entries: int
    layout: str = ""
    slot_stride: int = 0
    banks: tuple[int, ...] = ()

    @property
    def entries(self) -> int:
        """Entries that it occupies; the memory between its slots is not its own."""
        return self.slots * self.slot_entries

    @property
    def stride(self) -> int:
        """From one slot to the next."""
        return self.slot_stride or self.slot_entries

    @property
    def end(self) -> int:
        """The entry after its last."""
        return self.base + (self.slots - 1) * self.stride + self.slot_entries

    def holds(self, entry: int) -> bool:
        """Whether an entry of its memory is in one of its slots."""
        inside = self.base <= entry < self.end
        return inside and (entry - self.base) % self.stride < self.slot_entries

    @property
    def place(self) -> str:
        """Its memory and entries."""
        if self.slot_stride in (0, self.slot_entries) or self.slots == 1:
            where = f"{self.memory}[{self.base}:{self.end}]"
        else:
            last = f"{self.base + self.slot_entries}]"
            where = f"{self.memory}[{self.base}:{last} + slot * {self.slot_stride}"
        if not self.banks:
            return where
        banks = ", ".join(map(str, self.banks))
        return f"{where} in bank{'s' if len(self.banks) > 1 else ''} {banks}"

    def __str__(self) -> str:
        slots = f"{self.slots} x {self.slot_entries} entries"
        return f"buffer {self.name}: {self.place} of {self.tensor}, {slots}"


@dataclass(frozen=True, slots=True)
class Array:
    """One array of `elements`, for the code of a processor. `memory`: "" is an array from outside
    of the code, else a workspace. `extents` and `strides` (elements) of its storage dimensions;
    `slots` copies of that follow one another. `address_bytes`: in a memory that is one pool, or in
    the room `within` which it lies. A room is an array of no tensor that holds others. `shared`:
    another array from outside may have its bytes."""

    name: str
    tensor: str
    dtype: str
    role: Role
    memory: str
    extents: tuple[int, ...]
    strides: tuple[int, ...]
    slots: int = 1
    bank: int | None = None
    address_bytes: int | None = None
    within: str = ""
    shared: bool = False

    @classmethod
    def whole(cls, name: str, dtype: str, shape: tuple[int, ...]) -> Array:
        """A tensor in its own order, handed over between code and calls."""
        strides = tuple(prod(shape[n + 1 :]) for n in range(len(shape)))
        return cls(name, name, dtype, "intermediate", "", shape, strides)

    @property
    def slot_elements(self) -> int:
        return self.strides[0] * self.extents[0] if self.extents else 1

    @property
    def elements(self) -> int:
        return self.slots * self.slot_elements

    @property
    def bytes(self) -> int:
        return self.elements * DTYPES[self.dtype]

    def __str__(self) -> str:
        text = f"{self.name}: {self.dtype}{list(self.extents)} strides {list(self.strides)}"
        text += f" x {self.slots}" if self.slots > 1 else ""
        text += f" in {self.within or self.memory or 'the caller'}"
        return text + (f" at {self.address_bytes}" if self.address_bytes is not None else "")
