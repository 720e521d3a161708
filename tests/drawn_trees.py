"""Random schedules of chips with units, from nothing: stages on the chip, each with its calls.

What is drawn is complete, but what an edit makes of it may be more than the chip can run.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from random import Random

from hwgen.polyhedral.schedule.schedule import Schedule
from hwgen.polyhedral.tree.build import build_state
from hwgen.spec.find import find_workload
from hwgen.spec.hardware import HardwareSpec
from hwgen.spec.load import parse_workload
from hwgen.spec.source import read_document
from tests.fuzz.nest_calls import Call, Calls
from tests.fuzz.nest_workloads import Data, Draws
from tests.fuzz.schedules import Case, make
from tests.fuzz.tree_schedules import TreeDraws

MOST_EDITS = 14
"""Edits between the caches and the calls."""


class NewTree(TreeDraws):
    """Draws a whole schedule: caches and scopes first, calls last."""

    def begun(self) -> Calls:
        """Every tensor on the chip, as a rule: caches of the arrays, scopes, or a way through
        off-chip memory for what is in between."""
        state = self.schedule.state
        for tensor in state.tensors:
            match tensor.role:
                case "output" if state.stage[tensor.name].reduces or not self.draws.chance(8):
                    yield Call("cache_write", (tensor.name, self.memory()))
                case "intermediate" if self.draws.chance(8):
                    yield Call("cache_write", (tensor.name, self.memory()))
                    yield Call("cache_read", (tensor.name, self.memory()))
                case "intermediate":
                    yield Call("set_scope", (tensor.name, self.memory()))
                case "input":
                    yield from self._cached(tensor.name)
                case _:
                    continue

    def _cached(self, tensor: str) -> Calls:
        readers = [s.tensor for s in self.schedule.state.readers(tensor)]
        if len(readers) == 1 or self.draws.chance(2):
            yield Call("cache_read", (tensor, self.memory()))
            return
        for reader in readers:
            yield Call("cache_read", (tensor, self.memory()), (("readers", (reader,)),))

    def ended(self) -> Calls:
        """Reductions that begin apart, and the calls of every block."""
        yield from self.begun_apart()
        yield from self.called()


# Workloads

SHIPPED = ("linear_relu", "mlp", "layernorm", "attention")
"""Files whose sizes are drawn anew."""

OWN: tuple[Data, ...] = (
    {
        "name": "gemm",
        "sizes": {"M": 1, "N": 1, "K": 1},
        "tensors": {"a": "float32[M, K]", "b": "float32[K, N]", "c": "float32[M, N]"},
        "compute": ["c[m, n] += a[m, k] * b[k, n]"],
    },
    {
        "name": "add",
        "sizes": {"M": 1, "N": 1},
        "tensors": {"a": "float32[M, N]", "b": "float32[M, N]", "c": "float32[M, N]"},
        "compute": ["c[m, n] = a[m, n] + b[m, n]"],
    },
    {
        "name": "softmax",
        "sizes": {"M": 1, "N": 1},
        "tensors": {
            "x": "float32[M, N]",
            "top": "float32[M]",
            "e": "float32[M, N]",
            "z": "float32[M]",
            "y": "float32[M, N]",
        },
        "compute": [
            "top[m] max= x[m, n]",
            "e[m, n] = exp(x[m, n] - top[m])",
            "z[m] += e[m, n]",
            "y[m, n] = e[m, n] / z[m]",
        ],
    },
    {
        "name": "two_convolutions",
        "sizes": {"H": 1, "C": 1, "D": 1},
        "tensors": {
            "x": "float32[H + 4, H + 4, C]",
            "w1": "float32[3, 3, C, D]",
            "w2": "float32[3, 3, D]",
            "s": "float32[H + 2, H + 2, D]",
            "t": "float32[H + 2, H + 2, D]",
            "y": "float32[H, H]",
        },
        "compute": [
            "s[i, j, d] += x[i + p, j + q, c] * w1[p, q, c, d]",
            "t[i, j, d] = max(s[i, j, d], 0)",
            "y[i, j] += t[i + p, j + q, d] * w2[p, q, d]",
        ],
    },
    {
        "name": "two_readers",
        "sizes": {"M": 1, "N": 1, "K": 1},
        "tensors": {
            "x": "float32[M, K]",
            "w": "float32[K, N]",
            "s": "float32[M, N]",
            "u": "float32[M, N]",
            "v": "float32[M]",
            "y": "float32[M, N]",
        },
        "compute": [
            "s[m, n] += x[m, k] * w[k, n]",
            "u[m, n] = max(s[m, n], 0)",
            "v[m] += s[m, n]",
            "y[m, n] = u[m, n] * v[m]",
        ],
    },
    {
        "name": "neighbours",
        "sizes": {"M": 1, "N": 1},
        "tensors": {
            "x": "float32[M + 3, N]",
            "t": "float32[M + 3, N]",
            "u": "float32[M + 1, N]",
            "y": "float32[M, N]",
        },
        "compute": [
            "t[m, n] = x[m, n] * 0.5 + 1",
            {"do": "u[m, n] max= t[m + d, n]", "loops": {"m": "M + 1", "n": "N", "d": 3}},
            "y[m, n] = u[m, n] - u[m + 1, n]",
        ],
    },
    {
        "name": "highest",
        "sizes": {"M": 1, "N": 1},
        "tensors": {"x": "float32[M, N, 3]", "t": "float32[M, N]", "y": "float32[M]"},
        "compute": ["t[m, n] max= x[m, n, k]", "y[m] max= t[m, n]"],
    },
)

EXTENTS = (4, 1, 2, 3, 5, 7, 8, 12, 16, 17, 20, 33)
MOST_POINTS = 8_000
"""Of one statement's domain."""


def drawn_workload(draws: Draws) -> Data:
    """A workload of a size that is soon run."""
    chosen = draws(range(len(SHIPPED) + len(OWN)))
    data = shipped(SHIPPED[chosen]) if chosen < len(SHIPPED) else OWN[chosen - len(SHIPPED)]
    while True:
        data = {**data, "sizes": {n: draws(EXTENTS) for n in data["sizes"]}}
        stages = build_state(parse_workload(data)).stages
        if all(prod(e for _, e in s.iterators) <= MOST_POINTS for s in stages):
            return data


def shipped(name: str) -> Data:
    """A shipped workload as plain data."""
    data = read_document(find_workload(name)).data
    assert isinstance(data, dict)
    return data


# One schedule


def drawn(seed: int, hardware: HardwareSpec) -> Case:
    """A random case of a seed; its calls are those that were taken.

    Raises:
        FindingError: a call that crashes, or is refused and leaves a trace.
    """
    draws = Draws(Random(seed).randrange)
    data = drawn_workload(draws)
    schedule = Schedule(parse_workload(data), hardware)
    source = NewTree(draws, schedule)
    taken: list[Call] = []

    def made(calls: Iterator[Call]) -> None:
        for call in calls:
            if not make(schedule, call):
                taken.append(call)

    made(source.begun())
    for _ in range(draws(range(MOST_EDITS + 1))):
        made(source.calls())
    made(source.ended())
    made(source.pipelined())
    return Case(data, tuple(taken), seed)
