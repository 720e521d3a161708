"""Images of constants in the order in which loops take them, so that what they take lies together.

The host packs constants once, for one kernel: nobody else reads such an image. A dimension that
several loops walk is cut where each of them steps, and the parts follow each other as the loops do.
A panel that inner loops read again and again is then one run of memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from math import prod

from hwgen.codegen.layout import dense
from hwgen.codegen.lower.place import Place
from hwgen.codegen.storages import Image
from hwgen.polyhedral.tree.loop_tree import Site
from hwgen.polyhedral.tree.terms import apply, simplify
from hwgen.spec.affine import affine
from hwgen.spec.expression import Access, Binary, Const, Expr, Name, add, multiply, substitute

Part = tuple[int, int, int]
"""Of a dimension's blocks: the dimension, the step between two, and how many."""


def in_walk_order(
    place: Place, users: Sequence[tuple[Site, Access]], extents: dict[str, int]
) -> Place:
    """The place of an image, laid out as the block that takes most of it walks it; as it is where
    its loops do not part the dimensions, or another block's steps cross the parts."""
    image = place.image
    assert image is not None
    site, access = max(users, key=lambda u: prod(x.extent for x in u[0].loops))
    parts = _parts(place, site, access, extents)
    order = [d for d, _, _ in parts or ()]
    if parts is None or all(a < b for a, b in pairwise(order)):
        return place
    counts = tuple(n for _, _, n in parts)
    dimensions = tuple(_part(d, step, n, place.counts[d]) for d, step, n in parts)
    made = replace(
        place,
        counts=counts,
        strides=dense(counts),
        dimensions=dimensions,
        image=_rearranged(image, parts),
    )
    whole = (
        affine(made.block([apply(i, s.block.binding, extents) for i in a.indices], extents))
        for s, a in users
    )
    return made if all(f is not None for f in whole) else place


def _parts(place: Place, site: Site, access: Access, extents: dict[str, int]) -> list[Part] | None:
    """The parts of all dimensions, in the order of the loops that walk them; those that no loop
    walks first. None where a loop walks two of them, or steps do not fit into each other."""
    at = {name: n for n, name in enumerate(site.names)}
    indices = [apply(i, site.block.binding, extents) for i in access.indices]
    placed: list[tuple[int, Part]] = []
    walked: set[str] = set()
    for d, (index, size) in enumerate(zip(indices, place.sizes, strict=True)):
        function = affine(index)
        if function is None or walked & {*function.names}:
            return None
        walked |= {*function.names}
        # What is less than a block moves lanes, not blocks.
        steps = sorted(((c // size, n) for n, c in function.terms if c >= size), reverse=True)
        if any(c < 0 or (c >= size and c % size) for _, c in function.terms):
            return None
        if not steps:
            placed.append((-1, (d, 1, place.counts[d])))
            continue
        if steps[-1][0] != 1 or any(a % b for (a, _), (b, _) in pairwise(steps)):
            return None
        above = -(-place.counts[d] // steps[0][0]) * steps[0][0]
        for step, name in steps:
            placed.append((at[name], (d, step, above // step)))
            above = step
    return [part for _, part in sorted(placed) if part[2] > 1]


def _part(dimension: int, step: int, count: int, blocks: int) -> Expr:
    """The number of a block's part along a dimension of so many blocks."""
    number: Expr = Name(f"d{dimension}")
    number = Binary("//", number, Const(step)) if step > 1 else number
    return number if step * count >= blocks else Binary("%", number, Const(count))


def _rearranged(image: Image, parts: Sequence[Part]) -> Image:
    """The image with its outer dimensions in parts."""
    table: dict[str, Expr] = {f"p{d}": Const(0) for d in range(len(image.outer))}
    for position, (d, step, _) in enumerate(parts):
        term = multiply(Name(f"p{position}"), Const(step))
        table[f"p{d}"] = add(table[f"p{d}"], term)
    ahead = len(parts) - len(image.outer)
    for n in range(len(image.lanes)):
        table[f"p{len(image.outer) + n}"] = Name(f"p{len(image.outer) + n + ahead}")
    outer = tuple(n for _, _, n in parts)
    extents = {f"p{n}": e for n, e in enumerate((*outer, *image.lanes))}
    index = tuple(simplify(substitute(e, table), extents) for e in image.index)
    return replace(image, outer=outer, index=index, in_place=False)
