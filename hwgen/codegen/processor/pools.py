"""Addresses of buffers in memories that are one array, and whether all fits.

Buffers that are never live together may share bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from hwgen.codegen.nodes import Allocate, Node, inner
from hwgen.codegen.processor.lives import Life, fitted, lives
from hwgen.codegen.storages import Array
from hwgen.errors import HwgenError
from hwgen.spec.hardware import HardwareSpec
from hwgen.spec.memory import Memory


def plan(
    body: tuple[Node, ...], buffers: Mapping[str, Array], hardware: HardwareSpec
) -> dict[str, Array]:
    """Every allocated buffer, with an address where its memory is a pool.

    Raises:
        HwgenError: H513 buffers alive together exceed their pool; H514 an address that was set by
            hand does not fit; H515 a bank that does not exist.
    """
    live = lives(body, hardware.machine)
    result = dict(buffers)
    for memory in hardware.of_kind("workspace"):
        order = [n for n in live if buffers[n].memory == memory.name]
        for name in order:
            _check_bank(buffers[name], memory)
        if memory.pool:
            _place(order, live, result, memory)
            _check_capacity(order, live, result, memory)
            continue
        for name in order:
            if buffers[name].address_bytes is not None:
                raise _misplaced(buffers[name], f"{memory.name} has no fixed addresses")
    return result


def chains(body: tuple[Node, ...], outer: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Buffers whose scopes are inside one another, one tuple per innermost scope."""
    for node in body:
        if isinstance(node, Allocate):
            yield (*outer, node.buffer)
            yield from chains(node.body, (*outer, node.buffer))
        else:
            yield from chains(inner(node), outer)


def _place(
    order: list[str], live: Mapping[str, Life], result: dict[str, Array], memory: Memory
) -> None:
    """Those with an address first, then in the order of their scopes, or the larger first where
    that takes less."""
    sizes = {n: result[n].bytes for n in order}
    fixed: dict[str, int] = {}
    for name in order:
        if (address := result[name].address_bytes) is not None:
            _check_fixed(result[name], address, [n for n in fixed if live[n].meets(live[name])],
                         fixed, sizes, memory)  # fmt: skip
            fixed[name] = address
    free = [n for n in order if n not in fixed]
    orders = free, sorted(free, key=lambda n: -sizes[n])
    found = fitted(orders, sizes, live, lambda n, least: _next(least, result[n], memory), fixed)
    result.update({n: replace(result[n], address_bytes=address) for n, address in found.items()})


def _next(least: int, buffer: Array, memory: Memory) -> int:
    """The least address from `least` on that is aligned and, where asked for, in the bank."""
    address = -(-least // memory.align_bytes) * memory.align_bytes
    while not _in_bank(address, buffer, memory):
        address += memory.align_bytes
    return address


def _in_bank(address: int, buffer: Array, memory: Memory) -> bool:
    if buffer.bank is None:
        return True
    return memory.banks is not None and memory.banks.way(address) == buffer.bank


def _check_bank(buffer: Array, memory: Memory) -> None:
    banks = memory.banks
    if buffer.bank is None:
        return
    starts = range(0, banks.turn * memory.align_bytes if banks else 0, memory.align_bytes)
    if not memory.pool or not any(_in_bank(a, buffer, memory) for a in starts):
        raise HwgenError(
            "H515",
            f"{buffer.tensor} cannot start in bank {buffer.bank} of {memory.name}",
            found=(f"{banks.ways} banks of {banks.run} bytes" if banks else "no banks")
            + f", aligned to "
            f"{memory.align_bytes}" + ("" if memory.pool else ", no fixed addresses"),
            allowed="a bank in which an aligned address lies",
            repair="another bank, or none",
        )


def _misplaced(buffer: Array, why: str) -> HwgenError:
    return HwgenError(
        "H514",
        f"{buffer.tensor} cannot be at address {buffer.address_bytes}",
        found=why,
        allowed="an aligned address where no buffer lives at the same time",
        repair="another address, or none",
    )


def _check_fixed(
    buffer: Array,
    start: int,
    met: Sequence[str],
    fixed: Mapping[str, int],
    sizes: Mapping[str, int],
    memory: Memory,
) -> None:
    """An address set by hand; `met`: those with one that live at the same time."""
    if start < 0 or start % memory.align_bytes:
        raise _misplaced(buffer, f"{memory.name} aligns buffers to {memory.align_bytes} bytes")
    if not _in_bank(start, buffer, memory):
        raise _misplaced(buffer, f"it was set to bank {buffer.bank}")
    for other in met:
        first, stop = fixed[other], fixed[other] + sizes[other]
        if start < stop and first < start + buffer.bytes:
            raise _misplaced(buffer, f"{other} has bytes {first} to {stop - 1}")


def _check_capacity(
    order: list[str], live: Mapping[str, Life], buffers: Mapping[str, Array], memory: Memory
) -> None:
    if not memory.capacity_bytes or not order:
        return
    stop = {n: (buffers[n].address_bytes or 0) + buffers[n].bytes for n in order}
    last = max(order, key=lambda n: stop[n])
    used = stop[last]
    if used > memory.capacity_bytes:
        raise exceeded(memory, used, [buffers[n] for n in order if live[n].meets(live[last])])


def exceeded(memory: Memory, used: int, found: Sequence[Array]) -> HwgenError:
    """The error of buffers that are alive together and exceed their memory."""
    shown = "; ".join(
        f"{b.name} {b.bytes} bytes ({b.slots} x {b.slot_elements} {b.dtype})" for b in found
    )
    return HwgenError(
        "H513",
        f"buffers exceed {memory.name}",
        location=memory.location,
        field=f"memories.{memory.name}",
        found=f"{used} bytes, aligned to {memory.align_bytes}: {shown}",
        allowed=f"{memory.capacity_bytes} bytes of {memory.name} ({memory.location})",
        repair=f"smaller tiles, fewer slots, another memory for one of them, or a memory "
        f"{memory.name} of at least {used} bytes",
    )
