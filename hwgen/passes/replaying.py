"""Edits made again in a schedule of another workload: parts of a network in one of the whole."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

from hwgen.errors import HwgenError
from hwgen.passes.kernel import Kernel
from hwgen.passes.start import Start
from hwgen.passes.trees import compile_padded
from hwgen.polyhedral import isl
from hwgen.polyhedral.schedule.schedule import Schedule
from hwgen.polyhedral.schedule.script import Argument, Edit
from hwgen.polyhedral.tree.edit import refuse
from hwgen.polyhedral.tree.loop_tree import LoopTree

K = TypeVar("K")
V = TypeVar("V")


def joined(start: Start, parts: Sequence[Schedule]) -> Kernel:
    """The kernel of all parts, which are of the workload that the start leaves.

    Raises:
        HwgenError: as `replayed` and `compile_padded`.
    """
    return compile_padded(replayed(start, parts))


def replayed(start: Start, parts: Sequence[Schedule]) -> Schedule:
    """The schedule of all parts, which are of the workload that the start leaves.

    Raises:
        HwgenError: as the primitives; H413 where the whole has nothing that a part's edits are
            about.
    """
    schedule = start.schedule.copy()
    first, stages = schedule.state, dict(start.stages)
    with isl.bounded(), schedule.batch(blame=False):
        for part in parts:
            _again(part, schedule, first, stages)
    return schedule


def _again(part: Schedule, schedule: Schedule, first: LoopTree, stages: dict[str, str]) -> None:
    """Make a part's edits in the schedule of the whole, of which `first` is the state before all
    edits and `stages` the stages by statement: what has another name there is renamed."""
    fresh = Start(part.workload, part.hardware)
    state = fresh.schedule.state
    names = {mine: _of(stages, of) for of, mine in fresh.stages.items() if mine}
    names |= _loops(state, first, names)
    for then, edit in part.steps():
        before = schedule.state
        schedule.apply(_renamed(edit, names, _readers(edit, state, before, names)))
        names |= _paired(_stages(then, state), _stages(schedule.state, before))
        names |= _paired(edit.results, schedule.last_edit()[1].results)
        names |= _loops(then, schedule.state, names)
        state = then


def _of(there: Mapping[K, V], name: K) -> V:
    """What has a name in the whole.

    Raises:
        HwgenError: H413 where nothing has.
    """
    if name not in there:
        raise differ(f"nothing like {name}", ", ".join(sorted(map(str, there))) or "nothing")
    return there[name]


def _paired(mine: Sequence[str], theirs: Sequence[str]) -> dict[str, str]:
    """Names by those of a part.

    Raises:
        HwgenError: H413 where there are more or fewer.
    """
    if len(mine) != len(theirs):
        raise differ(", ".join(theirs) or "nothing", ", ".join(mine) or "nothing")
    return dict(zip(mine, theirs, strict=True))


def differ(found: str, allowed: str) -> HwgenError:
    return refuse(
        "edits cannot be made again in another form of their workload",
        found,
        allowed,
        "a schedule for that form itself",
    )


def _stages(state: LoopTree, before: LoopTree) -> list[str]:
    """The stages that were not there before."""
    return [s.tensor for s in state.stages if s.tensor not in before.stage]


def _loops(mine: LoopTree, theirs: LoopTree, names: Mapping[str, str]) -> dict[str, str]:
    """The names of the loops around blocks, and of the blocks, in another tree."""
    there = {(s.block.stage, s.block.part, s.block.copy): s for s in theirs.sites}
    found: dict[str, str] = {}
    for site in mine.sites:
        block = site.block
        other = _of(there, (names.get(block.stage, block.stage), block.part, block.copy))
        found |= _paired(site.names, other.names)
        found[block.name] = other.block.name
    return found


def _renamed(edit: Edit, names: dict[str, str], more: dict[str, Argument]) -> Edit:
    def renamed(argument: Argument) -> Argument:
        if isinstance(argument, tuple):
            return tuple(map(renamed, argument))
        return names.get(argument, argument) if isinstance(argument, str) else argument

    keywords = {n: renamed(a) for n, a in edit.keywords} | more
    return Edit(edit.primitive, tuple(map(renamed, edit.arguments)), tuple(keywords.items()), ())


def _readers(
    edit: Edit, state: LoopTree, whole: LoopTree, names: dict[str, str]
) -> dict[str, Argument]:
    """The readers of a copy that all stages of a part read, where other parts read its source."""
    if edit.primitive != "cache_read" or "readers" in dict(edit.keywords):
        return {}
    source = str(edit.arguments[0])
    mine = tuple(_of(names, s.tensor) for s in state.readers(source))
    every = {s.tensor for s in whole.readers(names.get(source, source))}
    return {} if every == {*mine} else {"readers": mine}
