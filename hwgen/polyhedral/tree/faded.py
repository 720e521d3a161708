"""Sums of what an extremum is the reference point of: which of them a running extremum may rescale.

`t[i] max= x[i, j]; e[i, j] = exp(c * (x[i, j] - t[i])); z[i] += e[i, j]`: `exp` turns a change of
the reference point into a factor, `g(x, t) * g(t, u) = g(x, u)`, and a sum that is linear in `e`
may be multiplied by it at any time. So the blocks of `j` need not wait for the whole extremum.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isinf

from hwgen.errors import HwgenError
from hwgen.polyhedral.tree.edit import find_stage, refuse
from hwgen.polyhedral.tree.loop_tree import LoopTree, Stage
from hwgen.polyhedral.tree.placement import replace_reads
from hwgen.spec.expression import (
    Access,
    Binary,
    Call,
    Cast,
    Const,
    Expr,
    Name,
    Unary,
    names,
    substitute,
    tensors_of,
    walk,
)
from hwgen.spec.typecheck import is_float


@dataclass(frozen=True, slots=True)
class FadedSum:
    """A sum that is linear in the terms. `value`: over its own iterators, without the `factors`
    that do not move with the loop: `*` or `/`, and by what."""

    stage: Stage
    loop: str
    value: Expr
    factors: tuple[tuple[str, Expr], ...]
    at: tuple[Expr, ...]


@dataclass(frozen=True)
class Faded:
    """What a running extremum rescales. `loop`: the extremum's iterator that comes in blocks;
    `term`: the stage of the terms, and `along` the dimension of its tensor that moves with the
    loop; `fade`: the factor, over the extremum's iterators, of accesses to the extremum before
    (`value`'s read) and after (the extremum's own); `between`: stages that only divide or multiply
    the terms by what does not move with the loop."""

    extremum: Stage
    loop: str
    term: Stage
    along: int
    fade: Expr
    sums: tuple[FadedSum, ...]
    between: tuple[Stage, ...]
    infinite: bool


def faded(state: LoopTree, tensor: str) -> Faded:
    """What a running extremum in the place of a tensor rescales.

    Raises:
        HwgenError: H413 where that is not exact up to rounding; H414.
    """
    extremum = find_stage(state, tensor)
    loop = _check_extremum(state, extremum)
    readers = state.readers(tensor)
    if len(readers) != 1 or state.tensor[tensor].role == "output":
        raise _refused(
            tensor,
            f"it is read by {', '.join(s.tensor for s in readers) or 'the caller'}",
            "an intermediate that one stage reads",
        )
    term = readers[0]
    along, fade = _fade(state, extremum, loop, term)
    between: list[Stage] = []
    sums: list[FadedSum] = []
    waiting = [s for s in state.stages if any(r.tensor == term.tensor for r in s.reads_in("whole"))]
    if state.tensor[term.tensor].role == "output" or not waiting:
        raise _refused(tensor, f"{term.tensor} is kept", "terms that only sums read")
    while waiting:
        stage = waiting.pop(0)
        if stage.op == "=" and not stage.ordered and _scales(state, stage, term, along):
            between.append(stage)
            waiting += [s for s in state.readers(stage.tensor) if s not in waiting]
        elif stage not in [s.stage for s in sums]:
            sums.append(_sum(state, stage, extremum, term, along, between))
    totals = {s.stage.tensor for s in sums}
    order = [s.tensor for s in state.stages]
    sums.sort(key=lambda s: order.index(s.stage.tensor))
    for one in sums:
        inside = tensors_of(one.value)
        if clash := sorted(inside & (totals | {tensor})):
            raise _refused(tensor, f"{one.stage} adds up what depends on {clash[0]}", _LINEAR)
    for stage in between:
        used = {r.tensor for r in stage.reads} - {term.tensor, *(s.tensor for s in between)}
        if late := sorted(n for n in used - totals if n in state.stage):
            raise _refused(tensor, f"{stage} also reads {late[0]}", _LINEAR)
    assert isinstance(extremum.value, Access)
    infinite = _infinite(state, extremum.value.tensor)
    return Faded(extremum, loop, term, along, fade, tuple(sums), tuple(between), infinite)


_LINEAR = "sums of multiples of the terms, divided at most by such a sum"


def _refused(tensor: str, found: str, allowed: str) -> HwgenError:
    return refuse(
        f"nothing can be rescaled as {tensor} runs on",
        found,
        allowed,
        f"leave {tensor} as it is, complete before it is read",
    )


def _check_extremum(state: LoopTree, stage: Stage) -> str:
    """The iterator that an extremum of floats is over."""
    read = stage.value
    found, allowed = "", ""
    if stage.op not in ("max=", "min="):
        found, allowed = str(stage), "a greatest or least element (max=, min=)"
    elif not isinstance(read, Access) or len(stage.reduction) != 1 or stage.seed is not None:
        found, allowed = str(stage), "the extremum of a tensor's elements along one loop"
    elif not is_float(state.tensor[stage.tensor].dtype):
        found = f"{state.tensor[stage.tensor].dtype} {stage.tensor}"
        allowed = "floats: rescaling rounds"
    elif state.tensor[read.tensor].dtype != state.tensor[stage.tensor].dtype:
        found = f"{state.tensor[read.tensor].dtype} {read.tensor}"
        allowed = f"{state.tensor[stage.tensor].dtype}, as {stage.tensor}"
    if found:
        raise _refused(stage.tensor, found, allowed)
    ((loop, _),) = stage.reduction
    return loop


def _infinite(state: LoopTree, tensor: str) -> bool:
    """Whether elements may be infinite though all inputs of products are finite and none becomes
    too large: those of an input, and what is not made of products alone."""
    stage = state.stage.get(tensor)
    if stage is None or any(isinstance(n, Const) and isinf(n.value) for n in walk(stage.value)):
        return True
    products = stage.op == "+=" and isinstance(stage.value, Binary) and stage.value.op == "*"
    return not products and any(_infinite(state, r.tensor) for r in stage.reads)


def _fade(state: LoopTree, extremum: Stage, loop: str, term: Stage) -> tuple[int, Expr]:
    """The dimension of the terms' tensor that moves with the loop, and the factor by which another
    reference point changes them."""
    read = extremum.value
    assert isinstance(read, Access)
    tensor = extremum.tensor
    point, *more = [r for r in term.reads if r.tensor == tensor]
    own = [i.name if isinstance(i, Name) else "" for i in term.target.indices]
    theirs = [i.name if isinstance(i, Name) else "" for i in point.indices]
    table: dict[str, Expr] = dict(zip(theirs, extremum.target.indices, strict=True))
    moving = [n for n in own if n and n not in table]
    plain = "" not in own and "" not in theirs and len(set(own)) == len(own)
    if (
        more
        or term.op != "="
        or term.ordered
        or not plain
        or len(moving) != 1
        or len(table) < len(theirs)
    ):
        raise _refused(tensor, str(term), "a stage over the loops of the extremum")
    table[moving[0]] = Name(loop)
    value = substitute(term.value, table)
    point = Access(tensor, extremum.target.indices)
    match _bare(value):
        case Call("exp", (difference,)):
            sign = _sign(difference, read, point, loop)
        case _:
            sign = 0
    if not sign or not is_float(state.tensor[term.tensor].dtype):
        raise _refused(
            tensor,
            str(term),
            f"floats exp(c * ({read} - {point})), c the same for all of {loop}",
        )
    if sign != (1 if extremum.op == "max=" else -1):
        raise _refused(tensor, str(term), "factors that are known to be at most 1")
    return own.index(moving[0]), value


def _bare(value: Expr) -> Expr:
    """A value without casts to floats, which only round."""
    while isinstance(value, Cast) and is_float(value.dtype):
        value = value.operand
    return value


def _sign(value: Expr, read: Access, point: Access, loop: str) -> int:
    """The sign of c where a value is c * (read - point) and c does not move with the loop; 0 where
    it is not, or where the sign is unknown."""
    match value:
        case Binary("-", left, right):
            pair = _bare(left), _bare(right)
            return int(pair == (read, point)) - int(pair == (point, read))
        case Binary("*", inner, factor) if _free(factor, read, point, loop):
            return _sign(inner, read, point, loop) * _known_sign(factor)
        case Binary("*", factor, inner) if _free(factor, read, point, loop):
            return _sign(inner, read, point, loop) * _known_sign(factor)
        case Binary("/", inner, factor) if _free(factor, read, point, loop):
            return _sign(inner, read, point, loop) * _known_sign(factor)
        case Unary("-", inner):
            return -_sign(inner, read, point, loop)
        case _:
            return 0


def _free(factor: Expr, read: Access, point: Access, loop: str) -> bool:
    known = tensors_of(factor)
    return loop not in names(factor) and known.isdisjoint({read.tensor, point.tensor})


def _known_sign(factor: Expr) -> int:
    """The sign of a factor that is neither zero nor infinite; 0 where it is unknown."""
    match factor:
        case Const(value) if 0 < abs(value) < float("inf"):
            return 1 if value > 0 else -1
        case Call("exp" | "rsqrt", _):
            return 1
        case Call("sqrt", (inner,)) | Cast(_, inner):
            return _known_sign(inner)
        case Unary("-", inner):
            return -_known_sign(inner)
        case Binary("*" | "/", left, right):
            return _known_sign(left) * _known_sign(right)
        case _:
            return 0


def _scales(state: LoopTree, stage: Stage, term: Stage, along: int) -> bool:
    """Whether a stage only multiplies or divides each term by what does not move with the loop."""
    (read, *more) = [r for r in stage.reads if r.tensor == term.tensor] or [None]
    if read is None or more or state.tensor[stage.tensor].role == "output":
        return False
    return stage.target.indices == read.indices and isinstance(read.indices[along], Name)


def _sum(
    state: LoopTree,
    stage: Stage,
    extremum: Stage,
    term: Stage,
    along: int,
    between: Sequence[Stage],
) -> FadedSum:
    """A stage as a sum that is linear in the terms."""
    value: Expr = stage.value
    for other in reversed(between):
        plain = [i.name for i in other.target.indices if isinstance(i, Name)]

        def at(access: Access, other: Stage = other, plain: Sequence[str] = plain) -> Expr:
            return substitute(other.value, dict(zip(plain, access.indices, strict=True)))

        value = replace_reads(value, other.tensor, at)
    reads = [n for n in walk(value) if isinstance(n, Access) and n.tensor == term.tensor]
    index = reads[0].indices[along] if reads else None
    reduction = dict(stage.reduction)
    if stage.op != "+=" or stage.seed is not None or not isinstance(index, Name):
        raise _refused(extremum.tensor, f"{stage} reads {term.tensor}", _LINEAR)
    if not is_float(state.tensor[stage.tensor].dtype) or index.name not in reduction:
        raise _refused(extremum.tensor, str(stage), _LINEAR)
    extent = dict(term.iterators)[str(term.target.indices[along])]
    if len(reads) != 1 or reduction[index.name] != extent:
        raise _refused(extremum.tensor, str(stage), _LINEAR)
    found = _linear(value, term.tensor, index.name)
    if found is None:
        raise _refused(extremum.tensor, str(stage), _LINEAR)
    core, factors = found
    (point,) = [r for r in term.reads if r.tensor == extremum.tensor]
    table = {str(i): e for i, e in zip(term.target.indices, reads[0].indices, strict=True)}
    at_point = tuple(substitute(i, table) for i in point.indices)
    over = {n for i in at_point for n in names(i)} | {n for _, f in factors for n in names(f)}
    if not over <= {n for n, _ in stage.spatial}:
        raise _refused(extremum.tensor, str(stage), _LINEAR)
    return FadedSum(stage, index.name, core, factors, at_point)


def _linear(value: Expr, term: str, loop: str) -> tuple[Expr, tuple[tuple[str, Expr], ...]] | None:
    """A value linear in a term without the divisions by what does not move with the loop, and
    these; None where it is not linear."""
    match value:
        case Access(tensor, _) if tensor == term:
            return value, ()
        case Cast(dtype, inner) if is_float(dtype):
            found = _linear(inner, term, loop)
            if found is None:
                return None
            return Cast(dtype, found[0]), tuple((op, Cast(dtype, by)) for op, by in found[1])
        case Unary("-", inner):
            found = _linear(inner, term, loop)
            return found and (Unary("-", found[0]), found[1])
        case Binary("/", inner, by) if term not in tensors_of(by):
            found = _linear(inner, term, loop)
            if found is None or loop in names(by):
                return found and (Binary("/", found[0], by), found[1])
            return found[0], (*found[1], ("/", by))
        case Binary("*", inner, by) if term not in tensors_of(by):
            found = _linear(inner, term, loop)
            return found and (Binary("*", found[0], by), found[1])
        case Binary("*", by, inner) if term not in tensors_of(by):
            found = _linear(inner, term, loop)
            return found and (Binary("*", by, found[0]), found[1])
        case _:
            return None
