"""Quantised layers give what TFLite Micro's own interpreter gave.

`quantised_tflm.json` has models of one layer (and of ten), with random tensors, scales and zero
points, and their outputs as the package tflite-micro 0.dev20261023182759 of https://pypi.org
computed them on x86-64, where it has the reference kernels and rounds twice. The inputs stand there
as the workloads take them: multipliers as TFLite quantises the scales, biases folded.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hwgen.model.reference import run_reference
from hwgen.spec.load import load_workload
from tests.samples import ROOT

FOLDER = ROOT / "workloads" / "quantised"
MODELS: list[dict[str, Any]] = json.loads(
    Path(__file__).with_name("quantised_tflm.json").read_text(encoding="utf-8")
)


def matches(model: dict[str, Any], name: str) -> bool:
    given = load_workload(FOLDER / f"{name}.yaml", model["sizes"])
    inputs = {
        tensor: np.array(values, given.tensor[tensor].dtype)
        for tensor, values in model["inputs"].items()
    }
    (output,) = run_reference(given, inputs).values()
    return np.array_equal(output, np.array(model["output"], np.int8))


@pytest.mark.parametrize(
    "model", [pytest.param(m, id=f"{m['workload']}-{n}") for n, m in enumerate(MODELS)]
)
def test_a_layer_is_the_interpreters(model: dict[str, Any]) -> None:
    assert matches(model, model["workload"])


def test_every_layer_is_recorded_and_single_rounding_differs() -> None:
    names = {path.stem for path in FOLDER.glob("*.yaml")}
    assert {m["workload"] for m in MODELS} == names - {"conv2d_single_rounding"}
    convolutions = [m for m in MODELS if m["workload"] == "conv2d"]
    assert not all(matches(m, "conv2d_single_rounding") for m in convolutions)
