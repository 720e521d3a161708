"""Move: narrow integers are products with weights that the kernel supplies.

`y[i] = a[i] + b[i]` becomes `y[i] = a[i] * one[0] + b[i] * one[0]`: what a sum of products widens
and adds need not be brought to the chip as wide integers first.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from hwgen.passes.start import Start
from hwgen.polyhedral.schedule.schedule import Schedule
from hwgen.polyhedral.scop import view_statements
from hwgen.polyhedral.semantics import adding, written
from hwgen.polyhedral.tree.weighing import WIDE
from hwgen.spec.expression import DTYPES, Access, Binary
from hwgen.spec.hardware import HardwareSpec


def unit_weights(start: Start, statement: str) -> Iterator[Start]:
    """With what a statement reads multiplied by weights of the type that units take."""
    workload, stage = start.workload, start.stages.get(statement)
    narrow = {t.name for t in workload.tensors if DTYPES[t.dtype] < DTYPES[WIDE]}
    mine = next(s for s in workload.statements if s.name == statement)
    if not stage or not mine.reads & narrow or mine in view_statements(workload):
        return
    dtype = weight_type(start.hardware)
    if dtype:
        yield from start.where_legal(partial(Schedule.weigh, stage=stage, dtype=dtype))


def weight_type(hardware: HardwareSpec) -> str:
    """The narrow type by which an intrinsic multiplies what it adds up; "" where none does."""
    for intrinsic in sorted(hardware.intrinsics, key=lambda i: i.name):
        only = written(intrinsic)
        if adding(intrinsic) is None or only is None:
            continue
        match only[0].value:
            case Binary("*", Access(left, _), Access(right, _)):
                found = {intrinsic.operand(n).dtype for n in (left, right)}
                signed = {d for d in found if DTYPES[d] < DTYPES[WIDE] and not d.startswith("u")}
                if signed and intrinsic.operand(only[1]).dtype == WIDE:
                    return min(signed, key=lambda d: (-DTYPES[d], d))
            case _:
                pass
    return ""
