"""What a script says that leaves the rest to the search: tile sizes, orders, memories, slots, where
stages are computed, and calls."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from hwgen.polyhedral.match.matching import Match
from hwgen.polyhedral.schedule.schedule import Schedule
from hwgen.polyhedral.schedule.script import Edit
from hwgen.polyhedral.scop import Scop
from hwgen.polyhedral.search.space import Placed
from hwgen.polyhedral.search.tiling import Tiling, inner_name
from hwgen.polyhedral.tree.build import build_state, stage_of
from hwgen.polyhedral.tree.edit import main_site
from hwgen.polyhedral.tree.loop_tree import LoopTree, Site
from hwgen.polyhedral.tree.terms import addends, interval
from hwgen.spec.expression import Expr, Name, names

UNDERSTOOD = (
    *("split", "tile", "fuse", "merge", "reorder", "set_scope", "double_buffer", "cache_read"),
    *("cache_write", "compute_at", "decompose_reduction", "tensorize"),
)
"""Primitives of which `Said` knows what they say, wherever they stand."""


Lanes = Mapping[str, int]
"""Iterations of loops, or of a stage's iterators, that one call takes."""


@dataclass(frozen=True)
class Said:
    """What edits say in any order. `tiles`: of loops, in elements; `orders`: of the outermost loops
    over tiles, outermost first; `memories` and `slots` of tensors; `caches`: by tensor and memory,
    the loops that a copy is loaded in, None where that is open; `shared`: loops whose tiles other
    blocks stand in; `whole`: loops without tiles, inside of such ones; `begun`: blocks that begin
    sums; `calls`: by block its intrinsics and their lanes; `lanes`: those of what statements
    compute. Loops of one iteration say nothing.
    """

    tiles: Mapping[str, int]
    orders: Sequence[tuple[str, ...]]
    memories: Mapping[str, str]
    slots: Mapping[str, int]
    caches: Mapping[tuple[str, str], frozenset[str] | None]
    shared: frozenset[str]
    whole: frozenset[str]
    begun: frozenset[str]
    calls: Mapping[str, tuple[str, Lanes | None]]
    lanes: Lanes

    @classmethod
    def of(cls, schedule: Schedule, scop: Scop) -> Said | None:
        """What a schedule says; None where some edit says more, or two disagree."""
        edits, state = schedule.edits(), schedule.state
        if any(e.primitive not in UNDERSTOOD for e in edits):
            return None
        nests = [*map(partial(_Nest.of, state), _computed(schedule, scop))]
        tiles, lanes, around = dict[str, int](), dict[str, int](), dict[str, str]()
        orders: list[tuple[str, ...]] = []
        for nest in nests:
            if any(tiles.setdefault(n, x) != x for n, x in nest.tiles.items()):
                return None
            if any(around.setdefault(n, x) != x for n, x in nest.around.items()):
                return None
            lanes |= {n: max(x, lanes.get(n, 1)) for n, x in nest.lanes.items()}
            if any(_reorders(e, nest.outer) for e in edits):
                orders.append(tuple(nest.outer[n] for n in nest.site.names if n in nest.outer))
        # Tiles of a sum's terms are inside of whatever has tiles of its elements.
        whole = frozenset(n for nest in nests for n in nest.inside - {*scop.anchor.reduction})
        placed = {n for n in shared_loops(state) if state.extents[n] > 1}
        if not all(n.plain for n in nests) or whole & tiles.keys() or not placed <= around.keys():
            return None
        caches: dict[tuple[str, str], frozenset[str] | None] = {}
        for edit in (e for e in edits if e.primitive == "cache_read"):
            site = main_site(state, edit.results[0])
            loops = frozenset(around[n] for n in site.names if n in placed)
            where = str(edit.arguments[0]), str(edit.arguments[1])
            caches[where] = loops if shared_loops(state).intersection(site.names) else None
        named = [(e.primitive, str(e.arguments[0]), e.arguments[-1]) for e in edits]
        # An intermediate is where it is written first: nobody asked for its copy elsewhere.
        inner = {t.name for t in schedule.workload.tensors if t.role == "intermediate"}
        written = [(*map(str, e.arguments[:2]), e) for e in edits if e.primitive == "cache_write"]
        return cls(
            tiles,
            orders,
            {t: str(m) for p, t, m in named if p == "set_scope"}
            | {t if t in inner else e.results[0]: memory for t, memory, e in written},
            {t: n for p, t, n in named if p == "double_buffer" and isinstance(n, int)},
            caches,
            frozenset(around.values()),
            whole,
            frozenset(s.block.name for s in state.sites if s.block.part == "init"),
            {s.block.name: _call(s) for s in state.sites if s.block.tensorized is not None},
            lanes,
        )

    def blocks(self, match: Match) -> dict[str, int] | None:
        """The tile sizes in blocks of a match's lanes; None where they part blocks, or calls have
        other lanes. What has no more than a match's lanes split off is as open as a loop that has
        nothing split off, unless something else stands in the loop around the lanes."""
        if any(match.block.get(n, 1) != size for n, size in self.lanes.items()):
            return None
        found = {n: match.count[n] for n in self.whole if n in match.count}
        for loop, elements in self.tiles.items():
            lanes = match.block.get(loop, 1)
            if elements == lanes and loop not in self.shared:
                continue
            found[loop], rest = divmod(elements, lanes)
            if rest:
                return None
        return found

    def allows(self, match: Match, placed: Placed) -> bool:
        """Whether tile loops have the order, and what is loaded the place, that is said: inside of
        the loops around it that move it, and of no others that have tiles."""
        tiles, count = self.blocks(match) or {}, match.count
        loops = [n for n in map(inner_name, placed.loops) if tiles.get(n, 0) < count[n]]
        for storage in match.selection.storages:
            around = self.caches.get((storage.tensor, storage.memory))
            loaded = any(o.kind == "load" and o.written == storage.name
                         for o in match.selection.operations)  # fmt: skip
            if around is None or not loaded:
                continue
            outer = {*map(inner_name, placed.loops[: placed.placement[storage.name]])}
            inner = {n for n in loops if n not in around}
            moving = around & match.moving(storage.name) & {*loops}
            if not moving <= outer or inner & outer:
                return False
        return all(_in_order(loops, order) for order in self.orders)

    def agrees(self, tiling: Tiling, made: Schedule) -> bool:
        """Whether a tiling, and the schedule that primitives make of it, are so."""
        loops = [x.loop for x in tiling.loops]
        state, storage = made.state, made.state.storage
        copies = [s for s in state.stages if s.kind == "copy"]
        cached = {(s.reads[0].tensor, storage[s.tensor].memory) for s in copies}
        memories = {t: storage[t].memory for t in self.memories if t in storage}
        slots = {t: storage[t].slots for t in self.slots if t in storage}
        calls = {n: _call(state.site[n]) for n in self.calls if n in state.site}
        alike = all(
            n in calls and calls[n][0] == name and lanes in (calls[n][1], None)
            for n, (name, lanes) in self.calls.items()
        )
        return (
            all(_in_order(loops, order) for order in self.orders)
            and cached.issuperset(self.caches)
            and (memories, slots) == (self.memories, self.slots)
            and alike
            and self.begun <= state.site.keys()
        )


@dataclass(frozen=True)
class _Nest:
    """What the loops around a block say of those of its statement. `tiles` and `lanes`: of these;
    `outer`: by loop over tiles; `around`: the same of loops that other blocks stand in; `inside`:
    those of the others, where there are such; `plain`: whether each loop is part of one of them,
    and no tiles of tiles are shared."""

    site: Site
    tiles: Mapping[str, int]
    lanes: Lanes
    outer: Mapping[str, str]
    around: Mapping[str, str]
    inside: frozenset[str]
    plain: bool

    @classmethod
    def of(cls, state: LoopTree, computed: tuple[Site, Sequence[tuple[str, Expr]]]) -> _Nest:
        site, bindings = computed
        shared, called = shared_loops(state), called_loops(site)
        tiles, lanes = dict[str, int](), dict[str, int]()
        outer, around = dict[str, str](), dict[str, str]()
        inside: set[str] = set()
        plain = True
        for loop, binding in bindings:
            moving = {n for n in names(binding) if site.extents[n] > 1}
            steps = [(c, n) for c, n in _steps(site, binding) if n in moving - called]
            plain &= moving - called == {n for _, n in steps}
            both = [n for _, n in steps if n in shared]
            plain &= both in ([], [n for _, n in steps[:1]])
            around |= dict.fromkeys(both, loop)
            if called and state.stage[site.block.stage].kind != "copy":
                lanes[loop] = taken(site, binding)
            if len(steps) > 1:
                outer[steps[0][1]] = loop
                tiles[loop] = steps[0][0]
            if not both and shared.intersection(site.names):
                inside.add(loop)
        return cls(site, tiles, lanes, outer, around, frozenset(inside), plain)


def _computed(schedule: Schedule, scop: Scop) -> Iterator[tuple[Site, Sequence[tuple[str, Expr]]]]:
    """The blocks that compute each statement, and copies of what they compute, with the statement's
    loops and how they are bound."""
    state, first = schedule.state, _first(scop)
    for statement in scop.statements:
        tensor = first[scop.workload.statements.index(statement.source)]
        while tensor:
            stage, site = state.stage[tensor], main_site(state, tensor)
            written = stage.kind == "copy"
            walked = [n for n, _ in statement.loops]
            if written:
                walked = [n for i in statement.target.indices for n in (i.names or ("",))]
            over = stage.iterators if len(stage.iterators) == len(walked) else stage.spatial
            if len(over) == len(walked):
                pairs = zip(walked, over, strict=True)
                yield site, [(n, site.block.binding[i]) for n, (i, _) in pairs if n]
            tensor = stage.reads[0].tensor if written else ""


def shared_loops(state: LoopTree) -> frozenset[str]:
    """The loops around several blocks."""
    found = Counter(n for site in state.sites for n in site.names)
    return frozenset(n for n, count in found.items() if count > 1)


def called_loops(site: Site) -> frozenset[str]:
    """The loops that are lanes of a block's call."""
    call = site.block.tensorized
    if call is None or call.loop not in site.names:
        return frozenset()
    return frozenset(site.names[site.names.index(call.loop) :])


def taken(site: Site, binding: Expr) -> int:
    """Iterations of what is so bound that one call takes."""
    called = called_loops(site)
    inside = {n: extent if n in called else 1 for n, extent in site.extents.items()}
    low, high = interval(binding, inside)
    return high - low + 1


def _call(site: Site) -> tuple[str, Lanes | None]:
    """The intrinsics that a block calls, and the iterators of which a call takes several; None
    where these are open."""
    call = site.block.tensorized
    if call is None:
        return "", {}
    several = {n: x for n, e in site.block.bindings if (x := taken(site, e)) > 1}
    return call.intrinsic, several if call.loop or call.single else None


def _first(scop: Scop) -> tuple[str, ...]:
    """The stage, before any edit, of each statement."""
    return stage_of(scop.workload, build_state(scop.workload))


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
