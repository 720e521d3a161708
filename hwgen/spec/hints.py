"""What is valid in a chip's file and yet seldom meant."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from hwgen.errors import Location
from hwgen.spec.checks import own_templates
from hwgen.spec.expression import DTYPES, names
from hwgen.spec.hardware import HardwareSpec, Intrinsic, Operand
from hwgen.spec.nan import loses_nan
from hwgen.spec.source import Data, Document

PER_ITERATION = frozenset({"iterations", "transfer", "bursts", "beats", "bank_cycles"})
"""Names in `cycles` that grow with what a call does."""
SMALL_BYTES = 1024


@dataclass(frozen=True, slots=True)
class Hint:
    """A sentence about a place in the file; what it is about stays as it is."""

    location: Location
    text: str


def hints(hardware: HardwareSpec, document: Document) -> tuple[Hint, ...]:
    """Hints about a chip that is valid, and the file that it was read from."""
    found = [h for i in hardware.intrinsics if i.unit for h in _of_intrinsic(hardware, i)]
    return (*_of_memories(hardware, document), *found, *_of_templates(hardware, document))


def _of_memories(hardware: HardwareSpec, document: Document) -> Iterator[Hint]:
    for memory in hardware.memories:
        size = _plain_size(document.data, memory.name)
        if size < SMALL_BYTES:
            yield Hint(
                memory.location,
                f"memory {memory.name} has {size} bytes, {memory.capacity_entries} entries; a size "
                f"without a unit counts bytes, so write {size} KiB if that is meant",
            )


def _plain_size(data: Data, memory: str) -> int:
    """A size that is a number without a unit; a large one where there is none."""
    for name in ("memories", memory, "size"):
        data = data.get(name) if isinstance(data, dict) else None
    return data if isinstance(data, int) else SMALL_BYTES


def _of_intrinsic(hardware: HardwareSpec, intrinsic: Intrinsic) -> Iterator[Hint]:
    own = [x for x in intrinsic.loops[intrinsic.software_loops :] if x.extent.maximum > 1]
    for loop in own:
        if not any(rule.range.maximum or rule.dense_after for _, rule in loop.strides):
            named = ", ".join(f"{o.name}: 1" for o in intrinsic.operands if o.access != "read")
            yield Hint(
                intrinsic.location,
                f"loop {loop.name} of {intrinsic.name} moves no operand, so all its iterations do "
                f"the same; an operand that steps needs a stride, as strides: {{{named}}}",
            )
    counted = {*PER_ITERATION, *(x.name for x in intrinsic.loops)}
    reads = any(o.access != "write" for o in intrinsic.operands)  # Clearing may cost nothing.
    if (
        own
        and reads
        and intrinsic.micro_kernel is None
        and not counted & {*names(intrinsic.cycles)}
    ):
        yield Hint(
            intrinsic.location,
            f"the cycles of {intrinsic.name} are the same for 1 and for {own[-1].extent.maximum} "
            f"iterations of {own[-1].name}; if each takes time, write {intrinsic.cycles} + "
            "iterations",
        )
    lost = [str(x) for x in intrinsic.semantics if loses_nan(x)]
    if lost and intrinsic.nan in ("second", "number"):
        yield Hint(
            intrinsic.location,
            f"with nan: {intrinsic.nan}, {intrinsic.name} is {'; '.join(lost)}, which is no max or "
            "min of a workload; write the operand that is never NaN first, if the instruction "
            "takes it there, or nan: any, so that nothing is said of NaN on this chip",
        )
    for operand in intrinsic.operands:
        memory = hardware.memory[operand.memory]
        half = memory.capacity_entries // 2
        if memory.kind == "scratchpad" and intrinsic.stop(operand) <= half:
            yield Hint(
                intrinsic.location,
                f"operand {operand.name} of {intrinsic.name} begins in entries up to "
                f"{operand.address.maximum} of the {memory.capacity_entries} of {memory.name}; "
                f"where the field holds all, write address: 0..{memory.capacity_entries - 1}",
            )


def _of_templates(hardware: HardwareSpec, document: Document) -> Iterator[Hint]:
    parameters = [name for name, _ in hardware.parameters]
    for template in own_templates(hardware):
        where = ".".join(map(str, template.path))
        for name in _SINGLE.findall(template.text):
            if name.partition(".")[0] in (*parameters, *template.variables):
                yield Hint(
                    document.locate(template.path),
                    f"{{{name}}} in {where} is C as it stands; the value is {{{{ {name} }}}}",
                )
    for intrinsic in hardware.intrinsics:
        for operand in intrinsic.operands if intrinsic.unit else ():
            if hardware.is_offchip(operand.memory):
                yield from _of_pointer(hardware, intrinsic, operand, document)


_SINGLE = re.compile(r"(?<!\{)\{\s*([A-Za-z_]\w*(?:\.\w+)*)\s*\}(?!\})")
"""A name in one brace on each side."""
_NEXT = (
    r"(?:\(\s*(?:const\s+)?(\w+)\s*(?:const\s*)?(\*)\s*\)\s*\(*\s*)?\{\{-?\s*NAME\.buffer\s*-?\}\}"
    r"\s*\)*\s*\+\s*\(*\s*\{\{-?\s*NAME\.(?:address|base)\s*-?\}\}(?!\s*\)*\s*(?:\*|<<))"
)
"""An operand's buffer, with a cast or without, to which its address is added as it is."""
_POINTEES = {"void": 1, "char": 1, "float": 4, "double": 8}


def _of_pointer(
    hardware: HardwareSpec, intrinsic: Intrinsic, operand: Operand, document: Document
) -> Iterator[Hint]:
    """C adds to a pointer in elements of what it points to, and to one of no type, or to a number,
    in bytes."""
    entry = operand.entry_elements * DTYPES[operand.dtype]
    handle = hardware.code.handle_type.replace("const", "").split("*")
    for cast, star in re.findall(_NEXT.replace("NAME", operand.name), intrinsic.emit):
        kind = cast if star else handle[0].strip()
        number = re.fullmatch(r"u?int(?:ptr|(\d+))_t|size_t", kind)
        pointee = _POINTEES.get(kind, int(number[1] or 8) // 8 if number else 0)
        if not star and len(handle) == 1:
            pointee = 1 if number else 0  # A number, or a type that only the vendor knows.
        if pointee not in (0, entry):
            named = f"{{{{ {operand.name}.buffer }}}} + ", f"{{{{ {operand.name}.address }}}}"
            yield Hint(
                document.locate(("intrinsics", intrinsic.name, "emit")),
                f"{''.join(named)} in {intrinsic.name} moves by {pointee} of the {entry} bytes of "
                f"each entry; if bytes are meant, write (char *){''.join(named)} * {entry}",
            )
