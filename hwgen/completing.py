"""Unfinished scripts, completed by the search.

What is taken agrees with all that the script says, in whatever order. Where the search makes no
such schedule, the stages without calls get theirs where the script has them (`block_completing`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import islice

from hwgen.autoschedule.options import Options
from hwgen.codegen.lower.image_uses import packed_bytes
from hwgen.errors import HwgenError, Tolerating
from hwgen.passes.block_completing import complete_blocks
from hwgen.passes.covering import started
from hwgen.passes.kernel import Kernel
from hwgen.passes.nest_pipeline import compile_nest
from hwgen.passes.phase import ATTEMPTS, DEFAULTS, MATCHES, SearchOptions
from hwgen.passes.scripting import compile_script
from hwgen.passes.start import Start
from hwgen.passes.trees import build
from hwgen.pipeline import compile_workload
from hwgen.polyhedral import isl
from hwgen.polyhedral.match.matching import Match, ranked_matches
from hwgen.polyhedral.match.select import select
from hwgen.polyhedral.phases import split_phases
from hwgen.polyhedral.schedule.schedule import Schedule
from hwgen.polyhedral.scop import Scop, build_scop
from hwgen.polyhedral.search.choose import LIMITS, SIMULATED
from hwgen.polyhedral.search.objective import check_objective
from hwgen.polyhedral.search.script_tiles import Said
from hwgen.polyhedral.search.search import SearchResult, Watch, search
from hwgen.polyhedral.search.tiling import Tiling
from hwgen.polyhedral.search.tiling_script import apply_tiling
from hwgen.spec.hardware import HardwareSpec
from hwgen.spec.workload import Workload

NO_KERNEL = (
    *("H301", "H302", "H305", "H402", "H403", "H405", "H407", "H408"),
    *("H422", "H423", "H424", "H502", "H503", "H504", "H505"),
    *("H611", "H612", "H613", "H614", "H615", "H616", "H618"),
)
"""Why a chip has no kernel for a workload; any other error is a defect, and told."""


def compile_scripted(
    workload: Workload,
    hardware: HardwareSpec,
    script: str,
    file: str = "script",
    options: SearchOptions = DEFAULTS,
    *,
    auto: bool = True,
) -> Kernel:
    """Compile the schedule that a script makes, for any chip; `auto`: completed where it is
    unfinished.

    Raises:
        HwgenError: H426 where the chip has nothing of the objective; as `compile_script`,
            `complete_script` and `compile_nest`.
    """
    check_objective(hardware, options.objective)
    if not hardware.units:
        given = Options(seconds=options.seconds)
        return compile_nest(workload, hardware, script, auto, file, given)
    if not auto:
        return compile_script(workload, hardware, script, file)
    return complete_script(workload, hardware, script, file, options)


def complete_script(
    workload: Workload,
    hardware: HardwareSpec,
    script: str,
    file: str = "script",
    options: SearchOptions = DEFAULTS,
) -> Kernel:
    """Compile the best schedule that agrees with all that a script says.

    A script that tensorizes every stage is compiled as it is.

    Raises:
        HwgenError: as `compile_script` and `complete_blocks`.
    """
    schedule = Schedule(workload, hardware).replay(script, file)
    if any(s.block.tensorized is not None for s in schedule.state.sites):
        # Some stages may have no calls yet, or only the processor's code; sums, no beginning.
        with Tolerating(("H421", "H424", "H512")):
            return compile_script(workload, hardware, script, file)
    best_of_all = _automatic(schedule, options)
    if best_of_all is not None:
        return best_of_all
    start = Start(workload, hardware)
    if len(split_phases(start.workload)) == 1 and start.workload == workload:
        with isl.bounded():
            rest = _Rest(schedule, started(start), options)
            found = rest.found()
        if found is not None:
            return found
    return complete_blocks(schedule, options)


def _automatic(schedule: Schedule, options: SearchOptions) -> Kernel | None:
    """What is compiled without a script, where its script begins as the given one does, or, of
    tilings, says all of that in whatever order."""
    wanted = schedule.edits()
    try:
        found = compile_workload(schedule.workload, schedule.hardware, options)
    except HwgenError as error:
        if error.code not in NO_KERNEL:
            raise
        return None  # Other schedules may still begin so, and what refuses them says why.
    whole = Schedule(schedule.workload, schedule.hardware).replay(found.script).edits()
    if not found.parts:
        return found if whole[: len(wanted)] == wanted else None
    return found if all(edit in whole for edit in wanted) else None


@dataclass
class _Rest:
    """The search for what a script leaves open."""

    schedule: Schedule
    start: Start
    options: SearchOptions

    @cached_property
    def scop(self) -> Scop:
        return build_scop(self.start.workload)

    def found(self) -> Kernel | None:
        """The best schedule of those that agree with what the script says."""
        with Tolerating(NO_KERNEL):
            said = Said.of(self.schedule, self.scop)
            return None if said is None else self._best(said)
        return None  # What no phase as a whole has, stages may have each.

    def _best(self, said: Said) -> Kernel | None:
        hardware, scop = self.schedule.hardware, self.scop
        best: tuple[Kernel, list[Match]] | None = None
        watch = Watch(self.options.seconds, self.options.progress, self.options.work)
        cost = partial(packed_bytes, scop, hardware)
        for group in islice(ranked_matches(scop, select(scop, hardware), cost), MATCHES):
            for match in group:
                if best is not None and best[1] is group and not cost(best[0].match):
                    break  # The host rearranges nothing.
                found = self._candidates(match, said, watch)
                if found is None:
                    continue
                chosen = (c for c in found.candidates if self._made(c.tiling, said))
                for candidate in islice(chosen, SIMULATED):
                    try:
                        kernel = build(self.start, scop, candidate)
                    except HwgenError as error:
                        if error.code not in LIMITS:
                            raise
                        continue  # Another may have room, or calls.
                    by = self.options.measure
                    if best is None or by(kernel) < by(best[0]):
                        counts = replace(found, cycles=kernel.cycles)
                        account = replace(kernel.account, matches=tuple(group), search=counts)
                        best = kernel.with_account(account), group
        return None if best is None else best[0]

    def _candidates(self, match: Match, said: Said, watch: Watch) -> SearchResult | None:
        fixed = said.blocks(match)
        if fixed is None:
            return None
        with Tolerating(LIMITS):
            return search(
                self.schedule.hardware, [match], *ATTEMPTS[0], watch, fixed,
                objective=self.options.objective, allows=said.allows,
            )  # fmt: skip
        return None

    def _made(self, tiling: Tiling, said: Said) -> bool:
        made = self.start.schedule.copy()
        with Tolerating("H41"):
            apply_tiling(made, self.scop, tiling)
            return said.agrees(tiling, made)
        return False
