"""Accesses of one call to interleaved banks: how many cycles the banks take to serve them.

Iterations access together, `iterations_per_cycle` at a time, in the order of the hardware loops.
Every bank serves as many entries per cycle as it has ports; an entry of one operand that several
iterations want is served once. A group takes as long as its busiest bank, and no less than a cycle.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from math import prod
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hwgen.spec.hardware import HardwareSpec, Intrinsic, Operand
from hwgen.spec.memory import Access, Banks


class Touched(NamedTuple):
    """An operand's entries in a memory with interleaved banks: `address` of the first, modulo the
    banks' turn, the step per hardware loop, and consecutive entries per iteration."""

    memory: str
    banks: Banks
    access: Access
    address: int
    strides: tuple[int, ...]
    span: int


def banked_operands(
    intrinsic: Intrinsic, hardware: HardwareSpec
) -> Iterator[tuple[Operand, Banks, int]]:
    """Each operand whose accesses wait for banks, these, and its entries per iteration."""
    if not intrinsic.iterations_per_cycle:
        return
    for operand in intrinsic.operands:
        memory = hardware.memory[operand.memory]
        if memory.banks is not None:
            yield operand, memory.banks, operand.span


def touched_banks(
    operands: Sequence[tuple[Operand, Banks, int]], values: Sequence[int]
) -> tuple[Touched, ...]:
    """What a call touches of `banked_operands`; `values`: of each, the address of the first entry
    modulo the banks' turn, and the step per hardware loop."""
    each = len(values) // max(1, len(operands))
    found: list[Touched] = []
    for n, (operand, banks, span) in enumerate(operands):
        address, *strides = values[n * each : (n + 1) * each]
        at = (operand.memory, banks, operand.access, address, tuple(strides), span)
        found.append(Touched(*at))
    return tuple(found)


@lru_cache(maxsize=4096)
def served_cycles(at_once: int, extents: tuple[int, ...], operands: tuple[Touched, ...]) -> int:
    """Cycles in which banks serve a call's accesses, `at_once` iterations at a time.

    `extents`: of the hardware loops, outermost first.
    """
    at_once = min(at_once, prod(extents))
    groups = -(-prod(extents) // at_once)
    wanted: dict[tuple[str, str], NDArray[np.int64]] = {}
    needed = np.ones(groups, np.int64)
    for touched in operands:
        counts = _counts(_entries(extents, touched, at_once), touched.banks)
        for kind, ports in touched.banks.ports(touched.access):
            key = touched.memory, kind
            wanted[key] = wanted.get(key, 0) + counts
            needed = np.maximum(needed, -(-wanted[key].max(axis=1) // ports))
    return int(needed.sum())


def _entries(extents: Sequence[int], touched: Touched, at_once: int) -> NDArray[np.int64]:
    """Entries of an operand that each group of iterations wants, a row per group."""
    entries: NDArray[np.int64] = np.full((1,), touched.address, np.int64)
    for extent, stride in zip(extents, touched.strides, strict=True):
        entries = (entries[:, None] + stride * np.arange(extent)).ravel()
    # What the last group lacks is filled up with an entry that it wants anyway.
    groups = -(-len(entries) // at_once)
    positions = np.arange(groups)[:, None] * at_once + np.arange(at_once)
    grouped = entries[np.minimum(positions, len(entries) - 1)]
    return np.concatenate([grouped + n for n in range(touched.span)], axis=1)


def _counts(entries: NDArray[np.int64], banks: Banks) -> NDArray[np.int64]:
    """Different entries that each row wants of each bank."""
    ordered = np.sort(entries, axis=1)
    first = np.ones(ordered.shape, np.bool_)
    first[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    counts = np.zeros((len(ordered), banks.ways), np.int64)
    rows = np.broadcast_to(np.arange(len(ordered))[:, None], ordered.shape)
    ways = ordered // banks.run % banks.ways
    np.add.at(counts, (rows[first], ways[first]), 1)
    return counts
