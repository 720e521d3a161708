"""`generate` with several values of a `--set`: every combination, in one table."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path

import typer

from hwgen.cli.axes import expand
from hwgen.cli.generate import load
from hwgen.cli.options import several
from hwgen.cli.progress import campaign_progress
from hwgen.cli.resolve import WorkloadRequest, resolve
from hwgen.cli.searching import Search
from hwgen.errors import HwgenError
from hwgen.exploration.points import Chip, Explorer, Layer, Problem, Settings
from hwgen.exploration.store import Store
from hwgen.passes.phase import SearchOptions
from hwgen.report.output import check_folder, write_files
from hwgen.report.records import Record
from hwgen.report.sweep import sweep_records, sweep_svg, sweep_text
from hwgen.spec.find import Kind
from hwgen.verify.executors import Processes


def sweep(
    spec: str,
    workloads: Sequence[str],
    settings: Sequence[str],
    dtypes: Sequence[str],
    search: Search,
    plot: Path | None,
    *,
    as_json: bool,
) -> None:
    """Compile every combination and print the table; exit status 1 where nothing compiles.

    Raises:
        HwgenError: as `resolve`, of any combination; H004 too many; H009 the plot cannot be
            written. A combination that has no kernel is a line of the table.
    """
    # All are read first: a name that nobody has is no reason to compile the others.
    requests = [resolve(spec, workloads, c, dtypes) for c in expand(settings)]
    if plot is not None:
        check_folder(plot.parent)
    wanted: list[tuple[Chip, Problem]] = []
    for request in requests:
        chosen = swept(request.parameters, "spec", settings)
        try:
            chip = Chip(chosen, load(request, search))
        except HwgenError as error:
            chip = Chip(chosen, error=error.diagnostic)
        wanted += [(chip, problem_of(w, tuple(settings))) for w in request.workloads]
    with (
        campaign_progress("generate", len(wanted)) as progress,
        Processes(1) as workers,
        Store() as store,
    ):
        explorer = Explorer(workers, store, options_of(search), search.cached)
        explorer.told = lambda done, total: progress("points", done, total)
        points = [*explorer.points(wanted)]
    chip_name = requests[0].spec.stem
    if plot is not None:
        write_files(plot.parent, {plot.name: sweep_svg(chip_name, points)})
    ok = any(p.error is None for p in points)
    if as_json:
        from hwgen.cli.records import print_record

        written = [] if plot is None else [str(plot)]
        record: Record = {
            "spec": str(requests[0].spec),
            "points": sweep_records(points),
            "written": written,
        }
        print_record("generate", record, ok=ok)
    else:
        typer.echo(sweep_text(chip_name, points))
        if plot is not None:
            typer.echo(f"\nwrote {plot.name} to {plot.parent}")
    if not ok:
        raise typer.Exit(1)


def swept(given: Settings, owner: Kind, settings: Sequence[str]) -> Settings:
    """Those of a file's numbers that have several values."""
    texts = [text.partition("=")[0].strip() for text in settings if several(text)]
    names = {t.removeprefix(f"{owner}.") for t in texts}
    return tuple((name, value) for name, value in given if name in names)


@cache
def problem_of(wanted: WorkloadRequest, settings: tuple[str, ...]) -> Problem:
    """A workload in the sizes asked for, or why there is none."""
    name, chosen = wanted.path.stem, swept(wanted.sizes, "workload", settings)
    try:
        return Problem(name, chosen, (Layer(name, wanted.load()),))
    except HwgenError as error:
        return Problem(name, chosen, (), error=error.diagnostic)


def options_of(search: Search) -> SearchOptions:
    """Options of each kernel's search, wherever it runs."""
    return SearchOptions(
        search.seconds,
        objective=search.objective,
        slack=search.slack,
        units_only=search.units_only,
    )
