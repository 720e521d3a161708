"""C templates: one sandboxed environment, and a check that they name only what exists.

The check walks the parsed template with the *shape* of its variables and never renders it.
A name that only some intrinsics have may be used as `name | default(...)`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, cast

from jinja2 import StrictUndefined, TemplateSyntaxError, nodes
from jinja2.sandbox import ImmutableSandboxedEnvironment

from hwgen.spec.grammar import suggestion


@dataclass(frozen=True, slots=True)
class Fields:
    """A value with named fields."""

    of: Mapping[str, Shape]


@dataclass(frozen=True, slots=True)
class Items:
    """A list whose items have one shape."""

    of: Shape


@dataclass(frozen=True, slots=True)
class Plain:
    """A number or text, without fields."""


Shape = Fields | Items | Plain
PLAIN = Plain()

_LOOP = Fields(
    dict.fromkeys(("index", "index0", "revindex", "revindex0", "first", "last", "length"), PLAIN)
)
_STATEMENTS = (nodes.Output, nodes.For, nodes.If, nodes.Assign, nodes.TemplateData)
_GUARDS = ("default", "d")


@cache
def environment() -> ImmutableSandboxedEnvironment:
    """The environment that checks and renders every template of a spec."""
    return ImmutableSandboxedEnvironment(
        undefined=StrictUndefined, autoescape=False, keep_trailing_newline=False
    )


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
def parse_template(text: str) -> nodes.Template:
    """Parse a template.

    Raises:
        TemplateError: H124 bad syntax, or a construct that specs do not use.
    """
    try:
        tree = environment().parse(text)
    except TemplateSyntaxError as problem:
        raise TemplateError(
            "H124", f"template syntax: {problem.message or 'bad syntax'}", problem.lineno
        ) from problem
    except RecursionError as problem:
        raise TemplateError("H124", "the template is nested too deeply", 1) from problem
    for statement in tree.find_all(nodes.Stmt):
        if not isinstance(statement, _STATEMENTS):
            raise TemplateError(
                "H124", "a statement that templates of a spec may not use", statement.lineno,
                found=type(statement).__name__.lower(), allowed="for, if, set",
            )  # fmt: skip
    return tree


def check_template(text: str, variables: Mapping[str, Shape]) -> None:
    """Check that a template names only what exists.

    Raises:
        TemplateError: H124 as `parse_template`; H125 an unknown variable, field, filter or test.
    """
    tree = parse_template(text)
    _Checker().block(tree.body, dict(variables))


@dataclass(slots=True)
class _Checker:
    guarded: int = field(default=0)

    def block(self, body: list[nodes.Node], scope: dict[str, Shape]) -> None:
        for node in body:
            match node:
                case nodes.Output():
                    for part in node.nodes:
                        self.shape(part, scope)
                case nodes.For():
                    self._for(node, scope)
                case nodes.If():
                    self.shape(node.test, scope)
                    self.block(node.body, dict(scope))
                    for branch in node.elif_:
                        self.shape(branch.test, scope)
                        self.block(branch.body, dict(scope))
                    self.block(node.else_, dict(scope))
                case nodes.Assign():
                    value = self.shape(node.node, scope)
                    self._bind(node.target, value, scope)
                case _:
                    pass

    def _for(self, node: nodes.For, scope: dict[str, Shape]) -> None:
        iterable = self.shape(node.iter, scope)
        inner = {**scope, "loop": _LOOP}
        self._bind(node.target, iterable.of if isinstance(iterable, Items) else None, inner)
        if node.test is not None:
            self.shape(node.test, inner)
        self.block(node.body, inner)
        self.block(node.else_, dict(scope))

    def _bind(self, target: nodes.Node, value: Shape | None, scope: dict[str, Shape]) -> None:
        for name in [target, *target.find_all(nodes.Name)]:
            if isinstance(name, nodes.Name):
                scope[name.name] = value if name is target and value is not None else _ANY

    def shape(self, node: nodes.Node, scope: Mapping[str, Shape]) -> Shape | None:
        """The shape of an expression, None where it is not known; raises for unknown names."""
        match node:
            case nodes.TemplateData() | nodes.Const():
                return PLAIN
            case nodes.Name():
                return self._known(node, node.name, scope, "variable")
            case nodes.Getattr():
                return self._field(node, node.attr, self.shape(node.node, scope))
            case nodes.Getitem():
                base = self.shape(node.node, scope)
                self.shape(node.arg, scope)
                if isinstance(node.arg, nodes.Const) and isinstance(node.arg.value, str):
                    return self._field(node, node.arg.value, base)
                return base.of if isinstance(base, Items) else None
            case nodes.Filter():
                return self._filter(node, scope)
            case nodes.Test():
                if node.name not in environment().tests:
                    raise self._unknown(node, node.name, list(environment().tests), "test")
                guard = node.name in ("defined", "undefined")
                self._children(node, scope, guard)
                return PLAIN
            case _:
                self._children(node, scope, False)
                return None

    def _children(self, node: nodes.Node, scope: Mapping[str, Shape], guard: bool) -> None:
        self.guarded += guard
        for child in node.iter_child_nodes():
            self.shape(child, scope)
        self.guarded -= guard

    def _filter(self, node: nodes.Filter, scope: Mapping[str, Shape]) -> Shape | None:
        if node.name not in environment().filters:
            known = sorted(cast("dict[str, Any]", environment().filters))
            raise self._unknown(node, node.name, known, "filter")
        self._children(node, scope, node.name in _GUARDS)
        return None

    def _field(self, node: nodes.Node, name: str, base: Shape | None) -> Shape | None:
        match base:
            case Fields(of):
                return self._known(node, name, of, "field")
            case Plain() if not self.guarded:
                raise self._unknown(node, name, [], "field")
            case _:
                return None

    def _known(
        self, node: nodes.Node, name: str, known: Mapping[str, Shape], what: str
    ) -> Shape | None:
        if name in known:
            return known[name]
        if self.guarded or name in ("true", "false", "none", "True", "False", "None", "range"):
            return None
        raise self._unknown(node, name, list(known), what)

    def _unknown(self, node: nodes.Node, name: str, known: list[str], what: str) -> TemplateError:
        return TemplateError(
            "H125", f"the template names a {what} that does not exist: {name!r}", node.lineno,
            found=name, allowed=", ".join(known[:30]) + (", ..." if known[30:] else "") or "nothing: a plain value",
            repair=suggestion(name, known),
        )  # fmt: skip


_ANY: Any = None
