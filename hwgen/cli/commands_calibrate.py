"""`calibrate`: costs of a processor, fitted to kernels that are compiled and run."""

from __future__ import annotations

import shlex
from functools import partial
from typing import Annotated

import typer

from hwgen.cli.guard import guarded
from hwgen.cli.options import (
    ChipSetOption,
    Command,
    JsonOption,
    SpecOption,
    TrustOption,
    epilog,
)

commands = typer.Typer()


def _words(text: str) -> tuple[str, ...]:
    """A command as a shell reads it.

    Raises:
        typer.BadParameter: a quotation that is open.
    """
    try:
        return tuple(shlex.split(text))
    except ValueError as error:
        raise typer.BadParameter(f"{text!r}: {str(error).lower()}") from error


def _command(option: str, said: str) -> typer.models.OptionInfo:
    return typer.Option(option, metavar="WORDS", parser=_words, help=said)


@commands.command(
    cls=Command,
    epilog=epilog(
        "calibrate --spec CHIP --cc riscv64-linux-gnu-gcc",
        "calibrate --spec CHIP --cc aarch64-linux-gnu-gcc --flags '-O3 -static'",
        "calibrate --spec LOOPS --set CORES=1",
    ),
)
def calibrate(
    *,
    spec: SpecOption,
    settings: ChipSetOption = None,
    cc: Annotated[
        str, _command("--cc", "The processor's C compiler. Left out: $CC, or the one found here.")
    ] = "",
    flags: Annotated[
        str, _command("--flags", "The compiler's flags. Left out: as the output says.")
    ] = "",
    run: Annotated[
        str,
        _command(
            "--run",
            "What runs the compiler's programs. Left out: QEMU's emulator of its target where "
            "instructions are counted, nothing where cycles are timed.",
        ),
    ] = "",
    trust: TrustOption = False,
    as_json: JsonOption = False,
) -> None:
    """Propose the costs of a processor's code, from small kernels that are compiled and run.

    If the spec has `processor.instructions`, an emulator counts what kernels retire. Else they are
    timed, and rates and cycles are fitted. Prints each cost with its standard error, the model's
    error on fitted kernels and on others, and YAML for the spec. No file is written.
    """
    with guarded("calibrate" if as_json else ""):
        from hwgen.calibrate.calibration import calibrated, measurements, tools_for
        from hwgen.calibrate.kernels import samples, workloads
        from hwgen.calibrate.shown import calibration_record, calibration_text
        from hwgen.cli.progress import campaign_progress
        from hwgen.cli.records import print_record
        from hwgen.cli.resolve import assign, parse_assignments
        from hwgen.spec.find import find_spec
        from hwgen.spec.load import load_hardware

        path = find_spec(spec)
        parameters, _ = assign(parse_assignments(settings or []), path, (), every=False)
        hardware = load_hardware(path, dict(parameters), trust=trust)
        tools = tools_for(hardware, cc, flags, run)
        steps = 2 * len([*workloads(hardware.machine)])
        with campaign_progress("calibrate", steps) as progress:
            made = samples(hardware, partial(progress, "kernels compiled"))
            measured = measurements(made, tools, partial(progress, "kernels run"))
            found = calibrated(hardware, tools, made, measured)
        if as_json:
            print_record("calibrate", calibration_record(found), ok=True)
        else:
            typer.echo(calibration_text(found))
