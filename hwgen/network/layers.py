"""Names: of the network's function, and of kernels, which equal layers share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from hwgen.codegen.c_names import NameTable, identifier
from hwgen.codegen.c_reserved import reserved_words
from hwgen.network.graph import Graph
from hwgen.network.operators.layer import Computation, Layer
from hwgen.spec.hardware import HardwareSpec

_OWN = ("arena", "at", "count", "file", "from_file", "i", "in", "out", "words", "wrong")
"""Names in the text of a network's own files."""


def network_name(graph: Graph, hardware: HardwareSpec) -> str:
    """The name of the network's C function: that of the model's file, as far as C allows it."""
    table = NameTable(reserved_words(hardware))
    for word in _OWN:
        table.fresh(word)
    return table.function(identifier(graph.name).lower())


def kernel_names(network: str, layers: Iterable[Layer]) -> Mapping[Computation, str]:
    """A name for each computation: the network, the kind, and a number by first appearance. Layers
    whose computations are the same text have one; their numbers are apart, in constants."""
    found: dict[Computation, str] = {}
    counts: Counter[str] = Counter()
    for layer in layers:
        own = layer.computation
        if own is not None and own not in found:
            counts[own.kind] += 1
            found[own] = f"{network}_{own.kind}_{counts[own.kind]}"
    return found
