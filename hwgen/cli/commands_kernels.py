"""`generate`, `simulate` and `explain`: the commands about one chip's kernels."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import typer

from hwgen.cli import complete
from hwgen.cli.guard import guarded
from hwgen.cli.options import (
    DATA_HELP,
    CacheOption,
    Command,
    Data,
    DtypeOption,
    Engine,
    JsonOption,
    NoAutoOption,
    ObjectiveName,
    ObjectiveOption,
    PathOrNone,
    ReportOption,
    ScriptOption,
    SearchSecondsOption,
    SeedOption,
    SetOption,
    SlackOption,
    SpecOption,
    SweepOption,
    TargetName,
    TextOrNone,
    TextsOrNone,
    TraceOption,
    TrustOption,
    UnitsOnlyOption,
    WorkloadOption,
    choice_option,
    epilog,
    one,
    output_option,
    path,
    several,
    workloads_option,
)
from hwgen.cli.pictures import Pictures
from hwgen.cli.searching import Search
from hwgen.cli.stages import NEST_STAGES, STAGES
from hwgen.cli.target import Target

commands = typer.Typer()


def _search(
    seconds: float | None,
    objective: ObjectiveName,
    slack: float | None,
    *,
    cached: bool,
    units_only: bool,
) -> Search:
    """What the options of a command say about searches; `slack` in per cent."""
    if slack is not None and objective is not ObjectiveName.CYCLES:
        said = f"it is of cycles, and the objective is {objective.value}"
        raise typer.BadParameter(said, param_hint="'--slack'")
    part = None if slack is None else slack / 100
    return Search(seconds, cached, objective=objective.value, slack=part, units_only=units_only)


@commands.command(
    cls=Command,
    epilog=epilog(
        "generate --spec CHIP --workload gemm -o out",
        "generate --spec CHIP --workload gemm --set M=64 --stage schedule",
        "generate --spec LOOPS --workload gemm --dtype T=float32 --dtype ACC=float32",
        "generate --spec CHIP --workload gemm --stage emit > gemm.c",
        "generate --spec CHIP --workload conv2d --search-seconds 5 --no-cache",
        "generate --spec CHIP --workload gemm --objective traffic",
        "generate --spec CHIP --workload gemm --slack 3",
        "generate --spec CHIP --workload gemm --report gemm.html --trace gemm.trace.json",
        "generate --spec CHIP --workload gemm --stage script > gemm.py",
        "generate --spec CHIP --workload gemm --script gemm.py --no-auto",
        "generate --spec LOOPS --workload gemm --stage script",
        "generate --spec CHIP --workload gemm --target firmware --weights b=b.npy -o firmware",
        "generate --spec CHIP --workload gemm --set M=1,16 --set N=64,256 --plot gemm.svg",
        "generate --spec CHIP            (every workload that the chip can run)",
    ),
)
def generate(
    *,
    spec: SpecOption,
    workloads: Annotated[TextsOrNone, workloads_option(" that the chip can run")] = None,
    settings: SweepOption = None,
    dtypes: DtypeOption = None,
    stage: Annotated[
        TextOrNone,
        typer.Option(
            metavar="NAME",
            help=f"Print the result of one stage: {', '.join(STAGES)}. For a processor alone: "
            f"{', '.join(NEST_STAGES)}.",
            autocompletion=complete.stages,
        ),
    ] = None,
    output: Annotated[
        PathOrNone,
        output_option(
            "Write NAME.c, NAME.h and NAME_model.c to this folder. For firmware, also the files "
            "that a program needs to include them."
        ),
    ] = None,
    target: Annotated[
        TargetName,
        choice_option(
            TargetName, "firmware: kernels use no heap; the caller provides a workspace."
        ),
    ] = TargetName.HOST,
    weights: Annotated[
        TextsOrNone,
        typer.Option(
            "--weights",
            metavar="T=FILE.npy",
            help="With --target firmware: compile the values of a constant into the kernel, in "
            "the layout that the chip reads. May be repeated.",
        ),
    ] = None,
    report: ReportOption = None,
    trace: TraceOption = None,
    script: ScriptOption = None,
    no_auto: NoAutoOption = False,
    objective: ObjectiveOption = ObjectiveName.CYCLES,
    slack: SlackOption = None,
    units_only: UnitsOnlyOption = False,
    search_seconds: SearchSecondsOption = None,
    no_cache: CacheOption = False,
    plot: Annotated[
        PathOrNone,
        typer.Option(
            "--plot",
            metavar="FILE.svg",
            parser=path,
            help="With several values of a --set: also write a plot of cycles against off-chip "
            "bytes.",
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Compile workloads to C and report on them.

    The report lists the compiler's decisions, the cycles and their lower bound. With several values
    of a --set it is a table that marks the Pareto front in cycles and off-chip bytes.
    """
    swept = any(map(several, settings or ()))
    of_one = {
        "--stage": stage is not None,
        "--output": output is not None,
        "--target": target is TargetName.FIRMWARE,
        "--report": report is not None,
        "--trace": trace is not None,
        "--script": script is not None,
        "--no-auto": no_auto,
    }
    alone = next((option for option, given in of_one.items() if given), "")
    if swept and alone:
        said = "it is of one kernel, and --set has several values"
        raise typer.BadParameter(said, param_hint=f"'{alone}'")
    if plot is not None and (not swept or plot.suffix.lower() != ".svg"):
        said = "it ends in .svg" if swept else "it goes with several values, as --set N=8,16"
        raise typer.BadParameter(said, param_hint="'--plot'")
    if as_json and stage is not None:
        raise typer.BadParameter("a stage is text", param_hint="'--json'")
    if script is not None and len(workloads or []) != 1:
        raise typer.BadParameter("a script is for one workload", param_hint="'--script'")
    if weights and (target is not TargetName.FIRMWARE or len(workloads or []) != 1):
        said = "they are compiled into the firmware of one workload"
        raise typer.BadParameter(said, param_hint="'--weights'")
    if units_only and script is not None:
        said = "a script itself says what units compute"
        raise typer.BadParameter(said, param_hint="'--units-only'")
    search = _search(search_seconds, objective, slack, cached=not no_cache, units_only=units_only)
    with guarded("generate" if as_json else ""):
        if swept:
            from hwgen.cli.sweep import sweep

            quiet = replace(search, bar=False)
            asked_for = (spec, workloads or [], settings or [], dtypes or [])
            sweep(*asked_for, quiet, plot, as_json=as_json)
            return
        from hwgen.cli import generate as body
        from hwgen.cli.scripts import Script

        pictures = Pictures(report, trace)
        asked = Script(script, auto=not no_auto)
        made_for = Target(target is TargetName.FIRMWARE, tuple(weights or ()))
        body.generate(
            spec,
            workloads or [],
            settings or [],
            stage,
            output,
            search,
            pictures,
            asked,
            made_for,
            dtypes or [],
            as_json=as_json,
        )


@commands.command(
    cls=Command,
    epilog=epilog(
        "simulate --spec CHIP --workload gemm --seed 1",
        "simulate --spec CHIP --workload gemm --input a=a.npy --output-dir results",
        "simulate --spec CHIP --workload gemm --engine c",
        "simulate --spec CHIP --workload gemm --script gemm.py --no-auto",
        "simulate --spec CHIP --workload gemm --search-seconds 5 --no-cache",
    ),
)
def simulate(
    *,
    spec: SpecOption,
    workload: WorkloadOption,
    settings: SetOption = None,
    dtypes: DtypeOption = None,
    inputs: Annotated[
        TextsOrNone,
        typer.Option(
            "--input",
            metavar="T=FILE.npy",
            help="Values of an input tensor. May be repeated. Left out: random.",
        ),
    ] = None,
    output_dir: Annotated[
        PathOrNone,
        typer.Option(
            "--output-dir",
            metavar="DIR",
            parser=path,
            help="Write every output to this folder as TENSOR.npy.",
        ),
    ] = None,
    seed: SeedOption = 0,
    data: Annotated[Data, choice_option(Data, DATA_HELP)] = Data.RANDOM,
    schedule: Annotated[
        int,
        typer.Option(min=0, metavar="RANK", help="Take the schedule of this rank; 0 is the best."),
    ] = 0,
    engine: Annotated[
        Engine,
        choice_option(
            Engine,
            "python: run the simulator. c: run the emitted C, with $CFLAGS; for units on the "
            "generated C model. both: run the C too if there is a compiler.",
        ),
    ] = Engine.BOTH,
    trust: TrustOption = False,
    report: ReportOption = None,
    trace: TraceOption = None,
    script: ScriptOption = None,
    no_auto: NoAutoOption = False,
    objective: ObjectiveOption = ObjectiveName.CYCLES,
    slack: SlackOption = None,
    units_only: UnitsOnlyOption = False,
    search_seconds: SearchSecondsOption = None,
    no_cache: CacheOption = False,
    as_json: JsonOption = False,
) -> None:
    """Run a compiled workload and compare it with a reference.

    It runs in the simulator and as emitted C. Prints cycles, how busy each unit was, traffic and
    bank conflicts. The exit status is 1 if the outputs differ. The C runs on this machine. If it
    contains text of a processor's file that does not come with hwgen, it runs only with --trust.
    """
    wanted = one(workload)
    if schedule and (script is not None or no_auto):
        raise typer.BadParameter("a script has one schedule", param_hint="'--schedule'")
    if units_only and script is not None:
        said = "a script itself says what units compute"
        raise typer.BadParameter(said, param_hint="'--units-only'")
    search = _search(search_seconds, objective, slack, cached=not no_cache, units_only=units_only)
    with guarded("simulate" if as_json else ""):
        from hwgen.cli import simulate as body
        from hwgen.cli.scripts import Script

        body.simulate(
            spec=spec,
            workload=wanted,
            settings=settings or [],
            dtypes=dtypes or [],
            inputs=inputs or [],
            output_dir=output_dir,
            seed=seed,
            data=data.value,
            schedule=schedule,
            engine=engine.value,
            trust=trust,
            search=search,
            pictures=Pictures(report, trace),
            script=Script(script, auto=not no_auto),
            as_json=as_json,
        )


@commands.command(
    cls=Command,
    epilog=epilog(
        "explain --spec CHIP --workload gemm",
        "explain --spec CHIP --workload depthwise_conv2d",
    ),
)
def explain(
    spec: SpecOption,
    workload: WorkloadOption,
    settings: SetOption = None,
    dtypes: DtypeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show how each intrinsic matches, or why it does not.

    For each statement and intrinsic, prints the binding, or the first condition that fails and the
    nearest repair.
    """
    wanted = one(workload)
    with guarded("explain" if as_json else ""):
        from hwgen.cli import inspect

        inspect.explain(spec, wanted, settings or [], dtypes or [], as_json=as_json)
