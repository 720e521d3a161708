"""Narrow integers that units take as products with weights: what a sum of products widens and adds
need not be brought to the chip as wide integers first.

Weighing is an edit of the schedule (`weigh`); the search sees the workload that the edit makes, and
its tilings are then replayed on the user's own, where that takes fewer cycles.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hwgen.compilation import Compilation
from hwgen.errors import HwgenError
from hwgen.inlining import REFUSALS, UnitsOf, replayed, weighed, without
from hwgen.polyhedral.matching import ranked_matches
from hwgen.polyhedral.phases import split_phases
from hwgen.polyhedral.scop import Scop, build_scop, view_statements
from hwgen.polyhedral.search_bound import least_work
from hwgen.polyhedral.select import select
from hwgen.polyhedral.semantics import adding, written
from hwgen.polyhedral.tree.weighing import WIDE
from hwgen.spec.expression import DTYPES, Access, Binary, walk
from hwgen.spec.hardware import HardwareSpec
from hwgen.spec.workload import Workload


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


def weighed_if_better(
    made: Compilation | None, workload: Workload, hardware: HardwareSpec, units: UnitsOf
) -> Compilation | None:
    """A kernel of a workload, or the same with narrow integers weighed if that takes fewer cycles;
    `made`: None where units cannot compute it as it is."""
    dtype = weight_type(hardware)
    narrow = [t for t in workload.inputs if 0 < DTYPES[t.dtype] < DTYPES[WIDE]]
    if not dtype or not narrow or (made is not None and made.weighed):
        return made
    base = workload
    for tensor in made.inlined if made is not None else ():
        base = without(base, tensor)
    changed, edits = base, list[tuple[str, str]]()
    for tensor in _candidates(base):
        try:
            changed = weighed(changed, tensor, dtype)
        except HwgenError as error:
            if error.code not in ("H413", "H414"):
                raise
            continue
        edits.append((tensor, dtype))
    if not edits:
        return made
    try:
        scops, least = _least(changed, hardware)
        if made is None or least < made.cycles:
            searched = replace(units(changed), weighed=tuple(edits))
            searched = replace(searched, inlined=made.inlined if made is not None else ())
            if made is None or searched.cycles < made.cycles:
                found = replayed(searched, workload)
                if made is None or found.cycles < made.cycles:
                    return found if made is None else replace(found, others=(made.scop,))
    except HwgenError as error:
        if not error.code.startswith(REFUSALS):
            raise
        return made
    return made if made is None else replace(made, others=tuple(scops))


def _candidates(workload: Workload) -> list[str]:
    """The tensors that one statement alone sets, from integers narrower than what units add up."""
    views = view_statements(workload)
    targets = [s.target.tensor for s in workload.statements]
    found: list[str] = []
    for statement in workload.statements:
        tensor = statement.target.tensor
        if statement.accumulates or statement in views or targets.count(tensor) > 1:
            continue
        read = (n.tensor for n in walk(statement.value) if isinstance(n, Access))
        if any(DTYPES[workload.tensor[t].dtype] < DTYPES[WIDE] for t in read):
            found.append(tensor)
    return found


def _least(workload: Workload, hardware: HardwareSpec) -> tuple[Sequence[Scop], float]:
    """The phases of a workload, and cycles below which no kernel of them gets.

    Raises:
        HwgenError: H3xx where no intrinsics compute one.
    """
    scops: list[Scop] = []
    total = 0.0
    phases = split_phases(workload)
    for phase in phases:
        scop = build_scop(phase.workload)
        scops.append(scop)
        if len(phases) == 1:
            group = next(ranked_matches(scop, select(scop, hardware)))
            total += min(least_work(hardware, m) for m in group)
    return scops, total
