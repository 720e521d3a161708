"""`KernelProgram`: everything decided. Emitters, simulator and checkers read it and decide nothing.

Integer expressions (`Expr`) range over loop variables, with `+ - * // %`, `min` and `max`.
Addresses count entries of the operand's memory: absolute on chip, relative to the image off chip.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import groupby
from math import prod
from typing import Literal

from hwgen.codegen.processor.program import NestProgram
from hwgen.spec.expression import DTYPES, Expr
from hwgen.spec.shown import Printed
from hwgen.spec.workload import Tensor, Workload

SERIAL = "serial"
"""The kind of a loop whose iterations run one after another."""


@dataclass(frozen=True, slots=True)
class Image:
    """A tensor as the chip's off-chip memory holds it: a dense array of shape `outer + lanes`.

    Position `p0, p1, ...` holds the tensor's element at `index` (expressions over `p0...`),
    or `fill` where that lies outside the tensor. `lanes`: the shape of one entry. For an input,
    several positions may hold one element; otherwise, each element has one position.
    `dtype` differs from the tensor's only for inputs, by a conversion that loses nothing.
    `in_place`: it is the tensor itself, where the caller has it; nothing is packed or unpacked.
    A tensor that the host's core takes over between units is an `output` of the calls that store it
    and an `input` of those that load it.
    A `temporary` is what one phase of the kernel stores and others load: the host gives it room,
    puts `fill` into entries wholly outside the tensor, whose `shape` stands here, and no more.
    `memory`: the off-chip memory that it lies in; "" for the first that holds what changes.
    """

    name: str
    tensor: str
    role: Literal["input", "output", "temporary"]
    dtype: str
    outer: tuple[int, ...]
    lanes: tuple[int, ...]
    index: tuple[Expr, ...]
    fill: int | float
    in_place: bool = False
    shape: tuple[int, ...] = ()
    memory: str = ""

    @property
    def entries(self) -> int:
        return prod(self.outer)

    @property
    def entry_bytes(self) -> int:
        return prod(self.lanes) * DTYPES[self.dtype]

    @property
    def bytes(self) -> int:
        return self.entries * self.entry_bytes


@dataclass(frozen=True, slots=True)
class Buffer:
    """An on-chip buffer: `slots` copies of `slot_entries`, the first from entry `base` on, each
    `slot_stride` entries after the one before; 0: they follow each other.

    `layout` is the isl text of the map from tensor index to (slot, offset in entries, lane).
    `banks`: the bank that each slot begins in; () where the memory has none, or interleaved ones.
    """

    name: str
    memory: str
    tensor: str
    base: int
    slots: int
    slot_entries: int
    layout: str = ""
    slot_stride: int = 0
    banks: tuple[int, ...] = ()

    @property
    def entries(self) -> int:
        """Entries that it occupies; the memory between its slots is not its own."""
        return self.slots * self.slot_entries

    @property
    def stride(self) -> int:
        """From one slot to the next."""
        return self.slot_stride or self.slot_entries

    @property
    def end(self) -> int:
        """The entry after its last."""
        return self.base + (self.slots - 1) * self.stride + self.slot_entries

    def holds(self, entry: int) -> bool:
        """Whether an entry of its memory is in one of its slots."""
        inside = self.base <= entry < self.end
        return inside and (entry - self.base) % self.stride < self.slot_entries

    @property
    def place(self) -> str:
        """Its memory and entries."""
        if self.slot_stride in (0, self.slot_entries) or self.slots == 1:
            where = f"{self.memory}[{self.base}:{self.end}]"
        else:
            last = f"{self.base + self.slot_entries}]"
            where = f"{self.memory}[{self.base}:{last} + slot * {self.slot_stride}"
        if not self.banks:
            return where
        return f"{where} in bank{'s' if len(self.banks) > 1 else ''} {_list(self.banks)}"


@dataclass(frozen=True, slots=True)
class KernelLoop:
    """A loop of a micro-kernel; `strides`: entries per step, one per operand of the intrinsic."""

    extent: int
    strides: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class MicroKernelDef:
    """A micro-kernel: hardware loops (outermost first), inside them a sequence of micro-operations
    given as loops (outermost first) that are unrolled when it is built; `bases[variant]` are the
    operands' base addresses, in the intrinsic's operand order."""

    name: str
    intrinsic: str
    loops: tuple[KernelLoop, ...]
    sequence: tuple[KernelLoop, ...]
    bases: tuple[tuple[int, ...], ...]
    immediates: tuple[tuple[str, int | float], ...]

    @property
    def operations(self) -> int:
        """Micro-operations that one variant keeps in memory."""
        return prod(loop.extent for loop in self.sequence)

    @property
    def iterations(self) -> int:
        return self.operations * prod(loop.extent for loop in self.loops)


@dataclass(frozen=True, slots=True)
class CallOperand:
    """`buffer` names a `Buffer` or an `Image`; `strides`: one per hardware loop."""

    name: str
    buffer: str
    address: Expr
    strides: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class Intended:
    """Which instances a call says that it executes: those of a block of the tree in which loops
    have these values; of loops that it takes itself, all. Nothing believes it."""

    block: str
    loops: tuple[tuple[str, Expr], ...]


@dataclass(frozen=True, slots=True)
class Call:
    """One call site. `extents`: one per hardware loop of the intrinsic, outermost first.

    Where the intrinsic is a micro-kernel, `kernel` names it and `variant` selects its bases:
    these are what is executed, and `address`, `strides` and `extents` restate them.
    `registers`: by configuration that the call depends on, the register that it reads.
    `fresh`: inside C loops around a call, where its stationary operand is a new one.
    `lanes`: extents of the intrinsic's iterators, in its order; () where all lanes take part.
    `intended`: what it is there for.
    """

    site: int
    intrinsic: str
    unit: str
    operands: tuple[CallOperand, ...]
    extents: tuple[Expr, ...]
    immediates: tuple[tuple[str, int | float], ...] = ()
    kernel: str = ""
    variant: Expr | None = None
    statement: str = ""
    registers: tuple[tuple[str, int], ...] = ()
    fresh: Expr | None = None
    lanes: tuple[int, ...] = ()
    intended: Intended | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Sync:
    """What stands between calls: it orders those of different units, or sets what later ones
    depend on; a base class, so that walks name it once."""


@dataclass(frozen=True, slots=True)
class Push(Sync):
    """A token from `source` to `target`, given when the stream's last call of `source` ends."""

    source: str
    target: str


@dataclass(frozen=True, slots=True)
class Pop(Sync):
    """The next call of `target` waits for a token from `source`."""

    source: str
    target: str


@dataclass(frozen=True, slots=True)
class Barrier(Sync):
    """No later call begins before all earlier calls of `unit` ("": of every unit) are done, and
    `start_cycles` more have passed: what it takes to start workers."""

    unit: str
    start_cycles: int = 0


@dataclass(frozen=True, slots=True)
class Signal(Sync):
    """Adds one to a flag when all calls of `source` before it are done.

    The k-th executed signal from `source` to `target`, from 0 on, takes flag `first + k % count`.
    """

    source: str
    target: str
    first: int
    count: int


@dataclass(frozen=True, slots=True)
class Wait(Sync):
    """No later call of `target` begins before a flag from `source` is above 0; takes one from it.

    The k-th executed wait from `source` to `target`, from 0 on, takes flag `first + k % count`.
    """

    source: str
    target: str
    first: int
    count: int


@dataclass(frozen=True, slots=True)
class Configure(Sync):
    """Writes a register of a configuration; `values`: the C text of each field."""

    configuration: str
    register: int
    values: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Loop:
    """`for variable in lower ..< upper`, step 1. `kind`: "serial", or a parallel loop kind of the
    processor, whose iterations run on different workers, in any order and at once; each has units
    and memories of its own, of which it knows nothing where it begins."""

    variable: str
    lower: Expr
    upper: Expr
    body: tuple[Node, ...]
    kind: str = SERIAL


@dataclass(frozen=True, slots=True)
class If:
    """Condition: a comparison or `and`/`or` of comparisons over loop variables."""

    condition: Expr
    then: tuple[Node, ...]
    otherwise: tuple[Node, ...] = ()


@dataclass(frozen=True, slots=True)
class Code(Sync):
    """What a processor beside the units runs: once all calls before are done, and before any later
    one is issued. It stands at the root of a program alone; nothing that calls left on the chip
    outlives it. `nest`: over whole tensors in their own order, by name; `cycles`: modelled, of the
    chip's clock, with the hand-over from units and back; `bound`: below which no schedule of it
    gets; `memory_bytes`: modelled, to and from the processor's memory."""

    nest: NestProgram
    cycles: int
    bound: int
    memory_bytes: int

    @property
    def name(self) -> str:
        """What it computes for others."""
        return ", ".join(self.nest.outputs)


SyncNode = Push | Pop | Barrier | Signal | Wait | Configure | Code
Node = Loop | If | Call | SyncNode


@dataclass(frozen=True, slots=True)
class Array:
    """A tensor in its own order, where the host has it."""

    name: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def bytes(self) -> int:
        return prod(self.shape) * DTYPES[self.dtype]


@dataclass(frozen=True, repr=False)
class KernelProgram(Printed):
    """One kernel for one chip. `inputs` and `outputs`: tensor names in the C function's order;
    `between`: what a processor takes over from units, or they from it."""

    name: str
    hardware: str
    workload: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    images: tuple[Image, ...]
    buffers: tuple[Buffer, ...]
    kernels: tuple[MicroKernelDef, ...]
    body: tuple[Node, ...]
    between: tuple[Array, ...] = ()

    def brief(self) -> str:
        sites = sum(1 for _ in calls(self.body))
        return f"{self.name}: {sites} call sites, {len(self.buffers)} buffers"

    @property
    def codes(self) -> tuple[Code, ...]:
        """What a processor runs, in order."""
        return tuple(n for n in self.body if isinstance(n, Code))

    def tensors(self, workload: Workload) -> dict[str, Tensor]:
        """What images may hold: a workload's tensors, and what scheduling made of them that units
        and a processor hand to each other."""
        where = workload.location
        between = (
            Tensor(a.name, a.dtype, a.shape, "intermediate", False, where) for a in self.between
        )
        return {t.name: t for t in (*workload.tensors, *between)}

    @cached_property
    def parts(self) -> tuple[KernelProgram | Code, ...]:
        """What units run and what a processor runs, in turn: each program has the images, buffers
        and micro-kernels of its calls. One that no processor interrupts is its only part."""
        if not self.codes:
            return (self,)
        found: list[KernelProgram | Code] = []
        for coded, nodes in groupby(self.body, lambda n: isinstance(n, Code)):
            if coded:
                found += [n for n in nodes if isinstance(n, Code)]
            else:
                found.append(self._part(tuple(nodes)))
        return tuple(found)

    def _part(self, body: tuple[Node, ...]) -> KernelProgram:
        made = list(calls(body))
        used = {o.buffer for c in made for o in c.operands}
        kernels = {c.kernel for c in made}
        images = tuple(i for i in self.images if i.name in used)
        taken = dict.fromkeys(i.tensor for i in images if i.role == "input")
        left = dict.fromkeys(i.tensor for i in images if i.role == "output")
        return replace(
            self,
            inputs=tuple(taken),
            outputs=tuple(left),
            images=images,
            buffers=tuple(b for b in self.buffers if b.name in used),
            kernels=tuple(k for k in self.kernels if k.name in kernels),
            body=body,
        )

    @cached_property
    def image(self) -> dict[str, Image]:
        return {i.name: i for i in self.images}

    @cached_property
    def buffer(self) -> dict[str, Buffer]:
        return {b.name: b for b in self.buffers}

    @cached_property
    def kernel(self) -> dict[str, MicroKernelDef]:
        return {k.name: k for k in self.kernels}

    def __str__(self) -> str:
        lines = [f"kernel {self.name} on {self.hardware}"]
        for image in self.images:
            shape = list(image.outer + image.lanes)
            where = ", in place" if image.in_place else ""
            lines.append(f"image {image.name}: {image.dtype}{shape} of {image.tensor}{where}")
        for b in self.buffers:
            lines.append(
                f"buffer {b.name}: {b.place} of {b.tensor}, {b.slots} x {b.slot_entries} entries"
            )
        for k in self.kernels:
            loops = " ".join(f"loop {x.extent} {list(x.strides)}" for x in k.loops)
            ops = " ".join(f"op {x.extent} {list(x.strides)}" for x in k.sequence)
            lines.append(f"micro-kernel {k.name}: {k.intrinsic} {loops} {ops}".rstrip())
            lines.extend(f"  variant {i}: {list(base)}" for i, base in enumerate(k.bases))
        lines.extend(_print(self.body, 0))
        return "\n".join(lines)


def calls(nodes: tuple[Node, ...]) -> Iterator[Call]:
    """Every call site, in textual order."""
    for node in nodes:
        match node:
            case Call():
                yield node
            case Loop():
                yield from calls(node.body)
            case If():
                yield from calls(node.then)
                yield from calls(node.otherwise)
            case Sync():
                pass


def own_calls(nodes: tuple[Node, ...]) -> tuple[Call, ...]:
    """The calls of one worker: those in no parallel loop among these nodes, in textual order."""
    found: list[Call] = []
    for node in nodes:
        match node:
            case Call():
                found.append(node)
            case Loop() if node.kind == SERIAL:
                found += own_calls(node.body)
            case If():
                found += own_calls((*node.then, *node.otherwise))
            case Loop() | Sync():
                pass
    return tuple(found)


def _list(numbers: tuple[int, ...]) -> str:
    return ", ".join(map(str, numbers))


def _print(nodes: tuple[Node, ...], depth: int) -> Iterator[str]:
    pad = "  " * depth
    for node in nodes:
        match node:
            case Loop(variable, lower, upper, body, kind):
                how = "" if kind == SERIAL else f", {kind}"
                yield f"{pad}for {variable} in {lower}..<{upper}{how}:"
                yield from _print(body, depth + 1)
            case If(condition, then, otherwise):
                yield f"{pad}if {condition}:"
                yield from _print(then, depth + 1)
                if otherwise:
                    yield f"{pad}else:"
                    yield from _print(otherwise, depth + 1)
            case Push(source, target):
                yield f"{pad}push {source} -> {target}"
            case Pop(source, target):
                yield f"{pad}pop {source} -> {target}"
            case Barrier(unit):
                yield f"{pad}barrier {unit or 'all units'}"
            case Signal(source, target, first, count):
                yield f"{pad}signal {source} -> {target}, {_flags(first, count)}"
            case Wait(source, target, first, count):
                yield f"{pad}wait {source} -> {target}, {_flags(first, count)}"
            case Configure(configuration, register, values):
                given = ", ".join(f"{name}={value}" for name, value in values)
                yield f"{pad}configure {configuration}[{register}]: {given}"
            case Code(nest, cycles):
                yield f"{pad}processor, {cycles} cycles:"
                yield from (f"{pad}  {line}" for line in str(nest).splitlines()[1:])
            case Call():
                yield f"{pad}{_call_text(node)}"


def _flags(first: int, count: int) -> str:
    return f"flag {first}" if count == 1 else f"flags {first}..{first + count - 1} in turn"


def _call_text(call: Call) -> str:
    operands = ", ".join(
        f"{o.name}={o.buffer}@{o.address}"
        + (f" step [{', '.join(map(str, o.strides))}]" if o.strides else "")
        for o in call.operands
    )
    extents = " x ".join(map(str, call.extents))
    values = "".join(f", {name}={value}" for name, value in call.immediates)
    variant = f" {call.kernel}[{call.variant}]" if call.kernel else ""
    variant += "".join(f" by {name}[{number}]" for name, number in call.registers)
    lanes = f", lanes {' x '.join(map(str, call.lanes))}" if call.lanes else ""
    return f"{call.intrinsic}{variant}({operands}{values}) over {extents or 1}{lanes}"
