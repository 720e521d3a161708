"""Accesses of one call to interleaved banks: how many cycles the banks take to serve them.

Iterations access together, `iterations_per_cycle` at a time, in the order of the hardware loops.
Every bank serves as many entries per cycle as it has ports; an entry of one operand that several
iterations want is served once. A group takes as long as its busiest bank, and no less than a cycle.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hwgen.codegen.nodes import Call, CallOperand
from hwgen.codegen.program import Program
from hwgen.spec.expression import Binary, Const, Expr, evaluate
from hwgen.spec.hardware import HardwareSpec, Intrinsic, Operand
from hwgen.spec.memory import Access, Banks

from .counting import SyncNode, Values, total


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


@dataclass(frozen=True, slots=True)
class SharedBanks:
    """A call site whose own accesses wait for each other. `lost`: cycles beyond those without any
    conflict, of all its calls; `operand`: the one that takes longest by itself; `memory`: where."""

    intrinsic: str
    site: int
    operand: str
    memory: str
    calls: int
    lost: int


def shared_banks(program: Program, hardware: HardwareSpec) -> tuple[SharedBanks, ...]:
    """The calls that lose cycles since their own accesses meet in a bank, by site."""
    banked = {i.name: list(banked_operands(i, hardware)) for i in hardware.intrinsics}
    users: dict[str, Call] = {}

    def at(call: Call) -> list[tuple[Operand, Banks, int, CallOperand]]:
        given = {o.name: o for o in call.operands}
        return [(o, banks, span, given[o.name]) for o, banks, span in banked[call.intrinsic]]

    def counted(node: Call | SyncNode) -> tuple[Expr, ...] | None:
        if not isinstance(node, Call) or not banked[node.intrinsic]:
            return None
        turns = (Binary("%", o.address, Const(banks.turn)) for _, banks, _, o in at(node))
        return (*node.extents, *turns, *(s for _, _, _, o in at(node) for s in o.strides))

    def leaf(node: Call | SyncNode, values: Values) -> dict[str, int]:
        assert isinstance(node, Call)
        extents = tuple(int(evaluate(e, values)) for e in node.extents)
        at_once = hardware.intrinsic[node.intrinsic].iterations_per_cycle
        touched: list[Touched] = []
        for operand, banks, span, given in at(node):
            address = int(evaluate(given.address, values)) % banks.turn
            strides = tuple(int(evaluate(s, values)) for s in given.strides)
            touched.append(Touched(operand.memory, banks, operand.access, address, strides, span))
        name = f"{node.site}"
        users[name] = node
        least = -(-prod(extents) // at_once)
        found = {name: 1, f"{name} lost": served_cycles(at_once, extents, tuple(touched)) - least}
        for (operand, *_), one in zip(at(node), touched, strict=True):
            found[f"{name} {operand.name}"] = served_cycles(at_once, extents, (one,)) - least
        return found

    sums = total(program.body, counted, leaf)
    result: list[SharedBanks] = []
    for name, call in sorted(users.items(), key=lambda item: item[1].site):
        if sums[f"{name} lost"]:
            operands = [o for o, *_ in banked[call.intrinsic]]
            worst = max(operands, key=lambda o: sums[f"{name} {o.name}"])
            result.append(
                SharedBanks(
                    call.intrinsic, call.site, worst.name, worst.memory, sums[name],
                    sums[f"{name} lost"],
                )
            )  # fmt: skip
    return tuple(result)
