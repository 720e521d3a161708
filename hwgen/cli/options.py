"""Options that several commands share, and the examples under their help."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from enum import Enum
from itertools import takewhile
from pathlib import Path
from typing import Annotated, Any, Optional, TypeVar

import typer
from typer.core import TyperCommand

from hwgen.cli import complete
from hwgen.spec.find import SPEC_FOLDER, shipped_in
from hwgen.spec.suggest import suggestion

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


class Data(str, Enum):
    """How tensors that are not given are drawn."""

    RANDOM = "random"
    EXTREMES = "extremes"
    SMALL = "small"
    SPECIAL = "special"


DATA_HELP = (
    "How random tensors are drawn: extremes are the type's ends; special has NaN, infinities, "
    "zeros and subnormal numbers among floats."
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


SpecOption = Annotated[
    str,
    typer.Option(
        "--spec",
        metavar="SPEC",
        help="The chip: a file, or a name that `hwgen list` shows.",
        autocompletion=complete.chips,
    ),
]
WorkloadOption = Annotated[
    list[str],  # A list, so that a second one is refused and not taken in silence.
    typer.Option(
        "--workload",
        metavar="W",
        help="The workload: a file, or a name that `hwgen list` shows.",
        autocompletion=complete.workloads,
    ),
]
SetOption = Annotated[
    Optional[list[str]],  # noqa: UP045 - typer evaluates this on Python 3.10 too
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="Set a parameter of the chip or a size of the workload; spec.NAME and workload.NAME "
        "tell them apart. May be repeated.",
        autocompletion=complete.settings,
    ),
]
SweepOption = Annotated[
    Optional[list[str]],  # noqa: UP045
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="Set a parameter of the chip or a size of the workload; spec.NAME and workload.NAME "
        "tell them apart. May be repeated. With several values, NAME=8,16,32, every combination "
        "is compiled into one table.",
        autocompletion=complete.settings,
    ),
]
DtypeOption = Annotated[
    Optional[list[str]],  # noqa: UP045
    typer.Option(
        "--dtype",
        metavar="NAME=DTYPE",
        help="Set a data type that the workload names (`dtypes:`), or that of one of its tensors, "
        "as T=float16. May be repeated.",
        autocompletion=complete.dtypes,
    ),
]
JsonOption = Annotated[
    bool,
    typer.Option(
        "--json", help="Print one JSON object instead, errors included (docs/cli.md, JSON)."
    ),
]
TrustOption = Annotated[
    bool,
    typer.Option(
        "--trust",
        help="Compile and run C with text of SPEC on this machine: the file of a processor that "
        "does not come with hwgen needs it (SECURITY.md).",
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
        help="What the search looks for: the fewest cycles, off-chip bytes, or picojoules, which "
        "takes a chip whose file has energies.",
    ),
]
SlackOption = Annotated[
    Optional[float],  # noqa: UP045
    typer.Option(
        "--slack",
        min=0.0,
        max=MOST_SLACK,
        metavar="PERCENT",
        help="Of kernels at most so much slower than the fastest, take the one that moves the "
        "fewest off-chip bytes; half a per cent where it is left out.",
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
        parser=path,
        help="Write an HTML page of each kernel: a folder, or a file that ends in .html. A file "
        "that ends in .svg: a picture of its timeline and memories.",
    ),
]
TraceOption = Annotated[
    Optional[Path],  # noqa: UP045
    typer.Option(
        "--trace",
        metavar="PATH",
        parser=path,
        help="Write a trace of each kernel that Perfetto and chrome://tracing open: a folder, or "
        "a file that ends in .json.",
    ),
]
ScriptOption = Annotated[
    Optional[Path],  # noqa: UP045
    typer.Option(
        "--script",
        metavar="FILE",
        parser=path,
        help="Start from a schedule script, as `generate --stage script` prints it, and let the "
        "scheduler go on.",
    ),
]
NoAutoOption = Annotated[
    bool, typer.Option("--no-auto", help="Take the script's schedule as it is.")
]
