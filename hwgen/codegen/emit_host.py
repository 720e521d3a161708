"""The host's side of a kernel: packing and unpacking loops, entry points, header.

The same text serves every target: the vendor's runtime and the generated C model differ only in
what runs between packing and unpacking.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from hwgen.codegen.c_names import C_TYPES, NameTable, Reserved, comment, indent
from hwgen.codegen.program import Image, KernelProgram
from hwgen.spec.workload import Tensor, Workload

_BLOB_ALIGNMENT_BYTES = 64


@dataclass(frozen=True)
class HostPlan:
    """What the C functions of one kernel are called and take."""

    program: KernelProgram
    name: str
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    identifiers: NameTable

    @property
    def staged(self) -> tuple[Image, ...]:
        """The images that the host gives room; the others are in place."""
        return tuple(i for i in self.program.images if not i.in_place)

    def staged_of(self, tensor: str) -> tuple[Image, ...]:
        return tuple(i for i in self.staged if i.tensor == tensor)

    def in_place(self, tensor: Tensor) -> bool:
        """Whether an image of a tensor is the tensor itself; another one may be packed."""
        return any(i.in_place for i in self.program.images if i.tensor == tensor.name)

    @property
    def packed_tensors(self) -> tuple[Tensor, ...]:
        """The constants that are packed once, in a function of their own."""
        constants = [t for t in self.inputs if t.constant]
        return tuple(t for t in constants if self.staged_of(t.name) or not self.in_place(t))

    def blob_offset(self, image: Image) -> int:
        """Bytes from the start of a tensor's packed blob to one of its images."""
        offset = 0
        for other in self.staged_of(image.tensor):
            if other.name == image.name:
                break
            offset += _aligned(other.bytes)
        return offset

    def blob_bytes(self, tensor: str) -> int:
        return sum(_aligned(i.bytes) for i in self.staged_of(tensor))

    def parameter(self, tensor: Tensor) -> str:
        """`const T *name` for an input, `T *name` for an output."""
        const = "const " if tensor.role == "input" else ""
        return f"{const}{C_TYPES[tensor.dtype]} *{self.identifiers[tensor.name]}"

    def packed(self, tensor: Tensor) -> str:
        return self.identifiers.with_suffix(tensor.name, "packed")

    @property
    def signature(self) -> str:
        parameters = [self.parameter(t) for t in self.inputs + self.outputs]
        return f"int {self.name}({', '.join(parameters)})"

    @property
    def prepacked_signature(self) -> str:
        parameters = [declaration for declaration, _ in self._prepacked()]
        return f"int {self.name}_prepacked({', '.join(parameters)})"

    @property
    def prepacked_arguments(self) -> tuple[str, ...]:
        """What `NAME` gives to `NAME_prepacked`."""
        return tuple(argument for _, argument in self._prepacked())

    def _prepacked(self) -> Iterator[tuple[str, str]]:
        """Each parameter of `NAME_prepacked` and its name; a tensor may be there both ways."""
        for tensor in self.inputs + self.outputs:
            packed = tensor in self.packed_tensors
            if not packed or self.in_place(tensor):
                yield self.parameter(tensor), self.identifiers[tensor.name]
            if packed:
                yield f"const void *{self.packed(tensor)}", self.packed(tensor)

    def staging(self, image: Image) -> str:
        """The host pointer to an image's bytes."""
        if image.in_place:
            return self.identifiers[image.tensor]
        return self.identifiers.with_suffix(image.name, "host")


def host_plan(program: KernelProgram, workload: Workload, reserved: Reserved) -> HostPlan:
    """Names and parameters of the kernel's C functions; `reserved` words name nothing of ours."""
    identifiers = NameTable(reserved)
    name = identifiers.function(program.name)
    # First come what a caller sees, so that all files of a kernel agree on it.
    for wanted in (*program.inputs, *program.outputs, *(i.name for i in program.images)):
        assert identifiers[wanted]
    return HostPlan(
        program,
        name,
        tuple(workload.tensor[t] for t in program.inputs),
        tuple(workload.tensor[t] for t in program.outputs),
        identifiers,
    )


def _aligned(size_bytes: int) -> int:
    return -(-size_bytes // _BLOB_ALIGNMENT_BYTES) * _BLOB_ALIGNMENT_BYTES


# --- entry points --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Execution:
    """What a target does between packing and unpacking; `upload` and `download` name only images
    that are not in place.

    `acquire` runs when the staging buffers stand; `ready`, a C condition, tells whether it worked;
    `upload` follows each image's packing, then `run`, `download` before each image's unpacking;
    `release` gives everything back. `fails`: `run` sets `status`, and no output is unpacked
    unless that is 0. `unstaged`: images that the host never holds.
    """

    acquire: tuple[str, ...]
    ready: str
    upload: tuple[tuple[str, tuple[str, ...]], ...]
    run: tuple[str, ...]
    download: tuple[tuple[str, tuple[str, ...]], ...]
    release: tuple[str, ...]
    fails: bool
    unstaged: frozenset[str] = frozenset()


def entry_points(plan: HostPlan, execution: Execution) -> list[str]:
    """`NAME`, and where an input is constant `NAME_prepacked` and the packing functions."""
    lines: list[str] = []
    for tensor in plan.packed_tensors:
        lines += _pack_functions(plan, tensor)
    if plan.packed_tensors:
        lines += [plan.prepacked_signature, "{", *indent(_body(plan, execution)), "}", ""]
        lines += [plan.signature, "{", *indent(_wrapper(plan)), "}"]
    else:
        lines += [plan.signature, "{", *indent(_body(plan, execution)), "}"]
    return lines


def _pack_functions(plan: HostPlan, tensor: Tensor) -> list[str]:
    name = f"{plan.name}_pack_{plan.identifiers[tensor.name]}"
    calls = [
        f"{plan.name}_fill_{plan.identifiers[i.name]}({plan.identifiers[tensor.name]}, "
        f"({C_TYPES[i.dtype]} *)(void *)((char *)packed + {plan.blob_offset(i)}));"
        for i in plan.staged_of(tensor.name)
    ]
    unused = [] if calls else [f"(void){plan.identifiers[tensor.name]};", "(void)packed;"]
    return [
        f"size_t {plan.name}_packed_bytes_{plan.identifiers[tensor.name]}(void)",
        "{",
        f"  return {plan.blob_bytes(tensor.name)};",
        "}",
        "",
        f"void {name}({plan.parameter(tensor)}, void *packed)",
        "{",
        *indent(calls or unused),
        "}",
        "",
    ]


def _body(plan: HostPlan, execution: Execution) -> list[str]:
    """Stage, run, unstage."""
    constant = {t.name for t in plan.packed_tensors}
    identifiers = plan.identifiers
    declared: list[str] = []
    owned: list[str] = []
    for image in plan.staged:
        host, element = plan.staging(image), C_TYPES[image.dtype]
        if image.name in execution.unstaged:
            continue
        if image.tensor in constant:
            packed = plan.packed(next(t for t in plan.inputs if t.name == image.tensor))
            declared.append(
                f"const {element} *{host} = (const {element} *)(const void *)"
                f"((const char *){packed} + {plan.blob_offset(image)});"
            )
        else:
            declared.append(f"{element} *{host} = malloc({image.bytes});")
            owned.append(host)
    used = {i.tensor for i in plan.program.images}
    unused = [t for t in plan.inputs + plan.outputs if t.name not in used]
    inner: list[str] = []
    for image in plan.program.images:
        if image.role == "input" and not image.in_place and image.tensor not in constant:
            inner.append(
                f"{plan.name}_fill_{identifiers[image.name]}"
                f"({identifiers[image.tensor]}, {plan.staging(image)});"
            )
        inner += dict(execution.upload).get(image.name, ())
    inner += execution.run
    for image in plan.program.images:
        if image.role == "output":
            inner += dict(execution.download).get(image.name, ())
    unpack = [
        f"{plan.name}_unpack_{identifiers[i.name]}({plan.staging(i)}, {identifiers[i.tensor]});"
        for i in plan.staged
        if i.role == "output"
    ]
    simple = not owned and not execution.ready
    if not execution.fails:
        inner += [*unpack, *([] if simple else ["status = 0;"])]
    elif unpack:
        inner += ["if (status == 0) {", *indent(unpack), "}"]
    body = [*execution.acquire]
    body += [f"if ({execution.ready}) {{", *indent(inner), "}"] if execution.ready else inner
    body += execution.release
    declared_status = "int status = 1; /* until everything is allocated */"
    if simple:
        declared_status = "int status;" if execution.fails else ""
    return [
        *([declared_status] if declared_status else []),
        *declared,
        *(f"(void){identifiers[t.name]};" for t in unused if not t.constant),
        *(f"(void){plan.packed(t)};" for t in unused if t.constant),
        *([f"if ({' && '.join(owned)}) {{", *indent(body), "}"] if owned else body),
        *(f"free({host});" for host in reversed(owned)),
        "return status;" if declared_status else "return 0;",
    ]


def _wrapper(plan: HostPlan) -> list[str]:
    """`NAME`: pack the constants, then `NAME_prepacked`."""
    identifiers = plan.identifiers
    blobs = [plan.packed(t) for t in plan.packed_tensors]
    return [
        "int status = 1;",
        *(
            f"void *{plan.packed(t)} = malloc({max(plan.blob_bytes(t.name), 1)});"
            for t in plan.packed_tensors
        ),
        f"if ({' && '.join(blobs)}) {{",
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
    guard = f"{plan.name}_H_INCLUDED"
    lines = [
        f"/* {comment(summary)} */",
        f"#ifndef {guard}",
        f"#define {guard}",
        "",
        "#include <stddef.h>",
        "#include <stdint.h>",
        "",
        "#ifdef __cplusplus",
        'extern "C" {',
        "#endif",
        "",
        *_contract(plan),
        f"{plan.signature};",
    ]
    for tensor in plan.packed_tensors:
        name = plan.identifiers[tensor.name]
        lines += [
            "",
            f"/* Bytes that {plan.name}_pack_{name} writes. */",
            f"size_t {plan.name}_packed_bytes_{name}(void);",
            "",
            f"/* Packs {name} once for {plan.name}_prepacked; align `packed` like malloc does. */",
            f"void {plan.name}_pack_{name}({plan.parameter(tensor)}, void *packed);",
        ]
    if plan.packed_tensors:
        packed = ", ".join(plan.identifiers[t.name] for t in plan.packed_tensors)
        lines += [
            "",
            f"/* Like {plan.name}, with {packed} already packed. */",
            f"{plan.prepacked_signature};",
        ]
    lines += ["", "#ifdef __cplusplus", "}", "#endif", "", f"#endif /* {guard} */", ""]
    return "\n".join(lines)


def _contract(plan: HostPlan) -> list[str]:
    def shape(tensor: Tensor) -> str:
        return plan.identifiers[tensor.name] + "".join(f"[{n}]" for n in tensor.shape)

    reads = ", ".join(shape(t) for t in plan.inputs)
    writes = ", ".join(shape(t) for t in plan.outputs)
    return [
        f"/* Reads {reads or 'nothing'}; writes {writes}; all row-major.",
        *_borrowed(plan),
        " * Returns 0, or non-zero when memory cannot be allocated. */",
    ]


def _borrowed(plan: HostPlan) -> list[str]:
    """What holds for arrays of the caller's that the chip itself reads and writes."""
    found = [t for t in plan.inputs + plan.outputs if plan.in_place(t)]
    if not found:
        return []
    names = ", ".join(plan.identifiers[t.name] for t in found)
    lines = [f" * In place: {names}; aligned as malloc aligns."]
    if any(t.role == "output" for t in found):
        lines.append(" * No output may overlap an input.")
    return lines
