"""What a user may write about synchronization: one model for each of its kinds."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from hwgen.spec.fields import IntExpr, Model, Name
from hwgen.spec.schema_processor import Template

Edge = Annotated[list[Name], Field(min_length=2, max_length=2)]


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


class TokensSchema(Model):
    """Synchronization by counting queues between units."""

    kind: Literal["tokens"]
    """Dependence tokens."""
    edges: list[Edge]
    """Pairs [source, target] of units that have a queue."""
    push: Template
    """C text of a push; names `source` and `target` (units)."""
    pop: Template
    """C text of a pop; names `source` and `target` (units)."""
    nop_cycles: IntExpr = 0
    """Duration of the empty call that carries a push."""
    completion: CompletionSchema | None = None
    """How a kernel ends; left out: when its calls have ended."""


class BarriersSchema(Model):
    """Synchronization by calls that wait for a unit, or for all of them."""

    kind: Literal["barrier"]
    """Barriers."""
    emit: Template | None = None
    """C text of a wait for one unit; names `unit`. Left out: there is only `emit_all`."""
    emit_all: Template | None = None
    """C text of a wait for all units; left out: there is only `emit`."""
    units: Annotated[list[Name], Field(min_length=1)] | None = None
    """Units that `emit` can wait for; left out: every unit."""
    cycles: IntExpr = 0
    """From the end of what is waited for to the first later call."""
    completion: CompletionSchema | None = None
    """How a kernel ends; left out: when its calls have ended."""


class EventsSchema(Model):
    """Synchronization by numbered flags that one unit sets and another awaits."""

    kind: Literal["events"]
    """Events, or counting semaphores."""
    edges: list[Edge] | None = None
    """Pairs [source, target] of units that have flags; left out: every pair."""
    flags: IntExpr
    """How many flags there are, numbered from 0."""
    scope: Literal["edge", "chip"] = "edge"
    """Each edge has so many `flags` of its own, or all edges share them."""
    maximum: IntExpr = 1
    """What a flag counts up to: 1 is set or not; more is a counting semaphore."""
    signal: Template
    """C text that adds one to a flag when the source's earlier calls are done; names `source`,
    `target` and `event`, the flag's number."""
    wait: Template
    """C text that lets the target's later calls wait for a flag and takes one from it; names
    `source`, `target` and `event`."""
    signal_cycles: IntExpr = 0
    """Duration of a signal, on its source."""
    wait_cycles: IntExpr = 0
    """Duration of a wait, on its target, once the flag is set."""
    completion: CompletionSchema | None = None
    """How a kernel ends; left out: when its calls have ended."""


class ScoreboardSchema(Model):
    """Hardware that orders conflicting accesses to on-chip memories by itself."""

    kind: Literal["scoreboard"]
    """A scoreboard, or a reservation station."""
    cycles: IntExpr = 0
    """From the end of a call to the start of one that conflicts with it."""
    fence: Template | None = None
    """C text that waits for all calls, for conflicts in off-chip memory; left out: none."""
    fence_cycles: IntExpr = 0
    """From the end of what a fence waits for to the first later call."""
    completion: CompletionSchema | None = None
    """How a kernel ends; left out: when its calls have ended."""


class NoSynchronizationSchema(Model):
    """One in-order unit."""

    kind: Literal["none"]
    """Nothing to emit."""
    completion: CompletionSchema | None = None
    """How a kernel ends; left out: when its calls have ended."""


AnySynchronization = Annotated[
    TokensSchema | BarriersSchema | EventsSchema | ScoreboardSchema | NoSynchronizationSchema,
    Field(discriminator="kind"),
]
