"""`explore`: kernels for many chips, and which of the chips are the best."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path

import typer

from hwgen.cli.axes import expand, limit, values_of
from hwgen.cli.progress import campaign_progress
from hwgen.cli.resolve import WorkloadRequest, assign, assign_types, parse_assignments, parse_types
from hwgen.cli.sweep import problem_of
from hwgen.errors import HwgenError
from hwgen.explore.guided import Axis, combinations, guided, sampler_package
from hwgen.explore.points import (
    Account,
    Chip,
    Explorer,
    Layer,
    Measure,
    Problem,
    check_measures,
    searched_for,
)
from hwgen.explore.results import Results, Total, results_csv, results_record, results_text
from hwgen.explore.store import Store
from hwgen.explore.work import DEFECTS
from hwgen.network.compiled import read_graph
from hwgen.network.operators.layer import Computation
from hwgen.network.operators.layer import Layer as NetworkLayer
from hwgen.network.operators.table import layers_of
from hwgen.passes.phase import SearchOptions
from hwgen.report.output import check_folder, write_files
from hwgen.spec.find import find_spec, find_workload
from hwgen.spec.load import load_hardware
from hwgen.spec.suggest import suggestion
from hwgen.verify.executors import executor

MOST_CHIPS = 100_000
"""Chips that are compiled for without a budget."""
MOST_SIZES = 1024
"""Combinations of sizes of a workload."""


@dataclass(frozen=True, slots=True)
class Asked:
    """The command line. `without`: kinds of layers that are left out; `budget`: chips to
    choose at most; None: all."""

    spec: str
    workloads: Sequence[str]
    models: Sequence[Path]
    without: Sequence[str]
    settings: Sequence[str]
    dtypes: Sequence[str]
    measures: tuple[Measure, ...]
    budget: int | None
    seed: int
    jobs: int | None
    cluster: str | None
    seconds: float | None
    cached: bool


@dataclass(frozen=True, slots=True)
class Files:
    """Where results go; None: nowhere."""

    db: Path | None = None
    csv: Path | None = None
    html: Path | None = None


def explore(asked: Asked, files: Files, *, as_json: bool) -> None:
    """Compile for every chip, or for those that a sampler chooses, and report.

    Raises:
        HwgenError: as `find_spec`, `read_graph`, `expand`, `check_measures`, `executor` and
            `Store`. A chip without a kernel is a line of the report.
    """
    space = _space(asked)
    for path in (files.csv, files.html):
        if path is not None:
            check_folder(path.parent)
    results, account = _explored(asked, space, files)
    written: list[str] = []
    if files.csv is not None:
        written += _write(files.csv, results_csv(results))
    if files.html is not None:
        from hwgen.explore.page import explore_page

        written += _write(files.html, explore_page(results))
    defects = [t.error for t in results.totals if t.error and t.error.code in DEFECTS]
    ok = bool(results.ran) and not defects
    if as_json:
        from hwgen.cli.records import print_record

        run = {"computed": account.computed, "found": account.found, "equal": account.equal,
               "lost_workers": account.lost}  # fmt: skip
        record = results_record(results) | {"written": list(written), "run": run}
        print_record("explore", record, ok=ok, errors=defects)
    else:
        typer.echo(results_text(results))
        for file in written:
            typer.echo(f"wrote {file}")
        typer.echo(_account_text(account), err=True)
    if not ok:
        raise typer.Exit(1)


def _write(path: Path, text: str) -> list[str]:
    write_files(path.parent, {path.name: text})
    return [str(path)]


def _account_text(account: Account) -> str:
    lost = f"; {account.lost} workers died" if account.lost else ""
    return (
        f"{account.computed:,} kernels compiled, {account.found:,} found in the file of results, "
        f"{account.equal:,} equal to another one{lost}"
    )


@dataclass(frozen=True, slots=True)
class _Space:
    """All chips that may be asked for. `fixed`: parameters with one value."""

    spec: Path
    axes: tuple[Axis, ...]
    fixed: tuple[tuple[str, int], ...]
    problems: tuple[Problem, ...]

    def chip(self, values: Sequence[int]) -> Chip:
        """The chip with a value of each axis."""
        chosen = tuple((a.name, v) for a, v in zip(self.axes, values, strict=True))
        try:
            return Chip(chosen, load_hardware(self.spec, dict((*self.fixed, *chosen))))
        except HwgenError as error:
            return Chip(chosen, error=error.diagnostic)


def _space(asked: Asked) -> _Space:
    spec = find_spec(asked.spec)
    check_measures(load_hardware(spec), asked.measures)
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
    return _Space(
        spec,
        tuple(Axis(n, tuple(v)) for n, v in of_chip.items() if len(v) > 1),
        tuple((n, v[0]) for n, v in of_chip.items() if len(v) == 1),
        (*problems, *_networks(asked)),
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


def _networks(asked: Asked) -> list[Problem]:
    """The layers of each model.

    Raises:
        HwgenError: H004 where none is of a kind that is left out; as `read_graph`.
    """
    graphs = [read_graph(path) for path in dict.fromkeys(asked.models)]
    layers = [(g.name, layers_of(g)) for g in graphs]
    kinds = sorted({x.computation.kind for _, own in layers for x in own if x.computation})
    for kind in asked.without:
        if kind not in kinds:
            raise HwgenError(
                "H004", "--without names layers that no model has", found=f"--without {kind}",
                allowed=", ".join(kinds) or "none, as there is no --model",
                repair=suggestion(kind, kinds),
            )  # fmt: skip
    return [Problem(name, (), _distinct(own, asked.without), network=True) for name, own in layers]


def _distinct(layers: Sequence[NetworkLayer], without: Sequence[str]) -> tuple[Layer, ...]:
    """The computations of a network; equal layers are one."""
    found: dict[Computation, Layer] = {}
    for number, layer in enumerate(layers):
        own = layer.computation
        if own is None or own.kind in without:
            continue
        known = found.get(own) or Layer(f"{number} {own.kind}", own.workload(own.kind), 0)
        found[own] = replace(known, times=known.times + 1)
    return tuple(found.values())


def _explored(asked: Asked, space: _Space, files: Files) -> tuple[Results, Account]:
    every = combinations(space.axes)
    budget = min(asked.budget or every, every)
    if budget < every:
        sampler_package()  # A package that is missing is told before workers are started.
    limit(budget, MOST_CHIPS)
    kernels = budget * sum(len(p.layers) for p in space.problems)
    options = SearchOptions(asked.seconds, objective=searched_for(asked.measures))
    totals: list[Total] = []
    with (
        campaign_progress("explore", kernels) as progress,
        Store(files.db) as store,
        executor(asked.jobs or os.cpu_count() or 1, asked.cluster) as workers,
    ):
        explorer = Explorer(workers, store, options, asked.cached)
        explorer.told = lambda done, total: progress("kernels", done, total)
        results = Results(space.spec.stem, asked.measures, ())

        def measured(wanted: Sequence[tuple[int, ...]]) -> list[tuple[float, ...] | None]:
            made = [space.chip(values) for values in wanted]
            points = explorer.points([(c, p) for c in made for p in space.problems])
            new = [Total(c.settings, tuple(next(points) for _ in space.problems)) for c in made]
            totals.extend(new)
            return [None if t.error else results.values(t) for t in new]

        if budget == every:
            measured([*product(*(a.values for a in space.axes))])
        else:
            guided(space.axes, budget, asked.seed, len(asked.measures), measured)
    return Results(space.spec.stem, asked.measures, tuple(totals)), explorer.account
