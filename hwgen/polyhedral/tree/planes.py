"""A wide integer as planes of narrower ones: what calls cannot move in one piece leaves in parts.

Plane `q` of a value is `narrow(value >> q * bits)`; the value is the sum of its planes, all but the
last of them without their sign, each times `2 ** (q * bits)`. No bit is lost, whatever the value.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from hwgen.polyhedral.tree.build import unique
from hwgen.polyhedral.tree.copies import cache_write
from hwgen.polyhedral.tree.edit import check_tensor, find_stage, refuse
from hwgen.polyhedral.tree.loop_tree import LoopTree, Stage, Storage, Tensor
from hwgen.polyhedral.tree.placement import nest_beside
from hwgen.spec.expression import (
    DTYPES,
    Access,
    Binary,
    Cast,
    Const,
    Expr,
    Name,
    add,
    multiply,
    walk,
)
from hwgen.spec.hardware import HardwareSpec
from hwgen.spec.typecheck import integer_range, is_float
from hwgen.spec.workload import Workload


def narrower(wide: str, narrow: str) -> bool:
    """Whether values of a type have planes of another."""
    signed = all(not is_float(t) and integer_range(t)[0] < 0 for t in (wide, narrow))
    return signed and DTYPES[narrow] < DTYPES[wide]


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


def parts_of(value: Expr, wide: str, narrow: str) -> tuple[Expr, ...]:
    """The planes of a value, the lowest first."""
    bits = 8 * DTYPES[narrow]
    count = DTYPES[wide] // DTYPES[narrow]
    moved = [Binary(">>", value, Const(q * bits)) if q else value for q in range(count)]
    return tuple(Cast(narrow, x) for x in moved)


def whole_of(planes: Sequence[Expr], wide: str, narrow: str) -> Expr:
    """The value of which these are the planes."""
    span = 1 << 8 * DTYPES[narrow]
    *low, top = (Cast(wide, p) for p in planes)
    unsigned = [Binary("%", add(p, Const(span)), Const(span)) for p in low]
    total: Expr = Const(0)
    for place, part in enumerate([*unsigned, top]):
        total = add(total, multiply(part, Const(span**place)))
    return total


def _names(tensor: str, wide: str, narrow: str, taken: Iterable[str]) -> tuple[str, ...]:
    """What the tensor before it is parted is called, and its planes."""
    used = set(taken)
    planes = (f"{tensor}_plane{q}" for q in range(DTYPES[wide] // DTYPES[narrow]))
    return tuple(unique(n, used) for n in (f"{tensor}_whole", *planes))


def planes(state: LoopTree, tensor: str, dtype: str) -> tuple[LoopTree, tuple[str, ...]]:
    """The stage of a tensor computes another one, which is parted into planes of a type; the tensor
    is put together from them.

    Raises:
        HwgenError: H413, H414.
    """
    check_tensor(state, tensor)
    stage = find_stage(state, tensor)
    wide = state.tensor[tensor].dtype
    if dtype not in DTYPES or not narrower(wide, dtype):
        raise refuse(
            f"{tensor} has no planes of type {dtype}",
            f"{wide} {tensor}",
            "signed integers narrower than the tensor's",
            f"cache_write({tensor!r}, memory)",
        )
    whole, *names = _names(tensor, wide, dtype, state.tensor)
    made, _ = cache_write(state, tensor, "", "", (), whole)
    copy = made.stage[tensor]
    if copy.over:
        raise refuse(
            f"{tensor} is written in parts",
            str(stage),
            "a stage that writes all of its tensor",
            f"cache_write({tensor!r}, memory)",
        )
    shape = made.tensor[tensor].shape
    added: list[Stage] = []
    for q, name in enumerate(names):
        iterators = tuple((f"{name}_{d}", e) for d, e in enumerate(shape))
        indices = tuple(Name(n) for n, _ in iterators)
        part = parts_of(Access(whole, indices), wide, dtype)[q]
        added.append(Stage(name, iterators, Access(name, indices), "=", part))
    reads = [Access(name, copy.target.indices) for name in names]
    joined = replace(copy, value=whole_of(reads, wide, dtype), kind="compute")
    for name in names:
        made = made.with_tensor(Tensor(name, dtype, shape, "intermediate"), Storage(name))
    made = made.with_stages(tensor, *added, joined)
    for stage in added:
        made = nest_beside(made, stage, tensor)
    return made, (whole, *names)
