"""Barriers: calls that wait for a unit, or for all of them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from hwgen.spec.context import Context, reference
from hwgen.spec.fields import IntExpr, Model, Name, RangeExpr
from hwgen.spec.schema_processor import Template
from hwgen.spec.sync_common import SECTION, CompletionSchema, Conflict, Used, number


class BarriersSchema(Model):
    """Synchronization by calls that wait for a unit, or for all of them."""

    kind: Literal["barrier"]
    """Barriers."""
    emit: Template | None = None
    """C text of a wait for one unit. It names `unit` and, with the field, `outstanding`. Left out:
    only `emit_all` exists."""
    emit_all: Template | None = None
    """C text of a wait for all units; left out: only `emit` exists."""
    units: Annotated[list[Name], Field(min_length=1)] | None = None
    """Units that `emit` can wait for; left out: every unit."""
    outstanding: RangeExpr = 0
    """Numbers of the unit's latest calls that may still run when `emit` returns, as `0..most`; 0:
    none may."""
    cycles: IntExpr = 0
    """Cycles from the end of the awaited calls to the first later call."""
    completion: CompletionSchema | None = None
    """How a kernel ends; left out: when its calls have ended."""

    def resolved(self, context: Context, units: tuple[str, ...]) -> Barriers:
        """Raises H113, H127, H02x."""
        if not self.emit and not self.emit_all:
            raise context.error(
                "H127", "there is no call that waits", SECTION, key=True,
                found="neither emit nor emit_all", allowed="emit, emit_all, or both",
                repair="add emit, the C text of a wait for one unit",
            )  # fmt: skip
        if self.units is not None and not self.emit:
            raise context.error(
                "H127", "units that no call can wait for", (*SECTION, "units"), key=True,
                found="units without emit", allowed="units with emit", repair="add emit",
            )  # fmt: skip
        awaited = self.units if self.units is not None else list(units)
        for i, unit in enumerate(awaited):
            where = (*SECTION, "units", i)
            reference(context, where, "unit", unit, dict.fromkeys(units))
            if unit in awaited[:i]:
                raise context.error(
                    "H127", f"{unit!r} stands twice", where, found=unit, allowed="each once",
                    repair="remove it",
                )  # fmt: skip
        return Barriers(
            tuple(awaited) if self.emit else (), self.emit or "", self.emit_all or "",
            number(context, self.cycles, "cycles"), self._most(context),
        )  # fmt: skip

    def _most(self, context: Context) -> int:
        """How many calls may still run at most, which the text of the wait must say."""
        where = (*SECTION, "outstanding")
        found = context.range(self.outstanding, where, 0)
        if found.minimum:
            raise context.error(
                "H127", "a wait must be able to leave no call running", where, found=str(found),
                allowed=f"0..{found.maximum}", repair="begin at 0",
            )  # fmt: skip
        if found.maximum and not re.search(r"{[{%][^}]*\boutstanding\b", self.emit or ""):
            raise context.error(
                "H127", "no wait says how many calls may still run", where, key=True,
                found=f"outstanding: {found}, emit: {self.emit or 'none'}",
                allowed="an emit that names `outstanding`",
                repair="write {{ outstanding }} in emit, or remove the field",
            )  # fmt: skip
        return found.maximum


@dataclass(frozen=True, slots=True)
class Barriers:
    """Calls that wait: what comes later in the program begins when they have ended.

    `units`: those that one call can wait for, with `emit`, a C template over `unit`; none where
    `emit` is "". `emit_all` waits for all units; "" where there is no such call. `cycles`: from
    the end of what is waited for to the first later call. `outstanding`: of the unit's calls
    before it, up to so many of the latest may be left out, of which `emit` then says how many.
    """

    units: tuple[str, ...]
    emit: str
    emit_all: str
    cycles: int
    outstanding: int = 0

    def check(
        self, context: Context, units: tuple[str, ...], conflicts: Iterable[Conflict]
    ) -> None:
        """Raises H127 where a call may have to wait for a unit that none can wait for."""
        for found in conflicts:
            if not self.emit_all and found.first_unit not in self.units:
                raise context.error(
                    "H127", f"no barrier can wait for unit {found.first_unit!r}",
                    (*SECTION, "units"), key=True, found=str(found), allowed=", ".join(units),
                    repair=f"add {found.first_unit}, or emit_all",
                )  # fmt: skip

    def templates(self, units: tuple[str, ...]) -> Iterator[tuple[str, str, Used]]:
        """Every template: its field, its text and what it may name."""
        del units
        if self.emit:
            used: Used = {"unit": self.units}
            yield "emit", self.emit, {**used, "outstanding": "number"} if self.outstanding else used
        yield "emit_all", self.emit_all, {}
