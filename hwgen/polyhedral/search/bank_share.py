"""How much of a transfer cannot run beside the unit that accumulates, for want of ports of banks.

A closed form for the search; where buffers really lie, and what that costs, is decided later. Slots
of one depth take turns together and can be spread over the same banks; those of another depth, and
what has a single slot, need banks of their own.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from hwgen.polyhedral.match.operations import Operation
from hwgen.spec.hardware import HardwareSpec

HALF = 0.5
"""Part of a transfer that finds its bank taken where there are banks, but too few: a guess of the
search, before buffers have places; what each chip makes of it is simulated."""

Numbers = Mapping[str, NDArray[np.int64]]


def bank_shares(
    hardware: HardwareSpec,
    operations: tuple[Operation, ...],
    anchor: str,
    placement: Mapping[str, int],
    slots: Numbers,
    entries: Numbers,
) -> dict[str, NDArray[np.float64]]:
    """For each storage that other units than `anchor` move, from 0 (beside it) to 1 (never).

    `placement`: depth of each storage; `slots`, `entries`: for each point of the grid.
    """
    shares: dict[str, NDArray[np.float64]] = {}
    for memory in hardware.of_kind("scratchpad"):
        banks = memory.banks
        if banks is None:
            continue
        used: dict[str, frozenset[str]] = {}
        moved: dict[str, frozenset[str]] = {}
        for operation in operations:
            for operand, name in zip(operation.intrinsic.operands, operation.storages, strict=True):
                if operand.memory == memory.name and name in placement:
                    kinds = banks.contended(operand.access)
                    into = used if operation.intrinsic.unit == anchor else moved
                    into[name] = into.get(name, frozenset()) | kinds
        taken = frozenset(kind for kinds in used.values() for kind in kinds)
        short = _short(banks.count, banks.entries, placement, slots, entries, sorted(used | moved))
        for name, kinds in moved.items():
            if kinds & taken:
                share = 1.0 if banks.count == 1 else HALF
                shares[name] = np.where(short, share, 0.0)
    return shares


def _short(
    count: int,
    size: int,
    placement: Mapping[str, int],
    slots: Numbers,
    entries: Numbers,
    names: list[str],
) -> NDArray[np.bool_]:
    """Where there are too few banks for every depth's slots to have their own."""
    needed = np.zeros(1, np.int64)
    single = np.zeros(1, np.int64)
    for depth in sorted({placement[n] for n in names}):
        turns = np.zeros(1, np.int64)
        together = np.zeros(1, np.int64)
        for name in names:
            if placement[name] == depth:
                double = slots[name] > 1
                turns = np.maximum(turns, np.where(double, slots[name], 0))
                together = together + np.where(double, entries[name], 0)
                single = single + np.where(double, 0, slots[name] * entries[name])
        needed = needed + turns * -(-together // size)
    return needed + -(-single // size) > count
