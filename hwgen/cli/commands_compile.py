"""`compile`: a whole model for one chip."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hwgen.cli.guard import guarded
from hwgen.cli.options import (
    CacheOption,
    ChipSetOption,
    ClusterOption,
    IntOrNone,
    JsonOption,
    PathOrNone,
    SearchSecondsOption,
    SpecOption,
    TargetName,
    TimeoutOption,
    TrustOption,
    choice_option,
    epilog,
    jobs_option,
    output_option,
    path,
    report_option,
    workers,
)

commands = typer.Typer()


@commands.command(
    "compile",
    epilog=epilog(
        "compile model.tflite --spec LOOPS -o model",
        "compile model.tflite --spec CHIP --compare",
        "compile model.tflite --spec CHIP --target firmware -o firmware",
        "compile model.tflite --spec CHIP --report model.html",
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
    settings: ChipSetOption = None,
    output: Annotated[
        PathOrNone,
        output_option(
            "Write the network to this folder: its C, the kernels, the weights, an example and a "
            "Makefile."
        ),
    ] = None,
    target: Annotated[
        TargetName,
        choice_option(
            TargetName, "firmware: the example needs no C library. The rest never has a heap."
        ),
    ] = TargetName.HOST,
    compare: Annotated[
        bool,
        typer.Option(
            "--compare",
            help="Run the network and the model's own runtime on random inputs, and name the first "
            "layer that differs.",
        ),
    ] = False,
    report: Annotated[
        PathOrNone, report_option("Write an HTML page of the network, to a file or a folder.")
    ] = None,
    jobs: Annotated[IntOrNone, jobs_option("Number of processes that compile.")] = None,
    cluster: ClusterOption = None,
    timeout: TimeoutOption = None,
    trust: TrustOption = False,
    search_seconds: SearchSecondsOption = None,
    no_cache: CacheOption = False,
    as_json: JsonOption = False,
) -> None:
    """Compile a whole model to one folder of C, layer by layer.

    Reads models of TensorFlow Lite, quantised or of floats, and ONNX models. Layers that are equal
    share one kernel.
    The report lists each layer's cycles, the work that units do, and the arena that all layers
    share. Chips with units run on their C model with --compare.
    """
    wanted = workers(jobs, cluster, timeout)
    with guarded("compile" if as_json else ""):
        from hwgen.cli import networks as body

        body.compile_network(
            model,
            spec,
            settings or [],
            output,
            wanted,
            firmware=target is TargetName.FIRMWARE,
            report=report,
            seconds=search_seconds,
            cached=not no_cache,
            compared=compare,
            trust=trust,
            as_json=as_json,
        )
