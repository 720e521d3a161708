"""Bytes that a kernel moves, counted from its loops without running them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from hwgen.codegen.nodes import Call
from hwgen.codegen.program import Program
from hwgen.model.bound import offchip_accesses
from hwgen.model.columns import call_bytes
from hwgen.model.costs import entry_bytes
from hwgen.model.tally import executed
from hwgen.model.touched import Access, touched_entries
from hwgen.spec.hardware import HardwareSpec
from hwgen.spec.memory import WAYS


@dataclass(frozen=True, slots=True)
class MemoryTraffic:
    """Bytes that calls read from and write to one memory for one tensor."""

    memory: str
    tensor: str
    read: int
    written: int


def memory_traffic(program: Program, hardware: HardwareSpec) -> tuple[MemoryTraffic, ...]:
    """Bytes by memory and tensor, in the chip's order of memories.

    An operand counts once per iteration of its call; one that is updated is read and written.
    """

    found: Counter[tuple[str, str, str]] = Counter()
    for run in executed(program, hardware, Call, lambda c: () if c.kernel else c.extents):
        for memory, tensor, way, size in call_bytes(run.node, run.values, program, hardware):
            found[memory, tensor, way] += size * run.times
    pairs = {(memory, tensor) for memory, tensor, _ in found}
    order = [m.name for m in hardware.memories]
    return tuple(
        MemoryTraffic(m, t, found[m, t, "load"], found[m, t, "store"])
        for m, t in sorted(pairs, key=lambda pair: (order.index(pair[0]), pair[1]))
    )


def compulsory_bytes(program: Program, hardware: HardwareSpec) -> dict[str, int]:
    """Off-chip bytes by input and output if each entry that is touched crossed once in each
    direction.

    Exact, or too few, as in the lower bound (`model/bound.py`).
    """
    accesses: dict[tuple[str, str], list[Access]] = {}
    sizes: dict[tuple[str, str], int] = {}
    for _, buffer, operand, access in offchip_accesses(program, hardware):
        for way in WAYS[operand.access]:
            accesses.setdefault((buffer, way), []).append(access)
            sizes[buffer, way] = entry_bytes(operand)
    found: Counter[str] = Counter()
    for key, nested in accesses.items():
        image = program.image[key[0]]
        found[image.tensor] += touched_entries(nested, image.entries) * sizes[key]
    return dict(found)
