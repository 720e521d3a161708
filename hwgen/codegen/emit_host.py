"""The host's side of a kernel: packing and unpacking loops, entry points, header.

The same text serves every target: the vendor's runtime and the generated C model differ only in
what runs between packing and unpacking.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hwgen.codegen.c_names import C_TYPES, comment, indent
from hwgen.codegen.host_plan import HostPlan, workspace_rule
from hwgen.codegen.once import derive_call, derive_signature, derived_rule
from hwgen.codegen.packing import clears
from hwgen.codegen.program import Program
from hwgen.codegen.storages import Image
from hwgen.spec.expression import DTYPES
from hwgen.spec.workload import Tensor

# --- entry points --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Execution:
    """What a target does between packing and unpacking; `upload` and `download` name only images
    that have a buffer of the device's.

    `acquire` runs when the staging buffers stand; `ready`, a C condition, tells whether it worked;
    `upload` follows each image's packing, then that of `runs` which is its part's, `download`
    before each image's unpacking; `release` gives everything back. `fails`: runs set `status`, and
    nothing is unpacked, or run later, unless that is 0. `unstaged`: images that the host never
    holds. `whole`: the call of an exported function that runs all parts and itself packs and
    unpacks the images `inside`; "" where there is none.
    """

    acquire: tuple[str, ...]
    ready: str
    upload: tuple[tuple[str, tuple[str, ...]], ...]
    runs: tuple[tuple[str, ...], ...]
    download: tuple[tuple[str, tuple[str, ...]], ...]
    release: tuple[str, ...]
    fails: bool
    unstaged: frozenset[str] = frozenset()
    whole: str = ""
    inside: frozenset[str] = frozenset()


def entry_points(plan: HostPlan, execution: Execution) -> list[str]:
    """`NAME`, and where an input is constant `NAME_prepacked` and the packing functions; with a
    workspace `NAME` alone, which takes constants as they are packed."""
    lines: list[str] = []
    if (plan.packed_tensors or plan.once is not None) and plan.workspace is None:
        for tensor in plan.packed_tensors:
            lines += [*_packed_bytes(plan, tensor), *pack_function(plan, tensor)]
        lines += [plan.prepacked_signature, "{", *indent(_body(plan, execution)), "}", ""]
        lines += [plan.signature, "{", *indent(_wrapper(plan)), "}"]
    else:
        lines += [plan.signature, "{", *indent(_body(plan, execution)), "}"]
    return lines


def _packed_bytes(plan: HostPlan, tensor: Tensor) -> list[str]:
    return [
        f"size_t {plan.name}_packed_bytes_{plan.identifiers[tensor.name]}(void)",
        "{",
        f"  return {plan.blob_bytes(tensor.name)};",
        "}",
        "",
    ]


def pack_signature(plan: HostPlan, tensor: Tensor) -> str:
    """Of the function that packs a constant."""
    name = plan.identifiers[tensor.name]
    return f"void {plan.name}_pack_{name}({plan.parameter(tensor)}, void *packed)"


def pack_function(plan: HostPlan, tensor: Tensor) -> list[str]:
    """The function that packs a constant."""
    calls = [
        f"{plan.name}_fill_{plan.identifiers[i.name]}({plan.identifiers[tensor.name]}, "
        f"({C_TYPES[i.dtype]} *)(void *)((char *)packed + {plan.blob_offset(i)}));"
        for i in plan.staged_of(tensor.name)
    ]
    unused = [] if calls else [f"(void){plan.identifiers[tensor.name]};", "(void)packed;"]
    return [
        pack_signature(plan, tensor),
        "{",
        *indent(calls or unused),
        "}",
        "",
    ]


def _body(plan: HostPlan, execution: Execution) -> list[str]:
    """Stage, run, unstage."""
    identifiers = plan.identifiers
    staged = [i for i in plan.staged if i.name not in execution.inside]
    declared, owned = _staging(plan, execution, staged)
    if not execution.whole:
        for array in plan.program.between:
            name = identifiers[array.name]
            if plan.workspace is None:
                align = plan.array_align(array.name)
                declared += _from_heap(plan, name, C_TYPES[array.dtype], array.bytes, align, owned)
        declared += _handed(plan)
    used = plan.coded.union(i.tensor for i in plan.program.images)
    unused = [
        plan.packed(t) if t.constant else identifiers[t.name]
        for t in sorted(plan.inputs + plan.outputs, key=lambda t: t.constant)
        if t.name not in used and not plan.compiled_in(t.name)
    ]
    if plan.workspace and not plan.workspace.offsets and not plan.program.codes:
        unused.append(plan.workspace.pointer)
    inner = _whole(plan, execution) if execution.whole else _parts(plan, execution)
    simple = not owned and not execution.ready
    if not execution.fails and not simple:
        inner += ["status = 0;"]
    body = [*execution.acquire]
    body += [f"if ({execution.ready}) {{", *indent(inner), "}"] if execution.ready else inner
    body += execution.release
    declared_status = "int status = 1; /* until everything is allocated */"
    if simple:
        declared_status = "int status;" if execution.fails else ""
    wrong = [f"(uintptr_t){name} % {align} != 0" for name, align in aligned_parameters(plan)]
    return [
        *([f"if ({' || '.join(wrong)})", f"  return {MISALIGNED};"] if wrong else []),
        *([declared_status] if declared_status else []),
        *declared,
        *(f"(void){name};" for name in unused),
        *([f"if ({' && '.join(owned)}) {{", *indent(body), "}"] if owned else body),
        *(f"free({host});" for host in reversed(owned)),
        "return status;" if declared_status else "return 0;",
    ]


def _staging(
    plan: HostPlan, execution: Execution, images: Sequence[Image]
) -> tuple[list[str], list[str]]:
    """Declarations of the pointers to where the host holds images, and the names of those that come
    from the heap."""
    constant = {t.name for t in plan.packed_tensors}
    declared: list[str] = []
    owned: list[str] = []
    for image in images:
        host, element = plan.staging(image), C_TYPES[image.dtype]
        place = plan.workspace.offsets.get(image.name) if plan.workspace else None
        if image.name in execution.unstaged or plan.compiled_in(image.tensor):
            continue
        if place is not None:
            declared.append(_in_workspace(plan, element, host, place))
        elif image.tensor in constant:
            packed = plan.packed(next(t for t in plan.inputs if t.name == image.tensor))
            declared.append(
                f"const {element} *{host} = (const {element} *)(const void *)"
                f"((const char *){packed} + {plan.blob_offset(image)});"
            )
        else:
            align = plan.aligns[image.name] if image.name in plan.resident else 1
            declared += _from_heap(plan, host, element, image.bytes, align, owned)
    return declared, owned


_MALLOC_BYTES = 8
"""What `malloc` aligns to on every machine."""


def _from_heap(
    plan: HostPlan, name: str, kind: str, size: int, align: int, owned: list[str]
) -> list[str]:
    """Declarations of a pointer to memory from the heap; what to free is added to `owned`."""
    if align <= _MALLOC_BYTES:
        owned.append(name)
        return [f"{kind} *{name} = malloc({size});"]
    room = plan.identifiers.with_suffix(name, "room")
    owned.append(room)
    start = f"((uintptr_t){room} + {align - 1}) / {align} * {align}"
    return [
        f"void *{room} = malloc({size + align - 1});",
        f"{kind} *{name} = ({kind} *)({start});",
    ]


MISALIGNED = 12
"""What a kernel returns where an array that the chip uses in place is not aligned."""


def aligned_parameters(plan: HostPlan) -> list[tuple[str, int]]:
    """The arrays that a caller gives and the chip itself reads or writes, with the bytes of which
    each must begin at a multiple, where that is more than any array of its type does."""
    found: list[tuple[str, int]] = []
    for tensor in plan.inputs + plan.outputs:
        if plan.compiled_in(tensor.name):
            continue
        name = plan.identifiers[tensor.name]
        if (align := plan.array_align(tensor.name)) > DTYPES[tensor.dtype]:
            found.append((name, align))
        if tensor in plan.packed_tensors and plan.packed_align(tensor.name) > _MALLOC_BYTES:
            found.append((plan.packed(tensor), plan.packed_align(tensor.name)))
    return found


def _handed(plan: HostPlan) -> list[str]:
    """Declarations of the arrays in a workspace that units and a processor hand to each other."""
    if plan.workspace is None:
        return []
    offsets = plan.workspace.offsets
    return [
        _in_workspace(plan, C_TYPES[a.dtype], plan.identifiers[a.name], offsets[a.name])
        for a in plan.program.between
    ]


def run_function(
    plan: HostPlan, execution: Execution, signature: str, own: Sequence[str]
) -> list[str]:
    """The exported function that runs all parts on the caller's buffers; `own`: its first lines."""
    staged = [i for i in plan.staged if i.name in execution.inside]
    declared, _ = _staging(plan, execution, staged)
    lines = [*own, *declared, *_handed(plan), *_parts(plan, execution, execution.inside)]
    return [signature, "{", *indent(lines), "}", ""]


def _whole(plan: HostPlan, execution: Execution) -> list[str]:
    """The call of the exported function, between what it leaves to its caller."""
    images = [i for i in plan.program.images if i.name not in execution.inside]
    return [
        *_packs(plan, execution, images),
        execution.whole,
        *_unpacks(plan, execution, images),
    ]


def _in_workspace(plan: HostPlan, element: str, name: str, offset: int) -> str:
    """The declaration of a pointer into the caller's workspace."""
    assert plan.workspace is not None
    room = f"((char *){plan.workspace.pointer} + {offset})"
    return f"{element} *{name} = ({element} *)(void *){room};"


def _parts(plan: HostPlan, execution: Execution, only: frozenset[str] | None = None) -> list[str]:
    """What units and a processor run in turn, each image packed before its part and unpacked after
    it; of `only` these images."""
    lines: list[str] = []
    several = bool(plan.program.codes)
    if several and execution.fails:
        lines.append("status = 0;")
    for part, run in zip(plan.program.parts, execution.runs, strict=True):
        images = part.images if isinstance(part, Program) else ()
        if only is not None:
            images = tuple(i for i in images if i.name in only)
        inner = [*_packs(plan, execution, images), *run, *_unpacks(plan, execution, images)]
        if several and execution.fails:
            inner = ["if (status == 0) {", *indent(inner), "}"]
        lines += inner
    return lines


def _unpacks(plan: HostPlan, execution: Execution, images: Sequence[Image]) -> list[str]:
    """How the outputs among some images get from the chip."""
    outputs = [i for i in images if i.role == "output"]
    copies = [line for i in outputs for line in dict(execution.download).get(i.name, ())]
    unpack = [
        f"{plan.name}_unpack_{plan.identifiers[i.name]}"
        f"({plan.staging(i)}, {plan.identifiers[i.tensor]});"
        for i in outputs
        if i.name not in plan.direct
    ]
    unpack += [
        f"{plan.name}_clear_{plan.identifiers[i.name]}({plan.staging(i)});"
        for i in outputs
        if clears(plan, i)
    ]
    if unpack and execution.fails:
        unpack = ["if (status == 0) {", *indent(unpack), "}"]
    return [*copies, *unpack]


def _packs(plan: HostPlan, execution: Execution, images: Sequence[Image]) -> list[str]:
    """How some images get to the chip."""
    constant = {t.name for t in plan.packed_tensors}
    lines: list[str] = []
    for image in images:
        given = image.name in plan.direct or image.tensor in constant
        given = given or plan.compiled_in(image.tensor)
        if image.role == "input" and not given:
            source = [] if image.supplied is not None else [plan.identifiers[image.tensor]]
            arguments = ", ".join([*source, plan.staging(image)])
            lines.append(f"{plan.name}_fill_{plan.identifiers[image.name]}({arguments});")
        lines += dict(execution.upload).get(image.name, ())
    return lines


def _wrapper(plan: HostPlan) -> list[str]:
    """`NAME`: pack the constants, then `NAME_prepacked`."""
    identifiers = plan.identifiers
    blobs: list[str] = []
    declared = [
        line
        for t in plan.packed_tensors
        for size in [max(plan.blob_bytes(t.name), 1)]
        for line in _from_heap(plan, plan.packed(t), "void", size, plan.packed_align(t.name), blobs)
    ]
    for t in plan.derived:
        name, align = identifiers[t.name], plan.array_align(t.name)
        declared += _from_heap(plan, name, C_TYPES[t.dtype], t.bytes, align, blobs)
    return [
        "int status = 1;",
        *declared,
        f"if ({' && '.join(blobs)}) {{",
        *([f"  {derive_call(plan, f'{plan.name}_derive')}"] if plan.once is not None else []),
        *(
            f"  {plan.name}_pack_{identifiers[t.name]}({identifiers[t.name]}, {plan.packed(t)});"
            for t in plan.packed_tensors
        ),
        f"  status = {plan.name}_prepacked({', '.join(plan.prepacked_arguments)});",
        "}",
        *(f"free({blob});" for blob in reversed(blobs)),
        "return status;",
    ]


# --- header --------------------------------------------------------------------------------------


def header(plan: HostPlan, summary: str) -> str:
    """The C header; C++ can include it too."""
    lines = [*contract(plan, "memory cannot be allocated"), f"{plan.signature};"]
    for tensor in plan.packed_tensors:
        name = plan.identifiers[tensor.name]
        lines += [
            "",
            f"/* Bytes that {plan.name}_pack_{name} writes. */",
            f"size_t {plan.name}_packed_bytes_{name}(void);",
            "",
            f"/* Packs {name} once for {plan.name}_prepacked; {_packed_rule(plan, tensor)}. */",
            f"{pack_signature(plan, tensor)};",
        ]
    if plan.once is not None:
        lines += ["", f"/* {derived_rule(plan)}. */", f"{derive_signature(plan)};"]
    if plan.packed_tensors or plan.once is not None:
        packed = ", ".join(plan.identifiers[t.name] for t in plan.packed_tensors)
        known = [f"{packed} already packed"] if packed else []
        known += [f"what {plan.name}_derive has computed"] if plan.once is not None else []
        lines += [
            "",
            f"/* Like {plan.name}, with {' and '.join(known)}. */",
            f"{plan.prepacked_signature};",
        ]
    return framed(plan.name, [f"/* {comment(summary)} */"], ["<stddef.h>", "<stdint.h>"], lines)


def _packed_rule(plan: HostPlan, tensor: Tensor) -> str:
    align = plan.packed_align(tensor.name)
    if align <= _MALLOC_BYTES:
        return "align `packed` like malloc does"
    return f"`packed` begins at a multiple of {align} bytes"


def framed(name: str, head: list[str], includes: list[str], body: list[str]) -> str:
    """A header of these declarations, for C and C++."""
    guard = f"{name}_H_INCLUDED"
    lines = [*head, f"#ifndef {guard}", f"#define {guard}", ""]
    lines += [*(f"#include {header}" for header in includes), ""]
    lines += ["#ifdef __cplusplus", 'extern "C" {', "#endif", "", *body, ""]
    lines += ["#ifdef __cplusplus", "}", "#endif", "", f"#endif /* {guard} */", ""]
    return "\n".join(lines)


def contract(plan: HostPlan, failure: str) -> list[str]:
    """The comment before `NAME`; `failure`: when it returns non-zero."""

    def shape(tensor: Tensor) -> str:
        return plan.identifiers[tensor.name] + "".join(f"[{n}]" for n in tensor.extents)

    own, room = plan.workspace, list[str]()
    if own is not None:
        room = workspace_rule(plan.name, own.pointer, own.bytes)
    given = plan.inputs if plan.workspace else plan.callers
    reads = ", ".join(shape(t) for t in given if not plan.compiled_in(t.name))
    writes = ", ".join(shape(t) for t in plan.outputs)
    kept = [
        f" * But {plan.identifiers[i.tensor]} is the chip's image of it, {C_TYPES[i.dtype]} of "
        f"{''.join(f'[{n}]' for n in i.outer + i.lanes)}, 0 outside of the tensor."
        for i in plan.program.images
        if i.tensor in plan.kept
    ]
    return [
        f"/* Reads {reads or 'nothing'}; writes {writes}; all row-major.",
        *kept,
        *_borrowed(plan),
        *room,
        f" * Returns 0{f', or non-zero when {failure}' if failure else ''}. */",
    ]


def _borrowed(plan: HostPlan) -> list[str]:
    """What holds for arrays of the caller's that the chip itself reads and writes."""
    both = (plan.inputs if plan.workspace else plan.callers) + plan.outputs
    found = [t for t in both if plan.borrowed(t) and not plan.compiled_in(t.name)]
    if not found:
        return []
    names = ", ".join(plan.identifiers[t.name] for t in found)
    like = "a workspace is" if plan.workspace else "malloc aligns"
    lines = [f" * In place: {names}; aligned as {like}."]
    lines += [
        f" * {name} must begin at a multiple of {align} bytes; else {MISALIGNED} is returned."
        for name, align in aligned_parameters(plan)
    ]
    if any(t.role == "output" for t in found):
        lines.append(" * No output may overlap an input.")
    return lines
