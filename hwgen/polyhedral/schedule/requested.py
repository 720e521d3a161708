"""What `hwgen.build` is given, each in any of its forms: chips, workloads and schedules."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from hwgen.errors import HwgenError
from hwgen.polyhedral.schedule.schedule import Schedule
from hwgen.polyhedral.schedule.script import read_file
from hwgen.spec.find import find_spec, find_workload
from hwgen.spec.hardware import HardwareSpec
from hwgen.spec.load import load_hardware, load_workload
from hwgen.spec.shown import assigned
from hwgen.spec.workload import Workload


def find_chip(
    chip: HardwareSpec | Path | str, *, trust: bool = False
) -> tuple[HardwareSpec, Path | None]:
    """A chip, and its file where that is known; `trust` as in `load_hardware`.

    Raises:
        HwgenError: H050; as `load_hardware`.
    """
    match chip:
        case HardwareSpec():
            return replace(chip, trusted=True) if trust and not chip.trusted else chip, None
        case str() | Path():
            path = find_spec(chip) if isinstance(chip, str) else chip
            return load_hardware(path, trust=trust), path
        case _:
            allowed = "a HardwareSpec, a path, or a bare name"
            swapped = isinstance(chip, Workload)
            repair = "hwgen.build(workload, chip): the workload comes first" if swapped else ""
            raise unfit("chip", type(chip).__name__, allowed, repair)


def find_computation(
    workload: Workload | Path | str,
    sizes: Mapping[str, int] | None,
    beside: Path | None,
    dtypes: Mapping[str, str] | None = None,
) -> Workload:
    """A workload; bare names are looked for beside the chip's file too.

    Raises:
        HwgenError: H050; as `load_workload`.
    """
    match workload:
        case Workload():
            for argument, given in (("sizes", sizes), ("dtypes", dtypes)):
                if given:
                    raise unfit(
                        argument,
                        f"{argument} for {workload.name}, which has been resolved with its own",
                        f"{argument} of a workload that is given by its path or name",
                        f"hwgen.load_workload(path, {argument}={{...}})",
                    )
            return workload
        case str():
            return load_workload(find_workload(workload, beside), sizes, dtypes)
        case Path():
            return load_workload(workload, sizes, dtypes)
        case _:
            allowed = "a Workload, a path, or a bare name"
            raise unfit("workload", type(workload).__name__, allowed)


def script_text(
    script: Schedule | Path | str | None, workload: Workload, hardware: HardwareSpec
) -> tuple[str | None, str]:
    """A script's text, and what errors call its file.

    Raises:
        HwgenError: H050; as `read_file`.
    """
    match script:
        case None | str():
            return script, "script"
        case Path():
            return read_file(script), str(script)
        case Schedule():
            if (script.workload, script.hardware) != (workload, hardware):
                found, allowed = (
                    f"a schedule of {w.name} on {h.name}, {assigned(w.sizes)}"
                    for w, h in ((script.workload, script.hardware), (workload, hardware))
                )
                repair = "hwgen.build(schedule.workload, schedule.hardware, script=schedule)"
                raise unfit("script", found, allowed, repair)
            return script.trace(), "schedule.trace()"
        case _:
            allowed = "a Schedule, a Path, or a script's text"
            raise unfit("script", type(script).__name__, allowed)


def unfit(argument: str, found: str, allowed: str, repair: str = "") -> HwgenError:
    """H050, of an argument of `hwgen.build`."""
    return HwgenError(
        "H050",
        f"hwgen.build takes no such {argument}",
        field=argument,
        found=found,
        allowed=allowed,
        repair=repair,
    )
