"""Banks of memories, and the accesses of one call that they serve at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hwgen.spec.context import Context
from hwgen.spec.expression import names
from hwgen.spec.memory import BANK_CYCLES, Banks, Memory
from hwgen.spec.schema import BanksSchema, IntrinsicSchema, PortsSchema
from hwgen.spec.source import FieldPath


def resolve_banks(context: Context, memory: Memory, banks: BanksSchema) -> Banks:
    """The banks of a memory.

    Raises:
        HwgenError: H026 where a number is out of range, H114 where banks are not equally large or
            not whole runs of entries.
    """
    path: FieldPath = ("memories", memory.name, "banks")
    whole = memory.capacity_entries
    count = context.integer(banks.count, (*path, "count"), 1)
    if banks.bytes is not None:
        run = context.integer(banks.bytes, (*path, "bytes"), 1)
        return Banks(1, whole, ways=count, run=run)
    run = context.integer(banks.interleave, (*path, "interleave"), 0)
    if whole % count:
        raise context.error(
            "H114", f"the banks of {memory.name!r} are not equally large", (*path, "count"),
            found=f"{count} banks for {whole} entries",
            allowed="a divisor of the entries", repair=f"write {_divisor(whole, count)}",
        )  # fmt: skip
    entries = whole // count
    if run and entries % run:
        raise context.error(
            "H114", f"the banks of {memory.name!r} are no whole runs of entries",
            (*path, "interleave"), found=f"runs of {run} in banks of {entries} entries",
            allowed="a divisor of a bank's entries", repair=f"write {_divisor(entries, run)}",
        )  # fmt: skip
    made = Banks(1, whole, ways=count, run=run) if run else Banks(count, entries)
    ports = banks.ports
    if isinstance(ports, PortsSchema):
        read = context.integer(ports.read, (*path, "ports", "read"), 1)
        write = context.integer(ports.write, (*path, "ports", "write"), 1)
        return replace(made, read_ports=read, write_ports=write)
    assert ports is not None, "refused without"
    return replace(made, shared_ports=context.integer(ports, (*path, "ports"), 1))


def _divisor(of: int, below: int) -> int:
    """The largest divisor that is smaller."""
    return max(n for n in range(1, below) if not of % n)


def iterations_per_cycle(
    context: Context,
    path: FieldPath,
    fields: IntrinsicSchema,
    memories: Sequence[Memory],
) -> int:
    """How many iterations access banks at once; 0 where that is not said. `memories`: of the
    operands.

    Raises:
        HwgenError: H026 where it is no such number, H135 where no operand is in a memory with
            banks, in one whose banks are contiguous, or where something else repeats the call.
    """
    where = (*path, "iterations_per_cycle")
    count = context.integer(fields.iterations_per_cycle, where, 0)
    if not count:
        return 0
    parted = [m.name for m in memories if m.banks is not None and m.banks.count > 1]
    problem, repair = "", "remove iterations_per_cycle"
    if BANK_CYCLES not in names(context.parse(fields.cycles, (*path, "cycles"))):
        problem = f"its cycles do not name {BANK_CYCLES}"
        repair = f"cycles: {fields.cycles} + {BANK_CYCLES}, or remove iterations_per_cycle"
    if fields.micro_kernel is not None or fields.software_loops:
        problem = "its calls are repeated by a micro-kernel or by C loops"
    elif all(m.banks is None for m in memories):
        problem = "none of its operands is in a memory with banks"
        repair = "give the memory of one `banks` with `interleave`"
    elif parted:
        problem = f"the banks of {parted[0]!r} are contiguous"
        repair = f"add `interleave` to the banks of {parted[0]}"
    if problem:
        raise context.error(
            "H135", f"banks cannot serve its iterations together: {problem}", where, key=True,
            found=str(count), allowed="an operand in interleaved banks, and plain calls",
            repair=repair,
        )  # fmt: skip
    return count
