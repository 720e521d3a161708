"""The NumPy reference: a workload executed statement by statement, with no chip in sight.

Integers wrap around exactly; reductions start from their neutral element; a `select` never uses
what it guards against. Floating-point sums are formed in double precision and rounded once.
Memory stays bounded: domains are cut into boxes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import product
from math import prod
from string import ascii_letters

import numpy as np
import numpy.typing as npt
from numpy.lib.stride_tricks import as_strided

from hwgen.errors import HwgenError
from hwgen.spec.affine import affine
from hwgen.spec.expression import Access, Binary, Cast, Expr, Name, UpdateOp
from hwgen.spec.intervals import interval
from hwgen.spec.typecheck import integer_range, is_float, promoted
from hwgen.spec.workload import Statement, Workload

from .images import lossless
from .integers import evaluate_rows
from .numeric import (
    STORAGE,
    Array,
    Mask,
    Value,
    evaluate,
    exact_float,
    load,
    magnitude,
    matrix_product,
    store,
)

BOX_POINTS = 1 << 22
"""Points of an iteration domain, or elements of a factor, that are in memory at once."""

Offsets = npt.NDArray[np.int64]


@np.errstate(all="ignore")
def run_reference(
    workload: Workload, inputs: Mapping[str, Array], *, intermediates: bool = False
) -> dict[str, Array]:
    """Execute a workload on row-major tensors.

    Args:
        workload: what to compute.
        inputs: an array for every input, as `numeric.STORAGE` of its data type.
        intermediates: whether to return the intermediate tensors as well.

    Returns:
        The outputs (and intermediates) by name, in the workload's order.

    Raises:
        HwgenError: H726, an input is missing or has another shape or data type; H218, an
            element outside its tensor is used; H727, undefined arithmetic.
    """
    tensors: dict[str, Array] = {}
    for tensor in workload.tensors:
        kind = STORAGE[tensor.dtype]
        if tensor.role != "input":
            tensors[tensor.name] = np.zeros(tensor.shape, kind)
            continue
        given = None if tensor.name not in inputs else np.asarray(inputs[tensor.name])
        if given is None or given.shape != tensor.shape or given.dtype != kind:
            raise HwgenError(
                "H726",
                f"an input tensor is missing or does not fit: {tensor.name}",
                location=tensor.location,
                found="nothing" if given is None else f"{given.dtype}{list(given.shape)}",
                allowed=f"{kind}{list(tensor.shape)}",
            )
        tensors[tensor.name] = np.ascontiguousarray(given)
    for statement in workload.statements:
        _Execution(workload, statement, tensors).run()
    roles = ("output", "intermediate") if intermediates else ("output",)
    return {t.name: tensors[t.name] for t in workload.tensors if t.role in roles}


run = run_reference


def random_inputs(workload: Workload, seed: int) -> dict[str, Array]:
    """Deterministic inputs over the whole range of each data type, extremes included.

    Integers of more than 8 bits have as many small values as large ones: a bias over the whole
    range alone would decide nearly every sum of products of 8 bits.
    """
    result: dict[str, Array] = {}
    for number, tensor in enumerate(workload.inputs):
        generator = np.random.default_rng([seed, number])
        count = prod(tensor.shape)
        if is_float(tensor.dtype):
            values = Value(generator.standard_normal(count), "float64")
            result[tensor.name] = np.reshape(store(values, tensor.dtype), tensor.shape)
            continue
        kind = STORAGE[tensor.dtype]
        raw = generator.bytes(count * kind.itemsize)
        elements = np.ndarray(count, kind, bytearray(raw))
        if kind.itemsize > 1:
            shifts = generator.integers(0, 8 * kind.itemsize, size=count)
            elements = np.right_shift(elements, shifts.astype(kind))
        ends = tensor.range or integer_range(tensor.dtype)
        if tensor.range:
            elements = np.minimum(np.maximum(elements, ends[0]), ends[1])
        where = generator.choice(count, min(count, max(2, count // 16)), replace=False)
        for i, place in enumerate(where.tolist()):
            elements[place] = ends[i % 2]
        result[tensor.name] = np.reshape(elements, tensor.shape)
    return result


Box = Mapping[str, tuple[int, int]]
"""Each loop's first value and the one after its last."""


def _points(box: Box) -> int:
    return prod(stop - start for start, stop in box.values())


def _boxes(box: Box, cost: Callable[[Box], int], *, ordered: bool) -> Iterator[Box]:
    """Parts of a domain whose cost is bounded; `ordered`: in lexicographic order."""
    long = [name for name, (start, stop) in box.items() if stop - start > 1]
    if cost(box) <= BOX_POINTS or not long:
        yield box
        return
    name = long[0] if ordered else max(long, key=lambda n: box[n][1] - box[n][0])
    start, stop = box[name]
    middle = (start + stop) // 2
    yield from _boxes({**box, name: (start, middle)}, cost, ordered=ordered)
    yield from _boxes({**box, name: (middle, stop)}, cost, ordered=ordered)


@dataclass(frozen=True, slots=True)
class _Execution:
    """One statement over its whole domain."""

    workload: Workload
    statement: Statement
    tensors: dict[str, Array]

    def run(self) -> None:
        statement = self.statement
        target = self.workload.tensor[statement.target.tensor]
        domain = {name: (0, extent) for name, extent in statement.loops}
        if statement.op == "=":
            for box in self._in_order(domain):
                value = np.broadcast_to(store(self._value(box), target.dtype), _shape(box))
                self.tensors[target.name].ravel()[self._offsets(statement.target, box)] = value
            return
        sums = self._begun(target.dtype)
        factors = self._factors(target.dtype)
        if factors is not None:
            for box in _boxes(domain, partial(self._product_cost, factors), ordered=False):
                self._add_product(factors, box, sums)
        else:
            for box in _boxes(domain, _points, ordered=True):
                self._reduce(box, sums)
        wide = "float64" if sums.dtype == np.float64 else promoted(target.dtype)
        self.tensors[target.name] = store(Value(sums, wide), target.dtype)

    def _in_order(self, domain: Box) -> Iterator[Box]:
        """Parts of the domain, in an order in which each reads what those before it wrote: one
        iteration of the loops in which an element takes new values from its last ones."""
        inner = self.statement.folded if self.statement.ordered else ()
        for point in product(*(range(*domain[n]) for n in inner)):
            fixed = {n: (i, i + 1) for n, i in zip(inner, point, strict=True)}
            yield from _boxes({**domain, **fixed}, _points, ordered=True)

    def _begun(self, dtype: str) -> Array:
        """The tensor before an update, in the type in which it accumulates."""
        held = self.tensors[self.statement.target.tensor]
        shape = held.shape
        if self.statement.continues:
            wide = np.dtype(np.float64) if is_float(dtype) else STORAGE[promoted(dtype)]
            return load(held, dtype).array.astype(wide)
        if self.statement.op == "+=":
            wide = np.dtype(np.float64) if is_float(dtype) else STORAGE[promoted(dtype)]
            return np.zeros(shape, wide)
        kind = STORAGE[promoted(dtype)]
        lowest = self.statement.op == "max="
        if is_float(dtype):
            return np.full(shape, -np.inf if lowest else np.inf, kind)
        return np.full(shape, integer_range(dtype)[0 if lowest else 1], kind)

    def _value(self, box: Box) -> Value:
        names = list(box)
        scalars: dict[str, Value] = {}
        for name, value in self.workload.sizes:
            kind = "int32" if -(1 << 31) <= value < 1 << 31 else "int64"
            scalars[name] = Value(np.asarray(value, STORAGE[kind]), kind, (value,))
        for name, rows in _environment(box).items():
            scalars[name] = Value(rows.astype(np.int32), "int32")

        def read(access: Access, mask: Mask | None) -> Value:
            tensor = self.workload.tensor[access.tensor]
            offsets, inside = self._located(access, box)
            used = inside if mask is None else np.logical_or(inside, np.logical_not(mask))
            if not used.all():
                raise HwgenError(
                    "H218",
                    f"an element outside its tensor is used: {access}",
                    location=self.statement.location,
                    found=f"in `{self.statement}` over {', '.join(names)}",
                    allowed=f"{tensor.name}{list(tensor.shape)}",
                    repair="guard the access with select(...)",
                )
            safe = offsets if mask is None else np.where(inside, offsets, 0)
            return load(self.tensors[access.tensor].ravel()[safe], tensor.dtype)

        return evaluate(self.statement.value, read, scalars)

    def _located(self, access: Access, box: Box) -> tuple[Offsets, Mask]:
        """Flat offsets of an access over a box, and which of them lie inside the tensor."""
        environment = {**self._sizes(), **_environment(box)}
        rank = len(box)
        offsets = np.zeros((1,) * rank, np.int64)
        inside = np.ones((1,) * rank, np.bool_)
        for index, extent in zip(
            access.indices, self.workload.tensor[access.tensor].shape, strict=True
        ):
            rows = evaluate_rows(index, environment)
            offsets = offsets * extent + rows
            inside = inside & (rows >= 0) & (rows < extent)
        return offsets, inside

    def _sizes(self) -> dict[str, Offsets]:
        return {name: np.asarray(value, np.int64) for name, value in self.workload.sizes}

    def _offsets(self, access: Access, box: Box) -> Offsets:
        offsets, inside = self._located(access, box)
        assert inside.all(), f"{access} leaves its tensor"
        return np.broadcast_to(offsets, _shape(box))

    def _reduce(self, box: Box, sums: Array) -> None:
        """Fold a box of values into the accumulating tensor."""
        target = self.workload.tensor[self.statement.target.tensor]
        value = load(store(self._value(box), target.dtype), target.dtype).array
        value = np.broadcast_to(value.astype(sums.dtype), _shape(box))
        op: UpdateOp = self.statement.op
        places = self._plain_target()
        if places is None:
            fold = {"+=": np.add, "max=": np.maximum, "min=": np.minimum}[op]
            fold.at(sums.ravel(), self._offsets(self.statement.target, box), value)
            return
        axes = tuple(i for i, name in enumerate(box) if name not in places)
        kept = [name for name in box if name in places]
        region = tuple(slice(*box[name]) for name in places)
        order = [kept.index(name) for name in places]
        match op:
            case "+=":
                part = np.asarray(np.sum(value, axis=axes, dtype=sums.dtype))
                sums[region] = np.add(sums[region], np.transpose(part, order))
            case "max=":
                part = np.asarray(np.max(value, axis=axes))
                sums[region] = np.maximum(sums[region], np.transpose(part, order))
            case _:
                part = np.asarray(np.min(value, axis=axes))
                sums[region] = np.minimum(sums[region], np.transpose(part, order))

    def _plain_target(self) -> list[str] | None:
        """The target's loops where each of its indices is one; else None."""
        loops = dict(self.statement.loops)
        plain = [i.name for i in self.statement.target.indices if isinstance(i, Name)]
        distinct = len(set(plain)) == len(self.statement.target.indices)
        return plain if distinct and all(name in loops for name in plain) else None

    def _factors(self, dtype: str) -> tuple[_Factor, _Factor] | None:
        """The two factors of a sum of products that may be multiplied as matrices."""
        statement = self.statement
        if statement.op != "+=" or self._plain_target() is None:
            return None
        match statement.value:
            case Binary("*", left, right):
                one, other = self._factor(left), self._factor(right)
            case _:
                return None
        if one is None or other is None or len(statement.loops) > len(ascii_letters):
            return None
        kinds = {is_float(d) for d in (one.dtype, other.dtype, dtype)}
        if len(kinds) > 1:
            return None
        width = max(STORAGE[promoted(f.dtype)].itemsize for f in (one, other))
        if not is_float(dtype) and width < STORAGE[promoted(dtype)].itemsize:
            return None
        return one, other

    def _factor(self, expr: Expr) -> _Factor | None:
        match expr:
            case Access():
                access, dtype = expr, self.workload.tensor[expr.tensor].dtype
            case Cast(dtype, Access() as access) if lossless(
                self.workload.tensor[access.tensor].dtype, dtype
            ):
                pass
            case _:
                return None
        shape = self.workload.tensor[access.tensor].shape
        ranges = {name: (0, extent - 1) for name, extent in self.statement.loops}
        ranges |= {name: (value, value) for name, value in self.workload.sizes}
        origin, steps = 0, dict.fromkeys(dict(self.statement.loops), 0)
        step = prod(shape)
        for index, extent in zip(access.indices, shape, strict=True):
            step //= extent
            form = affine(index)
            low, high = interval(index, ranges)
            if form is None or low < 0 or high >= extent or not set(form.names) <= set(steps):
                return None
            origin += form.constant * step
            for name, factor in form.terms:
                steps[name] += factor * step
        return _Factor(access.tensor, dtype, origin, steps)

    def _product_cost(self, factors: tuple[_Factor, _Factor], box: Box) -> int:
        places = self._plain_target() or []
        used = [
            [n for n in box if f.steps[n]] for f in factors
        ]  # fmt: skip
        sizes = [prod(box[n][1] - box[n][0] for n in group) for group in (*used, places)]
        return max(sizes)

    def _add_product(self, factors: tuple[_Factor, _Factor], box: Box, sums: Array) -> None:
        """Add the products of a box."""
        places = self._plain_target() or []
        letters = dict(zip(box, ascii_letters, strict=False))
        views: list[Array] = []
        labels: list[str] = []
        for factor in factors:
            used = [n for n in box if factor.steps[n]]
            view = factor.view(self.tensors[factor.tensor], {n: box[n] for n in used}, box)
            views.append(view)
            labels.append("".join(letters[n] for n in used))
        absent = [n for n in box if n not in places and not any(f.steps[n] for f in factors)]
        times = prod(box[n][1] - box[n][0] for n in absent)
        depth = prod(box[n][1] - box[n][0] for n in box if n not in places)
        dtypes = [self.workload.tensor[f.tensor].dtype for f in factors]
        kind = _sum_type(views, dtypes, depth, sums)
        left, right = (
            load(view, d).array.astype(kind) for view, d in zip(views, dtypes, strict=True)
        )
        shown = "".join(letters[n] for n in places if any(f.steps[n] for f in factors))
        product = _sum_of_products(left, labels[0], right, labels[1], shown)
        if times > 1:
            product = np.multiply(product, np.asarray(times, kind))
        spread = [slice(None) if letters[n] in shown else np.newaxis for n in places]
        exact = product[tuple(spread)]
        if not is_float(str(sums.dtype)):
            exact = exact.astype(np.int64)
        region = tuple(slice(*box[name]) for name in places)
        sums[region] = np.add(sums[region], exact.astype(sums.dtype))


@dataclass(frozen=True, slots=True)
class _Factor:
    """A tensor seen from the loops: element `origin + sum loop x step`. `dtype`: after a cast."""

    tensor: str
    dtype: str
    origin: int
    steps: Mapping[str, int]

    def view(self, array: Array, used: Box, box: Box) -> Array:
        """The elements over the loops that matter, from the box's corner on."""
        first = self.origin + sum(self.steps[n] * start for n, (start, _) in box.items())
        shape = tuple(stop - start for start, stop in used.values())
        strides = tuple(self.steps[n] * array.itemsize for n in used)
        return as_strided(array.ravel()[first:], shape, strides, writeable=False)


Numbers = npt.NDArray[np.float32 | np.float64 | np.int64]


def _sum_of_products(left: Numbers, one: str, right: Numbers, other: str, shown: str) -> Array:
    """Einstein summation; the common case, a product of two matrices, without its detours."""
    rows, columns, depth = (
        "".join(n for n in one + other if (n in one, n in other, n in shown) == where)
        for where in ((True, False, True), (False, True, True), (True, True, False))
    )
    depth = "".join(dict.fromkeys(depth))
    if len(one) != len(rows + depth) or len(other) != len(columns + depth):
        sums = np.einsum(f"{one},{other}->{shown}", left, right, optimize=True)
        return np.asarray(sums)
    a = np.transpose(left, [one.index(n) for n in rows + depth])
    b = np.transpose(right, [other.index(n) for n in columns + depth])
    length = prod(a.shape[len(rows) :])
    sums = matrix_product(np.reshape(a, (-1, length)), np.reshape(b, (-1, length)))
    whole = np.reshape(sums, (*a.shape[: len(rows)], *b.shape[: len(columns)]))
    return np.transpose(whole, [(rows + columns).index(n) for n in shown])


def _sum_type(
    views: list[Array], dtypes: list[str], depth: int, sums: Array
) -> type[np.float32] | type[np.float64] | type[np.int64]:
    if is_float(str(sums.dtype)):
        return np.float64
    bound = depth
    for view, dtype in zip(views, dtypes, strict=True):
        bound *= magnitude(view, dtype, 1 << 16)
    return exact_float(bound) or np.int64


def _environment(box: Box) -> dict[str, Offsets]:
    """Each loop's values, along its own axis."""
    rank = len(box)
    return {
        name: np.reshape(
            np.arange(start, stop, dtype=np.int64), [-1 if a == axis else 1 for a in range(rank)]
        )
        for axis, (name, (start, stop)) in enumerate(box.items())
    }


def _shape(box: Box) -> tuple[int, ...]:
    return tuple(stop - start for start, stop in box.values())
