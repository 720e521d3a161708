"""An architecture in AccelForge's form (github.com/Accelergy-Project/accelforge), as levels with
numbers. Its expressions are read as numbers where they are; nothing in the file is evaluated."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from hwgen.errors import HwgenError, Location
from hwgen.spec.expression import evaluate
from hwgen.spec.grammar import ExpressionError, parse_expression
from hwgen.spec.regular_file import read_regular
from hwgen.spec.source import (
    MAX_BYTES,
    TAG,
    Data,
    Document,
    FieldPath,
    field_text,
    read_document,
)

KINDS = ("Memory", "Toll", "Compute", "Container", "Fanout", "Hierarchical", "Fork", "Array")
"""Nodes of an architecture; the last ones have nodes of their own."""
ROLES: Mapping[str, tuple[str, ...]] = {
    "act": ("input", "inputs"), "wgt": ("weight", "weights"), "acc": ("output", "outputs"),
}  # fmt: skip
"""Tensors of a product, as architectures call them, and the memories of a first chip."""
SHOWN = 60


@dataclass(frozen=True, slots=True)
class Action:
    """What a level does: joules each, and how many each second; None where that is not said."""

    energy: float | None
    per_second: float | None


@dataclass(frozen=True, slots=True)
class Fanout:
    """Instances side by side; `over`: the tensors that all of them share."""

    name: str
    count: int | None
    over: str


@dataclass(frozen=True, slots=True)
class Level:
    """A memory or a compute unit. `size_bits` is infinite where there is no bound, None where the
    file does not say; of actions, memories' are of bits. `fanouts`: on the way to it, from the
    outside. `unread`: fields that are no numbers."""

    kind: str
    name: str
    line: int
    size_bits: float | None
    role: str
    actions: Mapping[str, Action]
    fanouts: tuple[Fanout, ...]
    unread: tuple[str, ...]


def read_architecture(path: Path) -> tuple[Level, ...]:
    """The memories and compute units of a file, from the outside in.

    Raises:
        HwgenError: H00x and H01x as any YAML; H044 it has another form.
    """
    document = untemplated(path)
    arch = document.data.get("arch") if isinstance(document.data, dict) else None
    nodes = arch.get("nodes") if isinstance(arch, dict) else None
    if not isinstance(nodes, list):
        timeloop = isinstance(document.data, dict) and "architecture" in document.data
        raise bad(
            document, ("arch",) if arch is not None else (),
            "this is no architecture of AccelForge",
            sort(arch) if arch is not None else "no arch", "arch: {nodes: [...]}",
            "this one is Timeloop's: --from timeloop" if timeloop and arch is None
            else "give a file with `arch` and its `nodes`",
        )  # fmt: skip
    return tuple(_levels(document, nodes, ("arch", "nodes"), []))


def untemplated(path: Path) -> Document:
    """A file of nodes with tags, as YAML alone.

    Raises:
        HwgenError: H00x and H01x as any YAML; H044 it is a template.
    """
    text = read_regular(path, MAX_BYTES).decode("utf-8", "replace")
    template = re.search(r"\{[{%]", text)
    if template is not None:
        line = text.count("\n", 0, template.start()) + 1
        raise HwgenError(
            "H044", "this is a template of an architecture", location=Location(str(path), line),
            found=template[0], allowed="YAML", repair="render it first, and give the result",
        )  # fmt: skip
    return read_document(path, tagged=True)


def _levels(
    document: Document, nodes: list[Data], path: FieldPath, around: list[Fanout]
) -> Iterator[Level]:
    for number, node in enumerate(nodes):
        where = (*path, number)
        kind = node.get(TAG) if isinstance(node, dict) else None
        if not isinstance(node, dict) or kind not in KINDS:
            found = f"!{word(kind)}" if kind else sort(node)
            raise bad(
                document, where, "a node of no kind that is known", found,
                ", ".join(f"!{k}" for k in KINDS), "tag the node, as `- !Memory`",
            )  # fmt: skip
        unread: list[str] = []
        own = _fanouts(document, node.get("spatial"), (*where, "spatial"), unread)
        # What follows a compute unit is not inside it.
        inside = [*around, *own] if kind == "Compute" else around
        if inside is around:
            around.extend(own)
        inner = node.get("nodes")
        if isinstance(inner, list):
            # What is in a branch does not stand on the way to what follows it.
            yield from _levels(document, inner, (*where, "nodes"), list(around))
        if kind in ("Memory", "Compute"):
            yield Level(
                str(kind), word(node.get("name") or kind), document.locate(where).line,
                as_number(node.get("size"), "size", unread), _role(node.get("tensors")),
                _actions(document, node.get("actions"), (*where, "actions"), unread),
                tuple(inside), tuple(unread),
            )  # fmt: skip


def _fanouts(
    document: Document, given: Data, path: FieldPath, unread: list[str]
) -> Iterator[Fanout]:
    for number, entry in enumerate(_entries(document, given, path)):
        count = as_number(entry.get("fanout"), f"fanout of {entry.get('name')}", unread)
        whole = int(count) if count is not None and 1 <= count < 1 << 31 else None
        over = str(entry.get("reuse") or entry.get("may_reuse") or "")
        yield Fanout(word(entry.get("name") or number), whole, over.lower())


def _actions(
    document: Document, given: Data, path: FieldPath, unread: list[str]
) -> dict[str, Action]:
    found: dict[str, Action] = {}
    for entry in _entries(document, given, path):
        name = word(entry.get("name"))
        bits = as_number(entry.get("bits_per_action"), f"bits_per_action of {name}", unread) or 1
        rate = as_number(entry.get("throughput"), f"throughput of {name}", unread)
        seconds = as_number(entry.get("latency"), f"latency of {name}", unread)
        if rate is None and seconds:  # Older files say the time of one action.
            rate = 1 / seconds
        energy = as_number(entry.get("energy"), f"energy of {name}", unread)
        found[name] = Action(
            positive(None if energy is None else energy / bits),
            positive(None if rate is None else rate * bits),
        )
    return found


def _entries(document: Document, given: Data, path: FieldPath) -> list[dict[str, Data]]:
    """A list of mappings; none where nothing is given.

    Raises:
        HwgenError: H044 it is something else.
    """
    entries: list[dict[str, Data]] = []
    for number, entry in enumerate(given if isinstance(given, list) else [given]):
        if isinstance(entry, dict):
            entries.append(entry)
        elif entry is not None:
            where = (*path, number) if isinstance(given, list) else path
            raise bad(
                document, where, "an entry without fields", sort(entry), "a list of mappings",
                f"write {path[-1]}: [{{name: ...}}]",
            )  # fmt: skip
    return entries


def _role(tensors: Data) -> str:
    """The memory of a first chip that holds what this one keeps; "" of several tensors."""
    keep = str(tensors.get("keep", "")) if isinstance(tensors, dict) else ""
    words = re.findall(r"\w+", keep.lower())
    for role, names in ROLES.items():
        if len(words) == 1 and "~" not in keep and words[0] in names:
            return role
    return ""


def as_number(given: Data, field: str, unread: list[str]) -> float | None:
    """A number, or an expression of numbers; what is neither is noted."""
    if given is None or isinstance(given, bool | list | dict):
        return None
    try:
        value = evaluate(parse_expression(given), {}) if isinstance(given, str) else given
        return float(value)
    except (ExpressionError, KeyError, ValueError, ArithmeticError, TypeError, AssertionError):
        unread.append(word(f"{field}: {given}"))
        return None


def positive(value: float | None) -> float | None:
    return value if value is not None and 0 < value < math.inf else None


def word(value: Data) -> str:
    """A text of the file that can stand in a comment: one line, not too long."""
    return re.sub(r"[^ -~]+", " ", str(value))[:SHOWN]


def sort(value: Data) -> str:
    match value:
        case dict():
            return "a mapping without a tag"
        case list():
            return "a list"
        case None:
            return "nothing"
        case _:
            return word(value)


def bad(
    document: Document, path: FieldPath, message: str, found: str, allowed: str, repair: str
) -> HwgenError:
    return HwgenError(
        "H044", message, location=document.locate(path), field=field_text(path), found=found,
        allowed=allowed, repair=repair,
    )  # fmt: skip
