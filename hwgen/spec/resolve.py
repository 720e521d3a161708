"""What a user wrote (`schema.py`) to a chip as data (`hardware.py`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from hwgen.spec.context import Context, changed, definitions, hertz, reference
from hwgen.spec.expression import DTYPES, FUNCTIONS, Cast, Const, Expr, walk
from hwgen.spec.findings import Findings
from hwgen.spec.hardware import (
    CodeTemplates,
    HardwareLoop,
    HardwareSpec,
    Immediate,
    Intrinsic,
    MicroKernel,
    Operand,
    StrideRule,
    Synchronization,
    Unit,
)
from hwgen.spec.memory import BANK_CYCLES, Memory
from hwgen.spec.operands import ANY, check_places, resolve_operand
from hwgen.spec.ranges import Range
from hwgen.spec.resolve_banks import iterations_per_cycle
from hwgen.spec.resolve_calls import (
    SOFTWARE_NAMES,
    configuration,
    configuration_state,
    issue,
    software_loops,
    stationary,
)
from hwgen.spec.resolve_lanes import check_partial, lanes
from hwgen.spec.resolve_memories import (
    bus_readers,
    resolve_bus,
    resolve_fetch,
    resolve_memory,
)
from hwgen.spec.resolve_processor import check_sections, resolve_processor
from hwgen.spec.same_fields import check_same
from hwgen.spec.schema import (
    CodeSchema,
    HardwareSchema,
    IntrinsicSchema,
    LoopSchema,
    ParameterSchema,
)
from hwgen.spec.semantics import Semantics, executed, parse_semantics
from hwgen.spec.source import Document, FieldPath
from hwgen.spec.suggest import suggestion
from hwgen.spec.synchronization import resolve_completion
from hwgen.spec.typecheck import holds, integer_range, is_float

RESERVED = frozenset({*DTYPES, *FUNCTIONS, "and", "or", "not", "inf", "dense"})
"""Words of the expression language: no parameter, size, operand or iterator has such a name."""
TRANSFER_NAMES = ("transfer", "bursts", "beats")
TEMPLATE_NAMES = ("unit", "kernel", "name", "loops", "sequence", "bases", "loop")


def resolve_hardware(
    schema: HardwareSchema,
    document: Document,
    overrides: Mapping[str, int],
    findings: Findings,
) -> HardwareSpec:
    """Substitute parameters and give every field its meaning; `checks.py` then looks across.

    What has an error, and what needs that, is left out of the chip; the error is a finding.

    Raises:
        HwgenError: H02x expressions, H1xx meaning.
    """
    context = Context(document, {}, "parameter", findings)
    context = replace(context, values=resolve_parameters(schema, context, overrides))
    check_sections(context, schema)
    processor = findings.attempt(lambda: resolve_processor(context, schema), None)
    memories = findings.each(schema.memories, lambda name: resolve_memory(context, schema, name))
    if ANY in schema.memories:
        raise context.error(
            "H104", f"{ANY!r} means wherever a processor can address, and names no memory",
            ("memories", ANY), key=True, found=ANY, allowed="any other name",
            repair="rename the memory",
        )  # fmt: skip
    by_name = {m.name: m for m in memories if m.kind != "workspace"}
    units = findings.each(schema.units, lambda name: _unit(context, schema, name))
    kernels = findings.each(schema.micro_kernels, lambda name: _micro_kernel(context, schema, name))
    states = findings.each(
        schema.configurations, lambda name: configuration_state(context, schema, name)
    )
    intrinsics = findings.each(
        schema.intrinsics,
        lambda name: _intrinsic(
            context, schema, name, memories=by_name, kernels={k.name: k for k in kernels}
        ),
    )
    return HardwareSpec(
        name=schema.name,
        description=schema.description.strip(),
        parameters=tuple(context.values.items()),
        memories=memories,
        buses=findings.each(
            schema.buses,
            lambda name: resolve_bus(context, schema, name, bus_readers(name, schema, intrinsics)),
        ),
        units=units,
        intrinsics=intrinsics,
        synchronization=findings.attempt(lambda: _synchronization(context, schema), None),
        fetch=findings.attempt(lambda: resolve_fetch(context, schema), None),
        completion=findings.attempt(lambda: resolve_completion(context, schema), None),
        code=_code(schema),
        location=document.locate(("name",)),
        processor=processor,
        configurations=states,
        issue=findings.attempt(lambda: issue(context, schema), None),
        set_parameters=changed(
            context.values,
            overrides,
            lambda: resolve_parameters(schema, replace(context, findings=Findings()), {}),
        ),
        clock_hz=findings.attempt(lambda: _clock(context, schema), None),
    )


def resolve_parameters(
    schema: HardwareSchema, context: Context, overrides: Mapping[str, int]
) -> dict[str, int]:
    """Parameters by name; one set from outside replaces its default, and what depends on it.

    Raises:
        HwgenError: H104 a reserved name, H110 unknown override, H111 value out of range.
    """
    known = list(schema.parameters)
    for name, value in overrides.items():
        if name not in schema.parameters:
            raise context.error(
                "H110", f"the chip has no parameter {name!r}", ("parameters",), key=True,
                found=f"{name}={value}", allowed=", ".join(known) or "no parameters",
                repair=suggestion(name, known),
            )  # fmt: skip
    texts = {
        name: overrides.get(name, given.value if isinstance(given, ParameterSchema) else given)
        for name, given in schema.parameters.items()
    }

    def where(name: str) -> FieldPath:
        fields = isinstance(schema.parameters[name], ParameterSchema)
        return ("parameters", name, "value") if fields else ("parameters", name)

    def read(above: Context, name: str) -> int:
        given, path = schema.parameters[name], ("parameters", name)
        check_word(above, name, path, "parameter")
        value = above.integer(texts[name], where(name))
        if isinstance(given, ParameterSchema) and given.range is not None:
            allowed = above.range(given.range, (*path, "range"))
            if value not in allowed:
                raise above.error(
                    "H111", f"parameter {name} is out of range", where(name),
                    found=f"{name}={value}", allowed=str(allowed),
                    repair=f"set {name} to a number of {allowed}, or widen the range in the file",
                )  # fmt: skip
        return value

    return definitions(context, texts, where, read)


def _clock(context: Context, schema: HardwareSchema) -> float | None:
    return None if schema.clock is None else hertz(context, schema.clock, ("clock",))


def _unit(context: Context, schema: HardwareSchema, name: str) -> Unit:
    given, path = schema.units[name], ("units", name)
    return Unit(
        name, context.document.locate(path, key=True),
        context.integer(given.queue_entries, (*path, "queue_entries"), 0),
        tuple(given.identifiers.items()),
        0.0 if given.area is None else context.rate(given.area, (*path, "area")),
    )  # fmt: skip


def check_word(context: Context, name: str, path: FieldPath, what: str) -> None:
    """Refuse a name that the expression language already uses (H104)."""
    if name in RESERVED:
        raise context.error(
            "H104", f"{name!r} is a word of the expression language and cannot name a {what}",
            path, key=True, found=name, allowed="any other name",
            repair=f"call it {name}_ or {name}0",
        )  # fmt: skip


def _synchronization(context: Context, schema: HardwareSchema) -> Synchronization | None:
    """How calls on different units are ordered; None where there is no need."""
    given = schema.synchronization
    return None if given is None else given.resolved(context, tuple(schema.units))


def _code(schema: HardwareSchema) -> CodeTemplates:
    code = schema.code or CodeSchema()
    return CodeTemplates(
        includes=tuple(code.includes), prologue=code.prologue, epilogue=code.epilogue,
        allocate=code.allocate or "", free=code.free or "", to_device=code.to_device or "",
        from_device=code.from_device or "", handle_type=code.handle_type,
        reserved=tuple(code.reserved),
        definitions=code.definitions, requires=tuple(code.requires),
    )  # fmt: skip


def _micro_kernel(context: Context, schema: HardwareSchema, name: str) -> MicroKernel:
    kernel = schema.micro_kernels[name]
    path: FieldPath = ("micro_kernels", name)
    reference(context, (*path, "bus"), "bus", kernel.bus, schema.buses)
    return MicroKernel(
        name=name,
        capacity_operations=context.integer(
            kernel.capacity_operations, (*path, "capacity_operations"), 1
        ),
        rewrite_distance=context.integer(kernel.rewrite_distance, (*path, "rewrite_distance"), 1),
        max_variants=context.integer(kernel.max_variants, (*path, "max_variants"), 1),
        operation_bytes=context.integer(kernel.operation_bytes, (*path, "operation_bytes"), 1),
        bus=kernel.bus,
        load_name=kernel.load.name,
        load_cycles=_cycles(
            context, kernel.load.cycles, (*path, "load", "cycles"), ["operations", *TRANSFER_NAMES]
        ),
        define=kernel.define,
    )


def _cycles(context: Context, text: int | float | str, path: FieldPath, names: list[str]) -> Expr:
    expr = Const(text) if isinstance(text, float) else context.parse(text, path)
    context.check_names(expr, str(text), path, names)
    return context.bound(expr)


def _intrinsic(
    context: Context,
    schema: HardwareSchema,
    name: str,
    *,
    memories: Mapping[str, Memory],
    kernels: Mapping[str, MicroKernel],
) -> Intrinsic:
    fields = schema.intrinsics[name]
    path: FieldPath = ("intrinsics", name)
    found = context.findings
    pointers = check_places(context, path, fields, schema)
    if fields.unit is not None:
        reference(context, (*path, "unit"), "unit", fields.unit, schema.units)
    context.check_known([fields.unit or "", *(o.memory for o in fields.operands.values())])
    context.check_known([fields.micro_kernel.kind] if fields.micro_kernel else [])
    context.check_known(fields.configuration)
    _check_namespace(context, path, fields)
    iterators, partial = lanes(context, path, fields)
    for operand, o in fields.operands.items():
        if not pointers:
            where = (*path, "operands", operand, "memory")
            reference(context, where, "memory", o.memory, memories)
        for i, writer in enumerate(o.written_by):
            where = (*path, "operands", operand, "written_by", i)
            reference(context, where, "intrinsic", writer, schema.intrinsics)
    held = {n: memories[o.memory] for n, o in fields.operands.items() if o.memory in memories}
    ranks = {n: len(m.entry_shape) for n, m in held.items() if m.kind != "offchip" or m.by_element}
    dtypes = {n: m.dtype for n, m in held.items()}
    dtypes |= {n: o.dtype for n, o in fields.operands.items() if o.dtype}
    dtypes |= {n: i.dtype for n, i in fields.immediates.items()}
    semantics = parse_semantics(context, path, fields, iterators, ranks, dtypes)
    with found.whole():  # What is wrong with one field says nothing of the others.
        operands = found.each(
            fields.operands.items(),
            lambda given: resolve_operand(
                context, (*path, "operands", given[0]), given[1], memories.get(given[1].memory),
                shape=semantics.indices[given[0]].shape(iterators),
                access=semantics.access[given[0]], indices=semantics.indices[given[0]],
            ),
        )  # fmt: skip
        places = [memories[o.memory] for o in fields.operands.values() if o.memory in memories]
        offchip = any(m.kind == "offchip" for m in places)
        at_once = found.attempt(
            lambda: iterations_per_cycle(context, path, fields, places), instead=1
        )
        known = ["iterations", *fields.loops, *(TRANSFER_NAMES if offchip else ())]
        known += [BANK_CYCLES] if at_once else []
        cycles = found.attempt(
            lambda: _cycles(context, fields.cycles, (*path, "cycles"), [] if pointers else known),
            instead=Const(1),
        )
        energy = found.attempt(
            lambda: None if fields.energy is None
            else _cycles(context, fields.energy, (*path, "energy"), ["iterations", *fields.loops]),
            instead=None,
        )  # fmt: skip
        loops = found.attempt(
            lambda: (
                *software_loops(context, path, fields, semantics),
                *_loops(context, path, fields.loops, semantics),
            ),
            instead=(),
        )
        state = found.attempt(lambda: configuration(context, path, fields, schema), instead=())
        immediates = found.each(
            fields.immediates.items(),
            lambda given: _immediate(context, path, fields, given[0], semantics, operands),
        )
    statements = executed(context, path, semantics, operands, immediates, fields.nan)
    check_partial(context, path, partial, operands, memories)
    resolved = Intrinsic(
        name=name,
        unit=fields.unit or "",
        iterators=tuple(iterators.items()),
        semantics=statements,
        operands=operands,
        loops=loops,
        immediates=immediates,
        cycles=cycles,
        emit=fields.emit,
        location=context.document.locate(path, key=True),
        micro_kernel=_use(context, path, fields, kernels),
        result_latency_iterations=context.integer(
            fields.result_latency_iterations, (*path, "result_latency_iterations"), 0
        ),
        stationary=stationary(context, path, fields, semantics),
        configuration=state,
        instructions=context.integer(fields.instructions, (*path, "instructions"), 1),
        iterations_per_cycle=at_once,
        partial=partial,
        energy=energy,
        nan=fields.nan,
    )
    check_same(context, resolved)
    _check_literal(context, path, resolved, memories)
    return resolved


def _check_literal(
    context: Context, path: FieldPath, intrinsic: Intrinsic, memories: Mapping[str, Memory]
) -> None:
    """What C loops move has no literal address (H135)."""
    if not intrinsic.software_loops:
        return
    for operand in intrinsic.operands:
        memory = memories.get(operand.memory)
        if memory is not None and memory.literal:
            raise context.error(
                "H135", f"C loops around {intrinsic.name!r} would compute addresses of "
                f"{memory.name!r}, which are literal", (*path, "software_loops"), key=True,
                found=f"operand {operand.name} in {memory.name}",
                allowed="operands in memories without addresses: literal",
                repair="remove software_loops; loops that move registers are written out",
            )  # fmt: skip


def _check_namespace(context: Context, path: FieldPath, fields: IntrinsicSchema) -> None:
    """Operands, iterators, loops, immediates, values, configurations and parameters share one set
    of names."""
    taken = dict.fromkeys(context.values, "parameter")
    taken |= dict.fromkeys(SOFTWARE_NAMES, "C loop around a call")
    taken |= dict.fromkeys(TEMPLATE_NAMES, "word of the templates")
    words = (*TRANSFER_NAMES, BANK_CYCLES, "iterations", "operations")
    taken |= dict.fromkeys(words, "word of `cycles`")
    values = fields.micro_kernel.values if fields.micro_kernel else {}
    groups: list[tuple[str, FieldPath, list[str]]] = [
        ("operand", (*path, "operands"), list(fields.operands)),
        ("iterator", (*path, "iterators"), list(fields.iterators)),
        ("loop", (*path, "loops"), list(fields.loops)),
        ("immediate", (*path, "immediates"), list(fields.immediates)),
        ("temporary", (*path, "temporaries"), list(fields.temporaries)),
        ("configuration", (*path, "configuration"), list(fields.configuration)),
        ("value", (*path, "micro_kernel", "values"), list(values)),
    ]
    for what, where, names in groups:
        for name in names:
            check_word(context, name, (*where, name), what)
            if name in taken:
                raise context.error(
                    "H129", f"two things share the name {name!r}: {taken[name]} and {what}",
                    (*where, name), key=True, found=name, allowed="a name of its own",
                    repair=f"rename the {what}",
                )  # fmt: skip
            taken[name] = what


def _immediate(
    context: Context,
    path: FieldPath,
    fields: IntrinsicSchema,
    name: str,
    semantics: Semantics,
    operands: tuple[Operand, ...],
) -> Immediate:
    schema = fields.immediates[name]
    where = (*path, "immediates", name, "range")
    given = schema.range
    if given is None and not is_float(schema.dtype):
        low, high = integer_range(schema.dtype)
        given = f"{low}..{high}"
    limits = None if given is None else context.values_of(given, where)
    if limits is not None and not is_float(schema.dtype):
        for value in (limits.minimum, limits.maximum):
            if not holds(schema.dtype, value):
                low, high = integer_range(schema.dtype)
                raise context.error(
                    "H121", f"the immediate's range does not fit {schema.dtype}", where,
                    found=str(limits), allowed=f"{low}..{high}",
                )  # fmt: skip
    # Elements of 16-bit floats are computed with as float32, and so are the reference's constants.
    casts = {n.dtype for s in semantics.statements for n in walk(s.value) if isinstance(n, Cast)}
    types = {o.dtype for o in operands} | casts | {i.dtype for i in fields.immediates.values()}
    computed = "float64" if "float64" in types else "float32"
    exact = is_float(schema.dtype) and schema.dtype != computed
    return Immediate(name, schema.dtype, limits, exact)


def _loops(
    context: Context, path: FieldPath, loops: Mapping[str, LoopSchema], semantics: Semantics
) -> tuple[HardwareLoop, ...]:
    """Innermost first, since `dense` refers to the loop inside; returned outermost first."""
    resolved: list[HardwareLoop] = []
    inner: HardwareLoop | None = None
    for name, loop in reversed(list(loops.items())):
        where = (*path, "loops", name)
        extent = context.values_of(loop.extent, (*where, "extent"), 1)
        if loop.lanes == "all" and extent.minimum > 1:
            raise context.error(
                "H136", f"loop {name!r} needs all lanes, and always runs more than once",
                (*where, "lanes"), found=f"lanes: all, extent {extent}",
                allowed=f"extent 1..{extent.maximum}", repair="remove `lanes`",
            )  # fmt: skip
        strides: list[tuple[str, StrideRule]] = []
        for operand, text in loop.strides.items():
            at = (*where, "strides", operand)
            if operand not in semantics.indices:
                raise context.error(
                    "H122", f"no operand is called {operand!r}", at, key=True, found=operand,
                    allowed=", ".join(semantics.indices),
                    repair=suggestion(operand, list(semantics.indices)),
                )  # fmt: skip
            if text != "dense":
                strides.append((operand, StrideRule(context.values_of(text, at, 0))))
                continue
            if inner is None:
                raise context.error(
                    "H122", "the innermost loop has no loop inside to be dense after", at,
                    found="dense", allowed="a number or a range", repair="write 1",
                )  # fmt: skip
            step, count = inner.stride(operand).range, inner.extent
            dense = Range(step.minimum * count.minimum, step.maximum * count.maximum)
            strides.append((operand, StrideRule(dense, inner.name)))
        inner = HardwareLoop(name, extent, tuple(strides), whole_lanes=loop.lanes == "all")
        resolved.append(inner)
    return tuple(reversed(resolved))


def _use(
    context: Context, path: FieldPath, fields: IntrinsicSchema, kernels: Mapping[str, MicroKernel]
) -> MicroKernel | None:
    use = fields.micro_kernel
    if use is None:
        return None
    reference(context, (*path, "micro_kernel", "kind"), "micro-kernel", use.kind, kernels)
    return replace(kernels[use.kind], values=tuple(use.values.items()))
