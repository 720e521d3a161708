"""What a schedule leaves to be decided: nests nobody has touched, and what they read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod

from hwgen.errors import HwgenError
from hwgen.polyhedral.schedule.schedule import Schedule
from hwgen.polyhedral.tree.cost import operations, sums_narrow
from hwgen.polyhedral.tree.edit import main_site
from hwgen.polyhedral.tree.idle_steps import plain
from hwgen.polyhedral.tree.loop_tree import LoopTree, Stage
from hwgen.polyhedral.tree.padding import is_by_place
from hwgen.polyhedral.tree.terms import addends
from hwgen.spec.expression import DTYPES, Access, Call, Cast, Const, Name, names


def attempt(schedule: Schedule, edits: Callable[[], None]) -> HwgenError | None:
    """Make several edits, or none of them where one is refused; the refusal."""
    before = count(schedule)
    try:
        edits()
    except HwgenError as error:
        take_back(schedule, before)
        return error
    return None


def count(schedule: Schedule) -> int:
    """How many edits have been made."""
    return len(schedule.edits())


def take_back(schedule: Schedule, before: int) -> None:
    """Undo the edits after the first `before`."""
    for _ in range(count(schedule) - before):
        schedule.undo()


@dataclass(frozen=True, slots=True)
class Operand:
    """One read of a stage. `steps`: per dimension of the tensor, the coefficient of each iterator,
    or None where the index is not affine (the whole dimension is then taken to be touched). `met`:
    other stages touch it too."""

    tensor: str
    bytes: int
    shape: tuple[int, ...]
    steps: tuple[Mapping[str, int] | None, ...]
    met: bool = False

    def stride(self, iterator: str) -> int | None:
        """Elements between neighbours along an iterator; None where that is not constant."""
        total, step = 0, prod(self.shape)
        for coefficients, extent in zip(self.steps, self.shape, strict=True):
            step //= extent
            if coefficients is None:
                return None
            total += coefficients.get(iterator, 0) * step
        return total

    def uses(self, iterator: str) -> bool:
        return any(c is None or c.get(iterator, 0) for c in self.steps)

    @property
    def size(self) -> int:
        """Bytes of the whole tensor."""
        return prod(self.shape) * self.bytes


@dataclass(frozen=True, slots=True)
class Nest:
    """An untouched reduction: `spatial` and `reduction` iterators (name, extent), what it reads;
    `post`: the one stage that reads its result point by point, and `partner`: for each spatial
    iterator, that stage's iterator ("" and {} where there is none). `sums`: it adds; `narrow`: it
    adds products of integers that are narrower than their sum."""

    stage: str
    spatial: tuple[tuple[str, int], ...]
    reduction: tuple[tuple[str, int], ...]
    operands: tuple[Operand, ...]
    accumulator_bytes: int
    result_bytes: int
    operations: int
    plain: bool
    post: str = ""
    partner: Mapping[str, str] | None = None
    sums: bool = True
    narrow: bool = False

    @property
    def extents(self) -> dict[str, int]:
        return dict((*self.spatial, *self.reduction))

    @property
    def points(self) -> int:
        return prod(e for _, e in (*self.spatial, *self.reduction))

    @property
    def contiguous(self) -> str:
        """The iterator along which the result's neighbours lie."""
        return self.spatial[-1][0] if self.spatial else ""


def pristine(state: LoopTree, stage: str) -> bool:
    """Whether a stage's nest stands at the root as it was made."""
    site = main_site(state, stage)
    block = site.block
    own = [e.name for _, e in block.bindings if isinstance(e, Name)]
    plain = all(x.kind == "serial" and not x.pragmas and not x.prefetches for x in site.loops)
    alone = all(len(x.body) == 1 for x in site.loops)
    extents = site.extents
    whole = (
        len(own) == len(block.bindings)
        and sorted(own) == sorted(site.names)
        and all(
            extents[n] == e for n, (_, e) in zip(own, state.stage[stage].iterators, strict=True)
        )
    )
    first = "update" if state.stage[stage].continues else "whole"
    untouched = block.part == first and not block.predicate and block.store_predicate is None
    return plain and alone and whole and untouched and block.tensorized is None


def loop_of(schedule: Schedule, stage: str, iterator: str) -> str:
    """The loop that is an iterator of a stage.

    Raises:
        KeyError: no loop alone is.
    """
    value = main_site(schedule.state, stage).block.binding[iterator]
    if not isinstance(value, Name):
        raise KeyError(iterator)
    return value.name


def partner_loops(schedule: Schedule, stage: str, between: str = "") -> tuple[str, dict[str, str]]:
    """The stage that takes another's results, and its loop for each iterator of the other's;
    `between`: a stage that takes them first."""
    nest = nest_of(schedule.state, stage)
    post, partner = nest.post, nest.partner or {}
    if post == between:
        last = nest_of(schedule.state, between)
        post, partner = last.post, {i: (last.partner or {})[p] for i, p in partner.items()}
    return post, {i: loop_of(schedule, post, p) for i, p in partner.items()}


def lone_loops(schedule: Schedule, stage: str) -> tuple[tuple[str, ...], set[str]]:
    """The loops of a stage that hold nothing else, and those of its reduction."""
    site = main_site(schedule.state, stage)
    depth = max((n for n, x in enumerate(site.loops) if len(x.body) > 1), default=-1)
    reduction = schedule.state.stage[stage].reduction
    return site.names[depth + 1 :], {n for i, _ in reduction for n in names(site.block.binding[i])}


def operand(state: LoopTree, access: Access) -> Operand:
    """An access, with its indices taken apart."""
    tensor = state.tensor[access.tensor]
    steps: list[Mapping[str, int] | None] = []
    for index in access.indices:
        found: dict[str, int] = {}
        affine = True
        for coefficient, term in addends(index):
            match term:
                case None:
                    pass
                case Name(name):
                    found[name] = found.get(name, 0) + coefficient
                case _:
                    affine = False
        steps.append(found if affine else None)
    met = tensor.name in state.stage or len(state.readers(tensor.name)) > 1
    return Operand(tensor.name, DTYPES[tensor.dtype], tensor.shape, tuple(steps), met)


def nest_of(state: LoopTree, name: str) -> Nest:
    """A stage as a nest to be tiled, with its consumer where that may share its loops."""
    state = plain(state)
    stage = state.stage[name]
    result = state.tensor[name]
    post, partner = _post(state, stage)
    written = state.tensor[post or name]
    return Nest(
        name,
        stage.spatial,
        stage.reduction,
        tuple(operand(state, r) for r in stage.reads),
        DTYPES[result.dtype],
        DTYPES[written.dtype],
        operations(stage.value, last_index(stage)),
        plain_target(stage),
        post,
        partner,
        stage.op == "+=",
        sums_narrow(state, stage),
    )


def last_index(stage: Stage) -> tuple[str, ...]:
    """The iterators along which the elements of a stage's result are neighbours."""
    return tuple(n for i in stage.target.indices[-1:] for n in names(i))


def plain_target(stage: Stage) -> bool:
    """Whether each index of the target is an iterator of its own."""
    plain = [i.name for i in stage.target.indices if isinstance(i, Name)]
    return len(set(plain)) == len(stage.target.indices)


def is_read_in_place(state: LoopTree, name: str) -> bool:
    """Whether a tensor is another one with padding, of which lanes read either in all elements."""
    stage = state.stage.get(name)
    if stage is None:
        return False
    match stage.value:
        case Call("select", (condition, Access() as source, Const() | Cast(_, Const()))):
            inside = is_by_place(stage.value) and pristine(state, name) and plain_target(stage)
        case _:
            return False
    readers = state.readers(name)
    if not inside or not readers or state.tensor[name].role != "intermediate":
        return False
    chosen = [n for n, i in enumerate(stage.target.indices) if {*names(i)} & {*names(condition)}]
    return source.tensor not in state.stage and all(
        pristine(state, reader.tensor)
        and {*last_index(reader)}.isdisjoint(n for d in chosen for n in names(access.indices[d]))
        for reader in readers
        for access in reader.reads
        if access.tensor == name
    )


def _post(state: LoopTree, stage: Stage) -> tuple[str, Mapping[str, str]]:
    """The stage that reads each element of another once, at the same place up to permutation."""
    readers = state.readers(stage.tensor)
    if len(readers) != 1 or state.tensor[stage.tensor].role == "output" or not plain_target(stage):
        return "", {}
    reader = readers[0]
    accesses = [a for a in reader.reads if a.tensor == stage.tensor]
    if len(accesses) != 1:
        return "", {}
    indices = [i.name for i in accesses[0].indices if isinstance(i, Name)]
    mine = dict(reader.iterators)
    fits = (
        not reader.reduces
        and plain_target(reader)
        and pristine(state, reader.tensor)
        and len(set(indices)) == len(accesses[0].indices)
        and all(n in mine for n in indices)
        and all(n in indices or e == 1 for n, e in reader.iterators)
        and all(
            mine[n] <= e  # less where only a part of the result is wanted (padding)
            for n, e in zip(indices, state.tensor[stage.tensor].shape, strict=True)
        )
    )
    if not fits:
        return "", {}
    own = [i.name for i in stage.target.indices if isinstance(i, Name)]
    return reader.tensor, dict(zip(own, indices, strict=True))
