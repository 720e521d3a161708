"""What an intrinsic computes: its semantics over lanes and iterations, as array operations.

Every operand is a strided view of its memory. Multiply-accumulates become matrix products in
floating point where the range of the numbers proves every sum exact, else in integers.
Floating-point sums are formed in double precision and rounded once per call.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod

import numpy as np

from hwgen.codegen.program import KernelLoop
from hwgen.spec.expression import Access, Assign, Binary, Cast, Const, Expr, Name, UpdateOp, walk
from hwgen.spec.hardware import Intrinsic

from .geometry import Dims
from .images import lossless
from .numeric import (
    STORAGE,
    Array,
    Mask,
    Value,
    evaluate,
    exact_float,
    extreme,
    integer_limits,
    is_float,
    load,
    magnitude,
    matrix_product,
    promoted,
    store,
)

BLOCK_ELEMENTS = 1 << 22
"""Elements of one intermediate array, about; a larger call is executed in parts."""


@dataclass(frozen=True, slots=True)
class Factor:
    """An operand in a product, perhaps cast to a type that holds all its values."""

    operand: int
    dtype: str


@dataclass(frozen=True, slots=True)
class StatementForm:
    """A statement with the iterators that occur in it; `product` where its value is one."""

    assign: Assign
    iterators: tuple[str, ...]
    product: tuple[Factor, Factor] | None


@dataclass(frozen=True, slots=True)
class Semantics:
    """An intrinsic's statements, ready to be executed.

    `lanes`: per operand, the element step of each iterator. `written`: the operand it writes.
    `reduces`: the only statement is an update whose value does not read that operand, so that
    iterations which write the same entry commute.
    """

    intrinsic: Intrinsic
    extents: Mapping[str, int]
    position: Mapping[str, int]
    lanes: tuple[Mapping[str, int], ...]
    written: int
    statements: tuple[StatementForm, ...]
    reduces: bool


def semantics(intrinsic: Intrinsic) -> Semantics:
    """Read an intrinsic's statements. Operands are indexed by plain, distinct iterators."""
    position = {o.name: i for i, o in enumerate(intrinsic.operands)}
    lanes: list[dict[str, int]] = [{} for _ in intrinsic.operands]
    targets: set[int] = set()
    for assign in intrinsic.semantics:
        targets.add(position[assign.target.tensor])
        for node in (assign.target, *walk(assign.value)):
            if isinstance(node, Access):
                operand = position[node.tensor]
                shape = intrinsic.operands[operand].shape
                for axis, index in enumerate(node.indices):
                    match index:
                        case Name(name):
                            lanes[operand][name] = prod(shape[axis + 1 :])
                        case Const(0):
                            pass
                        case _:
                            raise AssertionError(f"{node} is not indexed by plain iterators")
    assert len(targets) == 1, f"{intrinsic.name} writes {len(targets)} operands"
    (written,) = targets
    forms = tuple(_form(a, intrinsic, position) for a in intrinsic.semantics)
    reads = {n.tensor for a in intrinsic.semantics for n in walk(a.value) if isinstance(n, Access)}
    alone = len(forms) == 1 and intrinsic.semantics[0].op != "="
    reduces = alone and intrinsic.operands[written].name not in reads
    return Semantics(
        intrinsic, dict(intrinsic.iterators), position, tuple(lanes), written, forms, reduces
    )


def _form(assign: Assign, intrinsic: Intrinsic, position: Mapping[str, int]) -> StatementForm:
    used = {n.name for e in (assign.target, assign.value) for n in walk(e) if isinstance(n, Name)}
    iterators = tuple(name for name, _ in intrinsic.iterators if name in used)
    product = None
    if assign.op == "+=" and isinstance(assign.value, Binary) and assign.value.op == "*":
        left = _factor(assign.value.left, intrinsic, position)
        right = _factor(assign.value.right, intrinsic, position)
        if left and right and _modular(assign, left, right, intrinsic):
            product = (left, right)
    return StatementForm(assign, iterators, product)


def _factor(expr: Expr, intrinsic: Intrinsic, position: Mapping[str, int]) -> Factor | None:
    match expr:
        case Access(tensor, _):
            return Factor(position[tensor], intrinsic.operand(tensor).dtype)
        case Cast(dtype, Access(tensor, _)) if lossless(intrinsic.operand(tensor).dtype, dtype):
            return Factor(position[tensor], dtype)
        case _:
            return None


def _modular(assign: Assign, left: Factor, right: Factor, intrinsic: Intrinsic) -> bool:
    """Whether the product may be summed without its own rounding or wrap-around."""
    target = intrinsic.operand(assign.target.tensor).dtype
    kinds = {is_float(d) for d in (left.dtype, right.dtype, target)}
    if len(kinds) > 1:
        return False
    if is_float(target):
        return True
    wide = max(promoted(left.dtype), promoted(right.dtype), key=lambda d: STORAGE[d].itemsize)
    if STORAGE[wide].itemsize >= STORAGE[target].itemsize:
        return True
    ends = [a * b for a in integer_limits(left.dtype) for b in integer_limits(right.dtype)]
    low, high = integer_limits(wide)
    return low <= min(ends) and max(ends) <= high


@dataclass(frozen=True, slots=True)
class Place:
    """Where one operand of a call lies: a flat array, its first element there, and how many
    elements one entry has."""

    elements: Array
    dtype: str
    start: int
    entry_elements: int


@dataclass(frozen=True, slots=True)
class Batch:
    """Iterations to execute, of which none touches what another one writes (or that commute)."""

    what: Semantics
    dims: Dims
    operands: tuple[Place, ...]
    immediates: Mapping[str, Value]

    def shape(self, form: StatementForm) -> tuple[int, ...]:
        """Extents of the dimensions, then of the statement's iterators."""
        lanes = (self.what.extents[name] for name in form.iterators)
        return (*(d.extent for d in self.dims), *lanes)

    def steps(self, form: StatementForm, operand: int) -> tuple[int, ...]:
        """Element steps of an operand, in the order of `shape`."""
        size = self.operands[operand].entry_elements
        lanes = self.what.lanes[operand]
        return (
            *(d.strides[operand] * size for d in self.dims),
            *(lanes.get(name, 0) for name in form.iterators),
        )

    def halves(self) -> tuple[Batch, Batch]:
        """Two parts, cut at the longest dimension."""
        axis = max(range(len(self.dims)), key=lambda i: self.dims[i].extent)
        whole = self.dims[axis]
        cut = whole.extent // 2

        def part(begin: int, extent: int) -> Batch:
            dims = (
                *self.dims[:axis],
                KernelLoop(extent, whole.strides),
                *self.dims[axis + 1 :],
            )
            moved = tuple(
                replace(o, start=o.start + begin * step * o.entry_elements)
                for o, step in zip(self.operands, whole.strides, strict=True)
            )
            return replace(self, dims=tuple(d for d in dims if d.extent > 1), operands=moved)

        return part(0, cut), part(cut, whole.extent - cut)


def apply(batch: Batch) -> None:
    """Execute a batch, statement by statement."""
    what = batch.what
    if what.reduces and what.statements[0].product is not None:
        _accumulate(batch, what.statements[0], what.statements[0].product)
        return
    if batch.dims and max(prod(batch.shape(f)) for f in what.statements) > BLOCK_ELEMENTS:
        for half in batch.halves():
            apply(half)
        return
    for form in what.statements:
        _evaluate(batch, form)


def _view(operand: Place, shape: tuple[int, ...], steps: tuple[int, ...]) -> Array:
    """A strided view; `steps` count elements."""
    data = operand.elements
    size = data.itemsize
    return np.ndarray(
        shape, data.dtype, data, operand.start * size, tuple(size * step for step in steps)
    )


def _evaluate(batch: Batch, form: StatementForm) -> None:
    """Any statement: its value for every point at once, then the update."""
    what, shape = batch.what, batch.shape(form)

    def read(access: Access, _: Mask | None) -> Value:
        number = what.position[access.tensor]
        steps = batch.steps(form, number)
        seen = tuple(n if k else 1 for n, k in zip(shape, steps, strict=True))
        return load(_view(batch.operands[number], seen, steps), batch.operands[number].dtype)

    scalars = dict(batch.immediates)
    for axis, name in enumerate(form.iterators, len(batch.dims)):
        values = np.arange(shape[axis], dtype=np.int32)
        along = [-1 if a == axis else 1 for a in range(len(shape))]
        scalars[name] = Value(np.reshape(values, along), "int32")
    value = evaluate(form.assign.value, read, scalars)
    target = batch.operands[what.written]
    steps = batch.steps(form, what.written)
    if form.assign.op == "=":
        place = _view(target, shape, steps)
        place[...] = store(value, target.dtype)
        return
    summed = tuple(axis for axis, step in enumerate(steps) if not step)
    kept = tuple(axis for axis, step in enumerate(steps) if step)
    place = _view(target, tuple(shape[a] for a in kept), tuple(steps[a] for a in kept))
    new = load(store(value, target.dtype), target.dtype)
    spread = Value(np.broadcast_to(new.array, shape), new.dtype)
    place[...] = _updated(form.assign.op, load(place, target.dtype), spread, summed, target.dtype)


def _updated(op: UpdateOp, old: Value, new: Value, summed: tuple[int, ...], dtype: str) -> Array:
    """The stored result of an update, `new` being reduced over some axes first."""
    match op:
        case "max=":
            best = np.asarray(np.max(new.array, axis=summed))
            return store(extreme("max", old, Value(best, old.dtype)), dtype)
        case "min=":
            best = np.asarray(np.min(new.array, axis=summed))
            return store(extreme("min", old, Value(best, old.dtype)), dtype)
        case _ if is_float(dtype):
            sums = np.asarray(np.sum(new.array, axis=summed, dtype=np.float64))
            return store(Value(np.add(old.array, sums), "float64"), dtype)
        case _:
            sums = np.asarray(np.sum(new.array, axis=summed, dtype=STORAGE[new.dtype]))
            return store(Value(np.add(old.array, sums), old.dtype), dtype)


def _accumulate(batch: Batch, form: StatementForm, product: tuple[Factor, Factor]) -> None:
    """`target += left * right` as matrix products."""
    shape, target = batch.shape(form), batch.operands[batch.what.written]
    at = batch.steps(form, batch.what.written)
    left, right = (batch.steps(form, f.operand) for f in product)
    axes = range(len(shape))
    both = [i for i in axes if at[i] and left[i] and right[i]]
    rows = [i for i in axes if at[i] and not right[i]]
    columns = [i for i in axes if at[i] and right[i] and not left[i]]
    depth = [i for i in axes if not at[i]]

    def extents(*groups: list[int]) -> tuple[int, ...]:
        return tuple(shape[i] for group in groups for i in group)

    largest = max(prod(extents(both, side, depth)) for side in (rows, columns))
    if batch.dims and max(largest, prod(extents(both, rows, columns))) > BLOCK_ELEMENTS:
        for half in batch.halves():
            _accumulate(half, form, product)
        return
    views: list[Array] = []
    for factor, steps, side in ((product[0], left, rows), (product[1], right, columns)):
        order = [*both, *side, *depth]
        views.append(
            _view(batch.operands[factor.operand], extents(order), tuple(steps[i] for i in order))
        )
    dtypes = [batch.operands[f.operand].dtype for f in product]
    count, length = prod(extents(both)), prod(extents(depth))
    kind = _product_type(views, dtypes, target.dtype, length)
    one, other = (
        np.reshape(_converted(view, dtype, kind), (count, prod(extents(side)), length))
        for view, dtype, side in zip(views, dtypes, (rows, columns), strict=True)
    )
    if count == 1:
        sums = matrix_product(one[0], other[0])
    else:
        sums = np.matmul(one, np.transpose(other, (0, 2, 1)))
    kept = [*both, *rows, *columns]
    place = _view(target, extents(kept), tuple(at[i] for i in kept))
    sums = np.reshape(sums, extents(kept))
    if is_float(target.dtype):
        old = load(place, target.dtype).array
        place[...] = store(Value(np.add(old, sums), "float64"), target.dtype)
        return
    whole = sums.astype(np.int32 if kind is np.float32 else np.int64, copy=False)
    np.add(place, whole.astype(place.dtype, copy=False), out=place)


ProductType = type[np.float32] | type[np.float64] | type[np.int64]


def _product_type(views: list[Array], dtypes: list[str], target: str, length: int) -> ProductType:
    """The type to multiply in: a float type if every sum is exact in it."""
    if is_float(target):
        return np.float64
    bound = length
    for view, dtype in zip(views, dtypes, strict=True):
        bound *= magnitude(view, dtype, 1 << 16)
    return exact_float(bound) or np.int64


def _converted(view: Array, dtype: str, kind: ProductType) -> Array:
    if dtype in ("float16", "bfloat16"):
        return load(view, dtype).array.astype(kind)
    return np.ascontiguousarray(view, kind)
