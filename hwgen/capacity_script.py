"""Schedules whose buffers exceed a memory: the nearest that fits, as lines of the user's script."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from functools import cached_property

from hwgen.errors import HwgenError, Location
from hwgen.polyhedral.fitting import Form, Knob, nearest, smallest_form
from hwgen.polyhedral.matching import Match
from hwgen.polyhedral.scop import Scop
from hwgen.polyhedral.search_choose import LIMITS
from hwgen.polyhedral.tiling import Tiling
from hwgen.refit import Changes, Compiles, Phases
from hwgen.schedule import Schedule
from hwgen.script import Edit, write
from hwgen.script_lines import Argument, calls, edited, with_lines
from hwgen.tiling_lift import Reader, Reading, reader_of
from hwgen.tiling_script import PhasePlan, apply_tilings


@dataclass(frozen=True)
class Given:
    """A schedule that someone wrote: its script, read as these tilings of its phases. `file` is ""
    where the schedule was not read from one."""

    schedule: Schedule
    readings: Sequence[Reading]
    tilings: Sequence[Tiling]
    script: str
    file: str

    def at(self, number: int) -> str:
        """The place of an edit."""
        if not self.file:
            return f"edit {number + 1}"
        return f"{self.file}:{self.calls[number].lineno}"

    @cached_property
    def calls(self) -> list[ast.stmt]:
        """The edits as Python."""
        return calls(self.script)

    @cached_property
    def readers(self) -> list[Reader]:
        state = self.schedule.state
        return [Reader(state, r.scop, r.first, r.leaves) for r in self.readings]

    @cached_property
    def phases(self) -> Phases:
        hardware = self.schedule.hardware
        forms = (
            Form.of(hardware, t, reader.said(t.match)[0])
            for reader, t in zip(self.readers, self.tilings, strict=True)
        )
        return Phases(hardware, tuple(forms))

    def lines(self, changes: Changes) -> dict[int, str] | None:
        """The edits that have to be written otherwise; None where others have to be added."""
        values: dict[int, dict[Argument, int]] = {}
        for reader, form, change in zip(self.readers, self.phases.forms, changes, strict=True):
            for knob, value in change.items():
                place = _place(self.schedule.edits(), reader, form, knob, value)
                if place is None:
                    return None
                number, argument, new = place
                values.setdefault(number, {})[argument] = new
        return {n: edited(self.calls[n], values[n]) for n in sorted(values)}

    def whole(self, tilings: Sequence[Tiling]) -> str:
        """How to get from the script to that of other tilings, edit by edit."""
        made = Schedule(self.schedule.workload, self.schedule.hardware)
        plans = [
            PhasePlan(r.scop, t, r.first, r.leaves)
            for r, t in zip(self.readings, tilings, strict=True)
        ]
        apply_tilings(made, plans)
        new, old = made.trace().splitlines(), write(self.schedule.edits()).splitlines()
        if [ast.unparse(c) for c in self.calls] != [ast.unparse(c) for c in calls("\n".join(old))]:
            return "\n".join(["this script:", *new])  # names of its own
        steps: list[str] = []
        for what, i, j, a, b in SequenceMatcher(a=old, b=new, autojunk=False).get_opcodes():
            if what == "equal":
                continue
            where = f"instead of {self.at(i)}" + (f" to {self.at(j - 1)}" if j > i + 1 else "")
            if what == "insert":
                where = f"after {self.at(i - 1)}" if i else f"before {self.at(0)}"
            steps += [f"{where}:", *(new[a:b] or ["nothing"])]
        return "\n".join(steps)


def exceeds(
    given: Given,
    compiles: Compiles,
    lifted: Callable[[Schedule], list[Tiling]],
    error: HwgenError,
) -> HwgenError | None:
    """The error of a schedule whose buffers exceed a memory.

    `error`: what compiling it raised. None where that is not for want of room.
    """
    readable = error.code == "H502"
    if not readable and not any(given.phases.exceeded):
        return None
    if _fits_dense(given, compiles):
        edits = enumerate(given.schedule.edits())
        padding = [given.at(n) for n, edit in edits if edit.primitive == "storage_align"]
        repair = f"the same tiles fit without storage_align ({', '.join(padding)})"
        return given.phases.error(error, repair, None)
    better = given.phases.first_that_compiles(compiles)
    if better is None:
        return given.phases.error(error, given.phases.hopeless(), None) if readable else None
    changes, words = better
    tilings = given.phases.tilings(changes)
    lines = given.lines(changes)
    if lines and _is(given, with_lines(given.script, lines), lifted, tilings):
        first = next(iter(lines))
        place = Location(given.file, given.calls[first].lineno, 1) if given.file else None
        shown = (f"{given.at(n)}: {line}" for n, line in lines.items())
        return given.phases.error(error, "\n".join([words, *shown]), place)
    if not readable:
        return None
    return given.phases.error(error, f"{words}\n{given.whole(tilings)}", None)


def _fits_dense(given: Given, compiles: Compiles) -> bool:
    """Whether nothing but padding makes the buffers too large."""
    if not any(t.aligns for t in given.tilings):
        return False
    try:
        compiles([replace(t, aligns=()) for t in given.tilings])
    except HwgenError as error:
        if error.code not in LIMITS:
            raise
        return False
    return True


def beginning_exceeds(
    schedule: Schedule,
    scop: Scop,
    match: Match,
    fixed: Mapping[str, int],
    script: tuple[str, str],
    error: HwgenError,
) -> HwgenError | None:
    """The error of a script's beginning (text and file) whose tiles leave no room for anything.

    `error`: what the search for the rest raised. None where other tiles are no remedy.
    """
    hardware = schedule.hardware
    form = smallest_form(hardware, match, fixed)
    phases = Phases(hardware, (form,))
    change = next(nearest(form, phases.room(0)), None)
    if change is None:
        return None
    reader = reader_of(schedule, scop)
    made = calls(script[0])
    values: dict[int, dict[Argument, int]] = {}
    for knob, value in change.items():
        place = _place(schedule.edits(), reader, form, knob, value)
        if place is None:
            return None
        values.setdefault(place[0], {})[place[1]] = place[2]
    where = Location(script[1], made[min(values)].lineno, 1)
    shown = (f"{script[1]}:{made[n].lineno}: {edited(made[n], values[n])}" for n in sorted(values))
    words = f"the nearest that fits: {phases.words([change])}"
    return phases.error(error, "\n".join([words, *shown]), where)


def _is(
    given: Given,
    script: str,
    lifted: Callable[[Schedule], list[Tiling]],
    tilings: Sequence[Tiling],
) -> bool:
    """Whether a script makes these tilings."""
    made = Schedule(given.schedule.workload, given.schedule.hardware)
    try:
        found = lifted(made.replay(script))
    except HwgenError as error:
        if not error.code.startswith(("H41", "H42")):
            raise
        return False
    return [f"{t.match}\n{t}" for t in found] == [f"{t.match}\n{t}" for t in tilings]


def _place(
    edits: Sequence[Edit], reader: Reader, form: Form, knob: Knob, value: int
) -> tuple[int, Argument, int] | None:
    """The edit that sets a knob, which of its arguments does, and what that has to become."""
    if knob.kind == "place":
        return None
    if knob.kind == "slots":
        tensor = reader.stage_of(form.match, knob.name)
        for number, edit in reversed(list(enumerate(edits))):
            if edit.primitive == "double_buffer" and edit.arguments[0] == tensor:
                return number, (1, "slots"), value
        return None
    loop = reader.said(form.match)[1].get(knob.name, "")
    for number, edit in enumerate(edits):
        argument: Argument | None = None
        old: object = None
        if edit.primitive == "split" and edit.results[0] == loop:
            argument, old = (1, "factor"), dict(edit.keywords).get("factor")
        elif edit.primitive == "tile" and loop in edit.results[:2]:
            at = 2 + edit.results.index(loop)
            argument, old = (at, ("x_factor", "y_factor")[at - 2]), edit.arguments[at]
        if argument is not None and isinstance(old, int):
            new, rest = divmod(old * value, dict(form.tiles)[knob.name])
            return None if rest else (number, argument, new)
    return None
