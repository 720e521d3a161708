"""The models that the package `onnx` tests backends with: right, or refused with a code."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from hwgen.network.compiled import compile_model
from tests.network.onnx_backend import agrees, computed, file_cases, node_cases, read

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
