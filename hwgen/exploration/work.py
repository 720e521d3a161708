"""One piece of work of an exploration: a kernel to compile, and the figures that are kept of it."""

from __future__ import annotations

import traceback
from dataclasses import dataclass, replace

from pydantic import BaseModel, ConfigDict

from hwgen.errors import Diagnostic, HwgenError, Location
from hwgen.model.folders import cache_folder
from hwgen.network.kernels import compile_layer
from hwgen.passes.cache import ScheduleCache, content_key
from hwgen.passes.kernel import Kernel
from hwgen.passes.phase import SearchOptions
from hwgen.pipeline import compile_workload
from hwgen.spec.hardware import HardwareSpec
from hwgen.spec.workload import Workload
from hwgen.verify.executors import Lost

DEFECT = "H000"
DEFECTS = (DEFECT, *(Lost(late).error.code for late in (False, True)))
"""Codes of errors that no chip is to blame for: they are never kept."""


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class Refused(_Strict):
    """Why there is no kernel; fields as in `Diagnostic`, the location apart."""

    code: str
    message: str
    file: str = ""
    line: int = 0
    column: int = 0
    field: str = ""
    found: str = ""
    allowed: str = ""
    repair: str = ""

    @classmethod
    def of(cls, given: Diagnostic) -> Refused:
        """An error as plain data."""
        at = given.location or Location("")
        return cls(
            code=given.code, message=given.message, file=at.file, line=at.line, column=at.column,
            field=given.field, found=given.found, allowed=given.allowed, repair=given.repair,
        )  # fmt: skip

    @property
    def diagnostic(self) -> Diagnostic:
        where = Location(self.file, self.line, self.column) if self.file else None
        told = (self.field, self.found, self.allowed, self.repair)
        return Diagnostic(self.code, self.message, where, *told)


class Outcome(_Strict):
    """Figures of a kernel, or why there is none. `energy`: picojoules; None if the chip's file says
    nothing of it."""

    cycles: int = 0
    bound: int = 0
    off_chip_bytes: int = 0
    energy: float | None = None
    refused: Refused | None = None

    @property
    def kept(self) -> bool:
        """True if another run would find the same."""
        return self.refused is None or self.refused.code not in DEFECTS


@dataclass(frozen=True, slots=True)
class Work:
    """A kernel to compile. `layer`: of a network, as `hwgen compile` makes it; `cached`: results of
    searches are kept on the worker."""

    workload: Workload
    hardware: HardwareSpec
    options: SearchOptions
    layer: bool = False
    cached: bool = True

    @property
    def key(self) -> str:
        """The name of its outcome: a hash of all that it depends on."""
        return content_key(self.workload, self.hardware, self.options, self.layer)


def outcome_of(work: Work) -> Outcome:
    """Compile; runs on a worker."""
    try:
        made = kernel_of(work)
        energy = made.energy if made.hardware.has_energy else None
        return Outcome(
            cycles=made.cycles, bound=made.bound.cycles, off_chip_bytes=made.offchip_bytes,
            energy=energy,
        )  # fmt: skip
    except HwgenError as error:
        return Outcome(refused=Refused.of(error.diagnostic))
    except Exception as error:  # A defect of hwgen on one point: told there, the others go on.
        text = " ".join(str(error).split())[:200]
        place = traceback.extract_tb(error.__traceback__)[-1]
        said = f"internal error: {type(error).__name__}{': ' if text else ''}{text}"
        found = f"{work.workload.name} in {place.name}, line {place.lineno}"
        told = Diagnostic(DEFECT, said, found=found, repair="report it with this command")
        return Outcome(refused=Refused.of(told))


def kernel_of(work: Work) -> Kernel:
    """The kernel.

    Raises:
        HwgenError: as `compile_layer` and `compile_workload`.
    """
    folder = cache_folder() if work.cached else None
    if work.layer or work.hardware.units:
        return compile_layer(work.workload, work.hardware, work.options, folder)
    kept = ScheduleCache(folder) if folder is not None else None
    return compile_workload(work.workload, work.hardware, replace(work.options, cache=kept))
