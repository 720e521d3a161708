"""`generate`: compile, report, and write the C."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from hwgen.cli.judged import judged
from hwgen.cli.pictures import Pictures
from hwgen.cli.resolve import Request, WorkloadRequest, resolve
from hwgen.cli.scripts import NO_SCRIPT, Script
from hwgen.cli.searching import Search, searching
from hwgen.cli.stages import NEST_STAGES, STAGES
from hwgen.cli.target import HOST, Target, report_files, weights_of
from hwgen.errors import HwgenError, Location
from hwgen.report.output import add_files, check_folder, write_files
from hwgen.spec.find import nearest

if TYPE_CHECKING:
    from hwgen.cli.firmware import FirmwareKernel
    from hwgen.passes.kernel import Kernel
    from hwgen.report.refused import Refusal
    from hwgen.spec.hardware import HardwareSpec
    from hwgen.spec.workload import Workload

_BAD_FILE = ("H0", "H1", "H2")
"""Codes of errors in a file, as opposed to what a chip cannot run."""

_OF_PROGRAM = ("H73", "H74")
"""Codes of programs that do not fit the chip: always an error, whatever else compiles."""

_OF_SCHEDULE = ("H405", "H41", "H42", "H5", "H6")
"""Codes of what a schedule can get wrong, as opposed to its workload."""


def generate(
    spec: str,
    workloads: Sequence[str],
    settings: Sequence[str],
    stage: str | None,
    output: Path | None,
    search: Search,
    pictures: Pictures,
    script: Script = NO_SCRIPT,
    target: Target = HOST,
    dtypes: Sequence[str] = (),
    *,
    as_json: bool = False,
) -> None:
    """Compile every workload asked for; write and report only once all of them are compiled."""
    request = resolve(spec, workloads, settings, dtypes)
    hardware = load(request, search)
    _check_stage(stage, hardware)
    weights = weights_of(request, target)
    if output is not None:
        check_folder(output)
    pictures.check()
    compiled, refused = _compile_all(request, hardware, search, script)
    firmware: list[FirmwareKernel] = []
    if target.firmware:
        from hwgen.cli.firmware import firmware_of

        firmware = [firmware_of(c, weights) for c in compiled]
    files = _files(compiled, firmware, hardware)
    if output is not None:
        write_files(output, files)
    drawn = pictures.write(compiled)
    if not request.every:
        for c in compiled:
            _warn(c)
    broken = [e for _, e in refused if e.code.startswith((*_BAD_FILE, *_OF_PROGRAM))]
    if as_json:
        from hwgen.cli.records import print_record
        from hwgen.report.records import kernel_record, refusal_records
        from hwgen.report.text import measure

        print_record(
            "generate",
            {
                "spec": str(request.spec),
                "kernels": [kernel_record(measure(c)) for c in compiled],
                "refused": refusal_records(judged(request, refused, hardware)),
                "written": [] if output is None else [str(output / name) for name in files],
            },
            ok=not broken,
            errors=[d for e in broken for d in e.diagnostics],
        )
        if broken:
            raise typer.Exit(1)
        return
    if stage is not None:
        _show_stage(stage, compiled, firmware)
    else:
        _report(request, compiled, judged(request, refused, hardware))
        report_files(firmware, output, files)
        for line in drawn:
            typer.echo(line)
    for error in broken:
        typer.echo(str(error), err=True)
    if stage is not None and request.every:
        for path, error in refused:
            typer.echo(f"{path}: not compiled: {error.diagnostic.message}", err=True)
    if broken:
        raise typer.Exit(1)


def _check_stage(stage: str | None, hardware: HardwareSpec) -> None:
    """Refuse a stage that a chip's kernels do not go through."""
    own, others = (STAGES, NEST_STAGES) if hardware.units else (NEST_STAGES, STAGES)
    if stage is None or stage in own:
        return
    if stage in others:
        chips = "that are a processor alone" if hardware.units else "with units"
        message = f"{stage} is a stage of chips {chips}"
        repair = "leave it out"
    else:
        message = f"kernels of {hardware.name} have no such stage"
        close = nearest(stage, own)
        repair = f"did you mean {close}?" if close else ""
    raise HwgenError(
        "H007", message, found=f"--stage {stage}", allowed=", ".join(own), repair=repair
    )


def load(request: Request, search: Search, *, trust: bool = False) -> HardwareSpec:
    """The chip of a request; `trust` as in `load_hardware`.

    Raises:
        HwgenError: as `load_hardware`; H426 where it has nothing of the search's objective.
    """
    from hwgen.polyhedral.search.objective import check_objective
    from hwgen.spec.load import load_hardware

    hardware = load_hardware(request.spec, dict(request.parameters), trust=trust)
    check_objective(hardware, search.objective)
    return hardware


def compile_one(
    wanted: WorkloadRequest, hardware: HardwareSpec, search: Search, script: Script = NO_SCRIPT
) -> Kernel:
    """One workload of a request, compiled."""
    # A bad file is reported before the compiler is loaded.
    workload = wanted.load()
    if script.given:
        return compile_scripted(workload, hardware, search, script)
    from hwgen.pipeline import compile_workload

    with searching(workload.name, search) as options:
        return compile_workload(workload, hardware, options)


def compile_scripted(
    workload: Workload, hardware: HardwareSpec, search: Search, script: Script
) -> Kernel:
    """A workload compiled as a user's script begins.

    Raises:
        HwgenError: as `completing.compile_scripted`, with the script's file.
    """
    from hwgen.completing import compile_scripted as compiled

    text, file = script.read() or "", str(script.path or "")
    try:
        with searching(workload.name, search) as options:
            return compiled(workload, hardware, text, file, options, auto=script.auto)
    except HwgenError as error:
        if not file or not error.code.startswith(_OF_SCHEDULE):
            raise
        raise error.at(Location(file)) from error


def _compile_all(
    request: Request, hardware: HardwareSpec, search: Search, script: Script
) -> tuple[list[Kernel], list[tuple[Path, HwgenError]]]:
    """What compiles to a program that fits, and why the rest does not; a workload that was named
    must."""
    compiled: list[Kernel] = []
    refused: list[tuple[Path, HwgenError]] = []
    for wanted in request.workloads:
        try:
            made = compile_one(wanted, hardware, search, script)
            _check(made, wanted.path)
            compiled.append(made)
        except HwgenError as error:
            if not request.every:
                raise
            refused.append((wanted.path, error))
    return compiled, refused


def _warn(made: Kernel) -> None:
    """Say on standard error what a processor computes because units cannot, and why."""
    why = made.account.fallen
    names = ", ".join(code.name for code in made.program.codes if not code.once)
    if why is None or not names:
        return
    chip = made.hardware.name
    lines = [f"warning: the processor of {chip} computes {names}: its units cannot run all of it"]
    lines += str(why).splitlines()
    typer.echo("\n  ".join(lines).replace(f"error[{why.code}]", why.code), err=True)


def _check(made: Kernel, workload: Path) -> None:
    """Refuse a program that does not fit its chip; no C of it is shown or written. Compiling has
    checked that of a processor alone.

    Raises:
        HwgenError: H731 to H747, as `check_compiled`, with the workload's file.
    """
    if not made.hardware.units:
        return
    from hwgen.verify.check_instances import check_compiled

    try:
        check_compiled(made)
    except HwgenError as error:
        raise error.at(Location(str(workload))) from error


def _files(
    compiled: Sequence[Kernel], firmware: Sequence[FirmwareKernel], hardware: HardwareSpec
) -> dict[str, str]:
    if firmware:
        from hwgen.cli.firmware import firmware_files

        return firmware_files(firmware, hardware)
    files: dict[str, str] = {}
    for c in compiled:
        add_files(files, c.source.function, c.files)
    return files


def _show_stage(stage: str, compiled: Sequence[Kernel], firmware: Sequence[FirmwareKernel]) -> None:
    from hwgen.report.text import stage_text

    for n, c in enumerate(compiled):
        heading = f"== {c.workload.name}\n" if len(compiled) > 1 else ""
        text = (firmware[n].stage(stage) if firmware else "") or stage_text(c, stage)
        typer.echo(heading + text.rstrip("\n"))


def _report(
    request: Request,
    compiled: Sequence[Kernel],
    refused: Sequence[Refusal],
) -> None:
    from hwgen.report.text import describe, measure, refusals, results

    measured = [measure(c) for c in compiled]
    if not request.every:
        for m in measured:
            typer.echo(describe(m) + "\n")
    if len(measured) > 1 or request.every:
        typer.echo(results(measured))
    if refused:
        typer.echo("\n" + refusals(refused))
