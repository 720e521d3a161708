"""Operands of intrinsics: where they live, and what their fields hold."""

from __future__ import annotations

from dataclasses import replace
from math import prod

from hwgen.spec.context import Context
from hwgen.spec.hardware import Operand
from hwgen.spec.memory import Access as AccessKind
from hwgen.spec.memory import Memory
from hwgen.spec.ranges import Range
from hwgen.spec.schema import HardwareSchema, IntrinsicSchema, OperandSchema
from hwgen.spec.semantics import Indices
from hwgen.spec.source import FieldPath

OFFCHIP_ADDRESS = Range(0, (1 << 48) - 1)
ANY = "any"
"""Of an operand's memory: wherever a processor can address; of a stride: whatever it is."""
ANY_STRIDE = Range(0, (1 << 48) - 1)


def check_places(
    context: Context, path: FieldPath, fields: IntrinsicSchema, schema: HardwareSchema
) -> bool:
    """Whether an intrinsic runs on the processor and takes pointers, not on a unit.

    Raises:
        HwgenError: H134 it is neither the one nor the other.
    """
    anywhere = [n for n, o in fields.operands.items() if o.memory == ANY]
    for name, operand in fields.operands.items():
        where = (*path, "operands", name)
        if anywhere and operand.memory != ANY:
            raise context.error(
                "H134", f"operand {name!r} has a memory while {anywhere[0]!r} may be in any",
                (*where, "memory"), found=operand.memory, allowed="any, as the others",
                repair="write memory: any for all operands, or for none",
            )  # fmt: skip
        given = (
            ("address", operand.address), ("written_by", operand.written_by),
            ("same_as", operand.same_as),
        )  # fmt: skip
        for field, value in given if anywhere else (("strides", operand.strides),):
            if value not in (None, []):
                raise context.error(
                    "H134", f"an operand in {'any' if anywhere else 'one'} memory has no {field}",
                    (*where, field), key=True, found=field,
                    allowed="memory, dtype, strides" if anywhere else "memory, dtype, address, "
                    "written_by, same_as", repair=f"remove {field}",
                )  # fmt: skip
    if not anywhere:
        if fields.unit is None:
            raise context.error(
                "H134", "an intrinsic whose operands have memories runs on a unit", path, key=True,
                found="no unit", allowed=", ".join(schema.units) or "declare one under `units`",
                repair=f"add {' or '.join(f'`unit: {u}`' for u in schema.units) or '`unit`'}, "
                "or write memory: any for its operands",
            )  # fmt: skip
        return False
    if schema.processor is None:
        raise context.error(
            "H134", "memory: any is what a processor can address, and there is none",
            (*path, "operands", anywhere[0], "memory"), found=ANY,
            allowed=", ".join(schema.memories), repair="name a memory, or add a `processor`",
        )  # fmt: skip
    for field, value in (
        ("unit", fields.unit), ("loops", fields.loops), ("micro_kernel", fields.micro_kernel),
        ("result_latency_iterations", fields.result_latency_iterations),
        ("software_loops", fields.software_loops), ("stationary", fields.stationary),
        ("energy", fields.energy),
        ("instructions", fields.instructions != 1), ("configuration", fields.configuration),
    ):  # fmt: skip
        if value:
            raise context.error(
                "H134", f"an intrinsic with operands in any memory has no {field}", (*path, field),
                key=True, found=field,
                allowed="iterators, semantics, operands, immediates, cycles, emit",
                repair=f"remove {field}: the processor runs it",
            )  # fmt: skip
    return True


def _strides(
    context: Context, path: FieldPath, schema: OperandSchema, shape: tuple[int, ...]
) -> tuple[Range, ...]:
    """Elements from one index to the next, per dimension; dense where nothing is said."""
    if schema.strides is None:
        dense = [prod(shape[d + 1 :]) for d in range(len(shape))]
        return tuple(Range(s, s) for s in dense)
    where = (*path, "strides")
    if len(schema.strides) != len(shape):
        raise context.error(
            "H134", "an operand has one stride per dimension", where,
            found=f"{len(schema.strides)} strides", allowed=f"{len(shape)}: {_shape(shape)}",
        )  # fmt: skip
    return tuple(
        ANY_STRIDE if text == ANY else context.range(text, (*where, d), 0)
        for d, text in enumerate(schema.strides)
    )


def resolve_operand(
    context: Context,
    path: FieldPath,
    schema: OperandSchema,
    memory: Memory | None,
    *,
    shape: tuple[int, ...],
    access: AccessKind,
    indices: Indices,
) -> Operand:
    """An operand, its shape fitted to its memory's entry; without a memory, its strides.

    Raises:
        HwgenError: H116 data type, H117 shape, H121 address range, H134 strides.
    """
    name = str(path[-1])
    if memory is None:
        if schema.dtype is None:
            raise context.error(
                "H116", f"operand {name!r} needs a data type: any memory has none of its own",
                path, key=True, found="no dtype", repair="add dtype, as {memory: any, dtype: int8}",
            )  # fmt: skip
        strides = _strides(context, path, schema, shape)
        return Operand(
            name,
            "",
            schema.dtype,
            access,
            shape,
            ANY_STRIDE,
            strides=strides,
            indices=indices.names,
        )
    if memory.kind == "offchip":
        if schema.dtype is None:
            raise context.error(
                "H116", f"operand {name!r} needs a data type: off-chip memory has none of its own",
                path, key=True, found="no dtype", repair="add dtype, as {memory: "
                f"{memory.name}, dtype: int8}}",
            )  # fmt: skip
        dtype, highest = schema.dtype, OFFCHIP_ADDRESS
        rank = 0 if memory.by_element else len(shape)
    else:
        dtype, highest = schema.dtype or memory.dtype, Range(0, memory.capacity_entries - 1)
        if dtype != memory.dtype:
            raise context.error(
                "H116", f"operand {name!r} differs in type from its memory", (*path, "dtype"),
                found=dtype, allowed=memory.dtype,
                repair="remove dtype, and cast in the semantics",
            )  # fmt: skip
        rank = len(memory.entry_shape)
        if rank and shape[-rank:] != memory.entry_shape:
            raise context.error(
                "H117", f"operand {name!r} does not fit the entries of memory {memory.name!r}",
                path, key=True, found=_shape(shape),
                allowed=f"trailing dimensions {_shape(memory.entry_shape)}, one entry",
                repair="index it by iterators with those extents, in that order",
            )  # fmt: skip
    address = highest
    if schema.address is not None:
        address = context.values_of(schema.address, (*path, "address"), 0)
        if address.minimum > highest.maximum:
            raise context.error(
                "H121", "the address range lies outside the memory", (*path, "address"),
                found=str(address), allowed=f"{highest} ({memory.capacity_entries} entries)",
            )  # fmt: skip
        if address.among or address.minimum % address.step:
            ends = address.among if len(address.among) == 2 else ()
            raise context.error(
                "H142", "addresses are all of a range, or the multiples of a number in it",
                (*path, "address"), found=str(address), allowed="low..high, or low..high step n "
                "where low is a multiple of n",
                repair=f"write {ends[0]}..{ends[1]}" if ends else "begin at 0",
            )  # fmt: skip
    if indices.offset % address.step:
        raise context.error(
            "H154", f"operand {name!r} begins between two addresses of its field",
            (*path, "address"), found=f"{indices.offset} entries before the first that is read, "
            f"addresses {address}", allowed=f"a multiple of {address.step} entries",
            repair="begin at the first entry that is read: the template can add to its address",
        )  # fmt: skip
    address = replace(
        address, minimum=address.minimum + indices.offset, maximum=address.maximum + indices.offset
    )
    return Operand(
        name, memory.name, dtype, access, shape, address, tuple(schema.written_by),
        indices=indices.names, rows=len(shape) - rank, same_as=schema.same_as or "",
        beyond=indices.beyond if any(indices.beyond) else (), offset=indices.offset,
    )  # fmt: skip


def _shape(shape: tuple[int, ...]) -> str:
    return " x ".join(map(str, shape)) or "a single element"
