"""Schedules of a processor whose buffers exceed a memory: one near it that fits, by halves.

What such a schedule takes is known only once it is lowered, so few are looked at: tiles and slots
of the script are halved, first one, then two of them, until the buffers fit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, islice, product

from hwgen.codegen.nest.lower import lower_nest
from hwgen.errors import HwgenError, Location
from hwgen.schedule import Schedule
from hwgen.script import Edit
from hwgen.script_lines import Argument, calls, edited, with_lines

TRIES = 16
"""Schedules that are lowered."""

TOGETHER = 2
"""Numbers changed at most."""


@dataclass(frozen=True, slots=True)
class _Number:
    """A tile size or number of slots that an edit gives."""

    edit: int
    argument: Argument
    value: int


def nest_exceeds(schedule: Schedule, script: str, file: str, error: HwgenError) -> HwgenError:
    """The error of a script's schedule whose buffers exceed a memory, with lines that fit."""
    made = calls(script)
    found = list(_numbers(schedule.edits()))
    for halves in islice(_halved(found), TRIES):
        values: dict[int, dict[Argument, int]] = {}
        for number, value in halves:
            values.setdefault(number.edit, {})[number.argument] = value
        # `edited` changes its argument.
        lines = {n: edited(calls(script)[n], values[n]) for n in sorted(values)}
        if _fits(schedule, with_lines(script, lines)):
            shown = (f"{file}:{made[n].lineno}: {line}" for n, line in lines.items())
            known = error.diagnostic
            return HwgenError(
                error.code,
                known.message,
                location=Location(file, made[min(lines)].lineno, 1),
                field=known.field,
                found=known.found,
                allowed=known.allowed,
                repair="\n".join(["one that fits, with tiles or slots halved:", *shown]),
            )
    return error


def _numbers(edits: Sequence[Edit]) -> Iterator[_Number]:
    for n, edit in enumerate(edits):
        given: list[tuple[Argument, object]] = []
        match edit.primitive:
            case "split":
                given = [((1, "factor"), dict(edit.keywords).get("factor"))]
            case "tile":
                names = (2, "x_factor"), (3, "y_factor")
                given = [(name, edit.arguments[name[0]]) for name in names]
            case "double_buffer":
                given = [((1, "slots"), edit.arguments[1])]
            case _:
                pass
        for argument, value in given:
            if isinstance(value, int) and value > 1:
                yield _Number(n, argument, value)


def _halved(numbers: Sequence[_Number]) -> Iterator[list[tuple[_Number, int]]]:
    """Few numbers changed first, then those less halved; later edits, the inner tiles, first."""
    for count in range(1, TOGETHER + 1):
        ways: list[tuple[int, int, list[tuple[_Number, int]]]] = []
        for chosen in combinations(reversed(numbers), count):
            steps = [range(1, n.value.bit_length()) for n in chosen]
            for halvings in product(*steps):
                values = [(n, max(1, n.value >> k)) for n, k in zip(chosen, halvings, strict=True)]
                ways.append((sum(halvings), len(ways), values))
        yield from (values for _, _, values in sorted(ways, key=lambda way: way[:2]))


def _fits(schedule: Schedule, script: str) -> bool:
    """Whether a script's schedule is legal and can be lowered."""
    made = Schedule(schedule.workload, schedule.hardware)
    try:
        made.replay(script)
        lower_nest(made.resolved, made.homes, schedule.hardware)
    except HwgenError as error:
        if not error.code.startswith(("H41", "H51", "H62")):
            raise
        return False
    return True
