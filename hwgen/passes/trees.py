"""A schedule, carried through to a program as the tree that it is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property

from hwgen.codegen.lower.padding import paddings
from hwgen.codegen.lower.program import Lowered, lower_tree
from hwgen.codegen.nodes import Call, SyncNode
from hwgen.errors import HwgenError, Tolerating
from hwgen.model.counting import total
from hwgen.model.turns import PROCESSOR
from hwgen.passes.compiled import Compiled
from hwgen.polyhedral import isl
from hwgen.polyhedral.schedule.schedule import Schedule
from hwgen.polyhedral.scop import views_of
from hwgen.spec.expression import Expr, evaluate
from hwgen.spec.workload import Statement


@dataclass(frozen=True, repr=False)
class TreeCompilation(Compiled):
    """A kernel whose schedule was made edit by edit."""

    schedule: Schedule
    lowered: Lowered

    @property
    def lowering(self) -> Lowered:
        return self.lowered

    @cached_property
    def statements(self) -> tuple[Statement, ...]:
        moved = views_of(self.workload) if self.hardware.units else ()
        return tuple(s for s in self.workload.statements if s.target.tensor not in moved)

    @cached_property
    def main_intrinsic(self) -> str:
        def counted(node: Call | SyncNode) -> tuple[Expr, ...] | None:
            if not isinstance(node, Call):
                return None
            here = any(o.buffer in self.program.image for o in node.operands)
            return None if here else node.extents

        def leaf(node: Call | SyncNode, values: Mapping[str, int]) -> Mapping[str, int]:
            assert isinstance(node, Call)
            iterations = 1
            for extent in node.extents:
                iterations *= int(evaluate(extent, values))
            return {node.intrinsic: iterations}

        found = total(self.program.body, counted, leaf)
        names = [i.name for i in self.hardware.intrinsics if found.get(i.name)]
        most = max(names, key=lambda n: found[n], default="")
        return " + ".join(filter(None, [most, PROCESSOR if self.program.codes else ""]))

    @property
    def script(self) -> str:
        return self.schedule.trace()

    def artefacts(self) -> dict[str, Callable[[], object]]:
        return {"schedule": lambda: self.schedule, **super().artefacts()}


def compile_tree(schedule: Schedule) -> TreeCompilation:
    """Compile a schedule as it is.

    Raises:
        HwgenError: as `lower_tree`.
    """
    workload, hardware = schedule.workload, schedule.hardware
    with isl.bounded():
        lowered = lower_tree(workload, hardware, schedule.resolved, schedule.homes)
    return TreeCompilation(workload, hardware, schedule, lowered)


def compile_padded(schedule: Schedule) -> TreeCompilation:
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
    found = paddings(schedule.hardware, dense.lowered)
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
