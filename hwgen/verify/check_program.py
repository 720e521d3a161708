"""Static checks of a kernel program against its chip; they share no code with what makes it.

Each check has a name, looks at the program's text only and costs nothing that grows with the
problem. What depends on loop counters is checked when the program is simulated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import chain, combinations, pairwise, product
from math import prod

import numpy as np

from hwgen.codegen.nodes import (
    Call,
    If,
    Loop,
    Node,
    OfCode,
    Sync,
    calls,
)
from hwgen.codegen.program import KernelLoop, MicroKernelDef, Program
from hwgen.codegen.storages import Buffer, Image
from hwgen.errors import HwgenError
from hwgen.model.configuration_check import configuration_problems
from hwgen.model.images import check_coverage, lossless
from hwgen.model.numeric import Value, cast
from hwgen.spec.affine import affine
from hwgen.spec.expression import Access, Cast, Expr, names, walk
from hwgen.spec.expression import Call as Function
from hwgen.spec.hardware import HardwareSpec, Immediate, Intrinsic
from hwgen.spec.intervals import within
from hwgen.spec.typecheck import integer_range, is_float
from hwgen.spec.workload import Tensor, Workload
from hwgen.verify.check_parts import part_problems
from hwgen.verify.in_place import in_place_problems
from hwgen.verify.lane_fields import lane_problems
from hwgen.verify.overlaps import Overlaps
from hwgen.verify.same_fields import same_problems
from hwgen.verify.synchronisation import synchronisation_problems

Problem = tuple[str, str, str]
"""What is wrong, where (or what was found), and what is allowed."""


@dataclass(frozen=True, slots=True)
class Subject:
    """What a check may look at."""

    program: Program
    hardware: HardwareSpec
    workload: Workload | None


@dataclass(frozen=True, slots=True)
class Check:
    """A named check; `code` is that of the error it raises; `whole`: it looks at all parts of a
    program together."""

    name: str
    code: str
    find: Callable[[Subject], Iterator[Problem]]
    whole: bool = False


def check_program(
    program: Program, hardware: HardwareSpec, workload: Workload | None = None
) -> None:
    """Run every check of `CHECKS`; with a workload, the images are held against its tensors.

    Raises:
        HwgenError: H731 to H746, the first problem of the first check that fails.
    """
    whole = Subject(program, hardware, workload)
    subjects = [replace(whole, program=p) for p in program.parts if isinstance(p, Program)]
    for check in CHECKS:
        found_by = (check.find(s) for s in ([whole] if check.whole else subjects))
        for message, found, allowed in chain.from_iterable(found_by):
            raise HwgenError(
                check.code,
                message,
                field=f"{program.name}, check {check.name}",
                found=found,
                allowed=allowed,
                repair="report this command: the compiler is wrong",
            )


def _references(subject: Subject) -> Iterator[Problem]:
    program, hardware = subject.program, subject.hardware
    if program.hardware != hardware.name:
        yield "the program is for another chip", program.hardware, hardware.name
    for kind, labels in (
        ("image", [i.name for i in program.images]),
        ("buffer", [b.name for b in program.buffers]),
        ("micro-kernel", [k.name for k in program.kernels]),
        ("site", [str(c.site) for c in calls(program.body)]),
    ):
        if twice := sorted({n for n in labels if labels.count(n) > 1}):
            yield f"two of one name: {kind}", ", ".join(twice), "each name once"
    if both := sorted(set(program.image) & set(program.buffer)):
        yield "an image and a buffer share a name", ", ".join(both), "distinct names"
    for kernel in program.kernels:
        intrinsic = hardware.intrinsic.get(kernel.intrinsic)
        if intrinsic is None or intrinsic.micro_kernel is None:
            known = [i.name for i in hardware.intrinsics if i.micro_kernel]
            yield f"{kernel.name} is of no such intrinsic", kernel.intrinsic, ", ".join(known)
    for call in calls(program.body):
        yield from _call_references(subject, call)


def _call_references(subject: Subject, call: Call) -> Iterator[Problem]:
    program, hardware = subject.program, subject.hardware
    where = f"site {call.site} ({call.intrinsic})"
    intrinsic = hardware.intrinsic.get(call.intrinsic)
    if intrinsic is None:
        yield "unknown intrinsic", where, ", ".join(hardware.intrinsic)
        return
    if call.unit != intrinsic.unit:
        yield "a call on the wrong unit", f"{where} on {call.unit}", intrinsic.unit
    given, expected = [o.name for o in call.operands], [o.name for o in intrinsic.operands]
    if given != expected:
        yield "wrong operands", f"{where}: {', '.join(given)}", ", ".join(expected)
        return
    levels = len(intrinsic.loops)
    for numbers in (call.extents, *(o.strides for o in call.operands)):
        if len(numbers) != levels:
            yield "wrong number of extents or strides", f"{where}: {len(numbers)}", str(levels)
    for operand, rule in zip(call.operands, intrinsic.operands, strict=True):
        offchip = hardware.is_offchip(rule.memory)
        if offchip:
            image = program.image.get(operand.buffer)
            known = image is not None and (image.memory or hardware.offchip.name) == rule.memory
        else:
            buffer = program.buffer.get(operand.buffer)
            known = buffer is not None and buffer.memory == rule.memory
        if not known:
            yield "no such place", f"{where}: {operand.name}={operand.buffer}", f"in {rule.memory}"
    if intrinsic.micro_kernel is not None:
        kernel = program.kernel.get(call.kernel)
        if kernel is None or kernel.intrinsic != call.intrinsic or call.variant is None:
            yield "a call without its micro-kernel", f"{where}: {call.kernel!r}", call.intrinsic


def _buffer_bounds(subject: Subject) -> Iterator[Problem]:
    for buffer in subject.program.buffers:
        memory = subject.hardware.memory.get(buffer.memory)
        if memory is None or memory.kind == "offchip":
            yield "a buffer lies in no on-chip memory", buffer.name, "an on-chip memory"
        elif buffer.slots < 1 or buffer.slot_entries < 1:
            yield "an empty buffer", _place(buffer), "one entry in one slot at least"
        elif buffer.slot_stride and buffer.slot_stride < buffer.slot_entries:
            yield (
                "the slots of a buffer overlap",
                f"{_place(buffer)}: one every {buffer.slot_stride} entries",
                f"at least {buffer.slot_entries} entries from one slot to the next",
            )
        elif buffer.base < 0 or any(high > memory.capacity_entries for _, high in _slots(buffer)):
            yield (
                "a buffer leaves its memory",
                _place(buffer),
                f"{memory.name}[0:{memory.capacity_entries}]",
            )


def _slots(buffer: Buffer) -> list[tuple[int, int]]:
    """First entry of each slot, and the one after its last."""
    step = buffer.slot_stride if buffer.slot_stride else buffer.slot_entries
    first = [buffer.base + number * step for number in range(buffer.slots)]
    return [(low, low + buffer.slot_entries) for low in first]


def _buffer_banks(subject: Subject) -> Iterator[Problem]:
    """Slots begin in the banks that the buffer names; one that is spread has a bank for each."""
    for buffer in subject.program.buffers:
        banks = subject.hardware.memory[buffer.memory].banks
        if banks is None or banks.ways > 1:
            if buffer.banks:
                yield "a buffer names banks of a memory without parts", _place(buffer), "no banks"
            continue
        size = subject.hardware.memory[buffer.memory].capacity_entries // banks.count
        ends = [(low // size, (high - 1) // size) for low, high in _slots(buffer)]
        begins = ", ".join(str(low) for low, _ in ends)
        if begins != ", ".join(map(str, buffer.banks)):
            named = ", ".join(map(str, buffer.banks)) or "none"
            yield (
                "a buffer's slots are not in the banks that it names",
                f"{_place(buffer)}: slots begin in banks {begins}, named are {named}",
                f"the banks of {size} entries that hold its slots",
            )
        elif buffer.slot_stride and (
            any(high - low + 1 > -(-buffer.slot_entries // size) for low, high in ends)
            or any(high >= low for (_, high), (low, _) in pairwise(ends))
        ):
            held = ", ".join(str(a) if a == b else f"{a} to {b}" for a, b in ends)
            yield (
                "slots that are spread over banks share one, or cross into another",
                f"{_place(buffer)}: slots in banks {held}",
                "each slot in banks of its own, no more than it needs",
            )


def _buffers_disjoint(subject: Subject) -> Iterator[Problem]:
    """Buffers in one place are in use one after the other: what comes back to one, in the text or
    in the next iteration of a loop, first writes it, and all of it."""
    program = subject.program
    ordered = sorted(program.buffers, key=lambda b: (b.memory, b.base, b.name))
    overlaps = Overlaps(program, subject.hardware)
    for one, other in combinations(ordered, 2):
        apart = one.memory != other.memory or not any(
            a < d and c < b for a, b in _slots(one) for c, d in _slots(other)
        )
        if apart:
            continue
        if overlaps.meet(one.name, other.name):
            yield (
                "two buffers overlap",
                f"{_place(one)} and {_place(other)}",
                "disjoint buffers, or buffers of which one is done with before the other is used",
            )


def _place(buffer: Buffer) -> str:
    spread = f", slots every {buffer.slot_stride}" if buffer.slot_stride else ""
    end = max((high for _, high in _slots(buffer)), default=buffer.base)
    return f"{buffer.name} at {buffer.memory}[{buffer.base}:{end}]{spread}"


def _kernel_fields(subject: Subject) -> Iterator[Problem]:
    for kernel in subject.program.kernels:
        intrinsic = subject.hardware.intrinsic[kernel.intrinsic]
        micro = intrinsic.micro_kernel
        assert micro is not None
        yield from _kernel_loops(kernel, intrinsic)
        if not 1 <= len(kernel.bases) <= micro.max_variants:
            yield (
                f"{kernel.name} has too many variants, or none",
                str(len(kernel.bases)),
                f"1..{micro.max_variants}",
            )
        known = {i.name: i for i in intrinsic.immediates}
        if set(known) != set(dict(kernel.immediates)):
            given = ", ".join(dict(kernel.immediates)) or "none"
            yield f"{kernel.name} has other immediates", given, ", ".join(known) or "none"
            continue
        for name, value in kernel.immediates:
            if not _holds(known[name], value):
                yield f"{kernel.name}: immediate {name}", str(value), known[name].allowed
        for written in (i for i, o in enumerate(intrinsic.operands) if o.access != "read"):
            recent: list[int] = []
            for number, at in enumerate(_sequence(kernel.sequence, written)):
                if at in recent:
                    yield (
                        f"{kernel.name} writes an address again too soon",
                        f"operation {number} writes entry {at} past its base",
                        f"{micro.rewrite_distance} operations between equal addresses",
                    )
                recent = [at, *recent][: micro.rewrite_distance - 1]


def _holds(field: Immediate, value: int | float) -> bool:
    """Whether an immediate is a number of its field's type and inside its range."""
    if not field.admits(value) or not field.is_float:
        return field.admits(value)
    return cast(Value(np.asarray(value, np.float64), "float64"), field.dtype).array.item() == value


def _sequence(loops: tuple[KernelLoop, ...], operand: int) -> Iterator[int]:
    for steps in product(*(range(loop.extent) for loop in loops)):
        yield sum(i * loop.strides[operand] for i, loop in zip(steps, loops, strict=True))


def _kernel_loops(kernel: MicroKernelDef, intrinsic: Intrinsic) -> Iterator[Problem]:
    if len(kernel.loops) > len(intrinsic.loops):
        yield f"{kernel.name} has too many loops", str(len(kernel.loops)), str(len(intrinsic.loops))
        return
    for rule, loop in zip(intrinsic.loops, kernel.loops, strict=False):
        if loop.extent not in rule.extent:
            yield f"{kernel.name}: extent of {rule.name}", str(loop.extent), str(rule.extent)
        for operand, stride in zip(intrinsic.operands, loop.strides, strict=True):
            allowed = rule.stride(operand.name).range
            if stride not in allowed:
                yield f"{kernel.name}: step of {operand.name}", str(stride), str(allowed)
    for position, operand in enumerate(intrinsic.operands):
        ends = [(loop.extent - 1) * loop.strides[position] for loop in kernel.sequence]
        low, high = sum(min(0, e) for e in ends), sum(max(0, e) for e in ends)
        for variant, bases in enumerate(kernel.bases):
            first, last = bases[position] + low, bases[position] + high
            if first not in operand.address or last not in operand.address:
                yield (
                    f"{kernel.name}, variant {variant}: address of {operand.name}",
                    f"{first}..{last}",
                    str(operand.address),
                )
        steps = [x.strides[position] for x in kernel.sequence if x.extent > 1]
        if any(step % operand.address.step for step in steps):
            yield (
                f"{kernel.name}: address of {operand.name}",
                f"steps of {steps}",
                (str(operand.address)),
            )


def _kernel_capacity(subject: Subject) -> Iterator[Problem]:
    used: dict[str, int] = {}
    for kernel in subject.program.kernels:
        micro = subject.hardware.intrinsic[kernel.intrinsic].micro_kernel
        assert micro is not None
        used[micro.name] = used.get(micro.name, 0) + kernel.operations * len(kernel.bases)
        if used[micro.name] > micro.capacity_operations:
            yield (
                "the micro-kernels do not fit their memory",
                f"{used[micro.name]} operations up to {kernel.name}",
                f"{micro.capacity_operations} in {micro.name}",
            )


def _images(subject: Subject) -> Iterator[Problem]:
    program = subject.program
    for role, tensors in (("input", program.inputs), ("output", program.outputs)):
        held = {i.tensor for i in program.images if i.role == role and i.supplied is None}
        if extra := sorted(held - set(tensors)):
            yield f"an {role} image of another tensor", ", ".join(extra), ", ".join(tensors)
    stored = [i.tensor for i in program.images if i.role == "output"]
    if missing := sorted(set(program.outputs) - set(stored)):
        yield "an output without an image", ", ".join(missing), "one image for each output"
    if twice := sorted({t for t in stored if stored.count(t) > 1}):
        yield "an output with several images", ", ".join(twice), "one image for each output"
    between = [i.tensor for i in program.images if i.role == "temporary"]
    if odd := sorted({*between} & {*program.inputs, *program.outputs}):
        yield "a temporary image of an input or output", ", ".join(odd), "other tensors"
    if twice := sorted({t for t in between if between.count(t) > 1}):
        yield "a tensor with several temporary images", ", ".join(twice), "one image for each"
    for image in program.images:
        if any(extent < 1 for extent in image.outer + image.lanes):
            yield f"{image.name} is empty", str(image.outer + image.lanes), "positive extents"
            continue
        known = {f"p{axis}" for axis in range(len(image.outer) + len(image.lanes))}
        used = {name for index in image.index for name in names(index)}
        if not used <= known:
            yield f"{image.name} uses unknown names", ", ".join(sorted(used - known)), "p0, p1, ..."
            continue
        if subject.workload is not None:
            yield from _image_of_tensor(image, program, subject.workload)


def _image_of_tensor(image: Image, program: Program, workload: Workload) -> Iterator[Problem]:
    if image.role == "temporary":
        kept = (image.tensor, image.dtype, image.shape, "intermediate", False)
        tensor = Tensor(*kept, workload.location)
    else:
        tensor = program.tensors(workload).get(image.tensor)
    if tensor is None or len(image.index) != len(tensor.shape):
        yield f"{image.name} does not fit its tensor", image.tensor, "a tensor of that rank"
        return
    same = image.dtype == tensor.dtype
    if image.supplied is not None:  # One number, which the image may store in a type of its own.
        number = image.supplied, image.supplied
        same = is_float(image.dtype) or within(number, integer_range(image.dtype))
    if not same and (image.role != "input" or not lossless(tensor.dtype, image.dtype)):
        yield f"{image.name} cannot hold its tensor", image.dtype, f"every {tensor.dtype}"
    if image.role != "input" and not _is_blocked(image, tensor.shape):
        try:
            check_coverage(image, tensor.shape)
        except HwgenError as error:
            found = error.diagnostic
            yield found.message, found.found, found.allowed


def _is_blocked(image: Image, shape: tuple[int, ...]) -> bool:
    """Whether each index is a number in mixed radix whose digits are positions of its own, so
    that the image covers its tensor once; most are, and need no enumeration."""
    extents = {f"p{axis}": extent for axis, extent in enumerate(image.outer + image.lanes)}
    seen: set[str] = set()
    for index, extent in zip(image.index, shape, strict=True):
        form = affine(index)
        if form is None or form.constant or seen & set(form.names):
            return False
        digits = [(step, name) for name, step in form.terms if extents[name] > 1]
        reach = 1
        for step, name in sorted(digits):
            if step != reach:
                return False
            reach *= extents[name]
        if reach < extent:
            return False
        seen |= set(form.names)
    return all(extents[name] == 1 for name in set(extents) - seen)


def _loops(subject: Subject) -> Iterator[Problem]:
    yield from _scope(subject.program.body, ())


def _scope(nodes: tuple[Node, ...], bound: tuple[str, ...]) -> Iterator[Problem]:
    for node in nodes:
        match node:
            case Loop(variable, lower, upper, body):
                if variable in bound:
                    yield "a loop hides another", variable, "a new name"
                for expr in (lower, upper):
                    yield from _expression(expr, bound, f"a bound of loop {variable}")
                yield from _scope(body, (*bound, variable))
            case If(condition, then, otherwise):
                yield from _expression(condition, bound, "a condition")
                yield from _scope(then, bound)
                yield from _scope(otherwise, bound)
            case Call():
                where = f"site {node.site}"
                for operand in node.operands:
                    for expr in (operand.address, *operand.strides):
                        yield from _expression(expr, bound, f"{where}, operand {operand.name}")
                for expr in node.extents:
                    yield from _expression(expr, bound, f"{where}, an extent")
                if node.variant is not None:
                    yield from _expression(node.variant, bound, f"{where}, its variant")
            case Sync() | OfCode():
                pass


def _expression(expr: Expr, bound: tuple[str, ...], where: str) -> Iterator[Problem]:
    if unbound := sorted(set(names(expr)) - set(bound)):
        allowed = ", ".join(bound) or "no loop is open"
        yield f"{where} names no loop around it", ", ".join(unbound), allowed
    for node in walk(expr):
        odd = isinstance(node, Function) and node.function not in ("min", "max", "select")
        if odd or isinstance(node, Access | Cast):
            yield f"{where} is no integer expression", str(node), "+ - * // %, min, max, select"


def _immediates(subject: Subject) -> Iterator[Problem]:
    for call in calls(subject.program.body):
        rules = {i.name: i for i in subject.hardware.intrinsic[call.intrinsic].immediates}
        where = f"site {call.site} ({call.intrinsic})"
        given = dict(call.immediates)
        if set(given) != set(rules):
            yield f"{where} has other immediates", ", ".join(given), ", ".join(rules) or "none"
            continue
        for name, value in given.items():
            if not _holds(rules[name], value):
                yield f"{where}: immediate {name}", str(value), rules[name].allowed


def _synchronisation(subject: Subject) -> Iterator[Problem]:
    """The chip has what each synchronisation uses; edges take their flags in one way."""
    return synchronisation_problems(subject.program, subject.hardware)


def _entries(subject: Subject) -> Iterator[Problem]:
    """Entries of operands, buffers and images agree in size."""
    for call in calls(subject.program.body):
        intrinsic = subject.hardware.intrinsic[call.intrinsic]
        for operand, rule in zip(call.operands, intrinsic.operands, strict=True):
            image = subject.program.image.get(operand.buffer)
            if image is None:
                continue
            entry = rule.entry_shape
            if entry != image.lanes or image.dtype != rule.dtype:
                yield (
                    f"site {call.site}: entries of {image.name} are not those of {rule.name}",
                    f"{image.dtype}{list(image.lanes)}, {prod(image.lanes)} elements",
                    f"{rule.dtype}{list(entry)}",
                )


def _same(subject: Subject) -> Iterator[Problem]:
    """Operands that must be the same are."""
    return same_problems(subject.program, subject.hardware)


def _lanes(subject: Subject) -> Iterator[Problem]:
    """As many lanes take part as calls have fields for."""
    return lane_problems(subject.program, subject.hardware)


def _configuration(subject: Subject) -> Iterator[Problem]:
    """Every call finds the state that it depends on."""
    return configuration_problems(subject.program, subject.hardware)


def _in_place(subject: Subject) -> Iterator[Problem]:
    """Images in place are the caller's arrays."""
    return in_place_problems(subject.program, subject.hardware, subject.workload)


CHECKS: tuple[Check, ...] = (
    Check("parts", "H746", part_problems, whole=True),
    Check("references", "H731", _references, whole=True),
    Check("loops", "H737", _loops),
    Check("buffer bounds", "H732", _buffer_bounds),
    Check("buffers disjoint", "H733", _buffers_disjoint),
    Check("buffer banks", "H741", _buffer_banks),
    Check("micro-kernel fields", "H734", _kernel_fields),
    Check("micro-kernel capacity", "H735", _kernel_capacity),
    Check("images", "H736", _images),
    Check("in place", "H743", _in_place),
    Check("immediates", "H738", _immediates),
    Check("synchronisation", "H739", _synchronisation),
    Check("entries", "H740", _entries),
    Check("lanes", "H744", _lanes),
    Check("same operands", "H745", _same),
    Check("configuration", "H742", _configuration),
)
"""In the order in which they run; later checks rely on the earlier ones."""
