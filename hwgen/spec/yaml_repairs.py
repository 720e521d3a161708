"""What to do about text that is no YAML: a reader stops behind the mistake, and names what it
wanted there; a person has to be told where the mistake is."""

from __future__ import annotations

import re
from collections.abc import Sequence

MAX_SHOWN = 100

_NO_BLANK = re.compile(r"\s*(?:- )?(?P<key>[A-Za-z_]\w*):(?P<value>[^\s:/][^:]*)")
_COLON_INSIDE = re.compile(r"\s*(?:- )?(?P<key>[A-Za-z_]\w*): (?P<text>[^{\[\"'|>].*: .*)")
_UNQUOTED_LIST = re.compile(r"(?P<key>\w+):\s*(?P<text>\w+\[[^\]]*\])")


def repair(text: str, message: str, line: int, context_line: int = 0) -> str:
    """The nearest change for a syntax error that was found at a line, or nothing.

    `context_line`: where what was being read begins; both count from 1, 0 is unknown.
    """
    lines = re.split(r"\r\n|\r|\n", text)
    here = lines[line - 1] if 0 < line <= len(lines) else ""
    above = lines[line - 2] if 1 < line <= len(lines) else ""
    if "\\t" in message and "\t" in here:
        return "indent with spaces: YAML takes no tabs"
    if "could not find expected ':'" in message or "mapping values are not allowed" in message:
        for number, candidate in ((line, here), (line - 1, above)):
            if found := _NO_BLANK.fullmatch(candidate.rstrip()):
                value = found["value"][:MAX_SHOWN]
                return f"write `{found['key']}: {value}` in line {number}, a space after the colon"
        if (found := _COLON_INSIDE.fullmatch(here.rstrip())) and '"' not in found["text"]:
            return f'quote the text, which has a colon: {found["key"]}: "{found["text"]}"'
    quote = _open_quote(lines, line)
    if quote:
        return f"close the quote that opens in line {quote}"
    begin = context_line if "flow" in message and 0 < context_line <= len(lines) else 0
    if begin:
        opened = lines[begin - 1]
        if (found := _UNQUOTED_LIST.search(opened)) and begin == line:
            return f'quote it: {found["key"]}: "{found["text"]}"'
        comment = opened.find(" #")
        if comment >= 0 and _open_brackets(opened[:comment]):
            return (
                f"close line {begin} with {_open_brackets(opened[:comment])} before the comment, "
                "which begins with #"
            )
        if missing := _open_brackets(opened):
            return f"close line {begin} with {missing}"
    if "'<block" in message:  # What was found, not what was expected.
        return _of_indentation(lines, line)
    return ""


def _open_quote(lines: Sequence[str], line: int) -> int:
    """The line above which opens a quote that it does not close; 0 where none does."""
    for number in range(line, 0, -1):
        plain = re.sub(r'\\.|"(?:[^"\\]|\\.)*"', "", lines[number - 1].split(" #", 1)[0])
        if plain.count('"') % 2 and re.search(r'[:,{\[-]\s*"', plain):
            return number
    return 0


def _open_brackets(text: str) -> str:
    """What closes the brackets that a line leaves open."""
    closing: list[str] = []
    for sign in re.sub(r'"(?:[^"\\]|\\.)*"', "", text):
        if sign in "{[":
            closing.append("}" if sign == "{" else "]")
        elif closing and sign == closing[-1]:
            closing.pop()
    return "".join(reversed(closing))


def _of_indentation(lines: Sequence[str], line: int) -> str:
    """The columns of the lines around that one line agrees with none of."""
    own = _indent(lines[line - 1])
    open_columns: list[int] = []
    for text in reversed(lines[: line - 1]):
        if text.strip() and not text.lstrip().startswith("#"):
            column = _indent(text)
            if not open_columns or column < open_columns[-1]:
                open_columns.append(column)
    if own in open_columns or not open_columns:
        return ""
    near = sorted(open_columns, key=lambda c: (abs(c - own), c))[:2]
    columns = " or ".join(str(c) for c in sorted(near))
    return f"begin the line with {columns} spaces, as those that it goes with, instead of {own}"


def _indent(text: str) -> int:
    return len(text) - len(text.lstrip(" "))
