"""Reading a tiling off a schedule for a chip with units: the way back from `tiling_script`.

What the schedule says (calls, memories, tile loops, places, slots) selects a match and a tiling;
whether it says nothing else is then seen by scripting that tiling and comparing the two.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, product

from hwgen.codegen.lower.places import in_parts
from hwgen.errors import HwgenError, Location
from hwgen.polyhedral.fitting import Said
from hwgen.polyhedral.matching import Match
from hwgen.polyhedral.nest.build import build_state
from hwgen.polyhedral.nest.edit import main_site
from hwgen.polyhedral.nest.state import Site, State
from hwgen.polyhedral.nest.terms import addends
from hwgen.polyhedral.operations import NOTHING_SHARED, Selection, Sharing, Storage
from hwgen.polyhedral.scop import Scop, ScopStatement
from hwgen.polyhedral.tiling import Align, Tiling
from hwgen.schedule import Schedule
from hwgen.script import line_of
from hwgen.spec.expression import Expr, Name
from hwgen.tiling_script import PhasePlan, apply_tilings

WAYS = 4
"""Matches of one phase considered where the calls do not tell them apart."""


@dataclass(frozen=True, slots=True)
class Reading:
    """A phase of the schedule: its scop, the matches that its calls may be, the best first, and
    the `first` of its `PhasePlan`, and what it shares with other phases."""

    scop: Scop
    matches: Iterable[Match]
    first: tuple[str, ...]
    sharing: Sharing = NOTHING_SHARED

    @property
    def leaves(self) -> tuple[str, ...]:
        return self.sharing.leaves


def readings(schedule: Schedule, phases: Sequence[Reading]) -> list[list[Tiling]]:
    """The tilings that each phase of a schedule may have, by what its calls are."""
    return [list(islice(_ways(schedule, phase), WAYS)) for phase in phases]


def lift(
    schedule: Schedule,
    phases: Sequence[Reading],
    ways: Sequence[Sequence[Tiling]],
    script: str = "",
    file: str = "",
) -> list[Tiling]:
    """The tiling of each phase that a schedule amounts to; `ways`: its `readings`; `script`: that
    makes it, in a file.

    Raises:
        HwgenError: H420 where the schedule is not one that the chip's calls can run, at the line
            where its script leaves that of a tiling which begins as it does.
    """
    refused: HwgenError | None = None
    edits, furthest = schedule.edits(), 0
    for tilings in product(*ways):
        plans = [
            PhasePlan(p.scop, t, p.first, p.leaves) for p, t in zip(phases, tilings, strict=True)
        ]
        again = Schedule(schedule.workload, schedule.hardware)
        try:
            apply_tilings(again, plans)
        except HwgenError as error:
            refused = refused or error
            continue
        differs = difference(str(again), str(schedule))
        if not differs:
            return list(tilings)
        pairs = zip(again.edits(), edits, strict=False)
        same = next((n for n, (a, b) in enumerate(pairs) if a != b), 0)
        if same > furthest:
            furthest, refused = same, _refusal(*differs)
            if file:
                refused = refused.at(Location(file, line_of(script, same)))
        refused = refused or _refusal(*differs)
    calls = Reader(schedule.state, phases[0].scop, phases[0].first).calls_text()
    raise refused or _refusal(calls, "calls of intrinsics that together cover every statement")


def _ways(schedule: Schedule, phase: Reading) -> Iterator[Tiling]:
    """The tilings that a phase may have, by what its calls are."""
    reader = Reader(schedule.state, phase.scop, phase.first, phase.leaves)
    for match in phase.matches:
        tiling = reader.tiling(match)
        if tiling is not None:
            yield tiling


def reader_of(schedule: Schedule, scop: Scop) -> Reader:
    """A reader of the schedule as it stands."""
    first = tuple(s.tensor for s in build_state(schedule.workload).stages)
    return Reader(schedule.state, scop, first)


def _refusal(found: str, allowed: str) -> HwgenError:
    return HwgenError(
        "H420",
        "the chip's calls cannot run this schedule",
        found=found,
        allowed=allowed,
        repair="start from the script that --stage script prints, and change its numbers, order, "
        "places and slots",
    )


def difference(canonical: str, given: str) -> tuple[str, str] | tuple[()]:
    """The first line in which a schedule differs from that of its tiling, and what that one has of
    the same loop, call or buffer there."""
    theirs, mine = canonical.splitlines(), given.splitlines()
    for a, b in zip(theirs, mine, strict=False):
        if a == b:
            continue
        alike = [x for x in theirs if _subject(x) == _subject(b)]
        other = next((x for x in alike if x.strip() != b.strip()), None)
        if _subject(a) == _subject(b) and a.strip() != b.strip():
            return b.strip(), a.strip()
        if b in theirs:
            return b.strip(), f"`{a.strip()}` before it"
        if other is not None:
            return b.strip(), other.strip()
        if alike:
            return f"{b.strip()} {_inside(b)}", f"it {_inside(alike[0])}"
        return b.strip(), a.strip()
    if len(theirs) != len(mine):
        return f"{len(mine)} lines of loops and calls", f"{len(theirs)} lines"
    return ()


def _subject(line: str) -> str:
    """What a line of a schedule is about: a buffer, a loop, or a call."""
    return " ".join(line.split()[:2]).rstrip(":")


def _inside(line: str) -> str:
    depth = (len(line) - len(line.lstrip())) // 2
    return f"inside {depth} loop{'' if depth == 1 else 's'}"


@dataclass(frozen=True)
class Reader:
    """What a schedule says. `first`: the tensors of the workload's stages before any edit."""

    state: State
    scop: Scop
    first: tuple[str, ...]
    leaves: tuple[str, ...] = ()

    def calls_text(self) -> str:
        calls = (
            f"{s.block.name}: {s.block.tensorized.intrinsic}"
            for s in self.state.sites
            if s.block.tensorized is not None
        )
        return "; ".join(calls) or "no stage is tensorized"

    def tiling(self, match: Match) -> Tiling | None:
        """The tiling, where the calls are the match's."""
        calls = self._calls()
        if any(calls.get(block) != names for block, names in self._wanted(match).items()):
            return None
        tile_loops: dict[str, str] = {}
        tiles = dict(match.counts)
        for name, site, index in self._walked(match):
            found = _tile_loop(site, index, match.block.get(name, 1))
            if found is not None and found[1] < match.count[name]:
                tile_loops[name], tiles[name] = found
        return self._placed(match, tiles, tile_loops)

    def said(self, match: Match) -> tuple[Said, dict[str, str]]:
        """What the schedule says of all its loops over tiles; which of them is a loop's."""
        found: dict[str, tuple[str, int]] = {}
        for name, site, binding in self._walked(match):
            loop = _tile_loop(site, binding, match.block.get(name, 1))
            if loop is not None:
                found[name] = loop
        loops = {name: index for name, (index, _) in found.items()}
        textual = list(self.state.loop)
        spatial = [n for n in match.selection.spatial if n in loops]
        around: list[tuple[str, tuple[str, ...]]] = []
        for storage in match.selection.storages:
            site = self.state.site.get(self._stage(match, storage))
            names = site.names if site is not None else ()
            around.append((storage.name, tuple(n for n, x in loops.items() if x in names)))
        said = Said(
            tuple((name, tile) for name, (_, tile) in found.items()),
            tuple(sorted(spatial, key=lambda n: textual.index(loops[n]))),
            tuple(around),
        )
        return said, loops

    def stage_of(self, match: Match, storage: str) -> str:
        """The stage whose buffer a storage is; empty where there is none."""
        return self._stage(match, match.selection.storage(storage))

    def known_tiles(self, match: Match) -> dict[str, int]:
        """Tile sizes, in blocks, that an unfinished schedule already says."""
        return dict(self.said(match)[0].tiles)

    # Stages of statements and storages

    def _result(self, statement: ScopStatement) -> str:
        """The stage that computes a statement's value."""
        statements = self.scop.statements
        number = self.scop.workload.statements.index(statement.source)
        tensor = self.first[number]
        stage = self.state.stage.get(tensor)
        if stage is None:
            return ""
        stores_only = statement is statements[-1] and statement.name.endswith("_out")
        if stage.kind == "copy" and not stores_only:
            return stage.reads[0].tensor
        return tensor

    def _store(self) -> str:
        """The stage that stores the output."""
        return self.first[self.scop.workload.statements.index(self.scop.statements[-1].source)]

    def _stage(self, match: Match, storage: Storage) -> str:
        """The stage whose buffer a storage is; empty where there is none."""
        brought = storage.shape or any(
            o.kind == "load" and storage.name in o.storages for o in match.selection.operations
        )
        mine = own_stages(self.state, self.first)
        for stage in self.state.stages if brought else ():
            if (
                stage.kind == "copy"
                and self.state.storage[stage.tensor].memory == storage.memory
                and stage.reads[0].tensor == storage.tensor
                and any(s.tensor in mine for s in self.state.readers(stage.tensor))
            ):
                return stage.tensor
        if storage.shape and storage.tensor in self.state.stage:
            return storage.tensor
        writers = (
            o
            for o in match.selection.operations
            if o.kind in ("init", "update", "map") and storage.name in o.storages
        )
        first = next(writers, None)
        if first is None:
            return ""
        return self._result(next(s for s in self.scop.statements if s.name == first.statement))

    # Calls

    def _calls(self) -> dict[str, str]:
        return {
            s.block.name: s.block.tensorized.intrinsic
            for s in self.state.sites
            if s.block.tensorized is not None
        }

    def _wanted(self, match: Match) -> dict[str, str]:
        """The calls of a match by block."""
        calls: dict[str, str] = {}
        for statement in self.scop.statements:
            mine = [o for o in match.selection.operations if o.statement == statement.name]
            groups = {
                f"{self._result(statement)}_init": ("init",),
                self._result(statement): ("map", "update"),
                self._store(): ("store",),
            }
            for block, kinds in groups.items():
                names = " ".join(o.intrinsic.name for o in mine if o.kind in kinds)
                if names:
                    calls[block] = names
        for o in match.selection.operations:
            if o.kind == "load":
                held = next(s for s in match.selection.storages if s.name in o.storages)
                calls[self._stage(match, held)] = o.intrinsic.name
        return calls

    def _final(self, match: Match) -> ScopStatement:
        """The statement whose stage has the spatial tile loops."""
        last = self.scop.statements[-1]
        works = any(o.statement == last.name for o in match.selection.operations)
        return last if works or last.target.tensor not in self.leaves else self.scop.statements[-2]

    # Loops

    def _walked(self, match: Match) -> Iterator[tuple[str, Site, Expr]]:
        """Every loop of the match with a site that has its tile loop, and its binding there."""
        last, anchor = self._final(match), self.scop.anchor
        root = self.state.site[self._store()]
        stage = self.state.stage[root.block.stage]
        spatial: list[tuple[str, Expr]] = []
        if stage.kind == "copy":
            for index, (iterator, _) in zip(last.target.indices, stage.iterators, strict=True):
                spatial += [(n, root.block.binding[iterator]) for n in index.names]
        else:
            for (name, _), (iterator, _) in zip(last.loops, stage.iterators, strict=True):
                spatial.append((name, root.block.binding[iterator]))
        for name, binding in spatial:
            if name in match.selection.spatial:
                yield name, root, binding
        if anchor.accumulates:
            site = main_site(self.state, self._result(anchor))
            iterators = self.state.stage[site.block.stage].iterators
            for (name, _), (iterator, _) in zip(anchor.loops, iterators, strict=True):
                if name in match.selection.reduction:
                    yield name, site, site.block.binding[iterator]

    def _placed(
        self, match: Match, tiles: Mapping[str, int], loops: Mapping[str, str]
    ) -> Tiling | None:
        """Order, depths and slots, once tile sizes are known."""
        textual = list(self.state.loop)
        selection = match.selection
        spatial = sorted(
            (n for n in selection.spatial if n in loops), key=lambda n: textual.index(loops[n])
        )
        order = (*spatial, *(n for n in selection.spatial if n not in loops))
        around = set(loops.values())
        depths: dict[str, int] = {}
        slots: dict[str, int] = {}
        aligns: list[Align] = []
        for storage in selection.storages:
            stage = self._stage(match, storage)
            if stage not in self.state.storage or stage not in self.state.site:
                return None
            inside = self.state.site[stage].names
            if storage.shape:
                depths[storage.name] = 0
            elif self.state.stage[stage].kind == "copy" and not rewritten(selection, storage.name):
                depths[storage.name] = sum(n in around for n in inside)
            else:
                prepared = any(
                    o.kind == "map" and storage.name in o.storages and selection.inner(o)
                    for o in selection.operations
                )
                depths[storage.name] = len(around) if prepared else len(spatial)
            slots[storage.name] = 1 if storage.shape else self.state.storage[stage].slots
            size = match.entry_elements(storage.name)
            if not storage.shape:
                for axis, factor, offset in self.state.storage[stage].aligns:
                    if factor % size or offset % size:
                        raise in_parts(stage, axis, factor, offset, size)
                    aligns.append(Align(storage.name, axis, factor // size, offset // size))
        return Tiling(
            match,
            tuple(tiles.items()),
            order,
            tuple(depths.items()),
            tuple(slots.items()),
            tuple(sorted(aligns)),
        )


def own_stages(state: State, first: Sequence[str]) -> set[str]:
    """The stages of a phase but caches of what it reads; `first`: those before any edit."""
    present = [state.stage[name] for name in first if name in state.stage]
    return {*first, *(s.reads[0].tensor for s in present if s.kind == "copy")}


def rewritten(selection: Selection, storage: str) -> bool:
    """Whether anything but a load writes a storage."""
    for o in selection.operations:
        target = o.intrinsic.semantics[0].target.tensor
        position = [x.name for x in o.intrinsic.operands].index(target)
        if o.kind != "load" and o.storages[position] == storage:
            return True
    return False


def _tile_loop(site: Site, binding: Expr, lanes: int) -> tuple[str, int] | None:
    """The loop over tiles in an iterator's binding and its blocks per tile; None without one.

    Tiles, blocks and lanes are the loops by falling step; lanes only where there are several. A
    tile is one block at least: where the loop's step is less, no tiling says what the loops do.
    """
    steps = [(c, t.name) for c, t in addends(binding) if isinstance(t, Name)]
    ordered = sorted(steps, key=lambda x: (-x[0], site.names.index(x[1])))
    if len(ordered) < (3 if lanes > 1 else 2):
        return None
    step, name = ordered[0]
    return name, max(1, step // lanes)
