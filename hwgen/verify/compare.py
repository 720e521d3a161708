"""Results against the reference: integers bit for bit, floats as far as rounding explains, and how
much of them could be compared at all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from hwgen.model.numeric import Array, load
from hwgen.spec.typecheck import is_float
from hwgen.spec.workload import Workload
from hwgen.verify.data import Difference, differences, first_difference
from hwgen.verify.rounding import NO_LEEWAY, Bounded, Leeway, analysed

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Compared:
    """One output. `nan`: elements that are NaN in the result and in the reference; `unbounded`:
    others that differ and that rounding may bring anywhere, the first by the operation `leap`."""

    tensor: str
    elements: int
    nan: int = 0
    unbounded: int = 0
    leap: str = ""

    @property
    def count(self) -> int:
        """Elements that are known to be right."""
        return self.elements - self.nan - self.unbounded

    def exceptions(self) -> list[str]:
        """Sentences about elements that equality says nothing of."""
        of = f"of {self.elements:,} elements of {self.tensor}"
        found = [f"{self.nan:,} {of} are NaN here and in the reference"] * bool(self.nan)
        if self.unbounded:
            found.append(
                f"{self.unbounded:,} {of} are not compared: rounding may bring "
                f"`{self.leap}` anywhere there"
            )
        return found


@dataclass(frozen=True, slots=True)
class Comparison:
    """A result against the reference. `difference`: the first one that rounding does not explain;
    `tensors`: the outputs, where there is none."""

    difference: Difference | None = None
    tensors: tuple[Compared, ...] = field(default=())

    @property
    def vacuous(self) -> bool:
        """Whether no element was compared though there are some."""
        return any(t.elements for t in self.tensors) and not any(t.count for t in self.tensors)

    def verdict(self) -> str:
        """What the comparison shows, in a line."""
        names = ", ".join(t.tensor for t in self.tensors)
        said = [x for t in self.tensors for x in t.exceptions()]
        head = "nothing was compared" if self.vacuous else f"{names} equal to the reference"
        return "; ".join([head, *said])


def compare(
    workload: Workload,
    inputs: Mapping[str, Array],
    outputs: Mapping[str, Array],
    reference: Mapping[str, Array],
    leeway: Leeway = NO_LEEWAY,
) -> Comparison:
    """Compare every output with the reference; bounds are worked out where bits differ."""
    difference = first_difference(outputs, reference)
    if difference is not None and not _alike(outputs, reference):
        return Comparison(difference)
    bounds: Mapping[str, Bounded] = {}
    leaps: Mapping[str, str] = {}
    if difference is not None:
        bounds, leaps = analysed(workload, inputs, leeway)
    found: list[Compared] = []
    for name, right in reference.items():
        left, dtype = outputs[name], workload.tensor[name].dtype
        nan = _nan(left, dtype) & _nan(right, dtype)
        odd = np.reshape(differences(left, right), right.shape) & ~nan
        unbounded = np.zeros_like(odd)
        if odd.any():
            if name not in bounds:
                return Comparison(first_difference({name: left}, {name: right}))
            unbounded = odd & np.isinf(bounds[name].error)
            # A reference outside of the bound would show that the bound is wrong.
            far = outside(left, dtype, bounds[name]) | outside(right, dtype, bounds[name])
            if far.any():
                return Comparison(_difference(name, left, right, far, bounds[name]))
        nans, lost = (int(np.count_nonzero(x)) for x in (nan, unbounded))
        found.append(Compared(name, right.size, nans, lost, leaps.get(name, "")))
    return Comparison(tensors=tuple(found))


def unexplained(
    workload: Workload,
    inputs: Mapping[str, Array],
    outputs: Mapping[str, Array],
    reference: Mapping[str, Array],
    leeway: Leeway = NO_LEEWAY,
) -> Difference | None:
    """The first difference from the reference that rounding does not explain."""
    return compare(workload, inputs, outputs, reference, leeway).difference


@np.errstate(all="ignore")
def outside(found: Array, dtype: str, expected: Bounded) -> Mask:
    """Where a result is further from the exact value than rounding explains."""
    value = load(found, dtype).array.astype(np.float64)
    far = ~(np.abs(value - expected.value) <= expected.error)
    same = (value == expected.value) | (np.isnan(value) & np.isnan(expected.value))
    return far & ~same & np.isfinite(expected.error)


def _alike(outputs: Mapping[str, Array], reference: Mapping[str, Array]) -> bool:
    """Whether every tensor is there, with its shape and type."""
    pairs = [(outputs.get(n), right) for n, right in reference.items()]
    return all(
        left is not None and (left.shape, left.dtype) == (right.shape, right.dtype)
        for left, right in pairs
    )


def _nan(array: Array, dtype: str) -> Mask:
    if not is_float(dtype):
        return np.zeros(array.shape, np.bool_)
    return np.isnan(load(array, dtype).array.astype(np.float64))


def _difference(name: str, left: Array, right: Array, far: Mask, bound: Bounded) -> Difference:
    where = tuple(int(i) for i in np.unravel_index(int(np.argmax(far)), far.shape))
    expected = f"{right[where]} +- {bound.error[where]:.3g}"
    return Difference(
        name, where, str(left[where]), expected, int(np.count_nonzero(far)), right.size
    )


def least_compared(runs: Sequence[Comparison]) -> Comparison:
    """Of several runs of one kernel, the one of which least could be compared."""
    return min(runs, key=lambda c: sum(t.count for t in c.tensors), default=Comparison())
