"""How far a floating-point result may be from the exact one: a running error analysis.

Every value carries a bound of its absolute error, as in Higham, "Accuracy and Stability of
Numerical Algorithms" (2nd ed., ch. 3 and 4.3): each operation adds half a unit in the last place
of its result to what its operands bring; a sum of n terms, in any order, at most (n - 1) times
that of the sum of magnitudes. So kernels may add in another order than the reference, and no
tolerance is chosen by hand.

There is no bound where a value within the error is one at which an operation leaps: zero for a
division, less than zero for a root, the largest number for a sum in another order. Such an error is
infinite. Infinities and NaN that any order gives are certain: their error is 0. The sign of a zero
is no part of a result, so neither is that of the infinity that one is divided into.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
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
    parts,
    tensors_of,
)
from hwgen.spec.typecheck import SMALLEST, dtype_of, integer_range, is_float, own_dtype, promoted
from hwgen.spec.workload import Statement, Workload

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Grids = Mapping[str, Integers]

UNIT = {"float16": 2.0**-11, "bfloat16": 2.0**-8, "float32": 2.0**-24, "float64": 2.0**-53}
"""Half a unit in the last place of 1."""

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
    """Values near the exact ones and how far results may be from them: infinite where there is no
    bound. Of certain infinities and NaN it is 0."""

    value: Floats
    error: Floats


@dataclass(frozen=True)
class Leeway:
    """How a kernel may differ from the reference besides rounding. `rescaled`: by tensor of terms,
    how often sums of them may have been rescaled; `any_nan`: whether the chip says nothing of
    the maximum and minimum of a NaN; `halves`: whether its units keep what they compute of a
    float16 or bfloat16 as one, so that it is rounded after every operation of a statement;
    `inexact`: by input or intermediate tensor, how far its numbers may be from those that are meant
    before anything is rounded."""

    rescaled: Mapping[str, int] = field(default_factory=dict[str, int])
    any_nan: bool = False
    halves: bool = False
    inexact: Mapping[str, float | Floats] = field(default_factory=dict[str, "float | Floats"])


NO_LEEWAY = Leeway()


def rounding_bounds(
    workload: Workload, inputs: Mapping[str, Array], leeway: Leeway = NO_LEEWAY
) -> dict[str, Bounded]:
    """For each output that depends on floats, values and a bound of a correct kernel's distance."""
    return analysed(workload, inputs, leeway)[0]


@np.errstate(all="ignore")
def analysed(
    workload: Workload, inputs: Mapping[str, Array], leeway: Leeway = NO_LEEWAY
) -> tuple[dict[str, Bounded], dict[str, str]]:
    """The bounds, and for each tensor with elements that have none the operation that leaps."""
    blocks = leeway.rescaled
    coarsest = max((UNIT.get(t.dtype, 0.0) for t in workload.tensors), default=0.0)
    known = run_reference(workload, inputs, intermediates=True)
    tensors: dict[str, Bounded] = {}
    for tensor in workload.tensors:
        array = inputs[tensor.name] if tensor.role == "input" else known[tensor.name]
        value = load(array, tensor.dtype).array.astype(np.float64)
        known_error = leeway.inexact.get(tensor.name, 0.0)
        tensors[tensor.name] = Bounded(value, np.zeros_like(value) + known_error)
    inexact = {n for n in leeway.inexact if workload.tensor[n].role == "input"}
    leaps: dict[str, str] = {}
    following = (*workload.statements[1:], None)
    for statement, after in zip(workload.statements, following, strict=True):
        target = statement.target.tensor
        reads = tensors_of(statement.value)
        if after is not None and after.continues:
            reads |= tensors_of(after.value)
        if is_float(workload.tensor[target].dtype) or not inexact.isdisjoint(reads):
            analysis = _Analysis(workload, statement, tensors, leeway)
            analysis.run()
            inexact.add(target)
            known = [leaps[n] for n in reads if n in leaps]
            if reason := next(iter([*analysis.leaps, *known]), ""):
                leaps.setdefault(target, reason)
        if target in leeway.inexact:
            held = tensors[target]
            tensors[target] = Bounded(held.value, held.error + leeway.inexact[target])
        if target in blocks:
            tensors[target] = _rescaled(tensors[target], blocks[target], coarsest)
    return {t.name: tensors[t.name] for t in workload.outputs if t.name in inexact}, leaps


def _rescaled(terms: Bounded, blocks: int, unit: float) -> Bounded:
    """Terms `exp(c * (x - t))` as products of one for the extremum so far and one factor for each
    later block.

    The exponents of these are differences that add up to `c * (x - t)`, of one sign: rounding them
    moves the sum no further than rounding that. Each factor is a function of a library, and
    rounding the product and the sum in each block is once more each than where blocks follow no
    other. What is below the smallest number is lost, at most once a block.
    """
    each = (2 * LIBRARY_ULPS + 2) * unit
    relative = float(np.expm1(blocks * np.log1p(each)))
    least = blocks * max(SMALLEST[d] for d, u in UNIT.items() if u == unit)
    more = relative * (np.abs(terms.value) + terms.error) + least
    return _settled(terms.value, terms.error + more)


@dataclass
class _Analysis:
    workload: Workload
    statement: Statement
    tensors: dict[str, Bounded]
    leeway: Leeway
    leaps: list[str] = field(default_factory=list[str])
    terms: Floats = field(init=False)
    most: Floats = field(init=False)

    def run(self) -> None:
        """Replace the target's elements by what the statement gives."""
        s = self.statement
        target = self.workload.tensor[s.target.tensor]
        if (whole := self._sum_of_products()) is not None:
            self.tensors[target.name] = whole
            return
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

    def _sum_of_products(self) -> Bounded | None:
        """The whole target, where it is a sum of products of elements: three such sums in float64
        give its value, the magnitude of its terms, and that with their errors."""
        s, tensor = self.statement, self.workload.tensor
        target, extents = tensor[s.target.tensor], dict(s.loops)
        indices = [n.name for n in s.target.indices if isinstance(n, Name)]
        if s.op != "+=" or s.ordered or s.continues or target.dtype not in ("float16", "float32"):
            return None
        match s.value:
            case Binary("*", Access(left), Access(right)) if left != right:
                a, b = self.tensors[left], self.tensors[right]
            case _:
                return None
        whole = tuple(extents[n] for n in dict.fromkeys(indices)) == target.shape
        alike = {tensor[left].dtype, tensor[right].dtype} == {target.dtype}
        finite = all(np.isfinite(x.value + x.error).all() for x in (a, b))
        if not (whole and alike and finite):
            return None
        given = (replace(tensor[n], dtype="float64", role="input") for n in (left, right))
        three = (*given, replace(target, dtype="float64", role="output"))
        alone = replace(self.workload, tensors=three, statements=(s,))

        def summed(x: Floats, y: Floats) -> Floats:
            return run_reference(alone, {left: x, right: y})[target.name].astype(np.float64)

        value, size = summed(a.value, b.value), summed(np.abs(a.value), np.abs(b.value))
        most = summed(np.abs(a.value) + a.error, np.abs(b.value) + b.error)
        terms = int(np.prod([n for name, n in s.loops if name not in indices], dtype=np.int64))
        # Each product may be rounded, and each sum; each term once more where it is stored.
        lost = (terms + 1) * UNIT[target.dtype] * most + 2 * terms * SMALLEST[target.dtype]
        if most.max(initial=0.0) >= OVERFLOW[target.dtype]:
            return None
        return _rounded(Bounded(value, most - size + lost), target.dtype)

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
        summed = self.statement.op == "+="
        found = (self._term if summed else self._evaluate)(self.statement.value, grids)
        v = np.broadcast_to(found.value, shape)
        e = np.broadcast_to(found.error, shape)
        dtype = self.workload.tensor[self.statement.target.tensor].dtype
        axes = tuple(range(len(outer), len(loops)))
        terms = int(np.prod(shape[len(outer) :], dtype=np.int64))
        match self.statement.op:
            case "+=":
                # Besides the additions, each term may be rounded once more where it is stored.
                unit, least = UNIT.get(dtype, 0.0), SMALLEST.get(dtype, 0.0)
                most = np.where(np.isfinite(v), np.abs(v) + e, e).sum(axes)
                lost = terms * unit * most + terms * least
                # Past the largest value, what a part of the sum becomes depends on the order.
                lost = np.where(most < OVERFLOW.get(dtype, np.inf), lost, np.inf)
                v, e = v.sum(axes), e.sum(axes) + lost
            case "max=" | "min=":
                if self.leeway.any_nan:
                    e = np.where(np.isnan(v), np.inf, e)
                greatest = self.statement.op == "max="
                v = v.max(axes, initial=-np.inf) if greatest else v.min(axes, initial=np.inf)
                e = e.max(axes, initial=0)
            case "=":
                pass
        written = {n: np.reshape(grids[n], grids[n].shape[: len(outer)]) for n, _ in outer}
        place = tuple(
            np.broadcast_to(self._index(i, written), shape[: len(outer)])
            for i in self.statement.target.indices
        )
        if self.statement.continues:
            self._meet(place, _settled(v, e), terms)
            return
        # The greatest of numbers is one of them.
        kept = self.statement.op in ("max=", "min=") and self._dtype(self.statement.value) == dtype
        rounded = _settled(v, e) if kept else _rounded(_settled(v, e), dtype)
        self._note(str(self.statement), rounded, [found])
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
        finite = np.where(np.isfinite(new.value), np.abs(new.value), 0.0)
        np.add.at(self.most, place, finite + new.error)
        np.add.at(held.value, place, new.value)
        np.add.at(held.error, place, new.error)

    def _met(self) -> Bounded:
        """Elements in which iterations met: what is there is rounded with each term, in any order
        of all."""
        held, dtype = self.tensors[self.statement.target.tensor], self._dtype(self.statement.target)
        if self.statement.op != "+=":
            return held
        finite = np.where(np.isfinite(held.value), np.abs(held.value), 0.0)
        most = self.most + finite + held.error
        lost = self.terms * (UNIT.get(dtype, 0.0) * most + SMALLEST.get(dtype, 0.0))
        lost = np.where(most < OVERFLOW.get(dtype, np.inf), lost, np.inf)
        error = held.error + np.where(self.terms > 0, lost, 0.0)
        rounded = _rounded(_settled(held.value, error), dtype)
        self._note(str(self.statement), rounded, [held])
        return rounded

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

    def _note(self, text: str, found: Bounded, given: Sequence[Bounded]) -> None:
        """Keep the first operations that have no bound though what they are given has."""
        if np.isinf(found.error).any() and not any(np.isinf(g.error).any() for g in given):
            self.leaps.append(text)

    def _term(self, expr: Expr, grids: Grids) -> Bounded:
        """A term of `+=`. A product may be added without being rounded before, so that where it
        passes the largest number, the sum may not."""
        found = self._evaluate(expr, grids)
        if not (isinstance(expr, Binary) and expr.op == "*" and np.isinf(found.value).any()):
            return found
        finite = [np.isfinite(self._operand(x, grids).value) for x in (expr.left, expr.right)]
        passes = np.isinf(found.value) & finite[0] & finite[1]
        unsure = Bounded(found.value, np.where(passes, np.inf, found.error))
        self._note(str(expr), unsure, [found])
        return unsure

    def _operand(self, expr: Expr, grids: Grids) -> Bounded:
        """A value that another operation of the statement goes on from."""
        found = self._evaluate(expr, grids)
        if not self.leeway.halves or not isinstance(expr, Binary | Call):
            return found
        dtype = own_dtype(expr, self._type_of)
        if dtype == promoted(dtype) or dtype not in UNIT:
            return found
        # Rounded or not: past the largest number it is infinite, or not.
        once = _rounded(found, dtype)
        passes = np.isinf(once.value) & np.isfinite(found.value)
        return Bounded(found.value, np.where(passes, np.inf, once.error))

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
            case _:
                given = [self._operand(p, grids) for p in self._rounded_constants(expr)]
        found = self._applied(expr, given)
        self._note(str(expr), found, given)
        return found

    def _rounded_constants(self, expr: Expr) -> list[Expr]:
        """The parts of an expression; numbers have the type of a partner, as kernels compute."""
        own = list(parts(expr))
        real = {n: p.value for n, p in enumerate(own) if isinstance(p, Const)}
        condition = isinstance(expr, Call) and expr.function == "select"
        others = [p for p in own[condition:] if not isinstance(p, Const)]
        if real and {promoted(self._dtype(p)) for p in others} == {"float32"}:
            for n, value in real.items():
                own[n] = Const(float(np.float32(value)))
        return own

    def _applied(self, expr: Expr, given: list[Bounded]) -> Bounded:
        """The outermost operation of an expression on the values and errors of its parts."""
        match expr, given:
            case Cast(dtype, operand), [inner]:
                if is_float(dtype):
                    return _rounded(inner, dtype)
                whole = not is_float(self._dtype(operand))
                return (_wrapped if whole else _truncated)(inner, dtype)
            case Unary("-", _), [inner]:
                return Bounded(-inner.value, inner.error)
            case Unary(), [inner]:
                return Bounded((inner.value == 0).astype(np.float64), _doubt(inner))
            case Call("select", _), [condition, yes, no]:
                return _selected(condition, yes, no)
            case Call(function, _), _:
                return self._called(expr, function, given)
            case Binary(op, _, _), [a, b]:
                return self._binary(expr, op, a, b)
            case _:
                raise AssertionError(f"{expr} has other parts")

    def _called(self, expr: Expr, function: str, given: list[Bounded]) -> Bounded:
        a = given[0]
        if function in _EXTREMES:
            value = _EXTREMES[function](*(x.value for x in given))
            error = a.error
            for x in given[1:]:
                error = np.maximum(error, x.error)
            if self.leeway.any_nan:
                error = np.where(np.isnan(value), np.inf, error)
            return _settled(value, error)
        if function == "abs":
            return Bounded(np.abs(a.value), a.error)
        if function in _STEPS:
            return Bounded(_STEPS[function](a.value), np.where(a.error > 0, a.error + 1, 0.0))
        plain, slope, domain = _FUNCTIONS[function]
        value = plain(a.value)
        error = np.where(a.error > 0, slope(a.value, a.error) * a.error, 0.0)
        # Less than a function is defined for; and where it leaps, or might be given less.
        outside = a.value + a.error < 0
        error = np.where((a.value - a.error < 0) & ~outside & domain, np.inf, error)
        if function == "rsqrt":
            error = np.where(a.value == 0, np.inf, error)
        dtype = promoted(self._dtype(expr))
        own = 2 * LIBRARY_ULPS * UNIT[dtype] * (np.abs(value) + error) + SMALLEST[dtype]
        return _held(_settled(value, error + np.where(np.isfinite(value), own, 0.0)), dtype)

    def _binary(self, expr: Expr, op: str, a: Bounded, b: Bounded) -> Bounded:
        either = a.error + b.error
        if op in _COMPARISONS:
            near = np.isinf(either) | (np.abs(a.value - b.value) <= either)
            doubt = np.where(near & (either > 0), 1.0, 0.0)
            return Bounded(_COMPARISONS[op](a.value, b.value).astype(np.float64), doubt)
        if op in ("and", "or"):
            x, y = a.value != 0, b.value != 0
            value = np.logical_and(x, y) if op == "and" else np.logical_or(x, y)
            return Bounded(value.astype(np.float64), np.maximum(a.error, b.error))
        match op:
            case "+" | "-":
                value, error = a.value + b.value if op == "+" else a.value - b.value, either
            case "*":
                value, error = a.value * b.value, _error_of_product(a, b)
            case "/":
                value, error = a.value / b.value, _error_of_quotient(a, b)
            case _:
                value = _INTEGER[op](a.value, b.value)
                error = np.where(either > 0, _reach(op, a, b), 0.0)
        return _rounded(_settled(value, error), promoted(self._dtype(expr)))


def _settled(value: Floats, error: Floats) -> Bounded:
    """A value whose infinities and NaN are certain where its error is finite."""
    error = np.where(np.isnan(error), np.inf, error)
    return Bounded(value, np.where(np.isfinite(value) | np.isinf(error), error, 0.0))


def _error_of_product(a: Bounded, b: Bounded) -> Floats:
    error = np.abs(a.value) * b.error + np.abs(b.value) * a.error + a.error * b.error
    # Infinity times a number has the number's sign, and times zero is NaN.
    signs = np.isfinite(a.error) & np.isfinite(b.error)
    for x in (a, b):
        signs = signs & ((x.error == 0) | (np.abs(x.value) > x.error))
    odd = ~(np.isfinite(a.value) & np.isfinite(b.value))
    error = np.where(odd, np.where(signs, 0.0, np.inf), error)
    return np.where(_certain_nan(a) | _certain_nan(b), 0.0, error)


def _error_of_quotient(a: Bounded, b: Bounded) -> Floats:
    value, least = a.value / b.value, np.abs(b.value) - b.error
    error = (a.error + np.abs(value) * b.error) / least
    exact = a.error + b.error == 0
    # Infinity by a number that is not zero, whose sign is therefore known.
    known = exact | (~np.isfinite(value) & np.isfinite(a.error))
    error = np.where(known, 0.0, error)
    error = np.where(least > 0, error, np.inf)
    nan = _certain_nan(a) | _certain_nan(b) | (np.isnan(value) & exact)
    return np.where(nan, 0.0, error)


def _certain_nan(a: Bounded) -> npt.NDArray[np.bool_]:
    return np.isnan(a.value) & np.isfinite(a.error)


def _selected(chosen: Bounded, a: Bounded, b: Bounded) -> Bounded:
    holds = chosen.value != 0
    same = (a.value == b.value) | (np.isnan(a.value) & np.isnan(b.value))
    apart = np.where(same, 0.0, np.abs(a.value - b.value))
    error = np.where(holds, a.error, b.error)
    either = np.maximum(a.error, b.error) + np.where(np.isnan(apart), np.inf, apart)
    return Bounded(np.where(holds, a.value, b.value), np.where(chosen.error > 0, either, error))


def _reach(op: str, a: Bounded, b: Bounded) -> Floats:
    """How far an operation on integers carries the error of its left operand."""
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
    error = a.error + UNIT[dtype] * (np.abs(a.value) + a.error) + SMALLEST[dtype]
    finite = np.isfinite(a.value)
    return _held(Bounded(a.value, np.where(finite, error, a.error)), dtype)


def _held(a: Bounded, dtype: str) -> Bounded:
    """A value in a type that has a largest number."""
    least, most = np.abs(a.value) - a.error, np.abs(a.value) + a.error
    passes = least >= OVERFLOW[dtype]
    value = np.where(passes, np.copysign(np.inf, a.value), a.value)
    error = np.where((most >= OVERFLOW[dtype]) & np.isfinite(a.value), np.inf, a.error)
    return Bounded(value, np.where(passes, 0.0, error))


def _truncated(a: Bounded, dtype: str) -> Bounded:
    """A float as an integer: cut towards zero, at most as large as the type's ends; NaN is 0."""
    low, high = integer_range(dtype)
    whole = np.trunc(np.where(np.isnan(a.value), 0.0, a.value))
    value = np.minimum(np.maximum(whole, low), high)
    return Bounded(value, np.where(a.error > 0, a.error + 1, 0.0))


def _wrapped(a: Bounded, dtype: str) -> Bounded:
    """An integer in a type that does not hold all: its low bits."""
    low, high = integer_range(dtype)
    span = float(high) - low + 1
    wrapped = np.where(
        (a.value < low) | (a.value > high), np.mod(a.value - low, span) + low, a.value
    )
    # Within reach of an end, the value may as well come out at the other one.
    near = (wrapped - a.error < low) | (wrapped + a.error > high)
    return Bounded(wrapped, np.where(near & (a.error > 0), np.inf, a.error))


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


# The steepest slope within the error of a point bounds what the argument's error makes. True: it
# is NaN below 0.
_Function = tuple[Callable[[Floats], Floats], Callable[[Floats, Floats], Floats], bool]
_FUNCTIONS: dict[str, _Function] = {
    "exp": (np.exp, lambda x, e: np.exp(x + e), False),
    "log": (np.log, lambda x, e: 1.0 / np.maximum(x - e, 0.0), True),
    "sqrt": (np.sqrt, lambda x, e: 0.5 / np.sqrt(np.maximum(x - e, 0.0)), True),
    "rsqrt": (lambda x: 1.0 / np.sqrt(x), lambda x, e: 0.5 * np.maximum(x - e, 0.0) ** -1.5, True),
    "tanh": (np.tanh, lambda x, _: np.ones_like(x), False),
    "sigmoid": (_sigmoid, lambda x, _: np.full_like(x, 0.25), False),
}
