"""Options that several commands share, and the examples under their help."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from enum import Enum
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional, TypeVar

import typer
from typer.core import TyperCommand

from hwgen.cli import complete
from hwgen.spec.find import SPEC_FOLDER, shipped_in
from hwgen.spec.suggest import suggestion

if TYPE_CHECKING:
    from hwgen.verify.executors import Workers

C = TypeVar("C", bound=Enum)


def _some_chip(*, processor: bool = False) -> str:
    """A chip with units and micro-kernels, or a processor, to name in examples: such chips have
    calls for every integer workload, so that the examples run as printed."""
    section = "\nprocessor:" if processor else "\nmicro_kernels:"
    chips = shipped_in(SPEC_FOLDER)
    fitting = (p.stem for p in chips if section in p.read_text(encoding="utf-8"))
    return min(fitting, default="CHIP.yaml")


def epilog(*commands: str) -> str:
    """Examples as help shows them; CHIP and LOOPS stand for chips that come with hwgen."""
    # The backspace keeps the lines below it as they are.
    lines = "\n".join(f"  hwgen {command}" for command in commands)
    lines = lines.replace("CHIP", _some_chip()).replace("LOOPS", _some_chip(processor=True))
    return "\b\nExamples:\n" + lines


class Engine(str, Enum):
    """Who executes a kernel."""

    BOTH = "both"
    PYTHON = "python"
    C = "c"


class TargetName(str, Enum):
    """The machine that C is written for."""

    HOST = "host"
    FIRMWARE = "firmware"


class Data(str, Enum):
    """How tensors that are not given are drawn."""

    RANDOM = "random"
    EXTREMES = "extremes"
    SMALL = "small"
    SPECIAL = "special"


DATA_HELP = (
    "Values of random tensors. extremes: the smallest and largest of the type; special: floats "
    "with NaN, infinities, zeros and subnormal numbers among them."
)


def path(text: str) -> Path:
    """A path on the command line; an empty one, which an unset variable leaves, is no path.

    Raises:
        typer.BadParameter: where it is empty.
    """
    if not text:
        raise typer.BadParameter("the path is empty; the current folder is '.'")
    return Path(text)


def choice(kind: type[C]) -> Callable[[str], C]:
    """A parser for the values of an enumeration, which names the value that was meant."""
    known = [member.value for member in kind]

    def parse(text: str) -> C:
        if text in known:
            return kind(text)
        meant = suggestion(text, known)
        said = f"{text!r} is not one of {', '.join(known)}{f'; {meant}' if meant else ''}"
        raise typer.BadParameter(said)

    return parse


def choices(kind: type[Enum]) -> str:
    """The values of an enumeration as help shows them."""
    return f"<{'|'.join(member.value for member in kind)}>"


class Command(TyperCommand):
    """A command without positional words: `hwgen generate CHIP WORKLOAD` is told the options."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        words = [*takewhile(lambda word: not word.startswith("-"), args)]
        if words:
            named = zip(("--spec", "--workload"), words)  # noqa: B905
            wanted = " ".join(f"{option} {shlex.quote(word)}" for option, word in named)
            said = f"options have names: write hwgen {ctx.info_name} {wanted}"
            raise typer.BadParameter(said, ctx=ctx, param_hint=f"'{' '.join(words)}'")
        return super().parse_args(ctx, args)


def one(workloads: list[str]) -> str:
    """The workload of a command that takes one.

    Raises:
        typer.BadParameter: where there are several.
    """
    if len(workloads) > 1:
        raise typer.BadParameter("this command takes one workload", param_hint="'--workload'")
    return workloads[0]


PathOrNone = Optional[Path]  # noqa: UP045 - typer evaluates these on Python 3.10 too
IntOrNone = Optional[int]  # noqa: UP045
TextOrNone = Optional[str]  # noqa: UP045
TextsOrNone = Optional[list[str]]  # noqa: UP045


def several(text: str) -> bool:
    """True if a `--set` has several values."""
    return "," in text or ".." in text


def spec_option(note: str = "") -> Any:
    """`--spec`; `note`: a sentence after its help."""
    said = f"The chip: a file, or a name that `hwgen list` shows. {note}".strip()
    return typer.Option("--spec", metavar="SPEC", help=said, autocompletion=complete.chips)


def workload_option(said: str) -> Any:
    """`--workload`, with its help."""
    return typer.Option("--workload", metavar="W", help=said, autocompletion=complete.workloads)


def output_option(said: str) -> Any:
    """`-o`, with its help."""
    return typer.Option("-o", "--output", metavar="DIR", parser=path, help=said)


def jobs_option(said: str) -> Any:
    """`--jobs`, with the first part of its help."""
    return typer.Option("--jobs", min=1, metavar="N", help=f"{said} Left out: one per core.")


ClusterOption = Annotated[
    TextOrNone,
    typer.Option(
        "--cluster",
        metavar="ADDRESS",
        help="Work on the workers of a Dask scheduler instead, as tcp://HOST:8786.",
    ),
]
TimeoutOption = Annotated[
    Optional[float],  # noqa: UP045
    typer.Option(
        "--timeout",
        min=0.001,
        metavar="SECONDS",
        help="End a worker that takes longer for one piece of work. It is given to another one "
        "once, and then given up (hwgen help H060).",
    ),
]


def workers(jobs: int | None, cluster: str | None, timeout: float | None) -> Workers:
    """Who is to work.

    Raises:
        typer.BadParameter: where both processes and a cluster are.
    """
    from hwgen.verify.executors import Workers

    if cluster is not None and jobs is not None:
        raise typer.BadParameter("the cluster has its own workers", param_hint="'--jobs'")
    return Workers(jobs, cluster, timeout)


def choice_option(kind: type[Enum], said: str) -> Any:
    """An option that takes a member of an enumeration, with its help."""
    return typer.Option(metavar=choices(kind), parser=choice(kind), help=said)


def report_option(said: str) -> Any:
    """`--report`, with its help."""
    return typer.Option("--report", metavar="PATH", parser=path, help=said)


SpecOption = Annotated[str, spec_option()]
WorkloadOption = Annotated[
    list[str],  # A list, so that a second one is refused and not taken in silence.
    workload_option("The workload: a file, or a name that `hwgen list` shows."),
]


def workloads_option(every: str) -> Any:
    """`--workload` that may be left out; `every`: which workloads there are then."""
    return workload_option(
        "A file, or a name that `hwgen list` shows. May be repeated. Left out: every workload"
        f"{every}."
    )


def set_option(whose: str, note: str = "") -> Any:
    """`--set`; `whose`: what has the names."""
    return typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help=f"Set a {whose}. May be repeated. {note}".strip(),
        autocompletion=complete.settings,
    )


_OF_BOTH = (
    "parameter of the chip or a size of the workload. Write spec.NAME or workload.NAME if both "
    "have the name"
)
SetOption = Annotated[TextsOrNone, set_option(_OF_BOTH)]
ChipSetOption = Annotated[TextsOrNone, set_option("parameter of the chip")]
SweepOption = Annotated[
    TextsOrNone,
    set_option(
        _OF_BOTH,
        "Several values, NAME=8,16,32, compile every combination and print one table.",
    ),
]
DtypeOption = Annotated[
    TextsOrNone,
    typer.Option(
        "--dtype",
        metavar="NAME=DTYPE",
        help="Set a data type that the workload names (`dtypes:`) or the type of one tensor, as "
        "T=float16. May be repeated.",
        autocompletion=complete.dtypes,
    ),
]
JsonOption = Annotated[
    bool,
    typer.Option("--json", help="Print one JSON object, which includes errors."),
]
TrustOption = Annotated[
    bool,
    typer.Option(
        "--trust",
        help="Allow C with text of SPEC to run on this machine. Needed for a processor whose "
        "file does not come with hwgen (hwgen help H707).",
    ),
]
SeedOption = Annotated[
    int, typer.Option("--seed", min=0, metavar="S", help="Seed of all random choices.")
]
SearchSecondsOption = Annotated[
    Optional[float],  # noqa: UP045
    typer.Option(
        "--search-seconds",
        min=0.0,
        metavar="N",
        help="Also end the search for a schedule after N seconds, with the best one found so far. "
        "The result then depends on the machine, and the report says so if the search was cut "
        "short. By default a search ends after a counted amount of work.",
    ),
]


MOST_SLACK = 4.0
"""Per cent; with more, `--objective traffic` is what is wanted."""


class ObjectiveName(str, Enum):
    """What `--objective` takes."""

    CYCLES = "cycles"
    TRAFFIC = "traffic"
    ENERGY = "energy"


ObjectiveOption = Annotated[
    ObjectiveName,
    typer.Option(
        "--objective",
        metavar=choices(ObjectiveName),
        parser=choice(ObjectiveName),
        help="What the search minimises: cycles, off-chip bytes (traffic) or picojoules. energy "
        "needs a chip whose file gives energies.",
    ),
]
SlackOption = Annotated[
    Optional[float],  # noqa: UP045
    typer.Option(
        "--slack",
        min=0.0,
        max=MOST_SLACK,
        metavar="PERCENT",
        help="Accept a kernel this much slower than the fastest if it moves fewer off-chip bytes. "
        "Left out: half a per cent.",
    ),
]
UnitsOnlyOption = Annotated[
    bool,
    typer.Option(
        "--units-only",
        help="Refuse what the chip's units cannot compute alone, instead of using its processor.",
    ),
]
CacheOption = Annotated[
    bool,
    typer.Option("--no-cache", help="Neither use nor keep cached results of searches."),
]
ReportOption = Annotated[
    PathOrNone,
    report_option(
        "Write an HTML page of each kernel, to a folder or a file that ends in .html. To a file "
        "that ends in .svg, write a picture of the timeline and memories."
    ),
]
TraceOption = Annotated[
    PathOrNone,
    typer.Option(
        "--trace",
        metavar="PATH",
        parser=path,
        help="Write a trace of each kernel for Perfetto or chrome://tracing, to a folder or a "
        "file that ends in .json.",
    ),
]
ScriptOption = Annotated[
    PathOrNone,
    typer.Option(
        "--script",
        metavar="FILE",
        parser=path,
        help="Start from a schedule script, as `generate --stage script` prints it. The scheduler "
        "completes it.",
    ),
]
NoAutoOption = Annotated[
    bool, typer.Option("--no-auto", help="Add nothing to the script's schedule.")
]
