"""The commands and their options; bodies are imported only when a command runs."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated, Optional

import typer

from hwgen.cli.guard import guarded
from hwgen.cli.help import on
from hwgen.cli.pictures import Pictures
from hwgen.cli.searching import Search
from hwgen.cli.target import Target
from hwgen.spec.find import SPEC_FOLDER, shipped_in

STAGES = (
    "load", "scop", "dependences", "match", "schedule", "script", "layout", "allocate", "lower",
    "emit", "model", "simulate",
)  # fmt: skip
"""What `generate --stage` can show, in the pipeline's order."""

NEST_STAGES = ("load", "state", "schedule", "script", "lower", "emit")
"""What it can show for chips whose kernels are loops on a processor."""

EXAMPLES = 25
"""Of each workload, in `verify`."""
FAILURES = Path("hwgen_failures")
"""Where `verify --chips` writes."""


class Engine(str, Enum):
    """Who executes a kernel in `simulate`."""

    BOTH = "both"
    PYTHON = "python"
    C = "c"


class TargetName(str, Enum):
    """What `generate` writes C for."""

    HOST = "host"
    FIRMWARE = "firmware"


class Data(str, Enum):
    """How `simulate` draws tensors that are not given."""

    RANDOM = "random"
    EXTREMES = "extremes"
    SMALL = "small"


class Sync(str, Enum):
    """How a first chip of `init` orders its units."""

    NONE = "none"
    TOKENS = "tokens"
    EVENTS = "events"
    BARRIER = "barrier"
    SCOREBOARD = "scoreboard"


def _some_chip(*, processor: bool = False) -> str:
    """A chip with units and micro-kernels, or a processor, to name in examples: such chips have
    calls for every integer workload, so that the examples run as printed."""
    section = "\nprocessor:" if processor else "\nmicro_kernels:"
    chips = shipped_in(SPEC_FOLDER)
    fitting = (p.stem for p in chips if section in p.read_text(encoding="utf-8"))
    return min(fitting, default="CHIP.yaml")


def _epilog(*commands: str) -> str:
    # The backspace keeps the lines below it as they are.
    lines = "\n".join(f"  hwgen {command}" for command in commands)
    lines = lines.replace("CHIP", _some_chip()).replace("LOOPS", _some_chip(processor=True))
    return "\b\nExamples:\n" + lines


app = typer.Typer(
    name="hwgen",
    help="Compile a workload for the chip that a YAML file describes, and check the result.",
    epilog=_epilog(
        "generate --spec CHIP --workload gemm -o out",
        "simulate --spec CHIP --workload gemm --set M=4",
        "explain --spec CHIP --workload depthwise_conv2d",
        "help H422",
    ),
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _path(text: str) -> Path:
    """A path on the command line; an empty one, which an unset variable leaves, is no path."""
    if not text:
        raise typer.BadParameter("the path is empty; the current folder is '.'")
    return Path(text)


SpecOption = Annotated[
    str,
    typer.Option(
        "--spec", metavar="SPEC", help="The chip: a file, or a name that `hwgen list` shows."
    ),
]
WorkloadOption = Annotated[
    list[str],  # A list, so that a second one is refused and not taken in silence.
    typer.Option(
        "--workload", metavar="W", help="The workload: a file, or a name that `hwgen list` shows."
    ),
]
SetOption = Annotated[
    Optional[list[str]],  # noqa: UP045 - typer evaluates this on Python 3.10 too
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="Set a parameter of the chip or a size of the workload; spec.NAME and workload.NAME "
        "tell them apart. May be repeated.",
    ),
]
SeedOption = Annotated[
    int, typer.Option("--seed", min=0, metavar="S", help="Seed of everything random.")
]

SearchSecondsOption = Annotated[
    Optional[float],  # noqa: UP045
    typer.Option(
        "--search-seconds",
        min=0.0,
        metavar="N",
        help="End the search for a schedule after N seconds too, with the best found until then, "
        "which then depends on the machine; the report says so where a search was cut short. "
        "Without this a search ends after an amount of work that is counted.",
    ),
]
CacheOption = Annotated[
    bool,
    typer.Option(
        "--no-cache", help="Search even where an earlier run kept its result; keep nothing."
    ),
]
ReportOption = Annotated[
    Optional[Path],  # noqa: UP045
    typer.Option(
        "--report",
        metavar="PATH",
        parser=_path,
        help="Write an HTML page of each kernel: a folder, or a file that ends in .html.",
    ),
]
TraceOption = Annotated[
    Optional[Path],  # noqa: UP045
    typer.Option(
        "--trace",
        metavar="PATH",
        parser=_path,
        help="Write a trace of each kernel that Perfetto and chrome://tracing open: a folder, or "
        "a file that ends in .json.",
    ),
]
ScriptOption = Annotated[
    Optional[Path],  # noqa: UP045
    typer.Option(
        "--script",
        metavar="FILE",
        parser=_path,
        help="Start from a schedule script, as `generate --stage script` prints it, and let the "
        "scheduler go on.",
    ),
]
NoAutoOption = Annotated[
    bool, typer.Option("--no-auto", help="Take the script's schedule as it is.")
]


def _one(workloads: list[str]) -> str:
    if len(workloads) > 1:
        raise typer.BadParameter("this command takes one workload", param_hint="'--workload'")
    return workloads[0]


@app.callback(invoke_without_command=True)
def root(
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    if version:
        from importlib.metadata import version as installed

        typer.echo(f"hwgen {installed('hwgen')}")
        raise typer.Exit


@app.command(epilog=_epilog("check CHIP", "check my_chip.yaml --set NAME=2"))
def check(
    spec: Annotated[
        str, typer.Argument(metavar="SPEC", help="A file, or a name that `hwgen list` shows.")
    ],
    settings: SetOption = None,
) -> None:
    """Validate a chip's file and say what is in it."""
    with guarded():
        from hwgen.cli import inspect

        inspect.check(spec, settings or [])


@app.command(
    epilog=_epilog(
        "init my_chip",
        "init my_chip --units 3 --sync events",
        "init my_chip --like CHIP",
    )
)
def init(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The chip's name.")],
    units: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(
            min=1,
            max=3,
            metavar="N",
            help="1: one unit does everything; 2: one moves data, one computes; 3: one loads, one "
            "computes, one stores. Left out: 2.",
        ),
    ] = None,
    sync: Annotated[
        Optional[Sync],  # noqa: UP045
        typer.Option(help="How units are ordered. Left out: tokens; none where there is one unit."),
    ] = None,
    like: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(metavar="SPEC", help="Copy this chip's file under the new name instead."),
    ] = None,
) -> None:
    """Write a first chip, a workload and a stub of the vendor's header here, to be changed.

    The chip is complete: it compiles a GEMM as it is. Nothing that is there is replaced, but for
    the schema that editors read.
    """
    if like is not None and (units is not None or sync is not None):
        raise typer.BadParameter("the copied chip has units of its own", param_hint="'--like'")
    count = units or (1 if sync is Sync.NONE else 2)
    kind = sync or (Sync.NONE if count == 1 else Sync.TOKENS)
    if (count == 1) != (kind is Sync.NONE):
        said = "one unit needs none" if count == 1 else f"{count} units need some"
        raise typer.BadParameter(said, param_hint="'--sync'")
    if not (name.isascii() and name.isidentifier() and name[0] != "_"):
        said = f"{name!r} is no name: letters, digits and _, a letter first"
        raise typer.BadParameter(said, param_hint="'NAME'")
    with guarded():
        from hwgen.cli import init as body

        if like is not None:
            body.like(name, like)
        else:
            body.new_chip(name, count, kind)


@app.command("list", epilog=_epilog("list", "list --json"))
def list_(
    *, as_json: Annotated[bool, typer.Option("--json", help="As JSON, with whole texts.")] = False
) -> None:
    """Show the chips and workloads that can be named: those here, and those that come with hwgen.

    A file here hides one of the same name that comes with hwgen.
    """
    with guarded():
        from hwgen.cli import listing

        listing.show(as_json=as_json)


@app.command(epilog=_epilog("schema > hwgen.schema.json", "schema --workload"))
def schema(
    workload: Annotated[
        bool, typer.Option("--workload", help="The schema of workload files instead.")
    ] = False,
) -> None:
    """Print the JSON Schema of chip files."""
    with guarded():
        from hwgen.cli import inspect

        inspect.schema(workload=workload)


@app.command(
    epilog=_epilog(
        "generate --spec CHIP --workload gemm -o out",
        "generate --spec CHIP --workload gemm --set M=64 --stage schedule",
        "generate --spec CHIP --workload gemm --stage emit > gemm.c",
        "generate --spec CHIP --workload conv2d --search-seconds 5 --no-cache",
        "generate --spec CHIP --workload gemm --report gemm.html --trace gemm.json",
        "generate --spec CHIP --workload gemm --stage script > gemm.py",
        "generate --spec CHIP --workload gemm --script gemm.py --no-auto",
        "generate --spec LOOPS --workload gemm --stage script",
        "generate --spec CHIP --workload gemm --target firmware --weights b=b.npy -o firmware",
        "generate --spec CHIP            (every workload that the chip can run)",
    )
)
def generate(
    *,
    spec: SpecOption,
    workloads: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option(
            "--workload",
            metavar="W",
            help="A file, or a name that `hwgen list` shows; may be repeated. "
            "Left out: all that the chip can run.",
        ),
    ] = None,
    settings: SetOption = None,
    stage: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            metavar="NAME",
            help=f"Print one stage's result: {', '.join(STAGES)}; for kernels that are loops on a "
            f"processor {', '.join(NEST_STAGES)}.",
        ),
    ] = None,
    output: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(
            "-o",
            "--output",
            metavar="DIR",
            parser=_path,
            help="Write NAME.c, NAME.h and NAME_model.c here; for firmware also what a program "
            "needs to take them in.",
        ),
    ] = None,
    target: Annotated[
        TargetName,
        typer.Option(
            help="firmware: nothing takes memory from a heap; the caller gives a workspace."
        ),
    ] = TargetName.HOST,
    weights: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option(
            "--weights",
            metavar="T=FILE.npy",
            help="With --target firmware: values of a constant, compiled in as the chip reads "
            "them; may be repeated.",
        ),
    ] = None,
    report: ReportOption = None,
    trace: TraceOption = None,
    script: ScriptOption = None,
    no_auto: NoAutoOption = False,
    search_seconds: SearchSecondsOption = None,
    no_cache: CacheOption = False,
) -> None:
    """Compile workloads to C and report on them.

    The report says what was decided, the cycles, and the lower bound on them.
    """
    if script is not None and len(workloads or []) != 1:
        raise typer.BadParameter("a script is for one workload", param_hint="'--script'")
    if weights and (target is not TargetName.FIRMWARE or len(workloads or []) != 1):
        said = "they are compiled into the firmware of one workload"
        raise typer.BadParameter(said, param_hint="'--weights'")
    with guarded():
        from hwgen.cli import generate as body
        from hwgen.cli.nest import Script

        search = Search(search_seconds, cached=not no_cache)
        pictures = Pictures(report, trace)
        asked = Script(script, auto=not no_auto)
        made_for = Target(target is TargetName.FIRMWARE, tuple(weights or ()))
        body.generate(
            spec, workloads or [], settings or [], stage, output, search, pictures, asked, made_for
        )


@app.command(
    epilog=_epilog(
        "simulate --spec CHIP --workload gemm --seed 1",
        "simulate --spec CHIP --workload gemm --input a=a.npy --output-dir results",
        "simulate --spec CHIP --workload gemm --engine c",
        "simulate --spec CHIP --workload gemm --script gemm.py --no-auto",
        "simulate --spec CHIP --workload gemm --search-seconds 5 --no-cache",
    )
)
def simulate(
    *,
    spec: SpecOption,
    workload: WorkloadOption,
    settings: SetOption = None,
    inputs: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option(
            "--input",
            metavar="T=FILE.npy",
            help="Values of an input tensor; may be repeated. Left out: random.",
        ),
    ] = None,
    output_dir: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(
            "--output-dir",
            metavar="DIR",
            parser=_path,
            help="Write every output as TENSOR.npy here.",
        ),
    ] = None,
    seed: SeedOption = 0,
    data: Annotated[
        Data, typer.Option(help="How random tensors are drawn: extremes are the type's ends.")
    ] = Data.RANDOM,
    schedule: Annotated[
        int,
        typer.Option(min=0, metavar="RANK", help="Take the schedule of this rank; 0: the best."),
    ] = 0,
    engine: Annotated[
        Engine,
        typer.Option(
            help="The simulator in Python, the emitted C (with $CFLAGS; of units, on the generated "
            "C model), or both, the C where there is a compiler."
        ),
    ] = Engine.BOTH,
    report: ReportOption = None,
    trace: TraceOption = None,
    script: ScriptOption = None,
    no_auto: NoAutoOption = False,
    search_seconds: SearchSecondsOption = None,
    no_cache: CacheOption = False,
) -> None:
    """Run a compiled workload, simulated and as C, and compare it with the reference.

    Prints the cycles, how busy each unit was, the traffic and conflicts. Exit status 1 where the
    outputs differ.
    """
    wanted = _one(workload)
    if schedule and (script is not None or no_auto):
        raise typer.BadParameter("a script has one schedule", param_hint="'--schedule'")
    with guarded():
        from hwgen.cli import simulate as body
        from hwgen.cli.nest import Script

        body.simulate(
            spec=spec,
            workload=wanted,
            settings=settings or [],
            inputs=inputs or [],
            output_dir=output_dir,
            seed=seed,
            data=data.value,
            schedule=schedule,
            engine=engine.value,
            search=Search(search_seconds, cached=not no_cache),
            pictures=Pictures(report, trace),
            script=Script(script, auto=not no_auto),
        )


@app.command(
    epilog=_epilog(
        "verify --spec CHIP",
        "verify --spec CHIP --workload gemm --examples 200 --seed 7",
        "verify --spec LOOPS --schedules 1000",
        "verify --chips 200 --seed 1     (of no chip: of chips that are drawn too)",
        "verify --workloads 100          (what every chip compiles of natural workloads)",
    )
)
def verify(
    *,
    spec: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            "--spec",
            metavar="SPEC",
            help="The chip: a file, or a name that `hwgen list` shows. May be left out with "
            "--chips or --workloads.",
        ),
    ] = None,
    workloads: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option("--workload", metavar="W", help="May be repeated. Left out: every workload."),
    ] = None,
    settings: SetOption = None,
    examples: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(min=1, metavar="N", help=f"Examples per workload; left out: {EXAMPLES}."),
    ] = None,
    schedules: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(
            min=1,
            metavar="N",
            help="Instead: N random sequences of scheduling primitives, on workloads drawn too.",
        ),
    ] = None,
    chips: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(
            min=1,
            metavar="N",
            help="Instead: N random chips, or variants of SPEC, each with a workload drawn too.",
        ),
    ] = None,
    natural: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(
            "--workloads",
            min=1,
            metavar="N",
            help="Instead: N natural workloads; the share that SPEC, or every chip, compiles.",
        ),
    ] = None,
    jobs: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(
            min=1,
            metavar="N",
            help="With --chips or --workloads: processes; left out: one for each core.",
        ),
    ] = None,
    output: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(
            "-o",
            "--output",
            metavar="DIR",
            parser=_path,
            help=f"With --chips: where failures are written; left out: {FAILURES}.",
        ),
    ] = None,
    seed: SeedOption = 0,
) -> None:
    """Look for a kernel that is wrong, with random sizes, data and schedules.

    Every example is compiled and checked in every way there is. A failure is reduced to the
    smallest one and printed as a command; the exit status is then 1.
    """
    campaigns = {"--chips": chips, "--schedules": schedules, "--workloads": natural}
    asked = [option for option, count in campaigns.items() if count is not None]
    drawn = asked[0] if asked else ""
    if spec is None and drawn not in ("--chips", "--workloads"):
        raise typer.BadParameter("name a chip, or draw some with --chips", param_hint="'--spec'")
    if len(asked) > 1:
        raise typer.BadParameter(f"one of {' and '.join(asked)}", param_hint=f"'{asked[1]}'")
    if drawn and (workloads or settings):
        raise typer.BadParameter("workloads and sizes are drawn too", param_hint=f"'{drawn}'")
    if drawn and examples is not None:
        hint = "'--examples'"
        raise typer.BadParameter(f"it counts examples of a workload, not {drawn}", param_hint=hint)
    if jobs is not None and drawn not in ("--chips", "--workloads"):
        raise typer.BadParameter("it goes with --chips or --workloads", param_hint="'--jobs'")
    if output is not None and chips is None:
        raise typer.BadParameter("it goes with --chips alone", param_hint="'--output'")
    with guarded():
        from hwgen.cli import verify as body

        if chips is not None:
            body.verify_chips(spec, chips, seed, jobs, output or FAILURES)
            return
        if natural is not None:
            body.verify_workloads(spec, natural, seed, jobs)
            return
        assert spec is not None
        if schedules is not None:
            body.verify_schedules(spec, schedules, seed)
            return
        body.verify(spec, workloads or [], settings or [], examples or EXAMPLES, seed)


@app.command(
    epilog=_epilog(
        "explain --spec CHIP --workload gemm",
        "explain --spec CHIP --workload depthwise_conv2d",
    )
)
def explain(spec: SpecOption, workload: WorkloadOption, settings: SetOption = None) -> None:
    """Say how each intrinsic matches, or why it does not.

    For each statement and intrinsic: the binding, or the first condition that fails and the
    nearest repair.
    """
    wanted = _one(workload)
    with guarded():
        from hwgen.cli import inspect

        inspect.explain(spec, wanted, settings or [])


app.command("help", epilog=_epilog("help H422", "help H4", "help generate"))(on)
