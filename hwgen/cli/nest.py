"""`generate`, `simulate` and `explain` for chips whose kernels are loops on a processor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING

import typer

from hwgen.cli.judged import judged
from hwgen.cli.output import add_files, write_files
from hwgen.cli.pictures import Pictures
from hwgen.cli.resolve import Request, WorkloadRequest
from hwgen.cli.searching import Search
from hwgen.cli.stages import NEST_STAGES
from hwgen.cli.target import Target, report_files, weights_of
from hwgen.errors import HwgenError
from hwgen.model.numeric import Array
from hwgen.spec.find import nearest

if TYPE_CHECKING:
    from hwgen.cli.firmware import FirmwareKernel
    from hwgen.nest_pipeline import NestCompilation
    from hwgen.report.records import Record
    from hwgen.report.refused import Refusal
    from hwgen.spec.hardware import HardwareSpec
    from hwgen.spec.workload import Workload
    from hwgen.verify.examine_nest import Engine


@dataclass(frozen=True, slots=True)
class Script:
    """A user's schedule: a file (None for none), and whether it is completed automatically."""

    path: Path | None = None
    auto: bool = True

    @property
    def given(self) -> bool:
        """Whether the user said anything about the schedule."""
        return self.path is not None or not self.auto

    def read(self) -> str | None:
        """The script's text.

        Raises:
            HwgenError: H001, H013, H418 where it cannot be read.
        """
        from hwgen.script import read_file

        return None if self.path is None else read_file(self.path)


NO_SCRIPT = Script()


def generate(
    request: Request,
    hardware: HardwareSpec,
    stage: str | None,
    output: Path | None,
    search: Search,
    pictures: Pictures,
    script: Script,
    target: Target,
    *,
    as_json: bool = False,
) -> None:
    """Compile every workload asked for; write and report only once all of them are compiled."""
    if stage is not None and stage not in NEST_STAGES:
        close = nearest(stage, NEST_STAGES)
        raise HwgenError(
            "H007",
            "a chip with a processor has no such stage",
            found=f"--stage {stage}",
            allowed=", ".join(NEST_STAGES),
            repair=f"did you mean {close}?" if close else "",
        )
    weights = weights_of(request, target)
    compiled: list[NestCompilation] = []
    firmware: list[FirmwareKernel] = []
    refused: list[tuple[Path, HwgenError]] = []
    for wanted in request.workloads:
        try:
            made = compile_one_nest(wanted, hardware, search, script)
            if target.firmware:
                from hwgen.cli.firmware import of_processor

                firmware.append(of_processor(made, weights))
            compiled.append(made)
        except HwgenError as error:
            if not request.every:
                raise
            refused.append((wanted.path, error))
    files = _files(compiled, firmware, hardware)
    if output is not None:
        write_files(output, files)
    drawn = pictures.write(compiled)
    found = judged(request, refused, hardware)
    if as_json:
        from hwgen.cli.records import print_record
        from hwgen.report.records import nest_record, refusal_records

        print_record(
            "generate",
            {
                "spec": str(request.spec),
                "kernels": [nest_record(c) for c in compiled],
                "refused": refusal_records(found),
                "written": [] if output is None else [str(output / name) for name in files],
            },
            ok=True,
        )
        return
    if stage is not None:
        _show(stage, compiled, firmware)
        for path, error in refused:
            typer.echo(f"{path}: not compiled: {error.diagnostic.message}", err=True)
        return
    _report(request, compiled, found)
    report_files(firmware, output, files)
    for line in drawn:
        typer.echo(line)


def compile_one_nest(
    wanted: WorkloadRequest, hardware: HardwareSpec, search: Search, script: Script
) -> NestCompilation:
    """One workload of a request, compiled."""
    workload = wanted.load()
    from hwgen.autoschedule import Options
    from hwgen.nest_pipeline import compile_nest

    options = Options(seconds=search.seconds)
    return compile_nest(workload, hardware, script.read(), script.auto, str(script.path), options)


def _files(
    compiled: Sequence[NestCompilation],
    firmware: Sequence[FirmwareKernel],
    hardware: HardwareSpec,
) -> dict[str, str]:
    if firmware:
        from hwgen.cli.firmware import firmware_files

        return firmware_files(firmware, hardware)
    files: dict[str, str] = {}
    for c in compiled:
        add_files(files, c.source.name, c.files)
    return files


def _show(
    stage: str, compiled: Sequence[NestCompilation], firmware: Sequence[FirmwareKernel]
) -> None:
    from hwgen.report.chip import summary
    from hwgen.report.workload import workload_text

    for n, c in enumerate(compiled):
        heading = f"== {c.workload.name}\n" if len(compiled) > 1 else ""
        text = firmware[n].stage(stage) if firmware else ""
        if stage == "load":
            text = f"{workload_text(c.workload)}\n\n{summary(c.hardware)}"
        text = text or c.stage(stage)
        typer.echo(heading + text.rstrip("\n"))


def _report(
    request: Request,
    compiled: Sequence[NestCompilation],
    refused: Sequence[Refusal],
) -> None:
    from hwgen.report.nests import describe_nest, nest_results
    from hwgen.report.text import refusals

    if not request.every:
        for c in compiled:
            typer.echo(describe_nest(c) + "\n")
    if len(compiled) > 1 or request.every:
        typer.echo(nest_results(compiled))
    if refused:
        typer.echo("\n" + refusals(refused))


def simulate(
    workload: Workload,
    hardware: HardwareSpec,
    inputs: Mapping[str, Array],
    rank: int,
    engine: Engine,
    script: Script,
    pictures: Pictures,
    *,
    quiet: bool = False,
) -> tuple[dict[str, Array], Record]:
    """Compile, run, check, report unless `quiet`; the outputs, and the kernel as data."""
    from hwgen.report.nests import cycles_text
    from hwgen.report.records import nest_record
    from hwgen.report.simulation import run_by
    from hwgen.verify.examine_nest import compile_nest_ranked, examine_nest

    if script.given:
        from hwgen.nest_pipeline import compile_nest

        text, file = script.read(), str(script.path)
        compilation = compile_nest(workload, hardware, text, script.auto, file)
    else:
        compilation = compile_nest_ranked(workload, hardware, rank)
    start = perf_counter()
    passed = examine_nest(compilation, inputs, engine)
    seconds = perf_counter() - start
    runs = [("simulator", passed.run is not None), ("c", passed.ran_c)]
    record = nest_record(compilation) | {"ran": [name for name, ran in runs if ran]}
    drawn = pictures.write([compilation])
    if quiet:
        return passed.outputs, record
    typer.echo(f"{workload.name} on {hardware.name}\n\n{cycles_text(compilation)}\n")
    if passed.run is not None:
        run = passed.run
        typer.echo(f"instances   {run.instances:,}, {run.read_elements:,} elements read")
    runners = ["the simulator"] if passed.run is not None else []
    runners += ["the compiled text on this machine"] if passed.ran_c else []
    assert hardware.processor is not None
    language = hardware.processor.language
    without = "no C compiler" if language == "c" else f"it is {language}, for another machine"
    typer.echo(run_by(runners, engine, without, seconds))
    for line in drawn:
        typer.echo(line.replace("wrote ", "wrote       ", 1))
    typer.echo(f"result      {', '.join(passed.outputs)} equal to the reference")
    return passed.outputs, record


def explain(workload: Workload, hardware: HardwareSpec, *, as_json: bool = False) -> None:
    """Print what the automatic schedule does with every nest, and from how many choices."""
    from hwgen.nest_pipeline import compile_nest
    from hwgen.report.nests import cycles_text

    compilation = compile_nest(workload, hardware)
    if as_json:
        from hwgen.cli.records import print_record
        from hwgen.report.records import nest_record

        print_record(
            "explain",
            {
                "chip": hardware.name,
                "workload": workload.name,
                "phases": [],
                "spilled": [],
                "problem": None,
                "kernel": nest_record(compilation),
                "search": str(compilation.report),
            },
            ok=True,
        )
        return
    typer.echo(f"{hardware.name} runs every statement as loops on its processor\n")
    typer.echo(f"{compilation.stage('state')}\n")
    typer.echo(f"{compilation.report}\n\n{cycles_text(compilation)}")
