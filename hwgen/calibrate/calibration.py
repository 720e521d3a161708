"""Calibration: kernels are compiled and run, costs are fitted, and both predictions are kept."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from math import isfinite
from pathlib import Path

import numpy as np

from hwgen.calibrate import counted, timed
from hwgen.calibrate.costs import Cost, Model, costs_of, predicted, with_costs
from hwgen.calibrate.fit import fitted, loss
from hwgen.calibrate.kernels import Progress, Sample
from hwgen.calibrate.tools import Tools, find_tools
from hwgen.errors import HwgenError
from hwgen.model.compiled import refuse_foreign
from hwgen.model.reference import random_inputs
from hwgen.spec.hardware import HardwareSpec

ROUNDS = 6
"""Fits at most, each where the last one ended: the model is linear only piece by piece."""
STEPS = (1.0, 0.5, 0.25)
"""Shares of the way to a fit that are tried."""
NO_BETTER = 0.999
"""Least share by which a fit must lower the loss."""


@dataclass(frozen=True, slots=True)
class Proposal:
    """A cost with its proposed value and standard error, None if no kernels determine it.
    `kernels`: how many need it."""

    cost: Cost
    kernels: int
    value: float | None = None
    error: float | None = None


@dataclass(frozen=True, slots=True)
class Measured:
    """A measurement, and predictions with the spec's costs and with the proposed ones."""

    sample: Sample
    measured: float
    before: float
    after: float


@dataclass(frozen=True, slots=True)
class Calibration:
    """Proposed costs of a chip's processor, and the kernels that they come from."""

    hardware: HardwareSpec
    tools: Tools
    proposals: tuple[Proposal, ...]
    kernels: tuple[Measured, ...]

    @property
    def unit(self) -> str:
        """What was measured."""
        return "instructions" if self.hardware.machine.instructions else "cycles"

    def errors(self, *, held_out: bool) -> tuple[list[float], list[float]]:
        """Relative errors of predictions with the spec's costs, and with the proposed ones."""
        own = [k for k in self.kernels if k.sample.held_out == held_out]
        before = [abs(k.before / k.measured - 1) for k in own]
        return before, [abs(k.after / k.measured - 1) for k in own]


def tools_for(
    hardware: HardwareSpec, compiler: Sequence[str], flags: Sequence[str], runner: Sequence[str]
) -> Tools:
    """The tools that calibrate a chip, by default as `find_tools` has them.

    Raises:
        HwgenError: H054 no costs to calibrate; as `find_tools`.
    """
    machine = hardware.processor
    if machine is None or machine.language != "c" or machine.function:
        raise HwgenError(
            "H054", "this chip has no costs that can be calibrated", location=hardware.location,
            field="processor", found="no processor" if machine is None else machine.language,
            allowed="a processor programmed in C, alone or beside units",
            repair="measure the costs of units with the chip's own tools",
        )  # fmt: skip
    counts = machine.instructions is not None
    given = tuple(flags) or (counted.FLAGS if counts else timed.FLAGS)
    return find_tools(compiler, given, runner, emulated=counts)


def measurements(samples: Sequence[Sample], tools: Tools, progress: Progress) -> list[float]:
    """Instructions or cycles of each kernel, in order. Times are taken one after the other.

    Raises:
        HwgenError: H055, H703, H704, H707 a kernel that cannot be compiled or run.
    """
    for sample in samples:
        refuse_foreign(sample.kernel.source.foreign)
    counts = all(s.kernel.hardware.machine.instructions for s in samples)
    found: list[float] = []
    with ThreadPoolExecutor(os.cpu_count() if counts else 1) as workers:
        for value in workers.map(partial(_measured, tools), samples):
            found.append(value)
            progress(len(found), len(samples))
    return found


def _measured(tools: Tools, sample: Sample) -> float:
    kernel, machine = sample.kernel, sample.kernel.hardware.machine
    source, inputs = kernel.source, random_inputs(kernel.workload, 0)
    with tempfile.TemporaryDirectory(prefix="hwgen-calibrate-") as name:
        if machine.instructions is None:
            cold = 4 * max((c.capacity_bytes for c in machine.caches), default=2**22)
            cycles = timed.cycles(source, inputs, tools, Path(name), cold)
            return cycles if cycles >= timed.LEAST else 0.0
        done = counted.executed(source.model or source.c, source, inputs, tools, Path(name))
        return done.matching(r"_code_\d" if source.model else f"^{source.function}$")


def calibrated(
    hardware: HardwareSpec, tools: Tools, samples: Iterable[Sample], measured: Iterable[float]
) -> Calibration:
    """Fit the costs of a chip's processor to measurements; those of 0 are left out.

    Raises:
        HwgenError: H056 too few kernels.
    """
    machine, costs = hardware.machine, costs_of(hardware.machine)
    kept = [(s, m) for s, m in zip(samples, measured, strict=True) if m]
    kernels = [s.kernel for s, _ in kept if not s.held_out]
    wanted = np.array([m for s, m in kept if not s.held_out])
    start = np.array([c.inverted(c.value) for c in costs])
    model = Model(kernels, machine, costs)
    derivatives = model.derivatives(start)
    uses = np.count_nonzero(derivatives, axis=0)
    best, errors, least = start, np.full(len(costs), np.inf), loss(model(start) / wanted - 1)
    for _ in range(ROUNDS):
        fit = fitted(derivatives, start, wanted)
        tried = [best + step * (fit.costs - best) for step in STEPS]
        losses = [loss(model(costs) / wanted - 1) for costs in tried]
        if min(losses) >= least * NO_BETTER:
            break
        least, best, errors = min(losses), tried[int(np.argmin(losses))], fit.errors
        derivatives = model.derivatives(best)
    proposals: list[Proposal] = []
    for cost, count, linear, error in zip(costs, uses, best, errors, strict=True):
        value = cost.inverted(float(linear))
        known = (value, float(error / linear) * value) if isfinite(error) else ()
        proposals.append(Proposal(cost, int(count), *known))
    values = [p.cost.value if p.value is None else p.value for p in proposals]
    changed = with_costs(machine, costs, values)
    found = [Measured(s, m, predicted(s.kernel, machine), predicted(s.kernel, changed))
             for s, m in kept]  # fmt: skip
    return Calibration(hardware, tools, tuple(proposals), tuple(found))
