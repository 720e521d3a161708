"""What a script says that leaves the rest to the search: tile sizes, orders, memories, slots."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from hwgen.polyhedral.match.matching import Match
from hwgen.polyhedral.schedule.schedule import Schedule
from hwgen.polyhedral.schedule.script import Edit
from hwgen.polyhedral.scop import Scop
from hwgen.polyhedral.search.tiling import Tiling
from hwgen.polyhedral.tree.build import stage_of
from hwgen.polyhedral.tree.edit import main_site
from hwgen.polyhedral.tree.loop_tree import Site
from hwgen.polyhedral.tree.terms import addends
from hwgen.spec.expression import Expr, Name

UNDERSTOOD = ("split", "tile", "reorder", "set_scope", "double_buffer", "cache_read")
"""Primitives of which `Said` knows what they say, wherever they stand."""


def known_tiles(schedule: Schedule, scop: Scop, match: Match) -> dict[str, int]:
    """Tile sizes by loop, in blocks, of the loops over tiles that the beginning of a script has."""
    tiles: dict[str, int] = {}
    for loop, site, binding in _walked(schedule, scop, match):
        steps = _steps(site, binding)
        lanes = match.block.get(loop, 1)
        # Tiles, blocks and lanes; lanes only where there are several.
        if len(steps) >= (3 if lanes > 1 else 2):
            tiles[loop] = max(1, steps[0][0] // lanes)
    return tiles


def _walked(schedule: Schedule, scop: Scop, match: Match) -> Iterator[tuple[str, Site, Expr]]:
    """Every loop of the match with the site that gets its tile loop, and its binding there: the
    spatial ones around the stage that stores, the reduction's around the sum."""
    state, first = schedule.state, _first(schedule)
    statements = scop.workload.statements
    last, anchor = scop.statements[-1], scop.anchor
    root = state.site[first[statements.index(last.source)]]
    stage = state.stage[root.block.stage]
    if stage.kind == "copy":
        walked = [i.names for i in last.target.indices]
    else:
        walked = [(name,) for name, _ in last.loops]
    # A sum that is an output itself is stored over the loops that its elements have.
    iterators = stage.iterators if len(stage.iterators) == len(walked) else stage.spatial
    bindings = [root.block.binding[iterator] for iterator, _ in iterators]
    for names, binding in zip(walked, bindings, strict=True):
        yield from ((n, root, binding) for n in names if n in match.selection.spatial)
    if not anchor.accumulates:
        return
    summed = first[statements.index(anchor.source)]
    while state.stage[summed].kind == "copy":
        summed = state.stage[summed].reads[0].tensor
    site = main_site(state, summed)
    iterators = state.stage[site.block.stage].iterators
    for (name, _), (iterator, _) in zip(anchor.loops, iterators, strict=True):
        if name in match.selection.reduction:
            yield name, site, site.block.binding[iterator]


@dataclass(frozen=True)
class Said:
    """What edits say in any order. `tiles`: of loops, in elements; `orders`: of the outermost loops
    over tiles, outermost first; `memories` and `slots` of tensors; `caches`: tensor and memory."""

    tiles: Mapping[str, int]
    orders: Sequence[tuple[str, ...]]
    memories: Mapping[str, str] = field(default_factory=dict[str, str])
    slots: Mapping[str, int] = field(default_factory=dict[str, int])
    caches: Sequence[tuple[str, str]] = ()

    @classmethod
    def of(cls, schedule: Schedule, scop: Scop) -> Said | None:
        """What a schedule says; None where some edit says more, or two disagree."""
        edits = schedule.edits()
        if any(e.primitive not in UNDERSTOOD for e in edits):
            return None
        state, first = schedule.state, _first(schedule)
        tiles: dict[str, int] = {}
        orders: list[tuple[str, ...]] = []
        for statement in scop.statements:
            tensor = first[scop.workload.statements.index(statement.source)]
            site, stage = main_site(state, tensor), state.stage[tensor]
            if len(stage.iterators) != len(statement.loops):
                continue
            outer: dict[str, str] = {}
            for (loop, _), (iterator, _) in zip(statement.loops, stage.iterators, strict=True):
                steps = _steps(site, site.block.binding[iterator])
                if len(steps) > 1:
                    outer[steps[0][1]] = loop
                    if tiles.setdefault(loop, steps[0][0]) != steps[0][0]:
                        return None
            if any(_reorders(e, outer) for e in edits):
                orders.append(tuple(outer[n] for n in site.names if n in outer))
        named = [(e.primitive, str(e.arguments[0]), e.arguments[-1]) for e in edits]
        return cls(
            tiles,
            orders,
            {t: str(m) for p, t, m in named if p == "set_scope"},
            {t: n for p, t, n in named if p == "double_buffer" and isinstance(n, int)},
            [(t, str(m)) for p, t, m in named if p == "cache_read"],
        )

    def blocks(self, match: Match) -> dict[str, int] | None:
        """The tile sizes in blocks of a match's lanes; None where they part blocks."""
        found: dict[str, int] = {}
        for loop, elements in self.tiles.items():
            found[loop], rest = divmod(elements, match.block.get(loop, 1))
            if rest:
                return None
        return found

    def agrees(self, tiling: Tiling, made: Schedule) -> bool:
        """Whether a tiling, and the schedule that primitives make of it, are so."""
        loops = [x.loop for x in tiling.loops]
        state, storage = made.state, made.state.storage
        copies = [s for s in state.stages if s.kind == "copy"]
        cached = {(s.reads[0].tensor, storage[s.tensor].memory) for s in copies}
        memories = {t: storage[t].memory for t in self.memories if t in storage}
        slots = {t: storage[t].slots for t in self.slots if t in storage}
        return (
            all(_in_order(loops, order) for order in self.orders)
            and cached.issuperset(self.caches)
            and (memories, slots) == (self.memories, self.slots)
        )


def _first(schedule: Schedule) -> tuple[str, ...]:
    """The stage, before any edit, of each statement."""
    return stage_of(schedule.workload, Schedule(schedule.workload, schedule.hardware).state)


def _steps(site: Site, binding: Expr) -> list[tuple[int, str]]:
    """The loops in an iterator's binding by falling step: of tiles, then of what is inside."""
    found = [(c, t.name) for c, t in addends(binding) if isinstance(t, Name)]
    return sorted(found, key=lambda x: (-x[0], site.names.index(x[1])))


def _reorders(edit: Edit, loops: Mapping[str, str]) -> bool:
    """Whether an edit says how some of these loops are ordered."""
    named = edit.results if edit.primitive == "tile" else edit.arguments
    return edit.primitive in ("tile", "reorder") and len(loops.keys() & {*map(str, named)}) > 1


def _in_order(loops: Sequence[str], order: Sequence[str]) -> bool:
    places = [loops.index(n) for n in order if n in loops]
    return places == sorted(places)
