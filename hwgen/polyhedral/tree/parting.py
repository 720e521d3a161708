"""Sums in planes: a workload in which units compute a wide integer and store narrow parts of it,
where they cannot store it whole, and the processor beside them puts it together."""

from __future__ import annotations

from dataclasses import replace

from hwgen.polyhedral.tree.planes import narrower, parts_of, plane_names, whole_of
from hwgen.spec.expression import DTYPES, Access, Expr, Name, map_accesses, walk
from hwgen.spec.hardware import HardwareSpec
from hwgen.spec.workload import Statement, Workload


def planes_for(hardware: HardwareSpec, dtype: str) -> str:
    """The type of which planes of another leave the chip: the widest; "" where there is none, or
    where calls store the other as it is."""
    stored = {
        o.dtype
        for i in hardware.intrinsics
        for o in i.operands
        if o.access != "read" and hardware.is_offchip(o.memory)
    }
    if dtype in stored:
        return ""
    found = (d for d in stored if narrower(dtype, d))
    return max(found, key=lambda d: (DTYPES[d], d), default="")


def written_whole(workload: Workload, tensor: str) -> bool:
    """Whether no other statement reads a tensor before the last one has written it."""
    last = max(n for n, s in enumerate(workload.statements) if s.target.tensor == tensor)
    others = (s for s in workload.statements[:last] if s.target.tensor != tensor)
    read = (a for s in others for a in walk(s.value) if isinstance(a, Access))
    return all(a.tensor != tensor for a in read)


def in_planes(workload: Workload, tensor: str, dtype: str) -> Workload:
    """The same workload, what computes a tensor followed by its planes and their sum, as the
    primitive `planes` has them. Names of statements stay; new ones follow the last of them.
    `written_whole` must hold."""
    given = workload.tensor[tensor]
    whole, *planes = plane_names(tensor, given.dtype, dtype, workload.tensor)
    last = max(n for n, s in enumerate(workload.statements) if s.target.tensor == tensor)
    statements: list[Statement] = []
    for number, statement in enumerate(workload.statements):
        if statement.target.tensor != tensor:
            statements.append(statement)
            continue
        statements.append(_moved(statement, tensor, whole))
        if number == last:
            statements += _parts(statement, given.dtype, dtype, given.shape, whole, planes)
    inner = replace(given, role="intermediate")
    added = (
        replace(inner, name=whole),
        *(replace(inner, name=n, dtype=dtype) for n in planes),
    )
    tensors = (x for t in workload.tensors for x in ((*added, t) if t.name == tensor else (t,)))
    return replace(workload, tensors=tuple(tensors), statements=tuple(statements))


def _moved(statement: Statement, tensor: str, whole: str) -> Statement:
    """The statement for another tensor."""

    def changed(access: Access) -> Expr:
        return Access(whole, access.indices) if access.tensor == tensor else access

    target = Access(whole, statement.target.indices)
    return replace(statement, target=target, value=map_accesses(statement.value, changed))


def _parts(
    after: Statement,
    wide: str,
    narrow: str,
    shape: tuple[int, ...],
    whole: str,
    planes: list[str],
) -> list[Statement]:
    """The planes of a tensor, and their sum."""
    loops = tuple((f"i{d}", extent) for d, extent in enumerate(shape))
    indices = tuple(Name(n) for n, _ in loops)

    def made(name: str, target: str, value: Expr) -> Statement:
        return replace(
            after, name=name, loops=loops, target=Access(target, indices), op="=", value=value
        )

    values = parts_of(Access(whole, indices), wide, narrow)
    names = [f"{after.name}_{q}" for q in range(len(planes))]
    found = [made(n, p, v) for n, p, v in zip(names, planes, values, strict=True)]
    total = whole_of([Access(p, indices) for p in planes], wide, narrow)
    return [*found, made(f"{after.name}_sum", after.target.tensor, total)]
