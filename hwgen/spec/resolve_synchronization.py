"""What a user wrote about synchronization (`schema_synchronization.py`) to data (`hardware.py`)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations

from hwgen.spec.context import Context, reference
from hwgen.spec.hardware import (
    Barriers,
    Completion,
    Events,
    Scoreboard,
    Synchronization,
    Tokens,
)
from hwgen.spec.schema import HardwareSchema
from hwgen.spec.schema_synchronization import (
    BarriersSchema,
    EventsSchema,
    NoSynchronizationSchema,
    ScoreboardSchema,
    TokensSchema,
)
from hwgen.spec.source import FieldPath

SECTION: FieldPath = ("synchronization",)


def resolve_synchronization(context: Context, schema: HardwareSchema) -> Synchronization | None:
    """How calls on different units are ordered; None where there is no need.

    Raises:
        HwgenError: H113 an unknown unit, H127 pairs and calls that make no sense, H02x numbers.
    """
    given = schema.synchronization

    def number(text: int | str, name: str, least: int = 0) -> int:
        return context.integer(text, (*SECTION, name), least)

    match given:
        case None | NoSynchronizationSchema():
            return None
        case TokensSchema():
            edges = _edges(context, schema, given.edges)
            return Tokens(edges, given.push, given.pop, number(given.nop_cycles, "nop_cycles"))
        case BarriersSchema():
            return _barriers(context, schema, given)
        case EventsSchema():
            pairs = given.edges
            edges = (
                tuple(permutations(schema.units, 2))
                if pairs is None
                else _edges(context, schema, pairs)
            )
            return Events(
                edges, number(given.flags, "flags", 1), given.scope == "chip",
                number(given.maximum, "maximum", 1), given.signal, given.wait,
                number(given.signal_cycles, "signal_cycles"),
                number(given.wait_cycles, "wait_cycles"),
            )  # fmt: skip
        case ScoreboardSchema():
            return Scoreboard(
                number(given.cycles, "cycles"), given.fence or "",
                number(given.fence_cycles, "fence_cycles"),
            )  # fmt: skip


def _barriers(context: Context, schema: HardwareSchema, given: BarriersSchema) -> Barriers:
    if not given.emit and not given.emit_all:
        raise context.error(
            "H127", "there is no call that waits", SECTION, key=True,
            found="neither emit nor emit_all", allowed="emit, emit_all, or both",
            repair="add emit, the C text of a wait for one unit",
        )  # fmt: skip
    if given.units is not None and not given.emit:
        raise context.error(
            "H127", "units that no call can wait for", (*SECTION, "units"), key=True,
            found="units without emit", allowed="units with emit", repair="add emit",
        )  # fmt: skip
    units = given.units if given.units is not None else list(schema.units)
    for i, unit in enumerate(units):
        where = (*SECTION, "units", i)
        reference(context, where, "unit", unit, schema.units)
        if unit in units[:i]:
            raise context.error(
                "H127", f"{unit!r} stands twice", where, found=unit, allowed="each once",
                repair="remove it",
            )  # fmt: skip
    return Barriers(
        tuple(units) if given.emit else (), given.emit or "", given.emit_all or "",
        context.integer(given.cycles, (*SECTION, "cycles"), 0),
    )  # fmt: skip


def _edges(
    context: Context, schema: HardwareSchema, pairs: Sequence[Sequence[str]]
) -> tuple[tuple[str, str], ...]:
    edges: list[tuple[str, str]] = []
    for i, pair in enumerate(pairs):
        path: FieldPath = (*SECTION, "edges", i)
        for j, unit in enumerate(pair):
            reference(context, (*path, j), "unit", unit, schema.units)
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


def resolve_completion(context: Context, schema: HardwareSchema) -> Completion | None:
    """How a kernel ends.

    Raises:
        HwgenError: H113 an unknown unit, H02x numbers.
    """
    completion = schema.synchronization.completion if schema.synchronization else None
    if completion is None:
        return None
    path: FieldPath = ("synchronization", "completion")
    reference(context, (*path, "unit"), "unit", completion.unit, schema.units)
    for i, unit in enumerate(completion.wait_units):
        reference(context, (*path, "wait_units", i), "unit", unit, schema.units)
    return Completion(
        completion.unit,
        tuple(completion.wait_units),
        context.integer(completion.cycles, (*path, "cycles"), 0),
        context.integer(completion.extra_cycles, (*path, "extra_cycles"), 0),
    )
