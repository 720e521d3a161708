"""Kernels of a network's layers: compiled by several processes, as plain data."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from hwgen.autoschedule.options import Options
from hwgen.codegen.emit_c import emit_firmware
from hwgen.codegen.nodes import Code
from hwgen.codegen.once import split_once
from hwgen.codegen.processor.emit import emit_nest_firmware
from hwgen.codegen.program import Program
from hwgen.codegen.storages import Image
from hwgen.errors import Diagnostic, HwgenError
from hwgen.model.folders import cache_folder
from hwgen.model.images import pack
from hwgen.model.numeric import Array
from hwgen.model.weights import images_of, weights_file
from hwgen.network.byte_order import from_little_endian, little_endian
from hwgen.network.in_place import of_code_alone, overwritable, read_first, rearranged, sharing
from hwgen.network.operators.layer import WEIGHTS, Computation
from hwgen.passes.cache import ScheduleCache
from hwgen.passes.kernel import Kernel
from hwgen.passes.nest_pipeline import compile_nest
from hwgen.passes.phase import SearchOptions
from hwgen.pipeline import compile_kernel, compile_workload
from hwgen.spec.expression import DTYPES
from hwgen.spec.hardware import HardwareSpec
from hwgen.spec.workload import Workload
from hwgen.verify.check_instances import check_compiled
from hwgen.verify.executors import Executor, Lost, in_order

Told = Callable[[str, int, int], None]
"""Called with a word, how many kernels are compiled, and how many there are."""
Progress = Callable[[int], AbstractContextManager[Told]]
"""Called once with how many kernels there are."""


def untold(_: int) -> AbstractContextManager[Told]:
    """Tell nobody."""
    return nullcontext(lambda _, __, ___: None)


@dataclass(frozen=True, slots=True)
class Figures:
    """Modelled figures of one call. `host_cycles`: those of a processor beside units;
    `host_reads`: the tensors that it reads. `refused`: where units compute nothing or not the
    products, why, and the nearest repair."""

    cycles: int
    bound: int
    bound_by: str
    offchip_bytes: int
    host_cycles: int
    host_reads: frozenset[str]
    refused: tuple[str, str] | None
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Argument:
    """An array that the kernel takes. `images`: what it holds of a constant, each at its offset in
    bytes, packed; none where it takes the tensor in its own order."""

    tensor: str
    dtype: str
    align: int
    output: bool = False
    images: tuple[tuple[int, Image], ...] = ()
    bytes: int = 0

    def packed(self, values: Array) -> tuple[str, Array]:
        """A constant as the kernel reads it: the data type of the C array, and its elements.

        Images of several data types become bytes, the lowest first.
        """
        if not self.images:
            return self.dtype, values
        kinds = {image.dtype for _, image in self.images}
        dtype = kinds.pop() if len(kinds) == 1 else "uint8"
        room = np.zeros(self.bytes, np.uint8)
        for offset, image in self.images:
            raw = little_endian(pack(image, values, self.dtype), image.dtype)
            room[offset : offset + len(raw)] = np.frombuffer(raw, np.uint8)
        return dtype, from_little_endian(room.tobytes(), dtype)


@dataclass(frozen=True, slots=True)
class LayerKernel:
    """A compiled kernel: `name`, its C function; `source`: the file with it, `model` the one that
    takes its place on a host (the same where the chip is a processor), `sources`: those that go
    with either; `status`: whether the function returns one; `foreign`: the spec whose text is in
    it, where that is not trusted; `early`: inputs that nothing reads once the output is written;
    `overwritable`: those that may have its bytes, if the kernel is emitted for that; `over`: those
    that it is emitted for, and the output. `images`: tensors that the host packs or unpacks, each
    with its image; `kept`: those that it is emitted to take as they lie in these; `once`: what
    computes some of the constants from others."""

    name: str
    files: Mapping[str, str]
    source: str
    model: str
    sources: tuple[str, ...]
    arguments: tuple[Argument, ...]
    workspace_bytes: int
    workspace_align: int
    status: bool
    foreign: str
    figures: Figures
    workload: Workload
    program: Program
    early: frozenset[str] = frozenset()
    overwritable: frozenset[str] = frozenset()
    over: frozenset[str] = frozenset()
    images: Mapping[str, Image] = field(default_factory=dict[str, Image])
    kept: frozenset[str] = frozenset()
    once: Code | None = None


@dataclass(frozen=True, slots=True)
class _Work:
    computation: Computation
    name: str
    hardware: HardwareSpec
    options: SearchOptions
    cache: Path | None


def compile_layers(
    names: Mapping[Computation, str],
    hardware: HardwareSpec,
    *,
    workers: Executor,
    options: SearchOptions,
    cached: bool,
    progress: Progress,
) -> dict[Computation, LayerKernel]:
    """A kernel for each computation, under its name.

    Raises:
        HwgenError: as `compile_workload` and `check_compiled`, with the kernel's name; H041, H042
            where there is no firmware for the chip; H049 or H060 where work is given up.
    """
    folder = cache_folder() if cached else None
    work = [_Work(c, name, hardware, options, folder) for c, name in names.items()]
    with progress(len(work)) as told:
        made = _reported(in_order(_compiled, work, workers), work, told)
        return dict(zip(names, made, strict=True))


def _reported(
    made: Iterator[LayerKernel | Diagnostic | Lost], work: Sequence[_Work], told: Told
) -> Iterator[LayerKernel]:
    for n, (kernel, one) in enumerate(zip(made, work, strict=True), 1):
        if isinstance(kernel, Lost | Diagnostic):
            error = kernel.error.diagnostic if isinstance(kernel, Lost) else kernel
            raise HwgenError(
                error.code, error.message, location=error.location,
                field=f"{one.name}: {error.field}" if error.field else one.name,
                found=error.found, allowed=error.allowed, repair=error.repair,
            )  # fmt: skip
        told("kernels", n, len(work))
        yield kernel


def _compiled(work: _Work) -> LayerKernel | Diagnostic:
    """One kernel, or why there is none; runs in a process of its own."""
    emitted = _of_units if work.hardware.units else _of_processor
    try:
        workload = work.computation.workload(work.name)
        made = compile_layer(workload, work.hardware, work.options, work.cache)
        return emitted(made.program, made.hardware, made.workload, _figures(made))
    except HwgenError as error:
        return error.diagnostic


def compile_layer(
    workload: Workload, hardware: HardwareSpec, options: SearchOptions, cache: Path | None
) -> Kernel:
    """A layer of a network, compiled and checked. `cache`: the folder of searches.

    Raises:
        HwgenError: as `compile_workload` and `check_compiled`.
    """
    if not hardware.units:
        nest = Options(seconds=options.seconds, one_workspace=True)
        return compile_nest(workload, hardware, options=nest)
    kept = ScheduleCache(cache) if cache is not None else None
    made = compile_workload(workload, hardware, replace(options, cache=kept))
    check_compiled(made)
    return made


def written_over(
    kernel: LayerKernel, tensors: frozenset[str], hardware: HardwareSpec
) -> LayerKernel:
    """The kernel for calls in which some inputs and the output may have the same bytes."""
    program, workload = sharing(kernel.program, tensors), kernel.workload
    if hardware.units:
        made = _of_units(program, hardware, workload, kernel.figures, kernel.kept)
    else:
        made = _of_processor(program, hardware, workload, kernel.figures)
    return replace(made, program=kernel.program, over=tensors)


def keeping(kernel: LayerKernel, tensors: frozenset[str], hardware: HardwareSpec) -> LayerKernel:
    """The kernel for calls in which some tensors are arrays of their images."""
    return _of_units(kernel.program, hardware, kernel.workload, kernel.figures, tensors)


def _of_units(
    program: Program,
    hardware: HardwareSpec,
    workload: Workload,
    figures: Figures,
    kept: frozenset[str] = frozenset(),
) -> LayerKernel:
    each, taken, once = split_once(program, workload)
    emitted = emit_firmware(each, hardware, taken, kept=kept)
    plan, source = emitted.plan, emitted.source
    own, name = plan.workspace, source.function
    assert own is not None
    files = {f"{name}.c": source.c, f"{name}.h": source.header, f"{name}_model.c": source.model}
    extra: tuple[str, ...] = ()
    if constants := images_of(plan, {}):
        extra = (f"{name}_weights.c",)
        summary = f"{name}: constants that the kernel brings along."
        files[extra[0]] = weights_file(name, summary, constants, plan.alignment)
    arguments: list[Argument] = []
    for tensor in plan.inputs + plan.outputs:
        if plan.compiled_in(tensor.name):
            continue
        packed, output = tensor in plan.packed_tensors, tensor in plan.outputs
        if not packed or plan.in_place(tensor):
            align = max(plan.array_align(tensor.name), DTYPES[tensor.dtype])
            arguments.append(Argument(tensor.name, tensor.dtype, align, output))
        if packed:
            images = tuple((plan.blob_offset(i), i) for i in plan.staged_of(tensor.name))
            size = max(plan.blob_bytes(tensor.name), 1)
            arguments.append(
                Argument(tensor.name, tensor.dtype, plan.alignment, False, images, size)
            )
    alone = of_code_alone(plan)
    outputs = {t.name for t in plan.outputs}
    over = overwritable(workload) & alone if outputs <= alone else frozenset[str]()
    return LayerKernel(
        name, files, f"{name}.c", f"{name}_model.c", extra, tuple(arguments), own.bytes,
        own.alignment, True, source.foreign, figures, workload, program, read_first(plan), over,
        frozenset(), rearranged(plan), kept, once,
    )  # fmt: skip


def _of_processor(
    program: Program, hardware: HardwareSpec, workload: Workload, figures: Figures
) -> LayerKernel:
    (code,) = program.codes
    emitted = emit_nest_firmware(code, hardware, workload)
    source, name = emitted.source, emitted.source.function
    file = f"{name}{hardware.machine.suffix}"
    arguments = tuple(
        Argument(p.name, p.dtype, max(p.align, DTYPES[p.dtype]), p in source.outputs)
        for p in (*source.inputs, *source.outputs)
    )
    return LayerKernel(
        name, {file: source.c, f"{name}.h": source.header}, file, file, (), arguments,
        emitted.room.bytes, emitted.room.alignment if emitted.room.bytes else 1, False,
        source.foreign, figures, workload, program, frozenset(), overwritable(workload),
    )  # fmt: skip


def _figures(made: Kernel) -> Figures:
    codes = made.program.codes if made.hardware.units else ()
    beside = [code for code in codes if not code.once]
    host_reads = frozenset(n for code in beside for n in code.inputs)
    held = any(image.tensor == WEIGHTS for image in made.program.images)
    fallen = made.on_processor_alone or (WEIGHTS in host_reads and not held)
    return Figures(
        made.cycles,
        made.bound.cycles,
        made.bound.resource,
        made.offchip_bytes,
        sum(code.cycles for code in beside),
        host_reads,
        _refused(made) if fallen else None,
        made.notes,
    )


def _refused(made: Kernel) -> tuple[str, str]:
    """Why units alone do not compute a layer, as `explain` says it, and the nearest repair."""
    try:
        compile_kernel(made.workload, made.hardware)
    except HwgenError as error:
        told = error.diagnostic
        return told.found or told.message, told.repair
    return "the host core takes fewer cycles", ""
