"""Events: numbered flags, or counting semaphores, that one unit sets and another awaits."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import permutations
from typing import Literal

from hwgen.spec.context import Context
from hwgen.spec.fields import IntExpr, Model
from hwgen.spec.schema_processor import Template
from hwgen.spec.sync_common import (
    SECTION,
    CompletionSchema,
    Conflict,
    Edges,
    EdgeSchema,
    Used,
    check_paths,
    edges_of,
    number,
)


class EventsSchema(Model):
    """Synchronization by numbered flags that one unit sets and another awaits."""

    kind: Literal["events"]
    """Events, or counting semaphores."""
    edges: list[EdgeSchema] | None = None
    """Pairs [source, target] of units that have flags; left out: every pair."""
    flags: IntExpr
    """Number of flags, numbered from 0."""
    scope: Literal["edge", "chip"] = "edge"
    """`edge`: each edge has `flags` of its own. `chip`: all edges share them."""
    maximum: IntExpr = 1
    """Largest count of a flag; 1: set or not; more: a counting semaphore."""
    signal: Template
    """C text that adds one to a flag when the source's earlier calls are done. It names `source`,
    `target` and `event`, the flag's number."""
    wait: Template
    """C text that makes the target's later calls wait for a flag, and takes one from it. It names
    `source`, `target` and `event`."""
    signal_cycles: IntExpr = 0
    """Duration of a signal, on its source."""
    wait_cycles: IntExpr = 0
    """Duration of a wait, on its target, once the flag is set."""
    completion: CompletionSchema | None = None
    """How a kernel ends; left out: when its calls have ended."""

    def resolved(self, context: Context, units: tuple[str, ...]) -> Events:
        """Raises H113, H127, H02x."""
        edges = (
            tuple(permutations(units, 2))
            if self.edges is None
            else edges_of(context, units, self.edges)
        )
        return Events(
            edges, number(context, self.flags, "flags", 1), self.scope == "chip",
            number(context, self.maximum, "maximum", 1), self.signal, self.wait,
            number(context, self.signal_cycles, "signal_cycles"),
            number(context, self.wait_cycles, "wait_cycles"),
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Events:
    """Numbered flags that count to `maximum`: a unit signals when its earlier calls are done,
    another waits until the flag is above 0 and takes one from it.

    `edges`: the ordered pairs of units that have flags, `flags` for each, or for all of them
    together (`shared`). `signal` and `wait`: C templates over `source`, `target` and `event`.
    """

    edges: Edges
    flags: int
    shared: bool
    maximum: int
    signal: str
    wait: str
    signal_cycles: int
    wait_cycles: int

    def check(
        self, context: Context, units: tuple[str, ...], conflicts: Iterable[Conflict]
    ) -> None:
        """Raises H127 where two units cannot be ordered, or an edge has no flag."""
        del units
        check_paths(context, conflicts, self.edges, "event")
        needed = len(self.edges) if self.shared else 1
        if self.flags < needed:
            raise context.error(
                "H127", "every edge needs a flag", (*SECTION, "flags"),
                found=f"flags: {self.flags}, edges: {needed}", allowed=f"at least {needed}",
                repair="name only the edges that are used, or write scope: edge",
            )  # fmt: skip

    def templates(self, units: tuple[str, ...]) -> Iterator[tuple[str, str, Used]]:
        """Every template: its field, its text and what it may name."""
        used: Used = {"source": units, "target": units, "event": "text"}
        yield "signal", self.signal, used
        yield "wait", self.wait, used
