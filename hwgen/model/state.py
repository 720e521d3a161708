"""The state of a functional simulation: memories, images, and who wrote each entry last."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import prod

import numpy as np
import numpy.typing as npt

from hwgen.codegen.nodes import CallOperand
from hwgen.codegen.program import Program
from hwgen.codegen.storages import Image
from hwgen.errors import HwgenError
from hwgen.spec.expression import DTYPES
from hwgen.spec.hardware import HardwareSpec, Operand
from hwgen.spec.memory import WAYS

from .execution import Place
from .geometry import Region
from .numeric import STORAGE, Array
from .trace import CallEvent

POISON = 0xA5
"""Every byte of a memory that nothing has been written to."""

HOST = 0
"""The last writer of an input image."""

NOBODY = -1
"""The last writer of an entry that was never written."""


def call_error(
    code: str, message: str, event: CallEvent, *, found: str, allowed: str, repair: str = ""
) -> HwgenError:
    """An error of one call; its `field` is the call with its numbers and loop variables."""
    return HwgenError(code, message, field=str(event), found=found, allowed=allowed, repair=repair)


@dataclass(frozen=True, slots=True)
class Store:
    """A memory or an image: flat elements, and for each entry who wrote it last."""

    name: str
    dtype: str
    entry_shape: tuple[int, ...]
    elements: Array
    writer: npt.NDArray[np.int16]
    entry_elements: int = field(init=False)

    @classmethod
    def poisoned(cls, name: str, dtype: str, entries: int, entry_shape: tuple[int, ...]) -> Store:
        """A memory or output image before anything is written to it."""
        kind = STORAGE[dtype]
        count = entries * prod(entry_shape)
        raw = np.full(count * kind.itemsize, POISON, np.uint8)
        elements = np.ndarray(count, kind, raw)
        return cls(name, dtype, entry_shape, elements, np.full(entries, NOBODY, np.int16))

    def __post_init__(self) -> None:
        object.__setattr__(self, "entry_elements", prod(self.entry_shape))

    @property
    def entry_bytes(self) -> int:
        return self.entry_elements * DTYPES[self.dtype]


@dataclass(frozen=True, slots=True)
class SiteOperand:
    """An operand of a site: its place, its bounds and its rules.

    `span`: entries that one iteration touches. `base`, `entries` (from its first to its last),
    `slot_entries`, `slot_stride`: of its buffer or image. `allowed_writers`: by writer number; None
    where anybody may have written.
    """

    rule: Operand
    buffer: str
    tensor: str
    store: Store
    span: int
    base: int
    entries: int
    slot_entries: int
    slot_stride: int
    allowed_writers: npt.NDArray[np.bool_] | None

    @property
    def is_read(self) -> bool:
        return self.rule.access != "write"

    @property
    def directions(self) -> tuple[str, ...]:
        return WAYS[self.rule.access]

    @property
    def place(self) -> Place:
        return Place(self.store.elements, self.store.dtype, self.store.entry_elements)

    def check_defined(
        self, where: Region, address: int, event: CallEvent, writers: Mapping[str, int]
    ) -> None:
        """Raise unless every entry read is defined, and by an allowed writer."""
        low, high = address + where.low, address + where.high + 1
        last = self.store.writer[low:high]
        rule = self.allowed_writers
        if (last >= 0).all() if rule is None else rule[last].all():
            return
        entries = np.arange(low, high) if where.offsets is None else where.offsets + address
        last = self.store.writer[entries]
        undefined = last < 0
        if undefined.any():
            entry = int(entries[int(np.argmax(undefined))])
            raise call_error(
                "H717",
                f"operand {self.rule.name} reads an entry that nothing has written",
                event,
                found=f"{self.store.name}[{entry}], {int(undefined.sum())} such entries",
                allowed="entries that a call has written before",
                repair=f"load or reset {self.buffer} first",
            )
        if rule is not None and not rule[last].all():
            index = int(np.argmin(rule[last]))
            names = {number: name for name, number in writers.items()}
            raise call_error(
                "H718",
                f"operand {self.rule.name} reads what the wrong call wrote last",
                event,
                found=f"{self.store.name}[{int(entries[index])}] was written by "
                f"{names.get(int(last[index]), 'the host')}",
                allowed=", ".join(self.rule.written_by),
            )

    def mark(self, where: Region, address: int, writer: int) -> None:
        """Record who wrote a region."""
        if where.offsets is None:
            self.store.writer[address + where.low : address + where.high + 1] = writer
        else:
            self.store.writer[where.offsets + address] = writer


class State:
    """All stores of one run. `writers` numbers the intrinsics."""

    def __init__(self, program: Program, hardware: HardwareSpec) -> None:
        self.program = program
        self.hardware = hardware
        self.writers = {name: i for i, name in enumerate(hardware.intrinsic, HOST + 1)}
        self.memories = {
            m.name: Store.poisoned(m.name, m.dtype, m.capacity_entries, m.entry_shape)
            for m in hardware.of_kind("scratchpad")
        }
        self.images: dict[str, Store] = {}

    def forget(self, *, own: bool = False) -> None:
        """Nothing that was written to the chip's own memories is there any more; `own`: to those
        of which each worker has its own."""
        for name, store in self.memories.items():
            if own and self.hardware.memory[name].shared_by != "thread":
                continue
            np.ndarray(store.elements.nbytes, np.uint8, store.elements.data)[...] = POISON
            store.writer[...] = NOBODY

    def own_copies(self) -> dict[str, Store]:
        """Those memories as they are."""
        return {
            name: replace(store, elements=np.array(store.elements), writer=np.array(store.writer))
            for name, store in self.memories.items()
            if self.hardware.memory[name].shared_by == "thread"
        }

    def put_back(self, copies: Mapping[str, Store]) -> None:
        """Have memories as copies of them are."""
        for name, copy in copies.items():
            self.memories[name].elements[...] = copy.elements
            self.memories[name].writer[...] = copy.writer

    def place(self, image: Image, packed: Array | None) -> None:
        """Put an image off chip: the host's, or poisoned."""
        if packed is None:
            store = Store.poisoned(image.name, image.dtype, image.entries, image.lanes)
        else:
            writer = np.full(image.entries, HOST, np.int16)
            store = Store(image.name, image.dtype, image.lanes, packed.ravel(), writer)
        self.images[image.name] = store

    def pad(self, image: Image, entries: npt.NDArray[np.bool_]) -> None:
        """Let the host put zero into some entries of an image."""
        store = self.images[image.name]
        np.reshape(store.elements, (image.entries, store.entry_elements))[entries] = 0
        store.writer[entries] = HOST

    def operand(self, given: CallOperand, rule: Operand, span: int, site: str) -> SiteOperand:
        """Resolve an operand of a call site that touches `span` entries at once.

        Raises:
            HwgenError: H728, no such buffer or image in that memory, or other entries.
        """
        if rule.memory in self.memories:
            store = self.memories[rule.memory]
            buffer = self.program.buffer.get(given.buffer)
            if buffer is None or buffer.memory != rule.memory:
                held = [b.name for b in self.program.buffers if b.memory == rule.memory]
                raise _unknown(given, rule, site, held)
            tensor, base = buffer.tensor, buffer.base
            entries, slot_entries = buffer.end - buffer.base, buffer.slot_entries
            slot_stride = buffer.stride
        else:
            image = self.program.image.get(given.buffer)
            if image is None:
                raise _unknown(given, rule, site, list(self.program.image))
            store = self.images[image.name]
            tensor, base, entries, slot_entries = image.tensor, 0, image.entries, image.entries
            slot_stride = slot_entries
        entry = rule.entry_shape
        if entry != store.entry_shape or rule.dtype != store.dtype:
            raise HwgenError(
                "H728",
                f"a malformed call: operand {rule.name} of {store.name}",
                field=site,
                found=f"{store.dtype}{list(store.entry_shape)} entries",
                allowed=f"{rule.dtype}{list(entry)}",
            )
        return SiteOperand(
            rule=rule,
            buffer=given.buffer,
            tensor=tensor,
            store=store,
            span=span,
            base=base,
            entries=entries,
            slot_entries=slot_entries,
            slot_stride=slot_stride,
            allowed_writers=self._allowed_writers(rule),
        )

    def _allowed_writers(self, rule: Operand) -> npt.NDArray[np.bool_] | None:
        if not rule.written_by:
            return None
        # One element more: index NOBODY (-1) finds it, and it is never allowed.
        allowed = np.zeros(len(self.writers) + 2, np.bool_)
        allowed[[self.writers[name] for name in rule.written_by]] = True
        return allowed


def _unknown(given: CallOperand, rule: Operand, site: str, known: list[str]) -> HwgenError:
    return HwgenError(
        "H728",
        f"a malformed call: operand {rule.name} names nothing in {rule.memory}",
        field=site,
        found=given.buffer,
        allowed=", ".join(known) or f"nothing lies in {rule.memory}",
    )
