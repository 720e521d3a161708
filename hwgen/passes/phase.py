"""One phase of a kernel: matched, searched, and carried through to a program."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import chain, groupby, islice
from math import inf

from hwgen.codegen.lower.image_uses import packed_bytes
from hwgen.errors import HwgenError, Tolerating
from hwgen.passes.cache import ScheduleCache, content_key
from hwgen.passes.kernel import Kernel
from hwgen.passes.start import Start
from hwgen.passes.trees import build
from hwgen.polyhedral.caches import through_caches
from hwgen.polyhedral.match.matching import Match, ranked_matches
from hwgen.polyhedral.match.operations import NOTHING_SHARED, Selection, Sharing
from hwgen.polyhedral.match.select import select
from hwgen.polyhedral.scop import Scop, build_scop
from hwgen.polyhedral.search.bound import least_work
from hwgen.polyhedral.search.choose import LIMITS, choose, lacks
from hwgen.polyhedral.search.estimate_moved import least_moved
from hwgen.polyhedral.search.objective import Measure, Measured, Objective, measure
from hwgen.polyhedral.search.search import (
    TIME_LIMIT,
    WORK,
    Candidate,
    Progress,
    SearchResult,
    Watch,
    search,
)
from hwgen.spec.expression import DTYPES
from hwgen.spec.hardware import HardwareSpec

SLOTS = 2
"""Slots of a buffer: one is filled while the other is used."""

ATTEMPTS = ((24, SLOTS), (64, SLOTS), (64, 1))
"""Candidates tried from the cheapest on, and slots of a buffer, until the hardware's limits allow
a kernel."""

MATCHES = 3
"""Groups of matches considered, the best first."""


@dataclass(frozen=True)
class SearchOptions:
    """`seconds`: when to end a search with what it has (never); `work`: the same, counted;
    `progress`: told of its steps; `cache`: where results are kept (nowhere); `slots`: of a buffer,
    at most (of a kernel with fewer, or of less work, nothing is kept); `objective`: what of two
    kernels makes one the better; `slack`: by which part of its cycles one may be slower than the
    fastest that moves fewer bytes (half a per cent, of a phase 0.2); `spills`: whether what phases
    leave for each other may leave the chip; `units_only`: whether a processor beside units may
    compute nothing, so that what units cannot run is refused."""

    seconds: float | None = None
    work: int = WORK
    progress: Progress | None = None
    cache: ScheduleCache | None = None
    slots: int = SLOTS
    objective: Objective = "cycles"
    slack: float | None = None
    spills: bool = True
    units_only: bool = False

    def measure(self, kernel: Measured) -> Measure:
        """A kernel by the objective: of two, the one with less is better."""
        return measure(kernel, self.objective)


DEFAULTS = SearchOptions()

Refusal = Callable[[Scop, Match], HwgenError | None]
"""Why a phase's match does not do; None where it does."""


def compile_phase(
    start: Start,
    options: SearchOptions,
    sharing: Sharing = NOTHING_SHARED,
    reserved: Sequence[tuple[str, str, int]] = (),
    refused: Refusal | None = None,
    ended: Callable[[Kernel, float], Kernel] | None = None,
) -> Kernel:
    """The best kernel of one phase.

    `sharing`: what it has in common with other phases; `reserved`: tensors (name, memory, entries)
    that these hold meanwhile; `refused`: why a match does not do for them; `ended`: gives kernels
    that may be chosen another end. The cache serves kernels of one phase.

    Raises:
        HwgenError: H3xx where no intrinsics match, H4xx where no schedule exists or fits, or
            where looking for one takes too long.
    """
    workload, hardware, scop = start.workload, start.hardware, build_scop(start.workload)
    selections = [replace(s, beside=tuple(reserved)) for s in select(scop, hardware, sharing)]
    ranked = ranked_matches(scop, selections, partial(packed_bytes, scop, hardware))
    first = islice(_accepted(ranked, scop, refused) if refused else ranked, MATCHES)
    groups = by_packing(first, scop, hardware)
    usual = options.slots == SLOTS and options.work == WORK
    if options.cache is None or sharing != NOTHING_SHARED or not usual:
        return _search(start, scop, groups, options, sharing, ended)[0]
    key = content_key(workload, hardware, options.objective, options.slack, ended is not None)
    matches: list[list[Match]] = []
    known = options.cache.read(key)
    if known is not None:
        matches = list(islice(groups, known.group + 1))
        found = known.restore(hardware, matches)
        with Tolerating(("H4", "H5", "H6")):
            if found is not None:
                kernel = build(start, scop, found.candidates[0])
                kernel = kernel if ended is None else ended(kernel, inf)
                if kernel.cycles == found.cycles:
                    group = tuple(matches[-1])
                    account = replace(kernel.account, matches=group, search=found)
                    return kernel.with_account(account)
    result, number = _search(start, scop, chain(matches, groups), options, sharing, ended)
    account = result.account
    if not any(cut.startswith(TIME_LIMIT) for cut in account.search.cuts):
        position = account.matches.index(result.match)
        options.cache.write(key, number, position, account.search, result.tiling)
    return result


def by_packing(
    groups: Iterable[list[Match]], scop: Scop, hardware: HardwareSpec
) -> Iterator[list[Match]]:
    """Groups of matches, of each apart those for which the host packs more, where it shares the
    chip's memory or packs nothing for others; without those where nobody knows what that takes
    it."""
    cost = cache(partial(packed_bytes, scop, hardware))
    for group in groups:
        ordered = sorted(group, key=cost)
        # A host that shares the memory takes the chip's bus, or is the units' own core.
        if not hardware.offchip.shared and cost(ordered[0]):
            yield group
            continue
        apart = ([*alike] for _, alike in groupby(ordered, key=cost))
        yield from islice(apart, 1 if hardware.processor is None else None)


def least_cycles(scop: Scop, hardware: HardwareSpec, selections: list[Selection]) -> float:
    """What units take for a phase at least, whatever its schedule.

    Raises:
        HwgenError: as `ranked_matches`.
    """
    groups = islice(ranked_matches(scop, selections), MATCHES)
    return min(least_work(hardware, m) for group in groups for m in group)


def _accepted(groups: Iterable[list[Match]], scop: Scop, refused: Refusal) -> Iterator[list[Match]]:
    """The matches that do.

    Raises:
        HwgenError: why the first one does not, where none does.
    """
    found: HwgenError | None = None
    some = False
    for group in groups:
        reasons = [refused(scop, m) for m in group]
        good = [m for m, reason in zip(group, reasons, strict=True) if reason is None]
        found = found or next((r for r in reasons if r is not None), None)
        if good:
            some = True
            yield good
    if found is not None and not some:
        raise found


def _attempts(
    options: SearchOptions, watch: Watch, first: bool
) -> Iterator[tuple[int, int, Watch]]:
    """What to try until something fits, or only once: a limit that ends the search before that is
    lifted, each time anew, so that it never refuses a kernel."""
    allowed = [(keep, slots) for keep, slots in ATTEMPTS if slots <= options.slots]
    yield from ((keep, slots, watch) for keep, slots in allowed[: None if first else 1])
    if first and watch.costed:
        yield from ((keep, slots, Watch(None, options.progress)) for keep, slots in allowed)


@dataclass(frozen=True, slots=True)
class Rival:
    """The best kernel so far, to those of another group of matches: `cycles` and `offchip_bytes`
    are its own and what its host works and moves more than theirs."""

    kernel: Kernel
    cycles: int
    offchip_bytes: int

    @property
    def unseen(self) -> float:
        return self.kernel.unseen

    @classmethod
    def of(cls, kernel: Kernel, hardware: HardwareSpec, host: int, theirs: int) -> Rival:
        """A kernel whose host moves `host` bytes, to those whose hosts move `theirs`."""
        beat = rearranged_at_once(hardware)
        more_cycles = int(host // beat - theirs // beat)
        return cls(kernel, kernel.cycles + more_cycles, kernel.offchip_bytes + host - theirs)

    @property
    def energy(self) -> float:
        return self.kernel.energy

    @property
    def onchip_bytes(self) -> int:
        return self.kernel.onchip_bytes


def _host_bytes(scop: Scop, hardware: HardwareSpec, match: Match) -> int:
    """What a host reads and writes at least to rearrange tensors for a match."""
    return rearranged_bytes(hardware, packed_bytes(scop, hardware, match))


def rearranged_at_once(hardware: HardwareSpec) -> float:
    """Bytes that a host moves in a cycle when it rearranges a tensor: a beat of the bus at most, of
    a core that is described an element an operation. A core that is the host of its own units
    moves single elements, of which the next one lies apart."""
    beat, machine = hardware.bus[hardware.offchip.bus].beat_bytes, hardware.processor
    if machine is None:
        return beat
    element = min(DTYPES[m.dtype] for m in hardware.of_kind("scratchpad"))
    if not through_caches(hardware):
        return min(beat, element * machine.operations_per_cycle)
    return element / (machine.costs.gather_cycles + machine.costs.far_cycles)


def rearranged_bytes(hardware: HardwareSpec, packed: int) -> int:
    """What a host reads and writes at least to make images of so many bytes in memory that it
    shares: it crosses the bus like everything else."""
    return 2 * packed if hardware.offchip.shared else 0


def _may_win(hardware: HardwareSpec, match: Match, rival: Rival, options: SearchOptions) -> bool:
    """Whether a match's kernels may be better than the best so far."""
    if options.objective == "cycles":
        return least_work(hardware, match) < rival.cycles
    return least_moved(hardware, match, options.objective) <= options.measure(rival)[0]


def _search(
    start: Start,
    scop: Scop,
    groups: Iterable[list[Match]],
    options: SearchOptions,
    sharing: Sharing = NOTHING_SHARED,
    ended: Callable[[Kernel, float], Kernel] | None = None,
) -> tuple[Kernel, int]:
    """The best kernel over all groups of matches, and its group's number."""

    def with_end(made: Kernel | Rival, most: float) -> Kernel | Rival:
        return ended(made, most) if ended is not None and isinstance(made, Kernel) else made

    workload, hardware = start.workload, start.hardware
    simulated: Callable[[Candidate], Kernel | Rival] = partial(build, start, scop, sharing=sharing)
    best: Kernel | None = None
    best_host = 0
    total = SearchResult((), matches=0)
    group: list[Match] = []
    chosen = 0
    refused: HwgenError | None = None
    watch = Watch(options.seconds, options.progress, options.work)
    for number, matches in enumerate(groups):
        host = _host_bytes(scop, hardware, matches[0])
        rival = None if best is None else Rival.of(best, hardware, best_host, host)
        good = [m for m in matches if rival is None or _may_win(hardware, m, rival, options)]
        total += SearchResult((), matches=0, matches_too_slow=len(matches) - len(good))
        if best is not None and good and watch.expired:
            total += SearchResult((), matches=0, cuts=(watch.reason,))
            break
        none_fits = set[int]()
        for keep, slots, limit in _attempts(options, watch, best is None) if good else ():
            if slots in none_fits:
                continue
            try:
                found = search(
                    hardware, good, keep, slots, limit, None, workload, options.objective
                )
            except HwgenError as error:
                if error.code not in LIMITS:
                    raise
                refused = refused or error
                none_fits.add(slots)  # However many candidates are kept.
                continue
            why: list[HwgenError] = []
            try:
                alone = sharing == NOTHING_SHARED
                kernel, found = choose(
                    hardware, found, simulated, limit, rival,
                    alone=alone, objective=options.objective, slack=options.slack, refused=why,
                    ended=None if ended is None else with_end,
                )  # fmt: skip
            except HwgenError as error:
                if error.code not in LIMITS:
                    raise
                refused = refused or error
                if lacks(why):
                    break
                continue
            if isinstance(kernel, Rival):
                total += found
            else:
                best, total, group, chosen = kernel, found + total, matches, number
                best_host = host
            break
    if best is None:
        assert refused is not None
        raise refused
    total = replace(total, cycles=best.cycles)
    return best.with_account(replace(best.account, matches=tuple(group), search=total)), chosen
