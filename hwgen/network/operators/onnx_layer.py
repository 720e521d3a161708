"""Statements for operators on tensors of any rank, as ONNX has them."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite, isnan

import numpy as np

from hwgen.model.numeric import Array
from hwgen.network.graph import Graph, Operator, Tensor
from hwgen.network.operators.layer import (
    Computation,
    Floats,
    Layer,
    Loops,
    constant,
    need,
    result,
)
from hwgen.spec.expression import DTYPES

Axis = tuple[str, int]
"""An index and the extent of its dimension. Dimensions of extent 1 are left out of tensors."""
Term = tuple[str, int, int]
"""A loop, its extent and its coefficient."""

FLOATS = ("float32", "float64")


class Statements:
    """The computation of one operator while it is written. Tensors are named when they are first
    read; the operator's own ones are inputs, or constants where the model gives their values."""

    def __init__(self, graph: Graph, operator: Operator) -> None:
        self.graph, self.operator = graph, operator
        self.y = result(graph, operator)
        need(self.y.dtype in DTYPES, f"{self.y.dtype} {self.y.name}")
        need(self.y.elements > 0, f"{self.y.name} without elements")
        self.compute: list[str | Loops] = []
        self._tensors: dict[str, str] = {}
        self._inputs: dict[str, str] = {}
        self._constants: dict[str, str] = {}
        self._values: dict[str, Array] = {}
        self.inexact: dict[str, float | Floats] = {}

    # --- the operator's tensors ---

    def has(self, number: int) -> bool:
        """Whether an optional input is there."""
        return len(self.operator.inputs) > number and bool(self.operator.inputs[number])

    def given(self, number: int) -> Tensor:
        """An input."""
        need(self.has(number), f"fewer than {number + 1} inputs")
        return self.graph.tensor[self.operator.inputs[number]]

    def values(self, number: int, words: str) -> Array:
        """An input that must be constant."""
        return constant(self.given(number), words)

    def number(self, name: str, default: float) -> float:
        """An attribute."""
        found = self.operator.attributes.get(name, default)
        need(isinstance(found, int | float), f"no {name}")
        assert isinstance(found, int | float)
        return found

    def word(self, name: str, default: str) -> str:
        found = self.operator.attributes.get(name, default)
        need(isinstance(found, str), f"no {name}")
        assert isinstance(found, str)
        return found

    def integers(self, name: str, default: Sequence[int]) -> tuple[int, ...]:
        found = self.operator.attributes.get(name, tuple(default))
        need(isinstance(found, tuple), f"no {name}")
        assert isinstance(found, tuple)
        return found

    # --- tensors of the computation ---

    def read(self, number: int, name: str, axes: Sequence[Axis]) -> str:
        """An input's element; its dimensions may be grouped in another way than in the model."""
        tensor = self.given(number)
        need(tensor.dtype in DTYPES, f"{tensor.dtype} {tensor.name}")
        need(tensor.elements > 0, f"{tensor.name} without elements")
        text = f"{tensor.dtype}{_shape(axes)}"
        if tensor.data is None:
            self._inputs[name], self._tensors[name] = tensor.name, text
        else:
            self._constant(name, text, tensor.data, axes)
        return access(name, axes)

    def constant(self, name: str, dtype: str, values: Array, axes: Sequence[Axis]) -> str:
        """The element of a constant that the model does not have."""
        self._constant(name, f"{dtype}{_shape(axes)}", values, axes)
        return access(name, axes)

    def _constant(self, name: str, text: str, values: Array, axes: Sequence[Axis]) -> None:
        shape = [n for _, n in axes if n > 1] or [1]
        self._constants[name], self._values[name] = text, np.reshape(values, shape)

    def local(self, name: str, dtype: str, axes: Sequence[Axis]) -> str:
        """The element of an intermediate tensor, or of the output `y`."""
        self._tensors[name] = f"{dtype}{_shape(axes)}"
        return access(name, axes)

    def say(self, statement: str, loops: Sequence[Axis] = ()) -> None:
        """Add a statement; with `loops` where indices do not say their extents."""
        extents = tuple((name, str(n)) for name, n in loops if n > 1)
        self.compute.append(Loops(statement, extents) if extents else statement)

    def finish(self, value: str, axes: Sequence[Axis], macs: int = 0) -> Layer:
        """The layer whose output is a value after the operator's activation."""
        y = self.y.dtype
        activation = self.word("activation", "{0}")
        target = access("y", axes)
        if activation.count("{0}") > 1:
            before = self.local("before", y, axes)
            self.say(f"{before} = {cast(y, value)}", axes)
            value = before
        elif activation != "{0}":
            value = f"({value})"
        self.local("y", y, axes)
        self.say(f"{target} = {cast(y, activation.format(value))}", axes)
        return self.layer(macs)

    def layer(self, macs: int = 0) -> Layer:
        """The layer; its output is `y`."""
        need(bool(self._inputs), "constant inputs")
        # Outputs come last in a workload, whatever statement named them first.
        tensors = [(n, t) for n, t in self._tensors.items() if n != "y"]
        computation = Computation(
            self.operator.kind.lower(),
            (),
            (*tensors, ("y", self._tensors["y"])),
            tuple(self._constants.items()),
            tuple(self.compute),
        )
        if "folded" in self.operator.attributes:
            # Numbers that were rounded once, to float32.
            for name, values in self._values.items():
                self.inexact[name] = 2.0**-24 * np.abs(values.astype(np.float64)) + 2.0**-150
        return Layer(
            self.operator, computation, tuple(self._inputs.items()), ("y", self.y.name),
            self._values, macs, self.inexact,
        )  # fmt: skip


def access(name: str, axes: Sequence[Axis]) -> str:
    """An element of a tensor."""
    indices = [index for index, n in axes if n > 1]
    return f"{name}[{', '.join(indices)}]" if indices else name


def _shape(axes: Sequence[Axis]) -> str:
    return f"[{', '.join(str(n) for _, n in axes if n > 1)}]"


def axes_of(shape: Sequence[int], prefix: str = "i") -> list[Axis]:
    """An index for each dimension."""
    return [(f"{prefix}{n}", extent) for n, extent in enumerate(shape)]


def broadcast(shape: Sequence[int], axes: Sequence[Axis]) -> list[Axis]:
    """The axes of a tensor that is broadcast to others."""
    need(len(shape) <= len(axes), "shapes that do not agree")
    last = axes[len(axes) - len(shape) :]
    for n, (_, extent) in zip(shape, last, strict=True):
        need(n in (1, extent), "shapes that do not agree")
    return [(index, n) for n, (index, _) in zip(shape, last, strict=True)]


def affine(terms: Sequence[Term], offset: int = 0) -> str:
    """An index: a sum of loops, without those of one iteration."""
    said = [
        name if factor == 1 else f"{name}*{factor}"
        for name, extent, factor in terms
        if extent > 1 and factor
    ]
    text = " + ".join(said)
    if not text:
        return str(offset)
    return f"{text} + {offset}" if offset > 0 else f"{text} - {-offset}" if offset else text


def literal(value: float) -> str:
    """A number of a statement."""
    need(not isnan(value), "NaN as a parameter")
    if not isfinite(value):
        return "inf" if value > 0 else "-inf"
    return repr(float(value))


def cast(dtype: str, value: str) -> str:
    """The value in a type that may be narrower than what it is computed in."""
    return value if dtype in FLOATS else f"{dtype}({value})"


def need_float(*tensors: Tensor) -> str:
    """The type of tensors of floats.

    Raises:
        UnsupportedError: of other types.
    """
    for tensor in tensors:
        need(tensor.dtype in FLOATS, f"{tensor.dtype} {tensor.name}")
    return tensors[0].dtype
