"""Calibrations whose measurements are the model's own predictions, with other costs."""

from __future__ import annotations

from functools import cache
from typing import Any, cast

import numpy as np
import pytest
from ruamel.yaml import YAML

from hwgen.calibrate.calibration import Calibration, calibrated
from hwgen.calibrate.costs import Cost, Model, costs_of, predicted, with_costs
from hwgen.calibrate.kernels import Sample, samples
from hwgen.calibrate.shown import calibration_record, calibration_text
from hwgen.calibrate.tools import Tools
from hwgen.spec.hardware import HardwareSpec
from hwgen.spec.load import load_hardware

TOOLS = Tools(("true",), ("-O2",), ("emulator",))
CHIPS = ("gemmini", "cpu_generic", "x86_avx2")


@cache
def made(chip: str) -> tuple[HardwareSpec, tuple[Sample, ...]]:
    hardware = load_hardware(chip)
    return hardware, tuple(samples(hardware))


def by_path(costs: tuple[Cost, ...]) -> dict[str, float]:
    return {".".join(c.path): c.value for c in costs}


def measured(chip: str, **changed: float) -> Calibration:
    """The calibration of a chip whose costs are really others, by the last word of their paths."""
    hardware, found = made(chip)
    costs = costs_of(hardware.machine)
    values = [changed.get(c.path[-1], c.value) for c in costs]
    real = with_costs(hardware.machine, costs, values)
    return calibrated(hardware, TOOLS, found, [predicted(s.kernel, real) for s in found])


def proposed(found: Calibration) -> dict[str, float | None]:
    return {p.cost.path[-1]: p.value for p in found.proposals}


@pytest.mark.parametrize("chip", CHIPS)
def test_the_model_is_linear_in_costs(chip: str) -> None:
    hardware, found = made(chip)
    costs = costs_of(hardware.machine)
    kernels = [s.kernel for s in found[::7]]
    linear = np.array([c.inverted(c.value) for c in costs])
    model = Model(kernels, hardware.machine, costs)
    assert model(linear) == pytest.approx([predicted(k, hardware.machine) for k in kernels])
    assert model.derivatives(linear) @ linear == pytest.approx(model(linear), rel=1e-3)


@pytest.mark.parametrize("chip", CHIPS)
def test_a_number_is_replaced_where_it_stands(chip: str) -> None:
    machine = made(chip)[0].machine
    costs = costs_of(machine)
    values = [c.value + n for n, c in enumerate(costs, 1)]
    changed = with_costs(machine, costs, values)
    assert [c.value for c in costs_of(changed)] == values
    assert by_path(costs_of(machine)) == by_path(costs)


@pytest.mark.parametrize("chip", ["gemmini", "cpu_generic"])
def test_every_kind_has_kernels_and_some_are_held_out(chip: str) -> None:
    _, found = made(chip)
    assert sum(s.held_out for s in found) == 10
    assert len({s.name for s in found}) == len(found) > 90


def test_instructions_are_recovered() -> None:
    """All but those that these kernels do not tell apart well enough."""
    real = {"memory": 2.0, "operation": 1.5, "division": 20.0, "block_call": 90.0, "exp": 70.0}
    found = measured("gemmini", **real)
    costs = proposed(found)
    for name, value in real.items():
        assert costs[name] == pytest.approx(value, rel=0.02), name
    (_, before), (_, after) = ((max(x), max(y)) for x, y in
                               (found.errors(held_out=h) for h in (False, True)))  # fmt: skip
    assert max(before, after) < 0.01


def test_rates_are_recovered() -> None:
    real = {"memory_bytes_per_cycle": 6.0, "operations_per_cycle": 1.0}
    costs = proposed(measured("cpu_generic", **real))
    for name, value in real.items():
        assert costs[name] == pytest.approx(value, rel=0.05), name


def test_right_costs_stay() -> None:
    found = measured("gemmini")
    for p in found.proposals:
        assert p.value is None or p.value == pytest.approx(p.cost.value, rel=0.01)
    assert max(max(e) for h in (False, True) for e in found.errors(held_out=h)) < 0.01


def test_the_lines_to_paste_are_the_proposals() -> None:
    found = measured("gemmini", division=20.0)
    text = calibration_text(found)
    pasted = cast("Any", YAML(typ="safe")).load(text[text.index("\nprocessor:") :])
    given = pasted["processor"]["instructions"]
    costs = {p.cost.path[1:]: p.value for p in found.proposals if p.value is not None}
    assert given["division"] == 20
    for path, value in costs.items():
        number = given[path[0]] if len(path) == 1 else given[path[0]][path[1]]
        assert number == pytest.approx(value, rel=0.01)
    assert "no better" not in text


def test_the_text_says_what_no_kernel_determines() -> None:
    text = calibration_text(measured("cpu_generic", operations_per_cycle=1.0))
    row = next(line for line in text.splitlines() if "L1" in line)
    assert row.split() == ["caches.L1.bytes_per_cycle", "64", "-", "-", "0"]


def test_a_record_has_every_cost_and_kernel() -> None:
    found = measured("cpu_generic", memory_bytes_per_cycle=5.0)
    record: Any = calibration_record(found)
    assert [c["cost"] for c in record["costs"]] == [*by_path(costs_of(found.hardware.machine))]
    assert len(record["kernels"]) == len(found.kernels)
    assert record["unit"] == "cycles"
