"""What the C text of a chip's spec takes: none of it names a variable or function of ours."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from hwgen.codegen.c_names import Reserved, words
from hwgen.spec.hardware import HardwareSpec
from hwgen.spec.processor import Processor
from hwgen.spec.synchronization import synchronization_templates

MODEL_PREFIX = "model"
"""Begins the names of what the C model defines for itself."""


def reserved_words(hardware: HardwareSpec) -> Reserved:
    """Words that may stand in the generated text, and what the spec says its headers define."""
    texts = list(_templates(hardware))
    # Template variables, members and escapes in strings are no names of the language's scope.
    plain = (re.sub(r"\{\{.*?\}\}|\{%.*?%\}|\.\w+|\\\w", " ", text) for text in texts)
    named = words([*plain, *_values(hardware, any(".name" in text for text in texts))])
    given = hardware.code.reserved
    return Reserved(
        named | {MODEL_PREFIX} | {n for n in given if not n.endswith("*")},
        (f"{MODEL_PREFIX}_", *(n[:-1] for n in given if n.endswith("*"))),
    )


def _templates(hardware: HardwareSpec) -> Iterator[str]:
    """Text that stands in functions with names of ours; a micro-kernel's definition has its own."""
    code = hardware.code
    yield from (code.prologue, code.epilogue, code.allocate, code.free, code.to_device)
    yield from (code.from_device, code.handle_type, code.definitions)
    yield from (i.emit for i in hardware.intrinsics)
    yield from (c.emit for c in hardware.configurations)
    yield from (text for _, text, _ in synchronization_templates(hardware))
    yield from (t for m in hardware.memories for t in (m.allocate, m.free, m.pool))
    if hardware.processor is not None:
        yield from _of_processor(hardware.processor)


def _of_processor(processor: Processor) -> Iterator[str]:
    yield from (processor.barrier, processor.prefetch, processor.function, processor.launch)
    yield processor.function_prologue
    yield from (t for k in processor.loops for t in (k.emit, k.index))


def _values(hardware: HardwareSpec, names: bool) -> Iterator[str]:
    """Text that templates print for their variables; `names`: those of memories and units too."""
    tables: list[Iterable[tuple[str, object]]] = [m.identifiers for m in hardware.memories]
    tables += [u.identifiers for u in hardware.units]
    tables += [r for c in hardware.configurations for r in c.registers]
    tables += [i.micro_kernel.values for i in hardware.intrinsics if i.micro_kernel]
    yield from (value for table in tables for _, value in table if isinstance(value, str))
    if names:
        yield from (m.name for m in hardware.memories if m.kind != "workspace")
        yield from (u.name for u in hardware.units)
