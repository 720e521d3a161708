"""Models that cannot be compiled are refused with the error in the golden beside."""

from __future__ import annotations

import shutil
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from hwgen.cli import main
from hwgen.network import compiled
from hwgen.network.graph import Graph
from hwgen.network.tflite_reader import read_tflite
from tests.conftest import Golden
from tests.models import WITH_READER, WITH_RUNTIME, OperatorOf, TensorOf, model, small_network

ROOT = Path(__file__).parents[2]
GOLDENS = Path(__file__).parent / "network"
pytestmark = WITH_READER
HAVE_ONNX = find_spec("onnx") is not None
WITH_ONNX = pytest.mark.skipif(not HAVE_ONNX, reason="package onnx is not installed")


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files by names that are the same everywhere."""
    monkeypatch.chdir(tmp_path)
    shutil.copy(ROOT / "hw_specs" / "cpu_generic.yaml", tmp_path)
    content = small_network()
    Path("model.tflite").write_bytes(content)
    Path("cut.tflite").write_bytes(content[: len(content) // 2])
    Path("text.tflite").write_text("no model at all")
    one = TensorOf((1, 4), scales=[0.1])
    later = [OperatorOf("TANH", [1], [2]), OperatorOf("TANH", [0], [1])]
    Path("order.tflite").write_bytes(model([one, one, one], later, [0], [2]))
    operators = [OperatorOf("COS", [0], [1]), OperatorOf("SOFTMAX", [1], [2], "SoftmaxOptions")]
    Path("cos.tflite").write_bytes(model([one, one, one], operators, [0], [2]))
    Path("text.onnx").write_text("no model at all")
    if HAVE_ONNX:
        _onnx_models()


def _onnx_models() -> None:
    """One of an unknown batch, and one with operators that are missing."""
    onnx: Any = import_module("onnx")
    h = onnx.helper
    for name, batch, kinds in (("batch", "batch", ("Relu",)), ("sin", 1, ("Sin", "Relu", "Det"))):
        names = ["x", *(f"t{n}" for n in range(len(kinds) - 1)), "y"]
        nodes = [h.make_node(k, [names[n]], [names[n + 1]]) for n, k in enumerate(kinds)]
        y = [batch] if "Det" in kinds else [batch, 2, 2]
        ends = [h.make_tensor_value_info(n, 1, s) for n, s in (("x", [batch, 2, 2]), ("y", y))]
        graph = h.make_graph(nodes, name, ends[:1], ends[1:])
        made = h.make_model(graph, opset_imports=[h.make_opsetid("", 21)])
        Path(f"{name}.onnx").write_bytes(made.SerializeToString())


CASES = {
    "suffix": "cpu_generic.yaml",
    "text": "text.tflite",
    "cut": "cut.tflite",
    "order": "order.tflite",
    "unsupported": "cos.tflite",
}
ONNX_CASES = {
    "onnx_text": "text.onnx",
    "onnx_shapes": "batch.onnx",
    "onnx_unsupported": "sin.onnx",
}


def told(name: str, capsys: pytest.CaptureFixture[str], *more: str) -> str:
    assert main(["compile", name, "--spec", "cpu_generic.yaml", *more]) == 1
    # Without lines of progress, which depend on the time.
    lines = capsys.readouterr().err.splitlines()
    return "\n".join(line for line in lines if not line.startswith("compiling"))


@pytest.mark.parametrize("case", CASES)
def test_refused(case: str, golden: Golden, capsys: pytest.CaptureFixture[str]) -> None:
    golden(GOLDENS / f"{case}.txt", told(CASES[case], capsys))


@WITH_ONNX
@pytest.mark.parametrize("case", ONNX_CASES)
def test_refused_onnx(case: str, golden: Golden, capsys: pytest.CaptureFixture[str]) -> None:
    golden(GOLDENS / f"{case}.txt", told(ONNX_CASES[case], capsys))


def test_the_package_for_onnx_is_missing(
    golden: Golden, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("onnx", "onnx.reference", "onnx.version_converter"):
        monkeypatch.setitem(sys.modules, name, None)
    golden(GOLDENS / "onnx_package.txt", told("text.onnx", capsys))


def test_a_package_is_missing(
    golden: Golden, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "tflite", None)
    golden(GOLDENS / "package.txt", told("model.tflite", capsys))


@WITH_RUNTIME
def test_a_layer_differs(
    golden: Golden, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Weights that the interpreter does not see."""

    def changed(path: Path, name: str) -> Graph:
        graph = read_tflite(path, name)
        weights = graph.tensor[graph.operators[0].inputs[1]]
        assert weights.data is not None
        weights.data[2] += 1
        return graph

    monkeypatch.setattr(compiled, "READERS", {".tflite": changed})
    golden(GOLDENS / "differs.txt", told("model.tflite", capsys, "--compare"))
