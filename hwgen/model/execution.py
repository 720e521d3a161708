"""What an intrinsic computes: its semantics over lanes and iterations, as array operations.

Every operand is a strided view of its memory. Multiply-accumulates become matrix products in
floating point where the range of the numbers proves every sum exact, else in integers.
Floating-point sums are formed in double precision and rounded once per call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from math import prod

import numpy as np

from hwgen.codegen.program import KernelLoop
from hwgen.spec.expression import (
    Access,
    Assign,
    Binary,
    Cast,
    Expr,
    Name,
    UpdateOp,
    accesses,
    stepped,
    walk,
)
from hwgen.spec.hardware import Intrinsic
from hwgen.spec.typecheck import integer_range, is_float, promoted

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
    load,
    magnitude,
    matrix_product,
    store,
)

BLOCK_ELEMENTS = 1 << 22
"""Elements of one intermediate array, about; a larger call is executed in parts."""


@dataclass(frozen=True, slots=True)
class Factor:
    """An operand's element in a product, perhaps cast to a type that holds all its values."""

    access: Access
    dtype: str


@dataclass(frozen=True, slots=True)
class StatementForm:
    """A statement with the iterators that occur in it; `product` where its value is one. `folded`:
    iterators besides, one iteration of which goes on from what the one before it wrote."""

    assign: Assign
    iterators: tuple[str, ...]
    product: tuple[Factor, Factor] | None
    folded: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Element:
    """What an access is of: the operand, its element where all iterators are 0, and the element
    step of each iterator."""

    operand: int
    first: int
    steps: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Semantics:
    """An intrinsic's statements, ready to be executed.

    `written`: the operands it writes. `reduces`: the only statement is an update whose value does
    not read its operand, so that iterations which write the same entry commute. `runs`: it goes on
    from its last value, and reads nothing else of that operand, so that its elements are apart.
    """

    intrinsic: Intrinsic
    extents: Mapping[str, int]
    elements: Mapping[Access, Element]
    written: tuple[int, ...]
    statements: tuple[StatementForm, ...]
    reduces: bool
    runs: bool


def semantics(intrinsic: Intrinsic) -> Semantics:
    """Read an intrinsic's statements. Operands are indexed by distinct iterators, and numbers."""
    position = {o.name: i for i, o in enumerate(intrinsic.operands)}
    elements: dict[Access, Element] = {}
    for access in (a for assign in intrinsic.semantics for a in accesses(assign)):
        operand = position[access.tensor]
        shape = intrinsic.operands[operand].shape
        first, steps = 0, dict[str, int]()
        for axis, index in enumerate(access.indices):
            step = stepped(index)
            assert step is not None, f"{access} is not indexed by iterators and numbers"
            row = prod(shape[axis + 1 :])
            first += step[1] * row
            if step[0]:
                steps[step[0]] = row
        elements[access] = Element(operand, first, steps)
    written = tuple(sorted({position[a.target.tensor] for a in intrinsic.semantics}))
    forms = tuple(_form(a, intrinsic) for a in intrinsic.semantics)
    only = intrinsic.semantics[0]
    reads = {a.tensor for a in accesses(only)[1:]}
    reduces = len(forms) == 1 and only.op != "=" and only.target.tensor not in reads
    runs = len(forms) == 1 and only.running
    extents = dict(intrinsic.iterators)
    return Semantics(intrinsic, extents, elements, written, forms, reduces, runs)


def _form(assign: Assign, intrinsic: Intrinsic) -> StatementForm:
    used = {n.name for e in (assign.target, assign.value) for n in walk(e) if isinstance(n, Name)}
    iterators = tuple(name for name, _ in intrinsic.iterators if name in used)
    if assign.running:
        own = {n.name for n in walk(assign.target) if isinstance(n, Name)}
        apart = tuple(n for n in iterators if n in own)
        return StatementForm(assign, apart, None, tuple(n for n in iterators if n not in own))
    product = None
    if assign.op == "+=" and isinstance(assign.value, Binary) and assign.value.op == "*":
        left = _factor(assign.value.left, intrinsic)
        right = _factor(assign.value.right, intrinsic)
        if left and right and _modular(assign, left, right, intrinsic):
            product = (left, right)
    return StatementForm(assign, iterators, product)


def _factor(expr: Expr, intrinsic: Intrinsic) -> Factor | None:
    match expr:
        case Access(tensor, _):
            return Factor(expr, intrinsic.operand(tensor).dtype)
        case Cast(dtype, Access(tensor, _) as access) if lossless(
            intrinsic.operand(tensor).dtype, dtype
        ):
            return Factor(access, dtype)
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
    ends = [a * b for a in integer_range(left.dtype) for b in integer_range(right.dtype)]
    low, high = integer_range(wide)
    return low <= min(ends) and max(ends) <= high


ProductType = type[np.float32] | type[np.float64] | type[np.int64]


@dataclass(frozen=True, slots=True)
class Place:
    """The array that an operand lies in, and how many elements one entry has."""

    elements: Array
    dtype: str
    entry_elements: int


@dataclass(frozen=True, slots=True)
class Window:
    """A strided view of an array, still without its operand's first element; `first`: of the view,
    counted from there."""

    elements: Array
    operand: int
    first: int
    shape: tuple[int, ...]
    strides_bytes: tuple[int, ...]

    def at(self, starts: tuple[int, ...]) -> Array:
        """The view, given each operand's first element."""
        data = self.elements
        start = (starts[self.operand] + self.first) * data.itemsize
        return np.ndarray(self.shape, data.dtype, data, start, self.strides_bytes)


Steps = Mapping[Access, tuple[int, ...]]
"""By how many elements each access moves along each dimension."""


Recipe = Callable[[tuple[int, ...]], None]
"""One statement over fixed dimensions; takes each operand's first element."""


class Executor:
    """Executes one call site; what depends on the dimensions only is worked out once."""

    def __init__(
        self, what: Semantics, places: tuple[Place, ...], immediates: Mapping[str, Value]
    ) -> None:
        self.what = what
        self.places = places
        self.immediates = immediates
        self._recipes: dict[Dims, tuple[Recipe, ...] | None] = {}

    def apply(self, dims: Dims, addresses: tuple[int, ...]) -> None:
        """Execute iterations of which none touches what another one writes (or that commute)."""
        if dims not in self._recipes:
            self._recipes[dims] = self._prepare(dims)
        recipes = self._recipes[dims]
        if recipes is None:
            for part, moved in self._halves(dims, addresses):
                self.apply(part, moved)
            return
        starts = tuple(
            [a * place.entry_elements for a, place in zip(addresses, self.places, strict=True)]
        )
        for recipe in recipes:
            recipe(starts)

    def _halves(
        self, dims: Dims, addresses: tuple[int, ...]
    ) -> Iterator[tuple[Dims, tuple[int, ...]]]:
        """Two parts, cut at the longest dimension."""
        axis = max(range(len(dims)), key=lambda i: dims[i].extent)
        whole = dims[axis]
        cut = whole.extent // 2
        for begin, extent in ((0, cut), (cut, whole.extent - cut)):
            part = (*dims[:axis], KernelLoop(extent, whole.strides), *dims[axis + 1 :])
            moved = (a + begin * k for a, k in zip(addresses, whole.strides, strict=True))
            yield tuple(d for d in part if d.extent > 1), tuple(moved)

    def _prepare(self, dims: Dims) -> tuple[Recipe, ...] | None:
        """The statements' recipes; None where an intermediate array would be too large."""
        recipes: list[Recipe] = []
        for form in self.what.statements:
            shape = (*(d.extent for d in dims), *(self.what.extents[n] for n in form.iterators))
            steps = {a: self._steps(a, dims, form.iterators) for a in accesses(form.assign)}
            if self.what.reduces and form.product is not None:
                size, recipe = self._product(form, form.product, shape, steps)
            elif form.folded:
                size, recipe = prod(shape), self._folded(form, shape, steps)
            else:
                size, recipe = prod(shape), self._statement(form, shape, steps)
            if dims and size > BLOCK_ELEMENTS:
                return None
            recipes.append(recipe)
        return tuple(recipes)

    def _steps(self, access: Access, dims: Dims, iterators: tuple[str, ...]) -> tuple[int, ...]:
        """By how many elements an access moves along each dimension."""
        own = self.what.elements[access]
        entry = self.places[own.operand].entry_elements
        moves = (d.strides[own.operand] * entry for d in dims)
        return (*moves, *(own.steps.get(name, 0) for name in iterators))

    def _window(
        self,
        access: Access,
        shape: tuple[int, ...],
        steps: tuple[int, ...],
        fixed: Mapping[str, int] | None = None,
    ) -> Window:
        own = self.what.elements[access]
        elements = self.places[own.operand].elements
        first = own.first + sum(own.steps.get(n, 0) * i for n, i in (fixed or {}).items())
        strides = tuple(step * elements.itemsize for step in steps)
        return Window(elements, own.operand, first, shape, strides)

    def _folded(self, form: StatementForm, shape: tuple[int, ...], steps: Steps) -> Recipe:
        """One iteration after the other of what goes on from its last values."""
        parts = [
            self._statement(form, shape, steps, dict(zip(form.folded, point, strict=True)))
            for point in product(*(range(self.what.extents[n]) for n in form.folded))
        ]

        def recipe(starts: tuple[int, ...]) -> None:
            for part in parts:
                part(starts)

        return recipe

    def _statement(
        self,
        form: StatementForm,
        shape: tuple[int, ...],
        steps: Steps,
        fixed: Mapping[str, int] | None = None,
    ) -> Recipe:
        """Any statement: its value for every point at once, then the update. `fixed`: iterators of
        which this is one iteration."""
        into = form.assign.target
        dtype = self._dtype(into)
        if form.assign.op == "=" and (copied := self._copied(form.assign.value, dtype)) is not None:
            return self._copy(into, copied, shape, steps)
        windows = {
            a: self._window(
                a, tuple(n if k else 1 for n, k in zip(shape, own, strict=True)), own, fixed
            )
            for a, own in steps.items()
        }
        scalars = dict(self.immediates)
        for name, i in (fixed or {}).items():
            scalars[name] = Value(np.asarray(i, np.int32), "int32")
        for axis, name in enumerate(form.iterators, len(shape) - len(form.iterators)):
            along = [-1 if a == axis else 1 for a in range(len(shape))]
            values = np.arange(shape[axis], dtype=np.int32)
            scalars[name] = Value(np.reshape(values, along), "int32")
        target = self._window(into, shape, steps[into])
        summed = tuple(axis for axis, step in enumerate(steps[into]) if not step)
        kept = [axis for axis, step in enumerate(steps[into]) if step]
        place = self._window(
            into, tuple(shape[a] for a in kept), tuple(steps[into][a] for a in kept)
        )

        def recipe(starts: tuple[int, ...]) -> None:
            def read(access: Access, _: Mask | None) -> Value:
                return load(windows[access].at(starts), self._dtype(access))

            value = evaluate(form.assign.value, read, scalars)
            if form.assign.op == "=":
                target.at(starts)[...] = store(value, dtype)
                return
            new = load(store(value, dtype), dtype)
            spread = Value(np.broadcast_to(new.array, shape), new.dtype)
            old = place.at(starts)
            old[...] = _updated(form.assign.op, load(old, dtype), spread, summed, dtype)

        return recipe

    def _dtype(self, access: Access) -> str:
        return self.places[self.what.elements[access].operand].dtype

    def _copied(self, value: Expr, dtype: str) -> Access | None:
        """What a plain copy reads: of the same type, or an integer cast to the target's."""
        match value:
            case Access() if self._dtype(value) == dtype:
                return value
            case Cast(wanted, Access() as access) if wanted == dtype:
                whole = not (is_float(dtype) or is_float(self._dtype(access)))
                return access if whole else None
            case _:
                return None

    def _copy(self, target: Access, source: Access, shape: tuple[int, ...], steps: Steps) -> Recipe:
        into, origin = (self._window(a, shape, steps[a]) for a in (target, source))

        def recipe(starts: tuple[int, ...]) -> None:
            np.copyto(into.at(starts), origin.at(starts), casting="unsafe")

        return recipe

    def _product(
        self,
        form: StatementForm,
        factors: tuple[Factor, Factor],
        shape: tuple[int, ...],
        steps: Steps,
    ) -> tuple[int, Recipe]:
        """`target += left * right` as matrix products, and its largest array's size."""
        written, read = form.assign.target, [f.access for f in factors]
        at, left, right = (steps[a] for a in (written, *read))
        axes = range(len(shape))
        both = [i for i in axes if at[i] and left[i] and right[i]]
        rows = [i for i in axes if at[i] and not right[i]]
        columns = [i for i in axes if at[i] and right[i] and not left[i]]
        depth = [i for i in axes if not at[i]]

        def extents(*groups: list[int]) -> tuple[int, ...]:
            return tuple(shape[i] for group in groups for i in group)

        def window(access: Access, *groups: list[int]) -> Window:
            order = [i for group in groups for i in group]
            return self._window(access, extents(order), tuple(steps[access][i] for i in order))

        count, length = prod(extents(both)), prod(extents(depth))
        windows = [
            window(access, both, side, depth)
            for access, side in zip(read, (rows, columns), strict=True)
        ]
        matrices = [(count, prod(extents(side)), length) for side in (rows, columns)]
        target = window(written, both, rows, columns)
        dtypes = [self._dtype(a) for a in read]
        kept, dtype = extents(both, rows, columns), self._dtype(written)

        def recipe(starts: tuple[int, ...]) -> None:
            views = [w.at(starts) for w in windows]
            kind = _product_type(views, dtypes, dtype, length)
            one, other = (
                np.reshape(_converted(view, given, kind), matrix)
                for view, given, matrix in zip(views, dtypes, matrices, strict=True)
            )
            if count == 1:
                sums = matrix_product(one[0], other[0])
            else:
                sums = np.matmul(one, np.transpose(other, (0, 2, 1)))
            _add(np.reshape(sums, kept), target.at(starts), dtype, kind)

        return max(prod(kept), *(prod(m) for m in matrices)), recipe


def _add(sums: Array, place: Array, dtype: str, kind: ProductType) -> None:
    """Add exact sums to stored elements, which wrap around (or round once)."""
    if is_float(dtype):
        old = load(place, dtype).array
        place[...] = store(Value(np.add(old, sums), "float64"), dtype)
        return
    whole = sums.astype(np.int32 if kind is np.float32 else np.int64, copy=False)
    np.add(place, whole.astype(place.dtype, copy=False), out=place)


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
