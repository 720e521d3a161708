"""Distinct entries of images that calls touch, in closed form or by marking them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

import numpy as np
import numpy.typing as npt

from hwgen.codegen.nodes import Call, CallOperand, If, Loop, Node, OfCode, Sync
from hwgen.spec.affine import affine
from hwgen.spec.expression import Binary, Expr, Name, names
from hwgen.spec.intervals import Interval

from .integers import evaluate_rows
from .periodicity import interval

POINTS = 1 << 18
"""Loop iterations that a union of accesses enumerates at most, and an eighth of their rows."""
ENTRIES = 1 << 26
"""Entries of the largest image whose accesses are marked one by one."""

Rows = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class NestedCall:
    """A call with the loops and conditions around it, outermost first."""

    call: Call
    loops: tuple[Loop, ...]
    conditions: tuple[tuple[Expr, bool], ...]


def nested_calls(
    nodes: tuple[Node, ...],
    loops: tuple[Loop, ...] = (),
    conditions: tuple[tuple[Expr, bool], ...] = (),
) -> Iterator[NestedCall]:
    """Every call site with what surrounds it."""
    for node in nodes:
        match node:
            case Call():
                yield NestedCall(node, loops, conditions)
            case Loop(_, _, _, body):
                yield from nested_calls(body, (*loops, node), conditions)
            case If(condition, then, otherwise):
                yield from nested_calls(then, loops, (*conditions, (condition, True)))
                yield from nested_calls(otherwise, loops, (*conditions, (condition, False)))
            case Sync() | OfCode():
                pass


@dataclass(frozen=True, slots=True)
class Access:
    """An operand of a call; `span`: entries that it touches at once, one after the other."""

    nested: NestedCall
    operand: CallOperand
    span: int = 1


def touched_entries(accesses: list[Access], entries: int) -> int:
    """Distinct entries of one image (of `entries`) that operands of calls touch.

    Exact where the iterations that matter are at most `POINTS`; else never too many.
    """
    covered = [_dense_entries(a) for a in accesses]
    largest = max((count for count, _ in covered), default=0)
    if largest >= entries or (len(covered) == 1 and covered[0][1]):
        return min(largest, entries)
    marks = np.zeros(entries + 1, np.int64) if entries <= ENTRIES else None
    for access in accesses:
        spans = _spans(access) if marks is not None else None
        if spans is None or marks is None:
            continue
        starts, ends = spans
        marks += np.bincount(starts.clip(0, entries), minlength=entries + 1)
        marks -= np.bincount(ends.clip(0, entries), minlength=entries + 1)
    marked = int(np.count_nonzero(np.cumsum(marks[:-1]) > 0)) if marks is not None else 0
    return max(marked, min(largest, entries))


def _spans(access: Access) -> tuple[Rows, Rows] | None:
    """Starts and ends of the dense runs of an access, or None where there are too many."""
    nested, call, operand = access.nested, access.nested.call, access.operand
    ranges: dict[str, Interval] = {}
    conditions = list(nested.conditions)
    for loop in nested.loops:
        low = interval(loop.lower, ranges)
        high = interval(loop.upper, ranges)
        ranges[loop.variable] = (low[0], max(low[0], high[1] - 1))
        if low[0] != low[1] or high[0] != high[1]:
            variable = Name(loop.variable)
            conditions.append((Binary(">=", variable, loop.lower), True))
            conditions.append((Binary("<", variable, loop.upper), True))
    relevant = {n for e in (operand.address, *operand.strides, *call.extents) for n in names(e)}
    deciding = {n for e, _ in conditions for n in names(e)} - relevant
    axes: dict[str, Rows] = {}
    for variable, (low, high) in ranges.items():
        if variable in relevant:
            axes[variable] = np.arange(low, high + 1, dtype=np.int64)
        elif variable in deciding:
            # What these only decide, their first and last values show; fewer runs are found else.
            some = {low, min(low + 1, high), min(low + 2, high), max(high - 1, low), high}
            axes[variable] = np.array(sorted(some), np.int64)
    rows_each = prod(interval(e, ranges)[1] for e in call.extents[:-1])
    if prod(a.size for a in axes.values()) * rows_each > 8 * POINTS:
        return None
    count = prod(a.size for a in axes.values())
    rows: dict[str, Rows] = {}
    inner = count
    for variable, axis in axes.items():
        inner //= axis.size
        rows[variable] = np.tile(np.repeat(axis, inner), count // (inner * axis.size))
    keep = np.ones(count, np.bool_)
    for condition, wanted in conditions:
        keep &= np.broadcast_to((evaluate_rows(condition, rows) != 0) == wanted, (count,))
    rows = {n: values[keep] for n, values in rows.items()}
    count = int(keep.sum())

    def column(expr: Expr) -> Rows:
        return np.broadcast_to(evaluate_rows(expr, rows), (count,))

    starts, width = column(operand.address), np.full(count, access.span, np.int64)
    for extent, stride in reversed(list(zip(call.extents, operand.strides, strict=True))):
        steps, trips = column(stride), column(extent)
        if count and np.all((steps == width) | (trips == 1)):
            width = width * trips
            continue
        if int(trips.sum()) > 8 * POINTS:
            return None
        parent = np.repeat(np.arange(starts.size), trips)
        first = np.cumsum(trips) - trips
        turn = np.arange(parent.size, dtype=np.int64) - first[parent]
        starts, width = starts[parent] + turn * steps[parent], width[parent]
        rows = {n: values[parent] for n, values in rows.items()}
        count = starts.size
    return starts, starts + width


def _dense_entries(access: Access) -> tuple[int, bool]:
    """Entries that the access is sure to cover, from its strides alone, and whether that is all.

    Dimensions are taken from the smallest stride up: one that continues a single dense run makes
    it longer, one that steps over everything so far multiplies, any other is left out.
    """
    if access.nested.conditions:
        return 0, False
    whole = _strided_entries(access, 0)
    return whole if whole[1] else max(whole, _strided_entries(access, 1))


def _strided_entries(access: Access, short: int) -> tuple[int, bool]:
    """The same without the last `short` iterations of each loop, where tails may be smaller."""
    nested, call, operand = access.nested, access.nested.call, access.operand
    linear = affine(operand.address)
    if linear is None:
        return 0, False
    exact = not short
    ranges: dict[str, Interval] = {}
    dims: list[tuple[int, int]] = []
    for loop in nested.loops:
        low, high = interval(loop.lower, ranges), interval(loop.upper, ranges)
        if high[0] <= low[1]:
            return 0, False
        exact = exact and low[0] == low[1] and high[0] == high[1]
        ranges[loop.variable] = (low[0], max(low[0], high[1] - 1 - short))
        dims.append((abs(linear.coefficient(loop.variable)), max(1, high[0] - low[1] - short)))
    for extent, stride in zip(call.extents, operand.strides, strict=True):
        trips, step = interval(extent, ranges), interval(stride, ranges)
        exact = exact and trips[0] == trips[1] and step[0] == step[1]
        dims.append((step[0] if step[0] == step[1] else 0, trips[0]))
    run, count, span = access.span, 1, access.span
    for stride, trips in sorted(d for d in dims if d[0] and d[1] > 1):
        if count == 1 and stride <= run:
            run += stride * (trips - 1)
            span = run
        elif stride >= span:
            count *= trips
            span += stride * (trips - 1)
        else:
            exact = False
    return run * count, exact
