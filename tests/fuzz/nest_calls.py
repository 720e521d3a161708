"""Random calls of the scheduling primitives: sensible ones as a rule, wrong ones now and then."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from itertools import pairwise

from hwgen.polyhedral.schedule.schedule import Schedule
from hwgen.polyhedral.schedule.script import PRIMITIVES, Argument, Edit, write
from hwgen.polyhedral.tree.bind_expr import parts_to_bind
from hwgen.polyhedral.tree.loop_tree import Site
from hwgen.polyhedral.tree.relations import carried, shared
from hwgen.spec.expression import Assign, tensors_of
from tests.fuzz.nest_workloads import Draws

Calls = Generator["Call", None, None]

FACTORS = (2, 3, 4, 1, 5, 8, 16)
OFTEN = (
    ("split", 5), ("reorder", 5), ("compute_at", 7), ("tile", 2), ("fuse", 3), ("vectorize", 2),
    ("cache_read", 2), ("cache_write", 2), ("rfactor", 2), ("decompose_reduction", 2),
    ("compute_inline", 2), ("double_buffer", 2), ("transform_layout", 2), ("parallel", 2),
    ("unroll", 1), ("set_scope", 2), ("bind", 1), ("pad", 2), ("tensorize", 1),
)  # fmt: skip
WEIGHTED = tuple(
    name for name in PRIMITIVES for _ in range(dict(OFTEN).get(name, 1))
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a primitive."""

    primitive: str
    arguments: tuple[Argument, ...] = ()
    keywords: tuple[tuple[str, Argument], ...] = ()

    def __str__(self) -> str:
        return write([Edit(self.primitive, self.arguments, self.keywords, ())]).rstrip()

    def apply(self, schedule: Schedule) -> None:
        """Make the call.

        Raises:
            HwgenError: where it is refused.
        """
        method: Callable[..., object] = getattr(schedule, self.primitive)
        method(*self.arguments, **dict(self.keywords))


@dataclass(slots=True)
class CallDraws:
    """Draws calls for the present state of a schedule."""

    draws: Draws
    schedule: Schedule

    def calls(self) -> Calls:
        """One call as a rule; several where they only make sense together. Each must have been
        made or refused before the next is asked for."""
        machine = self.schedule.hardware.processor
        kinds = {x.kind for x in machine.loops} if machine else set[str]()
        options = [
            *WEIGHTED,
            *(("bind",) * 10 + ("blocks",) * 10 if "bind" in kinds else ()),
            *(("tensorize",) * 6 if self.schedule.hardware.intrinsics else ()),
        ]
        name = self.draws(options)
        made: Callable[[], Calls] = getattr(self, f"_{name}")
        yield from made()

    # Names

    def loop(self, stage: str = "") -> str:
        names = self.schedule.loops(stage) if stage else self.schedule.loops()
        if not names or self.draws.chance(60):
            return self.draws(("nowhere", *(n for n, _ in self.schedule.state.gone)))
        return self.draws(names)

    def chain(self, stage: str) -> tuple[str, ...]:
        return self.schedule.loops(stage)

    def stage(self, reduces: bool = False) -> str:
        state = self.schedule.state
        if self.draws.chance(80):
            return self.draws([t.name for t in state.tensors])
        fits = [s.tensor for s in state.stages if s.reduces or not reduces]
        return self.draws(fits or [s.tensor for s in state.stages])

    def inner(self) -> str:
        """A tensor that lives in a buffer of ours, as a rule."""
        tensors = self.schedule.state.tensors
        found = [t.name for t in tensors if t.role == "intermediate"]
        return self.draws(
            found if found and not self.draws.chance(20) else [t.name for t in tensors]
        )

    def memory(self) -> str:
        names = [m.name for m in self.schedule.hardware.of_kind("workspace")]
        return "nowhere" if not names or self.draws.chance(60) else self.draws(names)

    def site(self, stage: str) -> Site | None:
        return self.schedule.state.site.get(stage)

    def extent(self, loop: str) -> int:
        found = self.schedule.state.loop.get(loop)
        return found.extent if found else 4

    def factor(self, loop: str) -> int:
        extent = self.extent(loop)
        options = [f for f in FACTORS if f <= extent] or [1]
        odd = self.draws.chance(8)
        return self.draws((extent, extent + 1, 2 * extent, 0, -1)) if odd else self.draws(options)

    # Loops

    def _split(self) -> Calls:
        loop = self.loop()
        key = self.draws(("factor", "factor", "nparts"))
        yield Call("split", (loop,), ((key, self.factor(loop)),))

    def _tile(self) -> Calls:
        chain = self.chain(self.stage_with_block())
        if len(chain) < 2:
            x, y = self.loop(), self.loop()
        else:
            x, y = self.draws.shuffled(chain)[:2]
        yield Call("tile", (x, y, self.factor(x), self.factor(y)))

    def stage_with_block(self) -> str:
        return self.draws([s.block.stage for s in self.schedule.state.sites])

    def _fuse(self) -> Calls:
        chain = self.chain(self.stage_with_block())
        if len(chain) < 2 or self.draws.chance(20):
            yield Call("fuse", (self.loop(), self.loop()))
            return
        at = self.draws(range(len(chain) - 1))
        count = 3 if at + 3 <= len(chain) and self.draws.chance(4) else 2
        yield Call("fuse", chain[at : at + count])

    def _reorder(self) -> Calls:
        chain = self.chain(self.stage_with_block())
        if len(chain) < 2:
            yield Call("reorder", tuple(self.loop() for _ in range(2)))
            return
        count = self.draws(range(2, len(chain) + 1))
        yield Call("reorder", tuple(self.draws.shuffled(chain)[:count]))

    def _unroll(self) -> Calls:
        yield Call("unroll", (self.loop(),))

    def _vectorize(self) -> Calls:
        chain = self.chain(self.stage_with_block())
        yield Call("vectorize", (chain[-1] if chain and not self.draws.chance(5) else self.loop(),))

    def _parallel(self) -> Calls:
        chain = self.chain(self.stage_with_block())
        yield Call("parallel", (chain[0] if chain and self.draws.chance(2) else self.loop(),))

    def _bind(self) -> Calls:
        machine = self.schedule.hardware.processor
        kinds = [x.name for x in machine.loops if x.kind == "bind"] if machine else []
        chain = self.chain(self.stage_with_block())
        loop = self.draws(chain) if chain else self.loop()
        yield Call("bind", (loop, self.draws(kinds) if kinds else "threadIdx.x"))

    def _blocks(self) -> Calls:
        """A stage on blocks of threads, perhaps with a tile of what it reads that they share, or
        with threads that reduce."""
        machine = self.schedule.hardware.processor
        kinds = machine.loops if machine else ()
        blocks = [x.name for x in kinds if x.level == "block" and x.kind == "bind"]
        threads = [x.name for x in kinds if x.level == "thread" and x.kind == "bind"]
        fits = [s.block.stage for s in self.schedule.state.sites if len(s.loops) > 1]
        if not fits:
            return
        stage = self.draws(fits)
        loop = self.draws(self.chain(stage))
        yield Call("split", (loop,), (("factor", self.draws((4, 2, 3))),))
        chain = self.chain(stage)
        yield Call("bind", (chain[0], self.draws(blocks)))
        tile = [n for n in chain if n.startswith(f"{loop}_i")] or [chain[-1]]
        yield Call("bind", (tile[0], self.draws(threads)))
        reads = [r.tensor for r in self.schedule.state.stage[stage].reads]
        if reads and machine and self.draws.chance(2):
            before = set(self.schedule.state.stage)
            held = self.schedule.hardware.of_kind("workspace")
            memories = [m.name for m in held if m.shared_by != "thread"]
            yield Call("cache_read", (self.draws(reads), self.draws(memories)))
            made = [s for s in self.schedule.state.stage if s not in before]
            for copy in made:
                yield Call("compute_at", (copy, self.draws(self.chain(stage))))
                own = [n for n in self.chain(copy) if n not in self.chain(stage)]
                if own:
                    yield Call("bind", (self.draws(own), self.draws(threads)))

    def _pragma(self) -> Calls:
        machine = self.schedule.hardware.processor
        known = [p.name for p in machine.pragmas] if machine else []
        key = self.draws((*known, "ivdep"))
        yield Call("pragma", (self.loop(), key, self.draws((4, 2, ""))))

    # Stages

    def _compute_at(self) -> Calls:
        state = self.schedule.state
        groups = [g for g, _ in state.groups]
        read = [s.tensor for s in state.stages if state.readers(s.tensor)]
        if groups and self.draws.chance(3):
            yield Call("compute_at", (self.draws(groups), self.loop()))
            return
        if not read or self.draws.chance(20):
            yield Call("compute_at", (self.stage(), self.loop()))
            return
        stage = self.draws(read)
        reader = self.draws(state.readers(stage)).tensor
        yield Call("compute_at", (stage, self.loop(reader)))

    def _compute_root(self) -> Calls:
        groups = [g for g, _ in self.schedule.state.groups]
        name = self.draws(groups) if groups and self.draws.chance(2) else self.stage()
        yield Call("compute_root", (name,))

    def _compute_inline(self) -> Calls:
        yield Call("compute_inline", (self.inner(),))

    def _create_group(self) -> Calls:
        names = [t.name for t in self.schedule.state.tensors]
        keywords: tuple[tuple[str, Argument], ...] = ()
        if self.draws.chance(2):
            keywords = (("include_inputs", True),)
        yield Call("create_group", ((self.stage(),), (self.draws(names),)), keywords)

    def _decompose_reduction(self) -> Calls:
        stage = self.stage(reduces=True)
        chain = self.chain(stage) if self.site(stage) else ()
        yield Call("decompose_reduction", (stage, self.draws(chain)) if chain else (stage,))

    def _rfactor(self) -> Calls:
        stage = self.stage(reduces=True)
        site = self.site(stage)
        carriers = sorted(carried(self.schedule.state, site)) if site else []
        if not carriers or self.draws.chance(8):
            carriers = list(self.chain(stage)) if site else []
        loop = self.draws(carriers) if carriers else self.loop()
        axis = self.draws((0, 0, 1, 2, 5))
        yield Call("rfactor", (stage, loop), (("axis", axis),) if axis else ())

    def _planes(self) -> Calls:
        yield Call("planes", (self.stage(), self.draws(("int8", "int8", "int16", "float32"))))

    def _bind_expr(self) -> Calls:
        stage = self.stage()
        found = self.schedule.state.stage.get(stage)
        known = [*map(str, parts_to_bind(found))] if found else []
        yield Call("bind_expr", (stage, self.draws(known or ("1 + 1",))))

    def _rewrite_expr(self) -> Calls:
        stage = self.stage()
        found = self.schedule.state.stage.get(stage)
        part = self.draws([*map(str, parts_to_bind(found))] or ["1"]) if found else "1"
        forms = (f"{part} + 3 - 3", f"({part}) * 2 - ({part})", f"{part} + 1", f"-(-({part}))")
        yield Call("rewrite_expr", (stage, part, self.draws(forms)))

    def _distribute(self) -> Calls:
        yield Call("distribute", (self.stage(),))

    def _set_store_predicate(self) -> Calls:
        stage = self.stage_with_block()
        chain = self.chain(stage)
        site = self.site(stage)
        bound = [x.name for x in site.loops if x.combines] if site else []
        loop = self.draws(bound) if bound else self.draws(chain) if chain else "i"
        last = self.extent(loop) - 1
        condition = self.draws(
            (
                f"{loop} == 0",
                f"{loop} == {last}",
                f"{loop} >= 0",
                f"{loop} < {last}",
                f"{loop} % 2 == 0",
            )
        )
        yield Call("set_store_predicate", (stage, condition))

    def _tensorize(self) -> Calls:
        """An intrinsic's extents as the inner loops of a stage, then the call."""
        known = self.schedule.hardware.intrinsics
        if not known:
            yield Call("tensorize", (self.loop(), "dot"))
            return
        state = self.schedule.state
        pairs = [
            (x, s.tensor)
            for x in known
            for s in state.stages
            if s.op == x.semantics[0].op and len(s.reads) == len(operands(x.semantics[0]))
        ]
        intrinsic, stage = self.draws(pairs) if pairs else (self.draws(known), self.stage())
        if self.draws.chance(6) or not pairs:
            yield Call("tensorize", (self.loop(), intrinsic.name))
            return
        if state.stage[stage].reduces and self.draws.chance(2):
            yield Call("decompose_reduction", (stage, self.chain(stage)[0]))
        inner: list[str] = []
        for iterator, extent in intrinsic.iterators:
            left = [n for n in self.chain(stage) if n not in inner]
            named = [n for n in left if iterator in n.split("_")]
            fits = named or [n for n in left if self.extent(n) % extent == 0] or left
            if not fits:
                return
            loop = self.draws(fits)
            if self.extent(loop) % extent and not self.draws.chance(8):
                yield Call("pad", (loop, extent))
                # A spatial loop now writes a larger tensor.
                stage = next(s.block.stage for s in self.schedule.state.sites if loop in s.names)
            if self.extent(loop) != extent:
                before = set(self.chain(stage))
                yield Call("split", (loop,), (("factor", extent),))
                made = [n for n in self.chain(stage) if n not in before]
                loop = made[-1] if made else loop
            inner.append(loop)
        order = [n for n in self.chain(stage) if n not in inner] + inner
        if order != list(self.chain(stage)):
            yield Call("reorder", tuple(order))
        yield Call("tensorize", (inner[0], intrinsic.name))

    # Buffers

    def _cache_read(self) -> Calls:
        state = self.schedule.state
        read = [t.name for t in state.tensors if state.readers(t.name)]
        tensor = self.draws(read) if read and not self.draws.chance(20) else self.stage()
        readers = state.readers(tensor)
        keywords: tuple[tuple[str, Argument], ...] = ()
        if len(readers) > 1 and self.draws.chance(2):
            keywords = (("readers", (self.draws(readers).tensor,)),)
        if self.draws.chance(4):
            keywords = (*keywords, ("occurrence", self.draws((1, 2))))
        before = set(state.stage)
        yield Call("cache_read", (tensor, self.memory()), keywords)
        state = self.schedule.state
        made = [s for s in state.stage if s not in before]
        if made and self.draws.chance(2):
            reader = self.draws(state.readers(made[0])).tensor
            yield Call("compute_at", (made[0], self.loop(reader)))

    def _reindex_cache_read(self) -> Calls:
        state = self.schedule.state
        read = [t.name for t in state.tensors if state.readers(t.name)]
        tensor = self.draws(read) if read else self.stage()
        readers = [x.tensor for x in state.readers(tensor)] or [self.stage()]
        keywords: tuple[tuple[str, Argument], ...] = ()
        if self.draws.chance(2):
            keywords = (("occurrence", self.draws((1, 2))),)
        if self.draws.chance(3):
            keywords = (*keywords, ("whole", True))
        arguments = (tensor, self.memory(), self.draws(readers))
        yield Call("reindex_cache_read", arguments, keywords)

    def _merge(self) -> Calls:
        extents = self.schedule.state.extents
        first = self.loop()
        alike = [n for n, e in extents.items() if e == extents.get(first) and n != first]
        yield Call("merge", (first, self.draws(alike) if alike else self.loop()))

    def _cache_write(self) -> Calls:
        stage = self.stage()
        before = set(self.schedule.state.stage)
        readers = [x.tensor for x in self.schedule.state.readers(stage)]
        keywords: tuple[tuple[str, Argument], ...] = ()
        if readers and self.draws.chance(3):
            keywords = (("readers", (self.draws(readers),)),)
        yield Call("cache_write", (stage, self.memory()), keywords)
        made = [s for s in self.schedule.state.stage if s not in before]
        if made and self.draws.chance(2):
            yield Call("compute_at", (made[0], self.loop(stage)))

    def _set_scope(self) -> Calls:
        yield Call("set_scope", (self.inner(), self.memory()))

    def _prefetch(self) -> Calls:
        site: Site = self.draws(self.schedule.state.sites)
        reads = [r.tensor for r in self.schedule.state.stage[site.block.stage].reads]
        names = site.names
        if not reads or not names:
            yield Call("prefetch", (self.inner(), self.loop(), 1))
            return
        loop = self.draws(names)
        distance = self.draws((1, 1, 2, 3, self.extent(loop)))
        yield Call("prefetch", (self.draws(reads), loop, distance))

    def _double_buffer(self) -> Calls:
        homes = self.schedule.homes
        tiles = [t for t, home in homes.items() if home]
        tensor = self.draws(tiles) if tiles and not self.draws.chance(8) else self.inner()
        slots = self.draws((2, 2, 3, 1, 0)) if tiles or self.draws.chance(6) else 1
        yield Call("double_buffer", (tensor, slots))

    def _shift(self) -> Calls:
        yield Call("shift", (self.stage(), self.loop(), self.draws((1, 2, -1, 0, 65))))

    def _alias(self) -> Calls:
        yield Call("alias", (self.inner(), self.inner()))

    def _retain(self) -> Calls:
        yield Call("retain", (self.stage(), self.loop()))

    def _weigh(self) -> Calls:
        yield Call("weigh", (self.stage(), self.draws(("int8", "int16", "uint8", "int32"))))

    def _decompose_padding(self) -> Calls:
        yield Call("decompose_padding", (self.stage(),))

    def _rescale(self) -> Calls:
        yield Call("rescale", (self.stage(reduces=True), self.draws((1, 2, 3, 8))))

    def _start_from(self) -> Calls:
        yield Call("start_from", (self.stage(), self.inner()))

    def _sink(self) -> Calls:
        yield Call("sink", (self.stage(), self.loop(), self.draws(("last", "first", "middle"))))

    def _interleave(self) -> Calls:
        """Loops beside each other, within some of those around both."""
        state = self.schedule.state
        pairs = [
            (first.loops[depth].name, second.loops[depth].name, first.names[:depth])
            for first, second in pairwise(state.sites)
            if (depth := shared(first, second)) < min(len(first.loops), len(second.loops))
        ]
        first, second, around = self.draws(pairs) if pairs else (self.loop(), self.loop(), ())
        extent = max(self.extent(first), self.extent(second))
        sizes = tuple(self.draws(range(extent + 1)) for _ in range(self.draws((1, 2, 3))))
        yield Call("interleave", (first, second, sizes, around))

    def _storage_align(self) -> Calls:
        tensor = self.inner()
        state = self.schedule.state
        rank = len(state.storage[tensor].layout) or len(state.tensor[tensor].shape)
        axis = self.draws(range(rank + 1)) if self.draws.chance(20) else self.draws(range(rank))
        factor = self.draws((8, 2, 3, 32))
        yield Call("storage_align", (tensor, axis, factor, self.draws(range(factor))))

    def _transform_layout(self) -> Calls:
        tensor = self.inner()
        shape = self.schedule.state.tensor[tensor].shape
        variables = [f"v{n}" for n in range(len(shape))]
        places = list(variables)
        at = self.draws(range(len(shape)))
        match self.draws(("permute", "tile", "merge", "skew", "flip", "wrong")):
            case "permute":
                places = self.draws.shuffled(places)
            case "tile":
                size = self.draws((2, 3, 4))
                places[at] = f"v{at} // {size}"
                places.insert(self.draws(range(len(places) + 1)), f"v{at} % {size}")
            case "merge" if at:
                places[at - 1 : at + 1] = [f"v{at - 1} * {shape[at]} + v{at}"]
            case "skew" if at:
                places[at] = f"(v{at} + v{at - 1}) % {shape[at]}"
            case "flip":
                places[at] = f"{self.draws((shape[at] - 1, shape[at] + 2))} - v{at}"
            case _:
                places[at] = f"v{at} // 2"
        text = f"[{', '.join(variables)}] -> [{', '.join(places)}]"
        yield Call("transform_layout", (tensor, text))

    def _set_bank(self) -> Calls:
        yield Call("set_bank", (self.inner(), self.draws((0, 1, 31, 99))))

    def _set_address(self) -> Calls:
        pools = {m.name for m in self.schedule.hardware.memories if m.pool}
        storages = self.schedule.resolved.storages
        fits = [x.tensor for x in storages if x.memory in pools]
        if not fits and not self.draws.chance(6):
            yield Call("set_address", (self.inner(), -1))
            return
        tensor = self.draws(fits) if fits else self.inner()
        yield Call("set_address", (tensor, self.draws((0, 64, 256, 1024, 6, -1))))

    def _pad(self) -> Calls:
        loop = self.loop()
        yield Call("pad", (loop, self.draws((4, 2, 3, 8, 16, 0))))


def operands(rule: Assign) -> set[str]:
    """What the value of an intrinsic's semantics reads."""
    return tensors_of(rule.value)
