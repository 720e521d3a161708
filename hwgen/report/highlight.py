"""Texts of the page as HTML: source with its words marked, and prose with its code."""

from __future__ import annotations

import re
from collections.abc import Iterator

from markupsafe import Markup, escape

_PROGRAM_WORDS = (
    "for", "in", "if", "else", "push", "pop", "barrier", "signal", "wait", "over", "step",
    "kernel", "image", "buffer", "micro-kernel", "variant",
)  # fmt: skip
_KEYWORDS = (
    "break|case|const|continue|default|do|else|extern|for|goto|if|inline|register|restrict|return|"
    "sizeof|static|struct|switch|typedef|union|volatile|while|__restrict__|__global__|__shared__"
)
_TYPES = r"bool|char|double|float|int|long|short|signed|unsigned|void|[A-Za-z]\w*_t"

# An unclosed comment runs to the end of the text.
_TOKEN = re.compile(
    rf"""(?P<comment>/\*.*?(?:\*/|\Z)|//[^\n]*)
    |(?P<directive>^[ \t]*\#[^\n]*)
    |(?P<text>"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')
    |\b(?P<keyword>{_KEYWORDS})\b
    |\b(?P<type>{_TYPES})\b
    |\b(?P<number>0[xX][0-9a-fA-F]+[uUlL]*|\d+(?:\.\d*)?(?:[eE][+-]?\d+)?[uUlLfF]*)\b
    |\b[A-Za-z_]\w*""",
    re.DOTALL | re.MULTILINE | re.VERBOSE,
)


def source_lines(text: str) -> list[Markup]:
    """The lines of a text in C or a language like it, each token in an `i` of its kind's class."""
    return [Markup("").join(pieces) for pieces in _lines(text)]


def _lines(text: str) -> Iterator[list[Markup]]:
    line: list[Markup] = []
    for kind, token in _tokens(text):
        first, *others = token.split("\n")
        line.append(_marked(kind, first))
        for other in others:
            yield line
            line = [_marked(kind, other)]
    if any(line):
        yield line


def _tokens(text: str) -> Iterator[tuple[str, str]]:
    at = 0
    for found in _TOKEN.finditer(text):
        if found.lastgroup is not None:
            yield "", text[at : found.start()]
            yield found.lastgroup, found[0]
            at = found.end()
    yield "", text[at:]


def _marked(kind: str, token: str) -> Markup:
    return Markup('<i class="{}">{}</i>').format(kind, token) if kind and token else escape(token)


def highlighted(program: str) -> Markup:
    """A program's text, with its keywords marked."""
    keywords = rf"\b({'|'.join(_PROGRAM_WORDS)})\b"
    return Markup(re.sub(keywords, r"<b>\1</b>", str(escape(program))))


def with_code(prose: str) -> Markup:
    """Prose, with what stands in backticks as code."""
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(prose))))
