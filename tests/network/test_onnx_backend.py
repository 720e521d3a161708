"""The models that the package `onnx` tests backends with: right, or refused with a code."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.onnx_chips import RIGHT, outcome
from hwgen.network.compiled import compile_model
from tests.network.onnx_backend import agrees, computed, file_cases, node_cases, read
from tests.sampling import tiered

pytest.importorskip("onnx")

QUICK = (
    "test_AvgPool2d_stride", "test_BatchNorm2d_eval", "test_Conv1d_dilated", "test_Conv2d_groups",
    "test_ConvTranspose2d", "test_ELU", "test_LeakyReLU", "test_Linear", "test_MaxPool2d",
    "test_PixelShuffle", "test_PReLU_2d", "test_softmax_lastdim", "test_operator_addmm",
    "test_operator_clip", "test_operator_concat2", "test_operator_pad",
)  # fmt: skip


@pytest.mark.parametrize("name", QUICK)
def test_a_model_is_right(name: str, tmp_path: Path) -> None:
    case = file_cases()[name]
    found = read(case, tmp_path)
    assert found.error is None
    assert agrees(case, computed(found))


@pytest.mark.thorough
@pytest.mark.parametrize(("kind", "right", "refused"), [("file", 109, 6), ("node", 415, 99)])
def test_all_models(kind: str, right: int, refused: int, tmp_path: Path) -> None:
    """None is wrong; as many are right as the page about networks relies on."""
    cases = file_cases() if kind == "file" else node_cases()
    counts: Counter[str] = Counter()
    wrong: list[str] = []
    for case in cases.values():
        found = read(case, tmp_path)
        if found.error is not None:
            counts[found.error.code] += 1
        elif agrees(case, computed(found)):
            counts["right"] += 1
        else:
            wrong.append(case.name)
    assert not wrong
    assert set(counts) <= {"right", "H801", "H803"}
    assert (counts["right"], counts["H801"] + counts["H803"]) == (right, refused)


@pytest.mark.thorough
@pytest.mark.parametrize("name", QUICK)
def test_a_compiled_model_is_right(name: str, tmp_path: Path) -> None:
    """Its C, against the case and, within the bound of its rounding, the evaluator."""
    case = file_cases()[name]
    found = read(case, tmp_path)
    net = compile_model(tmp_path / "one.onnx", "cpu_generic")
    assert agrees(case, net.run(found.inputs))
    assert net.compare(2).unbounded == 0


UNITS = ("gemmini", "tpu_v1", "davinci_core", "vta")


@pytest.mark.parametrize("chip", tiered(UNITS, ("vta",)))
@pytest.mark.parametrize("name", ["test_max_int8", "test_add_int8", "test_maxpool_2d_uint8"])
def test_integers_are_right_beside_units(chip: str, name: str, tmp_path: Path) -> None:
    assert outcome(node_cases()[name], chip, tmp_path, integers=True) in RIGHT


def test_a_chip_without_a_core_refuses(tmp_path: Path) -> None:
    """Its units compute floats alone."""
    case = node_cases()["test_max_int8"]
    assert outcome(case, "npu_shared_buffer", tmp_path, integers=True) == "H301"


def test_a_wrong_model_is_counted(tmp_path: Path) -> None:
    case = node_cases()["test_max_int8"]
    wrong = replace(case, outputs={n: np.add(v, 1) for n, v in case.outputs.items()})
    assert outcome(wrong, "cpu_generic", tmp_path, integers=True) == "wrong"


def test_two_results_of_a_normalisation(tmp_path: Path) -> None:
    """The average is a layer of its own, which computes nothing else."""
    case = node_cases()["test_layer_normalization_4d_axis0"]
    assert outcome(case, "cpu_generic", tmp_path, integers=False) in RIGHT
