"""`generate` with several values of a `--set`: every combination, in one table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product
from math import prod
from pathlib import Path

import typer

from hwgen.cli.generate import compile_one, load
from hwgen.cli.progress import campaign_progress
from hwgen.cli.resolve import Request, WorkloadRequest, parse_assignments, resolve
from hwgen.cli.searching import Search
from hwgen.errors import HwgenError
from hwgen.report.output import check_folder, write_files
from hwgen.report.records import Record
from hwgen.report.sweep import Point, sweep_records, sweep_svg, sweep_text
from hwgen.spec.hardware import HardwareSpec

MAX_POINTS = 1024
"""Combinations of one sweep."""


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
    combinations = expand(settings)
    # All are read first: a name that nobody has is no reason to compile the others.
    requests = [resolve(spec, workloads, c, dtypes) for c in combinations]
    if plot is not None:
        check_folder(plot.parent)
    points: list[Point] = []
    total = sum(len(r.workloads) for r in requests)
    with campaign_progress("generate", total) as progress:
        for combination, request in zip(combinations, requests, strict=True):
            for point in _points(request, combination, settings, search):
                points.append(point)
                progress("points", len(points), total)
    chip = requests[0].spec.stem
    if plot is not None:
        write_files(plot.parent, {plot.name: sweep_svg(chip, points)})
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
        typer.echo(sweep_text(chip, points))
        if plot is not None:
            typer.echo(f"\nwrote {plot.name} to {plot.parent}")
    if not ok:
        raise typer.Exit(1)


def expand(settings: Sequence[str]) -> list[tuple[str, ...]]:
    """Every combination of the values, the last name's changing fastest.

    Raises:
        HwgenError: H004 where a value is no integer or there are too many combinations.
    """
    choices: list[list[str]] = []
    for text in settings:
        name, equals, values = text.partition("=")
        choices.append([f"{name}{equals}{v}" for v in values.split(",")])
        parse_assignments([choices[-1][0]])
        for one in choices[-1]:
            parse_assignments([one])
        if len(set(choices[-1])) < len(choices[-1]):
            raise HwgenError(
                "H004", "--set has a value twice", found=text, repair="keep one of the two"
            )
    if prod(map(len, choices)) > MAX_POINTS:
        raise HwgenError(
            "H004",
            "--set has too many combinations",
            found=f"{prod(map(len, choices)):,}",
            allowed=f"at most {MAX_POINTS:,}",
            repair="take fewer values, or several commands",
        )
    return list(product(*choices))


def _points(
    request: Request, combination: Sequence[str], settings: Sequence[str], search: Search
) -> Iterator[Point]:
    """A point for each workload of a combination."""
    swept = {text.partition("=")[0].strip() for text in settings if "," in text}
    named = [
        (a.name, a.value)
        for text in combination
        for a in parse_assignments([text])
        if text.partition("=")[0].strip() in swept
    ]
    try:
        hardware = load(request, search)
    except HwgenError as error:
        for wanted in request.workloads:
            yield Point(wanted.path.stem, tuple(named), (), error=error.diagnostic)
        return
    parameters = dict(request.parameters)
    for wanted in request.workloads:
        sizes = dict(wanted.sizes)
        of_chip = tuple((n, v) for n, v in named if n in parameters)
        of_workload = tuple((n, v) for n, v in named if n in sizes)
        plain = Point(wanted.path.stem, of_chip, of_workload)
        try:
            yield _compiled(wanted, hardware, plain, search)
        except HwgenError as error:
            yield replace(plain, error=error.diagnostic)


def _compiled(
    wanted: WorkloadRequest,
    hardware: HardwareSpec,
    plain: Point,
    search: Search,
) -> Point:
    """The point of a combination, with the figures of its kernel."""
    from hwgen.report.text import measure

    m = measure(compile_one(wanted, hardware, search))
    cycles, bound, moved = m.timing.cycles, m.bound.cycles, m.off_chip_bytes
    return replace(plain, cycles=cycles, bound=bound, off_chip_bytes=moved)
