"""Every entry of the table of operators gives what TFLite Micro's interpreter gives.

The layers' statements are executed by the reference, which sees no chip.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from hwgen.errors import HwgenError
from hwgen.model.reference import run_reference
from hwgen.network.graph import Graph
from hwgen.network.operators.from_tflite import OPERATORS
from hwgen.network.operators.rescaling import Fixed, high_part, quantised_multiplier, rounded
from hwgen.network.operators.statements import Axis
from hwgen.network.operators.table import layers_of
from hwgen.network.operators.tables import (
    _FRACTION,  # pyright: ignore[reportPrivateUsage]
    _lines,  # pyright: ignore[reportPrivateUsage]
)
from hwgen.network.tflite_reader import read_tflite
from hwgen.spec.load import make_workload
from tests.models import (
    HAVE_READER,
    WITH_READER,
    WITH_RUNTIME,
    Array,
    OperatorOf,
    Runtime,
    TensorOf,
    model,
    number,
    scaled,
    single,
)
from tests.network.operator_cases import RNG, cases
from tests.sampling import tiered

CASES = tuple(cases()) if HAVE_READER else ()


def read(content: bytes, folder: Path) -> Graph:
    path = folder / "one.tflite"
    path.write_bytes(content)
    return read_tflite(path, "one")


def inputs_of(graph: Graph, seed: int) -> list[Array]:
    """Random ones; of the last seeds, the ends of the range."""
    rng = RNG(seed)
    found: list[Array] = []
    for tensor in (graph.tensor[name] for name in graph.inputs):
        if tensor.dtype == "float32":
            drawn = rng.normal(size=tensor.shape) * (1000.0 if seed >= 8 else 3.0)
        else:
            low, high = np.iinfo(tensor.dtype).min, np.iinfo(tensor.dtype).max
            drawn = rng.integers(low, high, tensor.shape, endpoint=True)
            drawn = np.where(rng.integers(0, 2, tensor.shape), low, high) if seed >= 8 else drawn
        found.append(drawn.astype(tensor.dtype))
    return found


def computed(graph: Graph, given: list[Array], *, sizes: bool = False) -> list[Array]:
    """The outputs; `sizes`: from the magnitudes of constants."""
    held = dict(zip(graph.inputs, given, strict=True))
    for layer in layers_of(graph):
        shape = graph.tensor[layer.output[1]].shape
        if layer.computation is None:
            made = held[layer.inputs[0][1]]
        else:
            workload = layer.computation.workload("one")
            inputs = {n: np.reshape(held[t], workload.tensor[n].shape) for n, t in layer.inputs}
            constants = {n: np.abs(v) if sizes else v for n, v in layer.constants.items()}
            made = run_reference(workload, {**inputs, **constants})[layer.output[0]]
        held[layer.output[1]] = np.reshape(made, shape)
    return [held[name] for name in graph.outputs]


def tolerance(graph: Graph, given: list[Array], wanted: list[Array]) -> list[Array | float]:
    """How far floats may be from the interpreter's. It rounds each step of a sum of n terms, the
    reference only once: n roundings of at most the sum of the magnitudes. Exponentials are those of
    another library: some units in the last place; and below -9 it leaves out the 1 of 1 + exp(-x).
    All other operators round alike."""
    (operator,), rounding = graph.operators, 2.0**-23
    if graph.tensor[graph.outputs[0]].dtype != "float32":
        return [0.0] * len(wanted)
    if operator.kind in ("softmax", "logistic", "tanh"):
        least = 2.0**-25 if operator.kind == "logistic" else 2.0**-126
        return [16 * rounding * np.abs(w) + least for w in wanted]
    if operator.kind in ("mean", "sum", "average_pool2d") or operator.kind in PRODUCTS:
        terms = max(graph.tensor[name].elements for name in operator.inputs)
        sums = computed(graph, [np.abs(x) for x in given], sizes=True)
        return [terms * rounding * s for s in sums]
    return [0.0] * len(wanted)


PRODUCTS = ("conv2d", "depthwise_conv2d", "fully_connected", "transpose_conv")


ONE_EACH = [*{case.split()[0]: case for case in reversed([*CASES])}.values()]
"""A case of each entry."""


@WITH_RUNTIME
@pytest.mark.parametrize("case", tiered([*CASES], ONE_EACH))
def test_an_operator_is_the_interpreters(case: str, tmp_path: Path) -> None:
    content = cases()[case]
    graph, runtime = read(content, tmp_path), Runtime(content)
    (operator,) = graph.operators
    assert operator.kind == case.split(maxsplit=1)[0]
    seen: set[float] = set()
    for seed in range(10):
        given = inputs_of(graph, seed)
        wanted = runtime.outputs(given, len(graph.outputs))
        room = tolerance(graph, given, wanted)
        for found, right, away in zip(computed(graph, given), wanted, room, strict=True):
            assert found.dtype == right.dtype
            assert np.all(np.abs(np.subtract(found, right, dtype=np.float64)) <= away), seed
            seen |= set(right.ravel().tolist())
    assert len(seen) > 2, "outputs that say nothing"


@WITH_READER
@pytest.mark.parametrize("code", ["RELU_N1_TO_1", "RELU_0_TO_1"])
@pytest.mark.parametrize("dtype", ["int8", "float32"])
def test_activations_that_another_runtime_has(code: str, dtype: str, tmp_path: Path) -> None:
    """LiteRT's interpreter; TFLite Micro has no kernels for them."""
    litert = pytest.importorskip("ai_edge_litert.interpreter")
    x = scaled((2, 3, 7), 0.02, -5, dtype)
    content = single(code, [x], [x])
    graph, runtime = read(content, tmp_path), litert.Interpreter(model_content=content)
    runtime.allocate_tensors()
    for seed in range(10):
        (given,) = inputs_of(graph, seed)
        runtime.set_tensor(0, given)
        runtime.invoke()
        assert np.array_equal(computed(graph, [given])[0], runtime.get_tensor(1))


@pytest.mark.parametrize("seed", range(20))
def test_lines_meet_a_table(seed: int) -> None:
    """Of any values; of a straight line there is one."""
    rng, first = RNG(seed), -100
    values = (
        rng.integers(-128, 128, 60) if seed % 2 else np.sort(rng.integers(-128, 128, 256))
    ).tolist()
    lines = _lines(values, first)
    for x, value in enumerate(values, first):
        _, slope, offset = [line for line in lines if line[0] <= x][-1]
        assert (slope * x + offset) >> _FRACTION == value
    assert len(_lines([n // 3 for n in range(200)], first)) == 1


@WITH_READER
@pytest.mark.parametrize("code", ["LOGISTIC", "TANH"])
@pytest.mark.parametrize("scale", [1e-4, 3e-3, 0.02, 0.04, 0.06, 0.13, 0.9, 7.0])
def test_a_table_is_a_statement(code: str, scale: float, tmp_path: Path) -> None:
    """At any scale it is no longer than statements may be."""
    made = (1 / 256, -128) if code == "LOGISTIC" else (1 / 128, 0)
    content = single(code, [scaled((2, 3), scale, 7)], [scaled((2, 3), *made)])
    (layer,) = layers_of(read(content, tmp_path))
    assert layer.computation is not None
    assert len(layer.computation.workload("one").statements) == 1


@WITH_READER
def test_every_entry_has_a_case() -> None:
    assert {case.split()[0] for case in CASES} == set(OPERATORS)


@WITH_RUNTIME
def test_a_wrong_bit_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One half less in the last shift, in one of the cases, changes an output."""
    content = cases()["conv2d point"]
    graph, runtime = read(content, tmp_path), Runtime(content)
    right = Fixed.value

    def wrong(self: Fixed, axes: Sequence[Axis], channels: Sequence[Axis]) -> str:
        return right(self, axes, channels).replace("- select", "- 1 - select")

    monkeypatch.setattr(Fixed, "value", wrong)
    given = [inputs_of(graph, seed) for seed in range(10)]
    assert not all(np.array_equal(computed(graph, g)[0], runtime(*g)) for g in given)


@pytest.mark.parametrize(
    ("real", "multiplier", "shift"),
    [
        (0.0, 0, 0),
        (1.0, 1 << 30, 1),
        (0.5, 1 << 30, 0),
        (0.75, 3 << 29, 0),
        (3.0, 3 << 29, 2),
        (2.0**-40, 0, 0),
        (1 - 2.0**-40, 1 << 30, 1),
    ],
)
def test_factors(real: float, multiplier: int, shift: int) -> None:
    assert quantised_multiplier(real) == (multiplier, shift)


@pytest.mark.parametrize("shift", [0, 1, 15, 20, 22])
@pytest.mark.parametrize("multiplier", [0, 1 << 30, 3 << 29, 1623821475, (1 << 31) - 1])
def test_a_shift_before_a_product_is_a_part_of_the_one_after_it(
    multiplier: int, shift: int
) -> None:
    workload = make_workload(
        "high", sizes={"N": 511}, tensors={"x": "int32[N]", "y": "int32[N]"},
        compute=[f"y[n] = {high_part('x[n]', multiplier, shift)}"],
    )  # fmt: skip
    x = np.arange(-255, 256, dtype=np.int32)
    found = run_reference(workload, {"x": x})["y"]
    assert found.tolist() == [((int(v) << shift) * multiplier + (1 << 30)) >> 31 for v in x]


def test_a_product_that_loses_no_bit_is_narrow() -> None:
    assert "int64" in high_part("x[n]", 3 << 28, 2)
    assert high_part("x[n]", 3 << 28, 20) == f"(x[n]) * {3 << 17}"


def test_halves_are_rounded_away_from_zero() -> None:
    assert [rounded(v) for v in (0.5, 1.5, -0.5, -1.5, 0.4, -0.4)] == [1, 2, -1, -2, 0, 0]


@WITH_READER
def test_constants_in_the_place_of_activations(tmp_path: Path) -> None:
    data = np.zeros((1, 4), np.int8)
    tensors = [
        TensorOf((1, 4), scales=[0.1], data=data),
        TensorOf((1, 4), scales=[1 / 256], zero=-128),
        TensorOf((1, 4), scales=[0.1], data=data),
    ]
    operators = [OperatorOf("SOFTMAX", [0], [1], "SoftmaxOptions", {"Beta": 1.0})]
    graph = read(model(tensors, operators, [], [1, 2]), tmp_path)
    with pytest.raises(HwgenError) as told:
        layers_of(graph)
    assert told.value.diagnostic.found.splitlines() == [
        "output tensor_2: a constant",
        "softmax (operator 0): a constant input",
    ]


def forms() -> dict[str, bytes]:
    """By what the error says of it."""
    x, y = scaled((1, 4, 4, 6), 0.1), scaled((1, 4, 4, 6), 0.2)
    flat, words = scaled((2, 8), 0.1), scaled((2, 8), 0.1, dtype="int16")
    weights = TensorOf((4, 3, 3, 3), scales=[0.1], data=np.ones((4, 3, 3, 3), np.int8))
    made = [scaled((1, 4, 4, 4), 0.1)]
    ones = {"StrideH": 1, "StrideW": 1, "DilationHFactor": 1, "DilationWFactor": 1}
    return {
        "groups": single("CONV_2D", [x, weights], made, "Conv2DOptions", **ones),
        "weights that are computed": single(
            "CONV_2D", [x, scaled((4, 3, 3, 6), 0.1)], made, "Conv2DOptions", **ones
        ),
        "another scale of tensor_0": single("MAXIMUM", [x, x], [y]),
        "another scale of tensor_1": single("CONCATENATION", [flat, scaled((2, 8), 0.3)],
                                            [scaled((2, 16), 0.1)], "ConcatenationOptions", Axis=1),
        "int16 tensor_1": single("ADD", [flat, words], [flat], "AddOptions"),
        "shapes that do not agree": single("MUL", [flat, scaled((3, 8), 0.1)], [flat]),
        "axes that are computed": single("MEAN", [flat, TensorOf((1,), "int32")],
                                         [scaled((2,), 0.1)], "ReducerOptions"),
        "an output that is not of scale 1/128": single("TANH", [flat], [flat]),
        "int16, whose tables are beyond the statements": single(
            "SOFTMAX", [words], [words], "SoftmaxOptions", Beta=1.0
        ),
        "sums of 40000 elements": single(
            "MEAN", [scaled((1, 200, 200, 1), 0.1, dtype="int16"), number(1, 2)],
            [scaled((1, 1), 0.1, dtype="int16")], "ReducerOptions",
        ),
    }  # fmt: skip


@pytest.mark.parametrize("said", forms() if HAVE_READER else ())
def test_a_form_that_is_refused(said: str, tmp_path: Path) -> None:
    graph = read(forms()[said], tmp_path)
    with pytest.raises(HwgenError) as told:
        layers_of(graph)
    assert told.value.code == "H803"
    assert told.value.diagnostic.found == f"{graph.operators[0]}: {said}"


@WITH_READER
def test_what_is_unsupported_is_told_at_once(tmp_path: Path) -> None:
    tensors = [
        TensorOf((1, 4), scales=[0.1]),
        TensorOf((1, 4), scales=[0.2]),
        TensorOf((1, 4), "float32"),
        TensorOf((1, 4), "float32"),
    ]
    operators = [
        OperatorOf("COS", [0], [1]),
        OperatorOf("DEQUANTIZE", [1], [2], "DequantizeOptions"),
        OperatorOf("SOFTMAX", [2], [3], "SoftmaxOptions", {"Beta": -1.0}),
    ]
    graph = read(model(tensors, operators, [0], [3]), tmp_path)
    with pytest.raises(HwgenError) as told:
        layers_of(graph)
    assert told.value.code == "H803"
    assert told.value.diagnostic.found.splitlines() == [
        "cos (operator 0): hwgen has no such operator",
        "softmax (operator 2): no beta",
    ]
