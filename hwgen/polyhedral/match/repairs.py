"""Edits that make a block calls of an intrinsic, for errors to name."""

from __future__ import annotations

from collections.abc import Sequence

from hwgen.polyhedral.tree.loop_tree import LoopTree, Site
from hwgen.polyhedral.tree.tensorize import to_lanes
from hwgen.spec.expression import Access, names
from hwgen.spec.hardware import Intrinsic


def lane_loops(
    site: Site, intrinsic: Intrinsic, operands: Sequence[Access]
) -> list[tuple[str, str]]:
    """The loop that could be each iterator of a call that has several lanes, in order: the
    innermost of those that move the same operands."""
    pairs = list(zip(intrinsic.operands, operands, strict=True))
    order = [n for n in site.names if site.extents[n] > 1]
    moving: dict[frozenset[str], list[str]] = {}
    last = pairs[[o.name for o, _ in pairs].index(intrinsic.written.name)][1]
    indices = [*last.indices, *(i for _, a in pairs for i in a.indices)]
    for iterator in dict.fromkeys(n for i in indices for n in names(i)):
        bound = site.block.binding.get(iterator)
        loops = [n for n in order if bound is not None and n in names(bound)]
        users = (o.name for o, a in pairs if any(iterator in names(i) for i in a.indices))
        if loops:
            moving.setdefault(frozenset(users), []).append(loops[-1])
    result: list[tuple[str, str]] = []
    for name, extent in reversed(intrinsic.iterators):
        users = frozenset(o.name for o, _ in pairs if name in o.indices)
        found = moving.get(users, [])
        if found and extent > 1:
            result.insert(0, (name, found.pop()))
    return result


def recipe(
    state: LoopTree, site: Site, intrinsic: Intrinsic, operands: Sequence[Access]
) -> tuple[str, bool]:
    """The edits that make a block calls of an intrinsic, and whether they change loops."""
    lanes = lane_loops(site, intrinsic, operands)
    if not lanes:
        return f"tensorize({site.block.name!r}, {intrinsic.name!r})", False
    edits, inner = list[str](), list[str]()
    order, extents = [*site.names], dict(intrinsic.iterators)
    for iterator, loop in lanes:
        edit, made = to_lanes(state, loop, site.extents[loop], extents[iterator])
        edits += [edit] if edit else []
        inner.append(made[-1])
        order[order.index(loop) : order.index(loop) + 1] = made
    at = min(map(order.index, inner))
    now = order[at:]
    wanted = [*(n for n in now if n not in inner), *inner]
    while now and now[-1] == wanted[-1]:
        now, wanted = now[:-1], wanted[:-1]
    if now:
        edits.append(f"reorder({', '.join(map(repr, wanted))})")
    called = f"tensorize({inner[0]!r}, {intrinsic.name!r})"
    return (f"{', '.join(edits)}, then {called}" if edits else called), bool(edits)
