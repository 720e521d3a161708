"""Arguments of scheduling primitives: read by what a method's signature declares, the same way in
calls from Python and in scripts."""

from __future__ import annotations

import inspect
import reprlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import wraps
from operator import index
from types import NoneType, UnionType
from typing import Any, Concatenate, ParamSpec, Protocol, SupportsIndex, TypeVar, cast, get_args

import numpy as np

from hwgen.errors import HwgenError
from hwgen.polyhedral.schedule.script import WORDS, Argument, Edit
from hwgen.polyhedral.tree.edit import refuse
from hwgen.polyhedral.tree.terms import not_quasi_affine
from hwgen.spec.expression import Expr
from hwgen.spec.grammar import ExpressionError, parse_expression
from hwgen.spec.workload_resolve import fold

P = ParamSpec("P")
R = TypeVar("R")


class Handle(str):
    """The name of a loop or tensor, and the edit that made it: once that is undone, the name may
    come to mean another loop."""

    __slots__ = ("edit", "number", "schedule")
    edit: Edit
    number: int
    """Which of the schedule's edits it was."""
    schedule: object

    def __reduce__(self) -> tuple[type[str], tuple[str]]:
        return str, (str(self),)


class Edited(Protocol):
    """What primitives edit."""

    def name(self, text: str) -> str:
        """A name as it was given, plain. Raises HwgenError where it is of an undone edit."""
        ...

    def last_edit(self) -> tuple[int, Edit]:
        """The edit made last, and its number."""
        ...

    def recalling(self, arguments: Sequence[Argument]) -> AbstractContextManager[None]:
        """A block in which arguments may name loops of one iteration that stages lost."""
        ...


S = TypeVar("S", bound=Edited)


def primitive(method: Callable[Concatenate[S, P], R]) -> Callable[Concatenate[S, P], R]:
    """A method whose arguments are read by its annotations, and whose results are handles.

    Integers may be of any integer type, not truth values; texts may be handles; lists may be
    tuples.

    Raises:
        HwgenError: H418 other arguments than the signature declares.
    """
    assert method.__name__ in WORDS, "a word is declared in script.py"
    signature = inspect.signature(method, eval_str=True)

    @wraps(method)
    def checked(self: S, *arguments: P.args, **keywords: P.kwargs) -> R:
        try:
            bound = signature.bind(self, *arguments, **keywords)
        except TypeError as error:
            raise _wrong(method, str(error)) from error
        for name, given in list(bound.arguments.items())[1:]:
            parameter = signature.parameters[name]
            several = parameter.kind is inspect.Parameter.VAR_POSITIONAL
            values: list[Argument] = []
            for value in given if several else (given,):
                try:
                    values.append(_read(value, parameter.annotation, self))
                except TypeError as error:
                    found = f"{name} is {_shown(value)}"
                    raise _wrong(method, found) from error
            bound.arguments[name] = tuple(values) if several else values[0]
        with self.recalling(bound.args[1:]):
            result = method(*bound.args, **bound.kwargs)
        return cast("R", _handles(result, self))

    return checked


def call(
    method: Callable[..., object], arguments: Sequence[Argument], keywords: Mapping[str, Argument]
) -> object:
    """What a method gives.

    Raises:
        HwgenError: H418 other arguments than its signature declares; what it raises itself.
    """
    try:
        inspect.signature(method).bind(*arguments, **keywords)
    except TypeError as error:
        raise _wrong(method, str(error)) from error
    return method(*arguments, **keywords)


def _wrong(method: Callable[..., object], found: str) -> HwgenError:
    name, signature = method.__name__, inspect.signature(method, eval_str=True)
    parameters = [p for p in signature.parameters.values() if p.name != "self"]
    shown = str(signature.replace(parameters=parameters)).replace("collections.abc.", "")
    return HwgenError(
        "H418",
        f"{name} is called wrongly",
        found=found,
        allowed=f"{name}{shown}",
        repair=f"its arguments are {', '.join(p.name for p in parameters) or 'none'}",
    )


def _read(value: object, wanted: Any, schedule: Edited) -> Argument:
    """The plain form of an argument.

    Raises:
        TypeError: its annotation does not allow it.
    """
    options = get_args(wanted) if isinstance(wanted, UnionType) else (wanted,)
    match value:
        case None if NoneType in options:
            return None
        case bool() if bool in options:
            return value
        case None | bool() | np.bool_():
            pass  # A truth value is no number here.
        case str() if str in options:
            return schedule.name(value)
        case list() | tuple() if Sequence[int | None] in options:
            numbers = cast("Sequence[object]", value)
            return tuple(_read(part, int | None, schedule) for part in numbers)
        case list() | tuple() if Sequence[int] in options:
            return tuple(_read(part, int, schedule) for part in cast("Sequence[object]", value))
        case list() | tuple() if Sequence[str] in options:
            return tuple(_read(part, str, schedule) for part in cast("Sequence[object]", value))
        case SupportsIndex() if int in options:
            return index(value)
        case _:
            pass
    raise TypeError


def _shown(value: object) -> str:
    """An argument in an error: no longer than a line, whatever it is."""
    kind = type(value).__name__
    if isinstance(value, list | tuple):
        parts = list(cast("Sequence[object]", value))
        if all(map(_plain, parts)):
            return reprlib.repr(parts)
        return f"a {kind} of {', '.join(dict.fromkeys(type(p).__name__ for p in parts))}"
    return reprlib.repr(value) if _plain(value) else f"of type {kind}"


def _plain(value: object) -> bool:
    return value is None or isinstance(value, str | int | float | list | tuple)


def _handles(result: object, schedule: Edited) -> object:
    match result:
        case Handle():
            return result
        case str():
            handle = Handle(result)
            handle.number, handle.edit = schedule.last_edit()
            handle.schedule = schedule
            return handle
        case tuple():
            return tuple(_handles(r, schedule) for r in cast("tuple[object, ...]", result))
        case _:
            return result


def check_affine(expr: Expr, condition: bool = False) -> None:
    """Raises:
    HwgenError: H413 with the part that isl could not reason about.
    """
    part = not_quasi_affine(expr, condition)
    if part:
        raise refuse(
            f"{expr} is not {'a condition on' if condition else 'an expression of'} indices",
            part,
            "sums, products with a number, // and % by a positive number"
            + (", compared and joined by and, or, not" if condition else ""),
            '"i == 0"' if condition else '"[i, j] -> [j // 16, i, j % 16]"',
        )


def parsed(text: str) -> Expr:
    """An expression as statements have it: arithmetic between numbers is done, in no type.

    Raises:
        HwgenError: H02x, without a place: that is the script's line, where there is one.
    """
    try:
        return fold(parse_expression(text))
    except ExpressionError as error:
        known = error.diagnostic
        raise HwgenError(
            known.code,
            known.message,
            field=text if len(text) <= 80 else f"{text[:77]}...",
            found=known.found,
            allowed=known.allowed,
            repair=known.repair,
        ) from error


def parse_layout(text: str) -> tuple[tuple[str, ...], tuple[Expr, ...]]:
    left, arrow, right = text.partition("->")
    left, right = left.strip(), right.strip()
    bracketed = all(t.startswith("[") and t.endswith("]") for t in (left, right))
    if not arrow or not bracketed:
        raise refuse(
            "this is not a layout",
            repr(text),
            "[names] -> [expressions]",
            '"[i, j] -> [j // 16, i, j % 16]"',
        )
    variables = tuple(v.strip() for v in left[1:-1].split(","))
    return variables, tuple(parsed(p.strip()) for p in right[1:-1].split(","))
