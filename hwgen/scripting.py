"""Scripts of chips with units: written from a compilation, compiled as they are, or completed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice

from hwgen.compilation import Compilation, Kernel, build
from hwgen.errors import HwgenError
from hwgen.model.bound import lower_bound
from hwgen.phase import DEFAULTS, SearchOptions
from hwgen.phased import PhasedCompilation
from hwgen.pipeline import compile_kernel
from hwgen.polyhedral import isl
from hwgen.polyhedral.dependences import Dependences, dependences
from hwgen.polyhedral.matching import Match, ranked_matches
from hwgen.polyhedral.scop import Scop, build_scop
from hwgen.polyhedral.search import Candidate, SearchResult, Watch, search
from hwgen.polyhedral.search_choose import LIMITS
from hwgen.polyhedral.selection import select
from hwgen.polyhedral.tiling import Tiling
from hwgen.schedule import Schedule
from hwgen.script import Edit, write
from hwgen.spec.hardware import HardwareSpec
from hwgen.spec.workload import Workload
from hwgen.tiling_lift import lift, reader_of
from hwgen.tiling_script import apply_tiling, inexpressible

GROUPS = 3
"""Groups of matches considered, the best first."""

CANDIDATES, SIMULATED = 24, 4
"""Schedules looked at for one match, and simulated, before the best is taken."""


def script_of(compilation: Compilation) -> str:
    """The primitives that make a compilation's schedule.

    Raises:
        HwgenError: H419 where primitives cannot say it.
    """
    if isinstance(compilation, PhasedCompilation):
        raise inexpressible("it has several phases", f"{len(compilation.phases)} phases")
    schedule = Schedule(compilation.workload, compilation.hardware)
    apply_tiling(schedule, compilation.scop, compilation.schedule.tiling)
    return schedule.trace()


def compile_script(
    workload: Workload, hardware: HardwareSpec, script: str, file: str = "script"
) -> Compilation:
    """Compile the schedule that a script makes, as it is.

    Raises:
        HwgenError: H418 a line that is no edit, H411 to H417 an edit that is refused, H420 where
            the chip's calls cannot run the schedule; whatever `compile_kernel` raises.
    """
    schedule = Schedule(workload, hardware).replay(script, file)
    with isl.bounded():
        scop = build_scop(workload)
        tiling = lift(schedule, scop, every_match(scop, hardware))
    return compile_kernel(workload, hardware, schedule=_candidate(tiling))


def complete_script(
    workload: Workload,
    hardware: HardwareSpec,
    script: str,
    file: str = "script",
    options: SearchOptions = DEFAULTS,
) -> Compilation:
    """Compile the best schedule whose script begins as the given one does.

    A script that tensorizes every stage is compiled as it is.

    Raises:
        HwgenError: as `compile_script`; H420 with the first line that no schedule goes on from.
    """
    schedule = Schedule(workload, hardware).replay(script, file)
    if any(s.block.tensorized is not None for s in schedule.state.sites):
        return compile_script(workload, hardware, script, file)
    with isl.bounded():
        scop = build_scop(workload)
        parts = (workload, hardware, scop, dependences(scop))
        wanted = schedule.edits()
        best: tuple[Kernel, SearchResult, list[Match]] | None = None
        furthest = 0, ""
        for group in islice(ranked_matches(scop, select(scop, hardware)), GROUPS):
            for match in group:
                fixed = reader_of(schedule, scop).known_tiles(match)
                found = _search(hardware, match, options, fixed)
                for candidate in _continuing(parts, found, wanted):
                    if isinstance(candidate, tuple):
                        furthest = max(furthest, candidate)
                        continue
                    kernel = build(*parts, candidate)
                    if best is None or kernel.cycles < best[0].cycles:
                        best = kernel, found, group
    if best is None:
        raise _no_way_on(wanted, furthest)
    kernel, result, group = best
    bound = lower_bound(kernel.program, hardware).cycles
    result = replace(result, cycles=kernel.cycles, bound=bound)
    return Compilation(*parts, tuple(group), result, kernel)


def _search(
    hardware: HardwareSpec, match: Match, options: SearchOptions, fixed: Mapping[str, int]
) -> SearchResult:
    watch = Watch(options.seconds, options.progress)
    try:
        return search(hardware, [match], CANDIDATES, 2, watch, fixed)
    except HwgenError as error:
        if error.code not in LIMITS:
            raise
        return SearchResult(())


def _continuing(
    parts: tuple[Workload, HardwareSpec, Scop, Dependences],
    found: SearchResult,
    wanted: Sequence[Edit],
) -> Iterator[Candidate | tuple[int, str]]:
    """The cheapest candidates whose script begins so; of others, how far it does and what then
    follows."""
    workload, hardware, scop, _ = parts
    taken = 0
    for candidate in found.candidates:
        made = Schedule(workload, hardware)
        try:
            apply_tiling(made, scop, candidate.tiling)
        except HwgenError:
            continue
        edits = made.edits()
        same = next((n for n, (a, b) in enumerate(zip(edits, wanted, strict=False)) if a != b), -1)
        if same >= 0 or len(edits) < len(wanted):
            at = same if same >= 0 else len(edits)
            yield at, write(edits[: at + 1]).splitlines()[-1]
            continue
        yield candidate
        taken += 1
        if taken == SIMULATED:
            return


def _no_way_on(wanted: Sequence[Edit], furthest: tuple[int, str]) -> HwgenError:
    at, instead = furthest
    lines = write(wanted).splitlines()
    return HwgenError(
        "H420",
        "no schedule of the chip's calls begins so",
        found=lines[at] if at < len(lines) else "more edits than a schedule has",
        allowed=instead or "the beginning of a script that --stage script prints",
        repair="take that script, cut it where the scheduler shall go on, and change its numbers",
    )


def every_match(scop: Scop, hardware: HardwareSpec) -> Iterator[Match]:
    """Every way to run a workload, the best first."""
    for group in ranked_matches(scop, select(scop, hardware)):
        yield from group


def _candidate(tiling: Tiling) -> Candidate:
    return Candidate(tiling, 0, 0)
