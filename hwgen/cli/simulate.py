"""`simulate`: run a compiled workload on given or random tensors and compare with the reference."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING

import numpy as np
import typer

from hwgen.cli.arrays import read_inputs
from hwgen.cli.generate import compile_scripted, load
from hwgen.cli.pictures import Pictures
from hwgen.cli.resolve import resolve
from hwgen.cli.scripts import NO_SCRIPT, Script
from hwgen.cli.searching import Search, searching
from hwgen.model.numeric import Array
from hwgen.report.output import Writer, check_folder, write_files
from hwgen.verify.data import Style, draw_inputs

if TYPE_CHECKING:
    from hwgen.report.records import Record
    from hwgen.verify.examine import Engine, Examination


def simulate(
    *,
    spec: str,
    workload: str,
    settings: Sequence[str],
    dtypes: Sequence[str],
    inputs: Sequence[str],
    output_dir: Path | None,
    seed: int,
    data: Style,
    schedule: int,
    engine: Engine,
    trust: bool,
    search: Search,
    pictures: Pictures,
    script: Script = NO_SCRIPT,
    as_json: bool = False,
) -> None:
    """Compile, run, check, report."""
    from hwgen.report.records import kernel_record
    from hwgen.report.simulation import run_by, simulation_text
    from hwgen.report.text import Measured
    from hwgen.verify.examine import compile_case, examine
    from hwgen.verify.room import check_room, check_tensors

    request = resolve(spec, [workload], settings, dtypes)
    hardware = load(request, search, trust=trust)
    wanted = request.workloads[0]
    loaded = wanted.load()
    check_tensors(loaded, lambda name, value: wanted.load({name: value}))
    given = read_inputs(inputs, loaded)
    if output_dir is not None:
        check_folder(output_dir)
    pictures.check()
    if script.given:
        compilation = compile_scripted(loaded, hardware, search, script)
        check_room(loaded, compilation.program)
    else:
        with searching(loaded.name, search) as options:
            compilation = compile_case(loaded, hardware, schedule, options)
    start = perf_counter()
    passed = examine(compilation, draw_inputs(loaded, seed, data) | given, engine)
    seconds = perf_counter() - start
    outputs = {t.name: np.reshape(passed.outputs[t.name], t.extents) for t in loaded.outputs}
    if output_dir is not None:
        write_files(output_dir, {f"{name}.npy": _saver(array) for name, array in outputs.items()})
    if as_json:
        pictures.write([compilation])
        runs = [("simulator", passed.functional is not None), ("c", passed.ran_c)]
        record = kernel_record(Measured(compilation, passed.timing, passed.bound))
        _print(record | {"ran": [name for name, ran in runs if ran]}, passed, output_dir)
        return
    typer.echo(simulation_text(compilation, passed))
    drawn = [t.name for t in loaded.inputs if t.name not in given]
    typer.echo(f"inputs      {_sources(drawn, seed, given)}")
    if output_dir is not None:
        typer.echo(f"wrote       {', '.join(f'{n}.npy' for n in outputs)} to {output_dir}")
    for line in pictures.write([compilation]):
        typer.echo(line.replace("wrote ", "wrote       ", 1))
    typer.echo(run_by(compilation, passed, engine, seconds))
    exact = not any("float" in t.dtype for t in loaded.outputs)
    typer.echo(f"result      {passed.comparison.verdict()}{', bit for bit' * exact}")


def _print(record: Record, passed: Examination, folder: Path | None) -> None:
    """The run as JSON; a result that differs from the reference was an error before this."""
    compared = {t.tensor: t for t in passed.comparison.tensors}
    from hwgen.cli.records import print_record

    tensors: list[Record] = [
        {
            "tensor": name,
            "dtype": str(array.dtype),
            "shape": list(array.shape),
            "elements": compared[name].elements,
            "nan": compared[name].nan,
            "unbounded": compared[name].unbounded,
            "file": None if folder is None else str(folder / f"{name}.npy"),
        }
        for name, array in passed.outputs.items()
    ]
    print_record("simulate", record | {"outputs": tensors}, ok=True)


def _sources(drawn: Sequence[str], seed: int, given: Mapping[str, Array]) -> str:
    parts = [f"{', '.join(given)} from files"] if given else []
    if drawn:
        parts.append(f"{', '.join(drawn)} random from seed {seed}")
    return "; ".join(parts) or "none"


def _saver(array: Array) -> Writer:
    def save(path: Path) -> None:
        with path.open("wb") as stream:
            np.save(stream, array, allow_pickle=False)

    return save
