"""Memories of a chip: off chip, scratchpads that calls address, workspaces of processors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Literal

from hwgen.errors import Location
from hwgen.spec.expression import DTYPES

Access = Literal["read", "write", "update"]
WAYS: Mapping[Access, tuple[Literal["read", "write"], ...]] = {
    "read": ("read",), "write": ("write",), "update": ("read", "write"),
}  # fmt: skip
"""What an access does with its memory."""

Level = Literal["kernel", "block", "thread"]
"""Who shares something: the whole kernel, the threads of one block, or one thread alone."""

MemoryKind = Literal["offchip", "scratchpad", "workspace"]

BANK_CYCLES = "bank_cycles"
"""What `cycles` calls the cycles that interleaved banks take to serve a call's accesses."""


@dataclass(frozen=True, slots=True)
class Banks:
    """Physical banks of a memory: bank `b` holds the addresses `b * entries` to
    `(b + 1) * entries - 1`.

    Every bank serves `read_ports` calls that read and `write_ports` that write at once, or, where
    `shared_ports` is not 0, that many calls whatever they do.

    Interleaved banks are the `ways` of one bank that is the whole memory: runs of `run` consecutive
    entries lie in them in turn. A call holds a port of all of them; how its own accesses share them
    is in its `bank_cycles`.
    """

    count: int
    entries: int
    read_ports: int = 0
    write_ports: int = 0
    shared_ports: int = 0
    ways: int = 1
    run: int = 1

    def of(self, address: int) -> int:
        """The bank of an address."""
        return address // self.entries

    def way(self, address: int) -> int:
        """Which of the ways an address is in."""
        return address // self.run % self.ways

    @property
    def turn(self) -> int:
        """Entries after which the ways are the same again."""
        return self.ways * self.run

    def ports(self, access: Access) -> tuple[tuple[str, int], ...]:
        """Kinds of ports that an access holds, one of each, and how many there are."""
        if self.shared_ports:
            return (("any", self.shared_ports),)
        own = {"read": self.read_ports, "write": self.write_ports}
        return tuple((way, own[way]) for way in WAYS[access])

    def contended(self, access: Access) -> frozenset[str]:
        """Kinds of ports that an access holds and of which there is one only."""
        return frozenset(kind for kind, count in self.ports(access) if count == 1)

    def __str__(self) -> str:
        if self.shared_ports:
            ports = f"{self.shared_ports} port{'s' if self.shared_ports > 1 else ''}"
        else:
            ports = f"{self.read_ports} read and {self.write_ports} write ports"
        if self.ways > 1:
            turns = "every entry" if self.run == 1 else f"every {self.run} entries"
            return f"{self.ways} banks, the next {turns}, {ports} each"
        return f"{self.count} banks of {self.entries} entries, {ports} each"


@dataclass(frozen=True, slots=True)
class Memory:
    """One address space. An address selects one entry: a dense array of `entry_shape` elements, or
    a byte, of any type, where the memory has no `dtype`.

    `entry_shape` is `()` where single elements are addressed. Off-chip memory has no capacity,
    dtype or entry of its own: one address step is what an operand covers at once, or a single
    element (`by_element`). A workspace without a limit has a capacity of 0.
    `shared`: the host's own off-chip memory, whose pointers calls take; rearranging is work.
    `banks` is None where any number of calls may use the memory at once.
    `literal`: a register file, whose addresses are numbers in the C code. `shared_by`: who sees one
    buffer, of a scratchpad "kernel" or the "thread" that has units of its own. `align_bytes`:
    of every buffer or image. `read_energy`, `write_energy`: picojoules of a byte that calls access.
    `area`: square millimetres; it changes no kernel.

    Templates, "" for none: `declare` what declares it, or its entries; of a workspace, `allocate`
    and `free` a buffer (`type`, `name`, `elements`, `bytes`, `address_bytes`), and with `pool`
    (over `bytes`) the memory is one array, and every buffer has a fixed address in it.
    """

    name: str
    kind: MemoryKind
    location: Location = field(compare=False)
    dtype: str = ""
    entry_shape: tuple[int, ...] = ()
    capacity_entries: int = 0
    bus: str = ""
    identifiers: tuple[tuple[str, int | str], ...] = ()
    banks: Banks | None = None
    constants_only: bool = False
    shared: bool = False
    by_element: bool = False
    literal: bool = False
    shared_by: Level = "kernel"
    align_bytes: int = 1
    declare: str = ""
    allocate: str = ""
    free: str = ""
    pool: str = ""
    read_energy: float = 0.0
    write_energy: float = 0.0
    area: float = field(default=0.0, compare=False)

    @property
    def entry_elements(self) -> int:
        return prod(self.entry_shape)

    @property
    def entry_bytes(self) -> int:
        return self.entry_elements * DTYPES[self.dtype] if self.dtype else 1

    def access_energy(self, access: Access) -> float:
        """Picojoules of each byte of an operand that calls access so."""
        own = {"read": self.read_energy, "write": self.write_energy}
        return sum(own[way] for way in WAYS[access])

    @property
    def capacity_bytes(self) -> int:
        return self.capacity_entries * self.entry_bytes

    def bank_name(self, bank: int) -> str:
        """What reports call a bank, or all of them where they are interleaved."""
        together = self.banks is not None and self.banks.ways > 1
        return f"{self.name} banks" if together else f"{self.name} bank {bank}"
