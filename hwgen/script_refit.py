"""Scripts whose buffers exceed a memory: one near them that fits.

What a schedule takes is known only once it is lowered, so few are looked at: tiles and slots of the
script are halved, first one, then two of them, until the buffers fit; of a single number that was
halved, the largest value that fits is then found by bisection.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, islice, product

from hwgen.errors import HwgenError, Location
from hwgen.schedule import Schedule
from hwgen.script import Edit
from hwgen.script_lines import Argument, calls, edited, with_lines

TRIES = 16
"""Schedules that are lowered."""

TOGETHER = 2
"""Numbers changed at most."""


REFUSED = ("H41", "H42", "H50", "H51", "H61", "H62")
"""Beginnings of the codes of schedules that are not legal, or cannot be lowered."""


@dataclass(frozen=True, slots=True)
class _Number:
    """A tile size or number of slots that an edit gives."""

    edit: int
    argument: Argument
    value: int


Lower = Callable[[Schedule], object]
"""Lowers a schedule, or raises."""


def exceeds(
    schedule: Schedule, script: str, file: str, error: HwgenError, lower: Lower
) -> HwgenError:
    """The error of a script's schedule whose buffers exceed a memory, with lines that fit. `file`:
    "" where the schedule was not read from one."""
    made = calls(script)
    for halves in islice(_halved(list(_numbers(schedule.edits()))), TRIES):
        if not _fits(schedule, _lines(script, halves), script, lower):
            continue
        found = halves
        if len(found) == 1:
            found = [(found[0][0], _largest(schedule, script, *found[0], lower))]
        lines = _lines(script, found)
        at = (f"{file}:{made[n].lineno}" if file else f"edit {n + 1}" for n in lines)
        shown = (f"{place}: {line}" for place, line in zip(at, lines.values(), strict=True))
        known = error.diagnostic
        return HwgenError(
            error.code,
            known.message,
            location=Location(file, made[min(lines)].lineno, 1) if file else known.location,
            field=known.field,
            found=known.found,
            allowed=known.allowed,
            repair="\n".join(["one near it that fits:", *shown]),
        )
    return error


def _lines(script: str, values: Sequence[tuple[_Number, int]]) -> dict[int, str]:
    """The edits that have to be written otherwise."""
    wanted: dict[int, dict[Argument, int]] = {}
    for number, value in values:
        wanted.setdefault(number.edit, {})[number.argument] = value
    # `edited` changes its argument.
    return {n: edited(calls(script)[n], wanted[n]) for n in sorted(wanted)}


def _largest(schedule: Schedule, script: str, number: _Number, fitting: int, lower: Lower) -> int:
    """The largest value of a number that fits, between one that does and its own."""
    low, high = fitting, number.value
    while high - low > 1:
        middle = (low + high) // 2
        if _fits(schedule, _lines(script, [(number, middle)]), script, lower):
            low = middle
        else:
            high = middle
    return low


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


def _fits(schedule: Schedule, lines: Mapping[int, str], script: str, lower: Lower) -> bool:
    """Whether a script's schedule, some lines written otherwise, is legal and can be lowered."""
    made = Schedule(schedule.workload, schedule.hardware)
    try:
        lower(made.replay(with_lines(script, lines)))
    except HwgenError as error:
        if not error.code.startswith(REFUSED):
            raise
        return False
    return True
