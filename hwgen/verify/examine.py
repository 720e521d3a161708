"""One kernel checked in every way there is; what `simulate` and `verify` both do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from hwgen.errors import HwgenError
from hwgen.model.c_compiler import AS_FOUND, Build
from hwgen.model.numeric import Array
from hwgen.spec.shown import Brief
from hwgen.verify.compare import Comparison, compare, least_compared
from hwgen.verify.room import check_room
from hwgen.verify.rounding import Leeway

if TYPE_CHECKING:
    from hwgen.codegen.lower.program import Lowered
    from hwgen.model.bound import Bound
    from hwgen.model.functional import FunctionalResult
    from hwgen.model.timing import TimingResult
    from hwgen.passes.kernel import Kernel
    from hwgen.pipeline import SearchOptions
    from hwgen.spec.hardware import HardwareSpec
    from hwgen.spec.workload import Workload

Engine = Literal["both", "python", "c"]
"""Who runs a kernel: the simulator, the emitted C, or one after the other. Of both, the C is left
out where it cannot be compiled, or has text of a spec that is not trusted."""


CHECKED_STEPS = 10_000
"""Steps of code that are run thread by thread, up to a second; compiling runs fewer."""


@dataclass(frozen=True, slots=True, repr=False)
class Examination(Brief):
    """A kernel that passed; `functional` is None where the C ran instead of the simulator, `ran_c`
    says whether it ran. `comparison`: of all runs, the one of which least could be compared."""

    outputs: dict[str, Array]
    comparison: Comparison
    ran_c: bool
    functional: FunctionalResult | None
    timing: TimingResult
    bound: Bound

    def brief(self) -> str:
        runners = ["the simulator"] * (self.functional is not None) + ["the emitted C"] * self.ran_c
        return f"{self.comparison.verdict()}, computed by {' and '.join(runners)}"


def compile_ranked(
    workload: Workload, hardware: HardwareSpec, rank: int, options: SearchOptions | None = None
) -> Kernel:
    """Compile with the schedule of a rank in the search's order; past the last, start over. Of a
    kernel of several phases there is only the best.

    `options` are those of the search for the best, rank 0.

    Raises:
        HwgenError: as `compile_kernel`; H792 where the kernel is too large to be run.
    """
    from hwgen.pipeline import SearchOptions, compile_kernel
    from hwgen.polyhedral.phases import split_phases

    if rank == 0 or len(split_phases(workload)) > 1:
        compilation = compile_kernel(workload, hardware, options=options or SearchOptions())
        check_room(workload, compilation.program)
        return compilation
    from hwgen.passes.covering import started
    from hwgen.passes.start import Start
    from hwgen.polyhedral.match.matching import match
    from hwgen.polyhedral.match.select import select
    from hwgen.polyhedral.scop import build_scop
    from hwgen.polyhedral.search.search import search

    scop = build_scop(started(Start(workload, hardware)).workload)
    found = search(hardware, match(scop, select(scop, hardware)), keep=rank + 1).candidates
    compilation = compile_kernel(workload, hardware, schedule=found[rank % len(found)])
    check_room(workload, compilation.program)
    return compilation


def compile_case(
    workload: Workload, hardware: HardwareSpec, rank: int, options: SearchOptions | None = None
) -> Kernel:
    """The same for any chip. A processor beside the units does what these cannot: there, the best
    alone. On one that is a chip by itself, odd ranks are without any schedule, and others the best
    with workers started however little there is to do.

    Raises:
        HwgenError: as `compile_ranked`, where there is no processor or it cannot do the rest; as
            `compile_nest`.
    """
    from hwgen.pipeline import (
        SearchOptions,
        compile_workload,
        otherwise,
        rewritten,
        units_of,
    )

    options = options or SearchOptions()
    if not hardware.units:
        found = _compile_nest_ranked(workload, hardware, rank)
    elif rank == 0:
        found = compile_workload(workload, hardware, options)
    else:
        try:
            return compile_ranked(workload, hardware, rank, options)
        except HwgenError as error:
            units = units_of(hardware, options)
            found = otherwise(rewritten(workload, hardware), options, error, units)
    check_room(workload, found.program)
    return found


def _compile_nest_ranked(workload: Workload, hardware: HardwareSpec, rank: int) -> Kernel:
    from hwgen.autoschedule.options import Options
    from hwgen.passes.nest_pipeline import compile_nest

    options = Options() if rank == 0 else Options(parallel_cycles=0.0)
    return compile_nest(workload, hardware, auto=rank % 2 == 0, options=options)


def examine(
    compilation: Kernel,
    inputs: Mapping[str, Array],
    engine: Engine = "python",
    build: Build = AS_FOUND,
) -> Examination:
    """Run every check on one kernel and one set of inputs; `build`: how the C is compiled.

    Raises:
        HwgenError: H792 too large to be run; H70x where C cannot be compiled or run; H7xx, the
            first check that fails: the program's structure, threads, synchronisation, the
            simulator's own checks, H790 a result that differs from the reference, H791
            modelled cycles below the lower bound.
    """
    from hwgen.codegen.processor.races import check
    from hwgen.model.native import compile_portable, runs_here
    from hwgen.model.reference import run_reference
    from hwgen.model.sync_check import check_synchronisation
    from hwgen.verify.check_instances import check_compiled

    c = compilation
    check_room(c.workload, c.program)
    check_compiled(c)
    for code in c.program.codes:
        check(code, c.hardware, CHECKED_STEPS)
    check_synchronisation(c.program, c.hardware)
    functional: FunctionalResult | None = None
    expected = run_reference(c.workload, inputs)
    leeway = leeway_of(c.lowering, c.hardware)
    outputs: dict[str, Array] = {}
    runs: list[Comparison] = []
    if engine != "c":
        from hwgen.model.functional import run

        shapes = {t.name: t.shape for t in c.workload.outputs}
        functional = run(c.program, c.hardware, inputs, shapes=shapes)
        outputs = functional.outputs
        runs.append(check_outputs(c.workload, inputs, outputs, expected, "the kernel", leeway))
    ran_c = engine == "c" or (engine == "both" and runs_here(c.hardware) and not c.source.foreign)
    if ran_c:
        outputs = compile_portable(c.source, c.hardware, build).run(inputs)
        runs.append(check_outputs(c.workload, inputs, outputs, expected, "the emitted C", leeway))
    timing = c.timing
    bound = c.bound
    if timing.cycles < bound.cycles:
        raise HwgenError(
            "H791",
            "the modelled cycles are below their lower bound",
            found=f"{timing.cycles:,} cycles",
            allowed=f"at least {bound.cycles:,}",
            repair="report this command: the timing model or the bound is wrong",
        )
    return Examination(outputs, least_compared(runs), ran_c, functional, timing, bound)


def check_outputs(
    workload: Workload,
    inputs: Mapping[str, Array],
    outputs: Mapping[str, Array],
    expected: Mapping[str, Array],
    runner: str,
    leeway: Leeway,
) -> Comparison:
    """Compare what `runner` computed with the reference.

    Raises:
        HwgenError: H790 a difference.
    """
    found = compare(workload, inputs, outputs, expected, leeway)
    difference = found.difference
    if difference is not None:
        raise HwgenError(
            "H790",
            f"{runner} computes a wrong {difference.tensor}",
            found=str(difference),
            allowed="what the reference computes, integers bit for bit and floats as far as "
            "rounding in another order explains",
            repair="report this command: the compiler or its model is wrong",
        )
    return found


def leeway_of(lowering: Lowered, hardware: HardwareSpec) -> Leeway:
    """How a kernel may differ from the reference besides rounding of what the statements say."""
    any_nan = any(i.nan == "any" for i in hardware.intrinsics)
    halves = any(m.dtype in ("float16", "bfloat16") for m in hardware.of_kind("scratchpad"))
    return Leeway(rescaled_terms(lowering), any_nan, halves)


def rescaled_terms(lowering: Lowered) -> dict[str, int]:
    """What results are rounded by besides: by tensor of terms, the blocks after each of which sums
    of them may have been rescaled."""
    found: dict[str, int] = {}
    trees = [p.tree for p in lowering.parts] + [c.state for c in lowering.codes]
    for tree in trees:
        for stage in tree.stages:
            own = [r for r in stage.reads_in("init") if r.tensor == stage.tensor]
            if own and stage.op in ("max=", "min="):
                readers = [s for s in tree.stages if any(r.tensor == stage.tensor for r in s.reads)]
                found |= dict.fromkeys((s.tensor for s in readers), stage.iterators[0][1])
    return found
