"""The operations that values and intrinsics have: they show what no move can help."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from functools import lru_cache

from hwgen.polyhedral.normal_form import normalise
from hwgen.polyhedral.same import Same
from hwgen.polyhedral.scop import view_statements
from hwgen.spec.expression import Access, Binary, Call, Cast, Const, Expr, Name, Unary, parts, walk
from hwgen.spec.hardware import HardwareSpec, Intrinsic
from hwgen.spec.workload import Workload

_INSTEAD = {"-": ("+",), "negative": ("-", "*", "+"), "<<": ("*",)}
"""Operations that may be others: differences are sums, and shifts to the left are products."""


def fits_one(value: Expr, hardware: HardwareSpec) -> bool:
    """Whether the semantics of some intrinsic have all the operations of a value."""
    wanted = Counter(_kinds(value))
    return any(wanted <= _operations(Same(i)) for i in hardware.intrinsics)


@lru_cache(1024)
def _operations(intrinsic: Same[Intrinsic]) -> Counter[str]:
    """The operations that one intrinsic has."""
    return Counter(k for a in intrinsic.value.semantics for k in _kinds(a.value))


def all_known(workload: Workload, hardware: HardwareSpec) -> bool:
    """Whether some intrinsic has each operation of a workload, and each type that values are cast
    to, whichever statement it is in."""
    known = {k for i in hardware.intrinsics for a in i.semantics for k in _kinds(a.value)}
    known |= {a.op.removesuffix("=") for i in hardware.intrinsics for a in i.semantics}
    dtypes = {t.name: t.dtype for t in workload.tensors}
    views = view_statements(workload)
    values = [normalise(s.value, dtypes) for s in workload.statements if s not in views]
    wanted = {k for v in values for k in _kinds(v)}
    types = {o.dtype for i in hardware.intrinsics for o in i.operands}
    types |= _casts(a.value for i in hardware.intrinsics for a in i.semantics)
    return _casts(values) <= types and all(
        k in known or not known.isdisjoint(_INSTEAD.get(k, ())) for k in wanted
    )


def _casts(values: Iterable[Expr]) -> set[str]:
    """The types that values are cast to."""
    return {n.dtype for v in values for n in walk(v) if isinstance(n, Cast)}


def _kinds(value: Expr) -> Iterator[str]:
    """The operations on elements in a value: not those of indices, nor of constants alone."""
    match value:
        case Access() | Const() | Name():
            return
        case _ if not any(isinstance(n, Access) for n in walk(value)):
            return
        case Unary("-"):
            yield "negative"
        case Binary(op) | Unary(op):
            yield op
        case Call("clip"):
            yield from ("min", "max")
        case Call(function):
            yield function
        case Cast():
            pass  # Supplied where it loses nothing.
    for part in parts(value):
        yield from _kinds(part)
