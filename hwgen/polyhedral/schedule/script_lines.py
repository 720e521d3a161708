"""Lines of a script that is already written: where its edits stand, and how to change them."""

from __future__ import annotations

import ast
from collections.abc import Mapping

Argument = tuple[int, str]
"""An argument of a primitive: its position and its name."""


def with_lines(script: str, lines: Mapping[int, str]) -> str:
    """The script with the statements that begin in some lines written otherwise."""
    text = script.splitlines()
    for statement in reversed(ast.parse(script).body):
        if statement.lineno in lines:
            text[statement.lineno - 1 : statement.end_lineno] = [lines[statement.lineno]]
    return "".join(f"{line}\n" for line in text)


def behind_line(script: str, number: int, line: str) -> str:
    """The script with one line more, behind the statement that begins in one."""
    text = script.splitlines()
    text.insert(_statement(script, number).end_lineno or number, line)
    return "".join(f"{x}\n" for x in text)


def _statement(script: str, number: int) -> ast.stmt:
    return next(x for x in ast.parse(script).body if x.lineno == number)


def edited(script: str, number: int, values: Mapping[Argument, int]) -> str:
    """The statement that begins in a line, with other values of some arguments of the primitive
    that it calls, by position and name."""
    results = ""
    match call := _statement(script, number):
        case ast.Expr(value=ast.Call() as made):
            pass
        case ast.Assign(targets=[ast.Tuple() as several], value=ast.Call() as made):
            # Python 3.10 writes parentheses that later ones leave out.
            results = f"{ast.unparse(several).removeprefix('(').removesuffix(')')} = "
        case ast.Assign(targets=[target], value=ast.Call() as made):
            results = f"{ast.unparse(target)} = "
        case _:
            raise AssertionError(ast.unparse(call))
    before = 0
    match made.func:
        case ast.Attribute(value=ast.Subscript(), attr="double_buffer"):
            before = 1  # The stage stands before the word.
        case _:
            pass
    for (place, name), value in values.items():
        position = place - before
        given = [k for k in made.keywords if k.arg == name]
        if given:
            given[0].value = ast.Constant(value)
        elif position < len(made.args):
            made.args[position] = ast.Constant(value)
        else:
            made.args.append(ast.Constant(value))
    return results + ast.unparse(made)
