"""One program of parts that units and a processor run in turn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from hwgen.codegen.c_names import kernel_name
from hwgen.codegen.nodes import Call, Code, Node, calls, rewritten
from hwgen.codegen.program import Program
from hwgen.codegen.storages import Array
from hwgen.polyhedral.tree.build import unique
from hwgen.polyhedral.tree.loop_tree import Tensor
from hwgen.spec.hardware import HardwareSpec
from hwgen.spec.workload import Workload


def joined(
    workload: Workload,
    hardware: HardwareSpec,
    tensors: Mapping[str, Tensor],
    parts: Sequence[Program | Code],
) -> Program:
    """The program of a workload; `tensors`: those of its schedule too. Images, micro-kernels and
    call sites of different parts get names and numbers of their own."""
    if len(parts) == 1 and isinstance(parts[0], Program):
        return parts[0]
    images: set[str] = set()
    kernels: set[str] = set()
    sites = 0
    made: list[Program | Code] = []
    for given in parts:
        part = given
        if isinstance(part, Program):
            of = {i.name: unique(i.name, images) for i in part.images}
            images |= {*of.values()}
            by = {k.name: unique(k.name, kernels) for k in part.kernels}
            kernels |= {*by.values()}
            part = _renamed(part, _Names(of, by, sites))
            sites += sum(1 for _ in calls(part.body))
        made.append(part)
    programs = [p for p in made if isinstance(p, Program)]
    return Program(
        name=kernel_name(workload, hardware),
        hardware=hardware.name,
        workload=workload.name,
        inputs=tuple(t.name for t in workload.inputs),
        outputs=tuple(t.name for t in workload.outputs),
        images=tuple(i for p in programs for i in p.images),
        buffers=tuple(b for p in programs for b in p.buffers),
        kernels=tuple(k for p in programs for k in p.kernels),
        body=tuple(n for p in made for n in (p.body if isinstance(p, Program) else (p,))),
        between=_between(workload, tensors, made),
    )


def _between(
    workload: Workload, tensors: Mapping[str, Tensor], parts: Sequence[Program | Code]
) -> tuple[Array, ...]:
    """What the processor takes over from units, or they from it, besides the caller's arrays."""
    outer = {t.name for t in (*workload.inputs, *workload.outputs)}
    found: dict[str, Array] = {}
    for part in parts:
        if isinstance(part, Code):
            for name in (*part.inputs, *part.outputs):
                array = part.array[name]
                found.setdefault(name, Array.whole(name, array.dtype, array.extents))
        else:
            for image in part.images:
                tensor = tensors.get(image.tensor)
                given = image.role != "temporary" and image.supplied is None
                if given and tensor is not None:
                    array = Array.whole(tensor.name, tensor.dtype, tensor.shape)
                    found.setdefault(tensor.name, array)
    return tuple(a for n, a in found.items() if n not in outer)


@dataclass(frozen=True, slots=True)
class _Names:
    """Of images and micro-kernels, by what they were called, and how far sites are from theirs."""

    images: Mapping[str, str]
    kernels: Mapping[str, str]
    sites: int


def _renamed(program: Program, names: _Names) -> Program:
    return replace(
        program,
        images=tuple(replace(i, name=names.images[i.name]) for i in program.images),
        kernels=tuple(replace(k, name=names.kernels[k.name]) for k in program.kernels),
        body=rewritten(program.body, lambda node: (_renamed_call(node, names),)),
    )


def _renamed_call(node: Node, names: _Names) -> Node:
    if not isinstance(node, Call):
        return node
    return replace(
        node,
        site=node.site + names.sites,
        operands=tuple(
            replace(o, buffer=names.images.get(o.buffer, o.buffer)) for o in node.operands
        ),
        kernel=names.kernels.get(node.kernel, node.kernel),
    )
