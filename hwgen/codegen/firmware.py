"""Kernels without a heap: where their images lie, their header, and the packing of constants."""

from __future__ import annotations

from dataclasses import replace

from hwgen.codegen.c_names import comment
from hwgen.codegen.c_words import uses_math
from hwgen.codegen.emit_body import image_text, index_helpers, narrow_body
from hwgen.codegen.emit_host import contract, framed, pack_function, pack_signature
from hwgen.codegen.emit_vendor import run_signature
from hwgen.codegen.exported import exported
from hwgen.codegen.floating_point import floating_point_rules
from hwgen.codegen.host_plan import HostPlan, Workspace, workspace_macros
from hwgen.codegen.image_identity import array_number, layout_number
from hwgen.codegen.nodes import Code, calls
from hwgen.codegen.once import derive_function, derive_signature, derived_rule
from hwgen.codegen.packing import narrow, packing_of, pads
from hwgen.codegen.processor.firmware import Room, room
from hwgen.codegen.templates import render
from hwgen.codegen.workspace_places import workspace_places
from hwgen.spec.hardware import HardwareSpec
from hwgen.spec.workload import Tensor


def in_workspace(
    plan: HostPlan, hardware: HardwareSpec, compiled_in: frozenset[str] = frozenset()
) -> HostPlan:
    """The plan with a workspace of the caller's in place of the heap."""
    own = Workspace(plan.identifiers.fresh("workspace"), {}, 0, compiled_in)
    plan = replace(plan, workspace=own)

    def room_of(code: Code) -> Room:
        return room(code, hardware, own.pointer, frozenset())

    rooms = [room_of(c) for c in plan.program.codes]
    offsets, end = workspace_places(plan, rooms)
    if plan.once is not None:
        rooms.append(room_of(plan.once))
        end = max(end, rooms[-1].bytes)
    alignment = max([plan.alignment, *(r.alignment for r in rooms)])
    own = replace(own, offsets=offsets, bytes=end, alignment=alignment)
    index = "int32_t" if narrow(plan) and narrow_body(plan.program.body) else plan.index
    return replace(plan, workspace=own, index=index)


def pack_file(plan: HostPlan, hardware: HardwareSpec, summary: str) -> str:
    """The functions that compute and pack what is not compiled in; "" where there are none."""
    tensors = [t for t in plan.packed_tensors if not plan.compiled_in(t.name)]
    if not tensors and plan.once is None:
        return ""
    helpers = index_helpers(plan.name, plan.index)
    functions = packing_of(plan, helpers, tensors)
    body = [
        *(f"{pack_signature(plan, t)};" for t in tensors),
        *([f"{derive_signature(plan)};"] if plan.once is not None else []),
        "",
        *(line for text in helpers.definitions() for line in (text, "")),
        *functions,
        *derive_function(plan, hardware),
        *(line for t in tensors for line in pack_function(plan, t)),
    ]
    if plan.once is not None:
        own = hardware.code.definitions
        body = [render(own, dict(hardware.parameters), hardware.location, "definitions"), *body]
    text = "\n".join(body).rstrip("\n") + "\n"
    head = [
        f"/* {comment(summary)}",
        " *",
        " * Packs constants, once; nothing else needs this file. */",
        *(floating_point_rules(plan.codes) if plan.once is not None else []),
        *(["#include <math.h>"] if uses_math(text) else []),
        "#include <stdint.h>",
        "#include <string.h>",
        *([f'#include "{plan.name}.h"'] if plan.once is not None else []),
        "",
    ]
    return "\n".join([*head, text])


# --- header --------------------------------------------------------------------------------------


def firmware_header(plan: HostPlan, hardware: HardwareSpec, summary: str, math: bool) -> str:
    """The header: sizes, what is compiled in, `NAME`, `NAME_run`; `math`: the file needs
    <math.h>."""
    assert plan.workspace is not None
    name, constants = plan.name, plan.constants()
    body = workspace_macros(name, plan.workspace.bytes, plan.workspace.alignment)
    if constants:
        body += [f"/* Compiled in, as the chip reads them: {name}_weights.c. */"]
        body += [*(f"extern {c.declaration};" for c in constants), ""]
    failure = "the chip's memory has no room for a buffer" if plan.on_device else ""
    body += [*contract(plan, failure), f"{plan.signature};", ""]
    for tensor in plan.packed_tensors:
        if not plan.compiled_in(tensor.name):
            own = plan.identifiers[tensor.name]
            body += [
                f"/* Packs {own} once, aligned as a workspace is; in {name}_pack.c. */",
                f"#define {name}_PACKED_BYTES_{own} {max(plan.blob_bytes(tensor.name), 1)}",
                f"{pack_signature(plan, tensor)};",
                "",
            ]
    if plan.once is not None:
        body += [f"/* {derived_rule(plan)}; in {name}_pack.c. Needs a workspace as {name} does. */"]
        body += [f"{derive_signature(plan)};", ""]
    body += [*_run(plan, hardware), f"{run_signature(plan, hardware.code)};"]
    includes = list(dict.fromkeys(["<stdint.h>", *hardware.code.includes]))
    return framed(name, _head(plan, hardware, summary, math), includes, body)


def _head(plan: HostPlan, hardware: HardwareSpec, summary: str, math: bool) -> list[str]:
    name = plan.name
    files = [f"{name}.c", *([f"{name}_weights.c"] if plan.constants() else [])]
    texts = [
        summary,
        "",
        "Nothing here takes memory from a heap. Compile and link with",
        f"  cc -std=c99 -O2 -ffreestanding -I VENDOR -c {' '.join(files)}",
        "where VENDOR is the folder of the vendor's headers, and add the vendor's library. memcpy",
        f"and memset{', and what <math.h> declares,' if math else ''} come from the C library, or "
        "are yours.",
        "",
    ]
    if plan.on_device:
        texts += [
            f"The chip has memory of its own. {name} gets a buffer there for each image and gives",
            f"it back, by the spec's code (`allocate`, `free`), and copies; {name}_run "
            + ("only copies" if plan.program.codes else "does not."),
            *(
                ["what the processor takes over from the chip, or it from the processor."]
                if plan.program.codes
                else []
            ),
            "",
        ]
    if plan.program.codes:
        made = ", ".join(c.name for c in plan.program.codes)
        texts += [
            f"This processor computes {made}",
            "itself, between what the chip does.",
            "",
        ]
    if plan.program.kernels and any(c.kernel for c in calls(plan.program.body)):
        texts += [
            "Re-entrancy: the definitions of micro-kernels are the spec's and may keep handles in",
            "static variables; nothing else that is static is ever written.",
        ]
    else:
        texts += ["Re-entrancy: there is no static variable that is ever written."]
    texts += [
        "A call leaves nothing behind in the workspace. Calls that overlap in time need one each,",
        f"and a {hardware.name} each: its memories, queues and registers are one state, so a call",
        "must end before the next one on the same chip begins, from an interrupt too.",
    ]
    first, *rest = [comment(text) for text in texts]
    return [f"/* {first}", *(f" * {text}".rstrip() for text in rest), " */"]


def _run(plan: HostPlan, hardware: HardwareSpec) -> list[str]:
    """What `NAME_run` takes, in words and as macros."""
    tensors = {t.name: t for t in plan.inputs + plan.outputs + plan.supplied}
    taken = exported(plan)
    images = taken.images if taken else plan.program.images
    inside = taken.inside if taken else frozenset[str]()
    arrays = taken.arrays if taken else ()
    width = max((len(n) for n in (*(i.name for i in images), *(t.name for t in arrays))), default=0)
    lines = [
        "/* The kernel alone. It takes a buffer of the chip's for each image and neither packs,",
        " * copies nor allocates; it returns when the chip has done all:",
    ]
    if taken:
        lines = [
            "/* The kernel alone. It allocates nothing, and packs and copies only what the chip",
            " * and the processor hand each other; it returns when all is done. It takes a buffer",
            " * of the chip's for each image, and arrays that the processor reads or writes:",
        ]
    lines += [
        f" *   {i.name:<{width}}  {comment(image_text(i))}"
        + (f", at a multiple of {plan.aligns[i.name]} bytes" if plan.aligns[i.name] > 1 else "")
        for i in images
    ]
    lines += [f" *   {t.name:<{width}}  {comment(_array_text(t))}" for t in arrays]
    lines += [
        " * Where LAYOUT of an output here is that of another kernel's input, that kernel can take",
        " * the buffer as it is: the same elements lie at the same bytes. */",
    ]
    padded = [i.name for i in images if pads(i) and i.name not in inside]
    if padded:
        lines[-1] = lines[-1].replace(" */", "")
        lines += [f" * Zeros must be in {', '.join(padded)} before the first run. */"]
    for image in images:
        own = plan.identifiers[image.name]
        lines += [f"#define {plan.name}_BYTES_{own} {image.bytes}"]
        if image.role != "temporary" and image.name not in inside:
            number = layout_number(image, tensors[image.tensor])
            lines += [f"#define {plan.name}_LAYOUT_{own} 0x{number:08x}u"]
    memory = _host_memory(hardware)
    for tensor in arrays:
        own = plan.identifiers[tensor.name]
        number = array_number(tensor, memory)
        lines += [
            f"#define {plan.name}_BYTES_{own} {tensor.bytes}",
            f"#define {plan.name}_LAYOUT_{own} 0x{number:08x}u",
        ]
    return lines


def _array_text(tensor: Tensor) -> str:
    shape = "".join(f"[{n}]" for n in tensor.extents)
    return f"{tensor.dtype} {shape}, {tensor.bytes} bytes, {tensor.role} {tensor.name}, an array"


def _host_memory(hardware: HardwareSpec) -> str:
    """What the images are in that the chip reads and writes where the host has its arrays, as they
    call it; "host" where the chip has memory of its own, so that arrays are no buffers of its."""
    if not hardware.code.handles_are_pointers:
        return "host"
    shared = [m.name for m in hardware.memories if m.shared]
    return shared[0] if len(shared) == 1 else "host"
