"""Tokens: counting queues between units."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from hwgen.spec.context import Context
from hwgen.spec.fields import IntExpr, Model
from hwgen.spec.schema_processor import Template
from hwgen.spec.sync_common import (
    CompletionSchema,
    Conflict,
    Edges,
    EdgeSchema,
    Used,
    check_paths,
    edges_of,
    number,
)


class TokensSchema(Model):
    """Synchronization by counting queues between units."""

    kind: Literal["tokens"]
    """Dependence tokens."""
    edges: list[EdgeSchema]
    """Pairs [source, target] of units that have a queue."""
    push: Template
    """C text of a push. It names `source` and `target`, which are units."""
    pop: Template
    """C text of a pop. It names `source` and `target`, which are units."""
    nop_cycles: IntExpr = 0
    """Duration of the empty call that carries a push."""
    completion: CompletionSchema | None = None
    """How a kernel ends; left out: when its calls have ended."""

    def resolved(self, context: Context, units: tuple[str, ...]) -> Tokens:
        """Raises H113, H127, H02x."""
        edges = edges_of(context, units, self.edges)
        return Tokens(edges, self.push, self.pop, number(context, self.nop_cycles, "nop_cycles"))


@dataclass(frozen=True, slots=True)
class Tokens:
    """Counting queues between units: a push after a call of `source` lets a pop before a call
    of `target` pass. `edges`: the ordered pairs of units that have a queue.

    `nop_cycles`: duration of the empty call that carries a push when the stream's last call is
    not of the pushing unit. `push`/`pop`: C templates over `source` and `target`.
    """

    edges: Edges
    push: str
    pop: str
    nop_cycles: int

    def check(
        self, context: Context, units: tuple[str, ...], conflicts: Iterable[Conflict]
    ) -> None:
        """Raises H127 where two units cannot be ordered."""
        del units
        check_paths(context, conflicts, self.edges, "token")

    def templates(self, units: tuple[str, ...]) -> Iterator[tuple[str, str, Used]]:
        """Every template: its field, its text and what it may name."""
        ends: Used = {"source": units, "target": units}
        yield "push", self.push, ends
        yield "pop", self.pop, ends
