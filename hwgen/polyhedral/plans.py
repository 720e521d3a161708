"""Ways to have a value in a memory: what instruction selection chooses among."""

from __future__ import annotations

from dataclasses import dataclass

from hwgen.polyhedral.scop import Reference
from hwgen.spec.hardware import Intrinsic


@dataclass(frozen=True, slots=True)
class Input:
    """An input tensor brought into a memory by a copy intrinsic, or there already (None)."""

    ref: Reference
    memory: str
    copy: Intrinsic | None
    cost: float


@dataclass(frozen=True, slots=True)
class Held:
    """A value that an earlier statement left in a memory."""

    ref: Reference
    cost: float = 0.0


@dataclass(frozen=True, slots=True)
class Moved:
    """A tensor's value moved from one memory on the chip to another."""

    ref: Reference
    memory: str
    copy: Intrinsic
    source: Plan
    cost: float


@dataclass(frozen=True, slots=True)
class Apply:
    """An intrinsic applied to covered operands."""

    intrinsic: Intrinsic
    operands: tuple[tuple[str, Plan], ...]
    immediates: tuple[tuple[str, int | float], ...]
    cost: float


Plan = Input | Held | Moved | Apply


def intrinsics(plan: Plan) -> tuple[str, ...]:
    """The intrinsics of a plan, in the order in which they are called."""
    match plan:
        case Held():
            return ()
        case Input(copy=copy):
            return () if copy is None else (copy.name,)
        case Moved(copy=copy, source=source):
            return (*intrinsics(source), copy.name)
        case Apply(intrinsic=last, operands=operands):
            return (*(n for _, p in operands for n in intrinsics(p)), last.name)


def rank(plan: Plan) -> tuple[float, int, tuple[str, ...]]:
    """What makes one plan better than another: fewer cycles, then fewer calls; the names decide
    between equals, and never the order in which the chip's file has them."""
    names = intrinsics(plan)
    return round(plan.cost, 9), len(names), names


def loads(plan: Plan) -> Intrinsic | None:
    """The copy from off-chip memory that a plan begins with, if it does."""
    match plan:
        case Input():
            return plan.copy
        case Moved():
            return loads(plan.source)
        case _:
            return None
