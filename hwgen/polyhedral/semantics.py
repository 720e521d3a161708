"""What intrinsics compute, read off their semantics."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import lru_cache

from hwgen.polyhedral.normal_form import normalise
from hwgen.polyhedral.unify import grouped, rebuild
from hwgen.spec.call_cycles import unhindered
from hwgen.spec.expression import (
    Access,
    Assign,
    Binary,
    Cast,
    Const,
    Expr,
    Name,
    evaluate,
    names,
    rename_tensors,
    walk,
)
from hwgen.spec.hardware import HardwareSpec, Intrinsic, Operand
from hwgen.spec.typecheck import is_float


def marginal_cycles(intrinsic: Intrinsic) -> float:
    """Cycles that one more iteration takes, transfers not counted."""
    free = {"transfer": 0, "bursts": 0, "beats": 0} | {loop.name: 1 for loop in intrinsic.loops}

    def cycles(iterations: int) -> float:
        known = free | unhindered(intrinsic, iterations)
        return evaluate(intrinsic.cycles, known | {"iterations": iterations})

    # The step divides by every small number: the slope of a rounded quotient is then exact.
    return (cycles(1840) - cycles(1000)) / 840


@lru_cache(maxsize=1024)
def written(intrinsic: Intrinsic) -> tuple[Assign, str] | None:
    """The only assignment of an intrinsic, in normal form, and the operand that it writes; None
    where there are more, or where an operand's elements are read under several indices. What is
    read through fields that repeat the written operand's is that operand."""
    if len(intrinsic.semantics) != 1 or not all(o.plain for o in intrinsic.operands):
        return None
    assign = intrinsic.semantics[0]
    twins = {o.name: o.same_as for o in intrinsic.operands if o.same_as}
    value = normalise(
        rename_tensors(assign.value, twins), {o.name: o.dtype for o in intrinsic.operands}
    )
    return replace(assign, value=value), assign.target.tensor


def as_read(intrinsic: Intrinsic, name: str) -> Operand:
    """An operand with what the fields ask that read it, where these repeat its own."""
    operand = intrinsic.operand(name)
    asked = {w for o in intrinsic.operands if o.same_as == name for w in o.written_by}
    return replace(operand, written_by=tuple(sorted({*asked, *operand.written_by})))


def copies(intrinsic: Intrinsic) -> bool:
    """Whether an intrinsic writes what it reads, and does nothing else."""
    only = written(intrinsic)
    return only is not None and only[0].op == "=" and isinstance(only[0].value, Access)


def moves(hardware: HardwareSpec, intrinsic: Intrinsic) -> bool:
    """Whether an intrinsic copies from one memory on the chip to another, and does nothing else."""
    only = written(intrinsic)
    if only is None or not copies(intrinsic) or not isinstance(only[0].value, Access):
        return False
    ends = (intrinsic.operand(only[1]).memory, intrinsic.operand(only[0].value.tensor).memory)
    return ends[0] != ends[1] and all(not hardware.is_offchip(m) for m in ends)


def updates(intrinsic: Intrinsic) -> Iterator[tuple[str, Expr]]:
    """The accumulations that an intrinsic performs: `d += e`, also written `d = d + e`; with `=`,
    one in order, whose value is made from `d`."""
    only = written(intrinsic)
    if only is None:
        return
    assign = only[0]
    if assign.op != "=":
        yield assign.op, assign.value
        return
    if assign.running:
        yield "=", assign.value
    match assign.value:
        case Cast():
            return
        case value:
            dtypes = {o.name: o.dtype for o in intrinsic.operands}
            for op, function in (("+=", "+"), ("max=", "max"), ("min=", "min")):
                rest = _without(value, assign.target, function, dtypes)
                if rest is not None:
                    yield op, rest


def adding(intrinsic: Intrinsic) -> Expr | None:
    """What an intrinsic that adds to integers leaves in an element, as a value of what was there:
    `d + e` for `d += e`. None where it is another one."""
    only = written(intrinsic)
    if only is None or only[0].op != "+=" or any(is_float(o.dtype) for o in intrinsic.operands):
        return None
    return Binary("+", only[0].target, only[0].value)


def folds(intrinsic: Intrinsic) -> bool:
    """Whether an application writes one element more than once, each time from its last value."""
    only = intrinsic.semantics[0]
    used = {n for i in only.target.indices for n in names(i)}
    return only.op == "=" and any(n in names(only.value) and n not in used and e > 1
                                  for n, e in intrinsic.iterators)  # fmt: skip


def _without(value: Expr, target: Access, function: str, dtypes: Mapping[str, str]) -> Expr | None:
    terms = grouped(function, value, dtypes)
    rest = tuple(t for t in terms if t != target)
    if len(rest) + 1 != len(terms) or not rest:
        return None
    return rebuild(function, rest)


def setting(hardware: HardwareSpec, intrinsic: Intrinsic, neutral: int | float) -> Intrinsic | None:
    """An intrinsic that does the same as an update wherever that is called, on sums that it first
    sets to what changes nothing."""
    if len(intrinsic.semantics) != 1:
        return None
    update = intrinsic.semantics[0]
    start = Assign(update.target, "=", Const(neutral))
    for other in hardware.intrinsics:
        same = (other.unit, other.iterators, other.immediates, other.stationary) == (
            intrinsic.unit,
            intrinsic.iterators,
            intrinsic.immediates,
            intrinsic.stationary,
        )
        if (
            same
            and other.semantics == (start, update)
            and other.loops == intrinsic.loops
            and len(other.operands) == len(intrinsic.operands)
            and all(map(_serves, other.operands, intrinsic.operands))
            and (not _accepted(intrinsic) or other.name in _accepted(intrinsic))
        ):
            return other
    return None


def _serves(operand: Operand, other: Operand) -> bool:
    """Whether an operand can be where another one is."""
    reads = "read" in (operand.access, other.access)
    return (
        (operand.name, operand.memory, operand.dtype, operand.shape)
        == (other.name, other.memory, other.dtype, other.shape)
        and operand.address.minimum <= other.address.minimum
        and operand.address.maximum >= other.address.maximum
        and (not reads or operand.written_by in ((), other.written_by))
    )


def _accepted(update: Intrinsic) -> tuple[str, ...]:
    """Who must have written the sums that an update adds to; none: anyone may have."""
    return update.written.written_by


def widens(dtype: str, into: str) -> bool:
    """Whether every value of `dtype` is a value of `into`."""
    if dtype == into:
        return True
    bits = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
    unsigned = {"uint8": 8, "uint16": 16, "uint32": 32}
    if into in bits:
        return bits.get(dtype, 99) <= bits[into] or unsigned.get(dtype, 99) < bits[into]
    floats = {"float16": 11, "bfloat16": 8, "float32": 24, "float64": 53}
    exact = floats.get(into, 0)
    return (
        bits.get(dtype, 99) <= exact
        or unsigned.get(dtype, 99) <= exact
        or (into == "float64" and dtype in floats)
        or (into == "float32" and dtype in ("float16", "bfloat16"))
    )


def neutral_element(op: str, dtype: str) -> int | float:
    """The value that an update leaves unchanged, as a constant of `dtype`."""
    if op == "+=":
        return 0
    if dtype.startswith(("float", "bfloat")):
        return float("-inf") if op == "max=" else float("inf")
    bits = int(dtype.lstrip("uint"))
    if dtype.startswith("u"):
        return 0 if op == "max=" else 2**bits - 1
    return -(2 ** (bits - 1)) if op == "max=" else 2 ** (bits - 1) - 1


def operand_iterators(intrinsic: Intrinsic, operand: str) -> tuple[str, ...]:
    """The iterators that index an operand, by dimension."""
    for assign in intrinsic.semantics:
        for node in (assign.target, *walk(assign.value)):
            if isinstance(node, Access) and node.tensor == operand:
                return tuple(i.name for i in node.indices if isinstance(i, Name))
    raise AssertionError(f"operand {operand} does not occur in {intrinsic.name}'s semantics")
