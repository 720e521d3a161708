"""A schedule, carried through to a program as the tree that it is."""

from __future__ import annotations

from hwgen.codegen.lower.padding import paddings
from hwgen.codegen.lower.program import lower_tree
from hwgen.errors import HwgenError, Tolerating
from hwgen.passes.account import Account
from hwgen.passes.kernel import Kernel
from hwgen.passes.start import Start
from hwgen.polyhedral import isl
from hwgen.polyhedral.match.operations import NOTHING_SHARED, Sharing
from hwgen.polyhedral.schedule.schedule import Schedule
from hwgen.polyhedral.scop import Scop
from hwgen.polyhedral.search.search import Candidate
from hwgen.polyhedral.search.tiling_script import PhasePlan, apply_tilings


def compile_tree(schedule: Schedule) -> Kernel:
    """Compile a schedule as it is.

    Raises:
        HwgenError: as `lower_tree`.
    """
    workload, hardware = schedule.workload, schedule.hardware
    with isl.bounded():
        lowering = lower_tree(workload, hardware, schedule.resolved, schedule.homes)
    return Kernel(workload, hardware, schedule, lowering)


def compile_padded(schedule: Schedule) -> Kernel:
    """The same, its buffers padded against bank conflicts where that is faster: rows that are apart
    may take more calls, or shorter bursts.

    Raises:
        HwgenError: as `compile_tree`, at the tensor of the workload that it is about.
    """
    try:
        dense = compile_tree(schedule)
    except HwgenError as error:
        about = error.diagnostic.field.rpartition(".")[2]
        workload = schedule.workload
        tensor = workload.tensor.get(about)
        raise error.at(tensor.location if tensor is not None else workload.location) from None
    # What calls leave for each other within a block has no name; what other phases left on the chip
    # is as it is.
    roles = {t.name: t.role for t in schedule.state.tensors}
    found = paddings(schedule.hardware, dense.lowering)
    aligns = [a for a in found if roles.get(a.tensor) == "intermediate"]
    if not aligns:
        return dense
    made, apart = schedule.copy(), dense
    # There may be room for the padding, but not where it is needed; or calls of fewer rows begin
    # further in an image than addresses go.
    with Tolerating(("H502", "H616")):
        for align in aligns:
            made.storage_align(align.tensor, align.axis, align.factor, align.offset)
        apart = compile_tree(made)
    return apart if apart.timing.cycles < dense.timing.cycles else dense


def build(
    start: Start, scop: Scop, candidate: Candidate, sharing: Sharing = NOTHING_SHARED
) -> Kernel:
    """Carry one schedule through to a program, its buffers padded where that is faster. `sharing`:
    what a phase has in common with others.

    Raises:
        HwgenError: as `apply_tilings`, `compile_tree`.
    """
    tiling = candidate.tiling
    shared = [s for s in tiling.match.selection.storages if s.shape]
    stays = {s.tensor: s.memory for s in shared if s.tensor in sharing.leaves}
    resident = dict(sharing.takes) | stays
    assert not (resident and start.edits), "what phases share is of workloads as they are"
    schedule = (
        Schedule(start.given, start.hardware, resident) if resident else start.schedule.copy()
    )
    first = tuple(start.stages.get(s.name, "") for s in start.workload.statements)
    apply_tilings(schedule, [PhasePlan(scop, tiling, first, sharing.leaves)])
    ways = (scop,) if sharing == NOTHING_SHARED else ()
    account = Account(start, scop, candidate, ways=ways)
    return compile_padded(schedule).with_account(account)
