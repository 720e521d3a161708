"""Integer expressions over loop variables as C text, and the intervals that they lie in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from hwgen.spec.expression import (
    Binary,
    Call,
    Const,
    Expr,
    Name,
    Unary,
    add,
    children,
    multiply,
    walk,
    with_children,
)
from hwgen.spec.intervals import Interval, Ranges, interval, within

INT32: Interval = (-(1 << 31), (1 << 31) - 1)

_PRECEDENCE: dict[str, int] = {
    "or": 1, "and": 2, "==": 3, "!=": 3, "<": 4, "<=": 4, ">": 4, ">=": 4,
    "+": 5, "-": 5, "*": 6, "/": 6, "//": 6, "%": 6,
}  # fmt: skip
_ATOM = 9
_C_OPERATORS: dict[str, str] = {"or": "||", "and": "&&", "//": "/"}

HELPERS: dict[str, str] = {
    "floor_div": (
        "static inline int64_t {p}_floor_div(int64_t a, int64_t b)\n"
        "{{\n  return a / b - (a % b != 0 && (a < 0) != (b < 0));\n}}"
    ),
    "floor_mod": (
        "static inline int64_t {p}_floor_mod(int64_t a, int64_t b)\n"
        "{{\n  int64_t r = a % b;\n  return r != 0 && (r < 0) != (b < 0) ? r + b : r;\n}}"
    ),
    "min": "static inline int64_t {p}_min(int64_t a, int64_t b)\n{{\n  return a < b ? a : b;\n}}",
    "max": "static inline int64_t {p}_max(int64_t a, int64_t b)\n{{\n  return a > b ? a : b;\n}}",
}
"""Static C functions over 64-bit integers, by name; emitted only where used."""


@dataclass(slots=True)
class Helpers:
    """The helper functions that one C file uses."""

    prefix: str
    library: Mapping[str, str]
    used: set[str] = field(default_factory=set[str])

    def call(self, name: str, *arguments: str) -> str:
        self.used.add(name)
        return f"{self.prefix}_{name}({', '.join(arguments)})"

    def definitions(self) -> list[str]:
        """The C text of the used ones, in the library's order."""
        return [
            text.format(p=self.prefix) for name, text in self.library.items() if name in self.used
        ]


def fold(expr: Expr) -> Expr:
    """The expression with constant parts of sums and products computed."""
    inner = [fold(c) for c in children(expr)]
    match expr, inner:
        case Binary("+"), [left, right]:
            return add(left, right)
        case Binary("*"), [left, right]:
            return multiply(left, right)
        case Binary("-"), [Const(int(a)), Const(int(b))]:
            return Const(a - b)
        case Binary("-"), [left, Const(0)]:
            return left
        case Binary("//"), [Const(int(a)), Const(int(b))] if b:
            return Const(a // b)
        case Binary("%"), [Const(int(a)), Const(int(b))] if b:
            return Const(a % b)
        case Unary("-"), [Const(value)]:
            return Const(-value)
        case _:
            return with_children(expr, inner)


def fits_int32(expr: Expr, ranges: Ranges) -> bool:
    """Whether every intermediate value fits a 32-bit integer."""
    conditions = {"<", "<=", ">", ">=", "==", "!=", "and", "or"}
    for node in walk(expr):
        if isinstance(node, Binary) and node.op in conditions:
            continue
        if not within(interval(node, ranges), INT32):
            return False
    return True


@dataclass(frozen=True, slots=True)
class IndexText:
    """Prints integer expressions as C; `names` maps a variable to its C identifier."""

    helpers: Helpers
    names: Mapping[str, str]
    ranges: Ranges

    def __call__(self, expr: Expr) -> str:
        return self._print(fold(expr))[0]

    def factor(self, expr: Expr) -> str:
        """The text as an operand of a multiplication."""
        return self._operand(fold(expr), 6)

    def _operand(self, expr: Expr, least: int) -> str:
        text, precedence = self._print(expr)
        return text if precedence >= least else f"({text})"

    def _print(self, expr: Expr) -> tuple[str, int]:
        match expr:
            case Const(value):
                return (integer(int(value)), _ATOM if value >= 0 else 7)
            case Name(name):
                return (self.names[name], _ATOM)
            case Unary(op, operand):
                return (f"{'-' if op == '-' else '!'}{self._operand(operand, 8)}", 7)
            case Binary("+", left, Const(value)) if value < 0:
                return (f"{self._operand(left, 5)} - {integer(-int(value))}", 5)
            case Binary("//" | "%" as op, left, right):
                low = interval(left, self.ranges)[0]
                if low < 0 or interval(right, self.ranges)[0] < 0:
                    name = "floor_div" if op == "//" else "floor_mod"
                    call = self.helpers.call(name, self._print(left)[0], self._print(right)[0])
                    return (call, _ATOM)
                return self._infix(op, left, right)
            case Binary("<<" | ">>" | "/" as op, _, _):
                raise AssertionError(f"`{op}` in an expression over loop variables")
            case Binary(op, left, right):
                return self._infix(op, left, right)
            case Call("select", (condition, yes, no)):
                parts = [self._operand(e, 3) for e in (condition, yes, no)]
                return (f"({parts[0]} ? {parts[1]} : {parts[2]})", _ATOM)
            case Call("min" | "max" as function, arguments):
                texts = [self._print(a)[0] for a in arguments]
                return (self.helpers.call(function, *texts), _ATOM)
            case _:
                raise AssertionError(f"{expr} is no expression over loop variables")

    def _infix(self, op: str, left: Expr, right: Expr) -> tuple[str, int]:
        mine = _PRECEDENCE[op]
        # gcc asks for parentheses around `&&` inside `||`.
        lower = 3 if op in ("or", "and") else mine
        text = f"{self._operand(left, lower)} {_C_OPERATORS.get(op, op)} "
        return (text + self._operand(right, lower if op in ("or", "and") else mine + 1), mine)


def integer(value: int) -> str:
    """A C constant of that value, of a type wide enough."""
    if INT32[0] < value <= INT32[1]:
        return str(value)
    return f"INT64_C({value})"
