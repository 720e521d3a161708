"""Kernels of several phases: each found by itself, then run one after the other in one program.

Tensors that one phase leaves for another stay whole in a memory of the chip, and so do inputs that
several phases read: each byte crosses the bus once. What cannot stay (`spilling.py`) is stored by
one phase and loaded by others. Every phase is searched with what the others hold meanwhile taken
out of its memories.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from hwgen.codegen.lower.image_uses import (
    ImageUse,
    fetch_refused,
    image_uses,
    images_refused,
    written_part,
)
from hwgen.errors import HwgenError, Tolerating
from hwgen.passes.account import Account
from hwgen.passes.kernel import Kernel
from hwgen.passes.phase import SearchOptions, compile_phase
from hwgen.passes.spilling import ALL_KEPT, Choice, Refused, Spill, cheapest
from hwgen.passes.start import Start
from hwgen.passes.trees import compile_padded
from hwgen.polyhedral.match.matching import Match
from hwgen.polyhedral.match.operations import Sharing
from hwgen.polyhedral.match.select import select
from hwgen.polyhedral.phases import Phase, split_phases
from hwgen.polyhedral.scop import Scop, build_scop
from hwgen.polyhedral.search.choose import NO_TREE
from hwgen.polyhedral.search.tiling_script import PhasePlan, apply_tilings
from hwgen.spec.expression import FUNCTIONS, Access, Call, walk
from hwgen.spec.hardware import HardwareSpec, Intrinsic
from hwgen.spec.workload import Workload

OF_ALL = ("H502", "H612", "H613", "H615")
"""Errors of all phases together that fewer slots may mend: room, programs of calls, flags."""

OF_JOINING = (*OF_ALL, "H505", "H611", "H614", "H616", *NO_TREE)
"""Why phases that compile each by itself make no kernel together, so that others are tried."""


@dataclass(frozen=True, slots=True)
class _Held:
    """A tensor that stays in a memory from phase `first` to phase `last`."""

    memory: str
    entries: int
    first: int
    last: int


_Stored = tuple[tuple[str, ImageUse], ...]
"""Tensors that earlier phases stored, and how."""

_Taken = tuple[tuple[str, str, int], ...]
"""Tensors that other phases hold meanwhile: name, memory, entries."""

_Key = tuple[int, Sharing, _Taken, _Stored, bool]
"""What a phase's kernel depends on; the last: whether its buffers have one slot."""


@dataclass(frozen=True, slots=True)
class _Found:
    """The kernels of all phases, and the tensors that stay on the chip between them."""

    kernels: tuple[Kernel, ...]
    held: tuple[str, ...]


def compile_phases(start: Start, phases: Sequence[Phase], options: SearchOptions) -> Kernel:
    """Search every phase in turn, and join them; what cannot stay on the chip leaves it.

    Raises:
        HwgenError: as `compile_kernel`; H408 where a phase would rearrange what another left, H504
            where one stores a tensor in another layout than the next loads it in; any of a phase
            that leaves no room, where nothing may leave the chip.
    """
    workload, hardware = start.workload, start.hardware
    computed = {f for i in hardware.intrinsics for f in _functions(i)}
    for phase in phases:
        if not _functions(phase.workload) <= computed:
            select(build_scop(phase.workload), hardware)  # It is refused before any is searched.
    search = PhaseSearch(start, phases, options)
    first = _in_parts(workload, phases)
    if not options.spills:
        made = search.attempt(first)
        if isinstance(made, Refused):
            raise made.error
        return made
    return cheapest(workload, phases, first, search.attempt, options.measure)


def _functions(of: Workload | Intrinsic) -> set[str]:
    """The functions of one value that statements have, which nothing else computes."""
    statements = of.statements if isinstance(of, Workload) else of.semantics
    values = (node for s in statements for node in walk(s.value))
    return {n.function for n in values if isinstance(n, Call) and FUNCTIONS[n.function] == 1}


def _in_parts(workload: Workload, phases: Sequence[Phase]) -> Choice:
    """What cannot stay on the chip: an output of which other phases write parts."""
    reason = "it is an output of which several phases write parts"
    writers = Counter(n for p in phases for n in {s.target.tensor for s in p.workload.statements})
    left = {n for p in phases for n in p.leaves}
    found = (t.name for t in workload.outputs if writers[t.name] > 1 and t.name in left)
    return Choice(tuple(Spill(n, reason) for n in found))


@dataclass(frozen=True, slots=True)
class _Images:
    """What a phase's images of tensors in between must be: those of `fetched` as they were stored,
    those of `stores` in the tensor's order, which most loads can take. `written`: by tensor of
    `fetched`, the part that is stored (`written_part`)."""

    workload: Workload
    hardware: HardwareSpec
    fetched: _Stored
    stores: tuple[str, ...]
    written: Mapping[str, str]

    def refused(self, scop: Scop, match: Match) -> HwgenError | None:
        """Why a match does not do."""
        error = images_refused(self.hardware, scop, match)
        if error is not None or not (self.fetched or self.stores):
            return error
        uses = image_uses(scop, self.hardware, match)
        if isinstance(uses, HwgenError):
            return uses
        for name, stored in self.fetched:
            loads = [u for u in uses if u.image.tensor == name]
            error = fetch_refused(self.workload.tensor[name], self.written[name], stored, loads)
            if error is not None:
                return error
        for use in uses:
            shape = self.workload.tensor[use.image.tensor].shape
            if use.stores and use.tensor in self.stores and not use.image.keeps_order(shape):
                return HwgenError("H504", f"{use.tensor} is not stored in its order")
        return None


class PhaseSearch:
    """The phases of one kernel, and what has been found for them: most choices of what stays on the
    chip differ in some phases alone."""

    def __init__(self, start: Start, phases: Sequence[Phase], options: SearchOptions) -> None:
        self.start, self.phases, self.options = start, phases, options
        self.workload, self.hardware = start.workload, start.hardware
        self.known: dict[_Key, Kernel | HwgenError] = {}

    def attempt(self, choice: Choice) -> Kernel | Refused:
        """The kernel that a choice gives."""
        found = self._found(choice, frozenset())
        if isinstance(found, Refused):
            return found
        with Tolerating(OF_JOINING) as joining:
            return join(self.start, found.kernels, choice.spills)
        refused = Refused(joining.error, len(found.kernels), found.held)
        if refused.error.code in OF_ALL:
            return self._plainer(choice, found.kernels) or refused
        return refused

    def _plainer(self, choice: Choice, found: Sequence[Kernel]) -> Kernel | None:
        """With one slot per buffer: in one phase, as is best, or else in more and more phases, the
        shortest ones first."""
        order = sorted(range(len(found)), key=lambda n: found[n].cycles)
        one = [self._with(choice, frozenset((n,))) for n in order]
        if any(one):
            return min((k for k in one if k is not None), key=self.options.measure)
        more = (self._with(choice, frozenset(order[:n])) for n in range(2, len(order) + 1))
        return next((k for k in more if k is not None), None)

    def _with(self, choice: Choice, plain: frozenset[int]) -> Kernel | None:
        found = self._found(choice, plain)
        if isinstance(found, Refused):
            return None
        with Tolerating(OF_JOINING):
            return join(self.start, found.kernels, choice.spills)
        return None  # What is wrong with more slots is told.

    def _found(self, choice: Choice, plain: frozenset[int]) -> _Found | Refused:
        """Every phase's kernel; those of `plain` with one slot per buffer."""
        held: dict[str, _Held] = {}
        last = _last_uses(self.phases)
        found: list[Kernel] = []
        stored: dict[str, ImageUse] = {}
        for number, phase in enumerate(self.phases):
            memories = {n: h.memory for n, h in held.items()}
            sharing = sharing_of(self.phases, number, memories, choice)
            alive = tuple(n for n, h in held.items() if h.last >= number)
            taken = tuple(
                (n, held[n].memory, held[n].entries) for n in alive if n not in inputs_of(phase)
            )
            fetched = tuple((n, stored[n]) for n in sharing.fetches)
            compiled = self._phase(number, sharing, taken, fetched, number in plain)
            if isinstance(compiled, HwgenError):
                return Refused(compiled, number, alive)
            found.append(compiled)
            leaves = {n for n in phase.leaves if n in choice.spilled}
            if leaves:
                uses = image_uses(compiled.scop, self.hardware, compiled.match)
                assert not isinstance(uses, HwgenError), "the phase is compiled"
                stored |= {u.tensor: u for u in uses if u.stores and u.tensor in leaves}
            for storage in compiled.match.selection.storages:
                if storage.shape and storage.tensor not in held:
                    entries = compiled.tiling.entries(storage.name)
                    ends = last[storage.tensor]
                    held[storage.tensor] = _Held(storage.memory, entries, number, ends)
        return _Found(tuple(found), tuple(held))

    def _phase(
        self, number: int, sharing: Sharing, taken: _Taken, fetched: _Stored, plain: bool
    ) -> Kernel | HwgenError:
        key = (number, sharing, taken, fetched, plain)
        if key not in self.known:
            phase = self.phases[number]
            stores = [n for n in phase.leaves if n not in sharing.leaves]
            written = {name: self._written(name) for name, _ in fetched}
            images = _Images(self.workload, self.hardware, fetched, tuple(stores), written)
            options = replace(self.options, slots=1) if plain else self.options
            try:
                try:
                    compiled = _compiled(phase, self.hardware, options, sharing, taken, images)
                except HwgenError as error:
                    if error.code != "H504" or not stores:
                        raise
                    images = replace(images, stores=())
                    compiled = _compiled(phase, self.hardware, options, sharing, taken, images)
                _check_views(compiled.scop, sharing, self.workload)
                self.known[key] = compiled
            except HwgenError as error:
                self.known[key] = error
        return self.known[key]

    def _written(self, tensor: str) -> str:
        """The part of a tensor that the phase which leaves it writes (`written_part`)."""
        phase = next(p for p in self.phases if tensor in p.leaves)
        return written_part(self.workload.tensor[tensor], build_scop(phase.workload).statements)


def _compiled(
    phase: Phase,
    hardware: HardwareSpec,
    options: SearchOptions,
    sharing: Sharing,
    taken: _Taken,
    images: _Images,
) -> Kernel:
    """The phase's kernel; where nothing fits beside the inputs kept for others, without these."""
    start = Start(phase.workload, hardware)
    try:
        return compile_phase(start, options, sharing, taken, images.refused)
    except HwgenError as error:
        if error.code != "H405" or not sharing.keeps:
            raise
        alone = replace(sharing, keeps=())
        return compile_phase(start, options, alone, taken, images.refused)


def inputs_of(phase: Phase) -> tuple[str, ...]:
    """Tensors that a phase reads from outside."""
    return tuple(t.name for t in phase.workload.inputs)


def sharing_of(
    phases: Sequence[Phase], number: int, held: Mapping[str, str], choice: Choice = ALL_KEPT
) -> Sharing:
    """What a phase shares with others, given the memories of what earlier ones hold."""
    phase = phases[number]
    inputs = inputs_of(phase)
    return Sharing(
        tuple((n, held[n]) for n in inputs if n in held),
        tuple(n for n in phase.leaves if n not in choice.spilled),
        tuple(n for n in read_again(phases, number, held) if n not in choice.apart),
        tuple(n for n in phase.takes if n in choice.spilled),
    )


def read_again(phases: Sequence[Phase], number: int, held: Collection[str]) -> tuple[str, ...]:
    """Inputs of a phase that none before holds, and that other calls of it, or later phases, read
    too."""
    phase, last = phases[number], _last_uses(phases)
    return tuple(
        n for n in inputs_of(phase) if n not in held and (last[n] > number or _again(phase, n))
    )


def _check_views(scop: Scop, sharing: Sharing, workload: Workload) -> None:
    """What the kernel itself computes cannot be rearranged by the host; its inputs can, kept or
    not."""
    taken = {*dict(sharing.takes), *sharing.fetches} - {t.name for t in workload.inputs}
    for view in scop.views:
        if view.source in taken:
            raise HwgenError(
                "H408",
                f"{view.tensor} rearranges {view.source}, which another phase computes",
                location=scop.workload.location,
                field="compute",
                found=f"{view.tensor} is a view of {view.source}",
                allowed="views of inputs, which the host packs",
                repair=f"a workload for each phase, so that {view.source} is an input",
            )


def _again(phase: Phase, tensor: str) -> bool:
    """Whether statements of a phase read an input in more than one place."""
    reads = [
        node
        for s in phase.workload.statements
        for node in walk(s.value)
        if isinstance(node, Access) and node.tensor == tensor
    ]
    return len(reads) > 1


def _last_uses(phases: Sequence[Phase]) -> dict[str, int]:
    return {t.name: number for number, phase in enumerate(phases) for t in phase.workload.tensors}


def join(start: Start, found: Sequence[Kernel], spills: Sequence[Spill] = ()) -> Kernel:
    """One kernel of all phases; `spills` go through off-chip memory between them.

    Raises:
        HwgenError: as `apply_tilings`, `compile_padded`.
    """
    schedule = start.schedule.copy()
    apply_tilings(schedule, plans_of(start, start.stages, found, spills))
    made = compile_padded(schedule)
    return made.with_account(Account.of_phases(start, made.cycles, found, spills))


def plans_of(
    start: Start,
    stages: Mapping[str, str],
    found: Sequence[Kernel],
    spills: Sequence[Spill] = (),
) -> list[PhasePlan]:
    """The tilings of all phases as primitives are to make them in a schedule without other edits of
    these stages, named by the statements of the start."""
    spilled = {s.tensor for s in spills}
    return [
        PhasePlan(
            made.scop,
            made.tiling,
            tuple(stages.get(s.name, "") for s in phase.workload.statements),
            tuple(t for t in phase.leaves if t not in spilled),
        )
        for phase, made in zip(split_phases(start.workload), found, strict=True)
    ]
