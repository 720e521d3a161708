"""The statements of one operator, while they are written."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite, isnan, prod

import numpy as np

from hwgen.model.numeric import Array
from hwgen.network.graph import Graph, Operator, Tensor
from hwgen.network.operators.layer import Computation, Floats, Layer, Loops, agree, need
from hwgen.spec.expression import DTYPES
from hwgen.spec.typecheck import integer_range, is_float

Axis = tuple[str, int]
"""An index and the extent of its dimension."""
Term = tuple[str, int, int]
"""A loop, its extent and its coefficient."""
Kind = tuple[int, ...]


class Statements:
    """The computation of one operator while it is written. Tensors are named when they are first
    read; the operator's own ones are inputs, or constants where the model gives their values.
    `activation`: an expression of the value `{0}`, the last step of the output. By the number of an
    input, `instead`: a constant in its place; `converted`: the type that a statement brings it to
    first, and the expression."""

    def __init__(self, graph: Graph, operator: Operator) -> None:
        self.graph, self.operator = graph, operator
        need(len(operator.outputs) == 1, f"{len(operator.outputs)} outputs")
        self.output = graph.tensor[operator.outputs[0]]
        self.activation = self.word("fused", "{0}")
        self.instead: dict[int, Tensor] = {}
        self.converted: dict[int, tuple[str, str]] = {}
        self.sizes: dict[str, int] = {}
        self.inexact: dict[str, float | Floats] = {}
        self._compute: list[str | Loops] = []
        self._tensors: dict[str, str] = {}
        self._inputs: dict[str, str] = {}
        self._constants: dict[str, str] = {}
        self._values: dict[str, Array] = {}

    # --- the operator's tensors and attributes ---

    @property
    def y(self) -> Tensor:
        """The output."""
        return _known(self.output)

    def has(self, number: int) -> bool:
        """Whether an optional input is there."""
        return len(self.operator.inputs) > number and bool(self.operator.inputs[number])

    def given(self, number: int = 0) -> Tensor:
        """An input."""
        need(self.has(number), f"fewer than {number + 1} inputs")
        return self.instead.get(number) or self.graph.tensor[self.operator.inputs[number]]

    def dtype(self, number: int) -> str:
        """The type in which an input is read."""
        converted = self.converted.get(number)
        return converted[0] if converted else self.given(number).dtype

    def values(self, number: int, words: str) -> Array:
        """An input that must be constant."""
        found = self.given(number).data
        need(found is not None, f"{words} that are computed")
        assert found is not None
        return found

    def list(self, number: int, words: str) -> list[int]:
        """The same, of whole numbers."""
        return self.values(number, words).ravel().tolist()

    def number(self, name: str, default: float | None = None) -> float:
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

    def integers(self, name: str, default: Sequence[int] | None = None) -> tuple[int, ...]:
        found = self.operator.attributes.get(name, None if default is None else tuple(default))
        need(isinstance(found, tuple), f"no {name}")
        assert isinstance(found, tuple)
        return found

    def axis(self, rank: int, default: int | None = None) -> int:
        """The attribute `axis`, from 0 on."""
        found = int(self.number("axis", default))
        need(-rank <= found < rank, "no axis")
        return found % rank

    # --- tensors of the computation ---

    def read(
        self, number: int, name: str, axes: Sequence[Axis], laid: Sequence[Axis] | None = None
    ) -> str:
        """An input's element; its dimensions may be grouped in another way than in the model.
        `laid`: the order of the same axes in which a constant is laid out."""
        tensor = _known(self.given(number))
        if tensor.data is None:
            if number in self.converted:
                dtype, text = self.converted[number]
                self._inputs[f"{name}_in"] = tensor.name
                given = self.local(f"{name}_in", tensor.dtype, axes)
                return self.made(name, dtype, axes, text.format(given))
            self._inputs[name] = tensor.name
            return self.local(name, tensor.dtype, axes)
        if laid is None or len(laid) == len(axes) == 0:
            return self.constant(name, tensor.dtype, tensor.data, axes)
        order = [axes.index(axis) for axis in laid]
        values = np.transpose(np.reshape(tensor.data, [n for _, n in axes]), order)
        return self.constant(name, tensor.dtype, np.ascontiguousarray(values), laid)

    def constant(self, name: str, dtype: str, values: Array, axes: Sequence[Axis]) -> str:
        """The element of a constant that the model does not have."""
        self._constants[name] = f"{dtype}{_shape(axes)}"
        self._values[name] = np.reshape(values, [n for _, n in axes] or [1])
        return access(name, axes)

    def local(self, name: str, dtype: str, axes: Sequence[Axis]) -> str:
        """The element of an intermediate tensor, or of the output `y`."""
        self._tensors[name] = f"{dtype}{_shape(axes)}"
        return access(name, axes)

    def say(self, statement: str, loops: Sequence[Axis] = ()) -> None:
        """Add a statement; with `loops` where indices do not say their extents."""
        extents = tuple((name, str(n)) for name, n in loops)
        self._compute.append(Loops(statement, extents) if extents else statement)

    def made(self, name: str, dtype: str, axes: Sequence[Axis], value: str) -> str:
        """The element of an intermediate tensor, with the statement that computes it."""
        target = self.local(name, dtype, axes)
        self.say(f"{target} = {value}")
        return target

    def elements(self, *numbers: int) -> tuple[list[Axis], list[str]]:
        """The output's dimensions, and how inputs that broadcast to it are read there. Adjacent
        dimensions that the same inputs have are one; the last is apart where it has channels."""
        shape = self.y.shape
        shapes = [(1,) * (len(shape) - len(t.shape)) + t.shape for t in map(self.given, numbers)]
        agree(all(len(own) == len(shape) for own in shapes))
        agree(all(n in (1, m) for own in shapes for n, m in zip(own, shape, strict=True)))
        last = len(shape) - 1 if self.graph.channels_last else -1
        kinds = [
            None if n == 1 else (d == last, *(own[d] == n for own in shapes))
            for d, n in enumerate(shape)
        ]
        found = merged(shape, kinds, (1,) * (1 + len(shapes)))
        names = [*letters("ijklmn", len(found) - 1), "c"]
        reads: list[str] = []
        for n, number in enumerate(numbers, 1):
            own = [(names[d], extent) for d, (extent, kind) in enumerate(found) if kind[n]]
            name = "ab"[n - 1] if n < 3 else f"x{n - 1}"
            reads.append(self.read(number, name, own or [("0", 1)]))
        return list(zip(names, (n for n, _ in found), strict=True)), reads

    # --- the layer ---

    def finish(self, value: str, axes: Sequence[Axis], macs: int = 0) -> Layer:
        """The layer whose output is a value after the activation."""
        y = self.y.dtype
        if self.activation.count("{0}") > 1:
            value = self.made("before", y, axes, cast(y, value))
        self.made("y", y, axes, self.ended(value))
        return self.layer(macs)

    def ended(self, value: str) -> str:
        """A value after the activation, in the output's type."""
        value = value if self.activation == "{0}" else f"({value})"
        return cast(self.y.dtype, self.activation.format(value))

    def layer(self, macs: int = 0) -> Layer:
        """The layer; its output is `y`."""
        need(bool(self._inputs), "a constant input")
        # Outputs come last in a workload, whatever statement named them first.
        tensors = [(n, t) for n, t in self._tensors.items() if n != "y"]
        computation = Computation(
            self.operator.kind.lower(),
            tuple(self.sizes.items()),
            (*tensors, ("y", self._tensors["y"])),
            tuple(self._constants.items()),
            tuple(self._compute),
            tuple((n, _range(a)) for n, a in self._values.items() if str(a.dtype) in WIDE),
        )
        if "folded" in self.operator.attributes:
            # Numbers that were rounded once, to float32.
            for name, values in self._values.items():
                self.inexact[name] = 2.0**-24 * np.abs(values.astype(np.float64)) + 2.0**-150
        return Layer(
            self.operator, computation, tuple(self._inputs.items()), ("y", self.y.name),
            self._values, macs, self.inexact,
        )  # fmt: skip


def alias(s: Statements) -> Layer:
    """The first input as it is, in another shape."""
    given, made = s.given(), s.output
    need(
        given.elements == made.elements and given.dtype == made.dtype, "another number of elements"
    )
    need(given.quantisation == made.quantisation, "another scale than its input")
    need(given.data is None, "a constant input")
    return Layer(s.operator, None, (("x", given.name),), ("y", made.name))


def _known(tensor: Tensor) -> Tensor:
    need(tensor.dtype in DTYPES, f"{tensor.dtype} {tensor.name}")
    need(tensor.elements > 0, f"{tensor.name} without elements")
    return tensor


def access(name: str, axes: Sequence[Axis]) -> str:
    """An element of a tensor."""
    return f"{name}[{', '.join(index for index, _ in axes)}]" if axes else name


def _shape(axes: Sequence[Axis]) -> str:
    return f"[{', '.join(str(n) for _, n in axes)}]"


def letters(names: str, count: int) -> list[str]:
    """So many names of loops."""
    return list(names[:count]) if count <= len(names) else [f"{names[0]}{n}" for n in range(count)]


def axes_of(shape: Sequence[int], names: str = "ijklmn") -> list[Axis]:
    """An index for each dimension."""
    return list(zip(letters(names, len(shape)), shape, strict=True))


def wide(axes: Sequence[Axis]) -> list[Axis]:
    """Without dimensions of extent 1."""
    return [axis for axis in axes if axis[1] > 1]


def extent(axes: Sequence[Axis]) -> int:
    """The elements of the dimensions."""
    return prod(n for _, n in axes)


def broadcast(shape: Sequence[int], axes: Sequence[Axis]) -> list[Axis]:
    """The axes of a tensor that is broadcast to others, without dimensions of extent 1."""
    agree(len(shape) <= len(axes))
    last = axes[len(axes) - len(shape) :]
    agree(all(n in (1, m) for n, (_, m) in zip(shape, last, strict=True)))
    return wide([(index, n) for n, (index, _) in zip(shape, last, strict=True)])


def merged(
    extents: Sequence[int], kinds: Sequence[Kind | None], otherwise: Kind = ()
) -> list[tuple[int, Kind]]:
    """Dimensions with their kinds: adjacent ones of one kind as one, those of none left out;
    `otherwise`: the kind of the only one where none is left."""
    found: list[tuple[int, Kind]] = []
    for n, kind in zip(extents, kinds, strict=True):
        if kind is not None and found and kind == found[-1][1]:
            found[-1] = (found[-1][0] * n, kind)
        elif kind is not None:
            found.append((n, kind))
    return found or [(1, otherwise)]


def affine(terms: Sequence[Term], offset: int = 0) -> str:
    """An index: a sum of loops, without those of one iteration."""
    said = [
        name if factor == 1 else f"{name}*{factor}" for name, n, factor in terms if n > 1 and factor
    ]
    text = " + ".join(said)
    if not text:
        return str(offset)
    return f"{text} + {offset}" if offset > 0 else f"{text} - {-offset}" if offset else text


def literal(value: float, dtype: str = "float32") -> str:
    """A number of a statement, of such a type."""
    if not is_float(dtype):
        return str(int(value))
    need(not isnan(value), "NaN as a parameter")
    if not isfinite(value):
        return "inf" if value > 0 else "-inf"
    return repr(float(value))


def cast(dtype: str, value: str) -> str:
    """The value in a type that may be narrower than what it is computed in."""
    return value if dtype in ("float32", "float64") else f"{dtype}({value})"


WIDE = ("int32", "int64")
"""Types of constants whose values are known better than by their type."""


def _range(values: Array) -> str:
    """A range that holds some integers: from 0, 1 or a power of 16 below it to one above, so that
    layers of like numbers still share a kernel."""
    low, high = int(values.min()), int(values.max())
    first, last = integer_range(str(values.dtype))
    least = min(low, 1) if low >= 0 else max(-_power(-low - 1), first)
    return f"{least}..{min(_power(high) - 1, last) if high > 0 else 0}"


def _power(number: int) -> int:
    """The least power of 16 that is greater."""
    return 1 << 4 * -(-number.bit_length() // 4)
