"""Schedule scripts: a list of edits as Python text, written and read without executing it.

A script is lines `names = s.word(arguments)` or `names = s["stage"].word(arguments)`; arguments are
strings, numbers, lists of such, the names that earlier lines gave, and stages. Nothing else is
understood, and nothing is executed.
"""

from __future__ import annotations

import ast
import keyword
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
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
    "planes", "weigh", "bind_expr", "rewrite_expr", "distribute",
    "rescale", "decompose_padding",
)  # fmt: skip
"""What edits a schedule, and what `trace` writes."""

SYNONYMS = ("annotate", "get_block", "get_loops", "reverse_compute_at")
"""Other schedulers' words: they become primitives, or name what there is."""

WORDS = (*PRIMITIVES, *SYNONYMS)
"""What scripts and `Schedule` know, each a method of that."""

MAX_SHOWN = 80
"""Characters of a script that an error shows."""

Argument = str | int | float | bool | None | tuple["Argument", ...]


@dataclass(frozen=True, slots=True)
class Edit:
    """One call of a primitive and the names of what it returned; `line`: of the script that it is
    of, 0 where it is of none."""

    primitive: str
    arguments: tuple[Argument, ...]
    keywords: tuple[tuple[str, Argument], ...]
    results: tuple[str, ...]
    line: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Line:
    """One call of a script: `stage`: of `s["stage"]`, else ""."""

    number: int
    word: str
    arguments: tuple[Argument, ...] = ()
    keywords: Mapping[str, Argument] = field(default_factory=dict[str, Argument])
    stage: str = ""


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


Call = Callable[[Line], tuple[str, ...]]
"""Does what a line says and gives the names of what that returned."""


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
        case ast.Expr(value=ast.Call() as value):
            targets: list[ast.expr] = []
        case ast.Assign([ast.Tuple(elts=targets)], ast.Call() | ast.Attribute() as value):
            pass
        case ast.Assign([ast.Name() as target], ast.Call() | ast.Attribute() as value):
            targets = [target]
        case _:
            raise source.bad(line, "calls of primitives on s", _instead_of(line))
    given = _line(line.lineno, value, source, names)
    try:
        results = call(given)
    except HwgenError as error:
        raise error.at(Location(source.file, line.lineno, 1)) from error
    _bind(targets, results, source, line, names)


def _line(number: int, value: ast.expr, source: _Source, names: Mapping[str, Argument]) -> Line:
    called = value.func if isinstance(value, ast.Call) else value
    match called:
        case ast.Attribute(value=ast.Name(id="s"), attr=word) if called is not value:
            stage = ""
        case ast.Attribute(value=ast.Subscript() as of, attr=word):
            stage = _stage(of, source, names)
        case ast.Attribute(value=ast.Name(), attr=word) if word in WORDS:
            raise source.bad(called, "s.PRIMITIVE(...)", f"write s.{word}: a script's "
                             "schedule is called s")  # fmt: skip
        case _:
            raise source.bad(called, "s.PRIMITIVE(...)")
    if not isinstance(value, ast.Call):
        return Line(number, word, stage=stage)
    keywords: dict[str, Argument] = {}
    for given in value.keywords:
        name = given.arg or "**"
        if name in keywords:
            found = f"{name} twice"
            raise _bad(source.file, given.lineno, found, "each argument once")
        keywords[name] = _argument(given.value, source, names)
    arguments = tuple(_argument(a, source, names) for a in value.args)
    return Line(number, word, arguments, keywords, stage)


def _stage(node: ast.Subscript, source: _Source, names: Mapping[str, Argument]) -> str:
    """The stage of `s["stage"]`."""
    match node:
        case ast.Subscript(value=ast.Name(id="s"), slice=inside):
            named = _argument(inside, source, names)
            if isinstance(named, str):
                return named
        case _:
            pass
    raise source.bad(node, 's["STAGE"]')


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
        case ast.Subscript(value=ast.Name(id="s")):
            return _stage(node, source, names)
        case ast.Subscript(value=ast.Name(id=name), slice=place) if name in names:
            several, number = names[name], _argument(place, source, names)
            match several, number:
                case tuple(), int() if -len(several) <= number < len(several):
                    return several[number]
                case _:
                    pass
            raise source.bad(node, "one of several names: a number counted from 0")
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
