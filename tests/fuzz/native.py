"""Random shapes on this machine's own units: the emitted C, compiled as `hwgen.build` compiles it,
on arrays with no memory next to them, against the reference."""

from __future__ import annotations

import ctypes
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from hwgen.errors import HwgenError
from hwgen.model.native import FLAGS, lacking
from hwgen.model.numeric import STORAGE
from hwgen.model.reference import run_reference
from hwgen.passes.kernel import Kernel
from hwgen.passes.phase import SearchOptions
from hwgen.pipeline import compile_workload
from hwgen.spec.load import load_hardware
from hwgen.spec.table import Cell, counted, table
from hwgen.verify.compare import compare
from hwgen.verify.data import STYLES, draw_inputs
from tests.fuzz.guard_pages import ALLOCATING, allocator, compiled, run_guarded
from tests.fuzz.native_draws import FAMILIES, Draw, drawn
from tests.native_calls import native_calls

REDUCTIONS = 60
"""Runs at most that look for a smaller workload that is wrong too."""


@dataclass(frozen=True)
class Outcome:
    """`refused`: the code of a refusal; `wrong`: what is not as it must be; neither: the kernel is
    equal to the reference. `by_units`: whether units compute any of it."""

    refused: str = ""
    wrong: str = ""
    by_units: bool = True


@dataclass
class Report:
    """Outcomes of a chip's draws, by kind, and each failure as text."""

    chip: str
    equal: Counter[str] = field(default_factory=Counter[str])
    on_core: Counter[str] = field(default_factory=Counter[str])
    refused: dict[str, Counter[str]] = field(default_factory=dict[str, Counter[str]])
    failures: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])


def judge(draw: Draw, seed: int, options: SearchOptions | None = None) -> Outcome:
    """Compile a draw and run it on inputs drawn from a seed."""
    try:
        workload, hardware = draw.load(), load_hardware(draw.chip)
        kernel = compile_workload(workload, hardware, options or SearchOptions())
    except HwgenError as error:
        return Outcome(refused=error.code)
    return Outcome(wrong=run_kernel(kernel, seed), by_units=bool(kernel.program.buffers))


def run_kernel(kernel: Kernel, seed: int) -> str:
    """What is wrong with a kernel's C on this machine; empty where nothing is.

    Raises:
        HwgenError: H703 no C compiler; H704 the compiler refuses the C.
        SystemExit: this machine lacks the chip's instructions.
    """
    if found := lacking(kernel.hardware):
        raise SystemExit(f"{kernel.hardware.name}: this machine has no {', '.join(found)}")
    inputs = draw_inputs(kernel.workload, seed, STYLES[seed % 3])
    outputs = [t.name for t in kernel.workload.outputs]
    with tempfile.TemporaryDirectory(prefix="hwgen-native-") as folder:
        allocator()
        flags = (*FLAGS, "-O3", *ALLOCATING)
        file = compiled(kernel.source.c, "kernel", flags, Path(folder))
        calls = native_calls(kernel, ctypes.CDLL(str(file)))
        rooms: dict[str, dict[str, object]] = {
            name: {"shape": room.shape, "dtype": str(STORAGE[room.dtype]), "align": room.align}
            for name, room in calls.rooms.items()
        }
        runs = {"plain": [asdict(calls.plain)]}
        if calls.packed is not None:
            runs["packed"] = [asdict(call) for call in (*calls.before, calls.packed)]
        found = run_guarded(file, rooms, runs, inputs, outputs)
    if found.wrong:
        return found.wrong
    expected = run_reference(kernel.workload, inputs)
    for run, outputs in found.outputs.items():
        if (
            difference := compare(kernel.workload, inputs, outputs, expected).difference
        ) is not None:
            return f"{run}: {difference}"
    return ""


def smaller(draw: Draw) -> Iterator[Draw]:
    """Workloads with one size less."""
    for name, value in draw.sizes.items():
        for less in (1, value // 2, value - 1):
            if 0 < less < value:
                yield replace(draw, sizes={**draw.sizes, name: less})


def reduced(draw: Draw, seed: int, wrong: Callable[[Draw, int], str]) -> Draw:
    """The smallest workload found that is wrong too."""
    left = REDUCTIONS
    while True:
        for other in smaller(draw):
            if not left:
                return draw
            left -= 1
            if wrong(other, seed):
                draw = other
                break
        else:
            return draw


def _wrong(draw: Draw, seed: int) -> str:
    return judge(draw, seed).wrong


def campaign(
    chips: Sequence[str], count: int, seed: int, progress: Callable[[int, int], None]
) -> list[Report]:
    """Draw so many workloads, for each chip in turn.

    Raises:
        HwgenError: as `run_kernel`.
    """
    reports = {chip: Report(chip) for chip in chips}
    for number in range(count):
        report = reports[chips[number % len(chips)]]
        kind, draw = drawn(report.chip, seed + number)
        outcome = judge(draw, seed + number)
        if outcome.wrong:
            least = reduced(draw, seed + number, _wrong)
            told = f"inputs of seed {seed + number}: {_wrong(least, seed + number)}"
            report.failures.append((kind, f"{least.command()}\n  {told}"))
        elif outcome.refused:
            report.refused.setdefault(kind, Counter())[outcome.refused] += 1
        else:
            report.equal[kind] += 1
            report.on_core[kind] += not outcome.by_units
        progress(number + 1, count)
    return [*reports.values()]


def native_text(reports: Sequence[Report]) -> str:
    """The outcomes, and every failure as a command."""
    rows: list[tuple[Cell, ...]] = []
    for report in reports:
        failed = Counter(kind for kind, _ in report.failures)
        for kind in FAMILIES[report.chip]:
            refused = counted(report.refused.get(kind, Counter()))
            equal, core = report.equal[kind], report.on_core[kind]
            rows.append((report.chip, kind, equal, core, refused, failed[kind]))
    heads = ("chip", "workload", "equal", "of them on the core", "refused", "wrong")
    failures = [text for report in reports for _, text in report.failures]
    return "\n\n".join([table(heads, rows), *failures])
