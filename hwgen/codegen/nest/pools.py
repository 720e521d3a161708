"""Addresses of buffers in memories that are one array, and whether all fits.

Buffers whose scopes are not inside one another are never alive together and may share bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from hwgen.codegen.nest.program import Allocate, Buffer, Node, inner
from hwgen.errors import HwgenError
from hwgen.spec.processor import Processor, Workspace


def plan(
    body: tuple[Node, ...], buffers: Mapping[str, Buffer], processor: Processor
) -> dict[str, Buffer]:
    """Every allocated buffer, with an address where its memory is a pool.

    Raises:
        HwgenError: H513 buffers alive together exceed their memory; H514 an address that was set
            by hand does not fit; H515 a bank that does not exist.
    """
    chains = list(_chains(body, ()))
    result = dict(buffers)
    for memory in processor.workspaces:
        own = [tuple(n for n in c if buffers[n].memory == memory.name) for c in chains]
        own = [c for c in own if c]
        order = list(dict.fromkeys(n for c in own for n in c))
        for name in order:
            _check_bank(buffers[name], memory)
        if memory.pool:
            _place(order, own, result, memory)
        _check_capacity(own, result, memory)
        if not memory.pool:
            for name in order:
                if buffers[name].address_bytes is not None:
                    raise _misplaced(buffers[name], f"{memory.name} has no fixed addresses")
    return result


def _chains(body: tuple[Node, ...], outer: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Buffers that are alive together, one tuple per innermost scope."""
    for node in body:
        if isinstance(node, Allocate):
            yield (*outer, node.buffer)
            yield from _chains(node.body, (*outer, node.buffer))
        else:
            yield from _chains(inner(node), outer)


def _place(
    order: list[str], chains: list[tuple[str, ...]], result: dict[str, Buffer], memory: Workspace
) -> None:
    """First fit, those with an address first, then in the order of their scopes."""
    done: list[str] = []
    fixed = [n for n in order if result[n].address_bytes is not None]
    for name in fixed + [n for n in order if n not in fixed]:
        buffer = result[name]
        together = [n for n in done if any(n in c and name in c for c in chains)]
        taken = [(_start(result[n]), _start(result[n]) + result[n].bytes, n) for n in together]
        if name in fixed:
            _check_fixed(buffer, taken, memory)
        else:
            address = _first(buffer, taken, memory)
            result[name] = replace(buffer, address_bytes=address)
        done.append(name)


def _start(buffer: Buffer) -> int:
    assert buffer.address_bytes is not None
    return buffer.address_bytes


def _first(buffer: Buffer, taken: list[tuple[int, int, str]], memory: Workspace) -> int:
    """The least allowed address at which a buffer overlaps nothing."""
    address = _next(0, buffer, memory)
    for start, stop, _ in sorted(taken):
        if address < stop and start < address + buffer.bytes:
            address = _next(stop, buffer, memory)
    return address


def _next(least: int, buffer: Buffer, memory: Workspace) -> int:
    """The least address from `least` on that is aligned and, where asked for, in the bank."""
    address = -(-least // memory.align_bytes) * memory.align_bytes
    while not _in_bank(address, buffer, memory):
        address += memory.align_bytes
    return address


def _in_bank(address: int, buffer: Buffer, memory: Workspace) -> bool:
    return buffer.bank is None or address // memory.bank_bytes % memory.banks == buffer.bank


def _check_bank(buffer: Buffer, memory: Workspace) -> None:
    if buffer.bank is None:
        return
    starts = range(0, memory.banks * memory.bank_bytes * memory.align_bytes, memory.align_bytes)
    reachable = bool(memory.pool) and any(
        a // memory.bank_bytes % memory.banks == buffer.bank for a in starts
    )
    if not reachable:
        raise HwgenError(
            "H515",
            f"{buffer.tensor} cannot start in bank {buffer.bank} of {memory.name}",
            found=f"{memory.banks} banks of {memory.bank_bytes} bytes, aligned to "
            f"{memory.align_bytes}" + ("" if memory.pool else ", no fixed addresses"),
            allowed="a bank in which an aligned address lies",
            repair="another bank, or none",
        )


def _misplaced(buffer: Buffer, why: str) -> HwgenError:
    return HwgenError(
        "H514",
        f"{buffer.tensor} cannot be at address {buffer.address_bytes}",
        found=why,
        allowed="an aligned address where no buffer lives at the same time",
        repair="another address, or none",
    )


def _check_fixed(buffer: Buffer, taken: list[tuple[int, int, str]], memory: Workspace) -> None:
    start = _start(buffer)
    if start < 0 or start % memory.align_bytes:
        raise _misplaced(buffer, f"{memory.name} aligns buffers to {memory.align_bytes} bytes")
    if not _in_bank(start, buffer, memory):
        raise _misplaced(buffer, f"it was set to bank {buffer.bank}")
    for first, stop, name in taken:
        if start < stop and first < start + buffer.bytes:
            raise _misplaced(buffer, f"{name} has bytes {first} to {stop - 1}")


def _check_capacity(
    chains: list[tuple[str, ...]], buffers: Mapping[str, Buffer], memory: Workspace
) -> None:
    if not memory.capacity_bytes:
        return
    align = memory.align_bytes

    def used(chain: tuple[str, ...]) -> int:
        found = [buffers[n] for n in chain]
        if memory.pool:
            return max(_start(b) + b.bytes for b in found)
        return sum(-(-b.bytes // align) * align for b in found)

    most = max(chains, key=lambda chain: (used(chain), len(chain)), default=())
    if most and used(most) > memory.capacity_bytes:
        shown = "; ".join(
            f"{b.name} {b.bytes} bytes ({b.slots} x {b.slot_elements} {b.dtype})"
            for b in (buffers[n] for n in most)
        )
        raise HwgenError(
            "H513",
            f"buffers exceed {memory.name}",
            location=memory.location,
            field=f"memories.{memory.name}",
            found=f"{used(most)} bytes, aligned to {align}: {shown}",
            allowed=f"{memory.capacity_bytes} bytes of {memory.name} ({memory.location})",
            repair=f"smaller tiles, fewer slots, another memory for one of them, or a memory "
            f"{memory.name} of at least {used(most)} bytes",
        )
