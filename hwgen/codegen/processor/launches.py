"""Which parts of a tree one start of blocks and threads runs, and by which coordinates.

Loops in order around loops over blocks stay on the host, so that each of their iterations waits for
the one before.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from hwgen.codegen.c_names import identifier
from hwgen.errors import HwgenError
from hwgen.polyhedral.tree.build import unique
from hwgen.polyhedral.tree.loop_tree import Loop, LoopTree, Node, loops
from hwgen.spec.processor import LoopKind, Processor


@dataclass(frozen=True, slots=True)
class Kernel:
    """One launch. `root`: its nodes; `around`: the host's loops. `coordinates`: loop kind, variable
    and extent of the bound loops in it, blocks' before threads'."""

    name: str
    around: tuple[Loop, ...]
    root: tuple[Node, ...]
    coordinates: tuple[tuple[str, str, int], ...]

    @property
    def extents(self) -> dict[str, int]:
        return {v: e for _, v, e in self.coordinates}


@dataclass(frozen=True)
class Plan:
    """`kernels` by the host's body ("" or a loop) and the place in it; `host`: loops of the host;
    `variables`: the coordinate that each bound loop is."""

    kernels: dict[tuple[str, int], Kernel]
    host: frozenset[str]
    variables: dict[str, str]

    @property
    def launches(self) -> bool:
        return bool(self.kernels)


def plan_launches(state: LoopTree, processor: Processor) -> Plan:
    """The launches of a state; none for a processor that starts no blocks.

    Raises:
        HwgenError: H621 more threads than a block may have; H622 a loop of the host that is more
            than serial.
    """
    names = {
        k.name: unique(identifier(k.name), state.loop) for k in processor.loops if k.kind == "bind"
    }
    variables = {x.name: names[x.kind] for x in state.loop.values() if x.kind in names}
    kernels: dict[tuple[str, int], Kernel] = {}
    host: set[str] = set()
    if processor.launch:
        found = _Found(state, processor, names, kernels, host)
        found.body(state.root, "", ())
    return Plan(kernels, frozenset(host), variables)


@dataclass(frozen=True, slots=True)
class _Found:
    state: LoopTree
    processor: Processor
    names: dict[str, str]
    kernels: dict[tuple[str, int], Kernel]
    host: set[str]

    def body(self, nodes: tuple[Node, ...], key: str, around: tuple[Loop, ...]) -> None:
        """Launches of a body of the host; neighbours without coordinates share one."""
        pending: list[Node] = []
        first = 0
        for n, node in enumerate(nodes):
            if self._coordinates((node,)):
                self._close(pending, key, first, around)
                if isinstance(node, Loop) and self._hosted(node):
                    self._check_host(node)
                    self.host.add(node.name)
                    self.body(node.body, node.name, (*around, node))
                else:
                    self._add((node,), key, n, around)
            else:
                first = n if not pending else first
                pending.append(node)
        self._close(pending, key, first, around)

    def _close(self, pending: list[Node], key: str, first: int, around: tuple[Loop, ...]) -> None:
        if pending:
            self._add(tuple(pending), key, first, around)
            pending.clear()

    def _hosted(self, loop: Loop) -> bool:
        """A loop in order with loops over blocks inside."""
        over_blocks = {k.name for k in self.processor.coordinates("block")}
        in_order = self.processor.runs(loop.kind) != "bind"
        return in_order and any(x.kind in over_blocks for x in loops((loop,)))

    def _check_host(self, loop: Loop) -> None:
        if loop.kind != "serial" or loop.prefetches or loop.pragmas:
            raise HwgenError(
                "H622",
                f"{loop.name} starts blocks, iteration by iteration",
                found=f"{loop.kind}, with {len(loop.pragmas)} pragmas and "
                f"{len(loop.prefetches)} prefetches",
                allowed="a serial loop around loops over blocks",
                repair=f"reorder {loop.name} inside the loops over blocks",
            )

    def _coordinates(self, nodes: tuple[Node, ...]) -> tuple[tuple[str, str, int], ...]:
        extents: dict[str, int] = {}
        for loop in loops(nodes):
            if loop.kind in self.names:
                extents[loop.kind] = max(extents.get(loop.kind, 1), loop.extent)
        ordered = self._order()
        return tuple((k.name, self.names[k.name], extents[k.name]) for k in ordered
                     if k.name in extents)  # fmt: skip

    def _order(self) -> Iterator[LoopKind]:
        yield from self.processor.coordinates("block")
        yield from self.processor.coordinates("thread")

    def _add(self, nodes: tuple[Node, ...], key: str, place: int, around: tuple[Loop, ...]) -> None:
        coordinates = self._coordinates(nodes)
        threads = 1
        for kind, _, extent in coordinates:
            threads *= extent if self.processor.loop[kind].level == "thread" else 1
        if threads > self.processor.threads:
            raise HwgenError(
                "H621",
                f"{self.state.name} needs blocks of too many threads",
                found=", ".join(f"{k}: {e}" for k, _, e in coordinates),
                allowed=f"{self.processor.threads} threads in a block",
                repair="split a loop of threads further",
            )
        name = unique(f"{self.state.name}_{len(self.kernels)}", self.state.loop)
        self.kernels[key, place] = Kernel(name, around, nodes, coordinates)
