"""The one expression language: semantics, workloads, costs, and loop-affine addresses.

Nodes are frozen dataclasses; every pass over them is a `match`. Integer arithmetic follows C:
operands narrower than int32 are promoted to int32, int32 and int64 wrap around.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

T = TypeVar("T")

DTYPES: dict[str, int] = {
    "int8": 1, "uint8": 1, "int16": 2, "uint16": 2, "int32": 4, "uint32": 4,
    "int64": 8, "float16": 2, "bfloat16": 2, "float32": 4, "float64": 8,
}  # fmt: skip
"""Bytes per element of each data type."""

BinaryOp = Literal[
    "+", "-", "*", "/", "//", "%", "<<", ">>", "<", "<=", ">", ">=", "==", "!=", "and", "or"
]
FUNCTIONS: dict[str, int] = {
    "min": 2, "max": 2, "clip": 3, "select": 3, "exp": 1, "log": 1, "sqrt": 1, "rsqrt": 1,
    "tanh": 1, "sigmoid": 1, "abs": 1, "round": 1, "ceil": 1, "floor": 1,
}  # fmt: skip
"""Functions and their number of arguments; a data type's name is a cast of one argument."""


@dataclass(frozen=True, slots=True)
class Const:
    value: int | float

    def __str__(self) -> str:
        return str(self.value)


@dataclass(frozen=True, slots=True)
class Name:
    """A parameter, size, iterator, immediate or loop variable."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Binary:
    op: BinaryOp
    left: Expr
    right: Expr

    def __str__(self) -> str:
        return f"{_wrap(self.left, self.op, False)} {self.op} {_wrap(self.right, self.op, True)}"


@dataclass(frozen=True, slots=True)
class Unary:
    op: Literal["-", "not"]
    operand: Expr

    def __str__(self) -> str:
        return f"{self.op}{' ' if self.op == 'not' else ''}{_wrap(self.operand, '*', True)}"


@dataclass(frozen=True, slots=True)
class Call:
    function: str
    arguments: tuple[Expr, ...]

    def __str__(self) -> str:
        return f"{self.function}({', '.join(map(str, self.arguments))})"


@dataclass(frozen=True, slots=True)
class Cast:
    """Conversion to a data type; to a narrower integer it keeps the low bits, as in C."""

    dtype: str
    operand: Expr

    def __str__(self) -> str:
        return f"{self.dtype}({self.operand})"


@dataclass(frozen=True, slots=True)
class Access:
    """An element of a tensor or operand."""

    tensor: str
    indices: tuple[Expr, ...]

    def __str__(self) -> str:
        return f"{self.tensor}[{', '.join(map(str, self.indices))}]"


Expr = Const | Name | Binary | Unary | Call | Cast | Access

UpdateOp = Literal["=", "+=", "max=", "min="]


@dataclass(frozen=True, slots=True)
class Assign:
    """`target op value`, for every point of the iterators that occur in it."""

    target: Access
    op: UpdateOp
    value: Expr

    @property
    def running(self) -> bool:
        """Whether a new value is made from the last one: such iterations run in order."""
        return self.op == "=" and self.target in walk(self.value)

    def __str__(self) -> str:
        return f"{self.target} {self.op} {self.value}"

    def mapped(self, change: Callable[[Access], Access]) -> Assign:
        """The same with other accesses."""
        return Assign(change(self.target), self.op, map_accesses(self.value, change))


_PRECEDENCE: dict[str, int] = {
    "or": 1, "and": 2, "<": 3, "<=": 3, ">": 3, ">=": 3, "==": 3, "!=": 3,
    "<<": 4, ">>": 4, "+": 5, "-": 5, "*": 6, "/": 6, "//": 6, "%": 6,
}  # fmt: skip


def _wrap(expr: Expr, parent: str, right: bool) -> str:
    theirs = _PRECEDENCE[parent]
    if isinstance(expr, Unary) and expr.op == "not":
        return f"({expr})" if theirs > _PRECEDENCE["and"] else str(expr)
    if not isinstance(expr, Binary):
        return str(expr)
    mine = _PRECEDENCE[expr.op]
    chained = mine == theirs == _PRECEDENCE["<"]  # comparisons do not chain
    loose = mine < theirs or (mine == theirs and right) or chained
    return f"({expr})" if loose else str(expr)


def children(expr: Expr) -> tuple[Expr, ...]:
    """The direct subexpressions of a node, left to right."""
    # By type, not by patterns: these few functions are most of what compiling does.
    if isinstance(expr, Binary):
        return (expr.left, expr.right)
    if isinstance(expr, Const | Name):
        return ()
    if isinstance(expr, Access):
        return expr.indices
    if isinstance(expr, Call):
        return expr.arguments
    return (expr.operand,)


def parts(value: Expr) -> tuple[Expr, ...]:
    """What a value is made of: its subexpressions, but those of indices."""
    return () if isinstance(value, Access) else children(value)


def with_children(expr: Expr, inner: Sequence[Expr]) -> Expr:
    """A node with other subexpressions, as many as `children` has."""
    if isinstance(expr, Binary):
        return Binary(expr.op, *inner)
    if isinstance(expr, Const | Name):
        return expr
    if isinstance(expr, Access):
        return Access(expr.tensor, tuple(inner))
    if isinstance(expr, Call):
        return Call(expr.function, tuple(inner))
    return Cast(expr.dtype, *inner) if isinstance(expr, Cast) else Unary(expr.op, *inner)


def walk(expr: Expr) -> Iterator[Expr]:
    """Every node of an expression, parents first."""
    waiting = [expr]
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, Const | Name):
            waiting += children(node)[::-1]


def nesting(*roots: Expr) -> int:
    """How many levels of subexpressions the deepest of some expressions has."""
    depth, level = 0, [*roots]
    while level:
        depth += 1
        level = [child for node in level for child in children(node)]
    return depth


def names(expr: Expr) -> tuple[str, ...]:
    """The distinct names in an expression, in order of appearance."""
    if isinstance(expr, Name):
        return (expr.name,)
    found: dict[str, None] = {}
    waiting: list[Expr] = [expr]
    while waiting:
        node = waiting.pop()
        if isinstance(node, Name):
            found[node.name] = None
        elif isinstance(node, Binary):
            waiting += (node.right, node.left)
        elif not isinstance(node, Const):
            waiting += children(node)[::-1]
    return tuple(found)


def substitute(expr: Expr, bindings: Mapping[str, Expr]) -> Expr:
    """The expression with names replaced."""
    if isinstance(expr, Const):
        return expr
    if isinstance(expr, Name):
        return bindings.get(expr.name, expr)
    if isinstance(expr, Binary):
        left, right = substitute(expr.left, bindings), substitute(expr.right, bindings)
        same = left is expr.left and right is expr.right
        return expr if same else Binary(expr.op, left, right)
    return with_children(expr, [substitute(c, bindings) for c in children(expr)])


def rewrite(expr: Expr, change: Callable[[Expr], Expr]) -> Expr:
    """The expression with every part replaced by what `change` makes of it, inner ones first; what
    is inside of indices is left."""
    inner = [rewrite(p, change) for p in parts(expr)]
    return change(with_children(expr, inner) if inner else expr)


def taken_out(value: Expr, take: Callable[[Expr], tuple[Expr, T] | None]) -> tuple[Expr, T] | None:
    """The value with what `take` leaves of the first of its parts from which it takes something,
    and what that is; None where there is no such part."""
    mine = parts(value)
    for n, part in enumerate(mine):
        if (found := take(part)) is not None:
            return with_children(value, (*mine[:n], found[0], *mine[n + 1 :])), found[1]
    return None


def map_accesses(expr: Expr, change: Callable[[Access], Expr]) -> Expr:
    """The expression with other values for its accesses, those inside of indices left."""
    return rewrite(expr, lambda part: change(part) if isinstance(part, Access) else part)


def rename_tensors(expr: Expr, names: Mapping[str, str]) -> Expr:
    """The expression with accesses to tensors renamed."""
    return map_accesses(expr, lambda a: Access(names.get(a.tensor, a.tensor), a.indices))


def tensors_of(expr: Expr) -> set[str]:
    """The tensors that an expression reads."""
    return {n.tensor for n in walk(expr) if isinstance(n, Access)}


def replace_part(expr: Expr, old: Expr, new: Expr) -> Expr:
    """The expression with one part replaced wherever it stands outside of indices."""
    return rewrite(expr, lambda part: new if part == old else part)


def stepped(index: Expr) -> tuple[str, int] | None:
    """The name and the number of an index that is a name plus a number, or one of them; "" for no
    name. None for any other index."""
    match index:
        case Name(name):
            return name, 0
        case Const(int(number)):
            return "", number
        case Binary(("+" | "-" | "*") as op, left, right):
            (first, a), (second, b) = stepped(left) or ("?", 0), stepped(right) or ("?", 0)
            if "?" in (first, second) or (second and (first or op == "-")):
                return None
            if op == "*":
                return None if first or second else ("", a * b)
            return first or second, a + b if op == "+" else a - b
        case _:
            return None


def accesses(statement: Assign) -> tuple[Access, ...]:
    """The target and every access of the value, in order of appearance."""
    return (statement.target, *(n for n in walk(statement.value) if isinstance(n, Access)))


def evaluate(expr: Expr, values: Mapping[str, int | float]) -> int | float:
    """The number that an expression without accesses stands for.

    `/` is true division, `//` and `%` round towards minus infinity; comparisons give 0 or 1.

    Raises:
        KeyError: a name has no value.
        ZeroDivisionError: a divisor is zero.
        OverflowError: a shift by more than 64 bits, or a result too large for a float.
        ValueError: a negative shift.
    """
    if isinstance(expr, Name):
        return values[expr.name]
    if isinstance(expr, Const):
        return expr.value
    if isinstance(expr, Binary):
        return _binary(expr.op, evaluate(expr.left, values), evaluate(expr.right, values))
    if isinstance(expr, Unary):
        value = evaluate(expr.operand, values)
        return -value if expr.op == "-" else int(not value)
    if isinstance(expr, Call):
        return _call(expr.function, [evaluate(a, values) for a in expr.arguments])
    raise TypeError(f"{expr} is not a number")


def _binary(op: BinaryOp, left: int | float, right: int | float) -> int | float:
    match op:
        case "+":
            return left + right
        case "-":
            return left - right
        case "*":
            return left * right
        case "/":
            return left / right
        case "//":
            return left // right
        case "%":
            return left % right
        case "<<":
            if right > 64:
                raise OverflowError(f"shift by {right} bits")
            return int(left) << int(right)
        case ">>":
            return int(left) >> int(right)
        case "<":
            return int(left < right)
        case "<=":
            return int(left <= right)
        case ">":
            return int(left > right)
        case ">=":
            return int(left >= right)
        case "==":
            return int(left == right)
        case "!=":
            return int(left != right)
        case "and":
            return int(bool(left) and bool(right))
        case "or":
            return int(bool(left) or bool(right))


def _call(function: str, arguments: list[int | float]) -> int | float:
    match function:
        case "min":
            return min(arguments)
        case "max":
            return max(arguments)
        case "clip":
            value, low, high = arguments
            return min(max(value, low), high)
        case "select":
            condition, yes, no = arguments
            return yes if condition else no
        case "ceil":
            return -int(-arguments[0] // 1)
        case "floor":
            return int(arguments[0] // 1)
        case "abs":
            return abs(arguments[0])
        case _:
            raise TypeError(f"{function} is not a function of numbers")


def add(left: Expr, right: Expr) -> Expr:
    """`left + right`, folded where both are known or one is zero."""
    if isinstance(left, Const):
        if isinstance(right, Const):
            return Const(left.value + right.value)
        if left.value == 0:
            return right
    elif isinstance(right, Const) and right.value == 0:
        return left
    return Binary("+", left, right)


def displaced(value: Expr) -> tuple[Expr, int]:
    """A sum of integers as its terms that are no numbers, and the number that displaces them."""
    match value:
        case Const(int(number)):
            return Const(0), number
        case Binary("+", left, right):
            (base, more), (other, last) = displaced(left), displaced(right)
            return add(base, other), more + last
        case _:
            return value, 0


def multiply(left: Expr, right: Expr) -> Expr:
    """`left * right`, folded where both are known or one is zero or one."""
    if isinstance(left, Const):
        if isinstance(right, Const):
            return Const(left.value * right.value)
        if left.value in (0, 1):
            return right if left.value else Const(0)
    elif isinstance(right, Const) and right.value in (0, 1):
        return left if right.value else Const(0)
    return Binary("*", left, right)


def conjuncts(condition: Expr) -> list[Expr]:
    """The conditions of which all must hold."""
    match condition:
        case Binary("and", left, right):
            return [*conjuncts(left), *conjuncts(right)]
        case _:
            return [condition]


def alternatives(condition: Expr) -> list[Expr]:
    """The conditions of which one must hold."""
    match condition:
        case Binary("or", left, right):
            return [*alternatives(left), *alternatives(right)]
        case _:
            return [condition]


def conjunction(conditions: tuple[Expr, ...]) -> Expr | None:
    """All of the conditions as one; None where there is none."""
    result: Expr | None = None
    for condition in conditions:
        result = condition if result is None else Binary("and", result, condition)
    return result
