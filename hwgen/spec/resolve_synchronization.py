"""What a user wrote about synchronization (`sync_*.py`) to data, and how a kernel ends."""

from __future__ import annotations

from hwgen.spec.context import Context, reference
from hwgen.spec.hardware import Completion, Synchronization
from hwgen.spec.schema import HardwareSchema
from hwgen.spec.source import FieldPath
from hwgen.spec.sync_common import SECTION


def resolve_synchronization(context: Context, schema: HardwareSchema) -> Synchronization | None:
    """How calls on different units are ordered; None where there is no need.

    Raises:
        HwgenError: H113 an unknown unit, H127 pairs and calls that make no sense, H02x numbers.
    """
    given = schema.synchronization
    return None if given is None else given.resolved(context, tuple(schema.units))


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
