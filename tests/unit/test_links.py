"""Relative links and anchors of the documentation lead somewhere, as a code host reads them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from hwgen.polyhedral.schedule.script import PRIMITIVES

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md",
         *sorted(ROOT.glob("docs/**/*.md")), *sorted(ROOT.glob("docs/**/*.ipynb"))]  # fmt: skip


def links(text: str) -> Iterator[str]:
    """Targets of links outside of code."""
    text = re.sub(r"^```.*?^```$|`[^`\n]*`", "", text, flags=re.MULTILINE | re.DOTALL)
    yield from re.findall(r"\]\(([^)\s]+)\)", text)


@cache
def anchors(path: Path) -> frozenset[str]:
    """Of a page's headings, as code hosts make them."""
    text = re.sub(r"^```.*?^```$", "", markdown(path), flags=re.MULTILINE | re.DOTALL)
    found: list[str] = []
    for heading in re.findall(r"^#+ (.*)$", text, re.MULTILINE):
        words = re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")
        again = sum(re.fullmatch(rf"{re.escape(words)}(-\d+)?", a) is not None for a in found)
        found.append(f"{words}-{again}" if again else words)
    return frozenset(found)


def markdown(path: Path) -> str:
    text = path.read_text(encoding="utf-8")
    if path.suffix != ".ipynb":
        return text
    cells = json.loads(text)["cells"]
    return "\n\n".join("".join(c["source"]) for c in cells if c["cell_type"] == "markdown")


def broken(path: Path, text: str) -> Iterator[str]:
    for link in links(text):
        if re.match(r"[a-z]+:", link):
            continue
        file, _, anchor = link.partition("#")
        target = (path.parent / file).resolve() if file else path
        inside = target.is_relative_to(ROOT)
        if not (inside and target.exists()) or (anchor and anchor not in anchors(target)):
            yield f"{path.relative_to(ROOT)}: {link}"


@pytest.mark.parametrize("path", PAGES, ids=lambda p: p.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(path: Path) -> None:
    assert list(broken(path, markdown(path))) == []


@pytest.mark.parametrize(
    "link", ["gone.md", "spec.md#gone", "#gone", "../../etc", "errors/H4.md#h499"]
)
def test_a_broken_link_is_found(link: str) -> None:
    page = ROOT / "docs" / "index.md"
    assert list(broken(page, f"[x]({link})")) == [f"docs/index.md: {link}"]


def test_good_links_pass() -> None:
    text = "[a](spec-advanced.md#runs-of-calls) [b](https://x.y) `[c](d)` [e](errors/H4.md#h422)"
    assert list(broken(ROOT / "docs" / "index.md", text)) == []


def test_every_primitive_says_where_it_means_something() -> None:
    page = (ROOT / "docs" / "schedule.md").read_text(encoding="utf-8")
    section = page.split("## Which primitives mean something where\n")[1].split("\n## ")[0]
    first = [row.split("|")[1] for row in section.splitlines() if row.startswith("| `")]
    named = re.findall(r"`(\w+)`", "".join(first))
    assert sorted(named) == sorted(PRIMITIVES)
