"""What is valid in a chip's file and yet seldom meant."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from hwgen.errors import Location
from hwgen.spec.checks import own_templates
from hwgen.spec.expression import DTYPES, names
from hwgen.spec.hardware import HardwareSpec, Intrinsic, Operand, Unit
from hwgen.spec.nan import loses_nan
from hwgen.spec.source import Data, Document
from hwgen.spec.synchronization import fences

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
    end = _of_end(hardware, document)
    return (*_of_memories(hardware, document), *found, *_of_templates(hardware, document), *end)


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


def _of_end(hardware: HardwareSpec, document: Document) -> Iterator[Hint]:
    """Stores of units that run in parallel with the host, which copies the results back as soon as
    `epilogue` has run."""
    parts = (hardware.synchronization, hardware.completion, hardware.issue, hardware.fetch)
    stores = {
        i.unit: i.name
        for i in reversed(hardware.intrinsics)
        for o in i.operands
        if i.unit and o.access != "read" and hardware.is_offchip(o.memory)
    }
    queued = any(u.queue_entries for u in hardware.units)
    if not stores or not (queued or any(p is not None for p in parts)):
        return
    waits = {u.name: _wait(hardware, u) for u in hardware.units}
    text = _bare(hardware.code.epilogue)
    named = [n for n, w in waits.items() if w and _bare(w) in text]
    for name in named:
        text = text.replace(_bare(waits[name]), "")
    missing = [n for n in waits if n in stores and n not in named]
    if text or not missing:
        return  # The rest may be a wait of the vendor's, or a comment that none is needed.
    calls = next(fences(hardware), "") or " ".join(waits[n] for n in missing if waits[n])
    call = repr(calls.strip()) if calls else "a call that waits"
    after = (
        f"code.epilogue waits for {' and '.join(named)}" if named else "there is no code.epilogue"
    )
    yield Hint(
        document.locate(("code", "epilogue") if named else ("code",), key=not named),
        f"{after}, so the kernel may copy its results back while {stores[missing[0]]} still runs "
        f"on {missing[0]}; write epilogue: {call}, or a comment there if every call returns only "
        "when it is done",
    )


def _bare(text: str) -> str:
    return re.sub(r"[\s;{}]", "", text)


def _wait(hardware: HardwareSpec, unit: Unit) -> str:
    """The C text that waits for all calls of a unit; "" if there is none or it is not plain."""
    barriers = hardware.barriers
    if barriers is None or unit.name not in barriers.units:
        return ""
    values = dict(hardware.parameters, outstanding=0)
    fields: dict[str, int | str] = {f"unit.{n}": v for n, v in unit.identifiers}
    fields |= {"unit.name": unit.name} | values

    def value(found: re.Match[str]) -> str:
        return str(fields.get(found[1], found[0]))

    text = re.sub(r"\{\{-?\s*([\w.]+)\s*-?\}\}", value, barriers.emit)
    return "" if re.search(r"\{[{%]", text) else text
