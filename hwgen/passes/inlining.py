"""Intermediates whose values stand where they are read: one instruction may do what a workload says
in several statements, and leave what is between nowhere.

Inlining is an edit of the schedule (`compute_inline`), made before the search.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

from hwgen.errors import HwgenError, Tolerating
from hwgen.passes.kernel import Kernel
from hwgen.passes.start import Start
from hwgen.polyhedral.match.select import select
from hwgen.polyhedral.phases import split_phases
from hwgen.polyhedral.scop import build_scop
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

UnitsOf = Callable[[Start], Kernel]
"""What units make alone of what is left to be searched."""


def compile_inlined(start: Start, units: UnitsOf, refused: HwgenError) -> Kernel:
    """A kernel of a workload of which units cannot compute some statement by itself; `refused`:
    why.

    Raises:
        HwgenError: `refused` where they cannot with the statement inlined either; of blocks that no
            call computes, why the rest is refused.
    """
    searched = start
    for tensor in _repeated(start.workload) if refused.code == UNMADE else ():
        searched = searched.inlined(tensor)
    covered: set[tuple[Statement, ...]] = set()
    while about := _uncovered(searched, covered):
        made = _with_inlined(searched, about)
        if made is None and refused.code == UNMADE:
            break  # What is refused then is what that statement is refused for.
        if made is None:
            raise refused
        searched = made
    if searched is start:
        raise refused
    try:
        return units(searched)
    except HwgenError as error:
        if not error.code.startswith(REFUSALS):
            raise
        raise (error if refused.code == UNMADE else refused) from None


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


def _uncovered(start: Start, covered: set[tuple[Statement, ...]]) -> str:
    """The first statement that no intrinsics compute in its phase; "" where there is none, or what
    is refused is about no statement alone. `covered`: phases of which they compute all, to which
    others are added."""
    for phase in split_phases(start.workload):
        statements = phase.workload.statements
        if statements in covered:
            continue
        with Tolerating(REFUSALS) as refused:
            select(build_scop(phase.workload), start.hardware)
            covered.add(statements)
            continue
        return refused.error.statement
    return ""


def _with_inlined(start: Start, about: str) -> Start | None:
    """The same with an intermediate inlined for a statement that nothing computes: its own, one
    that it reads, or one that is computed from its own; None where no instruction computes as much
    at once."""
    workload = start.workload
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
        with Tolerating("H413"):
            made = start.inlined(tensor)
            reading = (s for s in made.workload.statements if s.name == readers[0].name)
            if any(_fits(s.value, start.hardware) for s in reading):
                return made
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
