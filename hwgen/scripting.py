"""Scripts of chips with units: written from a compilation, compiled as they are, or completed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice

from hwgen.capacity_script import Given, beginning_exceeds
from hwgen.capacity_script import exceeds as tiles_exceed
from hwgen.compilation import Compilation, Kernel, build
from hwgen.compiled import Compiled
from hwgen.errors import HwgenError, Location
from hwgen.phase import DEFAULTS, SearchOptions
from hwgen.phased import PhasedCompilation, inputs_of, join, plans_of, sharing_of, stages_of
from hwgen.pipeline import compile_kernel
from hwgen.polyhedral import isl
from hwgen.polyhedral.dependences import Dependences, dependences
from hwgen.polyhedral.matching import Match, ranked_matches
from hwgen.polyhedral.operations import NOTHING_SHARED, Sharing
from hwgen.polyhedral.phases import Phase, split_phases
from hwgen.polyhedral.scop import Scop, build_scop
from hwgen.polyhedral.search import Candidate, SearchResult, Watch, search
from hwgen.polyhedral.search_choose import LIMITS, OF_TREES
from hwgen.polyhedral.select import every_match, select
from hwgen.polyhedral.tiling import Tiling
from hwgen.schedule import Schedule
from hwgen.script import Edit, line_of, write
from hwgen.script_refit import exceeds
from hwgen.spec.hardware import HardwareSpec
from hwgen.spec.workload import Workload
from hwgen.spilling import Choice, Spill
from hwgen.tiling_lift import Reading, lift, own_stages, reader_of, readings
from hwgen.tiling_script import apply_tiling, apply_tilings
from hwgen.trees import TreeCompilation, compile_tree

NO_KERNEL = (
    *("H301", "H302", "H305", "H401", "H402", "H403", "H404", "H405", "H407", "H408", "H409"),
    *("H502", "H503", "H504", "H505", "H611", "H612", "H613", "H614", "H615", "H616"),
)
"""Why a chip has no kernel for a workload; any other error is a defect, and told."""

GROUPS = 3
"""Groups of matches considered, the best first."""

CANDIDATES, SIMULATED = 24, 4
"""Schedules looked at for one match, and simulated, before the best is taken."""


def script_of(compilation: Compiled) -> str:
    """The primitives that make a compilation's schedule.

    Raises:
        HwgenError: H419 where primitives cannot say it.
    """
    if isinstance(compilation, TreeCompilation):
        return compilation.schedule.trace()
    assert isinstance(compilation, Compilation)
    made = compilation.kernel.made
    if isinstance(made, TreeCompilation):
        return made.schedule.trace()
    found = compilation.parts
    spilled: tuple[str, ...] = ()
    if isinstance(compilation, PhasedCompilation):
        spilled = tuple(s.tensor for s in compilation.spills)
    schedule = Schedule(compilation.workload, compilation.hardware)
    scops, tilings = [c.scop for c in found], [c.tiling for c in found]
    apply_tilings(schedule, plans_of(schedule, scops, tilings, spilled))
    return schedule.trace()


def compile_script(
    workload: Workload, hardware: HardwareSpec, script: str, file: str = "script"
) -> Compiled:
    """Compile the schedule that a script makes, as it is.

    Raises:
        HwgenError: H418 a line that is no edit, H411 to H417 an edit that is refused, H420 where
            the chip's calls cannot run the schedule; whatever `compile_kernel` raises.
    """
    return _compile(Schedule(workload, hardware).replay(script, file), script, file)


def compile_schedule(schedule: Schedule) -> Compiled:
    """Compile a schedule for a chip with units, as it is. (`compile_nest` is for processors.)

    Raises:
        HwgenError: H420 where the chip's calls cannot run the schedule; whatever `compile_kernel`
            raises.
    """
    return _compile(schedule, schedule.trace(), "")


def _compile(schedule: Schedule, script: str, file: str) -> Compiled:
    """Compile the schedule that a script makes: the tree that it is, or a tiling that is none."""
    try:
        return compile_tree(schedule)
    except HwgenError as error:
        if error.code == "H502":
            raise _exceeds(schedule, script, file, error) from None
        if error.code not in OF_TREES or _is_no_tiling(schedule):
            raise
    return _compile_tiling(schedule, script, file)


def _exceeds(schedule: Schedule, script: str, file: str, error: HwgenError) -> HwgenError:
    """The error of buffers that exceed a memory, with the nearest that fit: of a tiling, by what
    its tiles take; else by trying some."""
    if not _is_no_tiling(schedule):
        with isl.bounded():
            better = _tiles_exceed(schedule, script, file, error)
        if better is not None:
            return better
    return exceeds(schedule, script, file, error, compile_tree)


def _tiles_exceed(
    schedule: Schedule, script: str, file: str, error: HwgenError
) -> HwgenError | None:
    try:
        phases = _read(schedule)
        ways = readings(schedule, phases)
    except HwgenError as unread:
        if unread.code not in NO_KERNEL:
            raise
        return None
    # Which of several ways it is, as factors that commute, its calls alone do not say; and no
    # tiling has a loop over a single tile, but that tile may be just too large.
    for tilings in _near(ways) if all(ways) else ():
        given = Given(schedule, phases, tilings, script, file)
        better = tiles_exceed(given, partial(_joined, schedule, phases), _lifted, error)
        if better is not None:
            return better
    return None


def _near(ways: Sequence[Sequence[Tiling]]) -> Iterator[list[Tiling]]:
    """The first way of every phase, then others of one phase at a time."""
    first = [w[0] for w in ways]
    yield first
    for phase, others in enumerate(ways):
        for way in others[1:]:
            yield [*first[:phase], way, *first[phase + 1 :]]


def _lifted(schedule: Schedule) -> list[Tiling]:
    phases = _read(schedule)
    return lift(schedule, phases, readings(schedule, phases))


def _is_no_tiling(schedule: Schedule) -> bool:
    """Whether a schedule says what no tiling can."""
    storages = schedule.state.storages
    by_hand = any(s.alias or s.layout or (s.bank, s.address) != (None, None) for s in storages)
    if schedule.hardware.pipelined:
        return by_hand  # Its tilings have loads ahead and stores behind.
    return by_hand or any(s.block.shifts or s.block.band for s in schedule.state.sites)


def _compile_tiling(schedule: Schedule, script: str, file: str) -> Compilation:
    """Compile a schedule that is a tiling of each phase."""
    with isl.bounded():
        phases = _read(schedule)
        tilings = lift(schedule, phases, readings(schedule, phases), script, file)
        return _joined(schedule, phases, tilings)


def _read(schedule: Schedule) -> list[Reading]:
    """What a schedule's phases may be."""
    workload, hardware = schedule.workload, schedule.hardware
    phases = split_phases(workload)
    found: list[Reading] = []
    stages = stages_of(Schedule(workload, hardware), phases)
    for number, (phase, first) in enumerate(zip(phases, stages, strict=True)):
        sharing = _sharing(schedule, phases, stages, number)
        scop = build_scop(phase.workload)
        matches = every_match(scop, hardware, sharing)
        found.append(Reading(scop, matches, first, sharing))
    return found


def _joined(
    schedule: Schedule, phases: Sequence[Reading], tilings: Sequence[Tiling]
) -> Compilation:
    """The kernel of all phases."""
    found = _built(schedule.hardware, phases, tilings)
    if len(found) == 1:
        return found[0]
    spills = _choice(schedule, split_phases(schedule.workload)).spills
    return join(schedule.workload, schedule.hardware, found, spills)


def _sharing(
    schedule: Schedule, phases: Sequence[Phase], stages: Sequence[tuple[str, ...]], number: int
) -> Sharing:
    """What a schedule lets a phase share: an input stays for later ones that read its cache."""
    if len(phases) == 1:
        return NOTHING_SHARED
    state, choice = schedule.state, _choice(schedule, phases)
    computed = [t for phase in phases[:number] for t in phase.leaves]
    held = {t: state.storage[t].memory for t in computed if t not in choice.spilled}
    kept: set[str] = set()
    for tensor, cache, readers in _caches(schedule, stages):
        if readers[0] < number <= readers[-1]:
            held[tensor] = state.storage[cache].memory
        later = any(tensor in inputs_of(phase) for phase in phases[number + 1 :])
        # One that is read twice, and by no other phase, is loaded as a whole where it fits.
        alone = not later and not schedule.homes[cache] and state.storage[cache].slots == 1
        if readers[0] == number and (readers[-1] > number or alone):
            kept.add(tensor)
    apart = tuple(t for t in inputs_of(phases[number]) if t not in kept)
    return sharing_of(phases, number, held, replace(choice, apart=apart))


def _caches(
    schedule: Schedule, stages: Sequence[tuple[str, ...]]
) -> Iterator[tuple[str, str, list[int]]]:
    """What is cached, the cache, and the phases that read it, in order."""
    state = schedule.state
    mine = [own_stages(state, first) for first in stages]
    for stage in state.stages:
        if stage.kind == "copy" and not any(stage.tensor in names for names in mine):
            readers = {s.tensor for s in state.readers(stage.tensor)}
            found = [n for n, names in enumerate(mine) if names & readers]
            if found:
                yield stage.reads[0].tensor, stage.tensor, found


def _choice(schedule: Schedule, phases: Sequence[Phase]) -> Choice:
    """What a schedule leaves in no memory of the chip between two phases."""
    storage = schedule.state.storage
    left = [t for phase in phases for t in phase.leaves if not storage[t].memory]
    return Choice(tuple(Spill(t, "by the script") for t in left))


def _built(
    hardware: HardwareSpec, readings: Sequence[Reading], tilings: Sequence[Tiling]
) -> list[Compilation]:
    found: list[Compilation] = []
    for reading, tiling in zip(readings, tilings, strict=True):
        scop = reading.scop
        parts = (scop.workload, hardware, scop, dependences(scop))
        candidate = _candidate(tiling)
        kernel = build(scop.workload, hardware, scop, candidate, reading.sharing)
        found.append(Compilation(*parts, (tiling.match,), SearchResult((candidate,)), kernel))
    return found


def complete_script(
    workload: Workload,
    hardware: HardwareSpec,
    script: str,
    file: str = "script",
    options: SearchOptions = DEFAULTS,
) -> Compiled:
    """Compile the best schedule whose script begins as the given one does.

    A script that tensorizes some stage is compiled as it is, unless the best schedule of all begins
    so.

    Raises:
        HwgenError: as `compile_script`; H420 with the first line that no schedule goes on from.
    """
    schedule = Schedule(workload, hardware).replay(script, file)
    refused: HwgenError | None = None
    if any(s.block.tensorized is not None for s in schedule.state.sites):
        try:
            return compile_script(workload, hardware, script, file)
        except HwgenError as error:
            if error.code != "H420":
                raise
            refused = error
    best_of_all = _automatic(schedule, options)
    if best_of_all is not None:
        return best_of_all
    if refused is not None:
        raise refused
    if len(split_phases(workload)) > 1:
        raise HwgenError(
            "H420",
            "an unfinished script of a kernel with several phases",
            found=f"{len(schedule.edits())} edits and no call",
            allowed="scripts that name the calls of every stage",
            repair="take the script that --stage script prints as a whole, and change it",
        )
    with isl.bounded():
        scop = build_scop(workload)
        parts = (workload, hardware, scop, dependences(scop))
        wanted = schedule.edits()
        best: tuple[Kernel, SearchResult, list[Match]] | None = None
        furthest = 0, ""
        too_large: HwgenError | None = None
        watch = Watch(options.seconds, options.progress, options.work)
        for group in islice(ranked_matches(scop, select(scop, hardware)), GROUPS):
            for match in group:
                fixed = reader_of(schedule, scop).known_tiles(match)
                try:
                    found = search(hardware, [match], CANDIDATES, 2, watch, fixed)
                except HwgenError as error:
                    if error.code not in LIMITS:
                        raise
                    if fixed and too_large is None:
                        begun = (script, file)
                        too_large = beginning_exceeds(schedule, scop, match, fixed, begun, error)
                    continue
                for candidate in _continuing(parts, found, wanted):
                    if isinstance(candidate, tuple):
                        furthest = max(furthest, candidate)
                        continue
                    kernel = build(workload, hardware, scop, candidate)
                    if best is None or kernel.cycles < best[0].cycles:
                        best = kernel, found, group
    if best is None and too_large is not None:
        raise too_large
    if best is None:
        raise _no_way_on(wanted, furthest).at(Location(file, line_of(script, furthest[0])))
    kernel, result, group = best
    result = replace(result, cycles=kernel.cycles)
    return Compilation(*parts, tuple(group), result, kernel).bounded


def _automatic(schedule: Schedule, options: SearchOptions) -> Compilation | None:
    """What is compiled without a script, where its script begins as the given one does."""
    wanted = schedule.edits()
    try:
        found = compile_kernel(schedule.workload, schedule.hardware, options=options)
    except HwgenError as error:
        if error.code not in NO_KERNEL:
            raise
        return None  # Other schedules may still begin so, and what refuses them says why.
    whole = Schedule(schedule.workload, schedule.hardware).replay(script_of(found))
    return found if whole.edits()[: len(wanted)] == wanted else None


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
        except HwgenError as error:
            if not error.code.startswith("H41"):
                raise
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


def _candidate(tiling: Tiling) -> Candidate:
    return Candidate(tiling, 0, 0)
