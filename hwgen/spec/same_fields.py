"""Operands whose fields must hold what another operand's do."""

from __future__ import annotations

from hwgen.spec.context import Context
from hwgen.spec.hardware import Intrinsic, Operand
from hwgen.spec.source import FieldPath


def check_same(context: Context, intrinsic: Intrinsic) -> None:
    """Hold every operand with `same_as` against the one that it names.

    Raises:
        HwgenError: H140 no call could give both the same, or the other is not written.
    """
    for operand in intrinsic.operands:
        if operand.same_as:
            _check(context, intrinsic, operand)


def _check(context: Context, intrinsic: Intrinsic, operand: Operand) -> None:
    path: FieldPath = ("intrinsics", intrinsic.name, "operands", operand.name, "same_as")
    written = [o.name for o in intrinsic.operands if o.access != "read"]
    if operand.same_as not in written or operand.access != "read":
        raise context.error(
            "H140", "an operand that is read may be the same as the one that is written", path,
            found=operand.same_as, allowed=", ".join(written),
            repair="name the written operand in an operand that is read",
        )  # fmt: skip
    other = intrinsic.operand(operand.same_as)
    for what, mine, theirs in (
        ("memory", operand.memory, other.memory),
        ("data type", operand.dtype, other.dtype),
        ("indices", ", ".join(operand.indices), ", ".join(other.indices)),
        ("extents", f"{operand.shape} past {operand.offset}", f"{other.shape} past {other.offset}"),
    ):
        if mine != theirs:
            raise context.error(
                "H140", f"operand {operand.name!r} differs from {other.name!r} in its {what}",
                path, found=mine, allowed=theirs, repair="what two names of one array have alike",
            )  # fmt: skip
    fields = [("address", operand.address, other.address)]
    for loop in intrinsic.loops:
        mine, theirs = loop.stride(operand.name), loop.stride(other.name)
        fields.append((f"stride in loop {loop.name}", mine.range, theirs.range))
    for what, mine, theirs in fields:
        if max(mine.minimum, theirs.minimum) > min(mine.maximum, theirs.maximum):
            raise context.error(
                "H140", f"operand {operand.name!r} never has the {what} of {other.name!r}", path,
                found=f"{operand.name} {mine}", allowed=f"{other.name} {theirs}",
                repair="ranges that have a number in common",
            )  # fmt: skip
