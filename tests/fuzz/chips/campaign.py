"""Campaigns of random chips: drawn and checked in several processes, counted, failures reduced."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import cast

from hwgen.errors import HwgenError
from hwgen.verify.executors import each
from hwgen.verify.natural.draws import Spec
from tests.fuzz.chips.draw import Draw, draw_again, draw_of
from tests.fuzz.chips.examine import Outcome, Verdict, check
from tests.fuzz.tallies import Counted, one_of_each

COLLECTED_AFTER = 20_000
"""New objects after which a process looks for cyclic garbage: most of what a draw makes stays."""
BATCH = 20
"""Draws that a process takes at a time."""
SHRINK_RUNS = 60
"""Draws checked while a failure is reduced."""
SHOWN_FAILURES = 6

Progress = Callable[[int, int, tuple[int, ...]], None]
"""Called with draws done, draws in all, and the seeds of those that are wrong."""


@dataclass(frozen=True, slots=True)
class Failure:
    """A draw that is wrong. `number`: the seed that drew it first, before it was reduced."""

    number: int
    draw: Draw
    outcome: Outcome


@dataclass
class Tally(Counted):
    """What became of draws. `verdicts`: per kind of synchronisation; `unread`, `refused`: per code;
    `c_runs`: kernels whose emitted C ran too; `surplus`: kernels of several phases that wait more
    often than they must; `caught`: planted defects that were found; `features`: right kernels that
    use each feature."""

    drawn: int = 0
    c_runs: int = 0
    surplus: int = 0
    caught: int = 0
    verdicts: Counter[tuple[str, Verdict]] = field(
        default_factory=Counter[tuple[str, Verdict]]
    )  # fmt: skip
    unread: Counter[str] = field(default_factory=Counter[str])
    refused: Counter[str] = field(default_factory=Counter[str])
    features: Counter[str] = field(default_factory=Counter[str])
    failures: list[Failure] = field(default_factory=list[Failure])

    def count(self, verdict: Verdict) -> int:
        """Draws of any kind that came to this."""
        return sum(n for (_, v), n in self.verdicts.items() if v == verdict)

    def note(self, number: int, draw: Draw, outcome: Outcome) -> None:
        """Count one draw."""
        self.drawn += 1
        self.c_runs += outcome.ran_c
        self.surplus += outcome.surplus
        self.caught += outcome.caught
        self.features.update(outcome.features)
        self.verdicts[draw.kind, outcome.verdict] += 1
        match outcome.verdict:
            case "unread":
                self.unread[outcome.code] += 1
            case "refused":
                self.refused[outcome.code] += 1
            case "wrong":
                self.failures.append(Failure(number, draw, outcome))
            case "equal":
                pass


@dataclass(frozen=True, slots=True)
class ChipReport:
    """A campaign's result. `base`: the file of the chip that was varied, None for invented ones;
    `failures`: reduced, one of those that look the same."""

    base: Path | None
    seed: int
    tally: Tally
    failures: tuple[Failure, ...]

    @property
    def ok(self) -> bool:
        """Whether something ran and nothing was wrong."""
        return not self.tally.failures and self.tally.count("equal") > 0


def chip_campaign(
    count: int,
    seed: int,
    *,
    base: Path | None = None,
    processes: int = 1,
    progress: Progress | None = None,
) -> ChipReport:
    """Draw and check chips, each with a workload.

    Args:
        count: draws in all.
        seed: of the first; the next has the next. A draw depends on its seed and `base` alone,
            so a campaign can be run in parts.
        base: the chip to vary; without it, chips are invented.
        processes: that draw and check at the same time.
        progress: called after every few draws.

    Raises:
        HwgenError: H007 where `base` has no units, or as `load_hardware` where it cannot be read.
    """
    data = base_data(base)
    work = [
        (first, min(BATCH, seed + count - first), data)
        for first in range(seed, seed + count, BATCH)
    ]
    tally = Tally()
    for part in each(_work, work, processes):
        tally.add(part)
        if progress is not None:
            progress(tally.drawn, count, tuple(f.number for f in tally.failures))
    shown = one_of_each(tally.failures, lambda f: f.outcome.signature, _size, SHOWN_FAILURES)
    smaller = each(_reduced, [(f, data) for f in shown], processes)
    return ChipReport(base, seed, tally, tuple(smaller))


def base_data(base: Path | None) -> Spec | None:
    """The plain data of a chip's file.

    Raises:
        HwgenError: as `chip_campaign`.
    """
    from hwgen.spec.load import load_hardware
    from hwgen.spec.source import read_document

    if base is None:
        return None
    hardware = load_hardware(base)
    if not hardware.units:
        raise HwgenError(
            "H007",
            f"{hardware.name} is a processor, and only chips of units are varied",
            location=hardware.location,
            field="--spec",
            found="a processor",
            allowed="a chip with units, or no --spec",
            repair="python -m tests.fuzz schedules N, for processors",
        )
    return cast(Spec, read_document(base).data)


_Work = tuple[int, int, Spec | None]


def _work(work: _Work) -> Tally:
    gc.set_threshold(COLLECTED_AFTER)
    first, count, base = work
    tally = Tally()
    for number in range(first, first + count):
        draw = draw_of(number, base)
        tally.note(number, draw, check(draw))
    return tally


# Smaller failures


def _size(failure: Failure) -> tuple[int, int]:
    draw = failure.draw
    return len(draw.chip) + len(draw.workload), failure.number


def _reduced(work: tuple[Failure, Spec | None]) -> Failure:
    return reduced(*work)


def reduced(failure: Failure, base: Spec | None) -> Failure:
    """The failure with as many choices the simplest as a bounded number of runs allows."""
    budget = SHRINK_RUNS
    length = len(failure.draw.choices)
    while length and budget:
        start = 0
        while start < len(failure.draw.choices) and budget:
            choices = failure.draw.choices
            part = choices[start : start + length]
            if any(part):
                budget -= 1
                simpler = (*choices[:start], *(0 for _ in part), *choices[start + length :])
                draw = draw_again(simpler, base)
                outcome = check(draw)
                if outcome.verdict == "wrong" and outcome.signature == failure.outcome.signature:
                    failure = replace(failure, draw=draw, outcome=outcome)
            start += length
        length //= 2
    return failure
