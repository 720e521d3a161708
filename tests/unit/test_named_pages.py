"""No text that users of a wheel read sends them to a page that the wheel lacks."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = [*ROOT.glob("docs/errors/*.md"), ROOT / "docs" / "schedule.md"]
"""Those of codes, and the one that `hwgen help PRIMITIVE` prints."""
SHIPPED = {p.relative_to(ROOT).as_posix() for p in PAGES}
TEXTS = [*sorted(ROOT.glob("docs/errors/*.md")), *sorted(ROOT.glob("docs/*.schema.json"))]
SOURCES = sorted((ROOT / "hwgen").rglob("*.py"))


def missing(text: str) -> list[str]:
    """Pages that a text names, and that no wheel has."""
    named = re.findall(r"[\w./-]*\w\.md\b", text)
    folders = ("", "docs/", "docs/errors/")
    return [n for n in named if SHIPPED.isdisjoint(f"{folder}{n}" for folder in folders)]


def said(source: str, *, commands: bool) -> Iterator[str]:
    """The strings of a module: without docstrings, but for those that a command prints as help."""
    tree = ast.parse(source)
    quiet: set[ast.expr] = set()
    for node in ast.walk(tree):
        if commands and isinstance(node, ast.FunctionDef):
            yield ast.get_docstring(node) or ""
        if isinstance(node, ast.Expr):
            quiet.add(node.value)
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in quiet:
            yield node.value


def test_pages_are_found() -> None:
    text = "see [all](index.md), H4.md, `docs/spec.md` and SECURITY.md; docs/errors/H1.md#h104"
    assert missing(text) == ["docs/spec.md", "SECURITY.md"]
    module = '"""a.md"""\ndef f():\n    """b.md"""\n    """c.md"""\n    g("d.md", f"{x} e.md")\n'
    assert [missing(t) for t in said(module, commands=False)] == [["d.md"], ["e.md"]]
    assert ["b.md"] in [missing(t) for t in said(module, commands=True)]


@pytest.mark.parametrize("path", TEXTS, ids=lambda p: p.name)
def test_a_shipped_text_names_shipped_pages(path: Path) -> None:
    assert missing(path.read_text(encoding="utf-8")) == []


def test_messages_name_shipped_pages() -> None:
    found = [
        (path.relative_to(ROOT).as_posix(), page)
        for path in SOURCES
        for text in said(path.read_text("utf-8"), commands="cli" in path.parts)
        for page in missing(text)
    ]
    assert found == []
