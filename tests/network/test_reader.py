"""Models to graphs; whatever is in a file, it is a graph or a coded error."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from hwgen.errors import HwgenError
from hwgen.network.compiled import read_graph
from hwgen.network.graph import Quantisation
from hwgen.network.operators.table import layers_of
from tests.models import WITH_READER, small_network

pytestmark = WITH_READER


def test_a_graph(tmp_path: Path) -> None:
    path = tmp_path / "My-Net.tflite"
    path.write_bytes(small_network())
    graph = read_graph(path)
    assert graph.name == "My-Net"
    assert [o.kind for o in graph.operators] == [
        "conv2d", "depthwise_conv2d", "add", "average_pool2d", "reshape", "fully_connected",
        "softmax",
    ]  # fmt: skip
    first = graph.operators[0]
    assert first.attributes == {
        "strides": (2, 2), "dilations": (1, 1), "auto_pad": "SAME_UPPER", "activation": "relu",
    }  # fmt: skip
    x, w, bias = (graph.tensor[name] for name in first.inputs)
    assert (x.shape, x.dtype, x.data) == ((1, 8, 8, 3), "int8", None)
    assert x.quantisation == Quantisation((float(np.float32(0.05)),), (-11,))
    assert w.quantisation is not None
    assert w.quantisation.per_channel
    assert w.data is not None
    assert w.data.shape == (8, 3, 3, 3)
    assert bias.data is not None
    assert bias.data.dtype == np.int32
    assert (graph.inputs, graph.outputs) == (("tensor_0",), ("tensor_13",))


@pytest.mark.parametrize("seed", range(150))
def test_a_damaged_file(seed: int, tmp_path: Path) -> None:
    """Bytes that are changed, or an end that is missing: no other exception, and at once."""
    rng = np.random.default_rng(seed)
    content = bytearray(small_network())
    if seed % 5 == 0:
        content = content[: rng.integers(0, len(content))]
    for at in rng.integers(8, max(len(content), 9), 1 + seed % 7):
        if at < len(content):
            content[at] = rng.integers(0, 256)
    path = tmp_path / "net.tflite"
    path.write_bytes(bytes(content))
    try:
        layers_of(read_graph(path))
    except HwgenError as error:
        assert error.code in ("H801", "H803")  # noqa: PT017 - a success is as good


@pytest.mark.parametrize("name", ["none.tflite", "folder.tflite"])
def test_no_file(name: str, tmp_path: Path) -> None:
    (tmp_path / "folder.tflite").mkdir()
    with pytest.raises(HwgenError) as told:
        read_graph(tmp_path / name)
    assert told.value.code == "H001"
