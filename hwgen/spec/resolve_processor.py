"""What a user wrote about a processor (`schema_processor.py`) to data (`processor.py`)."""

from __future__ import annotations

import re

from hwgen.spec.context import Context, reference, size_bytes
from hwgen.spec.processor import Cache, CodeCosts, Instructions, LoopKind, Pragma, Processor
from hwgen.spec.schema import HardwareSchema
from hwgen.spec.schema_processor import (
    BoundLoopSchema,
    CacheSchema,
    CodeCostsSchema,
    InstructionsSchema,
    MarkedLoopSchema,
    ParallelLoopSchema,
    PragmaSchema,
)
from hwgen.spec.source import FieldPath

SERIAL = "serial"
"""What a loop is where nothing is said: no loop of a processor has this name."""


def has_units(schema: HardwareSchema) -> bool:
    """Whether anything but the processor does the chip's work."""
    return (
        schema.processor is None
        or bool(schema.units or schema.buses or schema.fetch or schema.micro_kernels)
        or schema.synchronization is not None
        or schema.issue is not None
        or bool(schema.configurations)
        or any(m.kind != "workspace" for m in schema.memories.values())
        or any(i.unit is not None for i in schema.intrinsics.values())
    )


def check_sections(context: Context, schema: HardwareSchema) -> None:
    """A chip has what its kind needs, and nothing that nobody would read.

    Raises:
        HwgenError: H130.
    """
    if not schema.intrinsics and schema.processor is None:
        raise context.error(
            "H130", "the chip does nothing: it has neither intrinsics nor a processor", (),
            key=True, found="no intrinsics, no processor", allowed="intrinsics, processor, or both",
            repair="add `intrinsics`, or a `processor`",
        )  # fmt: skip
    if schema.processor is None:
        for name, memory in schema.memories.items():
            if memory.kind == "workspace":
                raise context.error(
                    "H130", f"workspace {name!r} is memory of a processor, and there is none",
                    ("memories", name, "kind"), found="workspace", allowed="offchip, scratchpad",
                    repair="add a `processor`, or write kind: scratchpad",
                )  # fmt: skip
        if schema.code is not None and schema.code.definitions:
            raise context.error(
                "H130", "definitions are written for a processor, and there is none",
                ("code", "definitions"), key=True, found="definitions", allowed="includes",
                repair="move them to a header, and name it in `includes`",
            )  # fmt: skip
    if not has_units(schema):
        return
    for field, given in (
        ("units", schema.units), ("intrinsics", schema.intrinsics),
        ("synchronization", schema.synchronization), ("code", schema.code),
    ):  # fmt: skip
        if not given:
            raise context.error(
                "H130", f"a chip with units needs {field!r}", (), key=True, found=f"no {field}",
                allowed="units, intrinsics, synchronization, code; or a processor alone",
                repair=_TO_ADD.get(field, f"add {field!r}"),
            )  # fmt: skip
    code = schema.code
    assert code is not None, "refused above"
    for field, text in (
        ("allocate", code.allocate), ("free", code.free), ("to_device", code.to_device),
        ("from_device", code.from_device),
    ):  # fmt: skip
        if text is None:
            raise context.error(
                "H130", f"a chip with units needs code that moves its buffers: {field!r}",
                ("code",), key=True, found=f"no {field}",
                allowed="allocate, free, to_device, from_device", repair=f"add {field!r}",
            )  # fmt: skip


_TO_ADD = {
    "synchronization": "add `synchronization: {kind: none}` for a single unit, {kind: scoreboard} "
    "if the chip orders conflicting calls itself; else kind: barrier, tokens or events, with its "
    "calls",
    "code": "add `code` with allocate, free, to_device and from_device, as `hwgen init NAME` "
    "writes it",
}
"""What to write for a section that is missing."""


def resolve_processor(context: Context, schema: HardwareSchema) -> Processor | None:
    """The processor; `checks_processor.py` then looks across.

    Raises:
        HwgenError: H02x expressions, H104 and H113 names, H109 sizes, H131 to H133.
    """
    given = schema.processor
    if given is None:
        return None
    path: FieldPath = ("processor",)

    def number(field: str, text: int | str, minimum: int) -> int:
        return context.integer(text, (*path, field), minimum)

    def rate(field: str, text: int | float | str) -> float:
        return context.rate(text, (*path, field))

    found = context.findings
    with found.whole():
        loops = found.each(given.loops.items(), lambda loop: _loop(context, *loop))
        caches = found.each(given.caches.items(), lambda cache: _cache(context, *cache))
        pragmas = found.each(given.pragmas.items(), lambda pragma: _pragma(context, *pragma))
    workspaces = {n: m for n, m in schema.memories.items() if m.kind == "workspace"}
    reference(context, (*path, "default_memory"), "workspace", given.default_memory, workspaces)
    if not re.fullmatch(r"\.[A-Za-z0-9+]{1,8}", given.suffix):
        raise context.error(
            "H133", "this is no suffix of a file", (*path, "suffix"), found=given.suffix,
            allowed="a point and up to 8 letters, digits or +", repair="write .c",
        )  # fmt: skip
    return Processor(
        location=context.document.locate(path, key=True),
        default_memory=given.default_memory,
        loops=loops,
        caches=caches,
        workers=number("workers", given.workers, 1),
        lanes_bytes=number("vector_bytes", given.vector_bytes, 0),
        dot_bytes=number("dot_bytes", given.dot_bytes, 0),
        operations_per_cycle=rate("operations_per_cycle", given.operations_per_cycle),
        memory_bytes_per_cycle=rate("memory_bytes_per_cycle", given.memory_bytes_per_cycle),
        iteration_cycles=rate("iteration_cycles", given.iteration_cycles),
        handover_cycles=number("handover_cycles", given.handover_cycles, 0),
        units_shared_by=given.units_shared_by,
        line_bytes=number("line_bytes", given.line_bytes, 1),
        costs=_costs(context, given.costs or CodeCostsSchema()),
        instructions=_instructions(context, given.instructions),
        threads=number("threads", given.threads, 1),
        warp=number("warp", given.warp, 1),
        barrier=given.barrier,
        prefetch=given.prefetch,
        pragmas=pragmas,
        language=given.language,
        suffix=given.suffix,
        function=given.function,
        launch=given.launch,
        function_prologue=given.function_prologue,
    )


def _pragma(context: Context, name: str, given: PragmaSchema) -> Pragma:
    path: FieldPath = ("processor", "pragmas", name)
    if (given.values is None) != (not given.emit) or not (given.emit or given.alone):
        raise context.error(
            "H133", f"it is not clear whether pragma {name!r} takes a number", path, key=True,
            found=", ".join(sorted(given.model_fields_set)) or "no fields",
            allowed="values and emit, alone, or all three",
            repair="add 'emit' with {{ value }}" if given.values is not None
            else "add 'values', its range" if given.emit else "add 'alone', the line itself",
        )  # fmt: skip
    values = context.range(given.values, (*path, "values")) if given.values is not None else None
    return Pragma(name, given.emit, values, given.alone)


def _cache(context: Context, name: str, cache: CacheSchema) -> Cache:
    path: FieldPath = ("processor", "caches", name)
    return Cache(
        name,
        size_bytes(context, cache.size, (*path, "size")),
        context.rate(cache.bytes_per_cycle, (*path, "bytes_per_cycle")),
        cache.shared_by,
        context.rate(cache.usable_share, (*path, "usable_share"), 1),
    )


def _costs(context: Context, given: CodeCostsSchema) -> CodeCosts:
    def rate(field: str) -> float:
        share = {"most": 1} if field.endswith("_share") else {}
        return context.rate(getattr(given, field), ("processor", "costs", field), **share)

    return CodeCosts(**{field: rate(field) for field in CodeCostsSchema.model_fields})


def _instructions(context: Context, given: InstructionsSchema | None) -> Instructions | None:
    if given is None:
        return None
    path: FieldPath = ("processor", "instructions")
    named = InstructionsSchema.model_fields["functions"].default | given.functions
    functions = [(n, context.rate(x, (*path, "functions", n))) for n, x in sorted(named.items())]
    rates = {
        field: context.rate(getattr(given, field), (*path, field))
        for field in InstructionsSchema.model_fields
        if field != "functions"
    }
    return Instructions(**rates, functions=tuple(functions))


def _loop(
    context: Context, name: str, loop: ParallelLoopSchema | BoundLoopSchema | MarkedLoopSchema
) -> LoopKind:
    path: FieldPath = ("processor", "loops", name)
    location = context.document.locate(path, key=True)
    if name == SERIAL:
        raise context.error(
            "H131", f"every loop that nothing is said about is {SERIAL}", path, key=True,
            found=name, allowed="any other name", repair="remove it, or rename it",
        )  # fmt: skip
    extent = context.range(loop.extent, (*path, "extent"), 1)
    match loop:
        case ParallelLoopSchema():
            start = context.integer(loop.start_cycles, (*path, "start_cycles"), 0)
            return LoopKind(
                name, "parallel", location, loop.level, extent, loop.emit, start_cycles=start
            )
        case BoundLoopSchema():
            return LoopKind(
                name, "bind", location, loop.level, extent, index=loop.index, reduces=loop.reduces
            )
        case MarkedLoopSchema():
            return LoopKind(name, loop.kind, location, "thread", extent, loop.emit, sum=loop.sum)
