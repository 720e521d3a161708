"""The whole compiler on one page: a workload and a chip in, a checked kernel out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from math import inf
from typing import TypeVar

from hwgen.autoschedule.options import Options
from hwgen.codegen.image_layout import images_refused
from hwgen.errors import HwgenError, Tolerating
from hwgen.passes.compilation import Compilation, Kernel, build
from hwgen.passes.compiled import Compiled
from hwgen.passes.decomposing import decomposed
from hwgen.passes.fusing import several
from hwgen.passes.inlining import REFUSALS, UNMADE, UnitsOf, compile_inlined, replayed
from hwgen.passes.interleaving import interleaved
from hwgen.passes.nest_pipeline import compile_nest
from hwgen.passes.network import in_blocks, phases_may_be_faster, shared_if_better
from hwgen.passes.phase import DEFAULTS, SearchOptions, compile_phase
from hwgen.passes.phased import compile_phases
from hwgen.passes.replaying import again
from hwgen.passes.trees import TreeCompilation
from hwgen.passes.weighing import surely_weighed, weighed_if_better, weighed_instead
from hwgen.polyhedral import isl
from hwgen.polyhedral.phases import split_phases
from hwgen.polyhedral.schedule.schedule import Schedule
from hwgen.polyhedral.scop import build_scop
from hwgen.polyhedral.search.objective import check_objective
from hwgen.polyhedral.search.search import Candidate, SearchResult
from hwgen.polyhedral.tree.defined import check_defined
from hwgen.polyhedral.tree.versions import versioned
from hwgen.spec.hardware import HardwareSpec
from hwgen.spec.workload import Workload

__all__ = [
    "Compilation",
    "Kernel",
    "SearchOptions",
    "build",
    "compile_kernel",
    "compile_workload",
    "otherwise",
]

C = TypeVar("C", Compilation, Compilation | TreeCompilation)
"""What a workload is compiled to."""


def compile_kernel(
    workload: Workload,
    hardware: HardwareSpec,
    schedule: Candidate | None = None,
    options: SearchOptions = DEFAULTS,
) -> Compilation:
    """Compile a workload for a chip's units; `schedule` replaces the search's choice.

    Raises:
        HwgenError: H3xx where no intrinsics match (H301 where the chip is a processor alone, which
            `compile_nest` is for), H4xx where no schedule exists or fits, or where looking for one
            takes too long.
    """
    if not hardware.units:
        raise HwgenError(
            "H301",
            f"{hardware.name} has no units for intrinsics to run on",
            location=hardware.location,
            found="a processor",
            allowed="chips with units",
            repair="hwgen.compile_nest(workload, hardware)",
        )
    check_objective(hardware, options.objective)
    if schedule is None:
        return _padded_apart(workload, partial(_searched, hardware=hardware, options=options))
    with isl.bounded():
        scop = build_scop(workload)
        kernel = build(workload, hardware, scop, schedule)
        matches, given = (schedule.tiling.match,), SearchResult((schedule,))
        return Compilation(workload, hardware, scop, matches, given, kernel)


def _padded_apart(workload: Workload, compiled: Callable[[Workload], C]) -> C:
    """A kernel whose padding of what it computes is taken apart first, if there is any; as it is
    where what was made so cannot be made again in the workload's own schedule."""
    plain, edits = decomposed(workload)
    if not edits:
        return compiled(workload)
    made = compiled(plain)
    with Tolerating(REFUSALS):
        return again(made, workload, edits)
    return compiled(workload)


def _searched(workload: Workload, hardware: HardwareSpec, options: SearchOptions) -> Compilation:
    """A workload as the search finds it best."""
    with isl.bounded():
        units = cache(partial(_as_it_is, hardware=hardware, options=options))
        searched = versioned(workload)
        made = surely_weighed(searched, hardware, units, options)
        if made is None:
            try:
                made = units(searched)
            except HwgenError as error:
                if error.code not in ("H301", UNMADE):
                    raise
                made = _edited(searched, hardware, units, options, error)
            made = weighed_if_better(made, searched, hardware, units, options)
        return _with_end(made if searched == workload else replayed(made, workload))


def _with_end(made: Compilation) -> Compilation:
    """The same, its last results stored in pieces where that is faster."""
    tree = interleaved(made.kernel.made)
    if tree is made.kernel.made:
        return made
    kernel = replace(made.kernel, made=tree)
    return replace(made, kernel=kernel, search=replace(made.search, cycles=kernel.cycles))


def _edited(
    workload: Workload,
    hardware: HardwareSpec,
    units: UnitsOf,
    options: SearchOptions,
    refused: HwgenError,
) -> Compilation:
    """A kernel of a workload that units do not compute statement by statement; where they do with
    weights, a processor beside them must take longer over it."""
    try:
        return compile_inlined(workload, hardware, units, refused)
    except HwgenError as error:
        if not error.code.startswith(REFUSALS):
            raise
        most = _cycles_of_processor(workload, hardware)
        found = weighed_instead(workload, hardware, units, options, most)
        if found is None:
            raise
        return found


def _cycles_of_processor(workload: Workload, hardware: HardwareSpec) -> float:
    """What a processor takes for all of a workload, as it is written; infinite without one."""
    if hardware.processor is None:
        return inf
    from hwgen.polyhedral.tree.cost import estimate_nest

    schedule = Schedule(workload, hardware)
    return estimate_nest(schedule.resolved, schedule.homes, hardware).cycles


def _as_it_is(workload: Workload, hardware: HardwareSpec, options: SearchOptions) -> Compilation:
    """A workload compiled statement by statement."""
    phases = split_phases(workload)
    if len(phases) == 1:
        return compile_phase(workload, hardware, options, refused=partial(images_refused, hardware))
    return compile_phases(workload, hardware, phases, options)


def compile_workload(
    workload: Workload, hardware: HardwareSpec, options: SearchOptions = DEFAULTS
) -> Compiled:
    """Compile a workload for any chip: for its units, phase by phase or in loops that its stages
    share, and the processor beside them, which does what no intrinsics compute (where it does all,
    there is a tree alone), or for a processor alone.

    Raises:
        HwgenError: as `compile_kernel`, where there is no processor or it cannot do the rest; as
            `compile_nest`; H222, H225 elements that no statement writes.
    """
    check_objective(hardware, options.objective)
    if not hardware.units and hardware.processor is not None:
        return compile_nest(workload, hardware, options=Options(seconds=options.seconds))
    with isl.bounded():
        check_defined(workload)
    compiled = partial(_of_units, hardware=hardware, options=options)
    made = _padded_apart(workload, compiled)
    if hardware.processor is None or not decomposed(workload)[1]:
        return made
    # The processor may pad what it makes for units: they then load it as the image of a view.
    return min(made, compiled(workload), key=options.measure)


def _of_units(
    workload: Workload, hardware: HardwareSpec, options: SearchOptions
) -> Compilation | TreeCompilation:
    """A workload compiled for a chip with units."""
    try:
        made = compile_kernel(workload, hardware, options=replace(options, spills=False))
    except HwgenError as error:
        return otherwise(workload, hardware, options, error)
    return shared_if_better(
        made, partial(compile_kernel, hardware=hardware, options=options), options
    )


def otherwise(
    workload: Workload, hardware: HardwareSpec, options: SearchOptions, refused: HwgenError
) -> Compilation | TreeCompilation:
    """What units cannot run phase by phase with all that is in between on the chip, for a reason:
    in blocks that stages share, or phase by phase all the same, else with the processor beside
    them.

    Raises:
        HwgenError: the reason, where there is no processor or it cannot do the rest.
    """
    units = partial(compile_kernel, hardware=hardware, options=options)
    shared = in_blocks(workload, hardware, units, options, refused)
    if shared is not None and not phases_may_be_faster(shared, options):
        return shared
    try:
        made = units(workload) if several(workload) else None
    except HwgenError as error:
        refused, made = error, None
    if made is not None or shared is not None:
        return min((k for k in (shared, made) if k is not None), key=options.measure)
    if not hardware.units or hardware.processor is None or not refused.code.startswith(REFUSALS):
        raise refused
    from hwgen.passes.hosting import compile_beside

    with isl.bounded():
        return compile_beside(workload, hardware, units, refused)
