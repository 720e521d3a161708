"""Lines of a script that is already written: where its edits stand, and how to change them."""

from __future__ import annotations

import ast
from collections.abc import Mapping

Argument = tuple[int, str]
"""An argument of a primitive: its position and its name."""


def calls(script: str) -> list[ast.stmt]:
    """A script's edits as Python, docstrings left out."""
    return [
        x
        for x in ast.parse(script).body
        if not (isinstance(x, ast.Expr) and isinstance(x.value, ast.Constant))
    ]


def with_lines(script: str, lines: Mapping[int, str]) -> str:
    """The script with some edits, counted from 0, written otherwise."""
    text = script.splitlines()
    for number, call in reversed(list(enumerate(calls(script)))):
        if number in lines:
            text[call.lineno - 1 : call.end_lineno] = [lines[number]]
    return "".join(f"{line}\n" for line in text)


def behind_line(script: str, number: int, line: str) -> str:
    """The script with one edit more, behind one counted from 0."""
    text = script.splitlines()
    last = calls(script)[number]
    text.insert(last.end_lineno or last.lineno, line)
    return "".join(f"{x}\n" for x in text)


def edited(call: ast.stmt, values: Mapping[Argument, int]) -> str:
    """An edit with other values of some arguments, by position and name."""
    results = ""
    match call:
        case ast.Expr(value=ast.Call() as made):
            pass
        case ast.Assign(targets=[ast.Tuple() as several], value=ast.Call() as made):
            # Python 3.10 writes parentheses that later ones leave out.
            results = f"{ast.unparse(several).removeprefix('(').removesuffix(')')} = "
        case ast.Assign(targets=[target], value=ast.Call() as made):
            results = f"{ast.unparse(target)} = "
        case _:
            raise AssertionError(ast.unparse(call))
    for (position, name), value in values.items():
        given = [k for k in made.keywords if k.arg == name]
        if given:
            given[0].value = ast.Constant(value)
        elif position < len(made.args):
            made.args[position] = ast.Constant(value)
        else:
            made.args.append(ast.Constant(value))
    return results + ast.unparse(made)
