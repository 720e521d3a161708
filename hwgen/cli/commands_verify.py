"""`verify`: campaigns of random kernels and of natural workloads."""

from __future__ import annotations

from typing import Annotated, Optional

import typer

from hwgen.cli.guard import guarded
from hwgen.cli.options import (
    DATA_HELP,
    ClusterOption,
    Command,
    Data,
    DtypeOption,
    Engine,
    IntOrNone,
    JsonOption,
    SeedOption,
    SetOption,
    TextOrNone,
    TextsOrNone,
    TimeoutOption,
    TrustOption,
    choice_option,
    epilog,
    jobs_option,
    spec_option,
    workloads_option,
)
from hwgen.cli.options import workers as workers_of

EXAMPLES = 25
"""Of each workload."""

commands = typer.Typer()


@commands.command(
    cls=Command,
    epilog=epilog(
        "verify --spec CHIP",
        "verify --spec CHIP --workload gemm --examples 200 --seed 7",
        "verify --workloads 100          (natural workloads, on every chip)",
        "verify --workloads 100 --data special --engine both    (NaN, infinities; also as C)",
    ),
)
def verify(
    *,
    spec: Annotated[
        TextOrNone,
        spec_option("May be left out with --workloads."),
    ] = None,
    workloads: Annotated[TextsOrNone, workloads_option("")] = None,
    settings: SetOption = None,
    dtypes: DtypeOption = None,
    examples: Annotated[
        IntOrNone,
        typer.Option(min=1, metavar="N", help=f"Examples per workload. Left out: {EXAMPLES}."),
    ] = None,
    natural: Annotated[
        IntOrNone,
        typer.Option(
            "--workloads",
            min=1,
            metavar="N",
            help="Measure the share of N natural workloads that SPEC, or every chip, compiles.",
        ),
    ] = None,
    data: Annotated[
        Optional[Data],  # noqa: UP045
        choice_option(Data, f"With --workloads: {DATA_HELP} Left out: small."),
    ] = None,
    engine: Annotated[
        Optional[Engine],  # noqa: UP045
        choice_option(
            Engine,
            "With --workloads: run the simulator, the emitted C, or both. C is compiled with the "
            "flags of users, by each compiler found, in turn. Left out: the simulator.",
        ),
    ] = None,
    jobs: Annotated[
        IntOrNone,
        jobs_option("Number of processes. Each takes a workload, of --workloads ten at a time."),
    ] = None,
    cluster: ClusterOption = None,
    timeout: TimeoutOption = None,
    seed: SeedOption = 0,
    trust: TrustOption = False,
    as_json: JsonOption = False,
) -> None:
    """Test kernels with random sizes, data and schedules.

    Every example is compiled and run through every check. Some also run as C on this machine, so a
    processor's file that does not come with hwgen needs --trust. A failure is reduced to the
    smallest case and printed as a command. The exit status is then 1.
    """
    if natural is None:
        if spec is None:
            hint = "name a chip; only --workloads goes without one"
            raise typer.BadParameter(hint, param_hint="'--spec'")
        alone = {"--data": data, "--engine": engine}
        for option in (option for option, value in alone.items() if value is not None):
            raise typer.BadParameter("it goes with --workloads alone", param_hint=f"'{option}'")
    elif workloads or settings or dtypes:
        raise typer.BadParameter("workloads and sizes are drawn too", param_hint="'--workloads'")
    elif examples is not None:
        hint = "it counts examples of a workload, not --workloads"
        raise typer.BadParameter(hint, param_hint="'--examples'")
    workers = workers_of(jobs, cluster, timeout)
    with guarded("verify" if as_json else ""):
        from hwgen.cli import verify as body

        if natural is not None:
            from hwgen.verify.natural.campaign import Runs

            runs = Runs((data or Data.SMALL).value, (engine or Engine.PYTHON).value)
            body.verify_workloads(spec, natural, seed, workers, runs, as_json=as_json)
            return
        assert spec is not None
        wanted, count = workloads or [], examples or EXAMPLES
        drawn_from = (wanted, settings or [], count, seed, dtypes or [])
        body.verify(spec, *drawn_from, workers, trust=trust, as_json=as_json)
