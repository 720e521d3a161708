"""What units run of a tree, and what the processor beside them runs, in turn.

A nest at the root is the processor's where none of its blocks has a call. What only rearranges a
tensor for calls is no work of either: the host lays that tensor out so. Between the parts, tensors
lie whole in their own order, where the host has them. What constants alone decide is the first
part: it runs where the host packs them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from math import prod

from hwgen.errors import HwgenError
from hwgen.polyhedral.constant_part import of_constants
from hwgen.polyhedral.match.covering import to_call
from hwgen.polyhedral.scop import views_of
from hwgen.polyhedral.tree.aliases import places_of
from hwgen.polyhedral.tree.loop_tree import Homes, LoopTree, Node, Storage, blocks, covers
from hwgen.polyhedral.tree.padding import is_by_place
from hwgen.polyhedral.tree.versions import of_stages
from hwgen.polyhedral.tree.weighing import weighed_out
from hwgen.spec.expression import DTYPES, Access, tensors_of, walk
from hwgen.spec.hardware import HardwareSpec
from hwgen.spec.workload import Role, Statement, Tensor, Workload


@dataclass(frozen=True)
class Region:
    """Nests that follow each other. `workload`: their statements, what they read from other parts
    as inputs, and what others read of theirs as outputs; so does `state`. `once`: as of `Code`."""

    workload: Workload
    state: LoopTree
    homes: Homes
    coded: bool
    once: bool = False


def regions(
    workload: Workload, state: LoopTree, homes: Homes, hardware: HardwareSpec
) -> tuple[Region, ...]:
    """The parts of a state in the order in which they run; one where units run all of it, or there
    are none.

    Raises:
        HwgenError: H512 a tensor on the chip that several of them touch.
    """
    if hardware.processor is None:
        return (Region(workload, state, homes, coded=False),)
    if not hardware.units:
        return (Region(workload, state, homes, coded=True),)
    workload = _as_scheduled(workload, state)
    split = _Split.of(_as_scheduled(of_stages(workload), state), state, hardware)
    if split.coded:
        split.check(hardware)
        found = split.regions(homes)
    else:
        found = (Region(workload, state, homes, coded=False),)
    return tuple(r if r.coded else replace(r, state=_off_chip(r.state, hardware)) for r in found)


def _as_scheduled(workload: Workload, state: LoopTree) -> Workload:
    """The workload with the values that its stages have where scheduling said them otherwise, and
    with what it chose apart by place: that may be what moves an input's elements."""

    def made(statement: Statement) -> Statement:
        stage = state.stage.get(statement.target.tensor)
        if stage is None or not tensors_of(stage.value) <= known:
            return statement
        mine = statement.loops, statement.target, statement.op
        same = (stage.iterators, stage.target, stage.op) == mine
        return replace(statement, value=stage.value) if same else statement

    apart = [
        s
        for s in state.stages
        if s.tensor not in workload.tensor and s.op == "=" and not s.over and is_by_place(s.value)
    ]
    known = {*workload.tensor, *(s.tensor for s in apart)}
    like = workload.statements[0]
    first = [
        replace(like, name=s.tensor, loops=s.iterators, target=s.target, op="=", value=s.value)
        for s in apart
    ]
    where = workload.location
    tensors = [
        Tensor(t.name, t.dtype, t.shape, t.role, False, where)
        for t in state.tensors
        if t.name in {s.tensor for s in apart}
    ]
    return replace(
        workload,
        tensors=(*workload.tensors, *tensors),
        statements=(*first, *map(made, workload.statements)),
    )


def _on_chip(hardware: HardwareSpec) -> frozenset[str]:
    """The memories that calls address and a processor's code does not."""
    return frozenset(m.name for m in hardware.of_kind("scratchpad"))


def _off_chip(state: LoopTree, hardware: HardwareSpec) -> LoopTree:
    """The same, the processor's own memories standing for what the host has."""
    workspaces = {m.name for m in hardware.of_kind("workspace")}
    storages = tuple(
        s if s.memory not in workspaces else replace(s, memory="") for s in state.storages
    )
    return replace(state, storages=storages)


@dataclass(frozen=True, slots=True)
class _Touched:
    """Tensors that a nest reads and writes."""

    node: Node
    reads: frozenset[str]
    writes: frozenset[str]


@dataclass(frozen=True)
class _Split:
    """The nests at the root that units run, that the processor runs, and those that only say how
    the host is to lay tensors out; and their order, those of one kind together where they may.
    `once`: the tensors that constants alone decide."""

    workload: Workload
    state: LoopTree
    coded: frozenset[str]
    once: frozenset[str]
    views: Mapping[str, _Touched]
    order: Sequence[_Touched]

    @classmethod
    def of(cls, workload: Workload, state: LoopTree, hardware: HardwareSpec) -> _Split:
        nests = [_touched(state, node) for node in state.root]
        bare = [n for n in nests if all(b.tensorized is None for b in blocks((n.node,)))]
        called = [n for n in nests if n not in bare]
        views = _views(workload, bare, called)
        torn = {t for n in called for t in n.writes}
        coded = {t for n in bare for t in n.writes if t not in views and t not in torn}
        for nest in reversed(bare):  # The processor computes what it reads itself.
            if any(not nest.writes.isdisjoint(n.reads) for n in bare if n.writes <= coded):
                coded |= nest.writes - torn
        kept = [
            replace(n, reads=n.reads.union(*(v.reads for t, v in views.items() if t in n.reads)))
            for n in nests
            if n.writes <= coded or not n.writes <= {*views}
        ]
        on_chip = {n.tensor for n in state.storages if n.memory in _on_chip(hardware)}
        once = _of_constants(workload, state, kept, coded)
        first = [n for n in kept if n.writes <= once]
        rest = [n for n in kept if not n.writes <= once]
        order = [*first, *_ordered(rest, frozenset(coded), on_chip)]
        return cls(workload, state, frozenset(coded), once, views, order)

    def check(self, hardware: HardwareSpec) -> None:
        """Raise where a tensor that crosses from one part to another cannot."""
        place = places_of(self.state)
        where: dict[str, set[int]] = {}
        split = self._parts()
        coded = {n for n, part in enumerate(split) if part[0].writes <= self.coded}
        for number, part in enumerate(split):
            for name in (t for n in part for t in n.reads | n.writes):
                where.setdefault(place.get(name, name), set()).add(number)
        for name, parts in where.items():
            memory = self.state.memory(name)
            inside = memory in _on_chip(hardware)
            shared = [t for t, p in place.items() if p == name and t != name]
            if (len(parts) > 1 and shared) or (inside and not parts.isdisjoint(coded)):
                raise HwgenError(
                    "H512",
                    f"not all who touch {name} see it"
                    + (f" in {memory}" if inside else ", which others take the place of"),
                    field=f"buffers.{name}",
                    allowed="tensors in off-chip memory, each in a place of its own",
                    told=partial(self._told, name, shared if not inside else (), hardware),
                )

    def _told(self, name: str, shared: Sequence[str], hardware: HardwareSpec) -> tuple[str, str]:
        """Why not all who touch a tensor see it, and the nearest repair."""
        otherwise = f"keep {name} off the chip"
        if shared:
            told = f"{', '.join(shared)} in its place, on the other side"
            return told, f"{otherwise}, or tensorize all that touches it"
        nodes = tuple(n.node for n in self.order if n.writes <= self.coded)
        bare = {
            b.name
            for b in blocks(nodes)
            if name in (b.stage, *(r.tensor for r in self.state.stage[b.stage].reads_in(b.part)))
        }
        state = _off_chip(self.state, hardware)
        sites = [s for s in state.sites if s.block.name in bare]
        call = to_call(state, sites[0], hardware, named=True)
        told = ", ".join(s.block.name for s in sites)
        return (
            f"no call computes {told}, so the processor does, which does not see "
            f"the memory {self.state.memory(name)}",
            f"{call}, or {otherwise}",
        )

    def _parts(self) -> list[list[_Touched]]:
        kinds = groupby(self.order, lambda n: (n.writes <= self.once, n.writes <= self.coded))
        return [list(g) for _, g in kinds]

    def regions(self, homes: Homes) -> Iterable[Region]:
        parts = self._parts()
        for number, part in enumerate(parts):
            coded = part[0].writes <= self.coded
            reads = {t for n in part for t in n.reads}
            views = [] if coded else [v for t, v in self.views.items() if t in reads]
            later = {t for p in parts[number + 1 :] for n in p for t in n.reads}
            later |= {s for t, v in self.views.items() if t in later for s in v.reads}
            yield self._region(part, views, later, homes, coded=coded)

    def _region(
        self,
        part: Sequence[_Touched],
        views: Sequence[_Touched],
        later: set[str],
        homes: Homes,
        *,
        coded: bool,
    ) -> Region:
        state = self.state
        writes = {t for n in (*part, *views) for t in n.writes}
        reads = {t for n in (*part, *views) for t in n.reads}
        roles: dict[str, Role] = {}
        for tensor in state.tensors:
            leaves = tensor.name in later or tensor.role == "output"
            if tensor.name in writes and not any(tensor.name in v.writes for v in views):
                roles[tensor.name] = "output" if leaves else "intermediate"
            elif tensor.name in reads and tensor.name not in writes:
                roles[tensor.name] = "input"
        tensors = tuple(
            replace(t, role=roles.get(t.name, t.role))
            for t in state.tensors
            if t.name in reads | writes
        )
        crossing = {n for n, role in roles.items() if role != "intermediate"}
        made = replace(
            state,
            tensors=tensors,
            stages=tuple(s for s in state.stages if s.tensor in writes),
            root=tuple(n.node for n in (*views, *part)),
            storages=tuple(
                Storage(s.tensor) if s.tensor in crossing and not self._stays(s) else s
                for s in state.storages
                if s.tensor in reads | writes
            ),
        )
        statements = tuple(s for s in self.workload.statements if s.target.tensor in writes)
        inner = (n for s in statements for n in walk(s.value) if isinstance(n, Access))
        known = {a.tensor for a in inner}  # Those inlined too.
        workload = replace(
            self.workload,
            tensors=tuple(
                replace(t, role=roles.get(t.name, t.role))
                for t in (*self.workload.tensors, *self._added(crossing))
                if t.name in reads | writes | known
            ),
            statements=statements,
        )
        kept = {t: home for t, home in homes.items() if t in writes and t not in crossing}
        once = coded and part[0].writes <= self.once
        return Region(workload, weighed_out(made) if coded else made, kept, coded=coded, once=once)

    def _added(self, crossing: set[str]) -> Iterable[Tensor]:
        """What scheduling added that crosses from one part to another."""
        for tensor in self.state.tensors:
            if tensor.name in crossing and tensor.name not in self.workload.tensor:
                where = self.workload.location
                made = Tensor(tensor.name, tensor.dtype, tensor.shape, tensor.role, False, where)
                yield replace(made, supplied=tensor.supplied)

    def _stays(self, storage: Storage) -> bool:
        """Whether an array of the caller's is where the schedule says."""
        return self.state.tensor[storage.tensor].role != "intermediate"


def _touched(state: LoopTree, node: Node) -> _Touched:
    found = list(blocks((node,)))
    reads = {r.tensor for b in found for r in state.stage[b.stage].reads_in(b.part)}
    writes = {b.stage for b in found}
    return _Touched(node, frozenset(reads - writes), frozenset(writes))


def _views(
    workload: Workload, bare: Sequence[_Touched], called: Sequence[_Touched]
) -> dict[str, _Touched]:
    """Nests without calls that only rearrange what no call writes, for calls."""
    computed = {t for n in called for t in n.writes}
    wanted = {t for n in called for t in n.reads}
    outside = tuple(
        replace(t, role="input") if t.name not in computed and t.role == "intermediate" else t
        for t in workload.tensors
    )
    found: dict[str, _Touched] = {}
    for statement in workload.statements:
        stage = statement.target.tensor
        nest = next((n for n in bare if n.writes == frozenset((stage,))), None)
        if nest is None or stage not in wanted or not nest.reads.isdisjoint(computed):
            continue
        own = tuple(replace(t, role="intermediate") if t.name == stage else t for t in outside)
        if stage in views_of(replace(workload, tensors=own, statements=(statement,))):
            found[stage] = nest
    return found


def _of_constants(
    workload: Workload, state: LoopTree, nests: Sequence[_Touched], coded: Collection[str]
) -> frozenset[str]:
    """The processor's tensors that constants alone decide, and that are written whole, as what a
    kernel packs is; it writes its outputs itself."""

    def room(tensors: Collection[str]) -> int:
        made = [state.tensor[t] for t in tensors]
        return sum(DTYPES[t.dtype] * prod(t.shape) for t in made)

    constant = {t.name for t in workload.tensors if t.constant}
    stages = [state.stage[t] for t in coded if state.tensor[t].role != "output"]
    able = {
        s.tensor
        for s in stages
        if covers(s.target.indices, dict(s.iterators), state.tensor[s.target.tensor].shape)
    }
    return of_constants([(n.reads, n.writes) for n in nests], constant, able, room)


def _ordered(
    nests: Sequence[_Touched], coded: frozenset[str], kept: Collection[str]
) -> list[_Touched]:
    """The nests in an order that goes on with one side as long as one of its nests is ready. Those
    that touch one tensor on the chip stay together."""
    left = _groups(nests, kept)
    result: list[_Touched] = []
    while left:
        ready = [g for k, g in enumerate(left) if all(_apart(o, g) for o in left[:k])]
        side = (result or ready[0])[-1].writes <= coded
        chosen = next((g for g in ready if (g[0].writes <= coded) == side), ready[0])
        left.remove(chosen)
        result += chosen
    return result


def _groups(nests: Sequence[_Touched], kept: Collection[str]) -> list[list[_Touched]]:
    """The nests by what they keep on the chip, each group where its last one stands; those that
    something else must come between are apart."""
    groups: list[list[_Touched]] = []
    for nest in nests:
        mine = (nest.reads | nest.writes).intersection(kept)
        own = [nest]
        for n, group in reversed([*enumerate(groups)]):
            shares = any(not mine.isdisjoint(o.reads | o.writes) for o in group)
            if shares and all(_apart(group, later) for later in groups[n + 1 :]):
                own = [*group, *own]
                mine |= {t for o in group for t in (o.reads | o.writes).intersection(kept)}
                del groups[n]
        groups.append(own)
    return groups


def _apart(before: Sequence[_Touched], after: Sequence[_Touched]) -> bool:
    """Whether no nest of a group touches what one of an earlier one writes, or writes what it
    reads."""
    return all(
        o.writes.isdisjoint(n.reads | n.writes) and o.reads.isdisjoint(n.writes)
        for o in before
        for n in after
    )
