"""The execution order of sites and synchronisation as an isl schedule tree, ready to be scanned.

Each site is a statement over its tile counters, and so is what synchronises: the loops left around
a call depend on nothing and are no part of the tree. A body is a sequence: waits, call and signals
of each site by position, and the next tile loop where the sites inside it belong.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hwgen.codegen.positions import INNER_LOOP
from hwgen.codegen.short_program import Box
from hwgen.codegen.sites import Site
from hwgen.codegen.synchronisation import SyncSite
from hwgen.polyhedral import isl


@dataclass(frozen=True, slots=True)
class Order:
    """`iterators`: names of the tree's dimensions; `names`: each statement's own iterators."""

    tree: isl.Schedule
    iterators: tuple[str, ...]
    names: dict[str, list[str]]


@dataclass(frozen=True, slots=True)
class _Item:
    """A statement of the tree. `phase`: 0 waits, 1 the call, 2 signals."""

    name: str
    site: Site
    turn: int
    iterators: tuple[str, ...]
    boxes: tuple[Box, ...]

    @property
    def head(self) -> str:
        return f"{self.name}[{', '.join(self.iterators)}]"

    @property
    def depth(self) -> int:
        """Tile loops around the place where it stands."""
        return len(self.site.at) if self.moved else self.site.depth

    @property
    def moved(self) -> bool:
        return bool(self.site.at) or self.site.edge != 0

    def place(self, depth: int) -> str:
        """The iteration of a loop in which it stands."""
        return self.site.at[depth] if self.moved else self.iterators[depth]

    @property
    def domain(self) -> str:
        parts: list[str] = []
        for box in self.boxes:
            bounds = [
                f"{low} <= {n} < {high}"
                + (f" and ({n} - {low}) mod {step} = 0" if step > 1 else "")
                for n, (low, high, step) in zip(self.iterators, box, strict=True)
            ]
            parts.append(f"({' and '.join(bounds)})")
        return f"{self.head} : {' or '.join(parts)}" if self.iterators else self.head


def order_tree(sites: Sequence[Site], syncs: Sequence[SyncSite], phase: int) -> Order:
    """The tree of one phase of a program."""
    mine = [site for site in sites if site.phase == phase]
    loops = max((site.loops for site in mine), key=len, default=())
    counters = tuple(f"{loop.loop}_tile" for loop in loops)
    items: list[_Item] = []
    for site in mine:
        box = tuple((low, high, 1) for low, high in site.ranges)
        items.append(_Item(f"C{site.index}", site, 1, counters[: site.depth], (box,)))
    for number, sync in enumerate(syncs):
        site = sites[sync.site]
        if site.phase == phase:
            turn = 0 if sync.before else 2
            items.append(_Item(f"T{number}", site, turn, counters[: site.depth], sync.boxes))
    domain = "; ".join(item.domain for item in items)
    text = f'{{domain: "{{ {domain} }}", child: {_body(items, counters, 0)}}}'
    names = {item.name: list(item.iterators) for item in items}
    return Order(isl.Schedule(text), counters, names)


def _body(items: list[_Item], counters: tuple[str, ...], depth: int) -> str:
    """The sequence inside the outermost `depth` tile loops."""
    inside = [item for item in items if item.depth > depth]
    entries = [
        ((item.site.edge, item.site.position, item.site.index, item.turn), [item])
        for item in items
        if item.depth == depth
    ]
    if inside:
        entries.append(((0, INNER_LOOP, 0, 0), inside))
    children: list[str] = []
    for _, group in sorted(entries, key=lambda entry: entry[0]):
        below = ""
        if group is inside:
            band = "; ".join(f"{item.head} -> [{item.place(depth)}]" for item in group)
            body = _body(group, counters, depth + 1)
            below = f', child: {{schedule: "[{{ {band} }}]", child: {body}}}'
        heads = "; ".join(item.head for item in group)
        children.append(f'{{filter: "{{ {heads} }}"{below}}}')
    return f"{{sequence: [{', '.join(children)}]}}"
