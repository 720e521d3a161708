"""Find habits that readers of pages stumble over: `python -m scripts.prose [PAGE ...]`.

Prints one line per finding, then the count of each page. No page may have any:
`tests/unit/test_prose.py`.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LONGEST = 30
"""Words of a sentence."""

_CODE = re.compile(r"^```.*?^```$|<!--.*?-->|`[^`\n]*`", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")
_SHAPE = re.compile(r"\b\d[\d,]*(?: x \d[\d,]*)+")
_BLOCK = re.compile(r"\n\s*\n|\n(?=\s*(?:[-*|#]|\d+\. ))")
_SENTENCE = re.compile(r"(?<=[.!?])[\"')*]*\s+(?=[A-Z`*\"(]|hwgen)")
HABITS = {
    r"^(?:Of|What|Whether)\b(?!.*\?$)": "begins with Of, What or Whether",
    r"\bbeside(?!s)\b": "beside: write next to, or in addition to",
    r"\bof what\b": "of what: name the thing",
    r"\bwhat (?:is|was|no|stands|comes|there)\b(?!.*\?$)": "what is: name the thing",
    r"\b(?:weigh|weighs|weighed)\b": "weigh: multiply by unit weights",
    r"\b(?:foretold|foretells?)\b": "foretell: predict",
    r"\b(?:thrifty|spelt|told|parting|hopeless|keepers)\b": "a private word",
    r"\bas (?:it|they) (?:is|are|stands?) written\b": "as it is written: as declared",
}
"""Patterns within one sentence, and the advice."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One sentence of a page, and what to do about it."""

    page: str
    line: int
    advice: str
    sentence: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}: {self.advice}: {self.sentence[:90]}"


def pages() -> list[Path]:
    """README and its like, and every page of the documentation."""
    tops = [ROOT / f"{name}.md" for name in ("README", "CONTRIBUTING", "CHANGELOG")]
    return [*tops, *sorted(ROOT.glob("docs/**/*.md"))]


def findings(text: str, page: str) -> Iterator[Finding]:
    """Every habit in a page's sentences; code, tables and headings are not prose."""
    plain = _CODE.sub(_blank, text)
    place = 0
    for block in _BLOCK.split(plain):
        place = plain.index(block, place)
        line = plain.count("\n", 0, place) + 1
        prose = _SHAPE.sub("Shape", _LINK.sub(r"\1", " ".join(block.split())))
        if prose.startswith(("|", "#", "<")):
            continue
        prose = re.sub(r"^(?:[-*] |\d+\. |> )", "", prose)
        for sentence in _SENTENCE.split(prose):
            for advice in _advice(sentence):
                yield Finding(page, line, advice, sentence)


def _blank(found: re.Match[str]) -> str:
    """Code as one word, which may begin a sentence, with its lines kept."""
    return "\n" * found[0].count("\n") if found[0].startswith(("```", "<!--")) else "Code"


def _advice(sentence: str) -> Iterator[str]:
    for pattern, advice in HABITS.items():
        if re.search(pattern, sentence.strip("*\"'(")):
            yield advice
    words = len(sentence.split())
    if words > LONGEST:
        yield f"{words} words: {LONGEST} at most"


def main(names: list[str]) -> int:
    """Print the findings of the pages named, or of all pages."""
    total = 0
    for path in [Path(n).resolve() for n in names] or pages():
        name = path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else path.name
        found = [*findings(path.read_text(encoding="utf-8"), name)]
        total += len(found)
        sys.stdout.write("".join(f"{f}\n" for f in found))
        sys.stdout.write(f"{name}: {len(found)}\n")
    sys.stdout.write(f"total: {total}\n")
    return int(total > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
