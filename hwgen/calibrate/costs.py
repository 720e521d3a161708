"""Costs of a processor that can be calibrated, and the model's predictions with them.

Predictions are linear in the costs, or piecewise so where they are a maximum over resources. A rate
counts by its inverse, such as cycles per byte.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, cast

import numpy as np

from hwgen.calibrate.fit import Floats
from hwgen.passes.kernel import Kernel
from hwgen.polyhedral.tree.cost import estimate_nest
from hwgen.polyhedral.tree.idle_steps import plain
from hwgen.polyhedral.tree.instructions import retired
from hwgen.spec.processor import Instructions, Processor

STEP = 1e-3
"""Relative change of a cost for its derivative."""


@dataclass(frozen=True, slots=True)
class Cost:
    """A number of a spec. `path`: its keys under `processor`; `rate`: it counts by its inverse."""

    path: tuple[str, ...]
    value: float
    rate: bool = False

    def inverted(self, value: float) -> float:
        """From the spec's number to that in which the model is linear, and back."""
        return 1 / max(value, 1e-12) if self.rate else value


def costs_of(machine: Processor) -> tuple[Cost, ...]:
    """The instructions of scalar code where the spec counts them, else rates and cycles."""
    if machine.instructions is not None:
        given = machine.instructions
        names = [f.name for f in fields(Instructions) if f.name != "functions"]
        found = [Cost(("instructions", name), getattr(given, name)) for name in names]
        return (*found, *(Cost(("instructions", "functions", n), v) for n, v in given.functions))
    caches = [Cost(("caches", x.name, "bytes_per_cycle"), x.bytes_per_cycle, True)
              for x in machine.caches]  # fmt: skip
    starts = [Cost(("loops", x.name, "start_cycles"), x.start_cycles)
              for x in machine.loops if x.kind == "parallel"]  # fmt: skip
    return (
        Cost(("operations_per_cycle",), machine.operations_per_cycle, True),
        Cost(("iteration_cycles",), machine.iteration_cycles),
        *caches,
        Cost(("memory_bytes_per_cycle",), machine.memory_bytes_per_cycle, True),
        *starts,
    )


def with_costs(machine: Processor, costs: Sequence[Cost], values: Sequence[float]) -> Processor:
    """A processor with other numbers."""
    for cost, value in zip(costs, values, strict=True):
        machine = _with_value(machine, cost.path, value)
    return machine


def _with_value(owner: Any, path: Sequence[str], value: float) -> Any:
    """A part of a processor with another number at a path; items of a tuple go by their names."""
    name, *rest = path
    inner: Any = value
    if rest:
        inner = getattr(owner, name)
        if name == "functions":
            inner = tuple({**dict(inner), rest[0]: value}.items())
        elif isinstance(inner, tuple):
            items = cast("tuple[Any, ...]", inner)
            inner = tuple(
                _with_value(x, rest[1:], value) if x.name == rest[0] else x for x in items
            )
        else:
            inner = _with_value(inner, rest, value)
    return replace(owner, **{name: inner})


def predicted(kernel: Kernel, machine: Processor) -> float:
    """Instructions, or else cycles, of a kernel that a processor runs alone."""
    state, homes = kernel.schedule.resolved, kernel.schedule.homes
    if machine.instructions is not None:
        return sum(retired(plain(state), machine.instructions).values())
    cost = estimate_nest(state, homes, replace(kernel.hardware, processor=machine), 0)
    return cost.start_cycles + sum(b.cycles for b in cost.blocks)


@dataclass(frozen=True, slots=True)
class Model:
    """Predictions for some kernels as a function of costs in the linear form."""

    kernels: Sequence[Kernel]
    machine: Processor
    costs: Sequence[Cost]

    def __call__(self, linear: Floats) -> Floats:
        values = [c.inverted(x) for c, x in zip(self.costs, linear, strict=True)]
        changed = with_costs(self.machine, self.costs, values)
        return np.array([predicted(k, changed) for k in self.kernels])

    def derivatives(self, linear: Floats) -> Floats:
        """Of each prediction by each cost. The model has no constant: their product with the costs
        is the prediction."""
        base, found = self(linear), np.zeros((len(self.kernels), len(self.costs)))
        for n, own in enumerate(linear):
            step = STEP * max(float(own), STEP)
            found[:, n] = (self(linear + step * np.eye(len(self.costs))[n]) - base) / step
        return found
