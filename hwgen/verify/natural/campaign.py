"""How many natural workloads a chip compiles, and which of the others are the most natural."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from hwgen.errors import HwgenError
from hwgen.model.c_compiler import Build, build_in_turn
from hwgen.spec.hardware import HardwareSpec
from hwgen.spec.workload import Workload
from hwgen.verify.executors import Executor, Lost, in_order
from hwgen.verify.natural.draft import numbers_of
from hwgen.verify.natural.families import Natural, natural_workload

if TYPE_CHECKING:
    from hwgen.verify.data import Style
    from hwgen.verify.examine import Engine, Examination

BATCH = 10
"""Workloads that a process takes at a time."""
MOST_NATURAL = 10
REFUSALS = (
    *("H301", "H302", "H305"),
    *("H402", "H403", "H405", "H407", "H408"),
    *("H422", "H423", "H424"),
    *("H502", "H503", "H504", "H505"),
    *("H611", "H612", "H613", "H614", "H615", "H616"),
)
"""Codes that compiling may end with; all others tell of a defect."""

Verdict = Literal["equal", "refused", "wrong"]
Progress = Callable[[int, int], None]
"""Called with workloads done and workloads in all."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a workload. `code` and `message`: of the refusal, or of what is wrong;
    `ran_c`: the emitted C ran too; `unbounded`: not all elements were compared; `vacuous`: none
    was."""

    workload: Natural
    verdict: Verdict
    code: str = ""
    message: str = ""
    ran_c: bool = False
    unbounded: bool = False
    vacuous: bool = False


@dataclass(slots=True)
class ChipTally:
    """One chip's workloads. `families`: how many were drawn and how many ran, by family; `c_runs`:
    how many ran as emitted C too; `unbounded`: of how many not all elements were compared, and
    `vacuous`: none."""

    chip: Path
    ran: int = 0
    c_runs: int = 0
    unbounded: int = 0
    vacuous: int = 0
    drawn: Counter[str] = field(default_factory=Counter[str])
    families: Counter[str] = field(default_factory=Counter[str])
    codes: Counter[str] = field(default_factory=Counter[str])
    refused: list[Outcome] = field(default_factory=list[Outcome])
    wrong: list[Outcome] = field(default_factory=list[Outcome])

    def note(self, outcome: Outcome) -> None:
        """Count one workload."""
        family = outcome.workload.family
        self.drawn[family] += 1
        self.c_runs += outcome.ran_c
        self.unbounded += outcome.unbounded
        self.vacuous += outcome.vacuous
        match outcome.verdict:
            case "equal":
                self.ran += 1
                self.families[family] += 1
            case "refused":
                self.codes[outcome.code] += 1
                self.refused.append(outcome)
            case "wrong":
                self.wrong.append(outcome)

    @property
    def share(self) -> float:
        """Of the workloads drawn, those that ran and were right."""
        return self.ran / max(1, self.drawn.total())

    @property
    def most_natural(self) -> list[Outcome]:
        """The most natural refusals, one of each code and family with nothing else unusual."""
        kinds: dict[tuple[object, ...], Outcome] = {}
        for outcome in sorted(self.refused, key=lambda o: o.workload.rank):
            w = outcome.workload
            kinds.setdefault((outcome.code, w.family, w.unusual), outcome)
        return list(kinds.values())[:MOST_NATURAL]


@dataclass(frozen=True, slots=True)
class Runs:
    """How kernels run. `data`: how floats are drawn; `engine`: who runs them."""

    data: Style = "small"
    engine: Engine = "python"


AS_ALWAYS = Runs()


@dataclass(frozen=True, slots=True)
class NaturalReport:
    """A campaign's result, chip by chip. `runs`: how its kernels ran."""

    seed: int
    chips: tuple[ChipTally, ...]
    runs: Runs = AS_ALWAYS

    @property
    def ok(self) -> bool:
        """Whether something was compared and nothing was wrong."""
        return any(c.ran > c.vacuous for c in self.chips) and not any(c.wrong for c in self.chips)


def natural_campaign(
    chips: Sequence[Path],
    count: int,
    seed: int,
    *,
    workers: Executor,
    runs: Runs = AS_ALWAYS,
    progress: Progress | None = None,
) -> NaturalReport:
    """Compile and run `count` workloads on every chip; the seeds follow each other from `seed` on.

    A workload that no worker survives, or that is late on each, is wrong.

    Raises:
        HwgenError: where a chip cannot be loaded.
    """
    batch = BATCH if workers.seconds is None else 1  # A time-out is that of one workload.
    work = [
        _Batch(chip, _loaded(chip), first, min(batch, seed + count - first), runs)
        for chip in chips
        for first in range(seed, seed + count, batch)
    ]
    tallies = {chip: ChipTally(chip) for chip in chips}
    done = 0
    for one, outcomes in zip(work, in_order(_work, work, workers), strict=True):
        for outcome in one.lost(outcomes) if isinstance(outcomes, Lost) else outcomes:
            tallies[one.chip].note(outcome)
        done += one.count
        if progress is not None:
            progress(done, count * len(chips))
    return NaturalReport(seed, tuple(tallies.values()), runs)


@cache
def _loaded(chip: Path) -> HardwareSpec:
    from hwgen.spec.load import load_hardware

    return load_hardware(chip)


@dataclass(frozen=True, slots=True)
class _Batch:
    """Workloads of consecutive seeds on a chip."""

    chip: Path
    hardware: HardwareSpec
    first: int
    count: int
    runs: Runs

    @property
    def drawn(self) -> Iterator[tuple[int, Natural]]:
        """The workloads with their seeds."""
        numbers = numbers_of(self.hardware)
        for seed in range(self.first, self.first + self.count):
            yield seed, natural_workload(seed, numbers)

    def lost(self, lost: Lost) -> list[Outcome]:
        """All are wrong: one of them ends or holds up whoever works on it."""
        told = lost.error
        return [Outcome(n, "wrong", told.code, told.diagnostic.message) for _, n in self.drawn]


def _work(work: _Batch) -> list[Outcome]:
    return [outcome_of(natural, work.hardware, seed, work.runs) for seed, natural in work.drawn]


def outcome_of(
    natural: Natural, hardware: HardwareSpec, seed: int, runs: Runs = AS_ALWAYS
) -> Outcome:
    """Compile a workload and run it on data of a seed. Emitted C is compiled as users do, in turn
    by the seed."""
    build = build_in_turn(seed)
    from hwgen.spec.load import parse_workload

    try:
        workload = parse_workload(natural.data, file=f"natural_{seed}.yaml")
        passed = _run(workload, hardware, seed, runs, build)
    except HwgenError as error:
        if error.code in REFUSALS:
            return Outcome(natural, "refused", error.code, error.diagnostic.message)
        how = f"{error.diagnostic.message}: {error.diagnostic.found}; data {runs.data}, seed {seed}"
        if runs.engine != "python":
            how = " ".join([f"{how}; C as", *build.variables()])
        return Outcome(natural, "wrong", error.code, how)
    except Exception as error:  # Any crash on a workload is a finding.
        text = " ".join(str(error).split())[:200]
        return Outcome(natural, "wrong", type(error).__name__, text)
    compared = passed.comparison
    unbounded = any(t.count < t.elements for t in compared.tensors)
    return Outcome(
        natural, "equal", ran_c=passed.ran_c, unbounded=unbounded, vacuous=compared.vacuous
    )


def _run(
    workload: Workload, hardware: HardwareSpec, seed: int, runs: Runs, build: Build
) -> Examination:
    from hwgen.verify.data import draw_inputs
    from hwgen.verify.examine import compile_case, examine

    floats = any("float" in t.dtype for t in workload.tensors)
    inputs = draw_inputs(workload, seed, runs.data if floats else "random")
    return examine(compile_case(workload, hardware, 0), inputs, runs.engine, build)
