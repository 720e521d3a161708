"""What lanes hold that no iteration uses, and whether it changes a result."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from hwgen.polyhedral.match.operations import Operation, Selection
from hwgen.polyhedral.scop import Scop
from hwgen.polyhedral.semantics import operand_iterators, updates
from hwgen.spec.expression import Access, Binary, Call, Cast, Const, Expr, rewrite
from hwgen.spec.typecheck import integer_range, is_float


def padding_problem(
    scop: Scop,
    selection: Selection,
    anchor: Operation,
    lanes: Mapping[str, str | None],
    ended: Collection[str],
    single: bool,
) -> str:
    """Lanes past a reduction's end, or off a diagonal, must contribute the neutral element, unless
    they take no part: those of the loops in `ended`, and where `single` of no loop."""
    target = operand_iterators(anchor.intrinsic, anchor.intrinsic.written.name)
    ordered = any(s.name == anchor.statement and s.ordered for s in scop.statements)
    for iterator, extent in anchor.intrinsic.iterators:
        loop = lanes[iterator]
        diagonal = loop is not None and loop in [lanes[i] for i in target]
        tail = loop is not None and scop.extents[loop] % extent != 0
        if loop in ended or (loop is None and single):
            continue
        if iterator in target or extent == 1 or (loop and not diagonal and not tail):
            continue
        if ordered:
            return f"no lanes of {iterator} may hold what no iteration of the workload does"
        contents: dict[str, int | float] = {}
        for operand, name in zip(anchor.intrinsic.operands, anchor.storages, strict=True):
            own = operand_iterators(anchor.intrinsic, operand.name)
            both = any(lanes[i] == loop for i in own if i in target)
            if iterator not in own or (diagonal and not both):
                continue
            held = _past_the_end(scop, selection, name, None if diagonal else loop)
            if held is not None:
                contents[operand.name] = held
        exact = not any(o.dtype.startswith(("float", "bfloat")) for o in anchor.intrinsic.operands)
        if not any(
            op == "+=" and evaluated(value, contents, exact) == 0
            for op, value in updates(anchor.intrinsic)
        ):
            return f"what the lanes past the end of {iterator} hold would change the result"
    return ""


def _past_the_end(
    scop: Scop, selection: Selection, storage: str, loop: str | None
) -> int | float | None:
    """What a loaded storage holds in lanes that no iteration uses; None where that is data.

    `loop` runs along these lanes, past its end; None where no loop does, or off a diagonal: such
    positions lie outside the tensor by the image's construction.
    """
    storage = _origin(selection, storage)
    if not any(o.kind == "load" and storage in o.storages for o in selection.operations):
        return None
    held = selection.storage(storage)
    if held.tensor in selection.fetches:
        return None  # A call of another phase has written there, not the host.
    view = scop.view.get(held.tensor)
    fill = view.fill if view else 0
    if loop is None:
        return fill
    for dimension, index in enumerate(held.indices):
        if index.names != (loop,) or index.coefficient(loop) != 1:
            continue
        end = index.constant + scop.extents[loop]
        if view is None:
            if end >= scop.workload.tensor[held.tensor].shape[dimension]:
                return fill
            continue
        shape = scop.workload.tensor[view.source].shape
        for function, extent in zip(view.indices, shape, strict=True):
            step = function.coefficient(f"d{dimension}")
            at = step * end + function.constant
            if len(function.terms) == 1 and ((step > 0 and at >= extent) or (step < 0 and at < 0)):
                return fill
    return None


def _origin(selection: Selection, storage: str) -> str:
    """The storage that copies on the chip fill another one from."""
    for operation in selection.operations:
        only = operation.intrinsic.semantics[0]
        if operation.kind == "map" and only.op == "=" and isinstance(only.value, Access):
            names = [o.name for o in operation.intrinsic.operands]
            if operation.written == storage:
                return _origin(selection, operation.storages[names.index(only.value.tensor)])
    return storage


def evaluated(value: Expr, contents: Mapping[str, int | float], exact: bool) -> int | float | None:
    """A value from what its operands hold, None where unknown. `exact`: 0 times anything is 0."""
    match value:
        case Const(number):
            return number
        case Access(operand, _):
            return contents.get(operand)
        case Cast(_, operand):
            return evaluated(operand, contents, exact)
        case Binary("*", left, right):
            a, b = (evaluated(p, contents, exact) for p in (left, right))
            if exact and 0 in (a, b):
                return 0
            return None if a is None or b is None else a * b
        case Binary("+" | "-" as op, left, right):
            a, b = (evaluated(p, contents, exact) for p in (left, right))
            if a is None or b is None:
                return None
            return a + b if op == "+" else a - b
        case _:
            return None


def limits(value: Expr) -> tuple[int | float, int | float] | None:
    """The least and the greatest that a value may be, where it is limited to constants."""
    match value:
        case Cast(dtype, inner) if not is_float(dtype):
            found, (low, high) = limits(inner), integer_range(dtype)
            return found and (max(low, found[0]), min(high, found[1]))
        case Call("clip", (_, Const(low), Const(high))) | Call(
            "min", (Call("max", (_, Const(low))), Const(high))
        ) if low <= high:
            return low, high
        case _:
            return None


def keeps(
    value: Expr, target: Access, contents: Mapping[str, int | float], exact: bool
) -> tuple[int | float, int | float] | None:
    """Between which limits an element is left as it is by `target = value`, from what operands
    hold: `clip(y + x * w, -128, 127)` leaves those from -128 to 127 where `x` is 0. None where it
    may change any."""

    def folded(node: Expr) -> Expr:
        number = evaluated(node, contents, exact)
        if number is not None:
            return Const(number)
        match node:
            case Binary("+", inner, Const(0)) | Binary("+", Const(0), inner) if exact:
                return inner
            case _:
                return node

    left = rewrite(value, folded)
    found = limits(left)
    while isinstance(left, Cast):
        left = left.operand
    return found if isinstance(left, Call) and left.arguments[0] == target else None
