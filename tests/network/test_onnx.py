"""ONNX models, made here: read, rewritten, compiled and compared with onnx's evaluator."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from math import erf
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hwgen.errors import HwgenError
from hwgen.model.c_compiler import have_compiler
from hwgen.model.reference import run_reference
from hwgen.network import compiled
from hwgen.network.compiled import compile_model, read_graph
from hwgen.network.graph import Graph
from hwgen.network.onnx_reader import read_onnx
from hwgen.network.operators.elementwise import ERF_ERROR
from hwgen.network.operators.from_onnx import ONNX
from hwgen.network.operators.table import layers_of
from hwgen.network.report import layer_figures
from tests.sampling import tiered

onnx: Any = pytest.importorskip("onnx")
FLOAT = 1


def saved(
    path: Path,
    nodes: Sequence[Any],
    shape: Sequence[int | str],
    made: Sequence[int],
    constants: dict[str, Any],
    opset: int = 17,
) -> Path:
    """A model from `x` to `y`."""
    h = onnx.helper
    graph = h.make_graph(
        nodes,
        "graph",
        [h.make_tensor_value_info("x", FLOAT, shape)],
        [h.make_tensor_value_info("y", FLOAT, made)],
        [onnx.numpy_helper.from_array(v, n) for n, v in constants.items()],
    )
    onnx.save(h.make_model(graph, opset_imports=[h.make_opsetid("", opset)]), str(path))
    return path


def network(path: Path) -> Path:
    """A convolution with its normalisation, a pool, a product of matrices and a softmax."""
    rng = np.random.default_rng(0)

    def drawn(*shape: int) -> Any:
        return rng.standard_normal(shape).astype(np.float32)

    node = onnx.helper.make_node
    nodes = [
        node("Conv", ["x", "w", "b"], ["c"], pads=[1, 1, 1, 1], strides=[2, 2]),
        node("BatchNormalization", ["c", "gain", "offset", "mean", "variance"], ["n"]),
        node("Relu", ["n"], ["r"]),
        node("MaxPool", ["r"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
        node("Flatten", ["p"], ["f"]),
        node("Gemm", ["f", "v", "a"], ["g"], transB=1),
        node("Softmax", ["g"], ["y"]),
    ]
    constants = {
        "w": drawn(8, 3, 3, 3), "b": drawn(8), "v": drawn(4, 32), "a": drawn(4),
        "gain": drawn(8), "offset": drawn(8), "mean": drawn(8),
        "variance": rng.uniform(0.5, 2, 8).astype(np.float32),
    }  # fmt: skip
    return saved(path, nodes, [1, 3, 8, 8], [1, 4], constants)


def test_a_graph(tmp_path: Path) -> None:
    """The normalisation is part of the weights, the activation part of the convolution."""
    graph = read_graph(network(tmp_path / "net.onnx"))
    assert [str(o) for o in graph.operators] == [
        "Conv (operator 0, c)", "MaxPool (operator 3, p)", "Flatten (operator 4, f)",
        "Gemm (operator 5, g)", "Softmax (operator 6, y)",
    ]  # fmt: skip
    assert graph.operators[0].outputs == ("r",)
    assert graph.operators[0].attributes["fused"] == "max({0}, 0.0)"


def quantised(path: Path, x: str, w: str, *, point: int, product: bool) -> Path:
    """A padded convolution, or a product of matrices, of bytes with zero points."""
    rng, low, low_w = np.random.default_rng(5), 0 if x == "uint8" else -128, -20 * (w == "int8")
    weights = rng.integers(low_w, 20, (16, 16) if product else (16, 16, 3, 3)).astype(w)
    scales = {"xs": 0.05, "ws": 0.01, "ys": 0.1}
    constants: dict[str, Any] = {n: np.array(v, np.float32) for n, v in scales.items()}
    zeros = {"xz": np.array(low + 7, x), "wz": np.array(point, w), "yz": np.array(low + 90, x)}
    constants |= {"w": weights, **zeros}
    names, kind, pads = ["x", "xs", "xz", "w", "ws", "wz", "ys", "yz"], "QLinearMatMul", {}
    if not product:
        constants["b"] = rng.integers(-500, 500, 16).astype(np.int32)
        names, kind, pads = [*names, "b"], "QLinearConv", {"pads": [1, 1, 1, 1]}
    shape, h = [8, 16] if product else [1, 16, 6, 6], onnx.helper
    types = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(x))
    ends = [h.make_tensor_value_info(n, types, shape) for n in ("x", "y")]
    values = [onnx.numpy_helper.from_array(v, n) for n, v in constants.items()]
    graph = h.make_graph([h.make_node(kind, names, ["y"], **pads)], "graph", ends[:1], ends[1:],
                         values)  # fmt: skip
    onnx.save(h.make_model(graph, opset_imports=[h.make_opsetid("", 21)]), str(path))
    return path


FORMS = [
    ("uint8", "uint8", 7, False), ("int8", "int8", 0, False), ("uint8", "int8", 0, False),
    ("uint8", "int8", 120, True), ("int8", "uint8", 128, True),
]  # fmt: skip


@pytest.mark.skipif(not have_compiler(), reason="no C compiler")
@pytest.mark.parametrize(("x", "w", "point", "product"), tiered(FORMS, FORMS[:1]))
def test_units_take_products_of_bytes(
    x: str, w: str, point: int, product: bool, tmp_path: Path
) -> None:
    """With any signs and zero points: what does not fit into int8 is taken out of the product."""
    path = quantised(tmp_path / "net.onnx", x, w, point=point, product=product)
    net = compile_model(path, "vta")
    (step,) = net.layers
    assert layer_figures(net, step).macs_on_units == step.layer.macs
    assert str(net.compare(4)) == "equal to onnx's reference evaluator: 1 layers on 4 inputs"


@pytest.mark.skipif(not have_compiler(), reason="no C compiler")
def test_a_network_is_the_evaluators(tmp_path: Path) -> None:
    net = compile_model(network(tmp_path / "net.onnx"), "cpu_generic")
    assert str(net.compare(2)) == "equal to onnx's reference evaluator: 4 layers on 2 inputs"
    net.save(tmp_path / "out")
    subprocess.run(["make", "-s", "host"], cwd=tmp_path / "out", check=True)
    assert subprocess.run(["./host"], cwd=tmp_path / "out", check=False).returncode == 0
    main = tmp_path / "out" / "main.c"
    head, _, values = main.read_text().partition("output0[4] = {\n  ")
    main.write_text(f"{head}output0[4] = {{\n  9.5f,{values.partition(',')[2]}")
    subprocess.run(["make", "-s", "host"], cwd=tmp_path / "out", check=True)
    assert subprocess.run(["./host"], cwd=tmp_path / "out", check=False).returncode == 1


@pytest.mark.skipif(not have_compiler(), reason="no C compiler")
@pytest.mark.parametrize("alpha", tiered([1.001, 0.999], [1.001]))
def test_the_first_layer_that_differs_is_named(
    alpha: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A factor that is off by a thousandth, which the evaluator does not see."""

    def changed(path: Path, name: str) -> Graph:
        graph = read_onnx(path, name)
        operators = list(graph.operators)
        (at,) = (n for n, o in enumerate(operators) if o.kind == "Gemm")
        found = {**operators[at].attributes, "alpha": alpha}
        operators[at] = replace(operators[at], attributes=found)
        return replace(graph, operators=tuple(operators))

    monkeypatch.setattr(compiled, "READERS", {".onnx": changed})
    net = compile_model(network(tmp_path / "net.onnx"), "cpu_generic")
    with pytest.raises(HwgenError) as told:
        net.compare(1)
    assert told.value.code == "H805"
    assert "layer 2, Gemm (operator 5, g)" in told.value.diagnostic.found
    assert "+-" in told.value.diagnostic.found


def test_operators_that_are_missing_are_told_at_once(tmp_path: Path) -> None:
    node = onnx.helper.make_node
    nodes = [
        node("Sin", ["x"], ["a"], name="first"),
        node("Resize", ["a", "", "scales"], ["b"], mode="linear"),
        node("Sin", ["b"], ["y"]),
    ]
    scales = {"scales": np.array([1, 2], np.float32)}
    path = saved(tmp_path / "net.onnx", nodes, [2, 2], [2, 4], scales)
    with pytest.raises(HwgenError) as told:
        layers_of(read_graph(path))
    assert told.value.code == "H803"
    assert told.value.diagnostic.found.splitlines() == [
        "Sin (operator 0, first): hwgen has no such operator",
        "Resize (operator 1, b): linear",
        "Sin (operator 2, y): hwgen has no such operator",
    ]


def test_shapes_that_are_not_known(tmp_path: Path) -> None:
    nodes = [onnx.helper.make_node("Relu", ["x"], ["y"])]
    path = saved(tmp_path / "net.onnx", nodes, ["batch", 2], [1, 2], {})
    with pytest.raises(HwgenError) as told:
        read_graph(path)
    assert (told.value.code, told.value.diagnostic.found) == ("H801", "x: no shape")


@pytest.mark.parametrize("seed", range(40))
def test_a_damaged_file(seed: int, tmp_path: Path) -> None:
    """Bytes that are changed, or an end that is missing: no other exception."""
    rng = np.random.default_rng(seed)
    content = bytearray(network(tmp_path / "net.onnx").read_bytes())
    if seed % 5 == 0:
        content = content[: rng.integers(0, len(content))]
    for at in rng.integers(0, max(len(content), 1), 1 + seed % 7):
        if at < len(content):
            content[at] = rng.integers(0, 256)
    (tmp_path / "net.onnx").write_bytes(bytes(content))
    try:
        layers_of(read_graph(tmp_path / "net.onnx"))
    except HwgenError as error:
        assert error.code in ("H801", "H803")  # noqa: PT017 - a success is as good


def test_the_error_function(tmp_path: Path) -> None:
    """The quotient of polynomials is as near as is said, on a dense grid."""
    x = np.linspace(-6, 6, 20001, dtype=np.float32)
    nodes = [onnx.helper.make_node("Erf", ["x"], ["y"])]
    path = saved(tmp_path / "net.onnx", nodes, x.shape, x.shape, {})
    (layer,) = layers_of(read_graph(path))
    assert layer.computation is not None
    found = run_reference(layer.computation.workload("one"), {"a": x})["y"].astype(np.float64)
    exact = np.array([erf(v) for v in x.tolist()])
    # The last operations round by some units in the last place of 1.
    assert float(np.abs(found - exact).max()) < ERF_ERROR + 8 * 2.0**-24


def test_core_without_the_package() -> None:
    """Nothing imports it until a model needs it."""
    code = "import sys, hwgen.network.onnx_reader; sys.exit('onnx' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_every_operator_is_on_the_page() -> None:
    page = (Path(__file__).parents[2] / "docs" / "networks.md").read_text()
    assert [name for name in ONNX if f"`{name}`" not in page] == []
