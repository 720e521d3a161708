"""Which entries of which memory each call touches, as unions of atoms.

An atom is a set of entries that every footprint seen so far contains whole or not at all, so that
bookkeeping per atom is exact, and short however large the buffers are.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from hwgen.codegen.nodes import Call, calls
from hwgen.codegen.program import MicroKernelDef, Program
from hwgen.spec.expression import Const
from hwgen.spec.hardware import HardwareSpec, Operand

from .costs import call_span
from .periodicity import Use, Watched
from .stream import Operation, check_variant

Entries = npt.NDArray[np.int64]
Instance = tuple[Operation, tuple[int, ...]]
"""An executed operation and the values of the loop variables."""


class Space:
    """The atoms of one memory or off-chip image, and each atom's latest accesses by unit.

    `writes[atom][unit]` and `reads[atom][unit]` count the unit's operations up to the access;
    `last_write` and `last_read` name it.
    """

    def __init__(self, name: str, entries: int, units: int, *, onchip: bool) -> None:
        self.name = name
        self.onchip = onchip
        self.units = units
        # Those that read and do not write in a call.
        self.readers: list[int] = []
        self.labels: Entries = np.zeros(entries, np.int64)
        self.atoms: list[list[int]] = []
        self.footprints: list[Entries] = []
        self._known: dict[bytes, int] = {}
        # Of each atom, its entries and the footprints that it is in.
        self._sizes = [entries]
        self._holders: list[list[int]] = [[]]
        self.writes: list[list[int]] = [[0] * units]
        self.reads: list[list[int]] = [[0] * units]
        self.last_write: list[list[Instance | None]] = [[None] * units]
        self.last_read: list[list[Instance | None]] = [[None] * units]

    def footprint(self, entries: Entries) -> int:
        """Register a set of entries; equal sets have one number."""
        if entries.size and int(entries[-1]) >= self.labels.size:
            more = int(entries[-1]) + 1 - self.labels.size
            self.labels = np.concatenate((self.labels, np.zeros(more, np.int64)))
            self._sizes[0] += more
        key = entries.tobytes()
        if key in self._known:
            return self._known[key]
        inside, counts = np.unique(self.labels[entries], return_counts=True)
        mine: list[int] = []
        for atom, count in zip(inside.tolist(), counts.tolist(), strict=True):
            if count == self._sizes[atom]:
                mine.append(atom)
            else:
                mine.append(self._split(atom, entries))
            self._holders[mine[-1]].append(len(self.atoms))
        self._known[key] = len(self.atoms)
        self.atoms.append(mine)
        self.footprints.append(entries)
        return len(self.atoms) - 1

    def _split(self, atom: int, entries: Entries) -> int:
        new = len(self.writes)
        chosen = entries[self.labels[entries] == atom]
        self.labels[chosen] = new
        self._sizes[atom] -= chosen.size
        self._sizes.append(chosen.size)
        for rows in (self.writes, self.reads):
            rows.append(list(rows[atom]))
        for names in (self.last_write, self.last_read):
            names.append(list(names[atom]))
        self._holders.append(list(self._holders[atom]))
        for footprint in self._holders[atom]:
            self.atoms[footprint].append(new)
        return new


@dataclass(frozen=True, slots=True)
class _Access:
    """An operand of an intrinsic. `memory`: "" off chip."""

    position: int
    name: str
    memory: str
    writes: bool

    @staticmethod
    def of(hardware: HardwareSpec, position: int, operand: Operand) -> _Access:
        memory = hardware.memory[operand.memory]
        name = "" if memory.kind == "offchip" else memory.name
        return _Access(position, operand.name, name, operand.access != "read")

    def place(self, call: Call) -> str:
        """The memory or off-chip image that a call's operand lies in."""
        return self.memory or next(o.buffer for o in call.operands if o.name == self.name)


class FootprintCosts:
    """`Costs` of the synchronisation checker: every address that another unit may conflict with;
    `offchip`: also of images off chip. `renames`: nobody waits for who reads, so that where a call
    reads matters only while it may wait for who wrote there."""

    def __init__(
        self,
        program: Program,
        hardware: HardwareSpec,
        *,
        offchip: bool = True,
        renames: bool = False,
    ) -> None:
        self._renames = renames
        self.program = program
        self.hardware = hardware
        self._units = {unit.name: i for i, unit in enumerate(hardware.units)}
        self._identity = 0
        count = len(hardware.units)
        self.spaces: list[Space] = []
        self._space: dict[str, int] = {}
        self._accesses = {
            i.name: [_Access.of(hardware, n, o) for n, o in enumerate(i.operands)]
            for i in hardware.intrinsics
        }
        # Of what was met before: space, first entry and loops, and the footprint's number.
        self._known: dict[tuple[int, int, tuple[tuple[int, int], ...]], int] = {}
        users: dict[str, set[tuple[str, bool]]] = {}
        for call in calls(program.body):
            unit = hardware.intrinsic[call.intrinsic].unit
            for access in self._accesses[call.intrinsic]:
                users.setdefault(access.place(call), set()).add((unit, access.writes))
        for place, accesses in users.items():
            if len({unit for unit, _ in accesses}) < 2 or not any(w for _, w in accesses):
                continue
            memory = hardware.memory.get(place)
            if memory is None and not offchip:
                continue
            entries = memory.capacity_entries if memory else program.image[place].entries
            self._space[place] = len(self.spaces)
            self.spaces.append(Space(place, entries, count, onchip=memory is not None))
            readers = {self._units[unit] for unit, writes in accesses if not writes}
            self.spaces[-1].readers = sorted(readers)

    def watched(self, call: Call) -> tuple[Watched, ...]:
        if call.kernel:
            return (Watched(call.variant if call.variant is not None else Const(0)),)
        unit = self._units[self.hardware.intrinsic[call.intrinsic].unit]
        found = [Watched(extent) for extent in call.extents]
        for access in self._accesses[call.intrinsic]:
            if access.place(call) in self._space:
                source = next(o for o in call.operands if o.name == access.name)
                place = Use(self._space[access.place(call)], unit, access.writes)
                read = place if self._renames and not access.writes else None
                found += [Watched(e, read=read) for e in (source.address, *source.strides)]
        return tuple(found)

    def touched(self, call: Call) -> tuple[Use, ...]:
        unit = self._units[self.hardware.intrinsic[call.intrinsic].unit]
        found = [(self._space.get(a.place(call), -1), a) for a in self._accesses[call.intrinsic]]
        return tuple([Use(space, unit, a.writes) for space, a in found if space >= 0])

    def operation(self, call: Call, values: tuple[int, ...]) -> Operation:
        intrinsic = self.hardware.intrinsic[call.intrinsic]
        touches: list[tuple[int, int, bool]] = []
        position = len(call.extents)
        for access in self._accesses[call.intrinsic]:
            space = self._space.get(access.place(call))
            if space is None:
                continue
            if call.kernel:
                kernel = self.program.kernel[call.kernel]
                check_variant(kernel, values[0], call.site)
                i = access.position
                base = kernel.bases[values[0]][i]
                loops = tuple((x.extent, x.strides[i]) for x in (*kernel.loops, *kernel.sequence))
            else:
                base, *strides = values[position : position + 1 + len(call.extents)]
                position += 1 + len(call.extents)
                loops = tuple(zip(values[: len(call.extents)], strides, strict=True))
            entries = call_span(intrinsic, intrinsic.operands[access.position], call)
            key = (space, base, (*loops, (entries, 1)))
            if key not in self._known:
                self._known[key] = self.spaces[space].footprint(base + _offsets(key[2]))
            touches.append((space, self._known[key], access.writes))
        self._identity += 1
        return Operation(
            self._identity, self._units[intrinsic.unit], intrinsic.name, call.site,
            touches=tuple(touches),
        )  # fmt: skip

    def kernel_load(self, call: Call, kernel: MicroKernelDef, first: int) -> Operation:
        del kernel, first
        intrinsic = self.hardware.intrinsic[call.intrinsic]
        assert intrinsic.micro_kernel is not None
        self._identity += 1
        name = intrinsic.micro_kernel.load_name
        return Operation(self._identity, self._units[intrinsic.unit], name, call.site)


@lru_cache(maxsize=64)
def _offsets(loops: tuple[tuple[int, int], ...]) -> Entries:
    """Sorted distinct addresses of an access that starts at 0."""
    addresses = np.zeros(1, np.int64)
    for extent, stride in loops:
        if extent > 1 and stride:
            steps = np.arange(extent, dtype=np.int64) * stride
            addresses = np.unique((addresses[:, None] + steps).ravel())
    return addresses
