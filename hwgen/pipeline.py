"""The whole compiler on one page: a workload and a chip in, a checked kernel out."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from math import inf

from hwgen.autoschedule.options import Options
from hwgen.codegen.lower.image_uses import images_refused
from hwgen.errors import HwgenError
from hwgen.passes.covering import UNMADE, all_forms, best_form, covered_forms, started
from hwgen.passes.fusing import several
from hwgen.passes.interleaving import interleaved
from hwgen.passes.kernel import REFUSALS, Kernel
from hwgen.passes.moves import all_apart, any_turned, plain, with_padding_apart
from hwgen.passes.nest_pipeline import compile_nest
from hwgen.passes.network import in_blocks, phases_may_be_faster, shared_if_better
from hwgen.passes.on_cores import on_all_cores
from hwgen.passes.parts import CompileUnits
from hwgen.passes.phase import DEFAULTS, SearchOptions, compile_phase
from hwgen.passes.phased import compile_phases
from hwgen.passes.start import Start
from hwgen.passes.trees import build
from hwgen.polyhedral import isl
from hwgen.polyhedral.phases import split_phases
from hwgen.polyhedral.scop import build_scop
from hwgen.polyhedral.search.objective import check_objective
from hwgen.polyhedral.search.search import Candidate, SearchResult
from hwgen.polyhedral.tree.defined import check_defined
from hwgen.spec.hardware import HardwareSpec
from hwgen.spec.workload import Workload

__all__ = [
    "SearchOptions",
    "compile_kernel",
    "compile_workload",
    "otherwise",
    "rewritten",
    "units_of",
]


def compile_kernel(
    workload: Workload,
    hardware: HardwareSpec,
    schedule: Candidate | None = None,
    options: SearchOptions = DEFAULTS,
) -> Kernel:
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
    with isl.bounded():
        if schedule is None:
            return _searched(rewritten(workload, hardware), options)
        start = started(Start(workload, hardware))
        made = build(start, build_scop(start.workload), schedule)
        matches, given = (schedule.tiling.match,), SearchResult((schedule,))
        return made.with_account(replace(made.account, matches=matches, search=given))


def rewritten(workload: Workload, hardware: HardwareSpec) -> Start:
    """A workload after the rewrites that are always wanted."""
    return with_padding_apart(Start(workload, hardware))


def _searched(start: Start, options: SearchOptions) -> Kernel:
    """What units make of a start, as the search finds it best."""
    made_of = partial(_as_it_is, options=options)
    with isl.bounded():
        start = started(start)
        try:
            made = best_form(all_forms(start), made_of, options)
        except HwgenError as error:
            if error.code not in ("H301", UNMADE):
                raise
            instead = None if error.code == UNMADE else error
            made = best_form(covered_forms(start, error), made_of, options, instead)
            # A processor beside units must take longer over it.
            if made.cycles >= _cycles_of_processor(start):
                raise
        return made


def _cycles_of_processor(start: Start) -> float:
    """What a processor takes for all of a workload; infinite without one."""
    if start.hardware.processor is None:
        return inf
    from hwgen.passes.hosting import processor_cycles

    return processor_cycles(start.schedule)


def _as_it_is(start: Start, options: SearchOptions) -> Kernel:
    """What a start computes, statement by statement."""
    phases = split_phases(start.workload)
    if len(phases) == 1:
        mine = partial(images_refused, start.hardware)
        return compile_phase(start, options, refused=mine, ended=interleaved)
    return interleaved(compile_phases(start, phases, options))


def compile_workload(
    workload: Workload, hardware: HardwareSpec, options: SearchOptions = DEFAULTS
) -> Kernel:
    """Compile a workload for any chip: for its units, phase by phase or in loops that its stages
    share, and the processor beside them, which does what no intrinsics compute (where it does all,
    there is a tree alone), or for a processor alone.

    Raises:
        HwgenError: as `compile_kernel`, where there is no processor or it cannot do the rest; as
            `compile_nest`; H222, H225 elements that no statement writes.
    """
    check_objective(hardware, options.objective)
    if options.units_only and not hardware.units:
        return compile_kernel(workload, hardware, options=options)  # Refuses it.
    if not hardware.units and hardware.processor is not None:
        return compile_nest(workload, hardware, options=Options(seconds=options.seconds))
    with isl.bounded():
        check_defined(workload)
        given = Start(workload, hardware)
        best = plain(given)
        # A chip may lack the step that takes the place of several.
        forms, simple = _paddings(given), _paddings(best) if best is not given else []
    units = units_of(hardware, options)
    made_of = partial(_of_units, options=options, units=units)
    spare = len(forms) if simple else 0
    best_kernel = best_form([*forms, *simple], made_of, options, by_units=False, spare=spare)
    return on_all_cores(best_kernel, options)


def _paddings(start: Start) -> list[Start]:
    """The ways to pad what is computed: a processor may do it for units, which then load it as the
    image of a view."""
    apart = with_padding_apart(start)
    both = start.hardware.processor is not None and apart is not start
    return [apart, start] if both else [apart]


def units_of(hardware: HardwareSpec, options: SearchOptions) -> CompileUnits:
    """What compiles parts of a workload for a chip's units."""
    return CompileUnits(partial(compile_kernel, hardware=hardware, options=options))


def _of_units(start: Start, options: SearchOptions, units: CompileUnits) -> Kernel:
    """What is made of a start for a chip with units."""
    begun = started(start)
    try:
        made = _searched(begun, replace(options, spills=False))
    except HwgenError as error:
        return otherwise(start, options, error, units)
    best = shared_if_better(begun, made, units, options)
    if start.hardware.processor is None or options.units_only or not any_turned(start):
        return best
    from hwgen.passes.hosting import compile_beside

    # Units may multiply faster what the processor has made unsigned, or signed.
    beside = compile_beside(all_apart(start), units)
    return best if beside is None else min(best, beside, key=options.measure)


def otherwise(
    start: Start, options: SearchOptions, refused: HwgenError, units: CompileUnits
) -> Kernel:
    """What units cannot run phase by phase with all that is in between on the chip, for a reason:
    in blocks that stages share, or phase by phase all the same, else with the processor beside
    them.

    Raises:
        HwgenError: the reason, where there is no processor or it may not or cannot do the rest.
    """
    hardware = start.hardware
    shared = in_blocks(started(start), units, options, refused)
    if shared is not None and not phases_may_be_faster(start, shared, options):
        return shared
    try:
        made = _searched(start, options) if several(start.workload) else None
    except HwgenError as error:
        refused, made = error, None
    if made is not None or shared is not None:
        return min((k for k in (shared, made) if k is not None), key=options.measure)
    if not hardware.units or hardware.processor is None or not refused.code.startswith(REFUSALS):
        raise refused
    if options.units_only:
        raise refused
    from hwgen.passes.hosting import compile_beside

    apart = all_apart(start)
    forms = [start] if apart is start else [start, apart]
    beside = [k for k in (compile_beside(form, units) for form in forms) if k is not None]
    if not beside:
        raise refused
    made = min(beside, key=options.measure)
    return made.with_account(replace(made.account, fallen=refused.diagnostic))
