"""Where the operands of a call lie, and what a call touches."""

from __future__ import annotations

from dataclasses import dataclass

from hwgen.spec.affine import Affine, combine


@dataclass(frozen=True, slots=True)
class Address:
    """`offset` over tile counters and outer loops, plus the slot that `turn` selects."""

    buffer: str
    offset: Affine
    turn: Affine | None
    slots: int
    slot_stride: int


@dataclass(frozen=True, slots=True)
class Touch:
    """One buffer access of a site: the slot counter's value identifies the data's generation.
    Slot `n` is `memory[base + n * slot_stride :][: slot_entries]`. `kept`: each generation has a
    slot of its own. `offchip`: an image that several phases share."""

    buffer: str
    turn: Affine
    slots: int
    write: bool
    memory: str
    base: int
    slot_entries: int
    slot_stride: int
    kept: bool = False
    offchip: bool = False


def modulo(function: Affine, slots: int) -> Affine:
    """A function with the same value modulo `slots` and the smallest coefficients."""
    return combine([(n, c % slots) for n, c in function.terms], function.constant % slots)
