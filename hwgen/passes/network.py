"""Networks in parts: stages that share loops are one, those between such parts others.

From the last phase backwards, what may run in blocks of the last one's result without being
computed several times is cut where less crosses than before and after. Parts are compiled by
themselves, and put together, two at a time, where that may save most by what their units do, as
long as it does. Their edits, made again one after the other, are a schedule of the whole network.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations, groupby, pairwise
from math import inf, prod

from hwgen.constants import JOINING_ROOM, JOINING_SAVES
from hwgen.errors import HwgenError, Tolerating
from hwgen.passes.fusing import fused, fused_if_better, several, shareable
from hwgen.passes.kernel import REFUSALS, Kernel
from hwgen.passes.parts import CompileUnits
from hwgen.passes.phase import SLOTS, SearchOptions
from hwgen.passes.replaying import joined
from hwgen.passes.start import Start
from hwgen.passes.worth import is_scarce, may_be_faster
from hwgen.polyhedral import isl
from hwgen.polyhedral.phases import phase_of, read_by, split_phases, written_by
from hwgen.polyhedral.scop import view_statements
from hwgen.polyhedral.search.choose import EXCEEDED
from hwgen.polyhedral.search.objective import Measure
from hwgen.spec.hardware import HardwareSpec
from hwgen.spec.workload import Statement, Tensor, Workload

_Group = tuple[Statement, ...]
_Groups = tuple[_Group, ...]
"""Statements of some phases of a network, in order."""


_Part = tuple[_Groups, Kernel]
"""Phases with a kernel of their own."""


def shared_if_better(
    start: Start, made: Kernel, units: CompileUnits, options: SearchOptions
) -> Kernel:
    """A kernel of phases with all that is between them on the chip, or a better one: of stages that
    share loops, or, where it leaves no room and that may be faster, in parts. `units`: what
    compiles phases one after the other."""
    best = fused_if_better(start, made, options)
    network = _Network(start.workload, made.hardware, units, options)
    split = min(len(made.parts), len(network.groups)) > 1  # A form of it may have more parts.
    if not split or not is_scarce(made, SLOTS) or made.program.codes:
        return best
    if not may_be_faster(best, options, network.least_crossing()):
        return best
    with isl.bounded():
        found = in_parts(start, units, options)
    return best if found is None else min(best, found, key=options.measure)


def in_blocks(
    start: Start, units: CompileUnits, options: SearchOptions, refused: HwgenError
) -> Kernel | None:
    """A kernel whose stages share loops, of a workload that exceeds a limit of the chip where one
    stage runs after the other and leaves its result on the chip: what is in between may fit in
    blocks, in one part or in several. None where that is not why it is `refused`, or there is none.
    """
    if refused.code not in EXCEEDED or not several(start.workload):
        return None
    with isl.bounded():
        return fused(start, options) or in_parts(start, units, options)


def in_parts(start: Start, units: CompileUnits, options: SearchOptions) -> Kernel | None:
    """The kernel of a network for which one loop gives none, of which some stages share loops, and
    others do not; None where there is none. `units`: what compiles phases one after the other.

    Raises:
        HwgenError: what is no refusal.
    """
    with Tolerating(REFUSALS):
        parts = _Network(start.workload, start.hardware, units, options).parts()
        return None if len(parts) < 2 else joined(start, [made.schedule for _, made in parts])
    return None


def phases_may_be_faster(start: Start, made: Kernel, options: SearchOptions) -> bool:
    """Whether phases one after the other may be faster, which store and load again what no memory
    of the chip holds whole."""
    workload = start.workload
    room = max((m.capacity_entries for m in made.hardware.of_kind("scratchpad")), default=0)
    between = {n for p in split_phases(workload) for n in p.leaves}
    large = [t for t in workload.tensors if t.name in between and prod(t.shape) > room]
    return may_be_faster(made, options, large) or options.objective != "cycles"


@dataclass
class _Network:
    """`in_vain`: pairs of parts that are no better together; `known`: the kernels that phases have
    together, None where they have none."""

    whole: Workload
    hardware: HardwareSpec
    units: CompileUnits
    options: SearchOptions
    in_vain: set[tuple[_Groups, _Groups]] = field(default_factory=set[tuple[_Groups, _Groups]])
    known: dict[_Groups, _Part | None] = field(default_factory=lambda: {})

    @cached_property
    def groups(self) -> _Groups:
        """All phases, without views of inputs."""
        views = view_statements(self.whole)
        phases = split_phases(self.whole)
        return tuple(tuple(s for s in p.workload.statements if s not in views) for p in phases)

    def least_crossing(self) -> list[Tensor]:
        """What goes from one part to the other, where two leave the least between them."""
        places = range(1, len(self.groups))
        return min((self._between(self.groups, n) for n in places), key=_bytes)

    def parts(self) -> list[_Part]:
        """The parts, in an order in which they can run.

        Raises:
            HwgenError: what units refuse of phases that share no loops.
        """
        left = self.groups
        if len(left) > 1:
            self.known[left] = None  # One loop for all has been looked at before.
        found: list[_Groups] = []
        while left:
            inside = self._inside(left)
            found[:0] = self._cut(inside, self._valleys(inside))
            left = tuple(g for g in left if g not in inside)
        parts = [part for groups in found for part in self._made(groups)]
        while (pair := self._promising(parts)) is not None:
            (mine, first), (theirs, second) = pair
            groups = (*mine, *theirs)
            apart = (_shares(first) or _shares(second)) and not self._may_share(groups)
            together = None if apart else self._compiled(groups)
            if together is None or self._measure(together) >= self._measure(*pair):
                self.in_vain.add((mine, theirs))
            else:
                parts = [together if p is pair[1] else p for p in parts if p is not pair[0]]
        return parts

    # What may be a part

    def _inside(self, groups: _Groups) -> _Groups:
        """The last phase, and those before it that may run in loops over blocks of its result."""
        inside, outside = groups[-1:], list[_Group]()
        for group in reversed(groups[:-1]):
            early = any(written_by(group) & read_by(g) for g in outside)
            if not early and self._may_share((group, *inside)):
                inside = (group, *inside)
            else:
                outside.append(group)
        return inside

    def _may_share(self, groups: _Groups) -> bool:
        last = {n for g in groups[1:] for n in read_by(g)}
        touching = (written_by(groups[0]) | read_by(groups[0])) & last
        return bool(touching) and shareable(Start(self._alone(groups), self.hardware))

    def _alone(self, groups: _Groups) -> Workload:
        """Phases as a workload of their own."""
        mine = [s for s in self.whole.statements if any(s in g for g in groups)]
        others = [s for s in self.whole.statements if s not in mine]
        return phase_of(self.whole, [mine, others], 0).workload

    def _between(self, groups: _Groups, count: int) -> list[Tensor]:
        """What the first phases leave for the others."""
        left = {n for g in groups[:count] for n in written_by(g)}
        names = left & {n for g in groups[count:] for n in read_by(g)}
        return [t for t in self.whole.tensors if t.name in names]

    def _common_inputs(self, some: _Groups, others: _Groups) -> list[Tensor]:
        """The tensors that both load and neither computes."""
        names = {n for g in some for n in read_by(g)} & {n for g in others for n in read_by(g)}
        names -= {n for g in (*some, *others) for n in written_by(g)}
        return [t for t in self.whole.tensors if t.name in names]

    def _crossing(self, groups: _Groups, count: int) -> int:
        """Bytes of that."""
        return _bytes(self._between(groups, count))

    def _valleys(self, groups: _Groups) -> list[int]:
        """Where less crosses than before, and than after."""
        found: list[int] = []
        before: float = inf
        places = range(1, len(groups))
        for crossing, alike in groupby(places, key=lambda n: self._crossing(groups, n)):
            mine = [*alike]
            after = self._crossing(groups, mine[-1] + 1) if mine[-1] < places[-1] else inf
            if before > crossing < after:
                found += mine
            before = crossing
        return found

    @staticmethod
    def _cut(groups: _Groups, places: Sequence[int]) -> list[_Groups]:
        bounds = [0, *places, len(groups)]
        return [groups[a:b] for a, b in pairwise(bounds)]

    # Kernels

    def _made(self, groups: _Groups) -> Iterator[_Part]:
        """The part of some phases; where they cannot be one, several, cut where least crosses."""
        made = self._compiled(groups)
        if made is not None:
            yield made
            return
        least = min(range(1, len(groups)), key=lambda n: self._crossing(groups, n))
        for some in self._cut(groups, [least]):
            yield from self._made(some)

    def _compiled(self, groups: _Groups) -> _Part | None:
        """The kernel of some phases, in shared loops if they may have some; None where several have
        none.

        Raises:
            HwgenError: what units refuse of a single phase.
        """
        groups = tuple(sorted(groups, key=self.groups.index))
        if groups not in self.known:
            self.known[groups] = self._found(groups)
        return self.known[groups]

    def _found(self, groups: _Groups) -> _Part | None:
        alone = self._alone(groups)
        if len(groups) > 1 and self._may_share(groups):
            made = fused(Start(alone, self.hardware), self.options)
            return None if made is None else (groups, made)
        with Tolerating(REFUSALS if len(groups) > 1 else ()):
            return groups, self.units(alone)
        return None

    def _measure(self, *parts: _Part) -> Measure:
        measures = [self.options.measure(made) for _, made in parts]
        return tuple(map(sum, zip(*measures, strict=True)))

    def _promising(self, parts: Sequence[_Part]) -> tuple[_Part, _Part] | None:
        """The two that may save the most cycles together; None where no two save enough."""
        best, most = None, 0.0
        for (n, first), (m, second) in combinations(enumerate(parts), 2):
            left = {x for g in first[0] for x in written_by(g)}
            between = {x for groups, _ in parts[n + 1 : m] for g in groups for x in read_by(g)}
            reads = {x for g in second[0] for x in read_by(g)}
            crosses = left & reads or self._common_inputs(first[0], second[0])
            if not crosses or left & between or (first[0], second[0]) in self.in_vain:
                continue
            saved = self._saved(first, second)
            enough = saved > JOINING_SAVES * (first[1].cycles + second[1].cycles)
            if enough and saved > most and self._may_fit(first[1], second[1]):
                best, most = (first, second), saved
        return best

    def _may_fit(self, first: Kernel, second: Kernel) -> bool:
        """Whether there may be room for blocks of both; phases that share no loops yet have buffers
        as large as there is room."""
        if not (_shares(first) and _shares(second)):
            return True
        room = {
            m.name: JOINING_ROOM * m.capacity_entries for m in self.hardware.of_kind("scratchpad")
        }
        both: Counter[str] = Counter()
        for buffer in (*first.program.buffers, *second.program.buffers):
            both[buffer.memory] += buffer.entries
        return all(both[m] <= most for m, most in room.items())

    def _saved(self, first: _Part, second: _Part) -> float:
        """Cycles that two parts save together at most: what they take, less what the busiest unit
        has to do where nothing between them crosses the bus."""
        groups, kernels = (*first[0], *second[0]), (first[1], second[1])
        moved = sum(k.offchip_bytes for k in kernels)
        less = 2 * self._crossing(groups, len(first[0]))
        less += _bytes(self._common_inputs(first[0], second[0]))
        stays = max(0, moved - less) / max(1, moved)
        movers = {
            i.unit for i in self.hardware.intrinsics if self.hardware.offchip_operand(i) is not None
        }
        busy: Counter[str] = Counter()
        for kernel in kernels:
            for unit in kernel.timing.units:
                busy[unit.unit] += unit.busy
        least = max(n * (stays if unit in movers else 1) for unit, n in busy.items())
        return sum(k.cycles for k in kernels) - least


def _shares(made: Kernel) -> bool:
    """Whether the stages of a kernel share loops: no phases were searched for it."""
    return not made.parts


def _bytes(tensors: Sequence[Tensor]) -> int:
    return sum(t.bytes for t in tensors)
