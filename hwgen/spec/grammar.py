"""The expression language: text to `Expr` and `Assign`.

LALR(1), so parsing time is linear; length, depth and numbers are bounded because a spec is
untrusted input. Operators bind as in Python, comparisons do not chain:
`or` < `and` < `not` < comparisons < shifts < `+ -` < `* / // %` < unary minus.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, NoReturn, cast

from lark import Lark, Token, Transformer
from lark.exceptions import UnexpectedCharacters, UnexpectedToken

from hwgen.errors import HwgenError, Location
from hwgen.spec.expression import (
    DTYPES,
    FUNCTIONS,
    Access,
    Assign,
    Binary,
    BinaryOp,
    Call,
    Cast,
    Const,
    Expr,
    Name,
    Unary,
    UpdateOp,
    nesting,
)
from hwgen.spec.suggest import suggestion

NamedTypes = tuple[tuple[str, str], ...]
"""Names that stand for data types, and which."""

MAX_LENGTH = 2_000
MAX_DEPTH = 64
MAX_INTEGER = (1 << 63) - 1

_GRAMMAR = r"""
assign: (access | NAME) (UPDATE | EQUALS) expression
?expression: conjunction | expression OR conjunction -> binary
?conjunction: negation | conjunction AND negation -> binary
?negation: comparison | NOT negation -> unary
?comparison: shift | shift COMPARE shift -> binary
?shift: sum | shift SHIFT sum -> binary
?sum: product | sum (PLUS | MINUS) product -> binary
?product: signed | product FACTOR signed -> binary
?signed: atom | MINUS signed -> unary
?atom: INTEGER -> integer
     | FLOAT -> floating
     | NAME -> name
     | NAME "(" _list ")" -> call
     | access
     | "(" expression ")"
access: NAME "[" [_list] "]"
_list: expression ("," expression)*

UPDATE.3: /\+=|(max|min)=(?!=)/
COMPARE: "<=" | ">=" | "==" | "!=" | "<" | ">"
SHIFT.2: "<<" | ">>"
FACTOR: "//" | "*" | "/" | "%"
EQUALS: "="
PLUS: "+"
MINUS: "-"
OR.2: /or(?![A-Za-z0-9_])/
AND.2: /and(?![A-Za-z0-9_])/
NOT.2: /not(?![A-Za-z0-9_])/
NAME: /[A-Za-z_][A-Za-z0-9_]*/
FLOAT.1: /[0-9]+(\.[0-9]+([eE][-+]?[0-9]+)?|[eE][-+]?[0-9]+)/
INTEGER: /[0-9]+(?![0-9A-Za-z_.])/
%ignore /[ \t\r\n]+/
"""

_INSTEAD = {
    "relu": "write max(x, 0)",
    "sum": "write target[...] += ...: a loop that is not in the target adds up",
    "pow": "write a product, or exp(y * log(x))",
}
"""Functions that there are not, and how to say them."""
_READABLE = {
    "UPDATE": "+=", "EQUALS": "=", "RPAR": ")", "LSQB": "[", "RSQB": "]", "COMMA": ",",
    "$END": "the end",
}  # fmt: skip
_OPERATORS = {"COMPARE", "SHIFT", "FACTOR", "PLUS", "MINUS", "OR", "AND"}


def _readable(expected: set[str]) -> str:
    """What may stand at some place, for a person: kinds of tokens rather than tokens."""
    if "INTEGER" in expected:
        return "a number, a name or ("
    kinds = {_READABLE[name] for name in expected if name in _READABLE}
    if expected & _OPERATORS:
        kinds.add("an operator")
    return " or ".join(sorted(kinds))


class ExpressionError(HwgenError):
    """An error in an expression's text; `offset` counts characters from its start."""

    def __init__(
        self, code: str, message: str, offset: int = 0, *, found: str = "", allowed: str = "",
        repair: str = "",
    ) -> None:  # fmt: skip
        super().__init__(
            code, message, location=Location("<expression>", 1, offset + 1), found=found,
            allowed=allowed, repair=repair,
        )  # fmt: skip
        self.offset = offset


def parse_expression(text: str) -> Expr:
    """Parse an expression such as `(H + 2*P - R)//S + 1`.

    Raises:
        ExpressionError: H020 syntax, H021 unknown function, H022 wrong number of arguments,
            H023 over a bound.
    """
    parsed = _parse(text, "expression", ())
    assert not isinstance(parsed, Assign)
    return parsed


def parse_assign(text: str, types: NamedTypes = ()) -> Assign:
    """Parse a statement such as `c[i, j] += a[i, k] * b[k, j]`; raises as `parse_expression`.

    `types`: names that stand for data types in casts.
    """
    parsed = _parse(text, "assign", types)
    assert isinstance(parsed, Assign)
    return parsed


@lru_cache(maxsize=4096)
def _parse(text: str, start: str, types: NamedTypes) -> Expr | Assign:
    if len(text) > MAX_LENGTH:
        raise ExpressionError(
            "H023", "the expression is too long", found=f"{len(text)} characters",
            allowed=f"at most {MAX_LENGTH} characters",
        )  # fmt: skip
    try:
        parsed = cast("Expr | Assign", cast("Any", _parser(types)).parse(text, start=start))
    except UnexpectedCharacters as problem:
        _unexpected_character(text, cast("int", problem.pos_in_stream))
    except UnexpectedToken as problem:
        _unexpected_token(text, problem, start)
    _check_depth(parsed)
    return parsed


def _unexpected_character(text: str, position: int) -> NoReturn:
    digits = text[position].isdigit()
    repair = "numbers are written 12, 1.5 or 1e-3" if digits else ""
    if re.match(r"0x[0-9a-fA-F]", text[position:]):
        decimal = re.sub(r"0x[0-9a-fA-F]{1,15}", lambda n: str(int(n[0], 16)), text)
        repair = f"numbers are decimal: write {decimal} for {text}"
    elif text[position] == ";":
        repair = "leave out the ';': this is no C"
    elif text[position] == "@":
        repair = "write the product with its indices: c[i, j] += a[i, k] * b[k, j]"
    elif text.startswith("..", position) or (digits and ".." in text[position:]):
        repair = "a range is not allowed here"
    elif text.strip() == "?":
        repair = "write a number: kernels are compiled for fixed sizes, and --set gives others"
    raise ExpressionError(
        "H020", "syntax error in an expression", position, found=repr(text[position]), repair=repair
    )


def _unexpected_token(text: str, problem: UnexpectedToken, start: str) -> NoReturn:
    token = cast("Token", problem.token)
    ended = token.type == "$END"
    position = len(text) if ended else int(token.start_pos or 0)
    expected = set(problem.accepts or problem.expected)
    repair = ""
    if token.type == "LSQB" and text[:position].rstrip().endswith("]"):
        repair = "write indices in one bracket: " + re.sub(r"\] *\[", ", ", text)
    elif start == "assign" and token.type in ("EQUALS", "UPDATE") and expected == {"LSQB"}:
        repair = f"write its indices: {text[:position].strip()}[i] {token} ..."
    elif start == "assign" and text.split()[:1] == ["for"]:
        repair = "write the statement alone: it is for all its iterators"
    elif start == "assign" and ("EQUALS" in expected or not text.strip()):
        repair = "write a statement such as y[i] = x[i]"
    elif start == "expression" and token.type in ("EQUALS", "UPDATE"):
        repair = "write == to compare"
    raise ExpressionError(
        "H020", "syntax error in an expression", position,
        found="the end of the text" if ended else repr(str(token)),
        allowed=_readable(expected), repair=repair,
    )  # fmt: skip


def _check_depth(root: Expr | Assign) -> None:
    roots = (root.target, root.value) if isinstance(root, Assign) else (root,)
    if nesting(*roots) > MAX_DEPTH:
        raise ExpressionError(
            "H023", "the expression is nested too deeply",
            found=f"more than {MAX_DEPTH} levels", allowed=f"at most {MAX_DEPTH} levels",
            repair="split it into several statements",
        )  # fmt: skip


class _Builder(Transformer[Token, Expr | Assign]):
    """Parse-tree callbacks; each receives its already built children."""

    def __init__(self, types: NamedTypes) -> None:
        super().__init__()
        self._types = dict(types)

    def integer(self, parts: list[Token]) -> Expr:
        if len(parts[0]) > 19 or int(parts[0]) > MAX_INTEGER:
            raise ExpressionError(
                "H023", "a number is too large", int(parts[0].start_pos or 0),
                found=str(parts[0])[:40], allowed=f"at most {MAX_INTEGER}",
            )  # fmt: skip
        return Const(int(parts[0]))

    def floating(self, parts: list[Token]) -> Expr:
        value = float(parts[0])
        if value == float("inf"):
            raise ExpressionError(
                "H023", "a number is too large", int(parts[0].start_pos or 0),
                found=str(parts[0])[:40], allowed="finite numbers",
            )  # fmt: skip
        return Const(value)

    def name(self, parts: list[Token]) -> Expr:
        return Const(float("inf")) if parts[0] == "inf" else Name(str(parts[0]))

    def binary(self, parts: list[Expr | Token]) -> Expr:
        left, op, right = cast("tuple[Expr, Token, Expr]", tuple(parts))
        return Binary(cast("BinaryOp", str(op)), left, right)

    def unary(self, parts: list[Expr | Token]) -> Expr:
        op, operand = cast("tuple[Token, Expr]", tuple(parts))
        if op == "-" and isinstance(operand, Const):
            return Const(-operand.value)
        return Unary("-" if op == "-" else "not", operand)

    def access(self, parts: list[Expr | Token | None]) -> Expr:
        indices = tuple(p for p in parts[1:] if p is not None)  # a scalar entry has none
        return Access(str(parts[0]), cast("tuple[Expr, ...]", indices))

    def call(self, parts: list[Expr | Token]) -> Expr:
        token = cast("Token", parts[0])
        function, arguments = str(token), cast("tuple[Expr, ...]", tuple(parts[1:]))
        offset = int(token.start_pos or 0)
        function = self._types.get(function, function)
        if function not in FUNCTIONS and function not in DTYPES:
            known = [*FUNCTIONS, *DTYPES, *self._types]
            raise ExpressionError(
                "H021", f"no function is called {function!r}", offset, found=function[:60],
                allowed=", ".join(known),
                repair=_INSTEAD.get(function) or suggestion(function, known),
            )  # fmt: skip
        arity = FUNCTIONS.get(function, 1)
        if len(arguments) != arity:
            raise ExpressionError(
                "H022", f"{function} takes {arity} argument{'s' if arity > 1 else ''}", offset,
                found=f"{len(arguments)} argument{'s' if len(arguments) > 1 else ''}",
                allowed=str(arity),
            )  # fmt: skip
        if function in DTYPES:
            return Cast(function, arguments[0])
        return Call(function, arguments)

    def assign(self, parts: list[Expr | Token]) -> Assign:
        target, op, value = cast("tuple[Access | Token, Token, Expr]", tuple(parts))
        if isinstance(target, Token):  # a tensor without dimensions
            target = Access(str(target), ())
        return Assign(target, cast("UpdateOp", str(op)), value)


@lru_cache(maxsize=16)
def _parser(types: NamedTypes) -> Lark:
    return Lark(
        _GRAMMAR, parser="lalr", lexer="basic", start=["expression", "assign"],
        transformer=_Builder(types),
    )  # fmt: skip
