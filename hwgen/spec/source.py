"""Untrusted YAML or JSON text to plain data that remembers where each value stood.

YAML 1.2 through ruamel.yaml's event stream, so that depth, size and alias expansion are bounded
while reading and no object is ever constructed from a tag. JSON is read into the same nodes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, NoReturn, cast

from hwgen.errors import HwgenError, Location
from hwgen.spec.findings import Findings
from hwgen.spec.regular_file import read_regular
from hwgen.spec.yaml_repairs import repair

MAX_BYTES = 1 << 19
MAX_DEPTH = 32
MAX_NODES = 20_000
MAX_DIGITS = 19

Data = bool | int | float | str | None | list["Data"] | dict[str, "Data"]
Key = str | int
FieldPath = tuple[Key, ...]


@dataclass(frozen=True, slots=True)
class Scalar:
    """`column` is the first character's; `text_column` that of the value's text, 0 if unknown."""

    value: bool | int | float | str | None
    line: int
    column: int
    text_column: int = 0


@dataclass(slots=True)
class Sequence:
    line: int
    column: int
    items: list[Node] = field(default_factory=list["Node"])


@dataclass(slots=True)
class Mapping_:  # noqa: N801
    """`merged`: keys that came from `<<` and that an explicit key may replace."""

    line: int
    column: int
    entries: dict[str, Node] = field(default_factory=dict[str, "Node"])
    keys: dict[str, tuple[int, int]] = field(default_factory=dict[str, tuple[int, int]])
    merged: set[str] = field(default_factory=set[str])


Node = Scalar | Sequence | Mapping_


@dataclass(frozen=True, slots=True)
class Document:
    """Plain data and, where it came from text, the nodes that hold its positions."""

    file: str
    data: Data
    root: Node | None = None

    def locate(self, path: FieldPath, *, key: bool = False, offset: int | None = None) -> Location:
        """Where a field stands: its value, its key (`key`), or a character of its text.

        A path that leads nowhere gives its deepest existing ancestor.
        """
        node, line, column = self.root, 0, 0
        if node is None:
            return Location(self.file)
        line, column = node.line, node.column
        for i, step in enumerate(path):
            child: Node | None = None
            mark: tuple[int, int] | None = None
            match node:
                case Mapping_(entries=entries, keys=keys):
                    child, mark = entries.get(str(step)), keys.get(str(step))
                case Sequence(items=items) if isinstance(step, int) and step < len(items):
                    child = items[step]
                case _:
                    pass
            if child is None:
                return Location(self.file, line, column)
            node = child
            line, column = node.line, node.column
            if key and i == len(path) - 1 and mark is not None:
                line, column = mark
        if offset is not None and isinstance(node, Scalar) and node.text_column:
            column = node.text_column + offset
        return Location(self.file, line, column)


def field_text(path: FieldPath) -> str:
    """`("a", "b", 0)` as `a.b[0]`."""
    text = ""
    for step in path:
        if isinstance(step, int):
            text += f"[{step}]"
        else:
            text += f".{step}" if text else step
    return text


TAG = "!"
"""The key under which a mapping's tag is kept, where tags are data."""


def read_document(path: Path | str, *, tagged: bool = False) -> Document:
    """Read a `.yaml`, `.yml` or `.json` file. `tagged`: tags of mappings are data, under `TAG`.

    Raises:
        HwgenError: H001 unreadable, H002 unknown suffix, H010 syntax, H011 duplicate key,
            H012 a number that readers disagree on, H013 over a bound, H014 unsupported YAML.
    """
    return parse_document(*read_text(path), tagged=tagged)


Text = tuple[str, str, bool]
"""A file's text, its name, and whether it is JSON."""


def read_text(path: Path | str) -> Text:
    """A file's text, its name, and whether it is JSON; see `read_document` for what is raised."""
    path = Path(path)
    file = str(path)
    location = Location(file)
    if (suffix := path.suffix.lower()) not in (".yaml", ".yml", ".json"):
        model = suffix in (".onnx", ".tflite", ".pt", ".pb", ".mlir", ".keras", ".h5")
        raise HwgenError(
            "H002", "unknown kind of file", location=location, found=suffix or "no suffix",
            allowed=".yaml, .yml or .json",
            repair="models are not read: write a layer as statements, as `hwgen list` shows some"
            if model else "",
        )  # fmt: skip
    raw = read_regular(path, MAX_BYTES)
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        line = raw.count(b"\n", 0, problem.start) + 1
        raise HwgenError(
            "H010", "the file is not UTF-8 text", location=Location(file, line),
            found=f"byte 0x{raw[problem.start]:02x}", allowed="UTF-8",
        ) from problem  # fmt: skip
    return text, file, path.suffix.lower() == ".json"


def parse_document(text: str, file: str, json: bool = False, *, tagged: bool = False) -> Document:
    """Parse YAML (or JSON) text; see `read_document` for what is raised."""
    root = _composed(text, file, json, tagged)
    return Document(file, _plain(root, Location(file)), root)


@lru_cache(maxsize=64)
def _composed(text: str, file: str, json: bool, tagged: bool) -> Node:
    """The nodes of a text, which nobody changes: campaigns and notebooks read the same chip again
    and again."""
    findings = Findings()
    with findings.reported():
        if json:
            from hwgen.spec.source_json import parse_json

            return parse_json(text, file, findings)
        return _Composer(file, text, findings, tagged=tagged).compose()


def from_python(data: Mapping[str, object], file: str) -> Document:
    """Plain Python data (as from a caller of the library) as a document without positions."""
    return Document(file, _copy(data, Location(file), 0))


def _copy(value: object, location: Location, depth: int) -> Data:
    if depth > MAX_DEPTH:
        _too_deep(location)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Mapping):
        items = cast("Mapping[object, object]", value).items()
        return {str(k): _copy(v, location, depth + 1) for k, v in items}
    if isinstance(value, list | tuple):
        return [_copy(v, location, depth + 1) for v in cast("Iterable[object]", value)]
    raise HwgenError(
        "H032", "a value of the wrong type", location=location, found=type(value).__name__,
        allowed="mappings, lists, strings and numbers",
    )  # fmt: skip


def _plain(root: Node, location: Location) -> Data:
    """The nodes as plain data; aliases are expanded, so the count of nodes is bounded here."""
    count = 0

    def convert(node: Node) -> Data:
        nonlocal count
        count += 1
        if count > MAX_NODES:
            _too_large(location, f"more than {MAX_NODES} values once aliases are expanded",
                       f"at most {MAX_NODES} values")  # fmt: skip
        match node:
            case Scalar(value=value):
                return value
            case Sequence(items=items):
                return [convert(item) for item in items]
            case Mapping_(entries=entries):
                return {key: convert(value) for key, value in entries.items()}

    return convert(root)


_INTEGER = re.compile(r"[-+]?(?:[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+)")
_LEADING_ZERO = re.compile(r"[-+]?0[0-9]+")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_WORDS: dict[str, bool | None] = {
    "": None, "~": None, "null": None, "Null": None, "NULL": None,
    "true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False,
}  # fmt: skip
_TAGS = ("tag:yaml.org,2002:str", "!")


def number(text: str, location: Location) -> int | float | None:
    """The number that YAML 1.2 and JSON both read, or None where the text is not a number."""
    if _INTEGER.fullmatch(text):
        if _LEADING_ZERO.fullmatch(text):
            plain = text.replace("+", "").lstrip("0") or "0"
            raise HwgenError(
                "H012", "a number with a leading zero: some readers take it as octal",
                location=location, found=text, allowed="decimal numbers",
                repair=f"write {plain}, or quote the text",
            )  # fmt: skip
        if len(text) > MAX_DIGITS + 2:
            raise HwgenError(
                "H012", "a number too large to be meant", location=location,
                found=f"{len(text)} characters", allowed=f"at most {MAX_DIGITS} digits",
            )  # fmt: skip
        return int(text, 0) if "o" in text or "x" in text else int(text)
    if len(text) <= 40 and _FLOAT.fullmatch(text):
        value = float(text)
        if value in (float("inf"), float("-inf")):
            raise HwgenError(
                "H012", "a number too large to be meant", location=location, found=text,
                allowed="finite numbers",
            )  # fmt: skip
        return value
    return None


def occurs_twice(key: str, first_line: int, location: Location) -> HwgenError:
    """The error of a key that a mapping has already, to be noted."""
    return HwgenError(
        "H011", f"the key {key!r} occurs twice in one mapping", location=location,
        found=f"first on line {first_line}", allowed="each key once",
        repair=f"remove or rename one of the two {key!r}",
    )  # fmt: skip


def _is_empty(node: Node) -> bool:
    return isinstance(node, Scalar) and node.value is None


def _displaced(key: str, above: str, parent: Mapping_, location: Location) -> HwgenError:
    """The error of a key that a mapping has already, since what should be below another key is
    not."""
    line, column = parent.keys[above]
    return HwgenError(
        "H011", f"the key {key!r} occurs twice in one mapping", location=location,
        found=f"first on line {parent.keys[key][0]}; {above!r} on line {line} has nothing below it",
        allowed="each key once",
        repair=f"begin line {line} further to the left than {column - 1} spaces, with the names "
        f"that {above!r} goes with, or indent more what belongs to it",
    )  # fmt: skip


class _Composer:
    """ruamel.yaml's events to nodes."""

    def __init__(self, file: str, text: str, findings: Findings, *, tagged: bool) -> None:
        self._file = file
        self._text = text
        self._findings = findings
        self._anchors: dict[str, Node] = {}
        self._displaced: set[int] = set()
        self._tagged = tagged
        self._count = 0

    def compose(self) -> Node:
        # The untyped edge of ruamel.yaml: events are used by their class's name only.
        from ruamel.yaml import YAML
        from ruamel.yaml.error import MarkedYAMLError, YAMLError

        reader: Any = YAML(typ="safe", pure=True)
        try:
            return self._document(reader.parse(self._text))
        except MarkedYAMLError as problem:
            loose = cast("Any", problem)
            mark = loose.problem_mark or loose.context_mark
            if mark and self._text.startswith("{%", mark.index - 1):
                raise self._unquoted(mark.line, mark.index - 1) from problem
            where = Location(self._file, mark.line + 1, mark.column + 1) if mark else None
            message = " ".join(str(loose.problem or "bad syntax").split())
            if loose.context and loose.context_mark:
                message += f", {loose.context} that begins on line {loose.context_mark.line + 1}"
            begin = loose.context_mark.line + 1 if loose.context_mark else 0
            nearest = repair(self._text, message, where.line if where else 0, begin)
            raise self._syntax(message, where, nearest) from problem
        except YAMLError as problem:
            raise self._syntax(" ".join(str(problem).split())[:200], None) from problem
        except (ValueError, IndexError, AttributeError, TypeError, AssertionError) as problem:
            # ruamel's scanner lets a few malformed escapes and directives through as these.
            raise self._syntax("text that the YAML reader cannot scan", None) from problem

    def _unquoted(self, line: int, start: int) -> HwgenError:
        """What YAML takes for a mapping is a template."""
        text = self._text[start:].split("\n", maxsplit=1)[0].rstrip()
        column = start - self._text.rfind("\n", 0, start)
        quote = "'" if '"' in text else '"'
        return HwgenError(
            "H014", "a template that begins with a brace is not quoted",
            location=Location(self._file, line + 1, column), found=text[:80],
            allowed="text in quotes, or a block that begins with |",
            repair="quote the template"
            + ("" if quote in text or len(text) > 200 else f": {quote}{text}{quote}"),
        )  # fmt: skip

    def _syntax(self, message: str, where: Location | None, nearest: str = "") -> HwgenError:
        where = where or Location(self._file)
        return HwgenError("H010", f"YAML syntax: {message}", location=where, repair=nearest)

    def _document(self, events: Iterable[Any]) -> Node:
        stack: list[tuple[Sequence | Mapping_, str | None]] = []
        pending: list[tuple[str, Location] | None] = []
        root: Node | None = None
        documents = 0
        for event in events:
            name = type(event).__name__
            node: Node
            match name:
                case "DocumentStartEvent":
                    documents += 1
                    if documents > 1:
                        self._unsupported(event, "more than one YAML document in a file", "---")
                    continue
                case "StreamStartEvent" | "StreamEndEvent" | "DocumentEndEvent" | "CommentEvent":
                    continue
                case "AliasEvent":
                    alias = str(event.anchor)
                    if alias not in self._anchors:
                        raise HwgenError(
                            "H014", f"the alias *{alias} has no anchor &{alias} before it",
                            location=self._location(event), found=f"*{alias}",
                            allowed=", ".join(f"*{a}" for a in sorted(self._anchors)) or "none",
                        )  # fmt: skip
                    node = self._anchors[alias]
                case "ScalarEvent":
                    node = self._scalar(event, is_key=bool(stack) and _expects_key(stack, pending))
                case "SequenceStartEvent" | "MappingStartEvent":
                    tag = str(event.tag or "")
                    kept = self._tagged and name == "MappingStartEvent" and bool(tag)
                    if not kept:
                        self._check_tag(event)
                    line, column = event.start_mark.line + 1, event.start_mark.column + 1
                    opened = (
                        Sequence(line, column)
                        if name == "SequenceStartEvent"
                        else Mapping_(line, column)
                    )
                    if kept and isinstance(opened, Mapping_):
                        opened.entries[TAG] = Scalar(tag.lstrip("!"), line, column)
                        opened.keys[TAG] = (line, column)
                    if _expects_key(stack, pending):
                        if self._text.startswith("{{", event.start_mark.index - 1):
                            raise self._unquoted(event.start_mark.line, event.start_mark.index - 1)
                        self._unsupported(
                            event, "a mapping's key that is not a word", "a list or mapping"
                        )
                    stack.append((opened, event.anchor))
                    pending.append(None)
                    if len(stack) > MAX_DEPTH:
                        _too_deep(self._location(event))
                    continue
                case _:
                    assert name in ("SequenceEndEvent", "MappingEndEvent"), name
                    node, anchor = stack.pop()
                    pending.pop()
                    if anchor:
                        self._anchors[str(anchor)] = node
            self._count += 1
            if self._count > MAX_NODES:
                _too_large(self._location(event), f"more than {MAX_NODES} values",
                           f"at most {MAX_NODES} values")  # fmt: skip
            if name == "ScalarEvent" and event.anchor:
                self._anchors[str(event.anchor)] = node
            if not stack:
                root = node
            else:
                self._place(stack[-1][0], pending, node, self._location(event))
        if root is None:
            raise HwgenError("H010", "the file is empty", location=Location(self._file))
        return root

    def _place(
        self,
        parent: Sequence | Mapping_,
        pending: list[tuple[str, Location] | None],
        node: Node,
        where: Location,
    ) -> None:
        if isinstance(parent, Sequence):
            parent.items.append(node)
            return
        waiting = pending[-1]
        if waiting is None:
            if not isinstance(node, Scalar):
                raise HwgenError("H014", "a mapping's key is not a word", location=where)
            pending[-1] = (str(node.value), where)
            return
        pending[-1] = None
        key, key_where = waiting
        if key == "<<":
            self._merge(parent, node, key_where)
            return
        if key in parent.entries and key not in parent.merged:
            above = next(reversed(parent.entries))
            if _is_empty(parent.entries[above]) and key != above:
                if id(parent) not in self._displaced:  # What follows is the same mistake.
                    self._findings.note(_displaced(key, above, parent, key_where))
                self._displaced.add(id(parent))
                return
            self._findings.note(occurs_twice(key, parent.keys[key][0], key_where))
            return
        parent.merged.discard(key)
        parent.entries[key] = node
        parent.keys[key] = (key_where.line, key_where.column)

    def _merge(self, parent: Mapping_, node: Node, where: Location) -> None:
        sources = node.items if isinstance(node, Sequence) else [node]
        for source in sources:
            if not isinstance(source, Mapping_):
                raise HwgenError(
                    "H014", "<< merges something that is not a mapping", location=where,
                    allowed="an alias of a mapping, or a list of them",
                )  # fmt: skip
            for key, value in source.entries.items():
                if key not in parent.entries:
                    parent.entries[key] = value
                    parent.keys[key] = source.keys[key]
                    parent.merged.add(key)

    def _scalar(self, event: Any, *, is_key: bool) -> Scalar:
        self._check_tag(event)
        value = str(event.value)
        mark = event.start_mark
        line, column = mark.line + 1, mark.column + 1
        style: str | None = event.style
        start = int(mark.index) + (1 if style in ("'", '"') else 0)
        exact = style in (None, "", "'", '"') and self._text.startswith(value, start)
        text_column = column + (1 if style in ("'", '"') else 0) if exact else 0
        plain = style in (None, "") and not event.tag
        resolved: bool | int | float | str | None = value
        if plain and not is_key:
            if value in _WORDS:
                resolved = _WORDS[value]
            else:
                where = self._location(event)
                found = self._findings.attempt(lambda: number(value, where), instead=None)
                resolved = value if found is None else found
        return Scalar(resolved, line, column, text_column)

    def _check_tag(self, event: Any) -> None:
        tag = event.tag
        if tag is not None and str(tag) not in _TAGS:
            self._unsupported(event, "a YAML tag", str(tag))

    def _unsupported(self, event: Any, what: str, found: str) -> NoReturn:
        raise HwgenError(
            "H014", f"{what} is not supported", location=self._location(event), found=found[:80],
            allowed="one document of mappings, lists, strings, numbers and aliases",
        )  # fmt: skip

    def _location(self, event: Any) -> Location:
        mark = event.start_mark
        return Location(self._file, mark.line + 1, mark.column + 1)


def _expects_key(
    stack: list[tuple[Sequence | Mapping_, str | None]],
    pending: list[tuple[str, Location] | None],
) -> bool:
    return bool(stack) and isinstance(stack[-1][0], Mapping_) and pending[-1] is None


def _too_deep(location: Location) -> NoReturn:
    raise HwgenError(
        "H013", "values are nested too deeply", location=location,
        found=f"more than {MAX_DEPTH} levels", allowed=f"at most {MAX_DEPTH} levels",
    )  # fmt: skip


def _too_large(location: Location, found: str, allowed: str) -> NoReturn:
    raise HwgenError(
        "H013", "the input is too large", location=location, found=found, allowed=allowed
    )
