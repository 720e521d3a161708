"""What the C functions around a kernel are called and take, and where its images lie.

A kernel of the host target takes memory from the heap; one of the firmware target has a `Workspace`
of the caller's instead. All else is the same emitter.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import prod

from hwgen.codegen.c_names import C_TYPES, NameTable, Reserved
from hwgen.codegen.nodes import Code, calls
from hwgen.codegen.program import Program
from hwgen.codegen.storages import Image
from hwgen.spec.expression import DTYPES
from hwgen.spec.hardware import HardwareSpec
from hwgen.spec.workload import Tensor, Workload

ALIGNMENT_BYTES = 64
"""Of every image in a packed constant and in a workspace."""


@dataclass(frozen=True, slots=True)
class Workspace:
    """Memory that the caller gives. `pointer`: the parameter's name. `offsets`: bytes from its
    start to each image that is staged there, and to each array that units and a processor hand to
    each other. `compiled_in`: constants whose values are part of the program, so that there is no
    parameter for them."""

    pointer: str
    offsets: Mapping[str, int]
    bytes: int
    compiled_in: frozenset[str]
    alignment: int = ALIGNMENT_BYTES


@dataclass(frozen=True, slots=True)
class CompiledIn:
    """A constant's array in the program. `image`: what it holds of the tensor; None: the tensor in
    its own order, for a processor."""

    tensor: str
    image: Image | None
    name: str
    declaration: str


@dataclass(frozen=True)
class HostPlan:
    """Names, parameters and places.

    `direct`: images that are the caller's array byte for byte. `resident`: those that the chip
    reads and writes where the host has them; the others have a buffer of the device's.
    `workspace`: None where what is staged comes from the heap. `index`: the C type of offsets.
    `between`: tensors that units and a processor hand to each other, in their own order.
    `supplied`: inputs that the kernel itself has. `once`: what computes some of the constants from
    others, once. `kept`: tensors whose arrays the caller has as the chip's images of them, with 0
    outside of the tensor. `aligns`: by image the bytes of which it begins at a multiple where the
    chip reads or writes it.
    """

    program: Program
    name: str
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    identifiers: NameTable
    direct: frozenset[str]
    resident: frozenset[str]
    workspace: Workspace | None = None
    index: str = "int64_t"
    between: tuple[Tensor, ...] = ()
    supplied: tuple[Tensor, ...] = ()
    once: Code | None = None
    kept: frozenset[str] = frozenset()
    aligns: Mapping[str, int] = field(default_factory=dict[str, int])

    @property
    def alignment(self) -> int:
        """Of every image in a packed constant and in a workspace, in bytes."""
        return max((ALIGNMENT_BYTES, *self.aligns.values()))

    def array_align(self, tensor: str) -> int:
        """The bytes of which a tensor's array must begin at a multiple, as calls read or write it
        in place."""
        images = (i for i in self.program.images if i.tensor == tensor)
        taken = (i.name for i in images if i.name in self.direct & self.resident)
        return max((self.aligns[name] for name in taken), default=1)

    def packed_align(self, tensor: str) -> int:
        """The same of what is packed of a constant."""
        taken = (i.name for i in self.staged_of(tensor) if i.name in self.resident)
        return max((self.aligns[name] for name in taken), default=1)

    @property
    def codes(self) -> tuple[Code, ...]:
        """What a processor runs, in each call or once."""
        return (*self.program.codes, *([self.once] if self.once is not None else []))

    @property
    def derived(self) -> tuple[Tensor, ...]:
        """The constants that are computed from others."""
        made = self.once.outputs if self.once is not None else ()
        return tuple(t for t in self.inputs if t.name in made)

    @property
    def callers(self) -> tuple[Tensor, ...]:
        """The inputs that a caller has."""
        return tuple(t for t in self.inputs if t not in self.derived)

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """All that images on the host hold."""
        return self.inputs + self.outputs + self.between + self.supplied

    @property
    def staged(self) -> tuple[Image, ...]:
        """The images that the host gives room."""
        return tuple(i for i in self.program.images if i.name not in self.direct)

    @property
    def on_device(self) -> tuple[Image, ...]:
        """The images that have a buffer of the device's."""
        return tuple(i for i in self.program.images if i.name not in self.resident)

    def staged_of(self, tensor: str) -> tuple[Image, ...]:
        return tuple(i for i in self.staged if i.tensor == tensor)

    def in_place(self, tensor: Tensor) -> bool:
        """Whether the tensor itself is read or written, by calls or code; an image of it may be
        packed besides."""
        images = (i.name for i in self.program.images if i.tensor == tensor.name)
        return tensor.name in self.coded or not self.direct.isdisjoint(images)

    @property
    def coded(self) -> frozenset[str]:
        """What a processor beside the units reads and writes."""
        return frozenset(n for c in self.program.codes for n in (*c.inputs, *c.outputs))

    def borrowed(self, tensor: Tensor) -> bool:
        """Whether the chip reads or writes the caller's own array."""
        images = (i.name for i in self.program.images if i.tensor == tensor.name)
        return not self.direct.intersection(self.resident).isdisjoint(images)

    @property
    def packed_tensors(self) -> tuple[Tensor, ...]:
        """The constants that are packed once, outside of the kernel's function."""
        constants = [t for t in self.inputs if t.constant]
        return tuple(t for t in constants if self.staged_of(t.name) or not self.in_place(t))

    def compiled_in(self, tensor: str) -> bool:
        """Whether a constant's values are part of the program."""
        own = self.workspace
        supplied = any(t.name == tensor for t in self.supplied)
        return own is not None and (supplied or tensor in own.compiled_in)

    def blob_offset(self, image: Image) -> int:
        """Bytes from the start of a tensor's packed blob to one of its images."""
        offset = 0
        for other in self.staged_of(image.tensor):
            if other.name == image.name:
                break
            offset += self.aligned(other.bytes)
        return offset

    def blob_bytes(self, tensor: str) -> int:
        return sum(self.aligned(i.bytes) for i in self.staged_of(tensor))

    def aligned(self, size_bytes: int) -> int:
        """The bytes with those that follow them up to the next image."""
        return -(-size_bytes // self.alignment) * self.alignment

    def parameter(self, tensor: Tensor) -> str:
        """`const T *name` for an input, `T *name` for an output."""
        const = "const " if tensor.role == "input" else ""
        return f"{const}{C_TYPES[tensor.dtype]} *{self.identifiers[tensor.name]}"

    def packed(self, tensor: Tensor) -> str:
        return self.identifiers.with_suffix(tensor.name, "packed")

    @property
    def signature(self) -> str:
        """Of `NAME`: the tensors; with a workspace what is packed already, and the workspace."""
        if self.workspace is not None:
            parameters = [declaration for declaration, _ in self._prepacked()]
            return f"int {self.name}({', '.join([*parameters, f'void *{self.workspace.pointer}'])})"
        parameters = [self.parameter(t) for t in self.callers + self.outputs]
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
            if self.compiled_in(tensor.name):
                continue
            packed = tensor in self.packed_tensors
            if not packed or self.in_place(tensor):
                yield self.parameter(tensor), self.identifiers[tensor.name]
            if packed:
                yield f"const void *{self.packed(tensor)}", self.packed(tensor)

    def staging(self, image: Image) -> str:
        """The host pointer to an image's bytes."""
        if self.compiled_in(image.tensor):
            return self.constant_name(image.name)
        if image.name in self.direct:
            return self.identifiers[image.tensor]
        return self.identifiers.with_suffix(image.name, "host")

    def constant_name(self, named: str) -> str:
        """The array with the values of an image, or of a tensor, that is compiled in."""
        return f"{self.name}_const_{self.identifiers[named]}"

    def constants(self) -> tuple[CompiledIn, ...]:
        """The arrays that are compiled in: images, and tensors that a processor reads."""
        found: list[CompiledIn] = []

        def add(tensor: str, image: Image | None, dtype: str, elements: int) -> None:
            name = self.constant_name(image.name if image else tensor)
            text = f"const {C_TYPES[dtype]} {name}[{elements}]"
            found.append(CompiledIn(tensor, image, name, text))

        for image in self.program.images:
            if self.compiled_in(image.tensor):
                add(image.tensor, image, image.dtype, image.bytes // DTYPES[image.dtype])
        for tensor in self.inputs:
            if self.compiled_in(tensor.name) and tensor.name in self.coded:
                add(tensor.name, None, tensor.dtype, prod(tensor.shape))
        return tuple(found)

    def array(self, tensor: str) -> str:
        """What a processor's part takes for a tensor."""
        if self.compiled_in(tensor):
            return self.constant_name(tensor)
        return self.identifiers[tensor]


def host_plan(
    program: Program,
    workload: Workload,
    reserved: Reserved,
    hardware: HardwareSpec,
    kept: frozenset[str] = frozenset(),
    once: Code | None = None,
) -> HostPlan:
    """Names and parameters of the kernel's C functions; `reserved` words name nothing of ours.

    The chip reads and writes images where they lie in memory that the host shares.
    """
    identifiers = NameTable(reserved)
    name = identifiers.function(program.name)
    # First come what a caller sees, so that all files of a kernel agree on it.
    handed = (a.name for a in program.between)
    for wanted in (*program.inputs, *program.outputs, *(i.name for i in program.images), *handed):
        assert identifiers[wanted]
    in_place = frozenset(i.name for i in program.images if i.in_place)
    tensors = program.tensors(workload)
    between = tuple(tensors[a.name] for a in program.between)
    theirs = {*program.inputs, *program.outputs, *(t.name for t in between)}
    same = (i for i in program.images if i.tensor in theirs and i.role != "temporary")
    direct = in_place.union(
        i.name
        for i in same
        if i.tensor in kept or i.is_tensor(tensors[i.tensor].dtype, tensors[i.tensor].shape)
    )
    shared = (i for i in program.images if hardware.reaches(i.memory))
    return HostPlan(
        program,
        name,
        tuple(workload.tensor[t] for t in program.inputs),
        tuple(workload.tensor[t] for t in program.outputs),
        identifiers,
        direct=direct,
        resident=in_place.union(i.name for i in shared),
        between=between,
        supplied=program.supplied(workload),
        once=once,
        kept=kept,
        aligns=_aligns(program, hardware),
    )


def run_names(plan: HostPlan) -> list[str]:
    """The functions that run a program's parts, in order."""
    if not plan.program.codes:
        return [f"{plan.name}_run"]
    parts = enumerate(plan.program.parts)
    return [f"{plan.name}_{'code' if isinstance(p, Code) else 'run'}_{n}" for n, p in parts]


def code_arguments(plan: HostPlan, code: Code) -> str:
    """What a processor's part takes, in the order of its function's parameters."""
    given = [plan.array(n) for n in (*code.inputs, *code.outputs)]
    return ", ".join([*given, *([plan.workspace.pointer] if plan.workspace else [])])


def _aligns(program: Program, hardware: HardwareSpec) -> dict[str, int]:
    """By image, the bytes of which it begins at a multiple: what its memory says, and what makes
    the addresses that an operand's field leaves out be left out of the chip's, as far as powers of
    two do."""
    found = {i.name: hardware.off_chip(i.memory).align_bytes for i in program.images}
    for call in calls(program.body):
        for operand, rule in zip(
            call.operands, hardware.intrinsic[call.intrinsic].operands, strict=True
        ):
            if operand.buffer in found and rule.address.step > 1:
                step = rule.address.step * rule.entry_elements * DTYPES[rule.dtype]
                found[operand.buffer] = max(found[operand.buffer], step & -step)
    return found


def alignment_macro(name: str, alignment: int = ALIGNMENT_BYTES) -> list[str]:
    """`NAME_ALIGNED`, which begins a declaration."""
    return [
        f"#ifndef {name}_ALIGNED",
        "#if defined(__cplusplus)",
        f"#define {name}_ALIGNED alignas({alignment})",
        "#elif defined(__STDC_VERSION__) && __STDC_VERSION__ >= 201112L",
        f"#define {name}_ALIGNED _Alignas({alignment})",
        "#elif defined(__GNUC__)",
        f"#define {name}_ALIGNED __attribute__((aligned({alignment})))",
        "#else",
        f'#error "define {name}_ALIGNED: how this compiler aligns to {alignment} bytes"',
        "#endif",
        "#endif",
    ]


def workspace_macros(name: str, size: int, alignment: int) -> list[str]:
    """What a caller needs to give a workspace, and a blank line."""
    return [
        f"#define {name}_WORKSPACE_BYTES {size}",
        f"#define {name}_WORKSPACE_ALIGNMENT {alignment}",
        "",
        "/* Begins a declaration: aligned as a workspace is. */",
        *alignment_macro(name, alignment),
        "",
    ]


def workspace_rule(name: str, pointer: str, size: int) -> list[str]:
    """Lines of a comment: what the caller's pointer must be."""
    if not size:
        return [f" * {pointer} may be null: it has no bytes."]
    return [
        f" * {pointer}: {name}_WORKSPACE_BYTES at a multiple of",
        f" * {name}_WORKSPACE_ALIGNMENT, whatever is in them.",
    ]
