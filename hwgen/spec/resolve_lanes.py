"""Iterators of an intrinsic: their extents, and those of which a call may let fewer take part."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

from hwgen.spec.context import Context
from hwgen.spec.hardware import Operand
from hwgen.spec.memory import Memory
from hwgen.spec.schema import IntrinsicSchema
from hwgen.spec.source import FieldPath


def lanes(
    context: Context, path: FieldPath, fields: IntrinsicSchema
) -> tuple[dict[str, int], tuple[str, ...]]:
    """The extents of an intrinsic's iterators, and the partial ones: those with a range.

    Raises:
        HwgenError: H02x and H026 as for every number, H136 a range that does not begin with 1, or
            one of an intrinsic whose calls have no field for it.
    """
    extents: dict[str, int] = {}
    partial: list[str] = []
    for name, text in fields.iterators.items():
        where = (*path, "iterators", name)
        given = context.range(text, where, 1)
        extents[name] = given.maximum
        if given.minimum == given.maximum:
            continue
        problem = ""
        if given.minimum != 1:
            problem = "fewer lanes may be as few as one"
        elif fields.micro_kernel is not None:
            problem = "in a micro-kernel all lanes take part"
        elif fields.unit is None:
            problem = "on a processor all lanes take part"
        if problem:
            raise context.error(
                "H136", f"iterator {name!r} cannot have a range: {problem}", where,
                found=str(text), allowed=f"1..{given.maximum}" if given.minimum != 1
                else str(given.maximum), repair=f"write {given.maximum}"
                if given.minimum == 1 else f"write 1..{given.maximum}",
            )  # fmt: skip
        partial.append(name)
    return extents, tuple(partial)


def check_partial(
    context: Context,
    path: FieldPath,
    partial: Sequence[str],
    operands: Sequence[Operand],
    memories: Mapping[str, Memory],
) -> None:
    """What fewer lanes touch must be consecutive entries, on chip and off.

    Raises:
        HwgenError: H136.
    """
    for operand in operands:
        inner = [
            name
            for n, name in enumerate(operand.indices[: operand.rows])
            if name in partial and prod(operand.shape[:n]) > 1
        ]
        where = (*path, "operands", operand.name)
        if inner:
            raise context.error(
                "H136", f"fewer lanes of {inner[0]!r} would leave gaps in operand {operand.name!r}",
                where, key=True, found=f"{operand.name}[{', '.join(operand.indices)}]",
                allowed="a range for the outermost iterator outside an entry, or for one inside",
                repair=f"give {inner[0]!r} one number, or index {operand.name} by it first",
            )  # fmt: skip
        if operand.memory and memories[operand.memory].kind == "offchip":
            cut = [i for i in operand.indices[operand.rows :] if i in partial]
            if cut:
                raise context.error(
                    "H136", f"fewer lanes of {cut[0]!r} are no whole entry of {operand.memory!r}",
                    where, key=True, found=f"{operand.memory} addressed by entries",
                    allowed="memories addressed by elements",
                    repair=f"add `addressing: elements` to {operand.memory}",
                )  # fmt: skip
