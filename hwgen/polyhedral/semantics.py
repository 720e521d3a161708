"""What intrinsics compute, read off their semantics."""

from __future__ import annotations

from collections.abc import Iterator

from hwgen.polyhedral.unify import flatten, rebuild
from hwgen.spec.expression import Access, Assign, Cast, Expr, evaluate
from hwgen.spec.hardware import Intrinsic


def marginal_cycles(intrinsic: Intrinsic) -> float:
    """Cycles that one more iteration takes, transfers not counted."""
    free = {"transfer": 0, "bursts": 0, "beats": 0} | {loop.name: 1 for loop in intrinsic.loops}
    low = evaluate(intrinsic.cycles, free | {"iterations": 1000})
    high = evaluate(intrinsic.cycles, free | {"iterations": 1001})
    return high - low


def written(intrinsic: Intrinsic) -> tuple[Assign, str] | None:
    """The only assignment of an intrinsic and the operand that it writes."""
    if len(intrinsic.semantics) != 1:
        return None
    return intrinsic.semantics[0], intrinsic.semantics[0].target.tensor


def written_position(intrinsic: Intrinsic) -> int:
    only = written(intrinsic)
    assert only is not None
    return [o.name for o in intrinsic.operands].index(only[1])


def updates(intrinsic: Intrinsic) -> Iterator[tuple[str, Expr]]:
    """The accumulations that an intrinsic performs: `d += e`, also written `d = d + e`."""
    only = written(intrinsic)
    if only is None:
        return
    assign = only[0]
    if assign.op != "=":
        yield assign.op, assign.value
        return
    match assign.value:
        case Cast():
            return
        case value:
            for op, function in (("+=", "+"), ("max=", "max"), ("min=", "min")):
                rest = _withoutwritten_position(value, assign.target, function)
                if rest is not None:
                    yield op, rest


def _withoutwritten_position(value: Expr, target: Access, function: str) -> Expr | None:
    terms = flatten(function, value)
    rest = tuple(t for t in terms if t != target)
    if len(rest) + 1 != len(terms) or not rest:
        return None
    return rebuild(function, rest)


def widens(dtype: str, into: str) -> bool:
    """Whether every value of `dtype` is a value of `into`."""
    if dtype == into:
        return True
    bits = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
    unsigned = {"uint8": 8, "uint16": 16, "uint32": 32}
    if into in bits:
        return bits.get(dtype, 99) <= bits[into] or unsigned.get(dtype, 99) < bits[into]
    floats = {"float16": 11, "bfloat16": 8, "float32": 24, "float64": 53}
    exact = floats.get(into, 0)
    return (
        bits.get(dtype, 99) <= exact
        or unsigned.get(dtype, 99) <= exact
        or (into == "float64" and dtype in floats)
        or (into == "float32" and dtype in ("float16", "bfloat16"))
    )


def neutral_element(op: str, dtype: str) -> int | float:
    """The value that an update leaves unchanged, as a constant of `dtype`."""
    if op == "+=":
        return 0
    if dtype.startswith(("float", "bfloat")):
        return float("-inf") if op == "max=" else float("inf")
    bits = int(dtype.lstrip("uint"))
    if dtype.startswith("u"):
        return 0 if op == "max=" else 2**bits - 1
    return -(2 ** (bits - 1)) if op == "max=" else 2 ** (bits - 1) - 1
