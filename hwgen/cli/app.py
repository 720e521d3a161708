"""The application: its commands are registered here, their bodies imported when one runs."""

from __future__ import annotations

from typing import Annotated

import typer

from hwgen import __version__
from hwgen.cli import (
    commands_calibrate,
    commands_compile,
    commands_explore,
    commands_files,
    commands_kernels,
    commands_verify,
)
from hwgen.cli.help import on
from hwgen.cli.options import epilog

app = typer.Typer(
    name="hwgen",
    help="Compile workloads for a chip that a YAML file describes, and check the kernels.",
    epilog=epilog(
        "generate --spec CHIP --workload gemm -o out",
        "simulate --spec CHIP --workload gemm --set M=4",
        "explain --spec CHIP --workload depthwise_conv2d",
        "compile model.tflite --spec CHIP -o model",
        "help H422",
    ),
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback(invoke_without_command=True)
def root(
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    if version:
        typer.echo(f"hwgen {__version__}")
        raise typer.Exit


_GROUPS = (
    commands_files, commands_kernels, commands_compile, commands_explore, commands_verify,
    commands_calibrate,
)  # fmt: skip
for _some in _GROUPS:
    app.registered_commands += _some.commands.registered_commands
app.command("help", epilog=epilog("help H422", "help H4", "help tensorize", "help generate"))(on)
