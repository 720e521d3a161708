"""C source of a kernel: one walk over the program, two targets.

The target says how a call and its synchronisation are written: against the vendor's runtime
(`emit_vendor`) or against the checked C model generated from the same spec (`emit_model`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from hwgen.codegen.c_reserved import reserved_words
from hwgen.codegen.c_words import uses_math
from hwgen.codegen.emit_host import header
from hwgen.codegen.emit_model import emit_model
from hwgen.codegen.emit_vendor import emit_vendor
from hwgen.codegen.firmware import firmware_header, in_workspace, pack_file
from hwgen.codegen.host_plan import HostPlan, host_plan
from hwgen.codegen.limits import check_kernel
from hwgen.codegen.nodes import Call, calls
from hwgen.codegen.once import split_once
from hwgen.codegen.packing import packing_instructions
from hwgen.codegen.program import Program
from hwgen.codegen.software_loops import written_out
from hwgen.codegen.source import CSource, Parameter
from hwgen.errors import HwgenError
from hwgen.spec.expression import Const
from hwgen.spec.hardware import HardwareSpec
from hwgen.spec.workload import Tensor, Workload


@dataclass(frozen=True)
class FirmwareSource:
    """The C text of one kernel that takes no memory from a heap.

    `source`: its functions, without parameters for what is compiled in. `pack`: a file of the
    functions that pack constants; "" where there are none to pack. `plan`: where its images lie.
    """

    source: CSource
    pack: str
    plan: HostPlan


def emit(program: Program, hardware: HardwareSpec, workload: Workload) -> CSource:
    """The kernel as text: C for the vendor's runtime and for the model, or, of a chip that is a
    processor alone, in its language.

    Raises:
        HwgenError: H601 a template fails; H602 the program and the spec do not fit together; H617 a
            number that C cannot hold.
    """
    if not hardware.units:
        from hwgen.codegen.processor.emit import emit_nest

        (code,) = program.codes
        return emit_nest(code, hardware, workload)
    plan, written = _plans(program, hardware, workload)
    summary = f"{plan.name}: {workload.name} on {hardware.name}."
    return _source(
        plan,
        hardware,
        emit_vendor(written, hardware, summary),
        header(plan, summary),
        emit_model(plan, hardware, summary),
    )


def packing_cost(program: Program, hardware: HardwareSpec, workload: Workload) -> dict[str, float]:
    """Instructions in which the host packs or unpacks each image, by its tensor, where the chip's
    spec says what its code retires."""
    machine = hardware.processor
    if machine is None or machine.instructions is None or not hardware.units:
        return {}
    plan, _ = _plans(program, hardware, workload)
    return packing_instructions(plan, machine.instructions)


def emit_firmware(
    program: Program,
    hardware: HardwareSpec,
    workload: Workload,
    compiled_in: frozenset[str] = frozenset(),
    kept: frozenset[str] = frozenset(),
) -> FirmwareSource:
    """The kernel as C in a workspace of the caller's; `compiled_in`: constants whose values are in
    a file of their own; `kept`: as of a `HostPlan`.

    Raises:
        HwgenError: as `emit`; H042 where a processor beside the units does a part, and iterations
            of it that run at once allocate each for itself.
    """
    plan, written = (
        in_workspace(p, hardware, compiled_in) for p in _plans(program, hardware, workload, kept)
    )
    summary = f"{plan.name}: {workload.name} on {hardware.name}, for firmware."
    vendor = emit_vendor(written, hardware, summary)
    text = firmware_header(plan, hardware, summary, uses_math(vendor))
    source = _source(plan, hardware, vendor, text, emit_model(plan, hardware, summary))
    return FirmwareSource(source, pack_file(plan, hardware, summary), plan)


def _plans(
    program: Program,
    hardware: HardwareSpec,
    workload: Workload,
    kept: frozenset[str] = frozenset(),
) -> tuple[HostPlan, HostPlan]:
    """Of the program, and of the same with its C loops written out."""
    _check(program, hardware)
    check_kernel(program)
    reserved = reserved_words(hardware)
    each, workload, once = split_once(program, workload)
    written = written_out(each, hardware)
    return (
        host_plan(each, workload, reserved, hardware, kept, once),
        host_plan(written, workload, reserved, hardware, kept, once),
    )


def _source(
    plan: HostPlan, hardware: HardwareSpec, vendor: str, declared: str, model: str
) -> CSource:
    def parameters(tensors: Sequence[Tensor]) -> tuple[Parameter, ...]:
        return tuple(
            Parameter(
                t.name,
                t.dtype,
                t.shape,
                t.constant,
                plan.borrowed(t),
                t in plan.packed_tensors,
                plan.array_align(t.name),
            )
            for t in tensors
            if not plan.compiled_in(t.name)
        )

    return CSource(
        plan.name,
        parameters(plan.inputs if plan.workspace else plan.callers),
        parameters(plan.outputs),
        vendor,
        declared,
        model,
        # All else in the model's file are hwgen's own words, and names.
        foreign=hardware.foreign if plan.program.codes else "",
    )


def _check(program: Program, hardware: HardwareSpec) -> None:
    """Every call is one of the spec's intrinsics, with its operands, loops and buffers."""
    for call in calls(program.body):
        intrinsic = hardware.intrinsic.get(call.intrinsic)
        if intrinsic is None:
            raise _misfit(f"{hardware.name} has no intrinsic {call.intrinsic}", call)
        if tuple(o.name for o in call.operands) != tuple(o.name for o in intrinsic.operands):
            raise _misfit(f"operands of {call.intrinsic} differ from the spec's", call)
        if bool(intrinsic.micro_kernel) != bool(call.kernel):
            raise _misfit(f"{call.intrinsic} and its micro-kernel do not fit", call)
        if call.kernel and call.kernel not in program.kernel:
            raise _misfit(f"micro-kernel {call.kernel} is not defined", call)
        if len(call.extents) != len(intrinsic.loops):
            raise _misfit(f"{call.intrinsic} has {len(intrinsic.loops)} hardware loops", call)
        for operand, declared in zip(call.operands, intrinsic.operands, strict=True):
            memory = hardware.memory[declared.memory]
            offchip = memory.kind == "offchip"
            if memory.literal and not isinstance(operand.address, Const):
                raise _misfit(f"operand {operand.name}: {operand.address} is no number", call)
            known = program.image if offchip else program.buffer
            if operand.buffer not in known:
                kind = "image" if offchip else "buffer"
                raise _misfit(f"operand {operand.name}: no {kind} {operand.buffer}", call)
            if len(operand.strides) != len(intrinsic.loops):
                raise _misfit(f"operand {operand.name}: one step per hardware loop", call)
            if offchip:
                image = program.image[operand.buffer]
                entry = (image.dtype, prod(image.lanes))
                if entry != (declared.dtype, declared.entry_elements):
                    raise _misfit(
                        f"operand {operand.name}: image {image.name} has lanes "
                        f"{image.dtype}{list(image.lanes)}",
                        call,
                    )


def _misfit(message: str, call: Call) -> HwgenError:
    return HwgenError(
        "H602",
        f"the kernel program does not fit the spec: {message}",
        field=f"call {call.site}",
        found=call.intrinsic,
        repair="report the workload, the spec and this message",
    )
