"""Types of expressions, for intrinsics' semantics and workloads alike.

Arithmetic on integers follows C: operands narrower than int32 are promoted to int32, of two
wider types the wider wins, unsigned where both have the same width. `min`, `max`, `clip` and
`select` keep the common type of their arguments. Floats never mix with integers without a cast.
A number written in an expression takes the type of what it meets, where that type can hold it.
"""

from __future__ import annotations

from collections.abc import Callable

from hwgen.spec.expression import (
    DTYPES,
    Access,
    Assign,
    Binary,
    Call,
    Cast,
    Const,
    Expr,
    Name,
    Unary,
    children,
)
from hwgen.spec.intervals import Interval, within

TypeOf = Callable[[Access | Name], str]
"""The data type of an element or a name."""

_FLOAT_FUNCTIONS = ("exp", "log", "sqrt", "rsqrt", "tanh", "sigmoid", "round", "ceil", "floor")
LARGEST = {
    "float16": 65504.0, "bfloat16": float.fromhex("0x1.fep127"),
    "float32": float.fromhex("0x1.fffffep127"), "float64": float.fromhex("0x1.fffffffffffffp1023"),
}  # fmt: skip
"""The greatest finite number of each type of floats."""

_COMPARISONS = ("<", "<=", ">", ">=", "==", "!=")


class ExpressionTypeError(Exception):
    """An ill-typed expression: what is wrong, the part found, and the nearest repair. `wanted`: the
    type of a value that is too wide for its target."""

    def __init__(self, message: str, found: str, repair: str = "", *, wanted: str = "") -> None:
        super().__init__(message)
        self.wanted = wanted
        self.message = message
        self.found = found
        self.repair = repair


def is_float(dtype: str) -> bool:
    return "float" in dtype


def promoted(dtype: str) -> str:
    """The type in which elements of a data type are computed with."""
    if dtype in ("int8", "uint8", "int16", "uint16"):
        return "int32"
    return "float32" if dtype in ("float16", "bfloat16") else dtype


def integer_range(dtype: str) -> Interval:
    """Smallest and largest value of an integer type."""
    bits = 8 * DTYPES[dtype]
    return (
        (0, (1 << bits) - 1)
        if dtype.startswith("u")
        else (-(1 << (bits - 1)), (1 << (bits - 1)) - 1)
    )


def holds(dtype: str, value: int | float) -> bool:
    """Whether a type holds a written number (floats hold every number, rounded)."""
    if is_float(dtype):
        return True
    if isinstance(value, float):
        return False
    return within((value, value), integer_range(dtype))


def converts(source: str, target: str) -> bool:
    """Whether every value of one type is a value of the other, without changing kind."""
    if source == target:
        return True
    if is_float(source) or is_float(target):
        wider = DTYPES[source] < DTYPES[target]
        return is_float(source) and is_float(target) and wider
    low, high = integer_range(source)
    return holds(target, low) and holds(target, high)


def check_assign(statement: Assign, type_of: TypeOf) -> None:
    """Check that a statement is well typed.

    Raises:
        ExpressionTypeError: mixed kinds, a condition used as a number, an assignment that narrows.
    """
    target = type_of(statement.target)
    value = _type(statement.value, type_of)
    if value == "bool":
        raise ExpressionTypeError(
            "a condition is assigned", str(statement.value),
            f"write select({statement.value}, 1, 0)",
        )  # fmt: skip
    if value == "":
        _check_constant(statement.value, target)
        return
    if not converts(value, target):
        if is_float(value) == is_float(target) and DTYPES[value] >= DTYPES[target]:
            kind = "narrows" if DTYPES[value] > DTYPES[target] else "changes the sign of"
        else:
            kind = "changes the kind of"
        clips = kind == "narrows" and not is_float(target) and "clip" not in str(statement.value)
        raise ExpressionTypeError(
            f"the assignment {kind} the value", f"{value} into {target}",
            f"write {target}({statement.value})"
            + (f", after clip(...) if {target} should saturate" if clips else ""),
            wanted=value if kind == "narrows" else "",
        )  # fmt: skip


def dtype_of(expr: Expr, type_of: TypeOf) -> str:
    """The data type of an expression; numbers by themselves are int32 (int64) or float32.

    Raises:
        ExpressionTypeError: the expression is ill typed, or a condition.
    """
    dtype = _type(expr, type_of)
    if dtype == "bool":
        raise ExpressionTypeError("a condition stands where a number is needed", str(expr))
    if dtype == "":
        values = [v.value for v in _constants(expr)]
        if any(isinstance(v, float) for v in values):
            return "float32"
        return "int32" if all(holds("int32", v) for v in values) else "int64"
    return dtype


def own_dtype(expr: Expr, type_of: TypeOf) -> str:
    """The data type that an expression has wherever it stands: "bool" for conditions, "" for
    numbers, which take the type of what they meet.

    Raises:
        ExpressionTypeError: the expression is ill typed.
    """
    return _type(expr, type_of)


def _type(expr: Expr, type_of: TypeOf) -> str:
    """Like `dtype_of`, but "bool" for conditions and "" for numbers that take any type."""
    match expr:
        case Const():
            return ""
        case Name() | Access():
            return type_of(expr)
        case Cast(dtype, operand):
            if _type(operand, type_of) == "bool":
                raise ExpressionTypeError(
                    "a condition is cast", str(operand), f"write select({operand}, 1, 0)"
                )
            return dtype
        case Unary("not", operand):
            _condition(operand, type_of)
            return "bool"
        case Unary(_, operand):
            return _promote(_number(operand, type_of))
        case Binary(("and" | "or"), left, right):
            _condition(left, type_of)
            _condition(right, type_of)
            return "bool"
        case Binary(op, left, right) if op in _COMPARISONS:
            _common(expr, [left, right], type_of)
            return "bool"
        case Binary():
            return _arithmetic(expr, type_of)
        case Call("select", (condition, yes, no)):
            _condition(condition, type_of)
            return _common(expr, [yes, no], type_of)
        case Call(function, arguments) if function in _FLOAT_FUNCTIONS:
            dtype = _number(arguments[0], type_of)
            if dtype and not is_float(dtype):
                raise ExpressionTypeError(
                    f"{function} is for floats", f"{arguments[0]} ({dtype})",
                    f"write {function}(float32({arguments[0]}))",
                )  # fmt: skip
            return dtype or "float32"
        case Call("abs", (operand,)):
            return _promote(_number(operand, type_of))
        case Call(_, arguments):
            return _common(expr, list(arguments), type_of)


def _arithmetic(expr: Binary, type_of: TypeOf) -> str:
    op = expr.op
    if op in ("<<", ">>"):
        for side in (expr.left, expr.right):
            dtype = _number(side, type_of)
            if is_float(dtype) or (isinstance(side, Const) and isinstance(side.value, float)):
                raise ExpressionTypeError(f"{op} is for integers", f"{side} ({dtype or 'float'})")
        left = _promote(_type(expr.left, type_of))
        bits = 8 * DTYPES[left or "int32"]
        if isinstance(expr.right, Const) and not 0 <= expr.right.value < bits:
            raise ExpressionTypeError(
                f"a shift by {expr.right} bits is undefined", str(expr), f"shift by 0..{bits - 1}"
            )
        return left
    common = _common(expr, [expr.left, expr.right], type_of)
    if op == "/" and not is_float(common) and not _has_float(expr):
        raise ExpressionTypeError(
            "/ is for floats", str(expr), f"write {expr.left} // {expr.right} to round down"
        )
    if op in ("//", "%"):
        if is_float(common):
            raise ExpressionTypeError(f"{op} is for integers", f"{expr} ({common})")
        if isinstance(expr.right, Const) and expr.right.value == 0:
            raise ExpressionTypeError("division by zero", str(expr))
    return _promote(common)


def _promote(dtype: str) -> str:
    if dtype == "" or is_float(dtype) or DTYPES[dtype] >= 4:
        return dtype
    return "int32"


def _number(expr: Expr, type_of: TypeOf) -> str:
    dtype = _type(expr, type_of)
    if dtype == "bool":
        raise ExpressionTypeError(
            "a condition stands where a number is needed", str(expr),
            f"write select({expr}, 1, 0)",
        )  # fmt: skip
    return dtype


def _condition(expr: Expr, type_of: TypeOf) -> None:
    dtype = _type(expr, type_of)
    if dtype != "bool":
        raise ExpressionTypeError(
            "a number stands where a condition is needed", str(expr), f"write {expr} != 0"
        )


def _common(whole: Expr, parts: list[Expr], type_of: TypeOf) -> str:
    """The type that all parts convert to."""
    typed = [(part, _number(part, type_of)) for part in parts]
    dtypes = [dtype for _, dtype in typed if dtype]
    if not dtypes:
        return ""
    if len({is_float(d) for d in dtypes}) > 1:
        integers = next(part for part, d in typed if d and not is_float(d))
        floating = next(d for d in dtypes if is_float(d))
        raise ExpressionTypeError(
            "integers and floats mix", " and ".join(f"{p} ({d})" for p, d in typed if d),
            f"write {floating}({integers})",
        )  # fmt: skip
    common = dtypes[0]
    for dtype in dtypes[1:]:
        common = _wider(whole, common, dtype)
    for part, dtype in typed:
        if dtype == "":
            common = _widen_for(part, common)
    return common


def _wider(whole: Expr, a: str, b: str) -> str:
    if converts(a, b):
        return b
    if converts(b, a):
        return a
    if is_float(a):
        raise ExpressionTypeError(
            f"{a} and {b} have no common type", str(whole), "cast both to float32"
        )
    if DTYPES[a] == DTYPES[b] == 4:
        return "uint32"  # as in C: the unsigned type of the same width wins
    return "int64" if 8 in (DTYPES[a], DTYPES[b]) else "int32"


def _widen_for(part: Expr, dtype: str) -> str:
    """A type at least `dtype` that holds the numbers of a part made of numbers only."""
    for constant in _constants(part):
        if holds(dtype, constant.value):
            continue
        if isinstance(constant.value, float):
            raise ExpressionTypeError(
                "integers and floats mix", f"{constant} with {dtype}", "cast the integer to float32"
            )
        wider = [
            d for d in ("int32", "int64") if DTYPES[d] > DTYPES[dtype] and holds(d, constant.value)
        ]
        if not wider:
            raise ExpressionTypeError(f"{dtype} cannot hold the number", str(constant))
        dtype = wider[0]
    return dtype


def _check_constant(expr: Expr, target: str) -> None:
    for constant in _constants(expr):
        if not holds(target, constant.value):
            allowed = "" if is_float(target) else "..".join(map(str, integer_range(target)))
            raise ExpressionTypeError(
                f"{target} cannot hold the number", str(constant), f"{target} holds {allowed}"
            )


def _constants(expr: Expr) -> list[Const]:
    """The numbers that a value made of numbers only may come to be, or is computed from; those of
    conditions have met their type there."""
    match expr:
        case Const():
            return [expr]
        case Call("select", (_, yes, no)):
            return [*_constants(yes), *_constants(no)]
        case _:
            return [constant for child in children(expr) for constant in _constants(child)]


def _has_float(expr: Expr) -> bool:
    return any(isinstance(constant.value, float) for constant in _constants(expr))
