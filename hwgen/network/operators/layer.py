"""What an operator becomes: statements over its tensors, with its constants, or another name for
its input."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from hwgen.model.numeric import Array
from hwgen.network.graph import Operator, Tensor
from hwgen.spec.load import parse_workload
from hwgen.spec.typecheck import integer_range
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
    """A workload without a name: layers whose texts are equal share one kernel. `ranges`: of
    constants of more than 8 bits, the values."""

    kind: str
    sizes: tuple[tuple[str, int], ...]
    tensors: tuple[tuple[str, str], ...]
    constants: tuple[tuple[str, str], ...]
    compute: tuple[str | Loops, ...]
    ranges: tuple[tuple[str, str], ...] = ()

    def workload(self, name: str) -> Workload:
        """The workload of that name; its constants come after its other tensors.

        Raises:
            HwgenError: as `load_workload`; an entry of the table is wrong then.
        """
        constants = {n: {"type": text, "constant": True} for n, text in self.constants}
        for constant, text in self.ranges:
            constants[constant]["range"] = text
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


# --- questions that every entry asks --------------------------------------------------------------


def need(condition: bool, otherwise: str) -> None:
    """Refuse a form of an operator.

    Raises:
        UnsupportedError: where the condition does not hold.
    """
    if not condition:
        raise UnsupportedError(otherwise)


def agree(condition: bool) -> None:
    """Refuse shapes that are not the operator's.

    Raises:
        UnsupportedError: where the condition does not hold.
    """
    need(condition, "shapes that do not agree")


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


def need_float(*tensors: Tensor) -> str:
    """The type of tensors of floats.

    Raises:
        UnsupportedError: of other types.
    """
    for tensor in tensors:
        need(tensor.dtype in ("float32", "float64"), f"{tensor.dtype} {tensor.name}")
    return tensors[0].dtype


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
    low, high = (0, 0) if tensor.dtype == "int16" else integer_range(tensor.dtype)
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
