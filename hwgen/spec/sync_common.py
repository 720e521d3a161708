"""What every kind of synchronization shares: its section, edges between units, conflicts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from hwgen.spec.context import Context, reference
from hwgen.spec.fields import IntExpr, Model, Name
from hwgen.spec.source import FieldPath

SECTION: FieldPath = ("synchronization",)

EdgeSchema = Annotated[list[Name], Field(min_length=2, max_length=2)]

Edges = tuple[tuple[str, str], ...]

Used = Mapping[str, tuple[str, ...] | Literal["text", "number"]]
"""What a template may name besides parameters: the units that a name may stand for, or what else
it is."""


@dataclass(frozen=True, slots=True)
class Conflict:
    """Two intrinsics on different units that touch one memory, and at least one writes it."""

    first: str
    first_unit: str
    second: str
    second_unit: str
    memory: str

    def __str__(self) -> str:
        return f"{self.first} and {self.second} both touch memory {self.memory}"


class CompletionSchema(Model):
    """How a kernel ends."""

    unit: Name
    """Runs the last call."""
    wait_units: list[Name] = Field(default=[])
    """Push a token to it when they are done, in this order."""
    cycles: IntExpr
    """Duration of the last call."""
    extra_cycles: IntExpr = 0
    """From the end of the last call to the kernel's end."""


def number(context: Context, text: int | str, name: str, least: int = 0) -> int:
    """A field of the section.

    Raises:
        HwgenError: H02x.
    """
    return context.integer(text, (*SECTION, name), least)


def edges_of(context: Context, units: Iterable[str], pairs: Sequence[Sequence[str]]) -> Edges:
    """Ordered pairs of different units, each once.

    Raises:
        HwgenError: H113 an unknown unit, H127 a pair that makes no sense.
    """
    known = dict.fromkeys(units)
    edges: list[tuple[str, str]] = []
    for i, pair in enumerate(pairs):
        path: FieldPath = (*SECTION, "edges", i)
        for j, unit in enumerate(pair):
            reference(context, (*path, j), "unit", unit, known)
        source, target = pair
        if source == target or (source, target) in edges:
            raise context.error(
                "H127",
                "an edge joins a unit to itself" if source == target else "an edge stands twice",
                path, found=f"[{source}, {target}]", allowed="each pair of different units once",
                repair="a unit runs its own calls in order" if source == target else "remove it",
            )  # fmt: skip
        edges.append((source, target))
    return tuple(edges)


def check_paths(context: Context, conflicts: Iterable[Conflict], edges: Edges, what: str) -> None:
    """Units that touch one memory can be ordered, through others if need be.

    Raises:
        HwgenError: H127.
    """
    for found in conflicts:
        first, second = found.first_unit, found.second_unit
        if second in _reachable(first, edges):
            continue
        raise context.error(
            "H127", f"no {what} can order unit {second!r} after {first!r}",
            (*SECTION, "edges"), key=True,
            found=f"{found}; edges {pairs_text(edges)}", allowed=f"a path from {first} to {second}",
            repair=f"add [{first}, {second}]",
        )  # fmt: skip


def _reachable(start: str, edges: Edges) -> set[str]:
    found = {start}
    while True:
        more = {t for s, t in edges if s in found} - found
        if not more:
            return found
        found |= more


def pairs_text(edges: Iterable[tuple[str, str]]) -> str:
    """Edges as a user writes them."""
    return ", ".join(f"[{a}, {b}]" for a, b in edges)
