"""Reads the kernel function of emitted C as text: its loops, and the macros' addresses in them.

It knows C and nothing of the compiler: a parser of the statements and expressions that kernels are
made of, what kind of expression each address is, and its values over all iterations.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

_TOKEN = re.compile(
    r"\s*(0x[0-9a-fA-F]+(?:ull|u)?|\d+u?|\d*\.\d+f|\w+|\+\+|&&|\|\||[<>=!]=|.)", re.DOTALL
)
_NAMES = {"GARBAGE_ADDR": 0xFFFFFFFF}
_PRECEDENCE = (
    ("||",), ("&&",), ("|",), ("==", "!="), ("<", "<=", ">", ">="), ("+", "-"), ("*", "/", "%"),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Number:
    value: int


@dataclass(frozen=True, slots=True)
class Variable:
    name: str


@dataclass(frozen=True, slots=True)
class Binary:
    operator: str
    left: Expression
    right: Expression


@dataclass(frozen=True, slots=True)
class Helper:
    """A function that the file defines: `floor_mod`, `min` or `max`."""

    name: str
    left: Expression
    right: Expression


@dataclass(frozen=True, slots=True)
class Choice:
    condition: Expression
    yes: Expression
    no: Expression


Expression = Number | Variable | Binary | Helper | Choice


@dataclass(frozen=True, slots=True)
class Macro:
    """One macro in the text; `arguments`: the texts, `number` counts macros in textual order."""

    number: int
    name: str
    arguments: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class For:
    variable: str
    low: Expression
    high: Expression
    body: tuple[Statement, ...]


@dataclass(frozen=True, slots=True)
class Branch:
    condition: Expression
    yes: tuple[Statement, ...]
    no: tuple[Statement, ...]


Statement = Macro | For | Branch


class _Parser:
    def __init__(self, text: str) -> None:
        self.tokens = [t for t in _TOKEN.findall(text) if t.strip()]
        self.at = 0
        self.macros = 0

    def peek(self) -> str:
        return self.tokens[self.at] if self.at < len(self.tokens) else ""

    def take(self, *wanted: str) -> str:
        token = self.peek()
        assert not wanted or token in wanted, f"{token!r} where {wanted} must stand"
        self.at += 1
        return token

    def body(self) -> tuple[Statement, ...]:
        """A statement, or several in braces."""
        if self.peek() != "{":
            return (self.statement(),)
        self.take("{")
        found: list[Statement] = []
        while self.peek() != "}":
            found.append(self.statement())
        self.take("}")
        return tuple(found)

    def statement(self) -> Statement:
        name = self.take()
        self.take("(")
        if name == "for":
            self.take("int")
            variable = self.take()
            self.take("=")
            low = self.expression()
            for token in (";", variable, "<"):
                self.take(token)
            high = self.expression()
            for token in (";", "++", variable, ")"):
                self.take(token)
            return For(variable, low, high, self.body())
        if name == "if":
            condition = self.expression()
            self.take(")")
            yes = self.body()
            if self.peek() != "else":
                return Branch(condition, yes, ())
            self.take("else")
            return Branch(condition, yes, self.body())
        arguments: list[str] = []
        start, depth = self.at, 1
        while depth:
            token = self.take()
            depth += {"(": 1, ")": -1}.get(token, 0)
            if depth == 0 or (depth == 1 and token == ","):
                arguments.append(" ".join(self.tokens[start : self.at - 1]))
                start = self.at
        self.take(";")
        self.macros += 1
        return Macro(self.macros - 1, name, tuple(arguments))

    def expression(self, level: int = 0) -> Expression:
        if level == len(_PRECEDENCE):
            return self.atom()
        left = self.expression(level + 1)
        while self.peek() in _PRECEDENCE[level]:
            operator = self.take()
            left = Binary(operator, left, self.expression(level + 1))
        if level == 0 and self.peek() == "?":
            self.take("?")
            yes = self.expression()
            self.take(":")
            return Choice(left, yes, self.expression())
        return left

    def atom(self) -> Expression:
        token = self.take()
        if token == "(":
            inner = self.expression()
            self.take(")")
            return inner
        if token == "-":
            return Binary("-", Number(0), self.atom())
        if token[0].isdigit():
            return Number(int(token.rstrip("ul"), 0))
        if token in _NAMES:
            return Number(_NAMES[token])
        if self.peek() == "(":
            self.take("(")
            left = self.expression()
            self.take(",")
            right = self.expression()
            self.take(")")
            helper = re.search(r"_(floor_mod|min|max)$", token)
            assert helper, f"{token} in an expression"
            return Helper(helper[1], left, right)
        return Variable(token)


def expression(text: str) -> Expression:
    """A C expression over integers."""
    parser = _Parser(text)
    found = parser.expression()
    assert not parser.peek(), text
    return found


def kernel(text: str) -> tuple[Statement, ...]:
    """The statements of the function that issues a kernel's instructions."""
    without = re.sub(r"/\*.*?\*/|^ *#pragma .*?$", "", text, flags=re.DOTALL | re.MULTILINE)
    found = re.search(r"^static void \w+_run\([^)]*\)\n(\{.*?^\})", without, re.M | re.DOTALL)
    assert found is not None
    return _Parser(found[1]).body()


def is_constant(e: Expression) -> bool:
    match e:
        case Number():
            return True
        case Variable():
            return False
        case Binary(_, left, right) | Helper(_, left, right):
            return is_constant(left) and is_constant(right)
        case Choice():
            return False


def is_address(e: Expression) -> bool:
    """Whether an expression is a sum of constants, of constant multiples of variables, and of
    constant multiples of such sums modulo a constant; with flags set, or no address at all."""
    match e:
        case Number() | Variable():
            return True
        case Binary("+" | "-", left, right):
            return is_address(left) and is_address(right)
        case Binary("*", left, right):
            one = is_constant(left) or is_constant(right)
            return one and is_address(left) and is_address(right)
        case Binary("%", left, right) | Helper("floor_mod", left, right):
            return is_address(left) and is_constant(right)
        case Binary("|", left, right):
            return is_constant(left) and is_address(right)
        case Choice(_, yes, no):
            return is_address(yes) and no == Number(_NAMES["GARBAGE_ADDR"])
        case Binary() | Helper():
            return False


def evaluate(e: Expression, values: Mapping[str, int]) -> int:
    match e:
        case Number(value):
            return value
        case Variable(name):
            return values[name]
        case Helper(name, left, right):
            a, b = evaluate(left, values), evaluate(right, values)
            return {"floor_mod": a % b if b else 0, "min": min(a, b), "max": max(a, b)}[name]
        case Choice(condition, yes, no):
            return evaluate(yes if evaluate(condition, values) else no, values)
        case Binary(operator, left, right):
            a, b = evaluate(left, values), evaluate(right, values)
            return _apply(operator, a, b)


def _apply(operator: str, a: int, b: int) -> int:
    match operator:
        case "+":
            return a + b
        case "-":
            return a - b
        case "*":
            return a * b
        case "/":
            assert a >= 0
            assert b > 0
            return a // b
        case "%":
            # C's remainder has the sign of the left operand; an address must not.
            assert a >= 0
            assert b > 0
            return a % b
        case "|":
            return a | b
        case "&&":
            return int(bool(a) and bool(b))
        case "||":
            return int(bool(a) or bool(b))
        case _:
            compared = {"<": a < b, "<=": a <= b, ">": a > b, ">=": a >= b, "==": a == b}
            return int(a != b if operator == "!=" else compared[operator])


def executed(
    statements: tuple[Statement, ...], values: Mapping[str, int]
) -> Iterator[tuple[Macro, Mapping[str, int]]]:
    """Every macro in the order of execution, with the loops' variables."""
    for statement in statements:
        match statement:
            case Macro():
                yield statement, values
            case For(variable, low, high, body):
                for turn in range(evaluate(low, values), evaluate(high, values)):
                    yield from executed(body, {**values, variable: turn})
            case Branch(condition, yes, no):
                yield from executed(yes if evaluate(condition, values) else no, values)


def macros(statements: tuple[Statement, ...]) -> Iterator[Macro]:
    """Every macro in textual order."""
    for statement in statements:
        match statement:
            case Macro():
                yield statement
            case For():
                yield from macros(statement.body)
            case Branch(_, yes, no):
                yield from macros(yes)
                yield from macros(no)
