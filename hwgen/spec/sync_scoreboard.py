"""A scoreboard: hardware that orders conflicting calls on chip by itself, and a fence."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from hwgen.spec.context import Context
from hwgen.spec.fields import IntExpr, Model
from hwgen.spec.schema_processor import Template
from hwgen.spec.sync_common import CompletionSchema, Conflict, Used, number


class ScoreboardSchema(Model):
    """Hardware that orders conflicting accesses to on-chip memories by itself."""

    kind: Literal["scoreboard"]
    """A scoreboard, or a reservation station."""
    cycles: IntExpr = 0
    """Cycles from the end of a call to the start of one that conflicts with it."""
    renames: bool = False
    """True if every write gets a fresh place. A call then waits only for the writers of the entries
    that it reads, and double buffering gains nothing."""
    fence: Template | None = None
    """C text that waits for all calls, for conflicts in off-chip memory; left out: none."""
    fence_cycles: IntExpr = 0
    """Cycles from the end of the awaited calls to the first later call."""
    completion: CompletionSchema | None = None
    """How a kernel ends; left out: when its calls have ended."""

    def resolved(self, context: Context, units: tuple[str, ...]) -> Scoreboard:
        """Raises H02x."""
        del units
        return Scoreboard(
            number(context, self.cycles, "cycles"), self.fence or "",
            number(context, self.fence_cycles, "fence_cycles"), self.renames,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Scoreboard:
    """The chip starts a call when the earlier ones that touch the same on-chip entries (one of
    them writing) are done, `cycles` after the end of the last. Conflicts off chip need a `fence`
    (C text; "" where there is none), which waits for all calls and takes `fence_cycles`. Where it
    `renames`, a call waits for the writers of what it reads, and for no other."""

    cycles: int
    fence: str
    fence_cycles: int
    renames: bool = False

    def check(
        self, context: Context, units: tuple[str, ...], conflicts: Iterable[Conflict]
    ) -> None:
        """Nothing: any two calls are ordered."""

    def templates(self, units: tuple[str, ...]) -> Iterator[tuple[str, str, Used]]:
        """Every template: its field, its text and what it may name."""
        del units
        yield "fence", self.fence, {}
