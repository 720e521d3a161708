"""rescale: an extremum runs on from block to block, and sums of what it is the reference point of
are multiplied by what it changes (online softmax).

    top[i] max= s[i, j]                        for b: top'[i] = top[i]; top'[i] max= s[i, j of b]
    e[i, j] = exp(s[i, j] - top[i])     ->         fade[i] = exp(top[i] - top'[i])
    z[i] += e[i, j]                                e[i, j] = exp(s[i, j] - top'[i])
    y[i, d] += e[i, j] / z[i] * v[j, d]            z'[i] = z[i] * fade[i]; z'[i] += e[i, j]
                                                   y'[i, d] = y[i, d] * fade[i]; y'[i, d] += ...
                                               y[i, d] = y'[i, d] / z'[i]

What was before a block and what is after it are elements of one tensor, whose first dimension
counts blocks and is stored in turn: ordinary stages, which legality orders as any others.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile
from math import copysign
from typing import Literal

from hwgen.polyhedral.tree.build import unique
from hwgen.polyhedral.tree.edit import fresh, main_site, refuse, stages_of
from hwgen.polyhedral.tree.faded import Faded, FadedSum, faded
from hwgen.polyhedral.tree.loop_tree import (
    Block,
    Loop,
    LoopTree,
    Node,
    Site,
    Stage,
    Storage,
    Tensor,
    alone,
)
from hwgen.polyhedral.tree.placement import replace_reads
from hwgen.polyhedral.tree.terms import apply
from hwgen.spec.expression import (
    Access,
    Binary,
    Call,
    Cast,
    Const,
    Expr,
    Name,
    add,
    map_accesses,
    multiply,
    names,
    substitute,
)
from hwgen.spec.typecheck import LARGEST, dtype_of, neutral


def rescale(state: LoopTree, tensor: str, size: int) -> tuple[LoopTree, str]:
    """Blocks of `size` elements that an extremum, and the sums whose terms it is the reference
    point of, take one after the other; the state, and the loop over blocks.

    Raises:
        HwgenError: H413 where that is not exact up to rounding, H414.
    """
    found = faded(state, tensor)
    site = main_site(state, tensor)
    extent = dict(found.extremum.iterators)[found.loop]
    if not 1 <= size < extent:
        raise refuse(
            f"{found.loop} has no blocks of {size}",
            str(size),
            f"1..{extent - 1}",
            "smaller blocks, or none",
        )
    made = _Rescaling(state, found, size, extent, _bound_loop(state, site, found.loop))
    return made.rewritten(), made.blocks


def _bound_loop(state: LoopTree, site: Site, iterator: str) -> str:
    """The loop that is an iterator of a block and nothing else.

    Raises:
        HwgenError: H413.
    """
    block = site.block
    value = block.binding.get(iterator)
    name = value.name if isinstance(value, Name) else ""
    others = [e for i, e in block.bindings if i != iterator] + list(block.predicate)
    mixed = any(name in names(e) for e in others)
    loop = state.loop.get(name)
    plain = block.part == "whole" and block.tensorized is None and not block.shifts
    if loop is None or loop.kind != "serial" or mixed or not plain or block.band:
        raise refuse(
            f"{block.stage} has no plain loop over {iterator}",
            f"{iterator} = {value}, {block.part} block",
            "stages whose loops over it are as the workload has them",
            "rescale first, then split, tensorize, and begin sums elsewhere",
        )
    return name


@dataclass
class _Rescaling:
    """The edit. `extent`: of the extremum's loop, whose tree loop is `loop`."""

    state: LoopTree
    found: Faded
    size: int
    extent: int
    loop: str
    taken: set[str] = field(default_factory=set[str])
    tensors: list[Tensor] = field(default_factory=list[Tensor])
    storages: list[Storage] = field(default_factory=list[Storage])

    def __post_init__(self) -> None:
        self.blocks = fresh(f"{self.loop}_o", self.state)
        self.count = -(-self.extent // self.size)
        found = self.found
        self.source = self._source()
        stages = [found.extremum, found.term, *found.between, *(s.stage for s in found.sums)]
        stages += [] if self.source is None else [self.source]
        self.old = {s.tensor: s for s in stages}
        self.sites = {n: main_site(self.state, n) for n in self.old}
        self._check_storages()
        self.depth = self._depth()
        inner = {x.name for s in self.sites.values() for x in s.loops[self.depth :]}
        self.taken = {*self.state.tensor, *self.state.loop, self.blocks} - inner
        self.running = {
            n: unique(f"{n}_run", self.state.tensor)
            for n in (found.extremum.tensor, *(s.stage.tensor for s in found.sums))
        }

    def rewritten(self) -> LoopTree:
        found, top = self.found, self.found.extremum
        first = self._first(top)
        run = self._extremum()
        fade, term = self._fade(), self._term()
        stages, firsts = [run, fade, term], [(first, top)]
        inside = [*self._parts(run, top), self._nest(fade, top), self._nest(term, found.term)]
        if self.source is not None:
            source = self._of_blocks(self.source, self._along(self.source))
            stages.insert(0, source)
            inside.insert(0, self._nest(source, self.source))
        finals: list[tuple[Stage, Stage]] = []
        for one in found.sums:
            firsts.append((self._first(one.stage), one.stage))
            run = self._sum(one, fade)
            stages.append(run)
            inside += self._parts(run, one.stage)
            final = self._final(one)
            finals += [] if final is None else [(final, one.stage)]
        nodes = [self._nest(s, old) for s, old in firsts]
        nodes.append(Loop(self.blocks, self.count, tuple(inside)))
        nodes += [self._nest(s, old) for s, old in finals]
        kept = {s.tensor for s, _ in finals}
        every = [*(s for s, _ in firsts), *stages, *(s for s, _ in finals)]
        root = self._replaced(self.state.root, self.depth, tuple(nodes))
        state = self._with(every, kept)
        return replace(state, root=root)

    # Stages

    def _at(self, value: Expr, loop: str, inner: str) -> Expr:
        """A value over a loop's elements, over the blocks and one block's."""
        return substitute(value, {loop: self._element(inner)})

    def _element(self, inner: str) -> Expr:
        return add(multiply(Name(self.blocks), Const(self.size)), Name(inner))

    def _guarded(self, value: Expr, inner: str, other: Const) -> Expr:
        """A value, and another past the end of the last block."""
        if not self.extent % self.size:
            return value
        inside = Binary("<", self._element(inner), Const(self.extent))
        return Call("select", (inside, value, other))

    def _run(self, tensor: str, indices: Sequence[Expr], later: int) -> Access:
        """A running element before a block, or after it."""
        return Access(self.running[tensor], (add(Name(self.blocks), Const(later)), *indices))

    def _made(
        self, like: str, name: str, shape: Sequence[int], layout: tuple[Expr, ...] = ()
    ) -> None:
        dtype = self.state.tensor[like].dtype
        memory = self.state.storage[like].memory
        self.tensors.append(Tensor(name, dtype, tuple(shape), "intermediate"))
        self.storages.append(Storage(name, memory, layout))

    def _first(self, stage: Stage) -> Stage:
        """What a running tensor holds before the first block."""
        tensor = self.state.tensor[stage.tensor]
        name = unique(f"{self.running[stage.tensor]}_0", self.state.tensor)
        self._made(stage.tensor, name, (self.count + 1, *tensor.shape))
        self.storages[-1] = replace(self.storages[-1], alias=self.running[stage.tensor])
        target = Access(name, (Const(0), *stage.target.indices))
        start = neutral(stage.op, tensor.dtype)
        if stage is self.found.extremum and self.found.infinite:
            # A block of infinite elements alone needs a finite reference point.
            start = Const(copysign(LARGEST[tensor.dtype], start.value))
        return Stage(name, stage.spatial, target, "=", start)

    def _running(self, stage: Stage, value: Expr, seed: Expr, loop: str, slots: int) -> Stage:
        """A stage that takes a tensor from before each block to after it."""
        shape = self.state.tensor[stage.tensor].shape
        name = self.running[stage.tensor]
        first = unique(f"{name}_0", self.state.tensor)
        turn: Expr = Binary("%", Name("d0"), Const(slots))
        layout = (turn, *(Name(f"d{n + 1}") for n in range(len(shape))))
        self._made(stage.tensor, name, (self.count + 1, *shape), layout)
        return Stage(
            name,
            ((self.blocks, self.count), *self._iterators(stage, loop)),
            self._run(stage.tensor, stage.target.indices, 1),
            stage.op,
            self._guarded(value, self._inner(stage), neutral(stage.op, self.tensors[-1].dtype)),
            seed=seed,
            over=first,
        )

    def _iterators(self, stage: Stage, loop: str) -> tuple[tuple[str, int], ...]:
        inner = self._inner(stage)
        return tuple((inner, self.size) if n == loop else (n, e) for n, e in stage.iterators)

    def _inner(self, stage: Stage) -> str:
        """The iterator over the elements of a block."""
        return f"{stage.tensor}_{self.blocks}_i"

    def _extremum(self) -> Stage:
        top, loop = self.found.extremum, self.found.loop
        before = self._run(top.tensor, top.target.indices, 0)
        value = self._at(self._reading(top.value, self._inner(top)), loop, self._inner(top))
        # What was before is needed for the factor when what is after is known.
        return self._running(top, value, before, loop, 2)

    def _source(self) -> Stage | None:
        """The stage of the elements, where nothing else reads them and they can come in blocks."""
        read = self.found.extremum.value
        assert isinstance(read, Access)
        stage = self.state.stage.get(read.tensor)
        if stage is None or stage.ordered or stage.seed is not None or stage.over:
            return None
        readers = {s.tensor for s in self.state.readers(read.tensor)}
        kept = self.state.tensor[read.tensor].role == "output"
        if kept or readers != {self.found.extremum.tensor, self.found.term.tensor}:
            return None
        plain = [i.name for i in stage.target.indices if isinstance(i, Name)]
        whole = len(set(plain)) == len(stage.target.indices)
        moving = [Name(self.found.loop) == i for i in read.indices]
        return stage if whole and sum(moving) == 1 else None

    def _along(self, stage: Stage) -> int:
        """The dimension of a tensor that moves with the loop."""
        if stage is self.found.term:
            return self.found.along
        read = self.found.extremum.value
        assert isinstance(read, Access)
        return read.indices.index(Name(self.found.loop))

    def _reading(self, value: Expr, inner: str) -> Expr:
        """A value that reads the elements by blocks."""
        source = self.source
        if source is None:
            return value
        at = self._along(source)

        def of_block(access: Access) -> Expr:
            indices = (Name(inner) if n == at else i for n, i in enumerate(access.indices))
            return Access(access.tensor, (Name(self.blocks), *indices))

        return replace_reads(value, source.tensor, of_block)

    def _fade(self) -> Stage:
        top = self.found.extremum
        name = unique(f"{self.found.term.tensor}_fade", self.state.tensor)
        self._made(self.found.term.tensor, name, (self.count, *self.state.tensor[top.tensor].shape))
        assert isinstance(top.value, Access)
        read, point = top.value, Access(top.tensor, top.target.indices)
        before, after = (self._run(top.tensor, top.target.indices, n) for n in (0, 1))

        def other(access: Access) -> Expr:
            return before if access == read else after if access == point else access

        value = map_accesses(self.found.fade, other)
        target = Access(name, (Name(self.blocks), *top.target.indices))
        return Stage(name, ((self.blocks, self.count), *top.spatial), target, "=", value)

    def _term(self) -> Stage:
        """The terms of a block."""
        term = self.found.term

        def later(access: Access) -> Expr:
            return self._run(access.tensor, access.indices, 1)

        value = replace_reads(term.value, self.found.extremum.tensor, later)
        value = self._reading(value, self._inner(term))
        return self._of_blocks(replace(term, value=value), self.found.along)

    def _of_blocks(self, stage: Stage, at: int) -> Stage:
        """A stage that sets a tensor's elements by blocks along a dimension."""
        loop, inner = str(stage.target.indices[at]), self._inner(stage)
        shape = list(self.state.tensor[stage.tensor].shape)
        shape[at] = self.size
        self._made(stage.tensor, stage.tensor, (self.count, *shape))
        value = self._at(stage.value, loop, inner)
        if stage is self.source or self.source is None:  # Else there are elements past the end.
            value = self._guarded(value, inner, neutral(stage.op, self.tensors[-1].dtype))
        indices = (Name(inner) if n == at else i for n, i in enumerate(stage.target.indices))
        target = Access(stage.tensor, (Name(self.blocks), *indices))
        iterators = ((self.blocks, self.count), *self._iterators(stage, loop))
        return replace(stage, iterators=iterators, target=target, value=value)

    def _sum(self, one: FadedSum, fade: Stage) -> Stage:
        stage, inner = one.stage, self._inner(one.stage)
        term, at = self.found.term.tensor, self.found.along

        def of_block(access: Access) -> Expr:
            indices = (Name(inner) if n == at else i for n, i in enumerate(access.indices))
            return Access(term, (Name(self.blocks), *indices))

        value = self._at(replace_reads(one.value, term, of_block), one.loop, inner)
        before = self._run(stage.tensor, stage.target.indices, 0)
        factor: Expr = Access(fade.tensor, (Name(self.blocks), *one.at))
        return self._running(stage, value, Binary("*", before, factor), one.loop, 1)

    def _final(self, one: FadedSum) -> Stage | None:
        """What is read in a sum's place after the last block; None where the running one serves."""
        stage = one.stage
        dtype = self.state.tensor[stage.tensor].dtype
        if not one.factors and self.state.tensor[stage.tensor].role != "output":
            return None
        value: Expr = self._last(stage.tensor, stage.target.indices)
        for op, by in one.factors:
            factor = self._with_last(by)
            if self._dtype(factor) != dtype:
                factor = Cast(dtype, factor)
            value = Binary("/" if op == "/" else "*", value, factor)
        return replace(stage, iterators=stage.spatial, op="=", value=value)

    def _dtype(self, value: Expr) -> str:
        known = {t.name: t.dtype for t in (*self.state.tensors, *self.tensors)}
        return dtype_of(value, lambda n: known[n.tensor] if isinstance(n, Access) else "int32")

    def _last(self, tensor: str, indices: Sequence[Expr]) -> Access:
        return Access(self.running[tensor], (Const(self.count), *indices))

    def _with_last(self, value: Expr, kept: Collection[str] = ()) -> Expr:
        """A value of sums as they are after the last block, but of those that are `kept`."""

        def last(access: Access) -> Expr:
            if access.tensor not in self.running or access.tensor in kept:
                return access
            return self._last(access.tensor, access.indices)

        return map_accesses(value, last)

    # The tree

    def _check_storages(self) -> None:
        for name in self.old:
            storage = self.state.storage[name]
            role = self.state.tensor[name].role
            plain = Storage(name, storage.memory if role == "intermediate" else "")
            if storage != plain or any(s.alias == name for s in self.state.storages):
                raise refuse(
                    f"{name} has a place of its own",
                    f"{storage}",
                    "tensors whose storage is as the workload has it, but for its memory",
                    "rescale first, then lay out and alias",
                )
        for site in self.sites.values():
            bound = site.block.binding
            stage = self.state.stage[site.block.stage]
            moving = [n for n in self._loops_of(stage) if n in bound]
            for iterator in moving:
                _bound_loop(self.state, site, iterator)

    def _loops_of(self, stage: Stage) -> list[str]:
        """The iterators of a stage that come in blocks."""
        found = self.found
        if stage is found.extremum:
            return [found.loop]
        if stage in (found.term, self.source):
            return [str(stage.target.indices[self._along(stage)])]
        return [s.loop for s in found.sums if s.stage is stage]

    def _depth(self) -> int:
        """How many loops all of the stages share; each has a nest of its own inside them."""
        every = list(self.sites.values())
        chains = zip(*(s.loops for s in every), strict=False)
        depth = sum(1 for _ in takewhile(lambda xs: len({x.name for x in xs}) == 1, chains))
        body = self._body(self.state.root, depth)
        for name, site in self.sites.items():
            node = body[site.places[depth]]
            moved = {str(site.block.binding[i]) for i in self._loops_of(self.old[name])}
            shared = {x.name for x in site.loops[:depth]}
            if alone(node) is None or moved & shared:
                raise refuse(
                    f"{name} has no nest of its own",
                    f"it shares {', '.join(sorted(moved & shared)) or 'loops'}",
                    "stages side by side, at the root or at one loop of the result",
                    "rescale before their loops are merged, or compute_at one loop for all",
                )
        last = max(s.places[depth] for s in every)
        for node in body[:last]:
            for name in stages_of(node):
                late = {r.tensor for r in self.state.stage[name].reads} & set(self.old)
                if name not in self.old and late:
                    raise refuse(
                        f"{name} reads {sorted(late)[0]} before the last sum is begun",
                        str(self.state.stage[name]),
                        "stages that come after all that is rescaled",
                        f"move it behind them, or write {name} later in the workload",
                    )
        return depth

    def _body(self, nodes: tuple[Node, ...], depth: int) -> tuple[Node, ...]:
        for place in next(iter(self.sites.values())).places[:depth]:
            node = nodes[place]
            assert isinstance(node, Loop)
            nodes = node.body
        return nodes

    def _replaced(
        self, nodes: tuple[Node, ...], depth: int, made: tuple[Node, ...]
    ) -> tuple[Node, ...]:
        """The tree with new nests where the last of the old ones was."""
        site = next(iter(self.sites.values()))
        at = self.depth - depth
        if depth:
            place = site.places[at]
            node = nodes[place]
            assert isinstance(node, Loop)
            inner = replace(node, body=self._replaced(node.body, depth - 1, made))
            return (*nodes[:place], inner, *nodes[place + 1 :])
        gone = {s.places[at] for s in self.sites.values()}
        result: list[Node] = []
        for place, node in enumerate(nodes):
            result += [] if place in gone else [node]
            result += made if place == max(gone) else ()
        return tuple(result)

    def _parts(self, stage: Stage, old: Stage) -> Iterable[Node]:
        yield self._nest(stage, old, "init")
        yield self._nest(stage, old, "update")

    def _nest(
        self, stage: Stage, old: Stage, part: Literal["whole", "init", "update"] = "whole"
    ) -> Node:
        """A stage's nest: the loops of the one in whose place it comes, as far as it has them."""
        site = self.sites[old.tensor]
        extents = dict(stage.iterators)
        spatial = {n for n, _ in stage.spatial}
        own = [n for n in extents if part != "init" or n in spatial]
        inner = self._inner(old)
        bound = site.block.binding
        needed = {x for n in own if n in bound for x in names(bound[n])}
        moved = {str(bound[i]): i for i in self._loops_of(old) if i in bound}
        table: dict[str, Expr] = {}
        chain: list[Loop] = []
        for loop in site.loops[self.depth :]:
            if loop.name in moved and inner in own:
                name = unique(f"{loop.name}_i", self.taken)
                table[inner] = Name(name)
                chain.append(replace(loop, name=name, extent=self.size, body=()))
            elif loop.name in needed and loop.name not in moved:
                name = unique(loop.name, self.taken)
                table[loop.name] = Name(name)
                chain.append(replace(loop, name=name, body=()))
            else:
                continue
            self.taken.add(name)
        known = {x.name for x in site.loops[: self.depth]} | set(table)
        extra = {x.name: x.extent for x in chain} | {self.blocks: self.count}
        sizes = self.state.extents | extra
        bindings: list[tuple[str, Expr]] = []
        for n in own:
            value = Name(self.blocks) if n == self.blocks else table.get(n) if n == inner else None
            if value is None and n in bound:
                value = apply(bound[n], table, sizes)
            if value is not None:
                bindings.append((n, value))
        guards = [p for p in site.block.predicate if set(names(p)) <= known]
        node: Node = Block(
            stage.tensor, part, tuple(bindings), tuple(apply(p, table, sizes) for p in guards)
        )
        for loop in reversed(chain):
            node = replace(loop, body=(node,))
        return node

    def _with(self, made: Sequence[Stage], kept: set[str]) -> LoopTree:
        """The state with its stages and tensors."""
        state, stages = self.state, list[Stage]()
        last = self.found.sums[-1].stage.tensor
        for stage in state.stages:
            if stage.tensor not in self.old:
                value = self._with_last(stage.value, kept)
                seed = stage.seed and self._with_last(stage.seed, kept)
                stages.append(replace(stage, value=value, seed=seed))
            if stage.tensor == last:
                stages += made
        blocked = {s.tensor for s in (self.found.term, self.source) if s is not None}
        gone = set(self.old) - kept - blocked
        replaced = gone | blocked
        notes = [(n, f"{n} was rescaled") for n in self.old if n in gone]
        return replace(
            state,
            tensors=(*(t for t in state.tensors if t.name not in replaced), *self.tensors),
            stages=tuple(stages),
            storages=(*(s for s in state.storages if s.tensor not in replaced), *self.storages),
            gone=(*state.gone, *notes),
        )
