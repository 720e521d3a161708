"""Campaigns of random schedules for chips with units: counted, failures reduced.

A chip (a given one, or one that is drawn), a workload for it, the schedule that the search makes
of both, and several schedules near that one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from hwgen.errors import HwgenError
from hwgen.passes.phase import SearchOptions
from hwgen.polyhedral.schedule.schedule import Schedule
from hwgen.spec.hardware import HardwareSpec
from hwgen.spec.load import load_hardware, parse_hardware, parse_workload
from hwgen.verify.examine import compile_case
from hwgen.verify.executors import each
from hwgen.verify.natural.campaign import REFUSALS
from hwgen.verify.natural.draft import numbers_of
from hwgen.verify.natural.families import natural_workload
from tests.fuzz.chips.draw import draw_of
from tests.fuzz.nest_workloads import Data
from tests.fuzz.schedules import SHOWN_FAILURES, Case, Failure, FindingError, reduced
from tests.fuzz.tallies import Counted, crash_text, one_of_each
from tests.fuzz.tree_schedules import failure as wrong
from tests.fuzz.tree_schedules import judged, outcome
from tests.fuzz.tree_variants import variant

TREES = 8
"""Schedules near each that the search makes."""
WORK = 500_000
"""Of a search: any good schedule has others near it."""
LEAST_DRAWS = 40
"""Chips and workloads that are tried, though few schedules are wanted."""
BATCH = 4
"""Chips that a process takes at a time."""

Progress = Callable[[int, int, tuple[int, ...]], None]
"""Called with schedules done, schedules in all, and the seeds of those that are wrong."""


@dataclass
class TreeTally(Counted):
    """What became of schedules. `unread`, `uncompiled`: draws of a chip and a workload that have no
    schedule to begin with; `refused`: schedules per code. `failures`: by the seed of their chip and
    workload."""

    trees: int = 0
    draws: int = 0
    right: int = 0
    unread: Counter[str] = field(default_factory=Counter[str])
    uncompiled: Counter[str] = field(default_factory=Counter[str])
    refused: Counter[str] = field(default_factory=Counter[str])
    failures: list[tuple[int, Failure]] = field(default_factory=list[tuple[int, Failure]])


@dataclass(frozen=True)
class TreeReport:
    """A campaign's result. `hardware`: the chip's file, None where chips are drawn; `count`: the
    schedules that were asked for; `failures`: reduced, one of those that look the same, by seed;
    `interrupted`: it was ended by the user, and failures are as they were found."""

    hardware: Path | None
    seed: int
    count: int
    tally: TreeTally
    failures: tuple[tuple[int, Failure], ...]
    interrupted: bool = False

    @property
    def ok(self) -> bool:
        """Whether something was right and nothing was wrong."""
        return self.tally.right > 0 and not self.tally.failures


def tree_campaign(
    hardware: Path | None,
    count: int,
    seed: int,
    *,
    processes: int = 1,
    progress: Progress | None = None,
) -> TreeReport:
    """Check at least `count` schedules, unless too few draws have any; seeds follow each other.

    Raises:
        HwgenError: where the chip cannot be loaded.
    """
    if hardware is not None:
        load_hardware(hardware)
    tally = TreeTally()
    interrupted = False
    try:
        _count(tally, hardware, count, seed, processes, progress)
    except KeyboardInterrupt:  # What hours have found is not lost with it.
        interrupted = True
    shown = one_of_each(
        tally.failures,
        lambda f: f[1].signature,
        lambda f: len(f[1].case.calls),
        SHOWN_FAILURES,
    )
    if not interrupted:
        shown = [_reduced(hardware, *f) for f in shown]
    return TreeReport(hardware, seed, count, tally, tuple(shown), interrupted)


def _count(
    tally: TreeTally,
    hardware: Path | None,
    count: int,
    seed: int,
    processes: int,
    progress: Progress | None,
) -> None:
    """Add up what becomes of schedules, in batches that are counted as they end."""
    first = seed
    most = max(count, LEAST_DRAWS)
    while tally.trees < count and tally.draws < most:
        missing = min(-(-(count - tally.trees) // TREES), most - tally.draws)
        work = [
            (hardware, at, min(BATCH, first + missing - at))
            for at in range(first, first + missing, BATCH)
        ]
        for part in each(_work, work, processes):
            tally.add(part)
            if progress is not None:
                wrong = tuple(number for number, _ in tally.failures)
                progress(min(tally.trees, count), count, wrong)
        first += missing


def _work(work: tuple[Path | None, int, int]) -> TreeTally:
    path, first, count = work
    tally = TreeTally()
    for number in range(first, first + count):
        _varied(path, number, tally)
    return tally


def _varied(path: Path | None, number: int, tally: TreeTally) -> None:
    """Count the schedules of one seed."""
    tally.draws += 1
    try:
        hardware, data = drawn_pair(path, number)
    except HwgenError as error:
        tally.unread[error.code] += 1
        return
    workload = parse_workload(data)
    try:
        made = compile_case(workload, hardware, 0, SearchOptions(work=WORK))
    except HwgenError as error:
        if error.code in REFUSALS:
            tally.uncompiled[error.code] += 1
        else:
            failure = Failure(Case(data, (), number), "compiling", crash_text(error))
            tally.failures.append((number, failure))
        return
    except Exception as error:  # So is any crash of the compiler.
        failure = Failure(Case(data, (), number), "crash", crash_text(error))
        tally.failures.append((number, failure))
        return
    for n in range(TREES):
        _checked(made.schedule, data, hardware, number, n, tally)


def _checked(
    base: Schedule, data: Data, hardware: HardwareSpec, number: int, n: int, tally: TreeTally
) -> None:
    seed = number * TREES + n
    tally.trees += 1
    case = Case(data, (), seed)
    try:
        case, schedule = variant(base, data, seed)
        code = outcome(case, hardware) if n == 0 else judged(schedule, seed)
    except FindingError as finding:
        tally.failures.append((number, Failure(case, finding.kind, finding.message)))
    except Exception as error:  # Any crash on a schedule is a finding.
        tally.failures.append((number, Failure(case, "crash", crash_text(error))))
    else:
        tally.right += not code
        tally.refused.update([code] if code else [])


def drawn_pair(path: Path | None, number: int) -> tuple[HardwareSpec, Data]:
    """The chip and the workload of a seed.

    Raises:
        HwgenError: where they are none.
    """
    if path is None:
        chip, data = draw_of(number).data
        hardware = parse_hardware(chip)
        parse_workload(data)
        return hardware, data
    hardware = load_hardware(path)
    return hardware, natural_workload(number, numbers_of(hardware)).data


def _reduced(path: Path | None, number: int, failure: Failure) -> tuple[int, Failure]:
    """The failure with as few calls and statements as fail in the same way."""
    hardware, _ = drawn_pair(path, number)
    if failure.kind in ("compiling", "crash"):
        return number, failure  # There are no calls to leave out.
    return number, reduced(failure, lambda case: wrong(case, hardware))
