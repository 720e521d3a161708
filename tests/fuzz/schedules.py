"""Random sequences of primitives on random workloads: each is refused or computes the reference.

Workloads and calls are drawn, the same ones from a seed whatever else is loaded. What each call
leaves behind is checked (a refusal changes nothing; `undo` and `trace` give the same schedule
again), and the schedule at the end is lowered, emitted, compiled, run and compared with the
reference.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random

import numpy as np

from hwgen.errors import HwgenError
from hwgen.model.compiled import refuse_foreign
from hwgen.model.numeric import load
from hwgen.model.reference import run_reference
from hwgen.passes.trees import compile_tree
from hwgen.polyhedral.schedule.schedule import Schedule
from hwgen.spec.hardware import HardwareSpec
from hwgen.spec.load import load_hardware, parse_workload
from hwgen.spec.typecheck import is_float
from hwgen.verify.campaign import simplest
from hwgen.verify.data import draw_inputs
from hwgen.verify.executors import each
from tests.fuzz.nest_calls import Call, CallDraws
from tests.fuzz.nest_runs import HOST, Kernel, Target, executed, run_kernels
from tests.fuzz.nest_workloads import Data, Draws, random_nests
from tests.fuzz.tallies import Counted, crash_text, one_of_each

BATCH = 50
"""Sequences whose kernels make one program."""
MAX_CALLS = 12
EXACT = 1 << 18
"""Floats below this, integers all, leave room for exact sums in any order."""
SHRINK_RUNS = 60
SHOWN_FAILURES = 8

Progress = Callable[[int, int], None]


class FindingError(Exception):
    """A schedule that is neither refused nor right. `kind`: what went wrong."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(f"{kind}: {message}")
        self.kind = kind
        self.message = message


@dataclass(frozen=True)
class Case:
    """A workload and the calls made on its schedule; `seed` decides the data."""

    data: Data
    calls: tuple[Call, ...]
    seed: int = 0

    def script(self) -> str:
        """The calls as a script."""
        return "".join(f"{c}\n" for c in self.calls)


@dataclass(frozen=True)
class Failure:
    """A case that is wrong, and how."""

    case: Case
    kind: str
    message: str

    @property
    def signature(self) -> str:
        """Failures that look the same."""
        return re.sub(r"\d+", "#", f"{self.kind} {self.message}")[:60]


@dataclass
class Tally(Counted):
    """What happened. `tried`, `taken`: calls per primitive; `refused`: per primitive and code;
    `lowering`: schedules that cannot be lowered, per code; `checked`: kernels run and right;
    `inexact`: floats too large to compare."""

    sequences: int = 0
    checked: int = 0
    inexact: int = 0
    taken_calls: Counter[int] = field(default_factory=Counter[int])
    tried: Counter[str] = field(default_factory=Counter[str])
    taken: Counter[str] = field(default_factory=Counter[str])
    refused: Counter[tuple[str, str]] = field(default_factory=Counter[tuple[str, str]])
    lowering: Counter[str] = field(default_factory=Counter[str])
    failures: list[Failure] = field(default_factory=list[Failure])


# One sequence


def make(schedule: Schedule, call: Call) -> str:
    """Make a call; the code of its refusal, "" where it is taken.

    Raises:
        FindingError: the call crashes, or a refused one leaves a trace.
    """
    before, state = str(schedule), schedule.state
    try:
        call.apply(schedule)
    except HwgenError as error:
        if schedule.state is not state or str(schedule) != before:
            raise FindingError("changed", f"{call} is refused but changes the schedule") from error
        return error.code
    except Exception as error:
        raise FindingError("crash", f"{call}: {crash_text(error)}") from error
    return ""


def check_history(schedule: Schedule, calls: Sequence[Call], before_last: str) -> None:
    """`trace` replays to the same schedule, `undo` gives the one before.

    Raises:
        FindingError: where they do not.
    """
    present = str(schedule)
    try:
        again = Schedule(schedule.workload, schedule.hardware).replay(schedule.trace())
    except HwgenError as error:
        raise FindingError("replay", f"its own trace is refused: {error}") from error
    except Exception as error:
        raise FindingError("replay", crash_text(error)) from error
    if str(again) != present:
        raise FindingError("replay", "its trace gives another schedule")
    if calls:
        again.undo()
        if str(again) != before_last:
            raise FindingError("undo", f"undoing {calls[-1]} gives another schedule")


def replayed(case: Case, hardware: HardwareSpec) -> tuple[Schedule, tuple[Call, ...]]:
    """The case's schedule and the calls that were taken.

    Raises:
        HwgenError: where the workload is none.
        FindingError: what goes wrong on the way.
    """
    schedule = Schedule(parse_workload(case.data), hardware)
    taken: list[Call] = []
    before = ""
    for call in case.calls:
        present = str(schedule)
        if not make(schedule, call):
            taken.append(call)
            before = present
    check_history(schedule, taken, before)
    return schedule, tuple(taken)


def lowered(schedule: Schedule, seed: int) -> Kernel:
    """The kernel of a schedule with data to run it on.

    Raises:
        HwgenError: where it cannot be lowered or emitted.
        FindingError: where that crashes, or makes another program than the schedule intends.
    """
    from hwgen.codegen.instances.nests import check_nest_instances

    workload = schedule.workload
    try:
        made = compile_tree(schedule)
        source = made.source
    except HwgenError:
        raise
    except Exception as error:
        raise FindingError("lowering", crash_text(error)) from error
    (program,), (placing,) = made.program.codes, made.lowering.codes
    try:
        unproved = check_nest_instances(program, placing)
    except HwgenError as error:
        raise FindingError("wrong", str(error)) from error
    if unproved:
        raise FindingError("wrong", f"not proved to execute its tree: {unproved[0]}")
    floats = any(is_float(t.dtype) for t in workload.tensors)
    inputs = draw_inputs(workload, seed, "small" if floats or seed % 2 else "random")
    return Kernel(workload, program, source, inputs, run_reference(workload, inputs))


def exact(kernel: Kernel) -> bool:
    """Whether floats are small enough for sums in any order to be the same."""
    workload = kernel.workload
    if not any(is_float(t.dtype) for t in workload.tensors):
        return True
    results = run_reference(workload, kernel.inputs, intermediates=True)
    values = (load(r, workload.tensor[name].dtype).array for name, r in results.items())
    return all(float(np.max(np.abs(v), initial=0)) < EXACT for v in values)


def check_case(case: Case, hardware: HardwareSpec, target: Target | None = HOST) -> str:
    """What is wrong with a case, kind first; empty where it is refused or right."""
    try:
        schedule, _ = replayed(case, hardware)
        kernel = lowered(schedule, case.seed)
    except HwgenError:
        return ""
    except FindingError as finding:
        return str(finding)
    if not exact(kernel):
        return ""
    (message,) = _messages([kernel], hardware, target)
    return f"wrong: {message}" if message else ""


def _messages(
    kernels: Sequence[Kernel], hardware: HardwareSpec, target: Target | None
) -> list[str]:
    """What is wrong with each kernel, as a program and, where it can be run here, as text."""
    texts = run_kernels(kernels, hardware, target) if target else [""] * len(kernels)
    return [
        text or (message and f"the program: {message}")
        for text, message in zip(texts, (executed(k, hardware) for k in kernels), strict=True)
    ]


# Drawn sequences


def drawn_case(
    draws: Draws, hardware: HardwareSpec, name: str, tally: Tally
) -> tuple[Case, Kernel | None]:
    """One random case and its kernel, None where it is refused or already failed."""
    data = random_nests(draws, name, hardware.intrinsics)
    seed = draws.choose(1 << 16)
    taken: list[Call] = []
    call: Call | None = None
    tally.sequences += 1
    try:
        schedule = Schedule(parse_workload(data), hardware)
        source = CallDraws(draws, schedule)
        count = draws(range(MAX_CALLS, 0, -1))
        before, tried = "", 0
        while tried < count:
            for call in source.calls():
                tried += 1
                present = str(schedule)
                tally.tried[call.primitive] += 1
                code = make(schedule, call)
                if code:
                    tally.refused[call.primitive, code] += 1
                else:
                    tally.taken[call.primitive] += 1
                    taken.append(call)
                    before = present
            if not schedule.loops():
                break
        call = None
        tally.taken_calls[len(taken)] += 1
        check_history(schedule, taken, before)
        kernel = lowered(schedule, seed)
    except HwgenError as error:
        tally.lowering[error.code] += 1
        return Case(data, tuple(taken), seed), None
    except FindingError as finding:
        case = Case(data, (*taken, *((call,) if call else ())), seed)
        tally.failures.append(Failure(case, finding.kind, finding.message))
        return case, None
    case = Case(data, tuple(taken), seed)
    if not exact(kernel):
        tally.inexact += 1
        return case, None
    return case, kernel


def run_batch(hardware: HardwareSpec, count: int, seed: int, target: Target | None = HOST) -> Tally:
    """Draw sequences, check them, and run their kernels as one program."""
    tally = Tally()
    found: list[tuple[Case, Kernel]] = []

    def one(random: Random) -> None:
        draws = Draws(random.randrange)
        part = Tally()
        case, kernel = drawn_case(draws, hardware, f"k{tally.sequences}", part)
        tally.add(part)
        if kernel is not None:
            found.append((case, kernel))

    for number in range(count):
        one(Random(f"{seed} {number}"))
    messages = _messages([k for _, k in found], hardware, target)
    for (case, _), message in zip(found, messages, strict=True):
        if message:
            tally.failures.append(Failure(case, "wrong", message))
        else:
            tally.checked += 1
    return tally


# Campaigns


@dataclass(frozen=True)
class ScheduleReport:
    """A campaign's result. `failures`: reduced, one of those that look the same."""

    hardware: Path
    seed: int
    tally: Tally
    failures: tuple[Failure, ...]

    @property
    def ok(self) -> bool:
        """Whether something was checked and nothing failed."""
        return not self.tally.failures and self.tally.checked > 0


def schedule_campaign(
    hardware_path: Path,
    count: int,
    seed: int,
    *,
    trust: bool = False,
    processes: int = 1,
    progress: Progress | None = None,
) -> ScheduleReport:
    """Check `count` sequences on a chip with a processor; kernels run where it speaks C. `trust` as
    in `load_hardware`.

    Raises:
        HwgenError: H703 no C compiler; H707 it would run, and is not trusted; where the chip cannot
            be loaded.
    """
    hardware = load_hardware(hardware_path, trust=trust)
    processor = hardware.processor
    target = HOST if processor is not None and processor.language == "c" else None
    if target is not None:
        refuse_foreign(hardware.foreign)
    sizes = [BATCH] * (count // BATCH) + ([count % BATCH] if count % BATCH else [])
    work = [(hardware_path, trust, n, seed * 1_000_003 + at, target) for at, n in enumerate(sizes)]
    tally = Tally()
    for part in each(_work, work, processes):
        tally.add(part)
        if progress is not None:
            progress(tally.sequences, count)
    chosen = one_of_each(tally.failures, lambda f: f.signature, _size, SHOWN_FAILURES)
    failures = tuple(reduced(f, lambda case: check_case(case, hardware, target)) for f in chosen)
    return ScheduleReport(hardware_path, seed, tally, failures)


_Work = tuple[Path, bool, int, int, Target | None]


def _work(work: _Work) -> Tally:
    path, trust, count, seed, target = work
    return run_batch(load_hardware(path, trust=trust), count, seed, target)


# Smaller failures


def _size(failure: Failure) -> int:
    return len(failure.case.calls) * 10 + len(failure.case.data["compute"])


def reduced(failure: Failure, wrong: Callable[[Case], str]) -> Failure:
    """The failure with as few calls and statements as a bounded number of runs allows; `wrong`:
    what is wrong with a case, kind first."""
    budget = SHRINK_RUNS

    def simpler(failure: Failure) -> Iterator[Failure]:
        nonlocal budget
        for case in _simpler(failure.case):
            if budget == 0:
                return
            budget -= 1
            kind, _, message = wrong(case).partition(": ")
            if kind == failure.kind:
                yield Failure(case, kind, message)

    return simplest(failure, simpler)


def _simpler(case: Case) -> Iterator[Case]:
    """Cases with one thing less."""
    statements: list[Data | str] = case.data["compute"]
    tensors: dict[str, str] = case.data["tensors"]
    for n in reversed(range(len(statements))):
        rest = [x for m, x in enumerate(statements) if m != n]
        text = " ".join(map(str, rest))
        if rest:
            used = {t: s for t, s in tensors.items() if f"{t}[" in text}
            yield replace(case, data={**case.data, "tensors": used, "compute": rest})
    for n in reversed(range(len(case.calls))):
        yield replace(case, calls=(*case.calls[:n], *case.calls[n + 1 :]))
