"""`python -m tests.fuzz`: random schedules and random chips, which test hwgen itself."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated

import typer

from hwgen.cli.guard import guarded
from hwgen.cli.options import (
    IntOrNone,
    PathOrNone,
    SeedOption,
    TextOrNone,
    TrustOption,
    jobs_option,
    output_option,
    spec_option,
)
from hwgen.cli.progress import campaign_progress
from hwgen.report.output import check_folder, write_files
from hwgen.spec.find import find_spec
from hwgen.spec.load import load_hardware
from tests.fuzz import schedules as processor
from tests.fuzz import tree_campaign as units
from tests.fuzz.chips import campaign as of_chips
from tests.fuzz.native import campaign as native_campaign
from tests.fuzz.native import native_text
from tests.fuzz.native_draws import FAMILIES
from tests.fuzz.report import FUZZ, chips_text, failure_files, schedules_text, trees_text

FAILURES = Path("hwgen_failures")
"""Where `chips` writes."""

Count = Annotated[int, typer.Argument(min=1, metavar="N", help="How many are drawn.")]
Jobs = Annotated[IntOrNone, jobs_option("Number of processes.")]

app = typer.Typer(
    help="Test hwgen itself on random schedules or random chips.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    add_completion=False,
)


@app.command()
def schedules(
    count: Count,
    *,
    spec: Annotated[TextOrNone, spec_option("Left out: chips are drawn too.")] = None,
    jobs: Jobs = None,
    seed: SeedOption = 0,
    trust: TrustOption = False,
) -> None:
    """Test random schedules of random workloads: each is refused, or equal to the reference."""
    with guarded():
        path = None if spec is None else find_spec(spec)
        processes = jobs or os.cpu_count() or 1
        interrupted = False
        with campaign_progress("fuzz", count) as progress:
            step = _step(progress, "schedules")
            if path is None or load_hardware(path).units:
                trees = units.tree_campaign(path, count, seed, processes=processes, progress=step)
                text, ok, interrupted = trees_text(trees), trees.ok, trees.interrupted
            else:
                made = processor.schedule_campaign(
                    path, count, seed, trust=trust, processes=processes, progress=step
                )
                text, ok = schedules_text(made), made.ok
        typer.echo(text)
        if interrupted:
            raise KeyboardInterrupt
        _end(ok)


@app.command()
def chips(
    count: Count,
    *,
    spec: Annotated[TextOrNone, spec_option("Variants of it are drawn.")] = None,
    jobs: Jobs = None,
    output: Annotated[
        PathOrNone, output_option(f"Write failures to this folder. Left out: {FAILURES}.")
    ] = None,
    seed: SeedOption = 0,
) -> None:
    """Test random chips, or variants of one, each with a random workload."""
    folder = output or FAILURES
    with guarded():
        base = None if spec is None else find_spec(spec)
        check_folder(folder)
        processes = jobs or os.cpu_count() or 1
        with campaign_progress("fuzz", count) as progress:
            step = _step(progress, "chips")
            report = of_chips.chip_campaign(
                count, seed, base=base, processes=processes, progress=step
            )
        if files := failure_files(report):
            write_files(folder, files)
        typer.echo(chips_text(report, folder))
        _end(report.ok)


@app.command()
def native(
    count: Count,
    *,
    spec: Annotated[TextOrNone, spec_option("Left out: all that it knows, in turn.")] = None,
    seed: SeedOption = 0,
) -> None:
    """Test random shapes in C on this machine's own units, on arrays between guard pages."""
    if spec is not None and spec not in FAMILIES:
        raise typer.BadParameter(f"{spec}: there are draws for {', '.join(FAMILIES)}")
    with guarded():
        chips = [*FAMILIES] if spec is None else [spec]
        with campaign_progress("fuzz", count) as progress:
            reports = native_campaign(chips, count, seed, _step(progress, "shapes"))
        typer.echo(native_text(reports))
        _end(not any(report.failures for report in reports))


def _step(progress: Callable[[str, int, int], None], what: str) -> Callable[..., None]:
    """A campaign's progress, which names the seed of a wrong draw once, as soon as it is known."""
    said: set[int] = set()

    def step(done: int, of: int, wrong: Sequence[int] = ()) -> None:
        for number in wrong:
            if number not in said:
                typer.echo(f"fuzz: the draw of seed {number} is wrong", err=True)
        said.update(wrong)
        progress(what, done, of)

    return step


def _end(ok: bool) -> None:
    if not ok:
        raise typer.Exit(1)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return the exit status: 0, 1 where anything is wrong, 2 for wrong usage,
    130 if interrupted."""
    try:
        app(args=None if arguments is None else list(arguments), prog_name=" ".join(FUZZ))
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    return 0


if __name__ == "__main__":
    sys.exit(main())
