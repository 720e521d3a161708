"""`verify`: a campaign with a progress bar, its table, and the command of every failure."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from time import monotonic

import typer

from hwgen.cli.output import write_files
from hwgen.cli.resolve import resolve
from hwgen.errors import HwgenError
from hwgen.spec.find import files_in, find_spec, spec_folders
from hwgen.spec.load import load_hardware
from hwgen.verify.campaign import campaign

QUIET_SECONDS = 2.0
"""Without a terminal, progress is silent for this long."""
LINE_SECONDS = 5.0
"""Without a terminal, a line of progress this often."""

Report = Callable[[str, int, int], None]


def verify(
    spec: str, workloads: Sequence[str], settings: Sequence[str], examples: int, seed: int
) -> None:
    """Run a campaign; exit status 1 where anything fails, or where nothing could be run."""
    from hwgen.report.campaign import campaign_text

    request = resolve(spec, workloads, settings)
    with _progress(len(request.workloads) * examples) as progress:
        report = campaign(
            request.spec,
            [w.path for w in request.workloads],
            examples,
            seed,
            parameters=dict(request.parameters),
            sizes={w.path: dict(w.sizes) for w in request.workloads},
            progress=progress,
        )
    typer.echo(campaign_text(report))
    if not report.ok:
        raise typer.Exit(1)


def verify_schedules(spec: str, sequences: int, seed: int) -> None:
    """Run a campaign of random schedules; exit status 1 where anything fails or nothing runs."""
    from hwgen.report.schedules import schedules_text
    from hwgen.verify.schedules import BATCH, schedule_campaign

    path = find_spec(spec)
    hardware = load_hardware(path)
    if hardware.processor is None or hardware.units:
        raise HwgenError(
            "H621",
            f"{hardware.name} has units, and schedules are drawn for processors",
            location=hardware.location,
            found="a chip with units",
            allowed="a chip that is a processor alone",
            repair="leave out --schedules; or hwgen verify --chips N, for units",
        )
    with _progress(sequences) as progress:
        report = schedule_campaign(
            path,
            sequences,
            seed,
            processes=min(os.cpu_count() or 1, -(-sequences // BATCH)),
            progress=lambda done, of: progress("schedules", done, of),
        )
    typer.echo(schedules_text(report))
    if not report.ok:
        raise typer.Exit(1)


def verify_chips(spec: str | None, chips: int, seed: int, jobs: int | None, output: Path) -> None:
    """Run a campaign of random chips; exit status 1 where anything is wrong or nothing runs.

    `output`: where the chip and the workload of each failure are written.
    """
    from hwgen.report.chips import chips_text, failure_files
    from hwgen.verify.chips.campaign import chip_campaign

    base = find_spec(spec) if spec is not None else None
    said: set[int] = set()
    with _progress(chips) as progress:

        def step(done: int, of: int, wrong: tuple[int, ...]) -> None:
            for number in wrong:
                if number not in said:
                    typer.echo(f"verify: the draw of seed {number} is wrong", err=True)
            said.update(wrong)
            progress("chips", done, of)

        report = chip_campaign(
            chips, seed, base=base, processes=jobs or os.cpu_count() or 1, progress=step
        )
    files = failure_files(report)
    if files:
        write_files(output, files)
    typer.echo(chips_text(report, output))
    if not report.ok:
        raise typer.Exit(1)


def verify_workloads(spec: str | None, count: int, seed: int, jobs: int | None) -> None:
    """Draw natural workloads for a chip, or for every one; exit status 1 where one is wrong."""
    from hwgen.report.natural import natural_text
    from hwgen.verify.natural.campaign import natural_campaign

    chips = [find_spec(spec)] if spec is not None else list(files_in(spec_folders()))
    with _progress(count * len(chips)) as progress:
        report = natural_campaign(
            chips,
            count,
            seed,
            processes=jobs or os.cpu_count() or 1,
            progress=lambda done, of: progress("workloads", done, of),
        )
    typer.echo(natural_text(report))
    if not report.ok:
        raise typer.Exit(1)


@contextmanager
def _progress(total: int) -> Generator[Report, None, None]:
    """A bar on a terminal; elsewhere a line now and then, once a run is long."""
    done: dict[str, int] = {}
    if sys.stderr.isatty():
        from rich.console import Console
        from rich.progress import Progress

        with Progress(console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task("verify", total=total)

            def advance(workload: str, count: int, of: int) -> None:
                done[workload] = count
                finished = sum(done.values())
                bar.update(task, completed=finished, description=f"{workload} {count}/{of}")

            yield advance
        return
    last = monotonic() + QUIET_SECONDS - LINE_SECONDS

    def line(workload: str, count: int, of: int) -> None:
        nonlocal last
        if monotonic() - last >= LINE_SECONDS:
            last = monotonic()
            typer.echo(f"verify: {workload} {count}/{of}", err=True)

    yield line
