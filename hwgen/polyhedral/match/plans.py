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


def rank(plan: Plan) -> float:
    """What makes one plan better than another. Of equals the first is taken, in an order that the
    chip's file does not decide."""
    return round(plan.cost, 9)


def loads(plan: Plan) -> Intrinsic | None:
    """The copy from off-chip memory that a plan begins with, if it does."""
    match plan:
        case Input():
            return plan.copy
        case Moved():
            return loads(plan.source)
        case _:
            return None
