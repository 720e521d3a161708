"""How far a floating-point result may be from the exact one: a running error analysis.

Every value carries a bound of its absolute error, as in Higham, "Accuracy and Stability of
Numerical Algorithms" (2nd ed., ch. 3 and 4.3): each operation adds half a unit in the last place
of its result to what its operands bring; a sum of n terms, in any order, at most (n - 1) times
that of the sum of magnitudes. So kernels may add in another order than the reference, and no
tolerance is chosen by hand.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import product

import numpy as np
import numpy.typing as npt

from hwgen.model.numeric import Array, load
from hwgen.model.reference import run_reference
from hwgen.spec.expression import (
    Access,
    Binary,
    Call,
    Cast,
    Const,
    Expr,
    Name,
    Unary,
    names,
    tensors_of,
)
from hwgen.spec.typecheck import dtype_of, integer_range, is_float, promoted
from hwgen.spec.workload import Statement, Workload
from hwgen.verify.data import Difference, first_difference

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Grids = Mapping[str, Integers]

UNIT = {"float16": 2.0**-11, "bfloat16": 2.0**-8, "float32": 2.0**-24, "float64": 2.0**-53}
"""Half a unit in the last place of 1."""

SMALLEST = {"float16": 2.0**-25, "bfloat16": 2.0**-134, "float32": 2.0**-150, "float64": 2.0**-1075}
"""Half the smallest positive number: what rounding to a subnormal may lose."""

OVERFLOW = {
    "float16": 65520.0, "bfloat16": float.fromhex("0x1.ffp127"),
    "float32": float.fromhex("0x1.ffffffp127"), "float64": np.inf,
}  # fmt: skip
"""From here on a number is rounded to infinity."""

LIBRARY_ULPS = 8
"""Units in the last place by which functions of C libraries and of vector units are off."""

POINTS = 1 << 21
"""Points of an iteration domain that are evaluated at once."""


@dataclass(frozen=True)
class Bounded:
    """Values near the exact ones and how far results may be from them."""

    value: Floats
    error: Floats


def rounding_bounds(
    workload: Workload, inputs: Mapping[str, Array], rescaled: Mapping[str, int] | None = None
) -> dict[str, Bounded]:
    """For each output that depends on floats, values and a bound of a correct kernel's distance;
    `rescaled`: by tensor of terms, how often sums of them may have been rescaled."""
    blocks = rescaled or {}
    coarsest = max((UNIT.get(t.dtype, 0.0) for t in workload.tensors), default=0.0)
    known = run_reference(workload, inputs, intermediates=True)
    tensors: dict[str, Bounded] = {}
    for tensor in workload.tensors:
        array = inputs[tensor.name] if tensor.role == "input" else known[tensor.name]
        value = load(array, tensor.dtype).array.astype(np.float64)
        tensors[tensor.name] = Bounded(value, np.zeros_like(value))
    inexact: set[str] = set()
    following = (*workload.statements[1:], None)
    for statement, after in zip(workload.statements, following, strict=True):
        target = statement.target.tensor
        reads = tensors_of(statement.value)
        if after is not None and after.continues:
            reads |= tensors_of(after.value)
        if is_float(workload.tensor[target].dtype) or not inexact.isdisjoint(reads):
            _Analysis(workload, statement, tensors).run()
            inexact.add(target)
        if target in blocks:
            tensors[target] = _rescaled(tensors[target], blocks[target], coarsest)
    return {t.name: tensors[t.name] for t in workload.outputs if t.name in inexact}


def _rescaled(terms: Bounded, blocks: int, unit: float) -> Bounded:
    """Terms `exp(c * (x - t))` as products of one for the extremum so far and one factor for each
    later block.

    The exponents of these are differences that add up to `c * (x - t)`, of one sign: rounding them
    moves the sum no further than rounding that. Each factor is a function of a library, and
    rounding the product and the sum in each block is once more each than where blocks follow no
    other. What is below the smallest number is lost, at most once a block.
    """
    each = (2 * LIBRARY_ULPS + 2) * unit
    with np.errstate(all="ignore"):
        relative = float(np.expm1(blocks * np.log1p(each)))
        least = blocks * max(SMALLEST[d] for d, u in UNIT.items() if u == unit)
        more = relative * (np.abs(terms.value) + terms.error) + least
    return Bounded(terms.value, terms.error + more)


@dataclass
class _Analysis:
    workload: Workload
    statement: Statement
    tensors: dict[str, Bounded]
    terms: Floats = field(init=False)
    most: Floats = field(init=False)

    def run(self) -> None:
        """Replace the target's elements by what the statement gives."""
        s = self.statement
        target = self.workload.tensor[s.target.tensor]
        loops = list(s.loops)
        used = {n for i in s.target.indices for n in names(i)}
        before = self.tensors[target.name]
        value, error = np.array(before.value), np.array(before.error)
        # Where values are taken from the last ones in order, one iteration after the other.
        fixed = [(n, range(e)) for n, e in loops if s.ordered and n in s.folded]
        if s.op == "=":
            outer = [x for x in loops if not s.ordered or x[0] not in s.folded]
            inner: list[tuple[str, int]] = []
        else:
            outer = [x for x in loops if x[0] in used]
            inner = [x for x in loops if x[0] not in used]
        width = int(np.prod([e for _, e in inner], dtype=np.int64))
        first = outer[0][1] if outer else 1
        rest = int(np.prod([e for _, e in outer[1:]], dtype=np.int64)) * width
        step = max(1, POINTS // max(1, rest))
        self.tensors[target.name] = Bounded(value, error)
        self.terms, self.most = np.zeros_like(value), np.zeros_like(value)
        for point in product(*(values for _, values in fixed)):
            at = dict(zip((n for n, _ in fixed), point, strict=True))
            for low in range(0, first, step):
                self._part(outer, inner, (low, min(first, low + step)), at, value, error)
        if s.continues:
            self.tensors[target.name] = self._met()

    def _part(
        self,
        outer: list[tuple[str, int]],
        inner: list[tuple[str, int]],
        part: tuple[int, int],
        at: Mapping[str, int],
        value: Floats,
        error: Floats,
    ) -> None:
        loops = [*outer, *inner]
        lows = [part[0] if outer and d == 0 else 0 for d in range(len(loops))]
        highs = [part[1] if outer and d == 0 else e for d, (_, e) in enumerate(loops)]
        shape = tuple(b - a for a, b in zip(lows, highs, strict=True))
        grids: dict[str, Integers] = {}
        for d, (name, _) in enumerate(loops):
            axis = [highs[d] - lows[d] if i == d else 1 for i in range(len(loops))]
            grids[name] = np.reshape(np.arange(lows[d], highs[d], dtype=np.int64), axis)
        grids |= {n: np.full((1,) * len(loops), i, dtype=np.int64) for n, i in at.items()}
        found = self._evaluate(self.statement.value, grids)
        v = np.broadcast_to(found.value, shape)
        e = np.broadcast_to(found.error, shape)
        dtype = self.workload.tensor[self.statement.target.tensor].dtype
        axes = tuple(range(len(outer), len(loops)))
        terms = int(np.prod(shape[len(outer) :], dtype=np.int64))
        match self.statement.op:
            case "+=":
                # Besides the additions, each term may be rounded once more where it is stored.
                unit, least = UNIT.get(dtype, 0.0), SMALLEST.get(dtype, 0.0)
                most = (np.abs(v) + e).sum(axes)
                lost = terms * unit * most + terms * least
                # Past the largest value, what a part of the sum becomes depends on the order.
                lost = np.where(most < OVERFLOW.get(dtype, np.inf), lost, np.inf)
                v, e = v.sum(axes), e.sum(axes) + lost
            case "max=":
                v, e = v.max(axes, initial=-np.inf), e.max(axes, initial=0)
            case "min=":
                v, e = v.min(axes, initial=np.inf), e.max(axes, initial=0)
            case "=":
                pass
        written = {n: np.reshape(grids[n], grids[n].shape[: len(outer)]) for n, _ in outer}
        place = tuple(
            np.broadcast_to(self._index(i, written), shape[: len(outer)])
            for i in self.statement.target.indices
        )
        if self.statement.continues:
            self._meet(place, Bounded(v, e), terms)
            return
        rounded = _rounded(Bounded(v, e), dtype)
        value[place], error[place] = rounded.value, rounded.error

    def _meet(self, place: tuple[Integers, ...], new: Bounded, terms: int) -> None:
        """Put values of several iterations, each of so many terms, into one element."""
        held = self.tensors[self.statement.target.tensor]
        if self.statement.op != "+=":
            fold = np.maximum if self.statement.op == "max=" else np.minimum
            fold.at(held.value, place, new.value)
            np.maximum.at(held.error, place, new.error)
            return
        np.add.at(self.terms, place, float(terms))
        np.add.at(self.most, place, np.abs(new.value) + new.error)
        np.add.at(held.value, place, new.value)
        np.add.at(held.error, place, new.error)

    def _met(self) -> Bounded:
        """Elements in which iterations met: what is there is rounded with each term, in any order
        of all."""
        held, dtype = self.tensors[self.statement.target.tensor], self._dtype(self.statement.target)
        if self.statement.op != "+=":
            return held
        most = self.most + np.abs(held.value) + held.error
        lost = self.terms * (UNIT.get(dtype, 0.0) * most + SMALLEST.get(dtype, 0.0))
        lost = np.where(most < OVERFLOW.get(dtype, np.inf), lost, np.inf)
        error = held.error + np.where(self.terms > 0, lost, 0.0)
        return _rounded(Bounded(held.value, error), dtype)

    def _index(self, index: Expr, grids: Grids) -> Integers:
        match index:
            case Const(number):
                return np.asarray(number, dtype=np.int64)
            case Name(name):
                return grids[name]
            case Unary("-", operand):
                return -self._index(operand, grids)
            case Binary(op, left, right):
                a, b = self._index(left, grids), self._index(right, grids)
                return a + b if op == "+" else a - b if op == "-" else a * b
            case _:
                raise AssertionError(f"{index} is not affine")

    def _dtype(self, expr: Expr) -> str:
        return dtype_of(expr, self._type_of)

    def _type_of(self, node: Access | Name) -> str:
        return self.workload.tensor[node.tensor].dtype if isinstance(node, Access) else "int32"

    def _evaluate(self, expr: Expr, grids: Grids) -> Bounded:
        """Values and errors of an expression over a grid of points."""
        match expr:
            case Const(number):
                return _exact(np.asarray(number, dtype=np.float64))
            case Name(name):
                return _exact(grids[name])
            case Access(tensor, indices):
                held = self.tensors[tensor]
                shape = held.value.shape
                # What a select guards against may lie outside; any element serves there.
                at = tuple(
                    np.minimum(np.maximum(self._index(i, grids), 0), n - 1)
                    for i, n in zip(indices, shape, strict=True)
                )
                return Bounded(held.value[at], held.error[at])
            case Cast(dtype, operand):
                inner = self._evaluate(operand, grids)
                return _rounded(inner, dtype) if is_float(dtype) else _truncated(inner, dtype)
            case Unary("-", operand):
                inner = self._evaluate(operand, grids)
                return Bounded(-inner.value, inner.error)
            case Unary(_, operand):
                inner = self._evaluate(operand, grids)
                return Bounded((inner.value == 0).astype(np.float64), _doubt(inner))
            case Call("select", (condition, yes, no)):
                return self._select(condition, yes, no, grids)
            case Call(function, arguments):
                given = [self._evaluate(a, grids) for a in arguments]
                return self._called(expr, function, given)
            case Binary(op, left, right):
                a, b = self._evaluate(left, grids), self._evaluate(right, grids)
                return self._binary(expr, op, a, b)

    def _select(self, condition: Expr, yes: Expr, no: Expr, grids: Grids) -> Bounded:
        chosen = self._evaluate(condition, grids)
        a, b = self._evaluate(yes, grids), self._evaluate(no, grids)
        holds = chosen.value != 0
        error = np.where(holds, a.error, b.error)
        either = np.maximum(a.error, b.error) + np.abs(a.value - b.value)
        return Bounded(np.where(holds, a.value, b.value), np.where(chosen.error > 0, either, error))

    def _called(self, expr: Expr, function: str, given: list[Bounded]) -> Bounded:
        a = given[0]
        if function in ("min", "max", "clip"):
            value = _EXTREMES[function](*(x.value for x in given))
            error = a.error
            for x in given[1:]:
                error = np.maximum(error, x.error)
            return Bounded(value, error)
        if function == "abs":
            return Bounded(np.abs(a.value), a.error)
        if function in _STEPS:
            return Bounded(_STEPS[function](a.value), np.where(a.error > 0, a.error + 1, 0.0))
        plain, slope = _FUNCTIONS[function]
        with np.errstate(all="ignore"):
            value = plain(a.value)
            error = slope(a.value, a.error) * a.error
        dtype = promoted(self._dtype(expr))
        own = 2 * LIBRARY_ULPS * UNIT[dtype] * (np.abs(value) + error) + SMALLEST[dtype]
        return Bounded(value, error + own)

    def _binary(self, expr: Expr, op: str, a: Bounded, b: Bounded) -> Bounded:
        if op in _COMPARISONS:
            near = np.abs(a.value - b.value) <= a.error + b.error
            doubt = np.where(near & (a.error + b.error > 0), 1.0, 0.0)
            return Bounded(_COMPARISONS[op](a.value, b.value).astype(np.float64), doubt)
        if op in ("and", "or"):
            x, y = a.value != 0, b.value != 0
            value = np.logical_and(x, y) if op == "and" else np.logical_or(x, y)
            return Bounded(value.astype(np.float64), np.maximum(a.error, b.error))
        if op in ("+", "-"):
            value = a.value + b.value if op == "+" else a.value - b.value
            error = a.error + b.error
        elif op == "*":
            value = a.value * b.value
            error = np.abs(a.value) * b.error + np.abs(b.value) * a.error + a.error * b.error
        elif op == "/":
            with np.errstate(all="ignore"):
                value = a.value / b.value
                least = np.abs(b.value) - b.error
                error = np.where(least > 0, (a.error + np.abs(value) * b.error) / least, np.inf)
                error = np.where(a.error + b.error > 0, error, 0.0)
        else:
            value = _INTEGER[op](a.value, b.value)
            reach = _reach(op, a, b)
            return Bounded(value, np.where(a.error + b.error > 0, reach, 0.0))
        dtype = promoted(self._dtype(expr))
        return _rounded(Bounded(value, error), dtype)


def _reach(op: str, a: Bounded, b: Bounded) -> Floats:
    """How far an operation on integers carries the error of its left operand."""
    with np.errstate(all="ignore"):
        match op:
            case "<<":
                reach = a.error * 2.0**b.value
            case ">>":
                reach = a.error / 2.0**b.value + 1
            case "//":
                reach = a.error / np.abs(b.value) + 1
            case _:
                reach = np.abs(b.value) + 0.0 * a.error
    return np.where(b.error > 0, np.inf, reach)


def _exact(value: npt.NDArray[np.float64 | np.int64]) -> Bounded:
    values = value.astype(np.float64)
    return Bounded(values, np.zeros_like(values))


def _rounded(a: Bounded, dtype: str) -> Bounded:
    """A value rounded to a type once; an integer is what it is."""
    if dtype not in UNIT:
        return a
    with np.errstate(all="ignore"):
        error = a.error + UNIT[dtype] * (np.abs(a.value) + a.error) + SMALLEST[dtype]
        least, most = np.abs(a.value) - error, np.abs(a.value) + error
        value = np.where(least >= OVERFLOW[dtype], np.copysign(np.inf, a.value), a.value)
    error = np.where(most >= OVERFLOW[dtype], np.inf, error)
    return Bounded(value, np.where(np.isfinite(value), error, 0.0))


def _truncated(a: Bounded, dtype: str) -> Bounded:
    """A value as an integer: cut towards zero, and wrapped where it does not fit."""
    low, high = integer_range(dtype)
    value, error = np.trunc(a.value), np.where(a.error > 0, a.error + 1, 0.0)
    span = float(high) - low + 1
    wrapped = np.where((value < low) | (value > high), np.mod(value - low, span) + low, value)
    # Within reach of an end, the value may as well come out at the other one.
    near = (wrapped - error < low) | (wrapped + error > high)
    return Bounded(wrapped, np.where(near & (error > 0), np.inf, error))


def _doubt(a: Bounded) -> Floats:
    return np.where((a.error > 0) & (np.abs(a.value) <= a.error), 1.0, 0.0)


def _clip(value: Floats, low: Floats, high: Floats) -> Floats:
    return np.minimum(np.maximum(value, low), high)


_EXTREMES: dict[str, Callable[..., Floats]] = {"min": np.minimum, "max": np.maximum, "clip": _clip}
_STEPS: dict[str, Callable[[Floats], Floats]] = {
    "round": np.rint, "ceil": np.ceil, "floor": np.floor,
}  # fmt: skip
_COMPARISONS: dict[str, Callable[[Floats, Floats], npt.NDArray[np.bool_]]] = {
    "<": np.less, "<=": np.less_equal, ">": np.greater, ">=": np.greater_equal,
    "==": np.equal, "!=": np.not_equal,
}  # fmt: skip
_INTEGER: dict[str, Callable[[Floats, Floats], Floats]] = {
    "//": np.floor_divide, "%": np.mod,
    "<<": lambda a, b: a * 2.0**b, ">>": lambda a, b: np.floor(a / 2.0**b),
}  # fmt: skip


def _sigmoid(x: Floats) -> Floats:
    return 1.0 / (1.0 + np.exp(-x))


# The steepest slope within the error of a point bounds what the argument's error makes.
_FUNCTIONS: dict[str, tuple[Callable[[Floats], Floats], Callable[[Floats, Floats], Floats]]] = {
    "exp": (np.exp, lambda x, e: np.exp(x + e)),
    "log": (np.log, lambda x, e: 1.0 / np.maximum(x - e, 0.0)),
    "sqrt": (np.sqrt, lambda x, e: 0.5 / np.sqrt(np.maximum(x - e, 0.0))),
    "rsqrt": (lambda x: 1.0 / np.sqrt(x), lambda x, e: 0.5 * np.maximum(x - e, 0.0) ** -1.5),
    "tanh": (np.tanh, lambda x, _: np.ones_like(x)),
    "sigmoid": (_sigmoid, lambda x, _: np.full_like(x, 0.25)),
}


def outside(found: Array, dtype: str, expected: Bounded) -> npt.NDArray[np.bool_]:
    """Where a result is further from the exact value than rounding explains."""
    value = load(found, dtype).array.astype(np.float64)
    with np.errstate(all="ignore"):
        far = ~(np.abs(value - expected.value) <= expected.error)
    same = (value == expected.value) | (np.isnan(value) & np.isnan(expected.value))
    return far & ~same & np.isfinite(expected.error)


def unexplained(
    workload: Workload,
    inputs: Mapping[str, Array],
    outputs: Mapping[str, Array],
    reference: Mapping[str, Array],
    rescaled: Mapping[str, int] | None = None,
) -> Difference | None:
    """The first difference from the reference that rounding does not explain; `rescaled`: as for
    `rounding_bounds`."""
    difference = first_difference(outputs, reference)
    if difference is None:
        return None
    bounds = rounding_bounds(workload, inputs, rescaled)
    for name, right in reference.items():
        left, dtype = outputs.get(name), workload.tensor[name].dtype
        if left is None or left.shape != right.shape or left.dtype != right.dtype:
            return difference
        if name not in bounds:
            found = first_difference({name: left}, {name: right})
            if found is not None:
                return found
            continue
        # A reference outside of the bound would show that the bound is wrong.
        far = outside(left, dtype, bounds[name]) | outside(right, dtype, bounds[name])
        if far.any():
            where = tuple(int(i) for i in np.unravel_index(int(np.argmax(far)), far.shape))
            expected = f"{right[where]} +- {bounds[name].error[where]:.3g}"
            count = int(np.count_nonzero(far))
            return Difference(name, where, str(left[where]), expected, count, right.size)
    return None
