"""`verify`: a campaign with its progress, its table, and the command of every failure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import typer

from hwgen.cli.progress import campaign_progress, tell_lost
from hwgen.cli.resolve import resolve
from hwgen.spec.find import files_in, find_spec, spec_folders
from hwgen.verify.campaign import campaign

if TYPE_CHECKING:
    from hwgen.report.records import Record
    from hwgen.verify.executors import Workers
    from hwgen.verify.natural.campaign import Runs


def verify(
    spec: str,
    workloads: Sequence[str],
    settings: Sequence[str],
    examples: int,
    seed: int,
    dtypes: Sequence[str],
    wanted: Workers,
    *,
    trust: bool = False,
    as_json: bool = False,
) -> None:
    """Run a campaign; exit status 1 where anything fails, or where nothing could be run."""
    from hwgen.report.campaigns import campaign_text
    from hwgen.report.records import campaign_record

    request = resolve(spec, workloads, settings, dtypes)
    with (
        campaign_progress("verify", len(request.workloads) * examples) as progress,
        wanted.executor(len(request.workloads)) as workers,
    ):
        report = campaign(
            request.spec,
            [w.path for w in request.workloads],
            examples,
            seed,
            parameters=dict(request.parameters),
            sizes={w.path: dict(w.sizes) for w in request.workloads},
            dtypes={w.path: dict(w.dtypes) for w in request.workloads},
            trust=trust,
            workers=workers,
            progress=progress,
        )
        tell_lost(workers)
    _end(lambda: campaign_text(report), lambda: campaign_record(report), report.ok, as_json)


def verify_workloads(
    spec: str | None, count: int, seed: int, wanted: Workers, runs: Runs, *, as_json: bool = False
) -> None:
    """Draw natural workloads for a chip, or for every one; exit status 1 where one is wrong."""
    from hwgen.report.campaigns import natural_text
    from hwgen.report.records import natural_record
    from hwgen.verify.natural.campaign import natural_campaign

    chips = [find_spec(spec)] if spec is not None else list(files_in(spec_folders(), "spec"))
    with (
        campaign_progress("verify", count * len(chips)) as progress,
        wanted.executor() as workers,
    ):
        report = natural_campaign(
            chips,
            count,
            seed,
            runs=runs,
            workers=workers,
            progress=lambda done, of: progress("workloads", done, of),
        )
        tell_lost(workers)
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
