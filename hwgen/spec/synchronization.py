"""How a kernel ends; whether a chip's synchronization (`sync_*.py`) can order what needs order."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from hwgen.spec.context import Context, reference
from hwgen.spec.hardware import Completion, HardwareSpec, Intrinsic
from hwgen.spec.schema import HardwareSchema
from hwgen.spec.source import FieldPath
from hwgen.spec.sync_common import SECTION, Conflict, Used, pairs_text


def resolve_completion(context: Context, schema: HardwareSchema) -> Completion | None:
    """How a kernel ends.

    Raises:
        HwgenError: H113 an unknown unit, H02x numbers.
    """
    completion = schema.synchronization.completion if schema.synchronization else None
    if completion is None:
        return None
    path: FieldPath = (*SECTION, "completion")
    reference(context, (*path, "unit"), "unit", completion.unit, schema.units)
    for i, unit in enumerate(completion.wait_units):
        reference(context, (*path, "wait_units", i), "unit", unit, schema.units)
    return Completion(
        completion.unit,
        tuple(completion.wait_units),
        context.integer(completion.cycles, (*path, "cycles"), 0),
        context.integer(completion.extra_cycles, (*path, "extra_cycles"), 0),
    )


def check_synchronization(context: Context, hardware: HardwareSpec) -> None:
    """Units that touch one memory can be ordered; the kernel's end uses what there is.

    Raises:
        HwgenError: H127.
    """
    _check_completion(context, hardware)
    if hardware.synchronization is None:
        _check_one_unit(context, hardware)
    else:
        hardware.synchronization.check(context, tuple(hardware.unit), _conflicts(hardware))


def _check_completion(context: Context, hardware: HardwareSpec) -> None:
    """The last call waits for units that have a token queue to it, and for no others."""
    completion = hardware.completion
    if completion is None:
        return
    path = (*SECTION, "completion", "wait_units")
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
                found=f"[{unit}, {completion.unit}]", allowed=pairs_text(hardware.tokens.edges),
            )  # fmt: skip


def _check_one_unit(context: Context, hardware: HardwareSpec) -> None:
    for found in _conflicts(hardware):
        raise context.error(
            "H127", f"nothing orders unit {found.second_unit!r} after {found.first_unit!r}",
            (*SECTION, "kind"), found=str(found),
            allowed="tokens, barrier, events, scoreboard; none for one unit",
            repair="write kind: scoreboard if the chip orders conflicting calls itself, kind: "
            "barrier with `emit` if a call waits for a unit, or another one with its calls",
        )  # fmt: skip


def _conflicts(hardware: HardwareSpec) -> Iterator[Conflict]:
    """Pairs of intrinsics on different units with a memory that both touch and one writes."""
    on_units = [i for i in hardware.intrinsics if i.unit]
    for first, second in product(on_units, on_units):
        shared = _shared(first, second)
        if first.unit != second.unit and shared:
            yield Conflict(first.name, first.unit, second.name, second.unit, shared)


def _shared(first: Intrinsic, second: Intrinsic) -> str:
    for a, b in product(first.operands, second.operands):
        if a.memory == b.memory and (a.access != "read" or b.access != "read"):
            return a.memory
    return ""


def synchronization_templates(hardware: HardwareSpec) -> Iterator[tuple[str, str, Used]]:
    """Every template: its field, its text and what it may name besides parameters."""
    if hardware.synchronization is not None:
        yield from hardware.synchronization.templates(tuple(hardware.unit))


def fences(hardware: HardwareSpec) -> Iterator[str]:
    """The C texts that wait for every unit."""
    for name, text, _ in synchronization_templates(hardware):
        if name in ("fence", "emit_all") and text.strip():
            yield text.strip()
