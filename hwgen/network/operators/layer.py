"""What an operator becomes: statements over its tensors, with its constants, or another name for
its input."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from hwgen.model.numeric import Array
from hwgen.network.graph import Graph, Operator, Tensor
from hwgen.spec.load import parse_workload
from hwgen.spec.workload import Workload

WEIGHTS = "w"
"""The tensor, in every computation that counts products, whose elements are multiplied."""
Floats = npt.NDArray[np.float64]


class UnsupportedError(Exception):
    """An operator, or a form of it, that no statements are known for; the text says which part."""


@dataclass(frozen=True, slots=True)
class Loops:
    """A statement with explicit loops and their extents, outermost first."""

    do: str
    loops: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Computation:
    """A workload without a name: layers whose texts are equal share one kernel."""

    kind: str
    sizes: tuple[tuple[str, int], ...]
    tensors: tuple[tuple[str, str], ...]
    constants: tuple[tuple[str, str], ...]
    compute: tuple[str | Loops, ...]

    def workload(self, name: str) -> Workload:
        """The workload of that name; its constants come after its other tensors.

        Raises:
            HwgenError: as `load_workload`; an entry of the table is wrong then.
        """
        constants = {n: {"type": text, "constant": True} for n, text in self.constants}
        data: dict[str, object] = {
            "name": name,
            "sizes": dict(self.sizes),
            "tensors": {**dict(self.tensors), **constants},
            "compute": [
                s if isinstance(s, str) else {"do": s.do, "loops": dict(s.loops)}
                for s in self.compute
            ],
        }
        return parse_workload(data, file=f"<{self.kind}>")


@dataclass(frozen=True, slots=True, eq=False)
class Layer:
    """An operator as a computation. `inputs`, `output`: tensors of the model by their names in the
    computation; `constants`: values; `macs`: its products of a weight and an activation.
    `inexact`: as of a comparison's leeway. Without a `computation` the output is the input under
    another name."""

    operator: Operator
    computation: Computation | None
    inputs: tuple[tuple[str, str], ...]
    output: tuple[str, str]
    constants: Mapping[str, Array] = field(default_factory=dict[str, Array])
    macs: int = 0
    inexact: Mapping[str, float | Floats] = field(default_factory=dict[str, "float | Floats"])


def alias(graph: Graph, operator: Operator) -> Layer:
    """The first input as it is, in another shape."""
    given, made = tensors(graph, operator, 1)[0], result(graph, operator)
    need(given.bytes == made.bytes and given.dtype == made.dtype, "another number of elements")
    need(given.quantisation == made.quantisation, "another scale than its input")
    return Layer(operator, None, (("x", given.name),), ("y", made.name))


# --- questions that every entry asks --------------------------------------------------------------


def need(condition: bool, otherwise: str) -> None:
    """Refuse a form of an operator.

    Raises:
        UnsupportedError: where the condition does not hold.
    """
    if not condition:
        raise UnsupportedError(otherwise)


def tensors(graph: Graph, operator: Operator, count: int) -> tuple[Tensor, ...]:
    """The first inputs, all present.

    Raises:
        UnsupportedError: where one is missing.
    """
    given = operator.inputs[:count]
    need(len(given) == count and all(given), f"fewer than {count} inputs")
    return tuple(graph.tensor[name] for name in given)


def result(graph: Graph, operator: Operator) -> Tensor:
    """The one output.

    Raises:
        UnsupportedError: where there are several.
    """
    need(len(operator.outputs) == 1, f"{len(operator.outputs)} outputs")
    return graph.tensor[operator.outputs[0]]


def constant(tensor: Tensor, words: str) -> Array:
    """The values of a constant.

    Raises:
        UnsupportedError: where the model computes it.
    """
    need(tensor.data is not None, f"{words} that are computed")
    assert tensor.data is not None
    return tensor.data


def integers(operator: Operator, name: str, count: int) -> tuple[int, ...]:
    """An attribute of so many integers, all positive or zero.

    Raises:
        UnsupportedError: where there is none.
    """
    found = operator.attributes.get(name)
    need(isinstance(found, tuple) and len(found) == count and min(found) >= 0, f"no {name}")
    assert isinstance(found, tuple)
    return found


def same_type(*given: Tensor) -> str:
    """The data type of all of them.

    Raises:
        UnsupportedError: where they differ, or where it is none of int8, int16 and float32.
    """
    first = given[0].dtype
    for tensor in given:
        known = tensor.dtype in ("int8", "int16", "float32")
        need(known and tensor.dtype == first, f"{tensor.dtype} {tensor.name}")
    return first


def limits_of(dtype: str) -> tuple[int, int]:
    """The least and the greatest number of an integer type."""
    found = np.iinfo(dtype)
    return int(found.min), int(found.max)


def scale_of(tensor: Tensor) -> tuple[float, int]:
    """Scale and zero point of an integer tensor with one of each; that of int16 is 0.

    Raises:
        UnsupportedError: another type, or another quantisation.
    """
    need(tensor.dtype in ("int8", "int16", "uint8"), f"{tensor.dtype} {tensor.name}")
    given = tensor.quantisation
    need(given is not None, f"no scale of {tensor.name}")
    assert given is not None
    need(not given.per_channel, f"a scale per channel of {tensor.name}")
    (scale,), (zero,) = given.scales, given.zero_points
    low, high = (0, 0) if tensor.dtype == "int16" else limits_of(tensor.dtype)
    need(0.0 < scale < float("inf") and low <= zero <= high, f"the scale of {tensor.name}")
    return scale, zero


def same_scale(first: Tensor, *others: Tensor) -> None:
    """Demand that numbers of one tensor can be moved to the others.

    Raises:
        UnsupportedError: where types, scales or zero points differ.
    """
    for other in others:
        need(other.dtype == first.dtype, f"{other.dtype} {other.name}")
        need(other.quantisation == first.quantisation, f"another scale of {other.name}")


# --- layers of a few statements -------------------------------------------------------------------


def typed(dtype: str, extents: Sequence[int]) -> str:
    """The type of a tensor as workloads write it."""
    return f"{dtype}[{', '.join(map(str, extents))}]"


def stated(
    operator: Operator,
    given: Mapping[str, tuple[Tensor, Sequence[int]]],
    between: Mapping[str, str],
    made: tuple[Tensor, Sequence[int]],
    compute: Sequence[str | Loops],
    constants: Mapping[str, Array] | None = None,
) -> Layer:
    """A layer of statements that write `y`. `given`, `made`: tensors of the model, by their names
    in the statements, in the shapes that these see; `between`: types of intermediates;
    `constants`: values that are not in the model."""
    values = dict(constants or {})
    values |= {n: np.reshape(t.data, e) for n, (t, e) in given.items() if t.data is not None}
    types = {n: typed(t.dtype, e) for n, (t, e) in given.items()}
    types |= {n: typed(str(v.dtype), v.shape) for n, v in (constants or {}).items()}
    inputs = {n: t.name for n, (t, _) in given.items() if t.data is None}
    output, extents = made
    computation = Computation(
        operator.kind,
        (),
        (*((n, types[n]) for n in inputs), *between.items(), ("y", typed(output.dtype, extents))),
        tuple((n, types[n]) for n in values),
        tuple(compute),
    )
    return Layer(operator, computation, tuple(inputs.items()), ("y", output.name), values)


Kind = tuple[int, ...]


def merged(
    extents: Sequence[int], kinds: Sequence[Kind | None], otherwise: Kind = ()
) -> list[tuple[int, Kind]]:
    """Dimensions with their kinds: adjacent ones of one kind as one, those of none left out;
    `otherwise`: the kind of the only one where none is left."""
    found: list[tuple[int, Kind]] = []
    for extent, kind in zip(extents, kinds, strict=True):
        if kind is not None and found and kind == found[-1][1]:
            found[-1] = (found[-1][0] * extent, kind)
        elif kind is not None:
            found.append((extent, kind))
    return found or [(1, otherwise)]
