"""Check that a spec's C templates are harmless and name only what exists.

The check walks the parsed template with the *shape* of its variables and never renders it. What a
template may contain is a short list from which no text can grow without bound: no calls, no
concatenation, arithmetic on numbers only, three nested loops at most.
A name that only some intrinsics have may be used as `name | default(...)`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache

from jinja2 import StrictUndefined, TemplateSyntaxError, nodes
from jinja2.sandbox import ImmutableSandboxedEnvironment

from hwgen.spec.suggest import suggestion

MAX_DEPTH = 40
MAX_LOOPS = 3
TESTS = ("defined", "undefined", "even", "odd")


@dataclass(frozen=True, slots=True)
class Fields:
    """A value with named fields. `partly`: names that only some of what it stands for have, each
    with what to say about that and a repair."""

    of: Mapping[str, Shape]
    partly: Mapping[str, tuple[str, str]] = field(default_factory=dict[str, tuple[str, str]])


@dataclass(frozen=True, slots=True)
class Items:
    """A list whose items have one shape; `count` of them, where that is known."""

    of: Shape
    count: int | None = None


@dataclass(frozen=True, slots=True)
class Text:
    """C text, which is pasted in whole."""


@dataclass(frozen=True, slots=True)
class Number:
    """A number, which arithmetic may use."""


@dataclass(frozen=True, slots=True)
class Literal:
    """A number whose text is a C literal: it compares as a number, and arithmetic would lose the
    text."""


Shape = Fields | Items | Text | Number | Literal
TEXT, NUMBER, LITERAL = Text(), Number(), Literal()

_NUMBERS = (Number, Literal)
_PLAIN = (Text, Number, Literal)
_LISTS = (Items,)
_WORDS = {Text: "text", Number: "a number", Literal: "a number", Items: "a list", Fields: "fields"}
"""How errors call a value."""

FILTERS: Mapping[str, tuple[type[Shape], ...]] = {
    "abs": _NUMBERS,
    **dict.fromkeys(("d", "default"), (*_PLAIN, Items, Fields)),
    "first": _LISTS,
    "int": _NUMBERS,
    "last": _LISTS,
    "length": _LISTS,
    **dict.fromkeys(("lower", "trim", "upper"), _PLAIN),
}
"""The values that each filter takes."""

_LOOP = Fields(
    {
        **dict.fromkeys(("index", "index0", "revindex", "revindex0", "length"), NUMBER),
        **dict.fromkeys(("first", "last"), TEXT),
    }
)
_ARITHMETIC = (nodes.Add, nodes.Sub, nodes.Mul, nodes.FloorDiv, nodes.Mod, nodes.Neg)


class TemplateError(Exception):
    """A template that cannot be used; `line` counts from 1 within its text."""

    def __init__(
        self,
        code: str,
        message: str,
        line: int,
        *,
        found: str = "",
        allowed: str = "",
        repair: str = "",
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.line = line
        self.found = found
        self.allowed = allowed
        self.repair = repair


@cache
def _environment() -> ImmutableSandboxedEnvironment:
    return ImmutableSandboxedEnvironment(undefined=StrictUndefined, autoescape=False)


@cache
def _parse(text: str) -> nodes.Template:
    try:
        return _environment().parse(text)
    except TemplateSyntaxError as problem:
        message = f"template syntax: {problem.message or 'bad syntax'}"
        raise TemplateError("H124", message, problem.lineno, repair=_closed(text)) from problem
    except (ValueError, OverflowError) as problem:  # a number of thousands of digits
        raise TemplateError("H124", "template syntax: a number too large", 1) from problem


def _closed(text: str) -> str:
    """A name in braces that are not closed, written whole."""
    for found in re.finditer(r"\{\{\s*([\w.]+)\s*", text):
        rest = text[found.end() :]
        if not rest.startswith("}}") and rest[:1] not in "|+-*/%([~<>=!,":
            return f"write {{{{ {found[1]} }}}}, with two braces on both sides"
    return ""


def check_template(text: str, variables: Mapping[str, Shape]) -> None:
    """Check a template against the variables that it will be rendered with.

    Raises:
        TemplateError: H124 bad syntax, or a construct that specs may not use; H125 an unknown
            variable, field, filter or test.
    """
    try:
        _Checker().block(_parse(text).body, dict(variables))
    except RecursionError as problem:
        raise TemplateError("H124", "the template is nested too deeply", 1) from problem


Scope = Mapping[str, Shape | None]
"""Shapes by name; None where the shape is not known."""


@dataclass(slots=True)
class _Checker:
    guarded: int = field(default=0)
    depth: int = field(default=0)
    loops: int = field(default=0)

    def block(self, body: list[nodes.Node], scope: dict[str, Shape | None]) -> None:
        """Statements in order; `set` adds to the scope."""
        for node in body:
            match node:
                case nodes.Output():
                    for part in node.nodes:
                        self._taken(part, scope, _PLAIN, "C text")
                case nodes.For() if not node.recursive:
                    self._for(node, scope)
                case nodes.If():
                    self.shape(node.test, scope)
                    self.block(node.body, dict(scope))
                    for branch in node.elif_:
                        self.shape(branch.test, scope)
                        self.block(branch.body, dict(scope))
                    self.block(node.else_, dict(scope))
                case nodes.Assign():
                    self._bind(node.target, self.shape(node.node, scope), scope)
                case _:
                    raise self._forbidden(node, "for, if, set")

    def _for(self, node: nodes.For, scope: Scope) -> None:
        items = self._taken(node.iter, scope, _LISTS, "`for`")
        assert isinstance(items, Items)
        self.loops += 1
        if self.loops > MAX_LOOPS:
            raise TemplateError(
                "H124", "too many loops inside each other", node.lineno,
                found=str(self.loops), allowed=str(MAX_LOOPS),
            )  # fmt: skip
        inner = {**scope, "loop": _LOOP}
        self._bind(node.target, items.of, inner)
        if node.test is not None:
            self.shape(node.test, inner)
        self.block(node.body, inner)
        self.loops -= 1
        self.block(node.else_, dict(scope))

    def _bind(
        self, target: nodes.Node, value: Shape | None, scope: dict[str, Shape | None]
    ) -> None:
        if not isinstance(target, nodes.Name):
            raise self._forbidden(target, "one name")
        scope[target.name] = value

    def shape(self, node: nodes.Node, scope: Scope) -> Shape | None:
        """The shape of an expression, None where it is not known."""
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise TemplateError("H124", "the template is nested too deeply", node.lineno)
        result = self._shape(node, scope)
        self.depth -= 1
        return result

    def _shape(self, node: nodes.Node, scope: Scope) -> Shape | None:
        match node:
            case nodes.TemplateData():
                return TEXT
            case nodes.Const():
                number = NUMBER if isinstance(node.value, int) else LITERAL
                return number if isinstance(node.value, int | float) else TEXT
            case nodes.Name():
                return self._known(node, node.name, scope, "variable")
            case nodes.Getattr():
                return self._field(node, node.attr, self.shape(node.node, scope))
            case nodes.Getitem():
                return self._item(node, scope)
            case nodes.Filter():
                return self._filter(node, scope)
            case nodes.Test():
                return self._test(node, scope)
            case nodes.Compare():
                return self._compare(node, scope)
            case nodes.CondExpr():
                self.shape(node.test, scope)
                return self._either([node.expr1, *([node.expr2] if node.expr2 else [])], scope)
            case nodes.And() | nodes.Or():
                return self._either([node.left, node.right], scope)
            case nodes.Not():
                self.shape(node.node, scope)
                return TEXT
            case _ if isinstance(node, _ARITHMETIC):
                return self._arithmetic(node, scope)
            case _:
                raise self._forbidden(node, "names, fields, filters, tests, arithmetic")

    def _taken(
        self, node: nodes.Node, scope: Scope, taken: Sequence[type[Shape]], user: str
    ) -> Shape:
        """The shape of a value, which its user can take.

        Raises:
            TemplateError: H124 it cannot, or what it is depends on the call.
        """
        value = self.shape(node, scope)
        if value is None or not isinstance(value, (*taken,)):
            raise TemplateError(
                "H124", f"{user} in a template cannot take this value", node.lineno,
                found=_WORDS[type(value)] if value else "a value whose kind is not known",
                allowed=" or ".join(dict.fromkeys(_WORDS[kind] for kind in taken)),
            )  # fmt: skip
        return value

    def _either(self, parts: Sequence[nodes.Node], scope: Scope) -> Shape | None:
        """The shape of a value that is one of several."""
        return _common([self.shape(part, scope) for part in parts])

    def _item(self, node: nodes.Getitem, scope: Scope) -> Shape | None:
        constant = node.arg.value if isinstance(node.arg, nodes.Const) else None
        if isinstance(constant, str):
            return self._field(node, constant, self.shape(node.node, scope))
        base = self._taken(node.node, scope, _LISTS, "`[...]`")
        self._taken(node.arg, scope, (Number,), "`[...]`")
        if isinstance(node.arg, nodes.Neg) and isinstance(node.arg.node, nodes.Const):
            constant = -node.arg.node.value
        return self._at(node.node, base, constant if isinstance(constant, int) else None)

    def _at(self, node: nodes.Node, base: Shape, at: int | None) -> Shape:
        """The shape of a list's item, the number of which may not be known."""
        assert isinstance(base, Items)
        count = base.count
        if count is not None and at is not None and not -count <= at < count:
            name = node.name if isinstance(node, nodes.Name) else "the list"
            raise TemplateError(
                "H125", f"{name} has no item {at}", node.lineno, found=f"{name}[{at}]",
                allowed=f"0..{count - 1}" if count else "nothing: it is empty",
            )  # fmt: skip
        return base.of

    def _test(self, node: nodes.Test, scope: Scope) -> Shape:
        if node.name not in TESTS:
            raise self._unknown(node, node.name, list(TESTS), "test")
        if node.name in ("even", "odd"):
            self._taken(node.node, scope, (Number,), f"`{node.name}`")
        else:
            self._guarded(node.node, scope)
        if node.args or node.kwargs or node.dyn_args or node.dyn_kwargs:
            raise self._forbidden(node, f"`{node.name}` without arguments")
        return TEXT

    def _compare(self, node: nodes.Compare, scope: Scope) -> Shape:
        """`a < b`, or a chain of such."""
        left: nodes.Node = node.expr
        for operand in node.ops:
            right = operand.expr
            if operand.op in ("in", "notin"):
                within = self._taken(right, scope, (Items, Text), "`in`")
                kinds = (Text,) if isinstance(within, Text) else (*_PLAIN, Items, Fields)
                self._taken(left, scope, kinds, "`in`")
            elif operand.op in ("eq", "ne"):
                self.shape(left, scope)
                self.shape(right, scope)
            else:
                self._taken(left, scope, _NUMBERS, "a comparison by size")
                self._taken(right, scope, _NUMBERS, "a comparison by size")
            left = right
        return TEXT

    def _guarded(self, node: nodes.Node, scope: Scope) -> Shape | None:
        """The shape of what may be missing; None where it is."""
        self.guarded += 1
        value = self.shape(node, scope)
        self.guarded -= 1
        return value

    def _arithmetic(self, node: nodes.Node, scope: Scope) -> Shape:
        for child in node.iter_child_nodes():
            if not isinstance(self.shape(child, scope), Number):
                raise TemplateError(
                    "H124", "arithmetic in a template is for numbers only", node.lineno,
                    found=type(node).__name__.lower(),
                    allowed="parameters, identifiers and values that are integers",
                    repair="write the arithmetic in C, outside the braces",
                )  # fmt: skip
        return NUMBER

    def _filter(self, node: nodes.Filter, scope: Scope) -> Shape | None:
        name = node.name
        if name not in FILTERS:
            raise self._unknown(node, name, [*FILTERS], "filter")
        defaults = name in ("d", "default")
        given = len(node.args) + len(node.kwargs)
        named = node.kwargs or node.dyn_args or node.dyn_kwargs
        if named or given > defaults or node.node is None:
            raise TemplateError(
                "H124", f"filter {name!r} does not take these arguments", node.lineno,
                found=f"{given} argument{'s' if given != 1 else ''}",
                allowed="one, without a name" if defaults else "none",
            )  # fmt: skip
        if defaults:
            value = self._guarded(node.node, scope)
            return _common([x for x in (value, *(self.shape(a, scope) for a in node.args)) if x])
        value = self._taken(node.node, scope, FILTERS[name], f"filter {name!r}")
        if name in ("first", "last"):
            return self._at(node.node, value, 0 if name == "first" else -1)
        return TEXT if name in ("lower", "trim", "upper") else NUMBER

    def _field(self, node: nodes.Node, name: str, base: Shape | None) -> Shape | None:
        match base:
            case Fields(of, partly):
                if name in partly and name not in of and not self.guarded:
                    found, repair = partly[name]
                    raise TemplateError(
                        "H125", f"the template names a field that not all have: {name!r}",
                        node.lineno, found=found, allowed=", ".join(of), repair=repair,
                    )  # fmt: skip
                return self._known(node, name, of, "field")
            case None if self.guarded:
                return None
            case _:
                raise self._unknown(node, name, [], "field")

    def _known(self, node: nodes.Node, name: str, known: Scope, what: str) -> Shape | None:
        if name in known:
            return known[name]
        if self.guarded:
            return None
        raise self._unknown(node, name, list(known), what)

    def _unknown(self, node: nodes.Node, name: str, known: list[str], what: str) -> TemplateError:
        return TemplateError(
            "H125", f"the template names a {what} that does not exist: {name!r}", node.lineno,
            found=name, allowed=", ".join(known) or "nothing: a plain value",
            repair=suggestion(name, known),
        )  # fmt: skip

    def _forbidden(self, node: nodes.Node, allowed: str) -> TemplateError:
        return TemplateError(
            "H124", "a construct that templates of a spec may not use", node.lineno,
            found=type(node).__name__.lower(), allowed=allowed,
        )  # fmt: skip


def _common(shapes: Sequence[Shape | None]) -> Shape | None:
    """The shape that a value has which is one of several; None where it is not known."""
    first, *others = shapes or (TEXT,)
    if all(other == first for other in others):
        return first
    return TEXT if all(isinstance(shape, _PLAIN) for shape in shapes) else None
