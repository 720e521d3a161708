"""Live ranges of buffers: intervals of a program as it is read; addresses by them.

Nodes are numbered as they are read. A buffer is live from the first to the last node of its scope's
body that touches it, and a loop or launch there counts whole: what one iteration leaves may be what
another reads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from hwgen.codegen.names import expressions
from hwgen.codegen.nodes import Allocate, If, Launch, Loop, Node, inner
from hwgen.spec.expression import Access, walk
from hwgen.spec.processor import Processor


@dataclass(frozen=True, slots=True)
class Life:
    """`first`, `last`: the numbers of nodes. `around`: loops and launches around the scope, by
    their numbers (0: the kernel); `root`: the innermost whose iterations run at once."""

    first: int
    last: int
    around: tuple[int, ...]
    root: int

    def meets(self, other: Life) -> bool:
        return self.first <= other.last and other.first <= self.last


def lives(body: tuple[Node, ...], processor: Processor) -> dict[str, Life]:
    """The live range of every buffer that a body allocates, in the order of the scopes."""
    walker = _Walker(processor)
    walker.nodes(body, (0,), 0)
    return {n: walker.life(n) for n in walker.scopes}


def at_once(node: Node, processor: Processor) -> bool:
    """Whether a node runs its body several times at once."""
    way = processor.runs(node.kind) if isinstance(node, Loop) else ""
    return isinstance(node, Launch) or way not in ("", "unroll")


@dataclass(slots=True)
class _Walker:
    """`ends`: of each node, the number of the last one inside; `scopes`: per buffer its scope's
    number, and loops around it with the root; `found`: per buffer the nodes that touch it."""

    processor: Processor
    number: int = 0
    ends: dict[int, int] = field(default_factory=dict[int, int])
    scopes: dict[str, tuple[int, tuple[int, ...], int]] = field(
        default_factory=dict[str, tuple[int, tuple[int, ...], int]]
    )
    found: dict[str, list[int]] = field(default_factory=dict[str, list[int]])

    def nodes(self, body: tuple[Node, ...], around: tuple[int, ...], root: int) -> None:
        for node in body:
            self.number += 1
            own = self.number
            for expr in expressions(node):
                for part in walk(expr):
                    if isinstance(part, Access):
                        self.touch(part.tensor, own, around)
            match node:
                case Allocate(buffer, inside):
                    self.scopes[buffer] = (own, around, root)
                    self.nodes(inside, around, root)
                case If():
                    self.nodes(inner(node), around, root)
                case _:
                    now = own if at_once(node, self.processor) else root
                    self.nodes(inner(node), (*around, own), now)
            self.ends[own] = self.number

    def touch(self, buffer: str, number: int, around: tuple[int, ...]) -> None:
        """The loop of the scope's body that holds the access, or the access itself."""
        if buffer in self.scopes:
            depth = len(self.scopes[buffer][1])
            self.found.setdefault(buffer, []).append((*around, number)[depth])

    def life(self, buffer: str) -> Life:
        scope, around, root = self.scopes[buffer]
        places = self.found.get(buffer, [scope])
        return Life(min(places), max(self.ends[p] for p in places), around, root)


def fitted(
    orders: Iterable[Iterable[str]],
    sizes: Mapping[str, int],
    live: Mapping[str, Life],
    place: Callable[[str, int], int],
    fixed: Mapping[str, int] | None = None,
) -> dict[str, int]:
    """Addresses at which no two buffers that live together overlap: first fit in each of some
    orders, and of these the one that takes least, the first of several.

    Args:
        orders: of the buffers to be placed.
        sizes: bytes of all buffers.
        live: their live ranges.
        place: the least address for a buffer from one on.
        fixed: addresses that some have already.
    """
    found = [_first_fit(order, sizes, live, place, fixed or {}) for order in orders]
    return min(found, key=lambda at: max((at[n] + sizes[n] for n in at), default=0))


def _first_fit(
    order: Iterable[str],
    sizes: Mapping[str, int],
    live: Mapping[str, Life],
    place: Callable[[str, int], int],
    fixed: Mapping[str, int],
) -> dict[str, int]:
    result = dict(fixed)
    for name in order:
        met = (n for n in result if live[n].meets(live[name]))
        address = place(name, 0)
        for start, stop in sorted((result[n], result[n] + sizes[n]) for n in met):
            if address < stop and start < address + sizes[name]:
                address = place(name, stop)
        result[name] = address
    return result
