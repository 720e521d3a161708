"""A computation over tensors, without any chip in it."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from typing import Literal

from hwgen.errors import Location
from hwgen.spec.expression import DTYPES, Access, Expr, UpdateOp, names, walk
from hwgen.spec.shown import Brief, workload_brief, workload_html

Role = Literal["input", "output", "intermediate"]


@dataclass(frozen=True, slots=True)
class Tensor:
    """A row-major array. `constant`: an input that stays the same between calls (weights).
    `supplied`: what all elements of an input are that no caller gives: it is the kernel's own.
    `written`: each extent as the file has it, where it comes from one. `scalar`: callers have it
    without dimensions, kernels with one of extent 1. `range`: the least and the greatest value of
    an input whose callers keep to it."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    role: Role
    constant: bool
    location: Location = field(compare=False)
    supplied: int | None = None
    written: tuple[str, ...] = field(default=(), compare=False)
    scalar: bool = False
    range: tuple[int, int] | None = None

    @property
    def extents(self) -> tuple[int, ...]:
        """Its shape, as callers have it."""
        return () if self.scalar else self.shape

    @property
    def bytes(self) -> int:
        """Of all its elements."""
        return prod(self.shape) * DTYPES[self.dtype]


@dataclass(frozen=True)
class Statement:
    """`target op value` for every point of `loops` (name, extent), outermost first.

    An update (`+=`, `max=`, `min=`) of an intermediate or output starts from the operation's
    neutral element, or `continues` from what the statement before it set. Loops absent from the
    target's indices are the reduction's. With `=` the iterations of the reduction run in the loops'
    order, each from what the one before it left.
    """

    name: str
    loops: tuple[tuple[str, int], ...]
    target: Access
    op: UpdateOp
    value: Expr
    location: Location = field(compare=False)
    continues: bool = False

    @property
    def folded(self) -> tuple[str, ...]:
        """Loops whose iterations all write one element, outermost first."""
        used = {n for index in self.target.indices for n in names(index)}
        return tuple(n for n, _ in self.loops if n not in used)

    @cached_property
    def reads(self) -> frozenset[str]:
        """The tensors that its value reads."""
        return frozenset(n.tensor for n in walk(self.value) if isinstance(n, Access))

    @cached_property
    def ordered(self) -> bool:
        """Whether elements take new values from their last ones, and must in the loops' order."""
        return self.op == "=" and bool(self.folded) and self.target in walk(self.value)

    def begins(self, before: Statement) -> bool:
        """Whether another statement sets what this one goes on from."""
        again = before.target.tensor == self.target.tensor
        return again and (self.ordered or self.continues)

    @property
    def accumulates(self) -> bool:
        """Whether an element is made by all iterations of a reduction."""
        return self.op != "=" or self.ordered

    def __str__(self) -> str:
        return f"{self.target} {self.op} {self.value}"


@dataclass(frozen=True, repr=False)
class Workload(Brief):
    """Tensors in their declared order (inputs, outputs and intermediates) and statements.

    `set_sizes`: those of `sizes` that were set to another number than the file has. `dtypes`: data
    types by name, and `set_dtypes` the types and tensors that were set to another one.
    """

    name: str
    sizes: tuple[tuple[str, int], ...]
    tensors: tuple[Tensor, ...]
    statements: tuple[Statement, ...]
    location: Location = field(compare=False)
    set_sizes: tuple[tuple[str, int], ...] = ()
    dtypes: tuple[tuple[str, str], ...] = ()
    set_dtypes: tuple[tuple[str, str], ...] = ()

    brief = workload_brief
    _repr_html_ = workload_html

    @cached_property
    def tensor(self) -> dict[str, Tensor]:
        return {t.name: t for t in self.tensors}

    @cached_property
    def inputs(self) -> tuple[Tensor, ...]:
        """What callers give."""
        return tuple(t for t in self.tensors if t.role == "input" and t.supplied is None)

    @cached_property
    def outputs(self) -> tuple[Tensor, ...]:
        return tuple(t for t in self.tensors if t.role == "output")
