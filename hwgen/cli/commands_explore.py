"""`explore`: many chips, and which of them are the best."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated, Optional, cast, get_args

import typer

from hwgen.cli import complete
from hwgen.cli.guard import guarded
from hwgen.cli.options import (
    CacheOption,
    ClusterOption,
    Command,
    DtypeOption,
    IntOrNone,
    JsonOption,
    PathOrNone,
    SearchSecondsOption,
    SeedOption,
    SpecOption,
    TextsOrNone,
    TimeoutOption,
    choice_option,
    epilog,
    jobs_option,
    path,
    set_option,
    workers,
    workload_option,
)
from hwgen.spec.suggest import suggestion

commands = typer.Typer()


class ReportsOf(str, Enum):
    """What `--reports` takes."""

    FRONT = "front"
    ALL = "all"


MEASURES = ("cycles", "traffic", "energy", "area")


def _measures(text: str) -> tuple[str, ...]:
    """The names of an `--objective`.

    Raises:
        typer.BadParameter: where one is unknown or stands twice.
    """
    names = tuple(name.strip() for name in text.split(","))
    for name in names:
        if name not in MEASURES:
            meant = suggestion(name, MEASURES)
            said = f"{name!r} is not one of {', '.join(MEASURES)}{f'; {meant}' if meant else ''}"
            raise typer.BadParameter(said)
    if len(set(names)) < len(names):
        raise typer.BadParameter(f"{text}: each objective once")
    return names


@commands.command(
    cls=Command,
    epilog=epilog(
        "explore --spec CHIP --workload gemm --set BLOCK_IN=8,16,32 --set BATCH=1..4x2",
        "explore --spec CHIP --workload gemm --set M=1,64 --set BLOCK_OUT=8..32x2 --csv chips.csv",
        "explore --spec CHIP --model model.tflite --set BATCH=1..16x2 --db results.db --jobs 8",
        "explore --spec CHIP --model a.tflite --model b.onnx --set BATCH=1..16x2 "
        "--set BLOCK_IN=4..64x2 --set BLOCK_OUT=4..64x2 --budget 30",
        "explore --spec my_chip --workload gemm --set KIB=16..256x2 --objective cycles,energy,area",
        "explore --spec CHIP --workload gemm --set BATCH=1..16x2 --html chips.html --reports front",
        "explore --spec CHIP --model model.tflite --set BATCH=1..16x2 "
        "--cluster tcp://127.0.0.1:8786 --html chips.html",
    ),
)
def explore(
    *,
    spec: SpecOption,
    workloads: Annotated[
        TextsOrNone,
        workload_option("A file, or a name that `hwgen list` shows. May be repeated."),
    ] = None,
    models: Annotated[
        TextsOrNone,
        typer.Option(
            "--model", metavar="MODEL", help="A model, MODEL.tflite or MODEL.onnx. May be repeated."
        ),
    ] = None,
    without: Annotated[
        TextsOrNone,
        typer.Option(
            "--without",
            metavar="KIND",
            help="Leave out the layers of this kind, as softmax. May be repeated.",
        ),
    ] = None,
    settings: Annotated[
        TextsOrNone,
        set_option(
            "parameter of the chip or a size of the workloads",
            "Values: NAME=8,16,32; a range NAME=1..8; with a step NAME=8..32+8; with a factor "
            "NAME=64..512x2.",
        ),
    ] = None,
    dtypes: DtypeOption = None,
    objective: Annotated[
        str,
        typer.Option(
            metavar="NAMES",
            parser=_measures,
            help="Compare chips by these, of cycles, traffic (off-chip bytes), energy and area. "
            "The first but area is that of each kernel's search.",
            autocompletion=complete.objectives,
        ),
    ] = "cycles,traffic",
    budget: Annotated[
        IntOrNone,
        typer.Option(
            min=1,
            metavar="N",
            help="Let Optuna's sampler choose N chips. Left out: every combination.",
        ),
    ] = None,
    db: Annotated[
        PathOrNone,
        typer.Option(
            "--db",
            metavar="FILE",
            parser=path,
            help="Keep results in this SQLite file, and compute nothing that is in it.",
        ),
    ] = None,
    jobs: Annotated[IntOrNone, jobs_option("Number of processes that compile.")] = None,
    cluster: ClusterOption = None,
    timeout: TimeoutOption = None,
    csv: Annotated[
        PathOrNone,
        typer.Option(
            "--csv", metavar="FILE", parser=path, help="Write a line for each chip and workload."
        ),
    ] = None,
    parquet: Annotated[
        PathOrNone,
        typer.Option(
            "--parquet", metavar="FILE", parser=path, help="Write the same lines as Parquet."
        ),
    ] = None,
    html: Annotated[
        PathOrNone,
        typer.Option(
            "--html", metavar="FILE", parser=path, help="Write an HTML page with linked figures."
        ),
    ] = None,
    reports: Annotated[
        Optional[ReportsOf],  # noqa: UP045
        choice_option(
            ReportsOf,
            "With --html: write a report of each kernel beside the page, which links to them; for "
            "the chips of the front, or for all.",
        ),
    ] = None,
    seed: SeedOption = 0,
    search_seconds: SearchSecondsOption = None,
    no_cache: CacheOption = False,
    as_json: JsonOption = False,
) -> None:
    """Compare chips: the same kernels for many values of a chip's parameters.

    Prints the chips with their objectives, the Pareto front and how much each parameter changes. A
    chip that cannot run a workload is a result too, with the code of the error. Equal layers are
    compiled once. A run that was killed goes on where it was, with the same --db.
    """
    if not workloads and not models:
        hint = "name a workload, or a model with --model"
        raise typer.BadParameter(hint, param_hint="'--workload'")
    if reports is not None and html is None:
        raise typer.BadParameter("the page that links to them is --html", param_hint="'--reports'")
    wanted = workers(jobs, cluster, timeout)
    with guarded("explore" if as_json else ""):
        from hwgen.cli import explore as body
        from hwgen.exploration.points import Measure
        from hwgen.exploration.run import Plan

        measures = cast("tuple[Measure, ...]", objective)
        assert get_args(Measure) == MEASURES
        body.explore(
            body.Asked(
                spec, workloads or [], [Path(m) for m in models or []], without or [],
                settings or [], dtypes or [],
                Plan(measures, budget, seed, search_seconds, not no_cache), wanted,
            ),
            body.Files(db, csv, parquet, html, reports.value if reports else None),
            as_json=as_json,
        )  # fmt: skip
