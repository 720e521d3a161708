"""Phases: runs of statements that one fused nest can hold, one accumulation each.

A kernel runs its phases one after the other. What one phase computes and another reads stays on
the chip between them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from hwgen.polyhedral.same import Same
from hwgen.polyhedral.scop import (
    Scop,
    SharedLoops,
    normal_form,
    scop_of_nest,
    view_statements,
)
from hwgen.spec.expression import Access, Call
from hwgen.spec.workload import Role, Statement, Tensor, Workload

KEPT = 64
"""Workloads of which phases are kept."""


@dataclass(frozen=True)
class Phase:
    """Statements of one nest as a workload of their own, and the tensors that it shares with other
    phases: `takes` from earlier ones, `leaves` for later ones."""

    workload: Workload
    takes: tuple[str, ...]
    leaves: tuple[str, ...]


def split_phases(workload: Workload) -> tuple[Phase, ...]:
    """Cut a workload into as few phases as its statements allow, in textual order. A statement
    that only rearranges an input is part of every phase that reads its result. Two of them may
    write parts of one tensor, which then is one; not all of it again (`versioned`).

    Raises:
        HwgenError: as `scop_of_nest` for a statement by itself.
    """
    return _phases(Same(workload))


@lru_cache(KEPT)
def _phases(given: Same[Workload]) -> tuple[Phase, ...]:
    workload = given.value
    groups: list[list[Statement]] = []
    views = view_statements(workload)
    moved = {id(s) for s in views}
    growing = _Growing(workload, views)
    for chunk in _chunks([s for s in workload.statements if id(s) not in moved]):
        if growing.takes(chunk):
            groups[-1] += chunk
        else:
            groups.append(chunk)
            growing.start(groups[-1])
    if len(groups) < 2:
        return (Phase(workload, (), ()),)
    return tuple(_phase(workload, groups, n, views) for n in range(len(groups)))


def _chunks(statements: Sequence[Statement]) -> list[list[Statement]]:
    """Statements one by one; with one that goes on in order, what it begins from."""
    result: list[list[Statement]] = []
    for statement in statements:
        if result and statement.begins(result[-1][-1]):
            result[-1].append(statement)
        else:
            result.append([statement])
    return result


def _with_views(
    workload: Workload, statements: Sequence[Statement], views: Sequence[Statement]
) -> list[Statement]:
    """The statements and those of the views of inputs that they read, in textual order."""
    read = read_by(statements)
    mine = {s.name for s in (*statements, *(s for s in views if s.target.tensor in read))}
    return [s for s in workload.statements if s.name in mine]


class _Growing:
    """Statements that one nest holds, to which others are added. Whether it holds these too takes
    its normal form anew, but for statements that only go on from the others, in a loop that all
    have; `shared`: the loops of all of them, where they are known."""

    def __init__(self, workload: Workload, views: Sequence[Statement]) -> None:
        self.workload = workload
        self.views = views
        self.moved = {s.target.tensor for s in views}
        self.dtypes = {t.name: t.dtype for t in workload.tensors}
        self.statements: list[Statement] = []
        self.shared: SharedLoops | None = None

    def start(self, statements: list[Statement]) -> None:
        """Begin with some statements, to which whoever calls adds those that are taken."""
        self.statements, self.shared = statements, None
        self.written, self.read = written_by(statements), read_by(statements)

    def takes(self, chunk: Sequence[Statement]) -> bool:
        """Whether the nest holds some more statements; then it does from now on."""
        if not self.statements:
            return False
        if not self._goes_on(chunk):
            scop = _together(self.workload, [*self.statements, *chunk], self.views)
            if scop is None:
                return False
            self.shared = SharedLoops()
            for statement in scop.statements:
                self.shared.add(statement)
        self.written |= written_by(chunk)
        self.read |= read_by(chunk)
        return True

    def _goes_on(self, chunk: Sequence[Statement]) -> bool:
        """Whether a statement just goes on from others, in a loop that all have: then one nest
        holds it, and it changes nothing about them."""
        statement, *more = chunk
        target = statement.target.tensor
        plain = statement.op == "=" and not statement.ordered and not more
        fresh = target not in self.written | self.read and self.moved.isdisjoint(statement.reads)
        if self.shared is None or not (plain and fresh):
            return False
        if not all(map(self._settled, self.written & statement.reads)):
            return False
        summed = next((s for s in self.shared.statements if s.accumulates), None)
        self.shared, shared = None, self.shared  # A loop that cannot be joined leaves it undone.
        (form,) = normal_form(statement, self.workload, self.dtypes)
        if not shared.add(form) or not shared.one_loop:
            return False
        if summed is not None:
            anchor, place = shared.statements.index(summed), len(shared.statements) - 1
            if summed.start is not None or any(
                place in shared.member[anchor, n] for n in summed.reduction
            ):
                return False
        self.shared = shared
        return True

    def _settled(self, tensor: str) -> bool:
        """Whether who writes a tensor stays as it is if others read it: neither a sum, which then
        is no output, nor what only moves elements."""
        assert self.shared is not None
        if tensor not in self.shared.produced:
            return False
        made = self.shared.statements[self.shared.produced[tensor]]
        moves = isinstance(made.value, Access) or (
            isinstance(made.value, Call) and made.value.function == "select"
        )
        return tensor in self.read or (made.op == "=" and not moves)


def _together(
    workload: Workload, statements: list[Statement], views: Sequence[Statement]
) -> Scop | None:
    """The normal form of statements that one nest can hold; None where none can."""
    if sum(s.accumulates for s in statements) > 1:
        return None
    scop = scop_of_nest(_part(workload, _with_views(workload, statements, views), frozenset()))
    if scop is None or _begins_inside(scop):
        return None
    return None if _stored_in_a_sum(workload, scop) or _apart(scop) else scop


def _begins_inside(scop: Scop) -> bool:
    """Whether a sum starts from what another statement computes: a call has to bring it."""
    start = scop.anchor.start
    return isinstance(start, Access) and start.tensor in {s.target.tensor for s in scop.statements}


def _apart(scop: Scop) -> bool:
    """Whether some statements share no loop with the others: one nest of both would do each again
    in every tile of the other. Those whose loops run once are done once, wherever they stand."""
    joined: list[set[str]] = []
    for loops in ({n for n, extent in s.loops if extent > 1} for s in scop.statements):
        if loops:
            touching = [group for group in joined if not group.isdisjoint(loops)]
            apart = [group for group in joined if group.isdisjoint(loops)]
            joined = [*apart, loops.union(*touching)]
    return len(joined) > 1


def _stored_in_a_sum(workload: Workload, scop: Scop) -> bool:
    """Whether what may be stored shares loops with a term of a sum: it would be computed for every
    tile of the sum again, and stored by calls that stand outside these loops. Outputs are, and what
    only other phases read may be."""
    summed = set(scop.anchor.reduction)
    if not summed:
        return False
    mine = [s.source for s in scop.statements]
    others = [s for s in workload.statements if s not in mine]
    stored = {t.name for t in workload.outputs} | (read_by(others) - read_by(mine))
    return any(
        s.target.tensor in stored and not summed.isdisjoint(n for n, _ in s.loops)
        for s in scop.statements
        if s is not scop.anchor
    )


def read_by(statements: Sequence[Statement]) -> set[str]:
    return {tensor for s in statements for tensor in s.reads}


def written_by(statements: Sequence[Statement]) -> set[str]:
    return {s.target.tensor for s in statements}


def phase_of(workload: Workload, groups: Sequence[list[Statement]], number: int) -> Phase:
    """One of the groups into which a workload's statements are cut, as a workload of its own."""
    return _phase(workload, groups, number, view_statements(workload))


def _phase(
    workload: Workload,
    groups: Sequence[list[Statement]],
    number: int,
    views: Sequence[Statement],
) -> Phase:
    mine = groups[number]
    earlier = [s for g in groups[:number] for s in g]
    later = [s for g in groups[number + 1 :] for s in g]
    written = written_by(mine)
    takes = read_by(mine) & written_by(earlier)
    leaves = written & read_by(later)
    part = _part(workload, _with_views(workload, mine, views), frozenset(leaves))
    part = replace(part, name=f"{workload.name}_{number}")
    order = [t.name for t in workload.tensors]
    return Phase(
        part, tuple(n for n in order if n in takes), tuple(n for n in order if n in leaves)
    )


def _part(workload: Workload, statements: list[Statement], leaves: frozenset[str]) -> Workload:
    """The statements as a workload: what they read from outside is input."""
    written, read = written_by(statements), read_by(statements)
    last_written = {s.target.tensor: n for n, s in enumerate(statements)}
    last_read = {tensor: n for n, s in enumerate(statements) for tensor in s.reads}
    tensors: list[Tensor] = []
    for t in workload.tensors:
        if t.name not in written | read:
            continue
        role: Role = "input"
        if t.name in written:
            inner = last_read.get(t.name, -1) > last_written[t.name]
            role = "intermediate" if inner and t.name not in leaves else "output"
        tensors.append(replace(t, role=role))
    return replace(workload, tensors=tuple(tensors), statements=tuple(statements))
