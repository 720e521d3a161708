"""Closed-form cycles of intrinsics and transfers, for the search."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hwgen.polyhedral.affine import Affine
from hwgen.polyhedral.matching import Match
from hwgen.polyhedral.operations import Operation
from hwgen.spec.expression import DTYPES, evaluate
from hwgen.spec.hardware import Bus, HardwareSpec, Intrinsic


@dataclass(frozen=True, slots=True)
class Rates:
    """An intrinsic's cycles as `fixed + per_iteration * iterations + per_transfer * transfer`."""

    fixed: float
    per_iteration: float
    per_transfer: float

    @staticmethod
    def of(intrinsic: Intrinsic) -> Rates:
        """The rates around a large call; formulas of other shape are linearised there."""
        free = {"bursts": 1, "beats": 1} | {loop.name: 1 for loop in intrinsic.loops}

        def cycles(iterations: int, transfer: int) -> float:
            return evaluate(
                intrinsic.cycles, free | {"iterations": iterations, "transfer": transfer}
            )

        # The step divides by every small number: the slope of a rounded quotient is then exact.
        at, step = cycles(1000, 1000), 840
        per_iteration = (cycles(1000 + step, 1000) - at) / step
        per_transfer = (cycles(1000, 1000 + step) - at) / step
        fixed = at - 1000 * per_iteration - 1000 * per_transfer
        return Rates(fixed, per_iteration, per_transfer)


def transfer_cycles(
    hardware: HardwareSpec,
    operation: Operation,
    match: Match,
    extents: Mapping[str, NDArray[np.int64]],
    coordinates: Sequence[Affine],
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Cycles of moving one box of a storage, and the bus beats that it takes."""
    intrinsic = operation.intrinsic
    offchip = next(o for o in intrinsic.operands if hardware.memory[o.memory].kind == "offchip")
    bus = hardware.bus[hardware.memory[offchip.memory].bus]
    lanes = int(np.prod(offchip.shape)) if offchip.shape else 1
    entry_bytes = lanes * DTYPES[offchip.dtype]
    box: list[NDArray[np.int64]] = []
    for c in coordinates:
        extent = np.ones(1, dtype=np.int64)
        for name, coefficient in c.terms:
            extent = extent + abs(coefficient) * (extents[name] - 1)
        box.append(extent)
    full = [c.interval(match.count)[1] + 1 for c in coordinates]
    run, total, block = np.ones(1), np.ones(1), np.ones(1)
    contiguous = np.ones(1, dtype=np.bool_)
    second = np.zeros(1, dtype=np.bool_)
    for extent, whole in zip(reversed(box), reversed(full), strict=True):
        total = total * extent
        run = np.where(contiguous, run * extent, run)
        # The first loop that does not continue the run is the transfer's second dimension.
        takes = ~contiguous & ~second & (extent > 1)
        block = np.where(contiguous, run, np.where(takes, block * extent, block))
        second = second | takes
        contiguous = contiguous & (extent == whole)
    calls = total / block
    rows = total / run
    rates = Rates.of(intrinsic)
    cycles, beats = _bus_cycles(bus, operation.kind == "store", rows, run, entry_bytes)
    return calls * (rates.fixed + 1) + rates.per_transfer * cycles, beats


def _bus_cycles(
    bus: Bus,
    write: bool,
    rows: NDArray[np.float64],
    run: NDArray[np.float64],
    entry_bytes: int,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    channel = bus.write if write else bus.read
    burst_bytes = min(bus.burst_beats * bus.beat_bytes, bus.burst_boundary_bytes)
    row_bytes = run * entry_bytes
    bursts = rows * np.ceil(row_bytes / burst_bytes)
    beats = rows * np.ceil(row_bytes / bus.beat_bytes)
    data = rows * run * channel.cycles_per_entry if channel.cycles_per_entry else beats
    if channel.in_flight_bursts == 1:
        return data + bursts * channel.latency_cycles, beats
    window = bursts * channel.latency_cycles / channel.in_flight_bursts
    return np.maximum(data, window) + channel.latency_cycles, beats
