"""What elements of an update begin with, where iterations share them or leave some out.

`y[2*i + r] += x[i] * w[r]` adds to some elements in several iterations, `z[2*i] += x[i]` to every
other one. As all elements begin with the neutral one, a statement before the update sets them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from math import gcd

from hwgen.spec.affine import Affine, affine
from hwgen.spec.expression import Access, Expr, Name, walk
from hwgen.spec.expression import names as names_of
from hwgen.spec.typecheck import neutral
from hwgen.spec.workload import Statement, Tensor


def with_beginnings(
    statements: Sequence[Statement], tensors: Sequence[Tensor], taken: Collection[str]
) -> tuple[Statement, ...]:
    """The statements; before an update that shares elements, or leaves out some that matter, one
    that sets the whole tensor. No loop of it has a name that is `taken`."""
    of = {t.name: t for t in tensors}
    found: list[Statement] = []
    for number, statement in enumerate(statements):
        tensor = of[statement.target.tensor]
        if statement.op == "=" or not _needed(statement, tensor, statements[number + 1 :]):
            found.append(statement)
            continue
        numbers = range(len(taken) + len(tensor.shape))
        names = (n for n in map("d{}".format, numbers) if n not in taken)
        loops = tuple(zip(names, tensor.shape, strict=False))
        target = Access(tensor.name, tuple(Name(n) for n, _ in loops))
        value, name = neutral(statement.op, tensor.dtype), f"{statement.name}_begin"
        found.append(Statement(name, loops, target, "=", value, statement.location))
        found.append(replace(statement, continues=True))
    return tuple(found)


def _needed(statement: Statement, tensor: Tensor, later: Sequence[Statement]) -> bool:
    indices = statement.target.indices
    if undetermined(indices, statement.loops):
        return True
    used = [n for i in indices for n in {*names_of(i)}]
    made = [_values(i, statement) for i in indices]
    apart = len({*used}) == len(used) and all(m.filled for m in made)
    if apart and all(_whole(m, e) for m, e in zip(made, tensor.shape, strict=True)):
        return False
    reads = [
        [_values(i, s) for i in n.indices]
        for s in later
        for n in walk(s.value)
        if isinstance(n, Access) and n.tensor == tensor.name
    ]
    read = any(not r.within(m) for indices in reads for r, m in zip(indices, made, strict=True))
    return tensor.role == "output" or read or bool(reads and not apart)


def undetermined(indices: Sequence[Expr], loops: Sequence[tuple[str, int]]) -> set[str]:
    """The loops in indices whose iterations the values of these do not tell.

    Dimension by dimension, loops whose steps exceed the reach of all smaller ones are determined
    by the index; then they count as known in the other dimensions.
    """
    extents = {n: e for n, e in loops if e > 1}
    forms = [form for i in indices if (form := affine(i)) is not None]
    left = {n for form in forms for n in form.names if n in extents}
    progress = True
    while left and progress:
        progress = False
        for form in forms:
            terms = sorted((abs(c), n) for n, c in form.terms if n in left)
            reach = 0
            for step, name in terms:
                if step <= reach:
                    break
                reach += step * (extents[name] - 1)
            else:
                left -= {n for _, n in terms}
                progress = progress or bool(terms)
    return left


@dataclass(frozen=True, slots=True)
class _Values:
    """Numbers that an index takes: none but every `step`-th one between two, and where they are
    `filled` all of these."""

    low: int
    high: int
    step: int
    filled: bool

    def within(self, other: _Values) -> bool:
        """Whether another index, which is filled, takes all of them."""
        inside = other.low <= self.low and self.high <= other.high
        steps = self.step, self.low - other.low
        return inside and all(s % other.step == 0 if other.step else s == 0 for s in steps)


def _values(index: Expr, statement: Statement) -> _Values:
    form = affine(index)
    assert form is not None, f"{index} is not affine"
    return values_of(form, dict(statement.loops))


def values_of(form: Affine, extents: Mapping[str, int]) -> _Values:
    """The values of an index over loops."""
    moving = sorted((abs(c), extents[n] - 1) for n, c in form.terms if extents[n] > 1)
    step, reach, filled = gcd(*(c for c, _ in moving)), 0, True
    for c, count in moving:
        filled = filled and c <= reach + step
        reach += c * count
    low = form.interval(extents)[0]
    return _Values(low, low + reach, step, filled)


def covers(form: Affine, extents: Mapping[str, int], extent: int) -> bool:
    """Whether an index takes every value of `0..extent - 1`."""
    return _whole(values_of(form, extents), extent)


def _whole(values: _Values, extent: int) -> bool:
    steps = values.step == 1 or extent == 1
    return values.filled and steps and values.low <= 0 and values.high >= extent - 1
