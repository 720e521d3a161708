"""The table of ONNX operators."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from hwgen.network.graph import Graph, Operator
from hwgen.network.operators import (
    onnx_elementwise,
    onnx_moves,
    onnx_quantised,
    onnx_sums,
    onnx_windows,
)
from hwgen.network.operators.layer import Layer, alias

ONNX: Mapping[str, Callable[[Graph, Operator], Layer]] = {
    **onnx_elementwise.ENTRIES,
    **onnx_moves.ENTRIES,
    **onnx_quantised.ENTRIES,
    **onnx_sums.ENTRIES,
    **onnx_windows.ENTRIES,
    **dict.fromkeys(("Dropout", "Flatten", "Identity", "Reshape", "Squeeze", "Unsqueeze"), alias),
}
"""A new operator is one function and one line in its file's entries."""
