"""Sandboxed templates of a spec: undefined names and attributes are errors, nothing can be called
that reaches outside, and no expression can grow without bound."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache, lru_cache

from jinja2 import StrictUndefined, Template, TemplateError
from jinja2.exceptions import SecurityError
from jinja2.runtime import Context
from jinja2.sandbox import SandboxedEnvironment

from hwgen.errors import HwgenError, Location

_LONGEST_TEXT = 1_000_000
_ARGUMENT = re.compile(r"(?<=[(,=\[])(\s*)\x01\(([^\x01\x02]*)\)\x02(?=\s*[,)\];])")


class Fields:
    """Named values as a template sees them: `x.extent`, `src.memory.id`."""

    __slots__ = ("_values",)

    def __init__(self, values: Mapping[str, object]) -> None:
        self._values = dict(values)

    def __getattr__(self, name: str) -> object:
        try:
            return self._values[name]
        except KeyError:
            raise AttributeError(name) from None

    def __getitem__(self, name: str) -> object:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)


class _Environment(SandboxedEnvironment):
    """`*` and `**` cannot build long text or huge numbers."""

    intercepted_binops = frozenset(["*", "**"])

    def call_binop(self, context: Context, operator: str, left: object, right: object) -> object:
        del context
        if operator == "**" or not (isinstance(left, int) and isinstance(right, int)):
            raise SecurityError(f"`{operator}` is for integers only, and `**` is not available")
        return left * right


@cache
def _environment() -> _Environment:
    return _Environment(undefined=StrictUndefined, autoescape=False, keep_trailing_newline=False)


@lru_cache(maxsize=1024)
def _template(text: str) -> Template:
    return _environment().from_string(text)


def argument(text: str) -> str:
    """C text for a template: in parentheses, which `render` drops where it is a whole argument."""
    return text if re.fullmatch(r"[A-Za-z0-9_]+", text) else f"\x01({text})\x02"


def render(text: str, values: Mapping[str, object], location: Location | None, field: str) -> str:
    """The template's text over `values`.

    Raises:
        HwgenError: H601 the template is malformed, names something undefined, or does what the
            sandbox forbids.
    """
    try:
        result = _template(text).render(values)
    except (TemplateError, OverflowError, TypeError, ValueError, ZeroDivisionError) as problem:
        raise HwgenError(
            "H601",
            f"template cannot be rendered: {problem}",
            location=location,
            field=field,
            found=text.strip(),
            allowed="names: " + ", ".join(sorted(values)),
            repair="use one of the names, or correct the template's syntax",
        ) from problem
    if len(result) > _LONGEST_TEXT:
        raise HwgenError(
            "H601",
            "template gives more text than a kernel can need",
            location=location,
            field=field,
            found=f"{len(result)} characters",
            allowed=f"at most {_LONGEST_TEXT}",
            repair="shorten the template's loops",
        )
    result = _ARGUMENT.sub(r"\1\2", result)
    return result.replace("\x01", "").replace("\x02", "").strip("\n")
