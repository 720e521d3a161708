"""`check`, `init`, `list` and `schema`: the commands about files."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated, Optional

import typer

from hwgen.cli import complete
from hwgen.cli.guard import guarded
from hwgen.cli.options import JsonOption, SetOption, choice, choices, epilog

FORMS = ("accelforge", "timeloop")
"""Architecture files that `init --from` reads."""

commands = typer.Typer()


class Sync(str, Enum):
    """How a first chip of `init` orders its units."""

    NONE = "none"
    TOKENS = "tokens"
    EVENTS = "events"
    BARRIER = "barrier"
    SCOREBOARD = "scoreboard"


@commands.command(
    epilog=epilog("check CHIP", "check my_chip.yaml --set NAME=2", "check CHIP --json")
)
def check(
    spec: Annotated[
        str,
        typer.Argument(
            metavar="SPEC",
            help="A file, or a name that `hwgen list` shows.",
            autocompletion=complete.chips,
        ),
    ],
    settings: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Validate a chip's file; print a summary and hints, or its errors.

    All errors are reported at once, each with its line.
    """
    with guarded("check" if as_json else ""):
        from hwgen.cli import inspect

        inspect.check(spec, settings or [], as_json=as_json)


@commands.command(
    epilog=epilog(
        "init my_chip",
        "init my_chip --units 3 --sync events",
        "init my_chip --like CHIP",
        "init my_chip --from accelforge arch.yaml     (with sizes and rates of that file)",
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
            help="1: one unit does everything. 2: one moves data, one computes. 3: one loads, one "
            "computes, one stores. Left out: 2.",
        ),
    ] = None,
    sync: Annotated[
        Optional[Sync],  # noqa: UP045
        typer.Option(
            metavar=choices(Sync),
            parser=choice(Sync),
            help="How units are synchronised. Left out: tokens, or none for one unit.",
        ),
    ] = None,
    like: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            metavar="SPEC",
            help="Copy this chip's file under the new name.",
            autocompletion=complete.chips,
        ),
    ] = None,
    source: Annotated[
        Optional[tuple[str, str]],  # noqa: UP045
        typer.Option(
            "--from",
            metavar="FORM FILE",
            help=f"Take the numbers from an architecture file. FORM: {' or '.join(FORMS)}.",
        ),
    ] = None,
) -> None:
    """Write a first chip for you to change.

    Writes the chip's file, a workload and a stub of the vendor's header to the current folder. The
    chip is complete: it compiles a GEMM unchanged. Existing files are kept, except the schemas that
    editors read.
    """
    if source is not None and (like is not None or source[0] not in FORMS):
        said = "the copied chip has numbers of its own" if like else f"one of {', '.join(FORMS)}"
        raise typer.BadParameter(said, param_hint="'--from'")
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
    if name == "gemm" or name.lower() in ("null", "true", "false"):
        said = "is the workload's" if name == "gemm" else "is no text in YAML"
        raise typer.BadParameter(f"{name!r} {said}: take another", param_hint="'NAME'")
    with guarded():
        from hwgen.cli import init as body

        if like is not None:
            body.like(name, like)
        elif source is not None:
            from hwgen.cli.init_from import numbers

            body.new_chip(name, count, kind, numbers(Path(source[1]), source[0]))
        else:
            body.new_chip(name, count, kind)


@commands.command("list", epilog=epilog("list", "list --json"))
def list_(
    *, as_json: Annotated[bool, typer.Option("--json", help="As JSON, not shortened.")] = False
) -> None:
    """List the chips and workloads that you can name.

    These are files here and files that come with hwgen. A file here hides one of the same name that
    comes with hwgen.
    """
    with guarded():
        from hwgen.cli import listing

        listing.show(as_json=as_json)


@commands.command(epilog=epilog("schema > hwgen.schema.json", "schema --workload"))
def schema(
    workload: Annotated[
        bool, typer.Option("--workload", help="Print the schema of workload files.")
    ] = False,
) -> None:
    """Print the JSON Schema of chip files."""
    with guarded():
        from hwgen.cli import inspect

        inspect.schema(workload=workload)
