"""Scripts whose buffers exceed a memory: the nearest one that fits.

What a schedule takes is known only once it is lowered. It falls when a tile or a number of slots
gets smaller, so each number of the script is halved until the buffers fit; the largest value that
does is then found by bisection, and the smallest change of all is taken. Where no number alone is
enough, several are halved together; and where no numbers are, a copy is made further inside.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import combinations

from hwgen.errors import HwgenError, Location, Tolerating
from hwgen.passes.trees import compile_tree
from hwgen.polyhedral.schedule.schedule import Schedule
from hwgen.polyhedral.schedule.script import Edit
from hwgen.polyhedral.schedule.script_lines import Argument, behind_line, edited, with_lines
from hwgen.polyhedral.tree.edit import main_site

TRIES = 80
"""Schedules that are lowered."""

TOGETHER = 3
"""Numbers changed at most."""

REFUSED = ("H30", "H40", "H41", "H42", "H50", "H51", "H61", "H62")
"""Beginnings of the codes of schedules that are not legal, or cannot be lowered."""


@dataclass(frozen=True, slots=True)
class _Number:
    """A tile size or number of slots that an edit gives; `line`: where its statement begins."""

    line: int
    argument: Argument
    value: int


_Values = dict[_Number, int]
"""What some numbers become."""


@dataclass
class _Script:
    """A script that does not fit, and its error. `edits`: those that are a line each, by that;
    `tries`: schedules lowered until now; `known`: the code and the finding of each that is
    refused."""

    schedule: Schedule
    text: str
    edits: Mapping[int, Edit]
    error: HwgenError
    tries: int = 0
    known: dict[str, tuple[str, str]] = field(default_factory=dict[str, tuple[str, str]])

    def lines(self, values: _Values) -> dict[int, str]:
        """The lines that have to be written otherwise."""
        wanted: dict[int, dict[Argument, int]] = {}
        for number, value in values.items():
            wanted.setdefault(number.line, {})[number.argument] = value
        return {n: edited(self.text, n, wanted[n]) for n in sorted(wanted)}

    def _code(self, values: _Values) -> str:
        return self.refusal(with_lines(self.text, self.lines(values)))

    def refusal(self, script: str) -> str:
        """The code of why a script is refused, or any where no more are tried; else empty."""
        if script in self.known:
            return self.known[script][0]
        if self.tries == TRIES:
            return "tries"
        self.tries += 1
        made = Schedule(self.schedule.workload, self.schedule.hardware)
        with Tolerating(REFUSED) as refused:
            compile_tree(made.replay(script))
            return self.known.setdefault(script, ("", ""))[0]
        told = refused.error.code, refused.error.diagnostic.found
        return self.known.setdefault(script, told)[0]

    def _changes_nothing(self, values: _Values) -> bool:
        """Whether the buffers that exceed the memory are the same."""
        told = self.known.get(with_lines(self.text, self.lines(values)))
        return told == (self.error.code, self.error.diagnostic.found)

    def nearest(self) -> _Values:
        """The smallest change that fits, of those tried; none where there is none."""
        numbers = [*_numbers(self.edits)]
        found: list[_Values] = []
        least: _Values = {}
        """Of each number alone that is not enough, the smallest value that is legal."""
        for number in reversed(numbers):  # inner tiles first
            values = [*_halves(number.value)]
            said = "", self.error.code
            smallest = next((v for v in reversed(values) if self._code({number: v}) in said), None)
            if smallest is None or self._changes_nothing({number: smallest}):
                continue
            if self._code({number: smallest}):
                least[number] = smallest
            else:
                value = next(v for v in values if not self._code({number: v}))
                found.append(self._grown({number: value}, number))
        for count in range(2, TOGETHER + 1):
            for chosen in combinations(least, count) if not found else ():
                if not self._code({n: least[n] for n in chosen}):
                    found.append(self._halved({n: least[n] for n in chosen}))
        none: _Values = {}
        return min(found, key=_change, default=none)

    def closer(self) -> tuple[int, str] | None:
        """A line behind another, that makes a copy inside loops of its only reader."""
        state = self.schedule.state
        for number, edit in self.edits.items():
            if edit.primitive != "cache_read" or self.schedule.homes[edit.results[0]]:
                continue
            copied = edit.results[0]
            readers = state.readers(copied)
            for loop in main_site(state, readers[0].tensor).names if len(readers) == 1 else ():
                line = f"s.compute_at({copied!r}, {loop!r})"
                if not self.refusal(behind_line(self.text, number, line)):
                    return number, line
        return None

    def _halved(self, least: _Values) -> _Values:
        """Several numbers halved in turn, the largest first, until they fit, as those in `least`
        do; then each as large as the others let it."""
        values = {n: n.value for n in least}
        while self._code(values):
            larger = [n for n in values if values[n] > least[n]]
            if not larger:
                return least
            largest = max(larger, key=lambda n: values[n])
            values[largest] = max(least[largest], values[largest] // 2)
        for number in least:
            values = self._grown(values, number)
        return values

    def _grown(self, values: _Values, number: _Number) -> _Values:
        """The same with the largest value of a number that fits, below its own."""
        low, high = values[number], min(number.value, 2 * values[number] + 2)
        while high - low > 1:
            middle = (low + high) // 2
            if self._code(values | {number: middle}):
                high = middle
            else:
                low = middle
        return values | {number: low}


def _halves(value: int) -> Iterator[int]:
    """Half of a number, half of that, and so on to 1."""
    while value > 1:
        value //= 2
        yield value


def exceeds(schedule: Schedule, script: str, file: str, error: HwgenError) -> HwgenError:
    """The error of a script's schedule whose buffers exceed a memory, with lines that fit. `file`:
    "" where the schedule was not read from one."""
    edits, known = schedule.edits(), error.diagnostic.location
    lines = [e.line for e in edits] if file else range(1, len(edits) + 1)
    times = Counter(lines)
    alone = {n: e for n, e in zip(lines, edits, strict=True) if times[n] == 1}
    given = _Script(schedule, script, alone, error)

    def place(line: int) -> str:
        return f"{file}:{line}" if file else f"edit {line}"

    padding = [n for n, e in alone.items() if e.primitive == "storage_align"]
    if padding and not given.refusal(with_lines(script, dict.fromkeys(padding, ""))):
        at = ", ".join(map(place, padding))
        return _told(
            error, f"the same tiles fit without storage_align ({at})", error.diagnostic.location
        )
    values = given.nearest()
    if not values:
        given.tries = 0
        moved = given.closer()
        if moved is None:
            return error
        where = f"behind {place(moved[0])}:"
        return _told(error, "\n".join(["a copy further inside", where, moved[1]]), known)
    changed = given.lines(values)
    where = Location(file, min(changed), 1) if file else known
    shown = [f"{place(n)}: {line}" for n, line in changed.items()]
    return _told(error, "\n".join(["the nearest that fits:", *shown]), where)


def _told(error: HwgenError, repair: str, where: Location | None) -> HwgenError:
    known = error.diagnostic
    return HwgenError(
        error.code,
        known.message,
        location=where,
        field=known.field,
        found=known.found,
        allowed=known.allowed,
        repair=repair,
    )


def _change(values: _Values) -> tuple[int, Fraction]:
    """How much is changed: how many numbers, and the product of old over new."""
    ratio = Fraction(1)
    for number, value in values.items():
        ratio *= Fraction(number.value, value)
    return len(values), ratio


def _numbers(edits: Mapping[int, Edit]) -> Iterator[_Number]:
    for n, edit in edits.items():
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
