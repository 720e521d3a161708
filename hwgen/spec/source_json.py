"""JSON text to the same nodes as YAML, with the same bounds."""

from __future__ import annotations

import json
import re

from hwgen.errors import HwgenError, Location
from hwgen.spec.findings import Findings
from hwgen.spec.source import (
    MAX_DEPTH,
    MAX_NODES,
    Mapping_,
    Node,
    Scalar,
    Sequence,
    number,
    occurs_twice,
)

_SPACE = re.compile(r"[ \t\r\n]*")
_STRING = re.compile(r'"(?:[^"\\\x00-\x1f]|\\.)*"')
_LITERAL = re.compile(r"[-+.0-9A-Za-z_]+")
_NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?([eE][-+]?[0-9]+)?")
_WORDS: dict[str, bool | None] = {"true": True, "false": False, "null": None}


def parse_json(text: str, file: str, findings: Findings) -> Node:
    """Parse one JSON value; keys that stand twice go to `findings`.

    Raises:
        HwgenError: H010 syntax, H011 duplicate key, H012 numbers, H013 over a bound.
    """
    reader = _Reader(text, file, findings)
    root = reader.value(1)
    if reader.peek():
        raise reader.error("text after the end of the value")
    return root


class _Reader:
    def __init__(self, text: str, file: str, findings: Findings) -> None:
        self._findings = findings
        self._text = text
        self._file = file
        self._at = 0
        self._line = 1
        self._line_start = 0
        self._count = 0

    def peek(self) -> str:
        """The next character that is not white space, or nothing at the end."""
        matched = _SPACE.match(self._text, self._at)
        assert matched is not None
        space = matched.group()
        if "\n" in space:
            self._line += space.count("\n")
            self._line_start = self._at + space.rindex("\n") + 1
        self._at = matched.end()
        return self._text[self._at : self._at + 1]

    def value(self, depth: int) -> Node:
        character = self.peek()
        self._count += 1
        if depth > MAX_DEPTH:
            raise HwgenError(
                "H013", "values are nested too deeply", location=self._location(),
                found=f"more than {MAX_DEPTH} levels", allowed=f"at most {MAX_DEPTH} levels",
            )  # fmt: skip
        if self._count > MAX_NODES:
            raise HwgenError(
                "H013", "the input is too large", location=self._location(),
                found=f"more than {MAX_NODES} values", allowed=f"at most {MAX_NODES} values",
            )  # fmt: skip
        match character:
            case "{":
                return self._mapping(depth)
            case "[":
                return self._sequence(depth)
            case '"':
                line, column = self._line, self._column
                return Scalar(self._string(), line, column, column + 1)
            case _:
                return self._literal()

    def _mapping(self, depth: int) -> Node:
        node = Mapping_(self._line, self._column)
        self._at += 1
        if self.peek() == "}":
            self._at += 1
            return node
        while True:
            if self.peek() != '"':
                raise self.error("expected a key in double quotes")
            where = self._location()
            key = self._string()
            if key in node.entries:
                self._findings.note(occurs_twice(key, node.keys[key][0], where))
            if self.peek() != ":":
                raise self.error("expected ':'")
            self._at += 1
            node.entries[key] = self.value(depth + 1)
            node.keys[key] = (where.line, where.column)
            if self._end("}"):
                return node

    def _sequence(self, depth: int) -> Node:
        node = Sequence(self._line, self._column)
        self._at += 1
        if self.peek() == "]":
            self._at += 1
            return node
        while True:
            node.items.append(self.value(depth + 1))
            if self._end("]"):
                return node

    def _end(self, closing: str) -> bool:
        character = self.peek()
        if character not in (",", closing):
            raise self.error(f"expected ',' or '{closing}'")
        self._at += 1
        return character == closing

    def _string(self) -> str:
        matched = _STRING.match(self._text, self._at)
        if matched is None:
            raise self.error("a string that does not end on its line")
        try:
            value = str(json.loads(matched.group()))
        except ValueError as problem:
            raise self.error("a string with an unknown escape") from problem
        self._at = matched.end()
        return value

    def _literal(self) -> Scalar:
        matched = _LITERAL.match(self._text, self._at)
        if matched is None:
            raise self.error("expected a value")
        text, where = matched.group(), self._location()
        if text in _WORDS:
            value: bool | int | float | None = _WORDS[text]
        else:
            value = number(text, where)
            if value is None or not _NUMBER.fullmatch(text):
                raise self.error("expected a value")
        self._at = matched.end()
        return Scalar(value, where.line, where.column, where.column)

    @property
    def _column(self) -> int:
        return self._at - self._line_start + 1

    def _location(self) -> Location:
        return Location(self._file, self._line, self._column)

    def error(self, message: str) -> HwgenError:
        found = self._text[self._at : self._at + 20].split("\n")[0]
        return HwgenError(
            "H010", f"JSON syntax: {message}", location=self._location(),
            found=repr(found) if found else "the end of the line or file",
        )  # fmt: skip
