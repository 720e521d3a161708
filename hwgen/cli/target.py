"""What `generate` writes C for."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from hwgen.cli.resolve import Request
    from hwgen.model.numeric import Array


@dataclass(frozen=True, slots=True)
class Target:
    """A host with a heap, or firmware. `weights`: `TENSOR=FILE.npy` of constants that are
    compiled in."""

    firmware: bool = False
    weights: tuple[str, ...] = ()


HOST = Target()


def weights_of(request: Request, target: Target) -> dict[str, Array]:
    """The values of what is compiled in, read before anything is compiled.

    Raises:
        HwgenError: H008 where they do not fit the workload, and as `load_workload`.
    """
    if not target.weights:
        return {}
    from hwgen.cli.arrays import read_weights

    (wanted,) = request.workloads
    return read_weights(target.weights, wanted.load())


def report_files(firmware: Sequence[object], output: Path | None, files: Iterable[str]) -> None:
    """Say what kernels for firmware need, and what was written."""
    for kernel in firmware:
        typer.echo(f"firmware {kernel}")
    if output is not None:
        names = ", ".join(files)
        typer.echo(f"wrote {names} to {output}" if names else "nothing to write")
