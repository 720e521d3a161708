"""`generate --target firmware`: the files of a folder that an embedded program takes in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

from hwgen.codegen.c_names import C_TYPES
from hwgen.codegen.emit_c import FirmwareSource, emit_firmware
from hwgen.codegen.firmware_build import Argument, Part, build_files, example
from hwgen.codegen.host_plan import HostPlan
from hwgen.codegen.once import split_once
from hwgen.codegen.processor.emit import NestFirmware, emit_nest_firmware
from hwgen.model.code import run_code
from hwgen.model.weights import Constant, images_of, weights_file
from hwgen.report.output import add_files

if TYPE_CHECKING:
    from hwgen.model.numeric import Array
    from hwgen.passes.kernel import Kernel
    from hwgen.spec.hardware import HardwareSpec
    from hwgen.spec.workload import Workload

WEIGHTS = "_weights.c"


@dataclass(frozen=True, slots=True)
class FirmwareKernel:
    """A kernel's own files by name, and what the folder's others need to know of it. `emitted`,
    `model`: the texts that `--stage` shows."""

    part: Part
    files: Mapping[str, str]
    emitted: str
    model: str
    constant_bytes: int

    def stage(self, name: str) -> str:
        """What a stage shows; "" where it shows the same as for a host."""
        return {"emit": self.emitted, "model": self.model}.get(name, "")

    def __str__(self) -> str:
        room = f"{self.part.name}: {self.part.workspace_bytes:,} bytes of workspace"
        return room + (f", {self.constant_bytes:,} of constants" if self.constant_bytes else "")


def firmware_of(compiled: Kernel, arrays: Mapping[str, Array]) -> FirmwareKernel:
    """The files of a kernel; `arrays`: the constants that are compiled in.

    Raises:
        HwgenError: H041, H042 where there is no firmware for what a processor computes of it; H043
            a value that C has no text for.
    """
    return (_of_units if compiled.hardware.units else _of_processor)(compiled, arrays)


def _of_units(compiled: Kernel, arrays: Mapping[str, Array]) -> FirmwareKernel:
    program, workload = compiled.program, compiled.workload
    each, given, once = split_once(program, workload)
    if once is not None and {*once.inputs} <= {*arrays}:
        program, workload = each, given
        arrays = {**arrays, **run_code(once, compiled.hardware, arrays).outputs}
    made = emit_firmware(program, compiled.hardware, workload, frozenset(arrays))
    source, name = made.source, made.source.function
    files = {f"{name}.c": source.c, f"{name}.h": source.header, f"{name}_model.c": source.model}
    extra, size = _constants(name, compiled, images_of(made.plan, arrays), made.plan.alignment)
    files |= extra
    if made.pack:
        files[f"{name}_pack.c"] = made.pack
    return FirmwareKernel(part_of(made, tuple(extra)), files, source.c, source.model, size)


def part_of(made: FirmwareSource, extra: tuple[str, ...] = ()) -> Part:
    """What the folder's other files need to know of a kernel for units; `extra`: its constants'."""
    own, name = made.plan.workspace, made.source.function
    assert own is not None
    return Part(
        name, f"{name}.c", extra, f"{name}_model.c", _arguments(made.plan), own.pointer, own.bytes,
        status=True,
    )  # fmt: skip


def _of_processor(compiled: Kernel, arrays: Mapping[str, Array]) -> FirmwareKernel:
    (code,) = compiled.program.codes
    chosen = frozenset(arrays)
    made = emit_nest_firmware(code, compiled.hardware, compiled.workload, chosen)
    name, processor = made.source.function, compiled.hardware.processor
    assert processor is not None
    dtypes = {t.name: t.dtype for t in compiled.workload.inputs}
    constants = [Constant(text, dtypes[n], arrays[n]) for n, text in made.constants]
    extra, size = _constants(name, compiled, constants, made.room.alignment)
    file = f"{name}{processor.suffix}"
    part = Part(
        name, file, tuple(extra), "", _tensors(made), made.room.pointer,
        made.room.bytes, status=False,
    )  # fmt: skip
    files = {file: made.source.c, f"{name}.h": made.source.header, **extra}
    return FirmwareKernel(part, files, made.source.c, "", size)


def firmware_files(kernels: Sequence[FirmwareKernel], hardware: HardwareSpec) -> dict[str, str]:
    """A folder of kernels of one chip, with what it needs besides them.

    Raises:
        HwgenError: H009 two kernels of one name.
    """
    files: dict[str, str] = {}
    if not kernels:
        return files
    for kernel in kernels:
        add_files(files, kernel.part.name, kernel.files)
    parts = [k.part for k in kernels]
    texts = [(k.part.name, k.files[f"{k.part.name}.h"] + k.emitted) for k in kernels]
    return {**files, "main.c": example(parts), **build_files(parts, texts, hardware)}


def _constants(
    name: str, compiled: Kernel, constants: Sequence[Constant], alignment: int
) -> tuple[dict[str, str], int]:
    """The file of constants, where there are any, and their bytes."""
    if not constants:
        return {}, 0
    summary = f"{name}: {_title(compiled.workload, compiled.hardware)}."
    size = sum(c.values.nbytes for c in constants)
    return {f"{name}{WEIGHTS}": weights_file(name, summary, constants, alignment)}, size


def _title(workload: Workload, hardware: HardwareSpec) -> str:
    return f"constants of {workload.name} on {hardware.name}"


def _arguments(plan: HostPlan) -> tuple[Argument, ...]:
    """What `NAME` takes before its workspace."""
    chip = {i.tensor for i in plan.program.images if i.name in plan.direct & plan.resident}
    found: list[Argument] = []
    for tensor in plan.inputs + plan.outputs:
        if plan.compiled_in(tensor.name):
            continue
        own, packed = plan.identifiers[tensor.name], tensor in plan.packed_tensors
        if not packed or plan.in_place(tensor):
            kind, size = C_TYPES[tensor.dtype], str(prod(tensor.shape))
            found.append(Argument(own, kind, size, aligned=tensor.name in chip))
        if packed:
            size = f"{plan.name}_PACKED_BYTES_{own}"
            found.append(Argument(plan.packed(tensor), "unsigned char", size, aligned=True))
    return tuple(found)


def _tensors(made: NestFirmware) -> tuple[Argument, ...]:
    given = (*made.source.inputs, *made.source.outputs)
    return tuple(
        Argument(made.parameters[p.name], C_TYPES[p.dtype], str(prod(p.shape))) for p in given
    )
