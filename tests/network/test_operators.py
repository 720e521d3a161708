"""Every entry of the table of operators gives what TFLite Micro's interpreter gives.

The models have one operator, with random weights, scales and zero points. The layers' statements
are executed by the reference, which sees no chip.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from hwgen.errors import HwgenError
from hwgen.model.reference import run_reference
from hwgen.network.graph import Graph
from hwgen.network.operators.rescaling import Rescaling, quantised_multiplier, rounded
from hwgen.network.operators.table import OPERATORS, layers_of
from hwgen.network.tflite_reader import read_tflite
from tests.models import (
    HAVE_READER,
    WITH_READER,
    WITH_RUNTIME,
    Array,
    OperatorOf,
    Runtime,
    TensorOf,
    add,
    convolution,
    fully_connected,
    model,
    pool,
    softmax,
)
from tests.sampling import tiered

RNG = np.random.default_rng


def cases() -> dict[str, bytes]:
    """By the entry's name and what is particular of the form."""
    return {
        "conv2d same": convolution(RNG(1), (9, 7, 5), (3, 3), 6),
        "conv2d valid, stride": convolution(
            RNG(2), (9, 8, 4), (3, 2), 5, strides=(2, 3), same=False
        ),
        "conv2d same, even stride": convolution(RNG(3), (8, 8, 3), (3, 3), 4, strides=(2, 2)),
        "conv2d same, long kernel": convolution(RNG(4), (11, 6, 1), (10, 4), 4, strides=(2, 2)),
        "conv2d dilated": convolution(RNG(5), (11, 9, 3), (3, 2), 4, dilations=(2, 3)),
        "conv2d dilated, valid": convolution(
            RNG(6), (11, 9, 3), (3, 2), 4, dilations=(3, 2), same=False
        ),
        "conv2d point": convolution(RNG(7), (4, 5, 6), (1, 1), 7, activation=1),
        "conv2d point, stride": convolution(RNG(8), (5, 5, 6), (1, 1), 7, strides=(2, 2)),
        "conv2d one scale": convolution(RNG(9), (5, 5, 3), (3, 3), 4, per_channel=False),
        "conv2d no bias, relu6": convolution(
            RNG(10), (5, 5, 3), (3, 3), 4, bias=False, activation=3
        ),
        "conv2d batch": convolution(RNG(11), (5, 4, 3), (3, 3), 4, batch=3),
        "conv2d batch of points": convolution(RNG(12), (5, 4, 3), (1, 1), 4, batch=2),
        "depthwise_conv2d same": convolution(RNG(13), (9, 7, 5), (3, 3), 0, multiplier=1),
        "depthwise_conv2d valid": convolution(
            RNG(14), (9, 1, 6), (5, 1), 0, multiplier=1, same=False, activation=1
        ),
        "depthwise_conv2d stride": convolution(
            RNG(15), (8, 8, 3), (3, 3), 0, multiplier=1, strides=(2, 2), activation=3
        ),
        "depthwise_conv2d multiplier": convolution(RNG(16), (6, 5, 3), (3, 3), 0, multiplier=4),
        "depthwise_conv2d dilated": convolution(
            RNG(17), (9, 9, 3), (3, 3), 0, multiplier=2, dilations=(2, 2)
        ),
        "depthwise_conv2d batch": convolution(RNG(18), (5, 4, 3), (3, 3), 0, multiplier=1, batch=2),
        "fully_connected": fully_connected(RNG(19), 1, 33, 7),
        "fully_connected rows, relu": fully_connected(RNG(20), 5, 16, 9, activation=1),
        "fully_connected per channel": fully_connected(RNG(21), 2, 16, 9, per_channel=True),
        "fully_connected no bias": fully_connected(RNG(22), 2, 16, 9, bias=False),
        "average_pool2d valid": pool((8, 6, 5), (3, 2), (2, 2), same=False, average=True),
        "average_pool2d same": pool((7, 6, 5), (3, 3), (2, 2), same=True, average=True),
        "average_pool2d all, relu": pool((5, 4, 6), (5, 4), (1, 1), same=False, average=True,
                                         activation=1),
        "max_pool2d valid": pool((8, 6, 5), (3, 2), (2, 2), same=False, average=False),
        "max_pool2d same, relu6": pool((7, 6, 5), (3, 3), (2, 2), same=True, average=False,
                                       activation=3),
        "add": add((0.05, 0.07, 0.1), (-4, 7, 3), 0),
        "add relu, far apart": add((0.5, 0.011, 0.2), (-128, 127, -128), 1),
        "add same scales": add((0.1, 0.1, 0.1), (0, 0, 0), 0),
        "softmax": softmax(1, 10, 0.1, 1.0),
        "softmax rows, beta": softmax(4, 37, 0.03, 2.0),
        "softmax steep": softmax(3, 12, 1.7, 1.0),
        "reshape": model(
            [
                TensorOf((2, 6), scales=[0.1]),
                TensorOf((3, 4), scales=[0.1]),
                TensorOf((2,), "int32", data=np.array([3, 4], np.int32)),
            ],
            [OperatorOf("RESHAPE", [0, 2], [1], "ReshapeOptions")],
            [0],
            [1],
        ),
    }  # fmt: skip


CASES = tuple(cases()) if HAVE_READER else ()


def read(content: bytes, folder: Path) -> Graph:
    path = folder / "one.tflite"
    path.write_bytes(content)
    return read_tflite(path, "one")


def inputs_of(graph: Graph, seed: int) -> list[Array]:
    """Random ones; of the last seeds, the ends of the range."""
    rng = RNG(seed)
    shapes = [graph.tensor[name].shape for name in graph.inputs]
    if seed >= 8:
        return [np.where(rng.integers(0, 2, s), -128, 127).astype(np.int8) for s in shapes]
    return [rng.integers(-128, 128, s).astype(np.int8) for s in shapes]


def computed(graph: Graph, given: list[Array]) -> Array:
    (layer,) = layers_of(graph)
    held = dict(zip(graph.inputs, given, strict=True))
    shape = graph.tensor[graph.outputs[0]].shape
    if layer.computation is None:
        return np.reshape(held[layer.inputs[0][1]], shape)
    workload = layer.computation.workload("one")
    inputs = {n: np.reshape(held[t], workload.tensor[n].shape) for n, t in layer.inputs}
    return np.reshape(
        run_reference(workload, {**inputs, **layer.constants})[layer.output[0]], shape
    )


@WITH_RUNTIME
@pytest.mark.parametrize("case", tiered([*CASES], [*CASES][::3]))
def test_an_operator_is_the_interpreters(case: str, tmp_path: Path) -> None:
    content = cases()[case]
    graph, runtime = read(content, tmp_path), Runtime(content)
    (operator,) = graph.operators
    assert operator.kind == case.split(maxsplit=1)[0]
    seen: set[int] = set()
    for seed in range(10):
        given = inputs_of(graph, seed)
        wanted = runtime(*given)
        assert np.array_equal(computed(graph, given), wanted), seed
        seen |= set(wanted.ravel().tolist())
    assert len(seen) > 2, "outputs that say nothing"


@WITH_READER
def test_every_entry_has_a_case() -> None:
    assert {case.split()[0] for case in CASES} == set(OPERATORS)


@WITH_RUNTIME
def test_a_wrong_bit_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One half less in the last shift, in one of the cases, changes an output."""
    content = cases()["conv2d point"]
    graph, runtime = read(content, tmp_path), Runtime(content)
    right = Rescaling.statements

    def wrong(self: Rescaling, value: str, at: str, channel: str) -> tuple[str, str]:
        hi, y = right(self, value, at, channel)
        return hi, y.replace("- select", "- 1 - select")

    monkeypatch.setattr(Rescaling, "statements", wrong)
    given = [inputs_of(graph, seed) for seed in range(10)]
    assert not all(np.array_equal(computed(graph, g), runtime(*g)) for g in given)


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


@WITH_READER
def test_what_is_unsupported_is_told_at_once(tmp_path: Path) -> None:
    tensors = [
        TensorOf((1, 4), scales=[0.1]),
        TensorOf((1, 4), scales=[0.2]),
        TensorOf((1, 4), "float32"),
        TensorOf((1, 4), "float32"),
    ]
    operators = [
        OperatorOf("TANH", [0], [1]),
        OperatorOf("DEQUANTIZE", [1], [2], "DequantizeOptions"),
        OperatorOf("SOFTMAX", [2], [3], "SoftmaxOptions", {"Beta": 1.0}),
    ]
    graph = read(model(tensors, operators, [0], [3]), tmp_path)
    with pytest.raises(HwgenError) as told:
        layers_of(graph)
    assert told.value.code == "H803"
    assert told.value.diagnostic.found.splitlines() == [
        "output tensor_3: float32",
        "tanh (operator 0): hwgen has no such operator",
        "dequantize (operator 1): hwgen has no such operator",
        "softmax (operator 2): float32 tensor_2",
    ]
