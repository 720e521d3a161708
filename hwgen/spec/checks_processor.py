"""Checks across a resolved processor: loops, who shares memories, limits and templates."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from hwgen.spec.context import Context
from hwgen.spec.hardware import HardwareSpec
from hwgen.spec.processor import LoopKind, Processor
from hwgen.spec.source import FieldPath
from hwgen.spec.templates import NUMBER, TEXT, Items, Shape

_PROCESSOR: FieldPath = ("processor",)
_LINE: dict[str, Shape] = {"extent": NUMBER, "variable": TEXT}


def check_processor(context: Context, hardware: HardwareSpec) -> None:
    """Everything about a processor that no single field can tell.

    Raises:
        HwgenError: H131 to H133.
    """
    processor = hardware.machine
    shared = [m.name for m in hardware.of_kind("workspace") if m.shared_by == "block"]
    _check_loops(context, processor, shared)
    _check_memories(context, hardware)
    _check_limits(context, hardware)
    _check_blocks(context, processor, shared)


def _loop_path(loop: LoopKind) -> FieldPath:
    return (*_PROCESSOR, "loops", loop.name)


def _check_loops(context: Context, processor: Processor, shared: Sequence[str]) -> None:
    coordinates: dict[str, str] = {}
    for loop in processor.loops:
        path = _loop_path(loop)
        if loop.kind == "vectorize" and not processor.lanes_bytes:
            raise context.error(
                "H131", f"loop {loop.name!r} makes vectors, and the processor has none", path,
                key=True, found="vector_bytes is 0", allowed="vector_bytes of at least 1",
                repair="add vector_bytes, or remove the loop",
            )  # fmt: skip
        if loop.kind == "unroll" and loop.sum:
            raise context.error(
                "H131", f"loop {loop.name!r} has no lanes that share a sum", (*path, "sum"),
                found="kind: unroll", allowed="kind: vectorize", repair="remove `sum`",
            )  # fmt: skip
        if loop.kind != "bind":
            continue
        if loop.index in coordinates:
            raise context.error(
                "H131", f"loops {coordinates[loop.index]!r} and {loop.name!r} are one coordinate",
                (*path, "index"), found=loop.index, allowed="each coordinate once",
            )  # fmt: skip
        coordinates[loop.index] = loop.name
        if loop.level == "thread" and loop.extent.maximum > processor.threads:
            raise context.error(
                "H131", f"loop {loop.name!r} has more threads than a block", (*path, "extent"),
                found=str(loop.extent), allowed=f"at most {processor.threads} (`threads`)",
                repair=f"end the range at {processor.threads}, or raise `threads`",
            )  # fmt: skip
        if loop.reduces and (loop.level != "thread" or not shared):
            raise context.error(
                "H131", f"loop {loop.name!r} cannot reduce", (*path, "reduces"),
                found=f"level: {loop.level}" if loop.level != "thread" else "no shared memory",
                allowed="level: thread, and a workspace with shared_by: block",
                repair="remove `reduces`",
            )  # fmt: skip


def _check_memories(context: Context, hardware: HardwareSpec) -> None:
    """Blocks share something only where there are blocks; caches grow."""
    processor = hardware.machine
    blocks = any(x.level == "block" for x in processor.loops)
    for workspace in hardware.of_kind("workspace"):
        if workspace.shared_by == "block" and not blocks:
            raise context.error(
                "H132", f"no block can share workspace {workspace.name!r}: no loop makes blocks",
                ("memories", workspace.name, "shared_by"), found="block",
                allowed="kernel, thread; or add a loop with level: block",
            )  # fmt: skip
        if workspace.capacity_bytes and workspace.align_bytes > workspace.capacity_bytes:
            raise context.error(
                "H132", f"no buffer fits workspace {workspace.name!r}",
                ("memories", workspace.name, "align"), found=f"{workspace.align_bytes} bytes",
                allowed=f"at most its size, {workspace.capacity_bytes} bytes",
            )  # fmt: skip
    for inner, outer in zip(processor.caches, processor.caches[1:], strict=False):
        if outer.capacity_bytes <= inner.capacity_bytes:
            raise context.error(
                "H132", f"cache {outer.name!r} is no larger than {inner.name!r} before it",
                (*_PROCESSOR, "caches", outer.name, "size"), found=f"{outer.capacity_bytes} bytes",
                allowed=f"more than {inner.capacity_bytes} bytes",
                repair="the smallest stands first",
            )  # fmt: skip


def _check_limits(context: Context, hardware: HardwareSpec) -> None:
    processor = hardware.machine
    default = hardware.memory[processor.default_memory]
    if default.shared_by != "kernel":
        whole = [m.name for m in hardware.of_kind("workspace") if m.shared_by == "kernel"]
        raise context.error(
            "H133", "the default memory is not shared by the whole kernel",
            (*_PROCESSOR, "default_memory"),
            found=f"{default.name}, shared_by: {default.shared_by}",
            allowed=", ".join(whole) or "a workspace with shared_by: kernel",
            repair=f"write {whole[0]}" if whole else "add a workspace with shared_by: kernel",
        )  # fmt: skip
    if processor.threads % processor.warp:
        raise context.error(
            "H133", "a block is not a whole number of warps", (*_PROCESSOR, "warp"),
            found=str(processor.warp), allowed=f"a divisor of {processor.threads} (`threads`)",
        )  # fmt: skip


def _check_blocks(context: Context, processor: Processor, shared: Sequence[str]) -> None:
    """Bound loops need a function and its launch, shared memory a barrier; else nobody does."""
    bound = [x.name for x in processor.loops if x.kind == "bind"]
    for field, text in (("function", processor.function), ("launch", processor.launch)):
        if bound and not text:
            raise context.error(
                "H133", f"bound loops need `{field}`: blocks run a function that the kernel starts",
                _PROCESSOR, key=True, found=f"no {field}; loops {', '.join(bound)}",
                allowed="function and launch", repair=f"add {field!r}",
            )  # fmt: skip
        if text and not bound:
            raise context.error(
                "H133", f"nothing uses `{field}`: no loop is bound", (*_PROCESSOR, field), key=True,
                found=field, allowed="loops with kind: bind", repair=f"remove {field!r}",
            )  # fmt: skip
    if shared and processor.coordinates("thread") and not processor.barrier:
        raise context.error(
            "H133", f"threads share workspace {shared[0]!r} and cannot wait for each other",
            _PROCESSOR, key=True, found="no barrier", allowed="a template",
            repair="add 'barrier'",
        )  # fmt: skip


def check_teams(context: Context, hardware: HardwareSpec) -> None:
    """Units that each worker has, and scratchpads that only they can touch.

    Raises:
        HwgenError: H146.
    """
    processor = hardware.processor
    of_threads = processor is not None and processor.units_shared_by == "thread"
    for memory in hardware.of_kind("scratchpad"):
        if memory.shared_by not in ("kernel", "thread" if of_threads else "kernel"):
            raise context.error(
                "H146", f"no {'worker' if memory.shared_by == 'thread' else 'block'} has a "
                f"{memory.name!r} of its own: all share the units",
                ("memories", memory.name, "shared_by"), found=memory.shared_by,
                allowed="kernel, thread" if of_threads else "kernel",
                repair="write shared_by: kernel" if of_threads
                else "write shared_by: kernel, or units_shared_by: thread in the processor",
            )  # fmt: skip
    if not of_threads:
        return
    ordered = hardware.synchronization is None or hardware.scoreboard is not None
    if not ordered or hardware.configurations:
        raise context.error(
            "H146", "units that each worker has order their calls by themselves, without state",
            (*_PROCESSOR, "units_shared_by"),
            found="configurations" if ordered else "calls that synchronise",
            allowed="synchronization: {kind: scoreboard}, or none; no configurations",
            repair="write units_shared_by: kernel",
        )  # fmt: skip


def processor_templates(
    processor: Processor,
) -> Iterator[tuple[FieldPath, str, Mapping[str, Shape]]]:
    """Every template of a processor: where it stands, its text, and what it may name."""
    for loop in processor.loops:
        if loop.kind == "bind":
            yield (*_loop_path(loop), "index"), loop.index, {}
        else:
            yield (*_loop_path(loop), "emit"), loop.emit, _LINE
            yield (*_loop_path(loop), "sum"), loop.sum, {**_LINE, "sum": TEXT}
    for pragma in processor.pragmas:
        yield (*_PROCESSOR, "pragmas", pragma.name, "emit"), pragma.emit, {"value": NUMBER}
        yield (*_PROCESSOR, "pragmas", pragma.name, "alone"), pragma.alone, {}
    launch: dict[str, Shape] = {
        "name": TEXT,
        "arguments": TEXT,
        "blocks": Items(NUMBER, len(processor.coordinates("block"))),
        "threads": Items(NUMBER, len(processor.coordinates("thread"))),
    }
    function = {"name": TEXT, "parameters": TEXT, "threads": launch["threads"]}
    fields: tuple[tuple[str, str, dict[str, Shape]], ...] = (
        ("barrier", processor.barrier, {}),
        ("prefetch", processor.prefetch, {"address": TEXT}),
        ("function", processor.function, function),
        ("function_prologue", processor.function_prologue, {}),
        ("launch", processor.launch, launch),
    )
    for field, text, variables in fields:
        yield (*_PROCESSOR, field), text, variables
