"""What belongs to a run of calls: C loops around them, operands that stay in the unit, and the
state that calls depend on."""

from __future__ import annotations

from hwgen.spec.context import Context, reference
from hwgen.spec.hardware import Configuration, HardwareLoop, Issue, Stationary, StrideRule, Unroll
from hwgen.spec.ranges import Range
from hwgen.spec.schema import HardwareSchema, IntrinsicSchema
from hwgen.spec.semantics import Semantics
from hwgen.spec.source import FieldPath

SOFTWARE_EXTENT = Range(1, 2**31 - 1)
SOFTWARE_STRIDE = Range(0, 2**40)
MAX_SOFTWARE_LOOPS = 12
SOFTWARE_NAMES = tuple(f"software{n}" for n in range(MAX_SOFTWARE_LOOPS))


def software_loops(
    context: Context, path: FieldPath, fields: IntrinsicSchema, semantics: Semantics
) -> tuple[HardwareLoop, ...]:
    """The C loops that may stand around a call: any extent, any constant steps.

    Raises:
        HwgenError: H026 where it is no number of loops, H135 too many, or with a micro-kernel.
    """
    where = (*path, "software_loops")
    count = context.integer(fields.software_loops, where, 0)
    if count > MAX_SOFTWARE_LOOPS:
        raise context.error(
            "H135", "too many loops around a call", where, found=str(count),
            allowed=f"0..{MAX_SOFTWARE_LOOPS}", repair=f"write {MAX_SOFTWARE_LOOPS}",
        )  # fmt: skip
    if count and fields.micro_kernel is not None:
        raise context.error(
            "H135", "a micro-kernel has its own loops", where, key=True, found=str(count),
            allowed="software_loops without micro_kernel", repair="remove software_loops",
        )  # fmt: skip
    strides = tuple((operand, StrideRule(SOFTWARE_STRIDE)) for operand in semantics.indices)
    return tuple(
        HardwareLoop(name, SOFTWARE_EXTENT, strides, software=True)
        for name in SOFTWARE_NAMES[:count]
    )


def stationary(
    context: Context, path: FieldPath, fields: IntrinsicSchema, semantics: Semantics
) -> Stationary | None:
    """The operand that a unit holds.

    Raises:
        HwgenError: H113 where there is no such operand, H135 where it is written, moves inside a
            call, or nothing repeats calls.
    """
    given = fields.stationary
    if given is None:
        return None
    where = (*path, "stationary", "operand")
    reference(context, where, "operand", given.operand, semantics.indices)
    moving = [
        n for n, loop in fields.loops.items() if str(loop.strides.get(given.operand, 0)) != "0"
    ]
    problem = ""
    if semantics.access[given.operand] != "read":
        problem = "is written"
    elif moving:
        problem = f"moves in hardware loop {moving[0]}"
    elif not fields.software_loops:
        problem = "stays in a unit that nothing repeats calls of: there are no software_loops"
    if problem:
        raise context.error(
            "H135", f"operand {given.operand!r} cannot be stationary: it {problem}", where,
            found=given.operand, allowed="an operand that is read and does not move in a call",
            repair="remove stationary, or name another operand",
        )  # fmt: skip
    cycles = context.integer(given.cycles, (*path, "stationary", "cycles"), 0)
    return Stationary(given.operand, cycles, given.overlaps)


def configuration_state(context: Context, schema: HardwareSchema, name: str) -> Configuration:
    """One piece of the chip's state.

    Raises:
        HwgenError: H113 unknown unit, H129 a field with a name that is taken, H135 no register or
            no field.
    """
    given, path = schema.configurations[name], ("configurations", name)
    reference(context, (*path, "unit"), "unit", given.unit, schema.units)
    for field, values in (("registers", given.registers), ("fields", given.fields)):
        if not values:
            raise context.error(
                "H135", f"configuration {name!r} has no {field}", (*path, field), key=True,
                found="none", allowed="one or more",
            )  # fmt: skip
    taken = {"register": "word of its template"} | dict.fromkeys(context.values, "parameter")
    for number, field in enumerate(given.fields):
        if field in taken:
            raise context.error(
                "H129", f"two things share the name {field!r}: {taken[field]} and field",
                (*path, "fields", number), found=field, allowed="a name of its own",
                repair="rename the field",
            )  # fmt: skip
        taken[field] = "field"
    return Configuration(
        name,
        given.unit,
        tuple(tuple(register.items()) for register in given.registers),
        tuple(given.fields),
        given.emit,
        context.integer(given.cycles, (*path, "cycles"), 0),
    )


def configuration(
    context: Context, path: FieldPath, fields: IntrinsicSchema, schema: HardwareSchema
) -> tuple[tuple[str, tuple[tuple[str, str], ...]], ...]:
    """What a call needs the chip's state to be.

    Raises:
        HwgenError: H113 unknown configuration, H135 other fields than it has, or another unit.
    """
    for name, needed in fields.configuration.items():
        where = (*path, "configuration", name)
        reference(context, where, "configuration", name, schema.configurations)
        given = schema.configurations[name]
        if set(needed) != set(given.fields):
            raise context.error(
                "H135", f"a call needs every field of configuration {name!r}", where, key=True,
                found=", ".join(needed) or "none", allowed=", ".join(given.fields),
            )  # fmt: skip
        if given.unit != fields.unit:
            raise context.error(
                "H135", f"configuration {name!r} is of another unit", where, key=True,
                found=str(fields.unit), allowed=given.unit,
                repair="writes and calls keep their order on one unit only",
            )  # fmt: skip
    return tuple(
        (name, tuple((field, needed[field]) for field in schema.configurations[name].fields))
        for name, needed in fields.configuration.items()
    )


def issue(context: Context, schema: HardwareSchema) -> Issue | None:
    """The host that issues calls.

    Raises:
        HwgenError: H135 where calls are fetched too.
    """
    if schema.issue is None:
        return None
    if schema.fetch is not None:
        raise context.error(
            "H135", "calls are either fetched or issued", ("issue",), key=True,
            found="fetch and issue", allowed="one of them", repair="remove one",
        )  # fmt: skip
    given = schema.issue
    unroll = None
    if given.unroll is not None:
        extent = context.range(given.unroll.extent, ("issue", "unroll", "extent"), 2)
        unroll = Unroll(extent, given.unroll.emit)
    return Issue(
        context.integer(given.cycles, ("issue", "cycles"), 1),
        context.integer(given.operand_cycles, ("issue", "operand_cycles"), 0),
        context.integer(given.loop_cycles, ("issue", "loop_cycles"), 0),
        unroll,
    )
