"""Edits made again in a schedule of another form of their workload: parts of a network in one of
the whole, and what was made of a workload that edits make, in one of the workload itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from hwgen.compilation import Compilation, Kernel
from hwgen.decomposing import with_padding
from hwgen.phased import stages_of
from hwgen.polyhedral import isl
from hwgen.polyhedral.tree.loop_tree import LoopTree
from hwgen.schedule import Schedule
from hwgen.script import Argument, Edit
from hwgen.spec.hardware import HardwareSpec
from hwgen.spec.workload import Workload
from hwgen.trees import TreeCompilation, compile_padded

Made = TypeVar("Made", Compilation, Compilation | TreeCompilation)


def again(made: Made, workload: Workload, edits: Sequence[Edit]) -> Made:
    """What was made of the workload that edits make, as a kernel of the workload itself.

    Raises:
        HwgenError: as the primitives and `compile_padded`.
    """
    if not edits:
        return made
    if isinstance(made, TreeCompilation):
        return joined(workload, made.hardware, [made.schedule], edits)
    tree = joined(workload, made.hardware, [made.kernel.made.schedule], edits)
    kernel = Kernel.of(made.tiling, tree)
    search = replace(made.search, cycles=kernel.cycles)
    return replace(made, workload=workload, kernel=kernel, search=search)


def joined(
    workload: Workload,
    hardware: HardwareSpec,
    parts: Sequence[Schedule],
    edits: Sequence[Edit] = (),
) -> TreeCompilation:
    """The kernel of all parts, which are of the workload that some edits make.

    Raises:
        HwgenError: as the primitives and `compile_padded`.
    """
    schedule = Schedule(workload, hardware)
    stages = stages_of(schedule)
    statement = {n: s for s, n in stages.items()}
    for edit in edits:
        schedule.apply(edit)
        for made in schedule.last_edit().results:
            stages[with_padding(statement[str(edit.arguments[0])])] = made
    first = schedule.state
    with isl.bounded():
        with schedule.batch(blame=False):
            for part in parts:
                _again(part, schedule, first, stages)
        return compile_padded(schedule)


def _again(part: Schedule, schedule: Schedule, first: LoopTree, stages: dict[str, str]) -> None:
    """Make a part's edits in the schedule of the whole, of which `first` is the state before all
    edits and `stages` the stages by statement: what has another name there is renamed."""
    fresh = Schedule(part.workload, part.hardware)
    state = fresh.state
    names = {mine: stages[of] for of, mine in stages_of(fresh).items() if mine}
    names |= _loops(state, first, names)
    for then, edit in part.steps():
        before = schedule.state
        schedule.apply(_renamed(edit, names, _readers(edit, state, before, names)))
        names |= dict(zip(_stages(then, state), _stages(schedule.state, before), strict=True))
        names |= dict(zip(edit.results, schedule.last_edit().results, strict=True))
        names |= _loops(then, schedule.state, names)
        state = then


def _stages(state: LoopTree, before: LoopTree) -> list[str]:
    """The stages that were not there before."""
    return [s.tensor for s in state.stages if s.tensor not in before.stage]


def _loops(mine: LoopTree, theirs: LoopTree, names: Mapping[str, str]) -> dict[str, str]:
    """The names of the loops around blocks, and of the blocks, in another tree."""
    there = {(s.block.stage, s.block.part, s.block.copy): s for s in theirs.sites}
    found: dict[str, str] = {}
    for site in mine.sites:
        block = site.block
        other = there[names.get(block.stage, block.stage), block.part, block.copy]
        found |= dict(zip(site.names, other.names, strict=True))
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
    mine = tuple(names[s.tensor] for s in state.readers(source))
    every = {s.tensor for s in whole.readers(names.get(source, source))}
    return {} if every == {*mine} else {"readers": mine}
