"""`explore`: kernels for many chips, and which of the chips are the best."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import typer

from hwgen.cli.axes import expand, limit, values_of
from hwgen.cli.progress import campaign_progress
from hwgen.cli.resolve import WorkloadRequest, assign, assign_types, parse_assignments, parse_types
from hwgen.cli.sweep import problem_of
from hwgen.exploration.guided import Axis, combinations, sampler_package
from hwgen.exploration.points import Account, Problem, check_measures
from hwgen.exploration.reports import Reports
from hwgen.exploration.results import Results, results_csv, results_record, results_text
from hwgen.exploration.run import Plan, Space, explored, kernels_of, network_problems
from hwgen.exploration.store import Store
from hwgen.exploration.tables import parquet_package, results_table
from hwgen.exploration.work import DEFECTS
from hwgen.report.output import Writer, check_file, write_files
from hwgen.spec.find import find_spec, find_workload
from hwgen.spec.load import load_hardware
from hwgen.verify.executors import Executor, Workers, lost_text

MOST_CHIPS = 100_000
"""Chips that are compiled for without a budget."""
MOST_SIZES = 1024
"""Combinations of sizes of a workload."""


@dataclass(frozen=True, slots=True)
class Asked:
    """The command line. `without`: kinds of layers that are left out."""

    spec: str
    workloads: Sequence[str]
    models: Sequence[Path]
    without: Sequence[str]
    settings: Sequence[str]
    dtypes: Sequence[str]
    plan: Plan
    workers: Workers


@dataclass(frozen=True, slots=True)
class Files:
    """Where results go; None: nowhere. `reports`: of which chips `html` has pages of kernels."""

    db: Path | None = None
    csv: Path | None = None
    parquet: Path | None = None
    html: Path | None = None
    reports: Literal["front", "all"] | None = None


def explore(asked: Asked, files: Files, *, as_json: bool) -> None:
    """Compile for every chip, or for those that a sampler chooses, and report.

    Raises:
        HwgenError: as `find_spec`, `expand`, `explored`, `Workers` and `Store`; H046 without a
            package that an option needs. A chip without a kernel is a line of the report.
    """
    space, plan = _space(asked), asked.plan
    for path in (files.csv, files.parquet, files.html):
        if path is not None:
            check_file(path)
    if files.parquet is not None:
        parquet_package()
    if plan.chips(space) < combinations(space.axes):
        sampler_package()  # A package that is missing is told before workers are started.
    limit(plan.chips(space), MOST_CHIPS)
    with Store(files.db) as store, asked.workers.executor() as workers:
        with campaign_progress("explore", plan.chips(space) * space.kernels) as progress:
            results, account = explored(
                space, plan, workers, store, lambda done, of: progress("kernels", done, of)
            )
        written: list[str] = []
        if files.csv is not None:
            written += _write(files.csv, results_csv(results))
        if files.parquet is not None:
            table, write = results_table(results), parquet_package().write_table
            written += _write(files.parquet, lambda path: write(table, path))
        made = _reports(asked, space, files, results, workers)
        account.lost, account.late = workers.lost, workers.late
    if files.html is not None:
        from hwgen.exploration.page import explore_page

        written += _write(files.html, explore_page(results, made.kernels))
    defects = [t.error for t in results.totals if t.error and t.error.code in DEFECTS]
    ok = bool(results.ran) and not defects and not made.missing
    if as_json:
        from hwgen.cli.records import print_record

        run = {"computed": account.computed, "found": account.found, "equal": account.equal,
               "lost_workers": account.lost, "late_workers": account.late}  # fmt: skip
        record = results_record(results) | {"written": list(written), "run": run}
        print_record("explore", record, ok=ok, errors=[*defects, *made.missing])
    else:
        typer.echo(results_text(results))
        for file in written:
            typer.echo(f"wrote {file}")
        if files.reports is not None:
            typer.echo(f"reports of kernels: {made.new:,} written, {made.kept:,} there already")
        for missing in made.missing:
            typer.echo(str(missing), err=True)
        typer.echo(_account_text(account), err=True)
    if not ok:
        raise typer.Exit(1)


def _reports(
    asked: Asked, space: Space, files: Files, results: Results, workers: Executor
) -> Reports:
    """The kernels of the chips that the page shows, with reports of those that are asked for."""
    if files.html is None:
        return Reports()
    chips = results.front if files.reports == "front" else results.ran
    reported = chips if files.reports else ()
    found = Reports(files.html.with_name(f"{files.html.stem}_kernels"))
    works = {t: tuple(kernels_of(space, asked.plan, t)) for t in reported}
    with campaign_progress("reports", sum(map(len, works.values()))) as progress:
        found.write(works, workers, lambda done, of: progress("kernels", done, of))
    return found


def _write(path: Path, content: str | Writer) -> list[str]:
    write_files(path.parent, {path.name: content})
    return [str(path)]


def _account_text(account: Account) -> str:
    lost = lost_text(account.lost, account.late)
    kernels = "kernel" if account.computed == 1 else "kernels"
    return (
        f"{account.computed:,} {kernels} compiled, {account.found:,} found in the file of results, "
        f"{account.equal:,} equal to another one{'; ' if lost else ''}{lost}"
    )


def _space(asked: Asked) -> Space:
    spec = find_spec(asked.spec)
    check_measures(load_hardware(spec), asked.plan.measures)
    paths = tuple(dict.fromkeys(find_workload(w, spec) for w in asked.workloads))
    values = [(text, values_of(text)) for text in asked.settings]
    first = [given[0] for _, given in values]
    parameters, _ = assign(parse_assignments(first), spec, paths, every=False)
    of_chip: dict[str, list[int]] = {}
    of_sizes: list[str] = []
    for text, given in values:
        (one,) = parse_assignments(given[:1])
        if one.name in dict(parameters) and one.owner != "workload":
            numbers = [a.value for v in given for a in parse_assignments([v])]
            of_chip[one.name] = sorted(numbers)
        else:
            of_sizes.append(text)
    problems = dict.fromkeys(_problems(asked, paths, of_sizes))
    return Space(
        spec,
        tuple(Axis(n, tuple(v)) for n, v in of_chip.items() if len(v) > 1),
        tuple((n, v[0]) for n, v in of_chip.items() if len(v) == 1),
        (*problems, *network_problems(asked.models, asked.without)),
    )


def _problems(asked: Asked, paths: Sequence[Path], sizes: Sequence[str]) -> list[Problem]:
    """Every workload in each of its sizes."""
    types = assign_types(parse_types(asked.dtypes), paths, every=False)
    found: list[Problem] = []
    for combination in expand(sizes, MOST_SIZES):
        _, given = assign(parse_assignments(combination), find_spec(asked.spec), paths, every=False)
        for path in paths:
            wanted = WorkloadRequest(path, given[path], types[path])
            found.append(problem_of(wanted, tuple(sizes)))
    return found
