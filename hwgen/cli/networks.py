"""`compile`: the network, its report, its folder and its comparison with the model's runtime."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import typer

from hwgen.cli.pictures import Pictures
from hwgen.cli.progress import campaign_progress, tell_lost
from hwgen.cli.records import print_record
from hwgen.cli.resolve import assign, parse_assignments
from hwgen.network.compare import compare
from hwgen.network.compiled import compile_model
from hwgen.network.page import network_page
from hwgen.network.report import report_record, report_text
from hwgen.passes.phase import SearchOptions
from hwgen.report.output import check_folder
from hwgen.spec.find import find_spec
from hwgen.spec.load import load_hardware
from hwgen.verify.executors import Workers


def compile_network(
    model: Path,
    spec: str,
    settings: Sequence[str],
    output: Path | None,
    wanted: Workers,
    *,
    firmware: bool,
    report: Path | None,
    seconds: float | None,
    cached: bool,
    compared: bool,
    trust: bool,
    as_json: bool,
) -> None:
    """Compile a model, report on it, and write and compare it where that is asked for.

    Raises:
        HwgenError: as `compile_model`, `compare`, `Network.save` and `Workers`; H004, H005
            wrong settings.
    """
    path = find_spec(spec)
    parameters, _ = assign(parse_assignments(settings), path, (), every=False)
    hardware = load_hardware(path, dict(parameters), trust=trust)
    if output is not None:
        check_folder(output)
    pictures = Pictures(report, reports=(".html",))
    pictures.check()
    with wanted.executor() as workers:
        net = compile_model(
            model,
            hardware,
            target="firmware" if firmware else "host",
            workers=workers,
            options=SearchOptions(seconds=seconds),
            cached=cached,
            progress=partial(campaign_progress, "compiling"),
        )
        tell_lost(workers)
    written = net.save(output) if output is not None else []
    drawn = pictures.write_page(net.name, lambda: network_page(net))
    if not as_json:
        typer.echo(report_text(net))
        if output is not None:
            typer.echo(f"wrote {len(written)} files to {output}")
        for line in drawn:
            typer.echo(line)
    equal = compare(net) if compared else None
    if as_json:
        compared_record = {"samples": equal.samples, "layers": equal.layers} if equal else None
        record = report_record(net) | {
            "written": [str(p) for p in written],
            "compared": compared_record,
        }
        print_record("compile", record, ok=True)
    elif equal is not None:
        typer.echo(str(equal))
