"""Inputs whose bytes a kernel may give to its output, and the output that takes them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from hwgen.codegen.host_plan import HostPlan
from hwgen.codegen.nodes import Code
from hwgen.codegen.program import Program
from hwgen.codegen.storages import Image
from hwgen.spec.expression import DTYPES, Access, Name, walk
from hwgen.spec.workload import Statement, Workload


def overwritable(workload: Workload) -> frozenset[str]:
    """Inputs of which each element is read only for the output's element at the same bytes.

    All that is computed from such an input has the output's shape. An instance of its statements
    reads these tensors at its own index alone. So an input's element is read only for the element
    that overwrites it, and that one is computed from what was read: whatever order a kernel has,
    the reads come first.
    """
    outputs = workload.outputs
    if len(outputs) != 1:
        return frozenset()
    (y,) = outputs
    same = (t for t in workload.inputs if not t.constant and t.shape == y.shape)
    return frozenset(
        t.name
        for t in same
        if DTYPES[t.dtype] == DTYPES[y.dtype] and _by_element(workload, t.name, y.name)
    )


def _by_element(workload: Workload, x: str, y: str) -> bool:
    """Whether all that is computed from one tensor is, element by element, for the other one."""
    computed, used = {x}, set[str]()
    for statement in workload.statements:
        read = _accesses(statement, computed)
        if statement.target.tensor in computed:  # Written again, after it was read.
            return False
        if not read:
            continue
        own = statement.target.indices
        loops = tuple(index.name for index in own if isinstance(index, Name))
        extents = dict(statement.loops)
        whole = len(loops) == len(own) == len({*loops}) == len(extents)
        shape = tuple(extents[name] for name in loops) if whole else ()
        if statement.op != "=" or not whole or shape != workload.tensor[x].shape:
            return False
        if any(access.indices != own for access in read):
            return False
        computed.add(statement.target.tensor)
        used |= {access.tensor for access in read}
    writers = [s.target.tensor for s in workload.statements]
    once = all(writers.count(name) == 1 for name in computed - {x})
    return y in computed and once and computed - {y} <= used


def _accesses(statement: Statement, tensors: Iterable[str]) -> list[Access]:
    parts = (part for part in walk(statement.value) if isinstance(part, Access))
    return [part for part in parts if part.tensor in tensors]


def of_code_alone(plan: HostPlan) -> frozenset[str]:
    """Tensors that units neither read nor write in place. A unit may move more than it uses."""
    images = {i.tensor for i in plan.program.images if i.name in plan.direct}
    return frozenset(t.name for t in plan.inputs + plan.outputs if t.name not in images)


def read_first(plan: HostPlan) -> frozenset[str]:
    """Inputs that are packed, or read, for the last time before an output is written.

    Parts run one after the other. What a part packs, it packs before all else that it does.
    """
    read: dict[str, int] = {}
    written = 2 * len(plan.program.parts)
    outputs = {t.name for t in plan.outputs}
    for n, part in enumerate(plan.program.parts):
        if isinstance(part, Code):
            touched = [(2 * n + 1, name) for name in (*part.inputs, *part.outputs)]
        else:
            touched = [(2 * n + (i.name in plan.direct), i.tensor) for i in part.images]
        for at, name in touched:
            if name in outputs:
                written = min(written, 2 * n + 1)
            else:
                read[name] = max(read.get(name, 0), at)
    given = (t.name for t in plan.inputs if not t.constant)
    return frozenset(name for name in given if read.get(name, 0) < written)


def rearranged(plan: HostPlan) -> dict[str, Image]:
    """By input or output that no constant is, the one image of it that the host packs or unpacks,
    where nothing else reads or writes the tensor, and the image has the tensor's type."""
    found: dict[str, Image] = {}
    for tensor in plan.inputs + plan.outputs:
        images = [i for i in plan.program.images if i.tensor == tensor.name]
        staged = [i for i in images if i in plan.staged and i.dtype == tensor.dtype]
        if len(images) == len(staged) == 1 and not (tensor.constant or plan.in_place(tensor)):
            found[tensor.name] = staged[0]
    return found


def sharing(program: Program, tensors: frozenset[str]) -> Program:
    """The program, whose C says of no array of these tensors that nothing else has its bytes."""

    def shared(code: Code) -> Code:
        arrays = (replace(a, shared=a.tensor in tensors) for a in code.arrays)
        return replace(code, arrays=tuple(arrays))

    return replace(
        program, body=tuple(shared(n) if isinstance(n, Code) else n for n in program.body)
    )
