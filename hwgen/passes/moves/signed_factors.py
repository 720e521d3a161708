"""Move: factors of a sum of products in the type of the other sign, and a number.

`b[i] += u[i, k] * w[k]` of uint8 becomes `s[i, k] = int8(u[i, k] - 128)` and
`b[i] += (s[i, k] + 128) * w[k]`: a sum of products, which units form, and a sum of `w`. Where units
multiply uint8 by int8 alone, a factor of int8 becomes `uint8(x[i, k] + 128)` in the same way.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import combinations

from hwgen.passes.start import Start
from hwgen.polyhedral.schedule.schedule import Schedule
from hwgen.polyhedral.tree.distributing import shifted
from hwgen.spec.expression import Access, Binary, Cast, Const, Expr, walk
from hwgen.spec.hardware import HardwareSpec
from hwgen.spec.typecheck import integer_range

_OTHER = {"int8": "uint8", "uint8": "int8", "int16": "uint16", "uint16": "int16"}
Element = tuple[Access, int]
"""An element of a tensor, and the number that is added to it."""


def signed_factors(start: Start, statement: str) -> Iterator[Start]:
    """With factors of a sum in the type of the other sign where the chip multiplies only that one,
    those first that turn no constant."""
    name = start.stages[statement]
    stage, products = start.state.stage[name], _products(start.hardware)
    if not stage.reduces or not isinstance(stage.value, Binary) or stage.value.op != "*":
        return
    factors = (stage.value.left, stage.value.right)
    found = [_element(f) for f in factors]
    dtypes = {t.name: t.dtype for t in start.state.tensors}
    types = [dtypes[f[0].tensor] if f else "" for f in found]
    if _multiplied(types, products):
        return
    constants = {t.name for t in start.workload.inputs if t.constant}
    turns = [(0,), (1,), (0, 1)]
    for turned in sorted(turns, key=lambda n: any(_reads(found[i], constants) for i in n)):
        new = [_OTHER.get(t, "") if n in turned else t for n, t in enumerate(types)]
        if all(new[n] for n in turned) and _multiplied(new, products):
            yield from _turned(start, name, factors, {n: (found[n], new[n]) for n in turned})


def _turned(
    start: Start, name: str, factors: Sequence[Expr], turned: dict[int, tuple[Element | None, str]]
) -> Iterator[Start]:
    """The sum with some factors as casts to a type and numbers, in as many parts as there are
    numbers."""
    new, edits = [*factors], list[partial[object]]()
    for n, (element, dtype) in turned.items():
        assert element is not None
        access, number = element
        half = integer_range(dtype.removeprefix("u"))[0] * (1 if dtype[0] == "u" else -1)
        cast = Cast(dtype, _added(access, -half))
        new[n] = _added(cast, half + number)
        edits.append(partial(Schedule.bind_expr, stage=name, expr=str(cast)))
    old, product = str(Binary("*", *factors)), str(Binary("*", *new))
    edits.insert(0, partial(Schedule.rewrite_expr, stage=name, expr=old, new=product))
    for form in start.where_legal(lambda s: [edit(s) for edit in edits]):
        yield from form.where_legal(partial(_apart, stage=name))


def _apart(schedule: Schedule, stage: str) -> None:
    """The sum in as many parts as its factors have numbers.

    Raises:
        HwgenError: as `distribute`.
    """
    while shifted(schedule.state.stage[stage].value) is not None:
        stage, _ = schedule.distribute(stage)


def _products(hardware: HardwareSpec) -> set[tuple[str, ...]]:
    """The types of which the chip's intrinsics multiply elements, in their order."""
    found: set[tuple[str, ...]] = set()
    for intrinsic in hardware.intrinsics:
        dtypes = {o.name: o.dtype for o in intrinsic.operands}
        for part in (p for s in intrinsic.semantics for p in walk(s.value)):
            if isinstance(part, Binary) and part.op == "*":
                read = [a.tensor for a in walk(part) if isinstance(a, Access)]
                found |= {tuple(sorted(dtypes.get(n, "") for n in two))
                          for two in combinations(read, 2)}  # fmt: skip
    return found


def _multiplied(types: Sequence[str], products: set[tuple[str, ...]]) -> bool:
    """Whether factors of these types are multiplied; one that is no element is of any type."""
    known = [t for t in types if t]
    if len(known) == len(types):
        return tuple(sorted(known)) in products
    return all(any(t in pair for pair in products) for t in known)


def _reads(element: Element | None, tensors: set[str]) -> bool:
    return element is not None and element[0].tensor in tensors


def _element(factor: Expr) -> Element | None:
    """A factor as an element and a number; None of other factors."""
    match factor:
        case Access():
            return factor, 0
        case Cast(_, Access() as inner):
            return inner, 0
        case Binary("+" | "-" as op, inner, Const(int(number))):
            found = _element(inner)
            more = number if op == "+" else -number
            return None if found is None else (found[0], found[1] + more)
        case _:
            return None


def _added(element: Expr, number: int) -> Expr:
    """An element and a number; without it where that is zero."""
    if not number:
        return element
    return Binary("+" if number > 0 else "-", element, Const(abs(number)))
