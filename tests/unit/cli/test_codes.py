"""Every error code has its line in the documentation, and the documentation no others."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def documented(text: str) -> list[str]:
    """Codes in the first column of tables; `H713 to H716` stands for all between."""
    found: list[str] = []
    for cell in re.findall(r"^\| (H\d{3}[^|]*)\|", text, re.MULTILINE):
        for first, last in re.findall(r"H(\d{3})(?: to H(\d{3}))?", cell):
            found.extend(f"H{n:03}" for n in range(int(first), int(last or first) + 1))
    return found


def test_ranges_and_lists_are_read() -> None:
    text = "| code | meaning |\n|---|---|\n| H001, H003 | a |\n| H010 to H012 | of H099 |\nH098\n"
    assert documented(text) == ["H001", "H003", "H010", "H011", "H012"]


def test_every_code_is_documented() -> None:
    sources = (p.read_text(encoding="utf-8") for p in (ROOT / "hwgen").rglob("*.py"))
    used = {code for text in sources for code in re.findall(r"[\"\[](H\d{3})[\"\]]", text)}
    pages = {p.name: documented(p.read_text(encoding="utf-8")) for p in ROOT.glob("docs/*.md")}
    assert {code for codes in pages.values() for code in codes} == used
    for page, codes in pages.items():
        assert len(codes) == len(set(codes)), f"{page} explains a code twice"
