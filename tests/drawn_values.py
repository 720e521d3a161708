"""Random expressions over elements of any two data types, and workloads made of them."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Any

from hwgen.spec.expression import DTYPES, Access, Binary, Call, Cast, Const, Expr, Name, Unary
from hwgen.spec.typecheck import ExpressionTypeError, converts, is_float, own_dtype, promoted

OPERATORS = ("+", "-", "*", "//", "%", "<<", ">>", "<", "<=", ">", ">=", "==", "!=", "min", "max")
COMPARISONS = ("<", "<=", ">", ">=", "==", "!=")
_ENDS = sorted(
    n + shift for n in (0, 1 << 7, 1 << 8, 1 << 15, 1 << 31, 1 << 32, 1 << 40) for shift in (-1, 0)
)
CONSTANTS = sorted({*_ENDS, *(-n for n in _ENDS), 2, 3, -3, 7, -(1 << 63), (1 << 63) - 1})
"""The ends of all types, and what is next to them, of both signs."""


def joined(op: str, left: Expr, right: Expr) -> Expr:
    """The operator's value as a number."""
    if op in ("min", "max"):
        return Call(op, (left, right))
    made = Binary(op, left, right)  # pyright: ignore[reportArgumentType]
    return Call("select", (made, Const(1), Const(0))) if op in COMPARISONS else made


def drawn(pick: Random, depth: int, leaves: tuple[Access, ...]) -> Expr:
    """An expression, well typed or not, whose divisors and shifts are defined."""
    if depth == 0 or pick.random() < 0.15:
        # A file cannot say the first one: it has no number below zero, but a minus before one.
        number = Const(pick.choice((*CONSTANTS[1:], 0.1, -2.5, 3, -3, 1, 2)))
        return pick.choice((*leaves, *leaves, number))
    a, b = drawn(pick, depth - 1, leaves), drawn(pick, depth - 1, leaves)
    match pick.choice(("binary", "binary", "binary", "cast", "unary", "call", "select")):
        case "cast":
            return Cast(pick.choice(tuple(DTYPES)), a)
        case "unary":
            return Unary("-", a)
        case "call":
            function = pick.choice(("min", "max", "clip", "abs", "sqrt", "round", "floor", "ceil"))
            count = {"min": 2, "max": 2, "clip": 3}.get(function, 1)
            return Call(function, (a, b, drawn(pick, depth - 1, leaves))[:count])
        case "select":
            chosen = Binary(pick.choice(("<", "<=", "==")), a, b)
            return Call("select", (chosen, b, drawn(pick, depth - 1, leaves)))
        case _:
            op = pick.choice((*OPERATORS, "/", "+", "-", "*"))
            if op in ("//", "%"):
                b = Call("select", (Binary("==", b, Const(0)), Const(pick.choice((1, -1, 7))), b))
            if op in ("<<", ">>"):
                b = Const(pick.randrange(32))
            return joined(op, a, b)


def well_typed(
    pick: Random, depth: int, dtypes: dict[Access, str], *, reals: bool = True
) -> tuple[Expr, str]:
    """An expression that reads elements of these types, and its own type; `reals`: or floats."""
    while True:
        expr = drawn(pick, depth, tuple(dtypes))
        try:
            dtype = own_dtype(expr, lambda a: dtypes[a] if isinstance(a, Access) else "int32")
        except ExpressionTypeError:
            continue
        if dtype not in ("", "bool") and (reals or not is_float(dtype)):
            return expr, dtype


@dataclass(frozen=True, slots=True)
class _At:
    """An element where the loops `i` and `j` are, or of a row of `j` alone."""

    name: str
    row: bool = False

    @property
    def access(self) -> Access:
        return Access(self.name, (Name("j"),) if self.row else (Name("i"), Name("j")))


def mixed_workload(seed: int) -> dict[str, Any]:
    """Two inputs of any types, values made of them, and a sum or an extreme, as a file's data."""
    pick = Random(seed)
    rows, columns = pick.choice((1, 3, 5, 8)), pick.choice((1, 4, 7, 16, 33))
    shape, tensors, compute = f"[{rows}, {columns}]", dict[str, str](), list[dict[str, Any]]()
    known: dict[Access, str] = {}
    loops = {"i": rows, "j": columns}
    for name in ("p", "q"):
        at, dtype = _At(name, name == "q" and pick.random() < 0.3), pick.choice(tuple(DTYPES))
        tensors[name] = f"{dtype}{f'[{columns}]' if at.row else shape}"
        known[at.access] = dtype
    for name in ("t", "u")[: pick.choice((1, 1, 2))]:
        value, dtype = well_typed(pick, pick.choice((1, 2, 3)), known)
        if pick.random() < 0.4:
            dtype = pick.choice(tuple(DTYPES))
            value = Cast(dtype, value)
        tensors[name] = f"{dtype}{shape}"
        compute.append({"do": f"{_At(name).access} = {value}", "loops": loops})
        known[_At(name).access] = dtype
    if pick.random() < 0.5:
        value, dtype = well_typed(pick, pick.choice((1, 2)), known, reals=False)
        op = pick.choice(("+=", "+=", "max=", "min="))
        wider = [d for d in DTYPES if converts(promoted(dtype), d)]
        target = pick.choice((promoted(dtype), *wider))
        tensors["s"] = f"{target}[{rows}]"
        over = {n: e for n, e in loops.items() if n == "i" or f"{n}]" in str(value)}
        compute.append({"do": f"s[i] {op} {value}", "loops": over})
    used = " ".join(step["do"].partition("=")[2] for step in compute)
    tensors = {n: t for n, t in tensors.items() if n not in "pq" or f"{n}[" in used}
    return {"name": f"mixed_{seed}", "tensors": tensors, "compute": compute}
