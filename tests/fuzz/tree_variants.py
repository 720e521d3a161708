"""Schedules near those that the search makes, for any chip with units: edits changed, left out,
in another order, or more of them, with the same calls where blocks are the same."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from random import Random

from hwgen.polyhedral.schedule.schedule import Schedule
from hwgen.polyhedral.schedule.script import Edit
from tests.fuzz.nest_calls import Call
from tests.fuzz.nest_workloads import Data, Draws
from tests.fuzz.schedules import Case, make
from tests.fuzz.tree_schedules import TreeDraws

KEPT = ("cache_read", "cache_write", "reindex_cache_read", "decompose_reduction", "set_scope")
"""Edits without which stages have no memories and no calls."""
FACTORS = (1, 2, 3, 4, 5, 8, 16)


def variant(base: Schedule, data: Data, seed: int) -> tuple[Case, Schedule]:
    """A schedule that a seed makes of another one's edits, and the calls that were taken.

    Raises:
        FindingError: a call that crashes, or is refused and leaves a trace.
    """
    draws = Draws(Random(seed).randrange)
    schedule = Schedule(base.workload, base.hardware)
    source = TreeDraws(draws, schedule)
    taken: list[Call] = []

    def made(calls: Iterator[Call]) -> None:
        for call in calls:
            if not make(schedule, call):
                taken.append(call)

    lanes = {e for i in base.hardware.intrinsics for _, e in i.iterators}
    for edit in base.edits():
        if edit.primitive != "tensorize":
            made(_changed(draws, edit, lanes))
            if draws.chance(10):
                made(source.calls())
    made(source.begun_apart())
    made(_calls_of(base, schedule))
    made(source.called())
    if draws.chance(4):
        made(source.pipelined())
    return Case(data, tuple(taken), seed), schedule


def _changed(draws: Draws, edit: Edit, lanes: set[int]) -> Iterator[Call]:
    """An edit as it was, as a rule."""
    call = Call(edit.primitive, edit.arguments, edit.keywords)
    match edit.primitive:
        case "split":
            factor = dict(edit.keywords).get("factor")
            if draws.chance(12 if factor in lanes else 3):
                call = replace(call, keywords=(("factor", draws(FACTORS)),))
        case "reorder" if draws.chance(3):
            call = replace(call, arguments=tuple(draws.shuffled(edit.arguments)))
        case "double_buffer" if draws.chance(3):
            call = replace(call, arguments=(edit.arguments[0], draws((1, 2, 3))))
        case name if name not in KEPT and draws.chance(12):
            return
        case _:
            pass
    yield call


def _calls_of(base: Schedule, schedule: Schedule) -> Iterator[Call]:
    """The calls of blocks that are in another schedule too."""
    known = {s.block.name: s.block.tensorized for s in base.state.sites}
    for site in schedule.state.sites:
        found = known.get(site.block.name)
        if found is not None and site.block.tensorized is None:
            yield Call("tensorize", (site.block.name, *found.intrinsic.split()))
