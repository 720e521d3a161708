"""The isl boundary: the only module that imports islpy.

isl objects are built from text with named dimensions and are never compared with `==`, hashed or
used as dictionary keys; canonical text is printed from them instead.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import islpy
from islpy import (
    AstBuild,
    AstExpr,
    AstNode,
    Map,
    Schedule,
    Set,
    UnionMap,
    UnionSet,
    ast_expr_type,
    dim_type,
)

from hwgen.errors import HwgenError

__all__ = [
    "AstBuild",
    "AstExpr",
    "AstNode",
    "Map",
    "Pair",
    "Point",
    "Schedule",
    "Set",
    "UnionMap",
    "UnionSet",
    "ast_expr_type",
    "bounded",
    "box",
    "conflicts",
    "dim_type",
    "identifier_list",
    "in_order",
    "node_kind",
    "operation",
    "relation",
    "some_pair",
    "some_point",
    "union_map",
    "union_set",
]


def box(name: str, loops: Sequence[tuple[str, int]], condition: str = "") -> str:
    """isl text of `name[loops]` with each loop in `0 ..< extent`, and a further condition."""
    variables = ", ".join(n for n, _ in loops)
    constraints = [f"0 <= {n} < {extent}" for n, extent in loops]
    if condition:
        constraints.append(condition)
    where = f" : {' and '.join(constraints)}" if constraints else ""
    return f"{name}[{variables}]{where}"


def relation(source: str, variables: Sequence[str], target: str, indices: Iterable[object]) -> str:
    """isl text of `source[variables] -> target[indices]`."""
    return f"{source}[{', '.join(variables)}] -> {target}[{', '.join(map(str, indices))}]"


def union_set(parts: Iterable[str]) -> UnionSet:
    """The union of sets given as isl text without braces."""
    return UnionSet("{ " + "; ".join(parts) + " }")


def union_map(parts: Iterable[str]) -> UnionMap:
    """The union of maps given as isl text without braces."""
    return UnionMap("{ " + "; ".join(parts) + " }")


def conflicts(reads: UnionMap, writes: UnionMap, schedule: UnionMap) -> UnionMap:
    """All ordered pairs of instances that touch one element, at least one of them writing it."""
    everything = reads.union(writes)
    pairs = writes.apply_range(everything.reverse()).union(reads.apply_range(writes.reverse()))
    return pairs.intersect(in_order(schedule))


def in_order(schedule: UnionMap) -> UnionMap:
    """Pairs of instances of which the first runs before the second."""
    return schedule.lex_lt_union_map(schedule)


def identifier_list(names: Sequence[str]) -> islpy.IdList:
    """Names as an isl list of identifiers."""
    context = islpy.DEFAULT_CONTEXT
    result = islpy.IdList.alloc(context, len(names))
    for name in names:
        result = result.add(islpy.Id.read_from_str(context, name))
    return result


MAX_OPERATIONS = 20_000_000
"""isl's own count of steps that one compilation may take; ordinary ones stay below a million."""

QUESTION_OPERATIONS = 500_000
"""The same of one question about a schedule; ordinary ones stay below ten thousand."""

# Nothing is ever without a bound: outside of all blocks of `bounded` this one holds.
islpy.DEFAULT_CONTEXT.set_max_operations(MAX_OPERATIONS)


def _exhausted() -> bool:
    """Whether isl takes no step more; what it then says depends on where it stopped."""
    try:
        Set("{ [i] : 0 <= i < 10 }").subtract(Set("{ [i] : i > 7 }"))
    except islpy.Error:
        return True
    return False


@contextmanager
def bounded(operations: int = MAX_OPERATIONS) -> Generator[None, None, None]:
    """Give up on polyhedral computations that take more than `operations` steps.

    Within another such block the count starts anew, and after it that of the other block does.

    Raises:
        HwgenError: H407.
    """
    context = islpy.DEFAULT_CONTEXT
    around = context.get_max_operations()
    context.reset_operations()
    context.set_max_operations(operations)
    try:
        yield
    except islpy.Error as error:
        if not _exhausted():
            raise
        raise HwgenError(
            "H407",
            "a polyhedral computation was given up",
            found=f"more than {operations:,} steps",
            allowed=f"{operations:,} steps for one "
            + ("question" if operations == QUESTION_OPERATIONS else "kernel"),
            repair="split the workload, or write its accesses with fewer loops",
        ) from error
    finally:
        context.reset_operations()
        context.set_max_operations(around)


def node_kind(node: AstNode) -> str:
    """`for`, `if`, `block`, `user` or `mark`."""
    kind: Any = node.get_type()
    return str(kind.name).rstrip("_")


def operation(expr: AstExpr) -> str:
    """isl's name of the operation of an AST expression."""
    kind: Any = expr.get_op_type()
    return str(kind.name)


Point = tuple[str, tuple[int, ...]]
"""Name and coordinates of a point."""

Pair = tuple[Point, Point]


@lru_cache(maxsize=1 << 14)
def some_point(points: str, without: str = "") -> Point | None:
    """A point of a set given as text, that is not in another; None where there is none.

    Remembered by text: schedules that differ little ask much the same. Each question has a bound
    of its own, so that what was asked before decides nothing.

    Raises:
        HwgenError: H407.
    """
    with bounded(QUESTION_OPERATIONS):
        found = Set(points)
        if without:
            found = found.subtract(Set(without))
        return None if found.is_empty() else _sample(found)


@lru_cache(maxsize=1 << 14)
def some_pair(relation: str, without: str = "") -> Pair | None:
    """A pair of a relation given as text, that is not in another; None where there is none.

    Raises:
        HwgenError: H407, as `some_point`.
    """
    with bounded(QUESTION_OPERATIONS):
        found = Map(relation)
        if without:
            found = found.subtract(Map(without))
        if found.is_empty():
            return None
        first = found.get_tuple_name(dim_type.in_) or ""
        second = found.get_tuple_name(dim_type.out) or ""
        inputs = found.dim(dim_type.in_)
        _, values = _sample(found.wrap())
    return (first, values[:inputs]), (second, values[inputs:])


def _sample(points: Set) -> Point:
    point: Any = points.sample_point()
    rank = points.dim(dim_type.set)
    values = tuple(point.get_coordinate_val(dim_type.set, i).to_python() for i in range(rank))
    return points.get_tuple_name() or "", values
