"""`verify`: campaigns of random kernels, schedules, chips and workloads."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Optional

import typer

from hwgen.cli.guard import guarded
from hwgen.cli.options import (
    DATA_HELP,
    Command,
    Data,
    DtypeOption,
    Engine,
    IntOrNone,
    JsonOption,
    PathOrNone,
    SeedOption,
    SetOption,
    TextOrNone,
    TextsOrNone,
    TrustOption,
    choice_option,
    epilog,
    jobs_option,
    output_option,
    spec_option,
    workloads_option,
)

EXAMPLES = 25
"""Of each workload."""
FAILURES = Path("hwgen_failures")
"""Where `--chips` writes."""

commands = typer.Typer()


@commands.command(
    cls=Command,
    epilog=epilog(
        "verify --spec CHIP",
        "verify --spec CHIP --workload gemm --examples 200 --seed 7",
        "verify --spec CHIP --schedules 1000",
        "verify --schedules 1000         (on random chips)",
        "verify --chips 200 --seed 1     (random chips)",
        "verify --workloads 100          (natural workloads, on every chip)",
        "verify --workloads 100 --data special --engine both    (NaN, infinities; also as C)",
    ),
)
def verify(
    *,
    spec: Annotated[
        TextOrNone,
        spec_option("May be left out with --chips, --schedules or --workloads."),
    ] = None,
    workloads: Annotated[TextsOrNone, workloads_option("")] = None,
    settings: SetOption = None,
    dtypes: DtypeOption = None,
    examples: Annotated[
        IntOrNone,
        typer.Option(min=1, metavar="N", help=f"Examples per workload. Left out: {EXAMPLES}."),
    ] = None,
    schedules: Annotated[
        IntOrNone,
        typer.Option(
            min=1,
            metavar="N",
            help="Test N random schedules, on random workloads; without --spec also on random "
            "chips.",
        ),
    ] = None,
    chips: Annotated[
        IntOrNone,
        typer.Option(
            min=1,
            metavar="N",
            help="Test N random chips, or variants of SPEC, each with a random workload.",
        ),
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
        jobs_option("With --chips, --schedules or --workloads: number of processes."),
    ] = None,
    output: Annotated[
        PathOrNone,
        output_option(f"With --chips: write failures to this folder. Left out: {FAILURES}."),
    ] = None,
    seed: SeedOption = 0,
    trust: TrustOption = False,
    as_json: JsonOption = False,
) -> None:
    """Test kernels with random sizes, data and schedules.

    Every example is compiled and run through every check. Some also run as C on this machine, so a
    processor's file that does not come with hwgen needs --trust. A failure is reduced to the
    smallest case and printed as a command. The exit status is then 1.
    """
    campaigns = {"--chips": chips, "--schedules": schedules, "--workloads": natural}
    asked = [option for option, count in campaigns.items() if count is not None]
    drawn = asked[0] if asked else ""
    if spec is None and not drawn:
        hint = f"name a chip; only {', '.join(campaigns)} go without one"
        raise typer.BadParameter(hint, param_hint="'--spec'")
    if len(asked) > 1:
        raise typer.BadParameter(f"one of {' and '.join(asked)}", param_hint=f"'{asked[1]}'")
    if drawn and (workloads or settings or dtypes):
        raise typer.BadParameter("workloads and sizes are drawn too", param_hint=f"'{drawn}'")
    if drawn and examples is not None:
        hint = "'--examples'"
        raise typer.BadParameter(f"it counts examples of a workload, not {drawn}", param_hint=hint)
    if jobs is not None and not drawn:
        hint = "it goes with --chips, --schedules or --workloads"
        raise typer.BadParameter(hint, param_hint="'--jobs'")
    if (data or engine) and natural is None:
        hint = "'--data'" if data else "'--engine'"
        raise typer.BadParameter("it goes with --workloads alone", param_hint=hint)
    if output is not None and chips is None:
        raise typer.BadParameter("it goes with --chips alone", param_hint="'--output'")
    with guarded("verify" if as_json else ""):
        from hwgen.cli import verify as body

        if chips is not None:
            body.verify_chips(spec, chips, seed, jobs, output or FAILURES, as_json=as_json)
            return
        if natural is not None:
            from hwgen.verify.natural.campaign import Runs

            runs = Runs((data or Data.SMALL).value, (engine or Engine.PYTHON).value)
            body.verify_workloads(spec, natural, seed, jobs, runs, as_json=as_json)
            return
        if schedules is not None:
            body.verify_schedules(spec, schedules, seed, jobs, trust=trust, as_json=as_json)
            return
        assert spec is not None
        wanted, count = workloads or [], examples or EXAMPLES
        drawn_from = (wanted, settings or [], count, seed, dtypes or [])
        body.verify(spec, *drawn_from, trust=trust, as_json=as_json)
