"""Schedule scripts: a list of edits as Python text, written and read without executing it.

A script is lines `names = s.primitive(arguments)`; arguments are strings, numbers, lists of such,
and the names that earlier lines gave. Nothing else is understood, and nothing is executed.
"""

from __future__ import annotations

import ast
import keyword
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from hwgen.errors import HwgenError, Location
from hwgen.spec.regular_file import read_regular
from hwgen.spec.source import MAX_BYTES

PRIMITIVES = (
    "cache_read", "cache_write", "set_scope", "storage_align", "compute_at", "compute_inline",
    "compute_root", "fuse", "split", "reorder", "tile", "unroll", "vectorize", "bind", "parallel",
    "pragma", "prefetch", "tensorize", "rfactor", "set_store_predicate", "create_group",
    "double_buffer", "transform_layout", "set_bank", "pad", "decompose_reduction", "set_address",
    "shift", "sink", "alias", "retain", "start_from", "merge", "interleave", "reindex_cache_read",
    "planes", "weigh", "rescale", "decompose_padding",
)  # fmt: skip
"""What a script may call."""

MAX_SHOWN = 80
"""Characters of a script that an error shows."""

Argument = str | int | float | bool | None | tuple["Argument", ...]


@dataclass(frozen=True, slots=True)
class Edit:
    """One call of a primitive and the names of what it returned."""

    primitive: str
    arguments: tuple[Argument, ...]
    keywords: tuple[tuple[str, Argument], ...]
    results: tuple[str, ...]


def write(edits: Sequence[Edit]) -> str:
    """The edits as a script."""
    known: dict[str, str] = {}
    lines: list[str] = []
    for edit in edits:
        arguments = [_text(a, known) for a in edit.arguments]
        arguments += [f"{n}={_text(a, known)}" for n, a in edit.keywords]
        line = f"s.{edit.primitive}({', '.join(arguments)})"
        if edit.results:
            names = [_identifier(r) for r in edit.results]
            line = f"{', '.join(names)} = {line}"
            known |= dict(zip(edit.results, names, strict=True))
        lines.append(line)
    return "".join(f"{line}\n" for line in lines)


def _identifier(name: str) -> str:
    safe = name if name.isidentifier() else "".join(c if c.isalnum() else "_" for c in name)
    return f"{safe}_" if keyword.iskeyword(safe) or safe == "s" else safe


def _text(argument: Argument, known: Mapping[str, str]) -> str:
    match argument:
        case str() if argument in known:
            return known[argument]
        case tuple():
            return f"[{', '.join(_text(a, known) for a in argument)}]"
        case _:
            return repr(argument)


Call = Callable[[str, list[Argument], dict[str, Argument]], tuple[str, ...]]
"""Applies a primitive and gives the names of what it returned."""


def read(text: str, file: str, call: Call) -> None:
    """Run a script's lines through `call`, in order.

    Raises:
        HwgenError: H418 where a line is not such a call; what a primitive raises, with its line.
    """
    try:
        module = ast.parse(text, filename=file)
    except SyntaxError as error:
        raise _bad(file, error.lineno or 1, error.msg, "Python text") from error
    except (RecursionError, MemoryError, ValueError) as error:
        raise _bad(file, 1, "text too deeply nested", "Python text") from error
    names: dict[str, Argument] = {}
    for line in module.body:
        _statement(line, _Source(text, file), names, call)


def read_file(path: Path) -> str:
    """A script's text.

    Raises:
        HwgenError: H001, H013, H418 where it cannot be read.
    """
    try:
        return read_regular(path, MAX_BYTES).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise HwgenError(
            "H418",
            "this is not a schedule script",
            location=Location(str(path)),
            found="bytes that are not UTF-8",
            allowed="text",
        ) from error


def line_of(text: str, number: int) -> int:
    """The line of an edit, counted from 0, of a script that `read` accepts; 0 past its end."""
    calls = (x for x in ast.parse(text).body if not _is_docstring(x))
    return next((x.lineno for n, x in enumerate(calls) if n == number), 0)


def _is_docstring(line: ast.stmt) -> bool:
    return isinstance(line, ast.Expr) and isinstance(line.value, ast.Constant)


@dataclass(frozen=True, slots=True)
class _Source:
    """A script and its file."""

    text: str
    file: str

    def bad(self, node: ast.stmt | ast.expr, allowed: str, repair: str = "") -> HwgenError:
        """The error of a part of the script; `ast.unparse` would recurse as deep as it is."""
        found = ast.get_source_segment(self.text, node) or ""
        if len(found) > MAX_SHOWN:
            found = f"{found[: MAX_SHOWN - 3]}..."
        return _bad(self.file, node.lineno, found, allowed, repair)


def _bad(file: str, line: int, found: str, allowed: str, repair: str = "") -> HwgenError:
    return HwgenError(
        "H418",
        "this is not a schedule script",
        location=Location(file, line, 1),
        found=found,
        allowed=allowed,
        repair=repair or 'write lines like: outer, inner = s.split("k", factor=32)',
    )


def _statement(line: ast.stmt, source: _Source, names: dict[str, Argument], call: Call) -> None:
    match line:
        case ast.Expr(value=ast.Constant(value=str())):
            return  # a docstring
        case ast.Expr(value=ast.Call() as called):
            targets: list[ast.expr] = []
        case ast.Assign(targets=[ast.Tuple(elts=targets)], value=ast.Call() as called):
            pass
        case ast.Assign(targets=[ast.Name() as target], value=ast.Call() as called):
            targets = [target]
        case _:
            raise source.bad(line, "calls of primitives on s", _instead_of(line))
    match called.func:
        case ast.Attribute(value=ast.Name(id="s"), attr=primitive):
            pass
        case ast.Attribute(value=ast.Name(), attr=primitive) if primitive in PRIMITIVES:
            raise source.bad(called.func, "s.PRIMITIVE(...)", f"write s.{primitive}: a script's "
                             "schedule is called s")  # fmt: skip
        case _:
            raise source.bad(called.func, "s.PRIMITIVE(...)")
    arguments = [_argument(a, source, names) for a in called.args]
    keywords: dict[str, Argument] = {}
    for given in called.keywords:
        name = given.arg or "**"
        if name in keywords:
            found = f"{name} twice"
            raise _bad(source.file, given.lineno, found, "each argument once")
        keywords[name] = _argument(given.value, source, names)
    try:
        results = call(primitive, arguments, keywords)
    except HwgenError as error:
        raise error.at(Location(source.file, line.lineno, 1)) from error
    _bind(targets, results, source, line, names)


def _instead_of(line: ast.stmt) -> str:
    """What to write for a line of Python that is no edit."""
    match line:
        case ast.Import() | ast.ImportFrom():
            return "leave the line out: a script needs no import, and s is there"
        case ast.For() | ast.While() | ast.If() | ast.FunctionDef():
            return "write each call on a line of its own: a script is read, not run"
        case _:
            return ""


def _bind(
    targets: list[ast.expr],
    results: tuple[str, ...],
    source: _Source,
    line: ast.stmt,
    names: dict[str, Argument],
) -> None:
    if not targets:
        return
    if len(targets) == 1 and len(results) > 1 and isinstance(targets[0], ast.Name):
        names[targets[0].id] = results
        return
    if len(targets) != len(results):
        found = f"{len(targets)} names for {len(results)} results"
        raise _bad(source.file, line.lineno, found, "as many names")
    for target, result in zip(targets, results, strict=True):
        if not isinstance(target, ast.Name):
            raise source.bad(target, "plain names")
        names[target.id] = result


def _argument(node: ast.expr, source: _Source, names: Mapping[str, Argument]) -> Argument:
    match node:
        case ast.Constant(value=str() | int() | float() | bool() | None as value):
            return value
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as value)):
            return -value
        case ast.List(elts=parts) | ast.Tuple(elts=parts):
            return tuple(_argument(p, source, names) for p in parts)
        case ast.Name(id=name) if name in names:
            return names[name]
        case ast.Name(id=name):
            raise source.bad(
                node, "strings, numbers, lists, names given above",
                f"write '{name}' in quotes for a loop or tensor of the workload; what a line makes "
                f"is named before it, as {name}, ... = s.split(...)",
            )  # fmt: skip
        case ast.BinOp():
            raise source.bad(
                node, "strings, numbers, lists, names given above",
                "write the number itself: a script is read, not run",
            )  # fmt: skip
        case _:
            raise source.bad(node, "strings, numbers, lists, names given above")
