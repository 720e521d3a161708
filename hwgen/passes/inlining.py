"""Intermediates whose values stand where they are read: one instruction may do what a workload says
in several statements, and leave what is between nowhere.

Inlining is an edit of the schedule (`compute_inline`); the search sees the workload that the edit
makes, and its tilings are then replayed on the user's own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from hwgen.errors import HwgenError, Tolerating
from hwgen.passes.compilation import Compilation, Kernel
from hwgen.passes.phased import plans_of, stages_of
from hwgen.passes.trees import compile_padded
from hwgen.polyhedral.match.select import select
from hwgen.polyhedral.phases import split_phases
from hwgen.polyhedral.schedule.schedule import Schedule
from hwgen.polyhedral.schedule.tiling_script import PhasePlan, apply_tilings
from hwgen.polyhedral.scop import build_scop
from hwgen.polyhedral.tree.build import build_state, stage_of
from hwgen.polyhedral.tree.edit import refuse
from hwgen.polyhedral.tree.placement import compute_inline
from hwgen.polyhedral.tree.versions import versioned
from hwgen.polyhedral.tree.weighing import weigh
from hwgen.spec.expression import (
    Access,
    Binary,
    Call,
    Cast,
    Const,
    Expr,
    Name,
    Unary,
    parts,
    walk,
)
from hwgen.spec.hardware import HardwareSpec
from hwgen.spec.workload import Statement, Tensor, Workload

REFUSALS = ("H3", "H4", "H5", "H6")
"""Beginnings of the codes of what units cannot run, or not within the limits of the chip."""

UNMADE = "H421"
"""The code of a tree with a block that no call computes."""

UnitsOf = Callable[[Workload], Compilation]
"""What units make of a workload alone."""


def compile_inlined(
    workload: Workload, hardware: HardwareSpec, units: UnitsOf, refused: HwgenError
) -> Compilation:
    """A kernel of a workload of which units cannot compute some statement by itself; `refused`:
    why.

    Raises:
        HwgenError: `refused` where they cannot with the statement inlined either; of blocks that no
            call computes, why the rest is refused.
    """
    inlined = _repeated(workload) if refused.code == UNMADE else []
    searched = workload
    for tensor in inlined:
        searched = without(searched, tensor)
    covered: set[tuple[Statement, ...]] = set()
    while about := _uncovered(searched, hardware, covered):
        tensor = _wanted(searched, hardware, about)
        if tensor is None and refused.code == UNMADE:
            break  # What is refused then is what that statement is refused for.
        if tensor is None:
            raise refused
        inlined.append(tensor)
        searched = without(searched, tensor)
    if not inlined:
        raise refused
    try:
        made = units(searched)
    except HwgenError as error:
        if not error.code.startswith(REFUSALS):
            raise
        raise (error if refused.code == UNMADE else refused) from None
    return replayed(replace(made, inlined=tuple(inlined)), workload)


def replayed(searched: Compilation, workload: Workload) -> Compilation:
    """What was made of another form of a workload, as edits of a schedule of the workload."""
    made = replace(searched, workload=workload)
    schedule = Schedule(workload, made.hardware)
    stages = stages_of(schedule)
    for tensor in made.inlined:
        schedule.compute_inline(tensor)
    for tensor, dtype in made.weighed:
        schedule.weigh(tensor, dtype)
    apply_tilings(schedule, tilings_of(made, stages))
    kernel = Kernel(made.tiling, compile_padded(schedule))
    return replace(made, kernel=kernel, search=replace(made.search, cycles=kernel.cycles))


def _repeated(workload: Workload) -> list[str]:
    """Intermediates that repeat another one, their axes in any order, as no call need do."""
    inner = {t.name: t for t in workload.tensors if t.role == "intermediate"}
    found: list[str] = []
    for statement in workload.statements:
        own, value = inner.get(statement.target.tensor), statement.value
        if own is None or statement.op != "=" or not isinstance(value, Access):
            continue
        other = inner.get(value.tensor)
        writers = [s for s in workload.statements if s.target.tensor == own.name]
        if other is None or other.dtype != own.dtype or len(writers) > 1:
            continue
        if _axes(value, other) == _axes(statement.target, own):
            found.append(own.name)
    return found


def _axes(access: Access, tensor: Tensor) -> list[tuple[str, int]]:
    """An access by index and extent, in whatever order."""
    return sorted(zip(map(str, access.indices), tensor.shape, strict=True))


def _uncovered(
    workload: Workload, hardware: HardwareSpec, covered: set[tuple[Statement, ...]]
) -> str:
    """The first statement that no intrinsics compute in its phase; "" where there is none, or what
    is refused is about no statement alone. `covered`: phases of which they compute all, to which
    others are added."""
    for phase in split_phases(workload):
        statements = phase.workload.statements
        if statements in covered:
            continue
        with Tolerating(REFUSALS) as refused:
            select(build_scop(phase.workload), hardware)
            covered.add(statements)
            continue
        return refused.error.statement
    return ""


def without(workload: Workload, tensor: str) -> Workload:
    """The workload with what defines a tensor in place of every read of it, as `compute_inline` has
    it.

    Raises:
        HwgenError: H413 where that cannot be.
    """
    state = compute_inline(build_state(workload), tensor)
    stages = zip(workload.statements, stage_of(workload, state), strict=True)
    statements = tuple(
        replace(s, value=state.stage[stage].value) if tensor in s.reads else s
        for s, stage in stages
        if s.target.tensor != tensor
    )
    tensors = tuple(t for t in workload.tensors if t.name != tensor)
    left = {t.name for t in tensors}
    late = next((n for s in statements for n in sorted(s.reads) if n not in left), None)
    if late is not None:
        raise refuse(
            f"{tensor} cannot be inlined",
            f"{late}, which it reads, as it is before a later statement writes parts of it",
            "an intermediate that reads what no later statement writes",
            "a tensor of its own for each statement that writes",
        )
    return replace(workload, tensors=tensors, statements=statements)


def weighed(workload: Workload, tensor: str, dtype: str) -> Workload:
    """The workload with what the statement of a tensor reads of narrow integers as products with
    supplied weights, as `weigh` has it.

    Raises:
        HwgenError: H413 where that cannot be.
    """
    before = build_state(workload)
    state, names = weigh(before, tensor, dtype)
    stages = zip(workload.statements, stage_of(workload, before), strict=True)
    statements = tuple(
        replace(s, value=state.stage[stage].value) if stage == tensor else s for s, stage in stages
    )
    where = workload.location
    added = tuple(
        Tensor(t.name, t.dtype, t.shape, "input", True, where, t.supplied)
        for t in state.tensors
        if t.name in names
    )
    return replace(workload, tensors=(*workload.tensors, *added), statements=statements)


def tilings_of(made: Compilation, stages: Mapping[str, str]) -> list[PhasePlan]:
    """The tilings of a kernel as primitives are to make them in another schedule, where its
    `inlined` and `weighed` tensors are; `stages`: there, by the names of statements."""
    searched = versioned(made.workload)
    for tensor in made.inlined:
        searched = without(searched, tensor)
    for tensor, dtype in made.weighed:
        searched = weighed(searched, tensor, dtype)
    spilled = {s.tensor for s in made.spills}
    scops, tilings = [c.scop for c in made.parts], [c.tiling for c in made.parts]
    return plans_of(searched, stages, scops, tilings, spilled)


def _wanted(workload: Workload, hardware: HardwareSpec, about: str) -> str | None:
    """The intermediate to inline for a statement that nothing computes: its own, one that it reads,
    or one that is computed from its own; None where no instruction computes as much at once."""
    statement = next((s for s in workload.statements if s.name == about), None)
    if statement is None:
        return None
    own = statement.target.tensor
    read = (a.tensor for a in walk(statement.value) if isinstance(a, Access))
    from_it = (s.target.tensor for s in workload.statements if own in s.reads)
    for tensor in dict.fromkeys((own, *read, *from_it)):
        readers = [s for s in workload.statements if tensor in s.reads]
        writers = [s for s in workload.statements if s.target.tensor == tensor]
        if workload.tensor[tensor].role != "intermediate" or (len(readers), len(writers)) != (1, 1):
            continue
        if any(s.accumulates for s in writers) or readers[0].ordered:
            continue
        try:
            made = without(workload, tensor)
        except HwgenError:
            continue
        if any(s.name == readers[0].name and _fits(s.value, hardware) for s in made.statements):
            return tensor
    return None


def _fits(value: Expr, hardware: HardwareSpec) -> bool:
    """Whether the semantics of some intrinsic have all the operations of a value."""
    wanted = Counter(_kinds(value))
    return any(
        wanted <= Counter(k for a in i.semantics for k in _kinds(a.value))
        for i in hardware.intrinsics
    )


def _kinds(value: Expr) -> Iterator[str]:
    """The operations on elements in a value: not those of indices, nor of constants alone."""
    match value:
        case Access() | Const() | Name():
            return
        case _ if not any(isinstance(n, Access) for n in walk(value)):
            return
        case Binary(op) | Unary(op):
            yield op
        case Call("clip"):
            yield from ("min", "max")
        case Call(function):
            yield function
        case Cast():
            pass  # Supplied where it loses nothing.
    for part in parts(value):
        yield from _kinds(part)
