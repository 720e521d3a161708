"""`compile`: a whole model for one chip."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Optional

import typer

from hwgen.cli.guard import guarded
from hwgen.cli.options import (
    CacheOption,
    JsonOption,
    SearchSecondsOption,
    SpecOption,
    TrustOption,
    epilog,
    path,
)

commands = typer.Typer()


@commands.command(
    "compile",
    epilog=epilog(
        "compile model.tflite --spec LOOPS -o model",
        "compile model.tflite --spec CHIP --compare",
        "compile model.tflite --spec CHIP --json",
    ),
)
def compile_(
    *,
    model: Annotated[
        Path,
        typer.Argument(
            metavar="MODEL",
            parser=path,
            help="A model, MODEL.tflite or MODEL.onnx.",
            show_default=False,
        ),
    ],
    spec: SpecOption,
    output: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(
            "-o",
            "--output",
            metavar="DIR",
            parser=path,
            help="Write the network to this folder: its C, the kernels, the weights, an example "
            "and a Makefile.",
        ),
    ] = None,
    compare: Annotated[
        bool,
        typer.Option(
            "--compare",
            help="Run the network and the model's own runtime on random inputs, and name the first "
            "layer that differs.",
        ),
    ] = False,
    jobs: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(
            min=1, metavar="N", help="Number of processes that compile. Left out: one per core."
        ),
    ] = None,
    trust: TrustOption = False,
    search_seconds: SearchSecondsOption = None,
    no_cache: CacheOption = False,
    as_json: JsonOption = False,
) -> None:
    """Compile a whole model to one folder of C, layer by layer.

    Reads int8 models of TensorFlow Lite, and ONNX models. Layers that are equal share one kernel.
    The report lists each layer's cycles, the work that units do, and the arena that all layers
    share. Chips with units run on their C model with --compare.
    """
    with guarded("compile" if as_json else ""):
        from hwgen.cli import networks as body

        body.compile_network(
            model,
            spec,
            output,
            jobs,
            seconds=search_seconds,
            cached=not no_cache,
            compared=compare,
            trust=trust,
            as_json=as_json,
        )
