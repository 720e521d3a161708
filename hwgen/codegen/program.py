"""`Program`: everything decided, for every kind of chip. Emitters, simulator and checkers read it
and decide nothing.

Addresses count entries of the operand's memory: absolute on chip, relative to the image off chip.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby
from math import prod

from hwgen.codegen.nodes import Body, Code, calls
from hwgen.codegen.printed import lines_of
from hwgen.codegen.storages import Array, Buffer, Image
from hwgen.spec.shown import Printed
from hwgen.spec.workload import Tensor, Workload


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


@dataclass(frozen=True, repr=False)
class Program(Printed):
    """One kernel for one chip. `inputs` and `outputs`: tensor names in the C function's order;
    `between`: what a processor takes over from units, or they from it."""

    name: str
    hardware: str
    workload: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    images: tuple[Image, ...] = ()
    buffers: tuple[Buffer, ...] = ()
    kernels: tuple[MicroKernelDef, ...] = ()
    body: Body = ()
    between: tuple[Array, ...] = ()

    def brief(self) -> str:
        sites = sum(1 for _ in calls(self.body))
        return f"{self.name}: {sites} call sites, {len(self.buffers)} buffers"

    @property
    def codes(self) -> tuple[Code, ...]:
        """What a processor runs, in order."""
        return tuple(n for n in self.body if isinstance(n, Code))

    def tensors(self, workload: Workload) -> dict[str, Tensor]:
        """What images may hold: a workload's tensors, what scheduling made of them that units and a
        processor hand to each other, and what it supplies."""
        where = workload.location
        between = (
            Tensor(a.name, a.dtype, a.extents, "intermediate", False, where) for a in self.between
        )
        own = (t for t in self.supplied(workload) if t.name not in workload.tensor)
        return {t.name: t for t in (*workload.tensors, *between, *own)}

    def supplied(self, workload: Workload) -> tuple[Tensor, ...]:
        """The inputs that no caller gives."""
        where = workload.location
        images = {i.tensor: i for i in self.images if i.supplied is not None}
        return tuple(
            Tensor(i.tensor, i.dtype, i.shape, "input", True, where, i.supplied)
            for i in images.values()
        )

    @cached_property
    def parts(self) -> tuple[Program | Code, ...]:
        """What units run and what a processor runs, in turn: each program has the images, buffers
        and micro-kernels of its calls. One that no processor interrupts is its only part."""
        if not self.codes:
            return (self,)
        found: list[Program | Code] = []
        for coded, nodes in groupby(self.body, lambda n: isinstance(n, Code)):
            if coded:
                found += [n for n in nodes if isinstance(n, Code)]
            else:
                found.append(self._part(tuple(nodes)))
        return tuple(found)

    def _part(self, body: Body) -> Program:
        made = list(calls(body))
        used = {o.buffer for c in made for o in c.operands}
        kernels = {c.kernel for c in made}
        images = tuple(i for i in self.images if i.name in used)
        given = (i for i in images if i.role == "input" and i.supplied is None)
        taken = dict.fromkeys(i.tensor for i in given)
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
        lines += [*map(str, self.images), *map(str, self.buffers)]
        for k in self.kernels:
            loops = " ".join(f"loop {x.extent} {list(x.strides)}" for x in k.loops)
            ops = " ".join(f"op {x.extent} {list(x.strides)}" for x in k.sequence)
            lines.append(f"micro-kernel {k.name}: {k.intrinsic} {loops} {ops}".rstrip())
            lines.extend(f"  variant {i}: {list(base)}" for i, base in enumerate(k.bases))
        return "\n".join([*lines, *lines_of(self.body)])
