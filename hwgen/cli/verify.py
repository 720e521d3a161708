"""`verify`: a campaign with its progress, its table, and the command of every failure."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from hwgen.cli.progress import campaign_progress
from hwgen.cli.resolve import resolve
from hwgen.report.output import check_folder, write_files
from hwgen.spec.find import files_in, find_spec, spec_folders
from hwgen.spec.load import load_hardware
from hwgen.verify.campaign import campaign

if TYPE_CHECKING:
    from hwgen.report.records import Record
    from hwgen.verify.natural.campaign import Runs


def verify(
    spec: str,
    workloads: Sequence[str],
    settings: Sequence[str],
    examples: int,
    seed: int,
    dtypes: Sequence[str] = (),
    *,
    trust: bool = False,
    as_json: bool = False,
) -> None:
    """Run a campaign; exit status 1 where anything fails, or where nothing could be run."""
    from hwgen.report.campaigns import campaign_text
    from hwgen.report.records import campaign_record

    request = resolve(spec, workloads, settings, dtypes)
    with campaign_progress("verify", len(request.workloads) * examples) as progress:
        report = campaign(
            request.spec,
            [w.path for w in request.workloads],
            examples,
            seed,
            parameters=dict(request.parameters),
            sizes={w.path: dict(w.sizes) for w in request.workloads},
            dtypes={w.path: dict(w.dtypes) for w in request.workloads},
            trust=trust,
            progress=progress,
        )
    _end(lambda: campaign_text(report), lambda: campaign_record(report), report.ok, as_json)


def verify_schedules(
    spec: str | None,
    count: int,
    seed: int,
    jobs: int | None,
    *,
    trust: bool = False,
    as_json: bool = False,
) -> None:
    """Run a campaign of random schedules; exit status 1 where anything fails or nothing runs.

    `spec`: None where chips are drawn too.
    """
    path = None if spec is None else find_spec(spec)
    processes = jobs or os.cpu_count() or 1
    with campaign_progress("verify", count) as progress:
        step = _step(progress, "schedules")
        if path is None or load_hardware(path).units:
            from hwgen.report.campaigns import trees_text
            from hwgen.report.records import trees_record
            from hwgen.verify.tree_campaign import tree_campaign

            trees = tree_campaign(path, count, seed, processes=processes, progress=step)
            text, record, ok = trees_text(trees), trees_record(trees), trees.ok
            interrupted = trees.interrupted
        else:
            from hwgen.report.campaigns import schedules_text
            from hwgen.report.records import schedules_record
            from hwgen.verify.schedules import schedule_campaign

            made = schedule_campaign(
                path, count, seed, trust=trust, processes=processes, progress=step
            )
            text, record, ok = schedules_text(made), schedules_record(made), made.ok
            interrupted = False
    _end(lambda: text, lambda: record, ok or interrupted, as_json)
    if interrupted:
        raise KeyboardInterrupt


def verify_chips(
    spec: str | None,
    chips: int,
    seed: int,
    jobs: int | None,
    output: Path,
    *,
    as_json: bool = False,
) -> None:
    """Run a campaign of random chips; exit status 1 where anything is wrong or nothing runs.

    `output`: where the chip and the workload of each failure are written.
    """
    from hwgen.report.campaigns import chips_text, failure_files
    from hwgen.report.records import chips_record
    from hwgen.verify.chips.campaign import chip_campaign

    base = find_spec(spec) if spec is not None else None
    check_folder(output)
    processes = jobs or os.cpu_count() or 1
    with campaign_progress("verify", chips) as progress:
        step = _step(progress, "chips")
        report = chip_campaign(chips, seed, base=base, processes=processes, progress=step)
    files = failure_files(report)
    if files:
        write_files(output, files)
    _end(lambda: chips_text(report, output), lambda: chips_record(report), report.ok, as_json)


def _step(progress: Callable[[str, int, int], None], what: str) -> Callable[..., None]:
    """A campaign's progress, which names the seed of what is wrong once, as soon as it is."""
    said: set[int] = set()

    def step(done: int, of: int, wrong: Sequence[int] = ()) -> None:
        for number in wrong:
            if number not in said:
                typer.echo(f"verify: the draw of seed {number} is wrong", err=True)
        said.update(wrong)
        progress(what, done, of)

    return step


def verify_workloads(
    spec: str | None, count: int, seed: int, jobs: int | None, runs: Runs, *, as_json: bool = False
) -> None:
    """Draw natural workloads for a chip, or for every one; exit status 1 where one is wrong."""
    from hwgen.report.campaigns import natural_text
    from hwgen.report.records import natural_record
    from hwgen.verify.natural.campaign import natural_campaign

    chips = [find_spec(spec)] if spec is not None else list(files_in(spec_folders(), "spec"))
    with campaign_progress("verify", count * len(chips)) as progress:
        report = natural_campaign(
            chips,
            count,
            seed,
            runs=runs,
            processes=jobs or os.cpu_count() or 1,
            progress=lambda done, of: progress("workloads", done, of),
        )
    _end(lambda: natural_text(report), lambda: natural_record(report), report.ok, as_json)


def _end(text: Callable[[], str], record: Callable[[], Record], ok: bool, as_json: bool) -> None:
    """Print a campaign's result; exit status 1 where it is not `ok`."""
    if as_json:
        from hwgen.cli.records import print_record

        print_record("verify", record(), ok=ok)
    else:
        typer.echo(text())
    if not ok:
        raise typer.Exit(1)
