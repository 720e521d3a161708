"""The isl boundary: the only module that imports islpy.

isl objects are built from text with named dimensions and are never compared with `==`, hashed or
used as dictionary keys; canonical text is printed from them instead.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import islpy
from islpy import (
    Map,
    Set,
    UnionMap,
    UnionSet,
    dim_type,
)

from hwgen.errors import HwgenError
from hwgen.spec.workload_resolve import POLYHEDRAL_WORDS

__all__ = [
    "Map",
    "Pair",
    "Point",
    "Set",
    "UnionMap",
    "UnionSet",
    "bounded",
    "box",
    "conflicts",
    "dim_type",
    "forget",
    "in_order",
    "no_pair",
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


Point = tuple[str, tuple[int, ...]]
"""Name and coordinates of a point."""

Pair = tuple[Point, Point]


REMEMBERED = 1 << 14
"""Questions of a kind whose answers are kept, by their text."""


@lru_cache(REMEMBERED)
def some_point(points: str, without: str = "") -> Point | None:
    """A point of a set given as text, that is not in another; None where there is none.

    Remembered by text, and by text with other names for the same: schedules that differ little ask
    much the same. Each question has a bound of its own, so that what was asked before decides
    nothing.

    Raises:
        HwgenError: H407.
    """
    names, (plain, other) = _plain(points, without)
    found = _some_point(plain, other)
    return None if found is None else _named(found, names)


@lru_cache(REMEMBERED)
def some_pair(relation: str, without: str = "") -> Pair | None:
    """A pair of a relation given as text, that is not in another; None where there is none.

    Raises:
        HwgenError: H407, as `some_point`.
    """
    names, (plain, other) = _plain(relation, without)
    found = _some_pair(plain, other)
    return None if found is None else (_named(found[0], names), _named(found[1], names))


@lru_cache(REMEMBERED)
def no_pair(relation: str) -> bool:
    """Whether a relation given as text has none: for those who do not ask which.

    Raises:
        HwgenError: H407, as `some_point`.
    """
    _, (plain,) = _plain(relation)
    return _no_pair(plain)


def forget() -> None:
    """Forget all answers."""
    for known in (some_point, some_pair, no_pair, _some_point, _some_pair, _no_pair):
        known.cache_clear()


_WORD = re.compile(r"[A-Za-z_]\w*'*")


def _plain(*texts: str) -> tuple[dict[str, str], list[str]]:
    """The texts with names in the order in which they occur, and the names that these stand for."""
    names: dict[str, str] = {}

    def named(found: re.Match[str]) -> str:
        word = found[0]
        if word.lower() in POLYHEDRAL_WORDS:
            return word
        return names.setdefault(word, f"n{len(names)}")

    plain = [_WORD.sub(named, text) for text in texts]
    return {short: name for name, short in names.items()}, plain


def _named(point: Point, names: Mapping[str, str]) -> Point:
    tuple_name, values = point
    return names.get(tuple_name, tuple_name), values


@lru_cache(REMEMBERED)
def _some_point(points: str, without: str) -> Point | None:
    with bounded(QUESTION_OPERATIONS):
        found = _found(Set, points, without)
        return None if found is None else _sample(found)


@lru_cache(REMEMBERED)
def _some_pair(relation: str, without: str) -> Pair | None:
    with bounded(QUESTION_OPERATIONS):
        found = _found(Map, relation, without)
        if found is None:
            return None
        first = found.get_tuple_name(dim_type.in_) or ""
        second = found.get_tuple_name(dim_type.out) or ""
        inputs = found.dim(dim_type.in_)
        _, values = _sample(found.wrap())
    return (first, values[:inputs]), (second, values[inputs:])


@lru_cache(REMEMBERED)
def _no_pair(relation: str) -> bool:
    with bounded(QUESTION_OPERATIONS):
        return bool(_read(Map, relation).is_empty())


def _found(kind: type[Any], text: str, without: str) -> Any:
    """What is in one set or map and not in another; None where nothing is. As isl reads it: its
    first point is where a reader looks first."""
    other = kind(without) if without else None
    found = _read(kind, text)
    if (found if other is None else found.subtract(other)).is_empty():
        return None
    found = kind(text)
    return found if other is None else found.subtract(other)


_CUT = re.compile(r"[()]| and | or |;")
_RANGE = re.compile(r"0 <= ([A-Za-z_]\w*'*) < (\d+)")


def _read(kind: type[Any], text: str) -> Any:
    """The set or map of a text `{ TUPLES : CONDITIONS }`. Of its conditions, isl reads all but the
    ranges of dimensions from zero: these are most of them, and to set bounds takes a tenth of what
    it takes to read them."""
    tuples, _, conditions = text.removeprefix("{ ").removesuffix(" }").partition(" : ")
    extents: dict[str, int] = {}
    others: list[str] = []
    for condition in _conjuncts(conditions):
        found = _RANGE.fullmatch(condition)
        if found is None:
            others.append(condition)
        else:
            extents[found[1]] = min(int(found[2]), extents.get(found[1], int(found[2])))
    sides = [side.split(", ") for side in re.findall(r"\[(.*?)\]", tuples)]
    known = tuples.count("[") == (1 if kind is Set else 2)
    if not known or not extents.keys() <= {name for side in sides for name in side}:
        return kind(text)
    rest: Any = kind(f"{{ {tuples} : {' and '.join(others) or '0 = 0'} }}")
    space = rest.get_space()
    if kind is Set:
        return rest.intersect(_box(space, sides[0], extents))
    spaces = space.domain(), space.range()
    boxes = (_box(s, side, extents) for s, side in zip(spaces, sides, strict=True))
    box: Any = Map.from_domain_and_range(*boxes)
    return rest.intersect(box)


def _conjuncts(conditions: str) -> list[str]:
    """Conditions that `and` joins; all as one where something else does, too."""
    found: list[str] = []
    depth = start = 0
    for cut in _CUT.finditer(conditions):
        match cut[0]:
            case "(":
                depth += 1
            case ")":
                depth -= 1
            case " or " | ";" if not depth:
                return [conditions]
            case " and " if not depth:
                found.append(conditions[start : cut.start()])
                start = cut.end()
            case _:
                pass
    return [*found, conditions[start:]]


def _box(space: islpy.Space, names: Sequence[str], extents: Mapping[str, int]) -> Set:
    """Points whose dimensions are in their ranges."""
    box = Set.universe(space)
    zero = islpy.Val.zero(islpy.DEFAULT_CONTEXT)
    for position, name in enumerate(names):
        if name in extents:
            last = islpy.Val.int_from_si(islpy.DEFAULT_CONTEXT, extents[name] - 1)
            box = box.lower_bound_val(dim_type.set, position, zero)
            box = box.upper_bound_val(dim_type.set, position, last)
    return box


def _sample(points: Set) -> Point:
    point: Any = points.sample_point()
    rank = points.dim(dim_type.set)
    values = tuple(point.get_coordinate_val(dim_type.set, i).to_python() for i in range(rank))
    return points.get_tuple_name() or "", values
