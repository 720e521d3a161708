"""The static control part: statements with iteration domains and affine accesses.

Values are put into a normal form (clip as min of max, lossless casts dropped, constants on the
right); an update of an output becomes an update of an accumulator and a copy; statements that
only move an input's elements become views of that input; loops of statements that meet in one
intermediate get one name. Unit loops disappear from accesses: their iterator is always zero.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

from hwgen.errors import HwgenError
from hwgen.polyhedral import isl
from hwgen.polyhedral.normal_form import normalise
from hwgen.polyhedral.same import Same
from hwgen.polyhedral.semantics import widens
from hwgen.spec.affine import Affine, affine
from hwgen.spec.expression import (
    Access,
    Call,
    Cast,
    Const,
    Expr,
    Name,
    UpdateOp,
    names,
    replace_part,
    substitute,
    walk,
)
from hwgen.spec.typecheck import holds
from hwgen.spec.workload import Statement, Tensor, Workload


@dataclass(frozen=True, slots=True)
class Reference:
    """A tensor element as affine functions of loops."""

    tensor: str
    indices: tuple[Affine, ...]

    def __str__(self) -> str:
        return f"{self.tensor}[{', '.join(map(str, self.indices))}]"


@dataclass(frozen=True, slots=True)
class View:
    """`tensor[d0, d1, ...]` is `source[indices]`, or `fill` where that is out of bounds."""

    tensor: str
    source: str
    indices: tuple[Affine, ...]
    fill: int | float


@dataclass(frozen=True, slots=True)
class ScopStatement:
    """A statement in normal form; `loops` outermost first, unit loops included. `start`: what the
    elements begin with that `=` makes from their last values, in the loops' order, or an update
    from another tensor's element."""

    name: str
    loops: tuple[tuple[str, int], ...]
    op: UpdateOp
    target: Reference
    value: Expr
    reads: tuple[Reference, ...]
    source: Statement
    start: Expr | None = None

    @property
    def ordered(self) -> bool:
        """Whether the reduction's iterations must run in the loops' order."""
        return self.op == "=" and self.start is not None

    @property
    def accumulates(self) -> bool:
        """Whether an element is made by all iterations of a reduction."""
        return self.op != "=" or self.ordered

    @property
    def spatial(self) -> tuple[str, ...]:
        """Loops that select the written element."""
        used = {name for index in self.target.indices for name in index.names}
        return tuple(n for n, extent in self.loops if n in used and extent > 1)

    @property
    def reduction(self) -> tuple[str, ...]:
        """Loops that select contributions to the same element."""
        spatial = self.spatial
        return tuple(n for n, extent in self.loops if extent > 1 and n not in spatial)

    @property
    def domain_text(self) -> str:
        return isl.box(self.name, self.loops)

    def access_text(self, reference: Reference) -> str:
        variables = [n for n, _ in self.loops]
        return (
            isl.relation(self.name, variables, reference.tensor, reference.indices)
            + " : "
            + " and ".join(f"0 <= {n} < {e}" for n, e in self.loops)
            if self.loops
            else isl.relation(self.name, variables, reference.tensor, reference.indices)
        )

    def __str__(self) -> str:
        return f"{self.name}: {self.target} {self.op} {self.value}"


@dataclass(frozen=True)
class Scop:
    """Statements in textual order, the tensors they meet in, and the views of inputs."""

    workload: Workload
    statements: tuple[ScopStatement, ...]
    views: tuple[View, ...]
    dtypes: tuple[tuple[str, str], ...]

    @cached_property
    def extents(self) -> dict[str, int]:
        """Extent of every loop."""
        return {n: e for s in self.statements for n, e in s.loops}

    @cached_property
    def anchor(self) -> ScopStatement:
        """The accumulation; where there is none, the last of the statements with most loops."""
        return anchor_of(self.statements)

    @cached_property
    def dtype(self) -> dict[str, str]:
        return dict(self.dtypes)

    @cached_property
    def view(self) -> dict[str, View]:
        return {v.tensor: v for v in self.views}

    def __str__(self) -> str:
        lines: list[str] = []
        for v in self.views:
            lines.append(f"view {v.tensor}[d] = {v.source}[{', '.join(map(str, v.indices))}]")
        for s in self.statements:
            lines.append(str(s))
            lines.append(f"  domain {{ {s.domain_text} }}")
            if s.start is not None:
                lines.append(f"  start  {s.start}")
            lines.extend(f"  read   {{ {s.access_text(r)} }}" for r in s.reads)
            lines.append(f"  write  {{ {s.access_text(s.target)} }}")
        return "\n".join(lines)


def anchor_of(statements: Sequence[ScopStatement]) -> ScopStatement:
    """The accumulation; where there is none, the last of the statements with most loops."""
    found = next((s for s in statements if s.accumulates), None)
    return found or max(reversed(statements), key=lambda s: len(s.spatial))


def build_scop(workload: Workload) -> Scop:
    """Bring the workload of one phase into normal form.

    Raises:
        HwgenError: as `scop_of_nest`; H302 where several iterations of a sum share an element, H305
            where a statement that takes new values in order goes on from what no call sets.
    """
    found = scop_of_nest(workload)
    if found is None:
        shared = next((s for s in workload.statements if s.continues), None)
        if shared is not None:
            raise HwgenError(
                "H302",
                f"calls add up each element in loops of its own, and {shared.name} does not",
                location=shared.location,
                field="compute",
                found=str(shared),
                allowed="sums of which every element is one of its own loops, as c[m, n]",
                repair="a chip with a processor beside its units; or a sum over what each element "
                f"of {shared.target.tensor} takes",
                statement=shared.name,
            )
        statement = next(s for s in workload.statements if s.ordered)
        raise HwgenError(
            "H305",
            f"{statement.name} goes on from elements that no call sets",
            location=statement.location,
            field="compute",
            found=str(statement),
            allowed="a statement right before it that sets each of these elements alone",
            repair="write what it starts from in the statement before, over the same elements",
            statement=statement.name,
        )
    return found


def scop_of_nest(workload: Workload) -> Scop | None:
    """Bring a workload into normal form; None where its statements cannot share loops.

    Raises:
        HwgenError: H402 where a guarded read is not a plain zero padding, H403 where nothing is
            left to compute.
    """
    views: dict[str, View] = {}
    dtypes = {t.name: t.dtype for t in workload.tensors}
    plain: list[ScopStatement] = []
    following = (*workload.statements[1:], None)
    for statement, after in zip(workload.statements, following, strict=True):
        begins = after is not None and after.begins(statement)
        view = None if begins else _view(statement, workload, views, dtypes)
        if view is not None:
            views[view.tensor] = view
        elif statement.continues or statement.ordered:
            begun = _begun(statement, plain[-1:], workload, dtypes)
            if begun is None:
                return None
            plain[-1:] = begun
        else:
            plain.extend(normal_form(statement, workload, dtypes))
    if not plain:
        raise HwgenError(
            "H403",
            "the workload only rearranges an input; no statement is left for the chip",
            location=workload.location,
            found=", ".join(str(s) for s in workload.statements),
            allowed="at least one statement that computes",
            repair="write the result as an arithmetic statement",
        )
    statements = _unify_loops(plain)
    if statements is None:
        return None
    return Scop(workload, tuple(statements), tuple(views.values()), tuple(sorted(dtypes.items())))


def views_of(workload: Workload) -> dict[str, View]:
    """The views of inputs that statements make, by the tensor that each defines alone.

    Raises:
        HwgenError: H402.
    """
    writes = Counter(s.target.tensor for s in workload.statements)
    dtypes = {t.name: t.dtype for t in workload.tensors}
    views: dict[str, View] = {}
    for statement in workload.statements:
        view = _view(statement, workload, views, dtypes)
        if view is not None and writes[view.tensor] == 1:
            views[view.tensor] = view
    return views


def view_statements(workload: Workload) -> tuple[Statement, ...]:
    """Statements that only move an input's elements, into tensors that no other one writes.

    Raises:
        HwgenError: H402.
    """
    writes = Counter(s.target.tensor for s in workload.statements)
    dtypes = {t.name: t.dtype for t in workload.tensors}
    return tuple(
        s
        for s in workload.statements
        if writes[s.target.tensor] == 1 and _view(s, workload, {}, dtypes) is not None
    )


def _view(
    statement: Statement, workload: Workload, views: Mapping[str, View], dtypes: dict[str, str]
) -> View | None:
    """The view that a data-movement statement on an input amounts to, if it is one."""
    target = workload.tensor[statement.target.tensor]
    if target.role != "intermediate" or statement.op != "=":
        return None
    if all(workload.tensor[name].role != "input" for name in statement.reads):
        return None
    match _value(statement, dtypes):
        case Access() as source:
            guard, fill = None, 0
        case Call("select", (guard, Access() as source, Const(fill))):
            if any(isinstance(node, Access) for node in walk(guard)):
                return None  # it depends on data
        case _:
            return None
    if workload.tensor[source.tensor].role != "input" or source.tensor in views:
        return None
    plain = [i.name for i in statement.target.indices if isinstance(i, Name)]
    if len(plain) != len(target.shape) or len(set(plain)) != len(plain):
        return None
    position = {name: f"d{i}" for i, name in enumerate(plain)}
    if any(n not in position and extent > 1 for n, extent in statement.loops):
        return None
    indices: list[Affine] = []
    for index in source.indices:
        function = affine(index)
        if function is None:
            return None
        units = {n: 0 for n in function.names if n not in position}
        indices.append(function.fix(units).rename(position))
    if guard is not None:
        _check_padding(statement, guard, source, workload)
    elif widens(dtypes[source.tensor], target.dtype):
        dtypes[target.name] = dtypes[source.tensor]
    return View(target.name, source.tensor, tuple(indices), fill)


def _value(statement: Statement, dtypes: Mapping[str, str]) -> Expr:
    """A statement's value in normal form."""
    return _normalised(
        Same(statement.value), tuple((n, dtypes[n]) for n in sorted(statement.reads))
    )


@lru_cache(1024)
def _normalised(value: Same[Expr], dtypes: tuple[tuple[str, str], ...]) -> Expr:
    """Remembered, as every part of a workload in which a statement may be asks for it."""
    return normalise(value.value, dict(dtypes))


def _check_padding(statement: Statement, guard: Expr, source: Access, workload: Workload) -> None:
    """A guarded read must be guarded exactly where it would leave the tensor."""
    shape = workload.tensor[source.tensor].shape
    inside = " and ".join(
        f"0 <= {index} < {extent}" for index, extent in zip(source.indices, shape, strict=True)
    )
    in_bounds = isl.Set("{ " + isl.box("S", statement.loops, inside) + " }")
    guarded = isl.Set("{ " + isl.box("S", statement.loops, str(guard)) + " }")
    if not in_bounds.is_equal(guarded):
        witness = in_bounds.subtract(guarded).sample_point()
        raise HwgenError(
            "H402",
            f"the guard of {source} is narrower than the tensor's bounds",
            location=statement.location,
            field="compute",
            found=f"{guard}, false at {witness} although the element exists",
            allowed="a select that is false exactly where the index leaves the tensor",
            repair=f"guard with {inside}",
        )


def normal_form(
    statement: Statement, workload: Workload, dtypes: dict[str, str]
) -> list[ScopStatement]:
    target = workload.tensor[statement.target.tensor]
    value = _value(statement, dtypes)
    units = {n: 0 for n, extent in statement.loops if extent == 1}
    name = statement.name
    first = _statement(name, statement, statement.target, statement.op, value, units)
    if statement.op == "=" or target.role != "output":
        return [first]
    return _apart(first, statement, target, dtypes)


def _apart(
    first: ScopStatement, statement: Statement, target: Tensor, dtypes: dict[str, str]
) -> list[ScopStatement]:
    """The accumulation of an output as one of an accumulator, by its loops, and a copy."""
    units = {n: 0 for n, extent in statement.loops if extent == 1}
    hidden = f"{target.name}_acc"
    dtypes[hidden] = target.dtype
    own = Access(hidden, tuple(map(Name, names(statement.target))))
    update = replace(
        first,
        target=reference(own, units),
        value=replace_part(first.value, statement.target, own),
        reads=tuple(r for r in first.reads if r != first.target),
    )
    copy = _statement(
        f"{first.name}_out",
        statement,
        statement.target,
        "=",
        own,
        units,
    )
    spatial = set(update.spatial)
    loops = tuple((n, e) for n, e in copy.loops if n in spatial or e == 1)
    return [update, replace(copy, loops=loops)]


def _begun(
    statement: Statement,
    before: list[ScopStatement],
    workload: Workload,
    dtypes: dict[str, str],
) -> list[ScopStatement] | None:
    """An accumulation with what the statement before it sets the elements to; None where that is
    none, or no value of its own for each element."""
    first = _accumulation(statement, dtypes)
    if not before or not _begins(_number(before[0]), first):
        return None
    begin = _number(before[0])
    indices = zip(begin.target.indices, first.target.indices, strict=True)
    renamed = {a.names[0]: Name(b.names[0]) for a, b in indices if a.names}
    start = substitute(begin.value, dict(renamed))
    reads = tuple(r for r in first.reads if r != first.target)
    first = replace(first, start=start, reads=reads)
    target = workload.tensor[statement.target.tensor]
    return [first] if target.role != "output" else _apart(first, statement, target, dtypes)


def _accumulation(statement: Statement, dtypes: dict[str, str]) -> ScopStatement:
    units = {n: 0 for n, extent in statement.loops if extent == 1}
    value = _value(statement, dtypes)
    return _statement(statement.name, statement, statement.target, statement.op, value, units)


def _number(begin: ScopStatement) -> ScopStatement:
    """A beginning by a number without its cast."""
    match begin.value:
        case Cast(dtype, Const(number)) if holds(dtype, number):
            return replace(begin, value=Const(number))
        case _:
            return begin


def begins_elements(begin: Statement, statement: Statement, workload: Workload) -> bool:
    """Whether a statement sets each element that one in order goes on from, to a number or another
    tensor's element."""
    dtypes = {t.name: t.dtype for t in workload.tensors}
    (first,) = normal_form(begin, workload, dtypes)[:1]
    return _begins(_number(first), _accumulation(statement, dtypes))


def _begins(begin: ScopStatement, statement: ScopStatement) -> bool:
    """Whether a statement sets each element that another one goes on from, and computes nothing."""
    plain = isinstance(begin.value, Const | Access) and begin.op == "="
    if not plain or begin.target.tensor != statement.target.tensor:
        return False
    moving = [{n for i in s.target.indices for n in i.names} for s in (begin, statement)]
    if len(moving[0]) != len(moving[1]):
        return False  # A diagonal of what is set.
    mine, theirs = dict(begin.loops), dict(statement.loops)
    for a, b in zip(begin.target.indices, statement.target.indices, strict=True):
        same = [mine[n] for n in a.names] == [theirs[n] for n in b.names]
        steps = [c for _, c in a.terms], [c for _, c in b.terms]
        if a.constant != b.constant or not same or steps not in (([], []), ([1], [1])):
            return False
    return not begin.reduction


def _statement(
    name: str,
    statement: Statement,
    target: Access,
    op: UpdateOp,
    value: Expr,
    units: Mapping[str, int],
) -> ScopStatement:
    reads = tuple(dict.fromkeys(reference(n, units) for n in walk(value) if isinstance(n, Access)))
    return ScopStatement(
        name, statement.loops, op, reference(target, units), value, reads, statement
    )


def reference(access: Access, units: Mapping[str, int]) -> Reference:
    """An access as affine functions, loops in `units` set to their only value."""
    indices: list[Affine] = []
    for index in access.indices:
        function = affine(index)
        assert function is not None, f"non-affine index {index} passed the workload's checks"
        indices.append(function.fix(units))
    return Reference(access.tensor, tuple(indices))


_Loop = tuple[int, str]
"""A loop of one statement, by the statement's place."""


def _unify_loops(statements: list[ScopStatement]) -> list[ScopStatement] | None:
    """Rename loops so that loops which run over the same elements carry one name; None where an
    intermediate is read otherwise than at the element that one iteration writes, over all of its
    elements."""
    shared = SharedLoops()
    if not all(map(shared.add, statements)):
        return None
    anchor = anchor_of(statements)
    _join_strangers(statements, shared, next(p for p, s in enumerate(statements) if s is anchor))
    common = shared.names()
    names = [{n: common[place, n] for n, _ in s.loops} for place, s in enumerate(statements)]
    return [_rename(s, mine) for s, mine in zip(statements, names, strict=True)]


class SharedLoops:
    """Loops that are one: disjoint sets with at most one loop of each statement. `member`: the set
    of a loop, by statement its loop."""

    def __init__(self) -> None:
        self.statements: list[ScopStatement] = []
        self.extents: dict[_Loop, int] = {}
        self.member: dict[_Loop, dict[int, str]] = {}
        self.produced: dict[str, int] = {}

    def add(self, statement: ScopStatement) -> bool:
        """One more statement, its loops joined with those that wrote what it reads; whether they
        can be."""
        place = len(self.statements)
        self.statements.append(statement)
        self.extents |= {(place, n): e for n, e in statement.loops}
        self.member |= {(place, n): {place: n} for n, _ in statement.loops}
        made = ((r, self.produced[r.tensor]) for r in statement.reads if r.tensor in self.produced)
        joined = all(self._align(place, read, producer) for read, producer in made)
        self.produced[statement.target.tensor] = place
        return joined

    @property
    def one_loop(self) -> bool:
        """Whether a loop that runs more than once is one of every statement."""
        place = len(self.statements) - 1
        mine = ((place, n) for n, e in self.statements[-1].loops if e > 1)
        return any(len(self.member[loop]) == place + 1 for loop in mine)

    def _align(self, place: int, read: Reference, producer: int) -> bool:
        """Join the loops of a read with those that wrote the tensor; whether they can be."""
        written = self.statements[producer].target.indices
        for mine, theirs in zip(read.indices, written, strict=True):
            if not mine.terms and not theirs.terms and mine.constant == theirs.constant:
                continue
            plain = all(
                f.constant == 0 and len(f.terms) == 1 and f.terms[0][1] == 1 for f in (mine, theirs)
            )
            if not plain or not self.join((place, mine.names[0]), (producer, theirs.names[0])):
                return False
        return True

    def join(self, a: _Loop, b: _Loop) -> bool:
        """Whether two loops can be one; they are from now on."""
        less, more = sorted((self.member[a], self.member[b]), key=len)
        if less is more:
            return True
        if self.extents[a] != self.extents[b] or not less.keys().isdisjoint(more):
            return False
        for place, name in less.items():
            more[place] = name
            self.member[place, name] = more
        return True

    def names(self) -> dict[_Loop, str]:
        """The common name of each loop: its first one, made unique."""
        chosen: dict[int, str] = {}
        taken: set[str] = set()
        found: dict[_Loop, str] = {}
        for loop, joined in self.member.items():
            if id(joined) not in chosen:
                name = joined[min(joined)]
                while name in taken:
                    name += "_"
                taken.add(name)
                chosen[id(joined)] = name
            found[loop] = chosen[id(joined)]
        return found


def _join_strangers(statements: list[ScopStatement], shared: SharedLoops, anchor: int) -> None:
    """Let statements that share nothing with the anchor run in its loops, where they agree."""
    for place, statement in enumerate(statements):
        if any(anchor in shared.member[place, n] for n, _ in statement.loops):
            continue
        indices = zip(statement.target.indices, statements[anchor].target.indices, strict=False)
        for mine, theirs in indices:
            if len(mine.terms) == 1 and len(theirs.terms) == 1:
                shared.join((place, mine.names[0]), (anchor, theirs.names[0]))


def _rename(statement: ScopStatement, names: Mapping[str, str]) -> ScopStatement:
    bindings: dict[str, Expr] = {o: Name(new) for o, new in names.items() if o != new}
    if not bindings:
        return statement

    def moved(r: Reference) -> Reference:
        return Reference(r.tensor, tuple(i.rename(names) for i in r.indices))

    return replace(
        statement,
        loops=tuple((names[n], e) for n, e in statement.loops),
        target=moved(statement.target),
        reads=tuple(moved(r) for r in statement.reads),
        value=substitute(statement.value, bindings),
        start=statement.start and substitute(statement.start, bindings),
    )
