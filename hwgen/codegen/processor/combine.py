"""A reduction over threads: each has a partial result of its own, then they meet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Protocol

from hwgen.codegen.nodes import Allocate, Assign, CombineAcrossThreads, If, Node, counted
from hwgen.codegen.processor.barriers import scratch_name
from hwgen.codegen.processor.boxes import Use, block_uses, box
from hwgen.codegen.processor.guards import Guarded, settled, touched
from hwgen.codegen.processor.launches import Kernel
from hwgen.codegen.processor.storage import Placed, dense
from hwgen.codegen.storages import Array
from hwgen.errors import HwgenError
from hwgen.polyhedral.tree.build import unique
from hwgen.polyhedral.tree.loop_tree import Block, Loop, LoopTree, Site, first_of
from hwgen.polyhedral.tree.relations import combining
from hwgen.polyhedral.tree.terms import apply
from hwgen.spec.expression import Access, Expr, Name, conjunction, names, substitute
from hwgen.spec.hardware import HardwareSpec
from hwgen.spec.memory import Level
from hwgen.spec.typecheck import neutral


def begins(block: str) -> str:
    """What sets the partial results of a block's threads is called so."""
    return f"{block} in each thread"


def goes_on(block: str) -> str:
    """What puts what was reduced before into the first of them is called so."""
    return f"{block} in the first thread"


class Host(Protocol):
    """What the lowering lends."""

    state: LoopTree
    hardware: HardwareSpec
    placed: Mapping[str, Placed]
    extra: dict[str, Array]
    kernel: Kernel | None

    def flat(self, use: Use) -> Access: ...

    def own(self, expr: Expr, around: tuple[Loop, ...]) -> Expr: ...

    def needed(self, found: Sequence[Expr], around: tuple[Loop, ...]) -> dict[str, Expr]: ...


class Gathering:
    """One block whose reduction runs over threads, the outermost such loop being `loop`."""

    def __init__(self, host: Host, site: Site, loop: Loop) -> None:
        self.host, self.site = host, site
        self.stage = host.state.stage[site.block.stage]
        self.threads = combining(host.state, site)
        self.key = (site.block.name, self.stage.tensor)
        depth, machine = site.loops.index(loop), host.hardware.machine
        spatial = {n for n, _ in self.stage.spatial}
        used = {n for i, e in site.block.bindings if i in spatial for n in names(e)}
        self.bound = tuple(x for x in site.loops[depth + 1 :] if machine.runs(x.kind) == "bind")
        self.around = (*site.loops[: depth + 1], *self.bound)
        self.inner = tuple(x for x in site.loops[depth + 1 :] if x.name in used
                           and x not in self.bound)  # fmt: skip
        self.partial = self._partial()

    def _partial(self) -> Placed:
        """A thread's own elements of the target."""
        tensor = self.host.state.tensor[self.stage.tensor]
        target = block_uses(self.host.state, self.site.block, self.site.loops)[0]
        own = box([target], {x.name for x in self.around}, tensor.shape)
        name = unique(f"{tensor.name}_part", self.host.state.tensor)
        buffer = Array(
            name, name, tensor.dtype, "intermediate", self._memory("thread"), own.extents,
            dense(own.extents),
        )  # fmt: skip
        self.host.extra[name] = buffer
        return Placed(buffer, own, tuple(Name(f"d{n}") for n in range(len(own.extents))), ())

    def _memory(self, level: Level) -> str:
        if memory := self.host.hardware.workspace_of(level):
            return memory.name
        raise HwgenError(
            "H625",
            f"threads cannot combine {self.stage.tensor}",
            found=f"no memory that is shared by a {level}",
            allowed="a processor with a memory per thread and one per block",
            repair="rfactor the reduction, and bind loops of the rest",
        )

    # Pieces of the program

    def start(self) -> list[Guarded]:
        """Every partial element is neutral, or, in the first thread, what was reduced before."""
        loops, block, guards = self._nest("start")
        target = block_uses(self.host.state, block, loops)[0]
        dtype = self.partial.buffer.dtype
        part = self._part(target)
        whole = self.host.flat(target)
        zero = neutral(self.stage.op, dtype)
        nodes: list[Node] = [Assign(self.stage.tensor, part, "=", zero, begins(self.key[0]))]
        if self.site.block.part != "whole":
            first = [first_of(x.name) for x in self.threads]
            condition = conjunction(tuple(self.host.needed(first, loops).values()))
            again = Assign(self.stage.tensor, part, "=", whole, goes_on(self.key[0]))
            nodes.append(again if condition is None else If(condition, (again,)))
        exists = conjunction(tuple(self.host.needed(guards, loops).values()))
        nodes = nodes if exists is None else [If(exists, tuple(nodes))]
        found = frozenset({part.tensor, whole.tensor})
        return [Guarded(n, {}, found) for n in self._looped(loops, nodes)]

    def end(self) -> list[Guarded]:
        """The threads' partial elements meet, one after the other."""
        kernel = self.host.kernel
        assert kernel is not None, "threads run in launches"
        loops, block, guards = self._nest("end")
        target = block_uses(self.host.state, block, loops)[0]
        kinds = {x.kind: x for x in self.threads}
        threads = [(k, v, e) for k, v, e in kernel.coordinates
                   if self.host.hardware.machine.loop[k].level == "thread"]  # fmt: skip
        coordinates = tuple((v, kinds[k].extent) for k, v, _ in threads if k in kinds)
        others = tuple((v, e) for k, v, e in threads if k not in kinds)
        scratch = self._scratch(prod(e for _, e in (*coordinates, *others)))
        copies = zip(self.inner, loops[len(self.around) :], strict=True)
        renamed = {x.name: Name(copy.name) for x, copy in copies}
        stored = self.site.block.store_predicate
        stored = stored and substitute(stored, renamed)
        takes = tuple(self.host.needed(guards, loops).values())
        stores = () if stored is None else self.host.needed([stored], loops).values()
        whole = self.host.flat(target)
        node = CombineAcrossThreads(
            self.stage.tensor,
            coordinates,
            others,
            self._part(target),
            scratch,
            self.stage.op,
            whole,
            takes,
            tuple(c for c in stores if c not in takes),
            bool(self.inner),
        )
        found = frozenset({self.partial.buffer.name, scratch, whole.tensor})
        return [Guarded(n, {}, found) for n in self._looped(loops, [node])]

    def allocated(self, items: list[Guarded]) -> Guarded:
        """Everything inside the scopes of the partial results and of the scratch."""
        inside = settled(items, {})
        own = (self.partial.buffer.name, scratch_name(self.host.state, self.site.block))
        for name in own:
            inside = (Allocate(name, inside),)
        return Guarded(inside[0], {}, touched(items) - set(own))

    def _scratch(self, elements: int) -> str:
        name = scratch_name(self.host.state, self.site.block)
        dtype = self.partial.buffer.dtype
        memory = self._memory("block")
        self.host.extra[name] = Array(
            name, name, dtype, "intermediate", memory, (elements,), (1,)
        )  # fmt: skip
        return name

    def _part(self, target: Use) -> Access:
        index = self.host.own(self.partial.flat(target), target.loops)
        return Access(self.partial.buffer.name, (index,))

    def _nest(self, what: str) -> tuple[tuple[Loop, ...], Block, list[Expr]]:
        """Loops around and copies of those inside over the target's elements; the block under
        them; its conditions apart from those of the reduction."""
        taken = set(self.host.state.loop)
        bindings: dict[str, Expr] = {}
        copies: list[Loop] = []
        extents = {x.name: x.extent for x in self.around}
        for loop in self.inner:
            name = unique(f"{loop.name}_{what}", taken)
            taken.add(name)
            copies.append(Loop(name, loop.extent, ()))
            bindings[loop.name] = Name(name)
            extents[name] = loop.extent
        block = self.site.block
        threads = {x.name for x in self.threads}
        known = {x.name for x in (*self.around, *self.inner)} - threads
        spatial = {n for n, _ in self.stage.spatial}
        bound = tuple((i, apply(e, bindings, extents)) for i, e in block.bindings if i in spatial)
        guards = [apply(p, bindings, extents) for p in block.predicate if set(names(p)) <= known]
        return (*self.around, *copies), Block(block.stage, "init", bound), guards

    def _looped(self, loops: tuple[Loop, ...], nodes: list[Node]) -> list[Node]:
        result = tuple(nodes)
        for loop in reversed(loops[len(self.around) :]):
            result = (counted(loop.name, loop.extent, result),)
        return list(result)
