"""The order of what stands side by side in a body, where nothing else decides it.

Two nests that share no tensor which one of them writes may run in either order. Whatever edits made
them, they stand in one: that in which the workload's statements take up what they make; of what one
takes up, copies of inputs before those of what is computed, behind which their unit would wait.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from heapq import heapify, heappop, heappush

from hwgen.polyhedral.tree.aliases import places_of
from hwgen.polyhedral.tree.loop_tree import Loop, LoopTree, Node, blocks
from hwgen.spec.workload import Workload

_Rank = tuple[int, ...]


def in_order(state: LoopTree, workload: Workload) -> LoopTree:
    """The same state, the nests of every body in the order of the workload."""
    home = places_of(state)
    ordering = _Ordering(state, _ranks(state, workload), home)
    return replace(state, root=ordering.sorted(state.root))


def _ranks(state: LoopTree, workload: Workload) -> dict[str, _Rank]:
    """Where each stage belongs: at its statement, or before the stage that first takes it up."""
    declared = {s.target.tensor: n for n, s in enumerate(workload.statements)}
    known: dict[str, _Rank] = {t: (n,) for t, n in declared.items() if t in state.stage}

    def rank(tensor: str) -> _Rank:
        if tensor not in known:
            known[tensor] = (len(workload.statements),)  # Of what nothing takes up.
            sources = [state.stage.get(r.tensor) for r in state.stage[tensor].reads]
            late = any(x is not None and x.kind != "copy" for x in sources)
            found = [
                (*rank(reader.tensor), int(late), n)
                for reader in state.readers(tensor)
                for n, access in enumerate(reader.reads)
                if access.tensor == tensor
            ]
            known[tensor] = min(found, default=known[tensor])
        return known[tensor]

    return {s.tensor: rank(s.tensor) for s in state.stages}


@dataclass(frozen=True, slots=True)
class _Ordering:
    state: LoopTree
    ranks: Mapping[str, _Rank]
    home: Mapping[str, str]

    def sorted(self, nodes: Sequence[Node]) -> tuple[Node, ...]:
        inner = [n.around(self.sorted(n.body)) if isinstance(n, Loop) else n for n in nodes]
        before = self._before(inner)
        behind: list[list[int]] = [[] for _ in inner]
        for n, earlier in enumerate(before):
            for other in earlier:
                behind[other].append(n)
        ready = [(self._key(node), n) for n, node in enumerate(inner) if not before[n]]
        heapify(ready)
        result: list[Node] = []
        while ready:
            _, done = heappop(ready)
            result.append(inner[done])
            for n in behind[done]:
                before[n].discard(done)
                if not before[n]:
                    heappush(ready, (self._key(inner[n]), n))
        return tuple(result)

    def _before(self, nodes: Sequence[Node]) -> list[set[int]]:
        """The nests that have to run before each one: who last wrote what it uses, and who has read
        that since where it writes."""
        wrote: dict[str, int] = {}
        read: dict[str, set[int]] = {}
        result: list[set[int]] = []
        for number, node in enumerate(nodes):
            reads, writes = self._touched(node)
            mine = {wrote[place] for place in reads | writes if place in wrote}
            result.append(mine.union(*(read.get(place, ()) for place in writes)))
            for place in reads:
                read.setdefault(place, set()).add(number)
            for place in writes:
                wrote[place], read[place] = number, set()
        return result

    def _key(self, node: Node) -> tuple[_Rank, str]:
        """The first place at which anything of a nest belongs."""
        return min((self.ranks[b.stage], b.name) for b in blocks((node,)))

    def _touched(self, node: Node) -> tuple[frozenset[str], frozenset[str]]:
        """The places that a nest reads and writes."""
        reads: set[str] = set()
        writes: set[str] = set()
        for block in blocks((node,)):
            stage = self.state.stage[block.stage]
            writes.add(self.home.get(stage.tensor, stage.tensor))
            reads |= {self.home.get(r.tensor, r.tensor) for r in stage.reads_in(block.part)}
        return frozenset(reads), frozenset(writes)
