"""What a user may write in a workload's file. `workload_resolve.py` gives it meaning."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Discriminator, Field, Tag

from hwgen.spec.fields import IntExpr, Model, Name, kind_of


class TensorSchema(Model):
    """A row-major array."""

    type: str
    """Data type and shape, as `int8[M, K]`. `int8[]` is a single number."""
    constant: bool = False
    """An input that stays the same between calls (weights)."""
    range: str | None = None
    """Of an integer input, the least and the greatest value, as `0..31`, which callers keep to.
    Left out: every value of the type."""


class StatementSchema(Model):
    """A statement with explicit loops."""

    do: str
    """The statement, as `c[m, n] += a[m, k] * b[n, k]`."""
    loops: dict[Name, IntExpr] | None = None
    """Loops and their extents, outermost first. Left out: derived from the statement."""


def _text_or_fields(value: object) -> str | None:
    return None if isinstance(value, int) else kind_of(value)


Tensor = Annotated[
    Annotated[str, Tag("<short>")] | Annotated[TensorSchema, Tag("<fields>")],
    Discriminator(_text_or_fields),
]
Statement = Annotated[
    Annotated[str, Tag("<short>")] | Annotated[StatementSchema, Tag("<fields>")],
    Discriminator(_text_or_fields),
]


class WorkloadSchema(Model):
    """A computation over tensors, without any chip in it."""

    hwgen: Literal[1] = 1
    """Version of this format."""
    name: Name
    """Name of the workload and of the C function."""
    description: str = ""
    """What it computes."""
    sizes: dict[Name, IntExpr] = Field(default={})
    """Numbers for tensors and statements. An expression may use the sizes above it."""
    dtypes: dict[Name, Name] = Field(default={})
    """Names of data types, as `T: int8`, or of an entry above. Tensors (`T[M, K]`) and casts
    (`T(x)`) use them, and `--dtype T=float16` sets another."""
    tensors: dict[Name, Tensor]
    """Arrays, as `int8[M, K]`. Those never written are inputs, in this order."""
    compute: Annotated[list[Statement], Field(min_length=1, max_length=256)]
    """Statements, in order."""
