"""What indices and the loops that count them tell of blocks, without asking isl.

Loops of steps that fill each other up make every number from the first on, and are decided by it.
What is not seen so may still be.
"""

from __future__ import annotations

from collections import Counter

from hwgen.polyhedral.tree.decided import ahead, common_index, decided, fills
from hwgen.polyhedral.tree.loop_tree import Stage
from hwgen.polyhedral.tree.relations import Side, shared
from hwgen.spec.affine import Affine, affine
from hwgen.spec.expression import Access, Binary, Const, Expr, Name, names

_NOTHING = Affine(())


def _free(writer: Side, home: set[str]) -> bool:
    """Whether in each iteration of loops `home` a block runs at all points of its stage that its
    other loops count up to."""
    inner = [n for f in writer.makes.values() if f for n in f.names if n not in home]
    if len(inner) > len({*inner}):
        return False
    others = Counter(n for c in writer.conditions for n in names(c))
    unused = {n for n, count in others.items() if count == 1} - {*home} - {*inner}
    return all(_in_range(writer, c) or _met(writer, c, unused) for c in writer.conditions)


def _in_range(writer: Side, condition: Expr) -> bool:
    """Whether a condition holds wherever an iterator is in its range: the iterator is that many
    times what is limited, or more."""
    match condition:
        case Binary("<", value, Const(int(limit))):
            mine = affine(value)
        case _:
            return False
    if mine is None or not mine.terms:
        return False
    name, step = mine.terms[0]
    for iterator, extent in writer.stage.iterators:
        made = writer.makes.get(iterator)
        if made is None:
            continue
        times, odd = divmod(made.coefficient(name), step)
        if odd or times < 1 or limit * times < extent:
            continue
        least, _ = made.plus(mine, -times).interval(writer.site.extents)
        if least >= 0:
            return True
    return False


def _met(writer: Side, condition: Expr, unused: set[str]) -> bool:
    """Whether a condition holds in one iteration of a loop that moves nothing."""
    match condition:
        case Binary("==", Name(name), Const(int(value))):
            return name in unused and 0 <= value < writer.site.extents[name]
        case _:
            return False


def makes_read(writer: Side, reader: Side, access: Access, depth: int) -> bool:
    """Whether each iteration of the outermost `depth` loops makes all of what it reads: from where
    its tile begins, every point that its other loops count up to."""
    stage, home = writer.stage, {*writer.site.names[:depth]}
    pairs = zip(stage.target.indices, reader.functions(access), strict=True)
    read = {index.name: function for index, function in pairs if isinstance(index, Name)}
    for iterator, extent in stage.iterators:
        wanted = read.get(iterator, _NOTHING)
        if iterator not in writer.makes and iterator not in read:
            continue  # An initialisation has nothing to do with what is added.
        made = writer.makes.get(iterator)
        if made is None or wanted is None:
            return False
        last = fills((c, writer.site.extents[n]) for n, c in made.terms if n not in home)
        first = Affine(tuple((n, c) for n, c in made.terms if n in home), made.constant)
        alike = {n for n, c in first.terms if wanted.coefficient(n) == c}
        low, high = ahead(first, wanted, alike, writer.site.extents, reader.site.extents)
        if iterator not in read:
            high += extent - 1
        if last is None or low < 0 or high > last:
            return False
    return _free(writer, home)


def makes_all(writer: Side) -> bool:
    """Whether a block runs at every point of its stage."""
    for iterator, extent in writer.stage.iterators:
        made = writer.makes.get(iterator)
        if made is None or made.constant:
            return False
        last = fills((c, writer.site.extents[n]) for n, c in made.terms)
        if last is None or last < extent - 1:
            return False
    return _free(writer, set())


def together(one: Side, access: Access, other: Side, of_other: Access, depth: int = 0) -> int:
    """How many of the outermost loops are in the same iteration at instances that touch one
    element, given that `depth` of them are."""
    around = one.site.names[: shared(one.site, other.site)]
    known = _alike(one, access, other, of_other, depth)
    return next((n for n, x in enumerate(around) if x not in known), len(around))


def _alike(one: Side, access: Access, other: Side, of_other: Access, depth: int) -> set[str]:
    around = one.site.names[: shared(one.site, other.site)]
    ends = one.site.extents, other.site.extents
    pairs = zip(one.functions(access), other.functions(of_other), strict=False)
    indices = [common_index(a, b, around, *ends) for a, b in pairs if a and b]
    return decided(indices, ends[0], around[:depth])


def first_is_first(side: Side, depth: int) -> bool:
    """Whether of a block's instances that touch one element, in one iteration of the outermost
    `depth` loops, the one at the beginning of its reduction runs first."""
    target = side.stage.target
    same = _alike(side, target, side, target, depth)
    begins: set[str] = set()
    for iterator, _ in side.stage.reduction:
        made = side.makes[iterator]
        if made is not None and not made.constant and all(c > 0 for _, c in made.terms):
            begins |= {*made.names}
    return same | begins >= {*side.site.names}


def never_read(stage: Stage, reader: Side, access: Access) -> bool:
    """Whether what an access reads is nothing that a stage makes."""
    extents = dict(stage.iterators)
    for index, read in zip(stage.target.indices, reader.functions(access), strict=True):
        made = affine(index)
        if made is not None and read is not None:
            low, high = ahead(made, read, (), extents, reader.site.extents)
            if low > 0 or high < 0:
                return True
    return False


def stays_inside(value: Expr, limit: int, side: Side) -> bool:
    """Whether an index is in `0 ..< limit` wherever a block runs, by one of its conditions: times
    as large as what that limits, or smaller."""
    index, extents = affine(value), side.site.extents
    if index is None or index.interval(extents)[0] < 0:
        return False
    for condition in side.conditions:
        match condition:
            case Binary("<", limited, Const(int(below))):
                mine = affine(limited)
            case _:
                continue
        if mine is None or not mine.terms:
            continue
        name, step = mine.terms[0]
        times, odd = divmod(index.coefficient(name), step)
        if odd or times < 1:
            continue
        _, most = index.plus(mine, -times).interval(extents)
        if most + times * (below - 1) < limit:
            return True
    return False
