"""Checks across a resolved chip: whether its synchronization can order what needs order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import product

from hwgen.spec.context import Context
from hwgen.spec.hardware import (
    Barriers,
    Events,
    HardwareSpec,
    Intrinsic,
    Scoreboard,
    Tokens,
    Unit,
)
from hwgen.spec.source import FieldPath

Used = Mapping[str, tuple[Unit, ...]]
"""Names in a template, and the units that each may stand for; none: a number."""


def check_synchronization(context: Context, hardware: HardwareSpec) -> None:
    """Units that touch one memory can be ordered; the kernel's end uses what there is.

    Raises:
        HwgenError: H127.
    """
    _check_completion(context, hardware)
    match hardware.synchronization:
        case None:
            _check_one_unit(context, hardware)
        case Tokens(edges):
            _check_paths(context, hardware, edges, "token")
        case Events(edges, flags, shared):
            _check_paths(context, hardware, edges, "event")
            needed = len(edges) if shared else 1
            if flags < needed:
                raise context.error(
                    "H127", "every edge needs a flag", ("synchronization", "flags"),
                    found=f"flags: {flags}, edges: {needed}", allowed=f"at least {needed}",
                    repair="name only the edges that are used, or write scope: edge",
                )  # fmt: skip
        case Barriers(units, _, emit_all):
            for first, second, memory in _conflicts(hardware):
                if not emit_all and first.unit not in units:
                    raise context.error(
                        "H127", f"no barrier can wait for unit {first.unit!r}",
                        ("synchronization", "units"), key=True,
                        found=f"{first.name} and {second.name} both touch memory {memory}",
                        allowed=", ".join(hardware.unit),
                        repair=f"add {first.unit}, or emit_all",
                    )  # fmt: skip
        case Scoreboard():
            pass


def _check_completion(context: Context, hardware: HardwareSpec) -> None:
    """The last call waits for units that have a token queue to it, and for no others."""
    completion = hardware.completion
    if completion is None:
        return
    path: FieldPath = ("synchronization", "completion", "wait_units")
    if hardware.tokens is None:
        if completion.wait_units:
            raise context.error(
                "H127", "without tokens no unit can push to the last call", path, key=True,
                found=", ".join(completion.wait_units), repair="remove wait_units",
            )  # fmt: skip
        return
    for i, unit in enumerate(completion.wait_units):
        if (unit, completion.unit) not in hardware.tokens.edges:
            raise context.error(
                "H127", f"{unit!r} has no queue to {completion.unit!r}", (*path, i),
                found=f"[{unit}, {completion.unit}]", allowed=_pairs(hardware.tokens.edges),
            )  # fmt: skip


def _check_one_unit(context: Context, hardware: HardwareSpec) -> None:
    for first, second, memory in _conflicts(hardware):
        raise context.error(
            "H127", f"nothing orders unit {second.unit!r} after {first.unit!r}",
            ("synchronization", "kind"), found=f"{first.name} and {second.name} both touch memory "
            f"{memory}", allowed="tokens, barrier, events, scoreboard; none for one unit",
            repair="write kind: scoreboard if the chip orders conflicting calls itself, kind: "
            "barrier with `emit` if a call waits for a unit, or another one with its calls",
        )  # fmt: skip


def _check_paths(
    context: Context, hardware: HardwareSpec, edges: tuple[tuple[str, str], ...], what: str
) -> None:
    """Units that touch one memory can be ordered, through others if need be."""
    reach = {u.name: _reachable(u.name, edges) for u in hardware.units}
    for first, second, memory in _conflicts(hardware):
        if second.unit in reach[first.unit]:
            continue
        raise context.error(
            "H127", f"no {what} can order unit {second.unit!r} after {first.unit!r}",
            ("synchronization", "edges"), key=True,
            found=f"{first.name} and {second.name} both touch memory {memory}; edges "
            f"{_pairs(edges)}", allowed=f"a path from {first.unit} to {second.unit}",
            repair=f"add [{first.unit}, {second.unit}]",
        )  # fmt: skip


def _conflicts(hardware: HardwareSpec) -> Iterator[tuple[Intrinsic, Intrinsic, str]]:
    """Pairs of intrinsics on different units with a memory that both touch and one writes."""
    on_units = [i for i in hardware.intrinsics if i.unit]
    for first, second in product(on_units, on_units):
        shared = _shared(first, second)
        if first.unit != second.unit and shared:
            yield first, second, shared


def _shared(first: Intrinsic, second: Intrinsic) -> str:
    for a, b in product(first.operands, second.operands):
        if a.memory == b.memory and (a.access != "read" or b.access != "read"):
            return a.memory
    return ""


def _reachable(start: str, edges: tuple[tuple[str, str], ...]) -> set[str]:
    found = {start}
    while True:
        more = {t for s, t in edges if s in found} - found
        if not more:
            return found
        found |= more


def _pairs(edges: Iterable[tuple[str, str]]) -> str:
    return ", ".join(f"[{a}, {b}]" for a, b in edges)


def synchronization_templates(hardware: HardwareSpec) -> Iterator[tuple[str, str, Used]]:
    """Every template: its field, its text and what it may name besides parameters."""
    ends: Used = {"source": hardware.units, "target": hardware.units}
    match hardware.synchronization:
        case Tokens(_, push, pop):
            yield "push", push, ends
            yield "pop", pop, ends
        case Events(signal=signal, wait=wait):
            yield "signal", signal, {**ends, "event": ()}
            yield "wait", wait, {**ends, "event": ()}
        case Barriers(units, emit, emit_all):
            if emit:
                yield "emit", emit, {"unit": tuple(hardware.unit[u] for u in units)}
            yield "emit_all", emit_all, {}
        case Scoreboard(fence=fence):
            yield "fence", fence, {}
        case None:
            pass
