"""Verification campaigns: Hypothesis draws kernels, all checks run, failures become commands."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from math import prod
from pathlib import Path
from typing import Literal, TypeVar

from hwgen.errors import HwgenError
from hwgen.model.c_compiler import build_in_turn
from hwgen.spec.hardware import HardwareSpec
from hwgen.spec.source import Text, read_text
from hwgen.spec.workload import Workload
from hwgen.verify.executors import Executor, Lost, Processes, in_order
from hwgen.verify.room import check_tensors
from hwgen.verify.strategies import Case, Choices, Values, cases, choices, shrunk

F = TypeVar("F")

MAX_POINTS = 1 << 21
"""Points of the largest iteration domain of an example."""
SHRINK_RUNS = 80
"""Kernels compiled while a failure is reduced."""
DEFECTS = ("H303",)
"""Codes of compilation that only a defect of the compiler can cause; others are the chip's."""

Verdict = Literal["passed", "refused", "invalid", "failed"]
Progress = Callable[[str, int, int], None]
"""Called with the workload, examples done and examples in all."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """One example. `message`: the reason of a refusal or failure; `vacuous`: no element of its
    results could be compared."""

    verdict: Verdict
    message: str = ""
    used_c: bool = False
    vacuous: bool = False


@dataclass(frozen=True, slots=True)
class Failure:
    """The smallest failing example found, and the command that shows it again."""

    case: Case
    message: str
    command: str


@dataclass(slots=True)
class Result:
    """One workload's examples. `reason`: why the chip refused the first that it refused;
    `vacuous`: those passed of which nothing could be compared; `runnable`: whether it can run the
    workload as its file has it."""

    workload: str
    passed: int = 0
    refused: int = 0
    c_runs: int = 0
    vacuous: int = 0
    reason: str = ""
    runnable: bool = True
    failure: Failure | None = None


@dataclass(frozen=True, slots=True)
class CampaignReport:
    """All workloads of one campaign."""

    hardware: Path
    seed: int
    results: tuple[Result, ...]

    @property
    def ok(self) -> bool:
        """Whether something was compared and nothing failed."""
        return all(r.failure is None for r in self.results) and any(
            r.passed > r.vacuous for r in self.results
        )


@dataclass
class Runner:
    """Turns cases of one workload into outcomes; each case runs once. `text`, `workload_text`: of
    the two files, which a worker elsewhere does not have."""

    spec: Path
    workload: Path
    parameters: Mapping[str, int] = field(default_factory=dict[str, int])
    sizes: Mapping[str, int] = field(default_factory=dict[str, int])
    dtypes: Mapping[str, str] = field(default_factory=dict[str, str])
    trust: bool = False
    known: dict[Case, Outcome] = field(default_factory=dict[Case, Outcome])

    def __post_init__(self) -> None:
        self.text: Text = read_text(self.spec)
        self.workload_text: Text = read_text(self.workload)

    def __call__(self, case: Case) -> Outcome:
        outcome = self.known.get(case)
        if outcome is None:
            outcome = self.known[case] = self._run(case)
        return outcome

    def load_hardware(self, parameters: Values) -> HardwareSpec:
        """The chip with drawn parameters."""
        from hwgen.spec.load import read_hardware

        given = dict(self.parameters) | dict(parameters)
        return read_hardware(self.text, tuple(sorted(given.items())), trust=self.trust)

    def load_workload(self, sizes: Values) -> Workload:
        """The workload with drawn sizes.

        Raises:
            HwgenError: as `load_workload`; H792 where it is too large to be run.
        """
        from hwgen.spec.load import read_workload

        given, text = dict(self.sizes) | dict(sizes), self.workload_text
        workload = read_workload(text, given, self.dtypes)
        check_tensors(workload, lambda n, v: read_workload(text, given | {n: v}, self.dtypes))
        return workload

    def choices(self) -> Choices:
        """What may be drawn, less what the workload alone already excludes."""

        def valid(name: str, value: int) -> bool:
            try:
                self.load_workload(((name, value),))
            except HwgenError:
                return False
            return True

        return choices(self.text, self.workload_text, self.parameters, self.sizes, valid)

    def _run(self, case: Case) -> Outcome:
        from hwgen.model.native import runs_here
        from hwgen.verify.data import draw_inputs
        from hwgen.verify.examine import compile_case, examine

        try:
            hardware = self.load_hardware(case.parameters)
            workload = self.load_workload(case.sizes)
        except HwgenError as error:
            return Outcome("invalid", str(error))
        try:
            try:
                compilation = compile_case(workload, hardware, case.schedule)
            except HwgenError as error:
                # A processor alone runs every workload.
                defect = error.code in DEFECTS or not hardware.units
                verdict = "failed" if defect else "refused"
                return Outcome(verdict, str(error))
            inputs = draw_inputs(workload, case.seed, case.style)
            passed = examine(compilation, inputs)
            with_c = case.use_c and (bool(hardware.units) or runs_here(hardware))
            if with_c:
                examine(compilation, inputs, "c", build_in_turn(case.seed))
        except HwgenError as error:
            return Outcome("failed", str(error))
        except Exception as error:  # Any crash on a valid example is a finding too.
            text = " ".join(str(error).split())[:300]
            return Outcome("failed", f"{type(error).__name__}: {text}")
        return Outcome("passed", used_c=with_c, vacuous=passed.comparison.vacuous)

    def fit(self, case: Case, open_choices: Choices) -> Case | None:
        """The case with its extents halved until it is quick, None where its sizes are invalid."""
        sizes: Values | None = case.sizes
        while sizes is not None:
            try:
                workload = self.load_workload(sizes)
            except HwgenError:
                return None
            points = max(prod(e for _, e in s.loops) for s in workload.statements)
            if points <= MAX_POINTS:
                return replace(case, sizes=sizes)
            sizes = shrunk(sizes, open_choices)
        return case

    def command(self, case: Case) -> str:
        """The `hwgen simulate` command that runs a case."""
        words = ["hwgen", "simulate", "--spec", str(self.spec), "--workload", str(self.workload)]
        settings = [
            *((f"spec.{n}", v) for n, v in (*self.parameters.items(), *case.parameters)),
            *((f"workload.{n}", v) for n, v in (*self.sizes.items(), *case.sizes)),
        ]
        for name, value in settings:
            words += ["--set", f"{name}={value}"]
        for name, dtype in self.dtypes.items():
            words += ["--dtype", f"{name}={dtype}"]
        if self.trust:
            words.append("--trust")
        words += ["--seed", str(case.seed)]
        if case.style != "random":
            words += ["--data", case.style]
        if case.schedule:
            words += ["--schedule", str(case.schedule)]
        if not case.use_c:
            return shlex.join(words)
        return " ".join(
            [*build_in_turn(case.seed).variables(), shlex.join([*words, "--engine", "c"])]
        )


def campaign(
    hardware_path: Path,
    workloads: Sequence[Path],
    examples: int,
    seed: int,
    *,
    parameters: Mapping[str, int] | None = None,
    sizes: Mapping[Path, Mapping[str, int]] | None = None,
    dtypes: Mapping[Path, Mapping[str, str]] | None = None,
    trust: bool = False,
    workers: Executor | None = None,
    progress: Progress | None = None,
) -> CampaignReport:
    """Check kernels of every workload with sizes, parameters, data and schedules from a seed.

    Args:
        hardware_path: the chip's file.
        workloads: the workloads' files.
        examples: of each workload.
        seed: decides every draw; the same seed gives the same examples.
        parameters: of the chip, which are then not drawn.
        sizes: per workload file, which are then not drawn.
        dtypes: per workload file, in place of its own.
        trust: as in `load_hardware`.
        workers: each takes a workload at a time, which fails where it is given up; None: this
            process.
        progress: called after every example; after every workload where others work.

    Raises:
        HwgenError: where a file cannot be loaded as it stands, or is too large to be run (H792);
            H707 where C of a processor's file would run, and it is not trusted.
    """
    from hwgen.model.compiled import have_compiler, refuse_foreign
    from hwgen.model.native import runs_here

    with_c = have_compiler()
    runners: list[Runner] = []
    for path in workloads:
        runner = Runner(
            hardware_path, path, parameters or {}, (sizes or {}).get(path, {}),
            (dtypes or {}).get(path, {}), trust,
        )  # fmt: skip
        # Files that do not load are the user's error, not a finding.
        hardware = runner.load_hardware(())
        if hardware.processor is not None and runs_here(hardware):
            refuse_foreign(hardware.foreign)
        runner.load_workload(())
        runners.append(runner)
    results: list[Result] = []
    workers = workers or Processes(1)
    one = partial(_one, examples, seed, with_c, progress if workers.here else None)
    for runner, made in zip(runners, in_order(one, runners, workers), strict=True):
        lost = isinstance(made, Lost)
        results.append(_lost(runner, made, examples, seed) if lost else made)
        if progress and not workers.here:
            progress(results[-1].workload, examples, examples)
    return CampaignReport(hardware_path, seed, tuple(results))


def _lost(runner: Runner, lost: Lost, examples: int, seed: int) -> Result:
    """One of a workload's examples ends or holds up whoever works on it."""
    words = ["hwgen", "verify", "--spec", str(runner.spec), "--workload", str(runner.workload)]
    words += ["--examples", str(examples), "--seed", str(seed)]
    failure = Failure(Case(), str(lost.error), shlex.join(words))
    return Result(runner.workload.stem, failure=failure)


def _one(
    examples: int, seed: int, with_c: bool, progress: Progress | None, runner: Runner
) -> Result:
    result = Result(runner.workload.stem)
    case = Case(use_c=with_c)
    first = runner(case)
    _count(result, first)
    if first.verdict == "refused":
        result.runnable = False
        return result
    if progress:
        progress(result.workload, 1, examples)
    open_choices = runner.choices()
    found: Case | None = None
    if first.verdict == "failed":
        # The same sizes, but spelt out, so that they can be made smaller.
        found = replace(case, sizes=tuple((n, c.default) for n, c in open_choices.sizes))
    if found is None and examples > 1:

        def note(outcome: Outcome | None, done: int) -> None:
            if outcome is not None:
                _count(result, outcome)
            if progress:
                progress(result.workload, min(done + 1, examples), examples)

        found = _explore(runner, open_choices, examples - 1, seed, with_c=with_c, note=note)
    if found is not None:
        found = _reduce(runner, found, open_choices)
        result.failure = Failure(found, runner(found).message, runner.command(found))
    return result


def _count(result: Result, outcome: Outcome) -> None:
    if outcome.verdict == "passed":
        result.passed += 1
        result.c_runs += outcome.used_c
        result.vacuous += outcome.vacuous
    elif outcome.verdict == "refused":
        result.refused += 1
        result.reason = result.reason or outcome.message


def _explore(
    runner: Runner,
    open_choices: Choices,
    examples: int,
    seed: int,
    *,
    with_c: bool,
    note: Callable[[Outcome | None, int], None],
) -> Case | None:
    """Draw examples; the first that fails. `note` hears of each, with None for one seen before."""
    import hypothesis
    from hypothesis import HealthCheck, Phase
    from hypothesis.errors import Unsatisfiable

    done = 0
    failing: list[Case] = []

    def check(case: Case) -> None:
        nonlocal done
        fitted = runner.fit(case, open_choices)
        if fitted is None:
            hypothesis.reject()
        fresh = fitted not in runner.known
        outcome = runner(fitted)
        if outcome.verdict == "failed":
            failing.append(fitted)
            raise _FoundError
        done += 1
        note(outcome if fresh else None, done)

    settings = hypothesis.settings(
        max_examples=examples,
        database=None,
        deadline=None,
        phases=(Phase.generate,),  # `_reduce` knows better which parts of a case are simple.
        suppress_health_check=(
            HealthCheck.too_slow,
            HealthCheck.filter_too_much,
            HealthCheck.data_too_large,
        ),
        print_blob=False,
        report_multiple_bugs=False,
        verbosity=hypothesis.Verbosity.quiet,
    )
    test = hypothesis.given(cases(open_choices, with_c=with_c))(check)
    try:
        hypothesis.seed(seed)(settings(test))()
    except _FoundError:
        return failing[0]
    except Unsatisfiable:
        return None  # Every draw was invalid: what the file itself says was still checked.
    return None


class _FoundError(Exception):
    """Tells Hypothesis that an example fails."""


def _reduce(runner: Runner, case: Case, open_choices: Choices) -> Case:
    """Make a failing case as simple as a bounded number of runs allows."""
    budget = SHRINK_RUNS

    def fails(simpler: Case) -> bool:
        nonlocal budget
        if simpler not in runner.known:
            if budget == 0 or runner.fit(simpler, open_choices) != simpler:
                return False
            budget -= 1
        return runner(simpler).verdict == "failed"

    return simplest(case, lambda c: filter(fails, _simpler(c, open_choices)))


def _simpler(case: Case, open_choices: Choices) -> Iterator[Case]:
    """Cases with one thing made simpler: the default where there is one, less where not."""
    for changed in (
        replace(case, use_c=False),
        replace(case, schedule=0),
        replace(case, style="random"),
        replace(case, seed=0),
        replace(case, parameters=()),
        *(replace(case, parameters=_without(case.parameters, n)) for n, _ in case.parameters),
    ):
        if changed != case:
            yield changed
    choice = dict(open_choices.sizes)
    for name, value in case.sizes:
        if not choice[name].extent:
            yield replace(case, sizes=_without(case.sizes, name))
            continue
        for smaller in dict.fromkeys((1, -(-value // 2), value - 1)):
            if 0 < smaller < value:
                sizes = tuple((n, smaller if n == name else v) for n, v in case.sizes)
                yield replace(case, sizes=sizes)


def _without(values: Values, name: str) -> Values:
    return tuple((n, v) for n, v in values if n != name)


def simplest(failure: F, simpler: Callable[[F], Iterable[F]]) -> F:
    """A failure of which there is none that is simpler."""
    while (smaller := next(iter(simpler(failure)), None)) is not None:
        failure = smaller
    return failure
