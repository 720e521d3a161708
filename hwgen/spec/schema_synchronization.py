"""What a user may write about synchronization: any of its kinds, each in a module of its own."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from hwgen.spec.context import Context
from hwgen.spec.fields import Model
from hwgen.spec.sync_barriers import BarriersSchema
from hwgen.spec.sync_common import CompletionSchema
from hwgen.spec.sync_events import EventsSchema
from hwgen.spec.sync_scoreboard import ScoreboardSchema
from hwgen.spec.sync_tokens import TokensSchema


class NoSynchronizationSchema(Model):
    """One in-order unit."""

    kind: Literal["none"]
    """Nothing to emit."""
    completion: CompletionSchema | None = None
    """How a kernel ends; left out: when its calls have ended."""

    def resolved(self, context: Context, units: tuple[str, ...]) -> None:
        """Nothing orders units, of which there is one."""


AnySynchronization = Annotated[
    TokensSchema | BarriersSchema | EventsSchema | ScoreboardSchema | NoSynchronizationSchema,
    Field(discriminator="kind"),
]

MODULES = tuple(
    f"hwgen.spec.{name}"
    for name in (
        "sync_common", "sync_tokens", "sync_barriers", "sync_events", "sync_scoreboard",
        "schema_synchronization",
    )
)  # fmt: skip
"""Where the models are, in the order of the documentation."""
