"""Checks across a resolved chip: reachability, synchronisation, costs and templates."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice, product
from math import ceil, isfinite

from hwgen.spec.checks_processor import check_processor, check_teams, processor_templates
from hwgen.spec.context import Context
from hwgen.spec.expression import Expr, evaluate
from hwgen.spec.expression import names as names_of
from hwgen.spec.findings import Findings
from hwgen.spec.hardware import Configuration, HardwareSpec, Intrinsic, MicroKernel, Unit
from hwgen.spec.memory import BANK_CYCLES, Memory
from hwgen.spec.ranges import Range
from hwgen.spec.resolve_memories import bus_readers
from hwgen.spec.resolve_processor import has_units
from hwgen.spec.schema import HardwareSchema
from hwgen.spec.source import Document, FieldPath
from hwgen.spec.suggest import suggestion
from hwgen.spec.synchronization import check_synchronization, fences, synchronization_templates
from hwgen.spec.templates import (
    LITERAL,
    NUMBER,
    TEXT,
    Fields,
    Items,
    Shape,
    TemplateError,
    check_template,
)

_MANY = 1 << 20


def check_hardware(
    hardware: HardwareSpec, schema: HardwareSchema, document: Document, findings: Findings
) -> None:
    """Everything that no single field can tell; of a chip of which parts have errors, what can be
    said of the others.

    Raises:
        HwgenError: H115, H120 to H128, H131 to H133, H145 and, for templates, H124 and H125.
    """
    context = Context(document, dict(hardware.parameters), "parameter", findings)
    whole: list[Callable[[], None]] = []
    if has_units(schema):
        whole += [
            lambda: _check_memories(context, hardware),
            lambda: _check_writers(context, hardware),
            lambda: _check_priorities(context, hardware, schema),
            lambda: check_synchronization(context, hardware),
            lambda: _check_end(context, hardware),
        ]
    if hardware.processor is not None:
        whole.append(lambda: check_processor(context, hardware))
    if has_units(schema):
        whole.append(lambda: check_teams(context, hardware))
    found = list(own_templates(hardware))
    if not findings.errors:  # What a part lacks, one that is missing may have.
        findings.each(whole, lambda check: check())
        found += _synchronization_templates(hardware)
    findings.each(hardware.intrinsics, lambda i: _check_cycles(context, hardware, i))
    findings.each(found, lambda t: _check(context, t))


def _check_memories(context: Context, hardware: HardwareSpec) -> None:
    """Off-chip memory; data can come from it to every other memory, and go back."""
    offchip = [m.name for m in hardware.of_kind("offchip")]
    changing = [m.name for m in hardware.changing]
    if not changing:
        raise context.error(
            "H115", "a chip has an off-chip memory for what changes", ("memories",),
            key=True, found=", ".join(offchip) or "none",
            allowed="a memory with kind: offchip, without constants_only: true",
        )  # fmt: skip
    for verb, access in (("reads", "write"), ("writes", "read")):
        if not any(
            o.memory in changing and o.access != access
            for i in hardware.intrinsics
            for o in i.operands
        ):
            way = "brings data from" if verb == "reads" else "takes data to"
            raise context.error(
                "H126", f"no intrinsic {way} {' or '.join(map(repr, changing))}",
                ("memories", changing[0]), key=True,
                found=f"no intrinsic {verb} it", allowed=f"an intrinsic that {verb} it",
                repair='add an intrinsic with semantics "dst[i] = src[i]", '
                f"{'src' if verb == 'reads' else 'dst'} in memory {changing[0]}",
            )  # fmt: skip
    filled = set(offchip)
    moves = [_moves(i) for i in hardware.intrinsics if i.unit]
    while True:
        # A call can run once every other memory that it reads holds data.
        more = {w for reads, own in moves if reads <= filled | own for w in own} - filled
        if not more:
            break
        filled |= more
    drained = set(offchip)
    while True:
        more = {r for reads, own in moves if own & drained for r in reads} - drained
        if not more:
            break
        drained |= more
    for memory in (m for m in hardware.memories if m.kind != "workspace"):
        path: FieldPath = ("memories", memory.name)
        if memory.name not in filled:
            raise context.error(
                "H126", f"no data can reach memory {memory.name!r}", path, key=True,
                found=_touching(hardware, memory.name, "write") or "no intrinsic writes it",
                allowed=f"a chain of intrinsics from {offchip[0]} to it",
                repair=f'add an intrinsic that loads it: semantics "{_copy(memory)}", dst in '
                f"memory {memory.name}, src in {offchip[0]}; or remove {memory.name}",
            )  # fmt: skip
        if memory.name not in drained:
            raise context.error(
                "H126", f"no data can leave memory {memory.name!r} for {offchip[0]}", path,
                key=True,
                found=_touching(hardware, memory.name, "read") or "no intrinsic reads it",
                allowed=f"a chain of intrinsics from it to {offchip[0]}",
                repair=f"add an intrinsic that reads {memory.name} and writes towards {offchip[0]}",
            )  # fmt: skip


def _copy(memory: Memory) -> str:
    """A statement that copies one entry."""
    rank = len(memory.entry_shape)
    indices = ", ".join("ijklmn"[:rank]) if rank <= 6 else "..."
    return f"dst[{indices}] = src[{indices}]"


def _moves(intrinsic: Intrinsic) -> tuple[frozenset[str], frozenset[str]]:
    """Memories read, and memories written."""
    reads = frozenset(o.memory for o in intrinsic.operands if o.access != "write")
    return reads, frozenset(o.memory for o in intrinsic.operands if o.access != "read")


def _touching(hardware: HardwareSpec, memory: str, access: str) -> str:
    found = [
        i.name
        for i in hardware.intrinsics
        if any(o.memory == memory and o.access in (access, "update") for o in i.operands)
    ]
    verb = "read" if access == "read" else "written"
    return f"{verb} by {', '.join(found)}" if found else ""


def _check_end(context: Context, hardware: HardwareSpec) -> None:
    """A kernel whose outputs are the caller's arrays ends when they are written: only `epilogue`
    can wait for that, since no copy follows."""
    code = hardware.code
    if code.epilogue.strip() or not code.handles_are_pointers:
        return
    for intrinsic in hardware.intrinsics:
        for operand in intrinsic.operands:
            if operand.access == "read" or not hardware.memory[operand.memory].shared:
                continue
            wait = next((repr(text) for text in fences(hardware)), "a call that waits")
            raise context.error(
                "H145", "the kernel may return before its results are written", ("code",), key=True,
                found=f"{intrinsic.name} writes {operand.memory}, which is the host's own "
                "(shared), and there is no code.epilogue",
                allowed="an epilogue that waits until all calls are done",
                repair=f"write epilogue: {wait}, or a comment there if every call returns only "
                "when it is done",
            )  # fmt: skip


def _check_writers(context: Context, hardware: HardwareSpec) -> None:
    for intrinsic in hardware.intrinsics:
        for operand in intrinsic.operands:
            for i, name in enumerate(operand.written_by):
                _, written = _moves(hardware.intrinsic[name])
                if operand.memory not in written:
                    raise context.error(
                        "H120", f"{name!r} never writes memory {operand.memory!r}",
                        ("intrinsics", intrinsic.name, "operands", operand.name, "written_by", i),
                        found=f"{name} writes {', '.join(sorted(written))}",
                        allowed=", ".join(
                            x.name for x in hardware.intrinsics if operand.memory in _moves(x)[1]
                        ),
                    )  # fmt: skip


def _check_priorities(context: Context, hardware: HardwareSpec, schema: HardwareSchema) -> None:
    """A bus serves every reader, once, and nobody else."""
    for bus in hardware.buses:
        known = bus_readers(bus.name, schema, hardware.intrinsics)
        fetched = hardware.fetch is not None and hardware.fetch.bus == bus.name
        served = known if fetched else known[1:]
        path: FieldPath = ("buses", bus.name, "priority")
        for i, name in enumerate(bus.priority):
            if name not in known:
                others = {*schema.intrinsics, *(k.load.name for k in schema.micro_kernels.values())}
                is_there = f"{name!r} does not read over bus {bus.name!r}"
                raise context.error(
                    "H128", is_there if name in others else f"there is no intrinsic {name!r}",
                    (*path, i), found=name, allowed=", ".join(served) or "no priority",
                    repair=suggestion(name, served) or f"remove {name}",
                )  # fmt: skip
            if name in bus.priority[:i]:
                raise context.error(
                    "H128", f"{name!r} stands twice", (*path, i), found=name, allowed="each once"
                )
        for name in served:
            if name not in bus.priority:
                raise context.error(
                    "H128", f"the priority of bus {bus.name!r} leaves out {name!r}", path,
                    key=True, found=", ".join(bus.priority), allowed=", ".join(known),
                    repair=f"add {name}, or remove `priority`",
                )  # fmt: skip


def _check_cycles(context: Context, hardware: HardwareSpec, intrinsic: Intrinsic) -> None:
    """Costs are positive numbers at both ends of what their names stand for."""
    offchip = [m.name for m in hardware.of_kind("offchip")]
    transfer = dict.fromkeys(("transfer", "bursts", "beats"), Range(1, _MANY))
    ends = {"iterations": Range(1, _MANY), BANK_CYCLES: Range(1, _MANY), **transfer}
    ends |= {loop.name: loop.extent for loop in intrinsic.loops}
    where: FieldPath = ("intrinsics", intrinsic.name, "cycles")
    _positive(context, where, intrinsic.cycles, ends)
    if intrinsic.energy is not None:
        _positive(context, (*where[:2], "energy"), intrinsic.energy, ends, "energy is")
    for operand in intrinsic.operands:
        if operand.memory in offchip:
            written = operand.access == "write"
            # A bus that has an error of its own is left out.
            bus = hardware.bus.get(hardware.memory[operand.memory].bus)
            if not written or (bus is not None and bus.write.posted_bursts):
                what = "posted write" if written else "read"
                _adds_transfer(context, where, intrinsic.cycles, ends, what)
    kernel = intrinsic.micro_kernel
    if kernel is not None:
        ends = {"operations": Range(1, kernel.capacity_operations), **transfer}
        path: FieldPath = ("micro_kernels", kernel.name, "load", "cycles")
        _positive(context, path, kernel.load_cycles, ends)
        _adds_transfer(context, path, kernel.load_cycles, ends, "read")


def _adds_transfer(
    context: Context, path: FieldPath, cycles: Expr, ends: Mapping[str, Range], what: str
) -> None:
    """What is read over a bus, or posted, takes its transfer, and a time that does not depend on
    it."""
    for corner in _corners(cycles, ends):
        fixed = ceil(evaluate(cycles, corner | {"transfer": 0}))
        for transfer in (1, _MANY):
            found = ceil(evaluate(cycles, corner | {"transfer": transfer}))
            if found != fixed + transfer:
                raise context.error(
                    "H148", f"the cycles of a {what} are not a time beside its transfer", path,
                    found=f"{cycles}: {found - fixed} more with a transfer of {transfer}",
                    allowed="an expression of the form `fixed + transfer`",
                    repair="write `+ transfer`, once, and what does not overlap it beside it",
                )  # fmt: skip


def _corners(cycles: Expr, ends: Mapping[str, Range]) -> Iterator[dict[str, int]]:
    """The names in a cost at both ends of what they stand for; of some, where there are many."""
    used = names_of(cycles)
    for corner in islice(product(*((ends[n].minimum, ends[n].maximum) for n in used)), 64):
        yield dict(zip(used, corner, strict=True))


def _positive(
    context: Context,
    path: FieldPath,
    cycles: Expr,
    ends: Mapping[str, Range],
    what: str = "cycles are",
) -> None:
    used = names_of(cycles)
    for at in _corners(cycles, ends):
        where = ", ".join(f"{n} = {v}" for n, v in at.items()) or "always"
        try:
            value = evaluate(cycles, at)
        except (ArithmeticError, ValueError, TypeError) as problem:
            raise context.error(
                "H123", f"the {what} not a number", path, found=f"{cycles} at {where}",
                allowed="a positive number for every call",
            ) from problem  # fmt: skip
        if not isfinite(value):
            raise context.error(
                "H123", f"the {what} not finite", path, found=f"{cycles} is {value}: {where}",
                allowed="a positive number for every call",
            )  # fmt: skip
        if value <= 0:
            raise context.error(
                "H123", f"the {what} not positive", path,
                found=f"{cycles} is {value:g}: {where}" if used else f"{cycles}",
                allowed="a positive number for every call",
            )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Template:
    """A template: where it stands, its text, and what it may name, besides parameters; `user`: the
    intrinsic that uses it, where there may be several."""

    path: FieldPath
    text: str
    variables: Mapping[str, Shape]
    user: str = ""


def _synchronization_templates(hardware: HardwareSpec) -> Iterator[Template]:
    for field, text, used in synchronization_templates(hardware):
        shape: dict[str, Shape] = {}
        for name, what in used.items():
            known = {"text": TEXT, "number": NUMBER}
            shape[name] = (
                known[what]
                if isinstance(what, str)
                else _unit_shape([hardware.unit[u] for u in what])
            )
        yield Template(("synchronization", field), text, shape)


def own_templates(hardware: HardwareSpec) -> Iterator[Template]:
    """All but those of synchronisation."""
    for name, text in (
        ("prologue", hardware.code.prologue), ("epilogue", hardware.code.epilogue),
        ("definitions", hardware.code.definitions),
        ("allocate", hardware.code.allocate), ("free", hardware.code.free),
        ("to_device", hardware.code.to_device), ("from_device", hardware.code.from_device),
    ):  # fmt: skip
        known = dict(_CODE.get(name, {}))
        if known and hardware.units:
            if not hardware.of_kind("offchip"):
                continue  # What it may name is in a memory with an error, or missing: that is said.
            known["memory"] = _images_memory(hardware)
        yield Template(("code", name), text, known)
    if hardware.issue is not None and hardware.issue.unroll is not None:
        text = hardware.issue.unroll.emit
        yield Template(("issue", "unroll", "emit"), text, {"extent": NUMBER})
    for memory in hardware.memories:
        declared = _values(memory.identifiers)
        declared |= {"entries": Items(NUMBER)} if memory.literal else {}
        declared |= {"parallel": NUMBER} if memory.shared_by == "thread" else {}
        buffer = _BUFFER | ({"address_bytes": NUMBER} if memory.pool else {})
        for name, text, known in (
            ("declare", memory.declare, declared), ("allocate", memory.allocate, buffer),
            ("free", memory.free, buffer), ("pool", memory.pool, {"bytes": NUMBER}),
        ):  # fmt: skip
            yield Template(("memories", memory.name, name), text, known)
    if hardware.processor is not None:
        for where, text, variables in processor_templates(hardware.processor):
            yield Template(where, text, variables)
    for given in hardware.configurations:
        fields = dict.fromkeys(given.fields, TEXT)
        where = ("configurations", given.name, "emit")
        yield Template(where, given.emit, fields | {"register": _register(given)})
    for intrinsic in hardware.intrinsics:
        path: FieldPath = ("intrinsics", intrinsic.name, "emit")
        yield Template(path, intrinsic.emit, emit_variables(hardware, intrinsic))
        for name, needed in intrinsic.configuration:
            for field, text in needed:
                where = ("intrinsics", intrinsic.name, "configuration", name, field)
                yield Template(where, text, state_variables(intrinsic))
        kernel = intrinsic.micro_kernel
        if kernel is not None:
            where = ("micro_kernels", kernel.name, "define")
            variables = define_variables(intrinsic, kernel)
            yield Template(where, kernel.define, variables, intrinsic.name)


_CODE: dict[str, dict[str, Shape]] = {
    "allocate": {"buffer": TEXT, "bytes": TEXT, "align": NUMBER},
    "free": {"buffer": TEXT},
    "to_device": {"buffer": TEXT, "host": TEXT, "bytes": TEXT},
    "from_device": {"buffer": TEXT, "host": TEXT, "bytes": TEXT},
}

_BUFFER: dict[str, Shape] = {"type": TEXT, "name": TEXT, "elements": NUMBER, "bytes": NUMBER}
"""What templates of a workspace's buffer may name."""


def _images_memory(hardware: HardwareSpec) -> Shape:
    """The fields that all off-chip memories have."""
    held = hardware.of_kind("offchip")
    shapes = {m.name: {"name": TEXT, **_values(m.identifiers)} for m in held}
    return _common(shapes, "memory", "the identifiers of")


def emit_variables(hardware: HardwareSpec, intrinsic: Intrinsic) -> dict[str, Shape]:
    """What the `emit` template of an intrinsic may name, besides parameters."""
    if not intrinsic.unit:
        return {
            **{
                o.name: Fields({"pointer": TEXT, "stride": Items(TEXT, len(o.shape))})
                for o in intrinsic.operands
            },
            **{i.name: TEXT for i in intrinsic.immediates},
        }
    held = intrinsic.stationary.operand if intrinsic.stationary else ""
    operands: dict[str, Shape] = {
        o.name: Fields(
            {
                **(
                    {"address": NUMBER}
                    if hardware.memory[o.memory].literal
                    else {"address": TEXT, "base": TEXT, "displacement": NUMBER}
                ),
                "buffer": TEXT,
                "memory": _memory_shape(hardware.memory[o.memory]),
                **({"fresh": TEXT} if o.name == held else {}),
            }
        )
        for o in intrinsic.operands
    }
    others: dict[str, Shape] = {
        "unit": _unit_shape([hardware.unit[intrinsic.unit]]),
        **{name: _register(hardware.configuration[name]) for name, _ in intrinsic.configuration},
        **state_variables(intrinsic),
    }
    if intrinsic.micro_kernel is not None:
        others["kernel"] = Fields({"name": TEXT, "variant": TEXT})
        others |= _values(intrinsic.micro_kernel.values)
    return {**operands, **others}


def state_variables(intrinsic: Intrinsic) -> dict[str, Shape]:
    """What a call's configuration may name, besides parameters."""
    strides = Fields({o.name: TEXT for o in intrinsic.operands})
    return {
        **{
            x.name: Fields({"extent": TEXT, "stride": strides})
            for x in intrinsic.loops
            if not x.software
        },
        **{name: Fields({"extent": NUMBER}) for name, _ in intrinsic.iterators},
        **{i.name: LITERAL for i in intrinsic.immediates},
    }


def _register(configuration: Configuration) -> Shape:
    """The values that all registers of a configuration have."""
    shapes = {str(n): _values(register) for n, register in enumerate(configuration.registers)}
    return _common(shapes, "register", "register")


def define_variables(intrinsic: Intrinsic, kernel: MicroKernel) -> dict[str, Shape]:
    """What the `define` template of a micro-kernel may name, besides parameters."""
    operands = Fields({o.name: NUMBER for o in intrinsic.operands})
    level = Items(Fields({"extent": NUMBER, "stride": operands}))
    return {
        "name": TEXT,
        "loops": level,
        "sequence": level,
        "bases": Items(operands),
        **_values(kernel.values),
        **{i.name: NUMBER for i in intrinsic.immediates},
    }


def _memory_shape(memory: Memory) -> Shape:
    return Fields({"name": TEXT, **_values(memory.identifiers)})


def _unit_shape(units: Iterable[Unit]) -> Shape:
    """The fields that all of the units have."""
    shapes = {u.name: {"name": TEXT, **_values(u.identifiers)} for u in units}
    return _common(shapes, "unit", "the identifiers of")


def _common(shapes: Mapping[str, Mapping[str, Shape]], kind: str, place: str) -> Fields:
    """The fields that all have, and of the others who lacks them."""
    first = next(iter(shapes.values()))
    common = {n: s for n, s in first.items() if all(s == o.get(n) for o in shapes.values())}
    partly: dict[str, tuple[str, str]] = {}
    for name in sorted({n for fields in shapes.values() for n in fields} - set(common)):
        without = [who for who, fields in shapes.items() if name not in fields]
        lacking = ", ".join(without)
        partly[name] = (
            (f"{name}, which {kind} {lacking} lacks", f"add {name} to {place} {lacking}")
            if without
            else (f"{name}, a number in one {kind} and text in another", "make it one of the two")
        )
    return Fields(common, partly)


def _values(pairs: Iterable[tuple[str, int | str]]) -> dict[str, Shape]:
    return {name: NUMBER if isinstance(value, int) else TEXT for name, value in pairs}


def _check(context: Context, template: Template) -> None:
    text, user = template.text, template.user
    parameters: dict[str, Shape] = dict.fromkeys(context.values, NUMBER)
    try:
        check_template(text, {**parameters, **template.variables})
    except TemplateError as problem:
        where = f" (line {problem.line} of the template)" if text.count("\n") > 1 else ""
        whose = f", in intrinsic {user!r}" if user else ""
        raise context.error(
            problem.code, f"{problem.message}{whose}{where}", template.path, found=problem.found,
            allowed=problem.allowed, repair=problem.repair
            or (f"write {problem.found} | default(...)" if user and problem.found else "")
            or ("name one of these" if problem.code == "H125" else ""),
        ) from problem  # fmt: skip
