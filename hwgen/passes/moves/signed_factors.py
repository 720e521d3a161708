"""Move: unsigned factors of a sum of products are signed ones and a number.

`b[i] += u[i, k] * w[k]` of uint8 becomes `s[i, k] = int8(u[i, k] - 128)` and
`b[i] += (s[i, k] + 128) * w[k]`: a sum of products, which units form, and a sum of `w`.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from hwgen.passes.start import Start
from hwgen.polyhedral.schedule.schedule import Schedule
from hwgen.polyhedral.tree.distributing import shifted
from hwgen.spec.expression import Access, Binary, Cast, Const, Expr
from hwgen.spec.hardware import HardwareSpec
from hwgen.spec.typecheck import integer_range


def signed_factors(start: Start, statement: str) -> Iterator[Start]:
    """With the factors of a sum signed where the chip has no operand of their type, but of the
    signed one as wide."""
    name = start.stages[statement]
    stage, missing = start.state.stage[name], _missing(start.hardware)
    dtypes = {t.name: t.dtype for t in start.state.tensors}
    if not stage.reduces or not isinstance(stage.value, Binary) or stage.value.op != "*":
        return
    factors = (stage.value.left, stage.value.right)
    found = [_signed(f, dtypes, missing) for f in factors]
    if found == [None, None]:
        return
    new = [f if made is None else _added(*made) for f, made in zip(factors, found, strict=True)]
    old, product = str(stage.value), str(Binary("*", *new))
    edits = [partial(Schedule.rewrite_expr, stage=name, expr=old, new=product)]
    edits += [partial(Schedule.bind_expr, stage=name, expr=str(m[0])) for m in found if m]
    for form in start.where_legal(lambda s: [edit(s) for edit in edits]):
        yield from form.where_legal(partial(_apart, stage=name))


def _apart(schedule: Schedule, stage: str) -> None:
    """The sum in as many parts as its factors have numbers.

    Raises:
        HwgenError: as `distribute`.
    """
    while shifted(schedule.state.stage[stage].value) is not None:
        stage, _ = schedule.distribute(stage)


def _missing(hardware: HardwareSpec) -> dict[str, str]:
    """By unsigned type that no operand of the chip has, the signed one as wide, which one has."""
    there = {o.dtype for i in hardware.intrinsics for o in i.operands}
    return {u: u[1:] for u in ("uint8", "uint16") if u not in there and u[1:] in there}


def _signed(
    factor: Expr, dtypes: dict[str, str], missing: dict[str, str]
) -> tuple[Expr, int] | None:
    """An unsigned factor as a signed element and a number; None where it is no element, perhaps
    with a number added, of such a type."""
    match factor:
        case Access(tensor) if dtypes[tensor] in missing:
            dtype = missing[dtypes[tensor]]
            half = -integer_range(dtype)[0]
            return Cast(dtype, Binary("-", factor, Const(half))), half
        case Cast(_, Access() as inner):
            return _signed(inner, dtypes, missing)
        case Binary("+" | "-" as op, inner, Const(int(number))):
            found = _signed(inner, dtypes, missing)
            more = number if op == "+" else -number
            return None if found is None else (found[0], found[1] + more)
        case _:
            return None


def _added(element: Expr, number: int) -> Expr:
    """An element and a number; without it where that is zero."""
    if not number:
        return element
    return Binary("+" if number > 0 else "-", element, Const(abs(number)))
