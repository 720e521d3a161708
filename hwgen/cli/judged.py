"""Workloads that were refused, with who prevents their kernels."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from hwgen.errors import HwgenError

if TYPE_CHECKING:
    from hwgen.cli.resolve import Request
    from hwgen.report.refused import Refusal
    from hwgen.spec.hardware import HardwareSpec


def judged(
    request: Request, refused: Sequence[tuple[Path, HwgenError]], hardware: HardwareSpec
) -> list[Refusal]:
    """The refusals of a request, each with its verdict."""
    from hwgen.report.refused import refusal

    wanted = {w.path: w for w in request.workloads}
    found: list[Refusal] = []
    for path, error in refused:
        try:
            workload = wanted[path].load()
        except HwgenError:
            workload = None
        found.append(refusal(path.stem, error, workload, hardware))
    return found
