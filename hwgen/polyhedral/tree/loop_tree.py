"""The state that primitives edit: what is computed (stages), in which order (a tree), and where
the values live (storages). Immutable: an edit makes a new state, so undo is a list.

A stage defines one tensor. The tree holds its blocks under loops; a block's `bindings` give the
stage's iterators as functions of the loops around it, so that every loop runs from zero over a
constant extent. One block instance runs for each point of its loops at which `predicate` holds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from operator import is_
from typing import TYPE_CHECKING, Literal, TypeVar

from hwgen.polyhedral.tree.binding import Binding, Tensorized
from hwgen.polyhedral.tree.terms import Addends, addends, simplify
from hwgen.spec.expression import (
    Access,
    Binary,
    Const,
    Expr,
    Name,
    UpdateOp,
    names,
    replace_part,
    substitute,
    walk,
)

if TYPE_CHECKING:
    from hwgen.polyhedral.tree.relations import Side

Role = Literal["input", "output", "intermediate"]
T = TypeVar("T")

RUNNING = Access("<running>", ())
"""In a stage's value: the last value of the element that the instance writes."""


@dataclass(frozen=True, slots=True)
class Tensor:
    """A row-major array as stages index it; how it is stored is its `Storage`'s business.
    `supplied`: what all elements of an input are that no caller gives."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    role: Role
    supplied: int | None = None


@dataclass(frozen=True)
class Stage:
    """`target op value` over `iterators` (name, extent), spatial ones first. An update starts from
    the operation's neutral element. `start`: with `=`, what elements begin with that take new
    values from their last ones (`RUNNING`), iteration by iteration in the iterators' order.
    `kind`: what scheduling added it for. `seed`: what a sum, or a greatest or least element, starts
    from in the neutral one's place, of other tensors or of elements of its own that are earlier.
    `over`: the tensor of which it keeps the elements that it does not write, in whose place it
    therefore is; one that starts from that tensor adds to what is there, and iterations may share
    elements. `where`: what holds, over the iterators, where there is something to contribute."""

    tensor: str
    iterators: tuple[tuple[str, int], ...]
    target: Access
    op: UpdateOp
    value: Expr
    kind: Literal["compute", "copy"] = "compute"
    start: Const | None = None
    seed: Expr | None = None
    over: str = ""
    where: tuple[Expr, ...] = ()

    @property
    def ordered(self) -> bool:
        """Whether contributions must be made in the iterators' order."""
        return self.start is not None

    @property
    def continues(self) -> bool:
        """Whether it adds to what is in its place, and begins no element itself."""
        return self.seed == Access(self.over, self.target.indices)

    @property
    def reduces(self) -> bool:
        return self.op != "=" or self.ordered

    @property
    def spatial(self) -> tuple[tuple[str, int], ...]:
        """Iterators that occur in the target's indices."""
        used = {n for i in self.target.indices for n in names(i)}
        return tuple(x for x in self.iterators if x[0] in used)

    @property
    def reduction(self) -> tuple[tuple[str, int], ...]:
        spatial = self.spatial
        return tuple(x for x in self.iterators if self.reduces and x not in spatial)

    @cached_property
    def reads(self) -> tuple[Access, ...]:
        """Distinct accesses of the value, in order of appearance."""
        return _accesses(self.value)

    @cached_property
    def _reads_by_part(self) -> dict[str, tuple[Access, ...]]:
        return {
            part: tuple(a for value in self.values_in(part) for a in _accesses(value))
            for part in ("init", "update", "whole")
        }

    def values_in(self, part: str) -> tuple[Expr, ...]:
        """What the instances of a part evaluate."""
        seed = () if self.seed is None else (self.seed,)
        if part == "init":
            return seed
        return (self.value, *seed) if part == "whole" or self.continues else (self.value,)

    def reads_in(self, part: str) -> tuple[Access, ...]:
        """What the instances of a part read: an initialisation, what sums start from."""
        return self._reads_by_part[part]

    @property
    def spelt(self) -> Expr:
        """The value with the target where it reads that element's last value."""
        return replace_part(self.value, RUNNING, self.target)

    def __str__(self) -> str:
        return f"{self.target} {self.op} {self.spelt}"


def _accesses(value: Expr) -> tuple[Access, ...]:
    found = (n for n in walk(value) if isinstance(n, Access) and n != RUNNING)
    return tuple(dict.fromkeys(found))


@dataclass(frozen=True, slots=True)
class Storage:
    """Where and how a tensor is kept. `memory` "" is the caller's array (inputs, outputs) or the
    chip's default for intermediates.

    `layout`: the storage's dimensions as expressions over `d0, d1, ...` (the tensor's indices),
    row-major, or () for the tensor's own. `aligns`: (axis, factor, offset): the stride of the axis
    is the least that holds the data and equals `offset` modulo `factor` (elements). `slots`: copies
    of a tile alive at once. `bank`, `address`: fixed by hand, else chosen. `alias`: the tensor in
    whose place it is, whose storage then is its own.
    """

    tensor: str
    memory: str = ""
    layout: tuple[Expr, ...] = ()
    aligns: tuple[tuple[int, int, int], ...] = ()
    slots: int = 1
    bank: int | None = None
    address: int | None = None
    alias: str = ""


@dataclass(frozen=True, slots=True)
class Prefetch:
    """Fetch what the loop's body will read of a tensor `distance` iterations later."""

    tensor: str
    distance: int


@dataclass(frozen=True)
class Loop:
    """`for name in 0 ..< extent`. `kind`: "serial", or a loop kind of the chip (`parallel`,
    `vectorize`, `unroll`, or a thread index to which it is bound). `combines`: iterations of this
    kind may carry a reduction; the chip then combines what each contributed. `sums`: they are
    lanes, which may add up one element. `turns`: in most iterations of the loops around it, its
    first one runs all that is inside."""

    name: str
    extent: int
    body: tuple[Node, ...]
    kind: str = "serial"
    combines: bool = False
    pragmas: tuple[tuple[str, int | str], ...] = ()
    prefetches: tuple[Prefetch, ...] = ()
    turns: bool = False
    sums: bool = False

    @cached_property
    def head(self) -> tuple[object, ...]:
        """All of it but what is inside and what it is translated to."""
        return self.name, self.extent, self.kind, self.combines, self.turns, self.sums

    @cached_property
    def held(self) -> tuple[Loop, ...]:
        """Itself and every loop inside, in textual order."""
        inner = (node.held for node in self.body if isinstance(node, Loop))
        return (self, *chain.from_iterable(inner))

    @cached_property
    def names(self) -> frozenset[str]:
        """The names of these."""
        inner = (node.names for node in self.body if isinstance(node, Loop))
        return frozenset((self.name,)).union(*inner)

    @cached_property
    def stages(self) -> frozenset[str]:
        """The stages of all blocks inside."""
        return frozenset[str]().union(*(node.stages for node in self.body))

    def around(self, body: tuple[Node, ...]) -> Loop:
        """The loop around something else."""
        return Loop(
            self.name, self.extent, body, self.kind, self.combines, self.pragmas, self.prefetches,
            self.turns, self.sums,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Block:
    """Instances of a stage. `part`: "whole" (an update that initialises at its first
    contribution), or one of the two after `decompose_reduction`. `store_predicate`: which of the
    instances that hold the same result write it. `shifts`: by loop around it, how many iterations
    later than its own it runs; `lag`: how many later in the order of the loops of `band`, over the
    ends of all but the outermost. `copy`: which, of several blocks for one part, in lowering."""

    stage: str
    part: Literal["whole", "init", "update"]
    bindings: tuple[tuple[str, Expr], ...]
    predicate: tuple[Expr, ...] = ()
    store_predicate: Expr | None = None
    tensorized: Tensorized | None = None
    shifts: tuple[tuple[str, int], ...] = ()
    band: tuple[str, ...] = ()
    lag: int = 0
    copy: str = ""

    @property
    def name(self) -> str:
        """Unique in a state."""
        if self.copy:
            return f"{self.stage}_{self.copy}"
        return f"{self.stage}_init" if self.part == "init" else self.stage

    @property
    def binding(self) -> dict[str, Expr]:
        return dict(self.bindings)

    @property
    def call(self) -> Binding:
        """The call that it runs as, once that is decided."""
        assert self.tensorized is not None, self.name
        assert self.tensorized.binding is not None, self.name
        return self.tensorized.binding

    def calling(self, binding: Binding) -> Block:
        """The same as another call."""
        assert self.tensorized is not None, self.name
        return replace(self, tensorized=replace(self.tensorized, binding=binding))

    @property
    def stages(self) -> frozenset[str]:
        return frozenset((self.stage,))


Node = Loop | Block


@dataclass(frozen=True)
class Site:
    """A block with the loops around it, outermost first, and its place among its siblings at
    every level (one more than loops)."""

    block: Block
    loops: tuple[Loop, ...]
    places: tuple[int, ...]

    @cached_property
    def names(self) -> tuple[str, ...]:
        return tuple(x.name for x in self.loops)

    @cached_property
    def extents(self) -> dict[str, int]:
        return {x.name: x.extent for x in self.loops}

    @cached_property
    def heads(self) -> tuple[tuple[object, ...], ...]:
        return tuple(x.head for x in self.loops)

    def moves(self, access: Access) -> tuple[Addends, ...]:
        """The indices of an access of the block, over the loops around it."""
        known = self._moves
        if access not in known:
            bound = (substitute(i, self.block.binding) for i in access.indices)
            known[access] = tuple(addends(simplify(i, self.extents)) for i in bound)
        return known[access]

    @cached_property
    def _moves(self) -> dict[Access, tuple[Addends, ...]]:
        return {}

    @cached_property
    def delays(self) -> tuple[int, ...]:
        """Of each loop, how many iterations later than its own the block runs, its band apart."""
        shifts = dict(self.block.shifts)
        return tuple(shifts.get(n, 0) for n in self.names)

    @property
    def start(self) -> int | None:
        """The place of its band's outermost loop, which must be around it; None without a band."""
        return self.names.index(self.block.band[0]) if self.block.band else None


Homes = Mapping[str, tuple[str, ...]]
"""Per tensor that stages write: names of the loops around its home, outermost first."""


@dataclass(frozen=True)
class LoopTree:
    """One schedule of one workload. `stages` in an order in which each reads only earlier ones."""

    name: str
    tensors: tuple[Tensor, ...]
    stages: tuple[Stage, ...]
    root: tuple[Node, ...]
    storages: tuple[Storage, ...]
    groups: tuple[tuple[str, tuple[str, ...]], ...] = ()
    gone: tuple[tuple[str, str], ...] = ()

    @cached_property
    def tensor(self) -> dict[str, Tensor]:
        return {t.name: t for t in self.tensors}

    @cached_property
    def stage(self) -> dict[str, Stage]:
        return {s.tensor: s for s in self.stages}

    @cached_property
    def storage(self) -> dict[str, Storage]:
        return {s.tensor: s for s in self.storages}

    @cached_property
    def sites(self) -> tuple[Site, ...]:
        """Every block, in textual order."""
        return tuple(sites(self.root))

    @cached_property
    def site(self) -> dict[str, Site]:
        return {s.block.name: s for s in self.sites}

    @cached_property
    def loop(self) -> dict[str, Loop]:
        """Every loop by name, in textual order."""
        return {x.name: x for x in loops(self.root)}

    @cached_property
    def extents(self) -> dict[str, int]:
        return {n: x.extent for n, x in self.loop.items()}

    @cached_property
    def versions(self) -> dict[str, tuple[str, ...]]:
        """By tensor, itself and those of which it keeps elements."""
        found: dict[str, tuple[str, ...]] = {}
        for stage in self.stages:
            found[stage.tensor] = (stage.tensor, *found.get(stage.over, ()))
        return found

    @cached_property
    def rewritten(self) -> tuple[tuple[str, ...], ...]:
        """The versions of tensors that have several."""
        return tuple(v for v in self.versions.values() if len(v) > 1)

    @cached_property
    def sides(self) -> dict[tuple[str, str], Side]:
        """Instances of blocks by the block's name and a suffix, as far as they were asked for."""
        return {}

    def sites_of(self, stage: str) -> tuple[Site, ...]:
        """A stage's blocks, in textual order."""
        if "sites" in self.__dict__:
            return self._sites_of.get(stage, ())
        return tuple(sites(self.root, stage=stage))

    @cached_property
    def _sites_of(self) -> dict[str, tuple[Site, ...]]:
        return listed((s.block.stage, s) for s in self.sites)

    def block(self, name: str) -> Site | None:
        """A block that is no copy, by its name."""
        stages = (name, name.removesuffix("_init"))
        return next((s for x in stages for s in self.sites_of(x) if s.block.name == name), None)

    def taken(self, name: str) -> bool:
        """Whether a loop or a tensor has a name."""
        return name in self.tensor or any(name in names_of(node) for node in self.root)

    @cached_property
    def users(self) -> dict[str, tuple[Site, ...]]:
        """By tensor, the blocks that write it, or read it or what keeps its elements, in textual
        order."""
        return listed((t, s) for s in self.sites for t in self._touched(s.block))

    def users_of_any(self, tensors: Sequence[str]) -> tuple[Site, ...]:
        """The blocks that use one of several tensors, in textual order."""
        if len(tensors) == 1:
            return self.users[tensors[0]]
        found = {s.block.name: s for t in tensors for s in self.users[t]}
        return tuple(sorted(found.values(), key=lambda s: s.places))

    def _touched(self, block: Block) -> dict[str, None]:
        read = [r.tensor for r in self.stage[block.stage].reads_in(block.part)]
        return dict.fromkeys((block.stage, *(t for r in read for t in self.versions.get(r, (r,)))))

    @cached_property
    def _readers(self) -> dict[str, tuple[Stage, ...]]:
        read = ((s, {r.tensor: None for r in s.reads_in("whole")}) for s in self.stages)
        return listed((tensor, s) for s, tensors in read for tensor in tensors)

    @cached_property
    def takers(self) -> dict[str, tuple[str, ...]]:
        """By tensor, the other stages that read it or keep its elements."""
        return listed(
            (tensor, s.tensor)
            for s in self.stages
            for tensor in dict.fromkeys(
                v
                for name in (s.tensor, *(r.tensor for r in s.reads_in("whole")))
                for v in self.versions.get(name, (name,))
            )
            if tensor != s.tensor
        )

    def readers(self, tensor: str) -> tuple[Stage, ...]:
        """The stages that read a tensor, in order."""
        return self._readers.get(tensor, ())

    def place(self, tensor: str) -> Storage:
        """The storage that a tensor has, or that of the tensor in whose place it is."""
        found = self.storage.get(tensor, Storage(tensor))
        while found.alias in self.storage:
            found = self.storage[found.alias]
        return found

    def memory(self, tensor: str) -> str:
        """The memory that a tensor is kept in; "" for the caller's array."""
        return self.storage[tensor].memory if tensor in self.storage else ""

    def with_root(self, root: tuple[Node, ...], *gone: tuple[str, str]) -> LoopTree:
        """The same with another tree, and more loops that are gone."""
        made = replace(self, root=root, gone=(*self.gone, *gone) if gone else self.gone)
        return made._keeping(self, "tensor", "stage", "storage", "versions", "takers", "_readers")

    def _keeping(self, before: LoopTree, *names: str) -> LoopTree:
        """The same with what is known of the state before, where the edit has no part in it."""
        self.__dict__.update({n: v for n, v in before.__dict__.items() if n in names})
        return self

    def with_calls(self, calls: Mapping[str, Binding]) -> LoopTree:
        """The same with blocks, by name, as other calls."""

        def called(block: Block) -> Block:
            return block.calling(calls[block.name]) if block.name in calls else block

        return self.with_root(map_blocks(self.root, called))

    def with_storage(self, storage: Storage) -> LoopTree:
        rest = tuple(s for s in self.storages if s.tensor != storage.tensor)
        known = "tensor", "stage", "versions", "takers", "_readers", "sites", "_sites_of", "users"
        return replace(self, storages=(*rest, storage))._keeping(self, *known)

    def with_tensor(self, tensor: Tensor, storage: Storage) -> LoopTree:
        """The same with one more tensor."""
        tensors, storages = (*self.tensors, tensor), (*self.storages, storage)
        return replace(self, tensors=tensors, storages=storages)

    def with_stages(self, tensor: str, *stages: Stage) -> LoopTree:
        """The same with stages in the place of the one of a tensor."""
        found = (x for s in self.stages for x in (stages if s.tensor == tensor else (s,)))
        return replace(self, stages=tuple(found))


def listed(pairs: Iterable[tuple[str, T]]) -> dict[str, tuple[T, ...]]:
    """By name, all that is paired with it."""
    found: dict[str, list[T]] = {}
    for name, value in pairs:
        found.setdefault(name, []).append(value)
    return {name: tuple(values) for name, values in found.items()}


def loops(nodes: tuple[Node, ...]) -> Iterator[Loop]:
    """Every loop under the nodes, in textual order."""
    return chain.from_iterable(node.held for node in nodes if isinstance(node, Loop))


def names_of(node: Node) -> frozenset[str]:
    """The names of a node's loops."""
    return node.names if isinstance(node, Loop) else frozenset()


def blocks(nodes: tuple[Node, ...]) -> Iterator[Block]:
    """Every block under the nodes, in textual order."""
    for node in nodes:
        if isinstance(node, Block):
            yield node
        else:
            yield from blocks(node.body)


def alone(node: Node) -> Block | None:
    """The only block under a node; None where there are several."""
    while isinstance(node, Loop):
        if len(node.body) != 1:
            return None
        (node,) = node.body
    return node


def sites(
    nodes: tuple[Node, ...],
    around: tuple[Loop, ...] = (),
    places: tuple[int, ...] = (),
    stage: str = "",
) -> Iterator[Site]:
    """Every block under the nodes with its path, or those of one stage."""
    found: list[Site] = []
    _add_sites(nodes, around, places, stage, found)
    return iter(found)


def _add_sites(
    nodes: tuple[Node, ...],
    around: tuple[Loop, ...],
    places: tuple[int, ...],
    stage: str,
    found: list[Site],
) -> None:
    for place, node in enumerate(nodes):
        if stage and stage not in node.stages:
            continue
        if isinstance(node, Block):
            found.append(Site(node, around, (*places, place)))
        else:
            _add_sites(node.body, (*around, node), (*places, place), stage, found)


def map_loops(
    nodes: tuple[Node, ...], edit: Callable[[Loop], tuple[Node, ...]], name: str = ""
) -> tuple[Node, ...]:
    """Every loop replaced by what `edit` makes of it, inner loops first; or the one of a name."""
    result: list[Node] = []
    for node in nodes:
        if isinstance(node, Block) or (name and name not in node.names):
            result.append(node)
        elif name and name != node.name:
            result.append(_holding(node, map_loops(node.body, edit, name)))
        else:
            inner = node.body if name else map_loops(node.body, edit)
            result += edit(_holding(node, inner))
    return tuple(result)


def map_blocks(
    nodes: tuple[Node, ...], edit: Callable[[Block], Node | None], stage: str = ""
) -> tuple[Node, ...]:
    """Every block, or those of one stage, replaced by what `edit` makes of it (None: dropped);
    loops left empty go."""
    result: list[Node] = []
    for node in nodes:
        if stage and stage not in node.stages:
            result.append(node)
        elif isinstance(node, Block):
            changed = edit(node)
            if changed is not None:
                result.append(changed)
        elif body := map_blocks(node.body, edit, stage):
            result.append(_holding(node, body))
    return tuple(result)


def _holding(loop: Loop, body: tuple[Node, ...]) -> Loop:
    """A loop around nodes: itself where these are its own."""
    own = len(body) == len(loop.body) and all(map(is_, body, loop.body))
    return loop if own else loop.around(body)


def covers(indices: Sequence[Expr], extents: Mapping[str, int], shape: Sequence[int]) -> bool:
    """Whether indices, over iterators of these extents, take every element of an array once."""
    plain = [i.name for i in indices if isinstance(i, Name)]
    return len(set(plain)) == len(plain) and all(
        extents[i.name] == e if isinstance(i, Name) else (i, e) == (Const(0), 1)
        for i, e in zip(indices, shape, strict=True)
    )


def first_of(loop: str) -> Expr:
    """Condition: a loop is in its first iteration."""
    return Binary("==", Name(loop), Const(0))
