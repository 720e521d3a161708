"""What the blocks of a tree bring into a cache of some size: the tree as a whole, node by node.

Of a node whose boxes of elements fit together, each comes once and stays. Else a loop brings what
its body does in every iteration; of what stays in the body only the part that is new, so what the
loop does not move still once. Nodes beside each other share what is still there: all that is
touched from the one to the other fits. A tensor at home inside a loop has one iteration's room.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import ceil, prod

from hwgen.polyhedral.tree.loop_tree import Block, Loop, LoopTree, Node, Site
from hwgen.polyhedral.tree.terms import addends, interval, simplify
from hwgen.spec.expression import DTYPES, Access, Expr, Name, substitute
from hwgen.spec.processor import Processor

Box = tuple[tuple[int, int], ...]
"""Of each dimension the first and last index."""
Boxes = Mapping[str, Box]
"""By array."""
Trips = Mapping[str, int]
"""Iterations of loops, by name."""


@dataclass(frozen=True, slots=True)
class Index:
    """`first + sum(steps) + sum(others)`, along a dimension of an extent."""

    first: int
    steps: tuple[tuple[int, str], ...]
    others: tuple[tuple[int, Expr], ...]
    extent: int

    @classmethod
    def of(cls, value: Expr, extent: int) -> Index:
        """An index over loops, taken apart."""
        parts = addends(value)
        return cls(
            sum(c for c, t in parts if t is None),
            tuple((c, t.name) for c, t in parts if isinstance(t, Name)),
            tuple((c, t) for c, t in parts if t is not None and not isinstance(t, Name)),
            extent,
        )

    def reach(self, inside: Trips) -> tuple[int, int]:
        """The first and last value where loops have so many iterations."""
        low = high = self.first
        for step, name in self.steps:
            end = step * (inside[name] - 1)
            low, high = low + min(0, end), high + max(0, end)
        for factor, term in self.others:
            ends = [factor * x for x in interval(term, inside)]
            low, high = low + min(ends), high + max(ends)
        return max(0, min(low, self.extent - 1)), max(0, min(high, self.extent - 1))


@dataclass(frozen=True)
class _Branch:
    """A node of the tree, or several beside each other. `boxes`: what it touches in one iteration
    of the loops around; `trips`: its own, as a loop. `blocks`: those under it, each with its
    boxes."""

    trips: int
    branches: tuple[_Branch, ...]
    boxes: Boxes
    blocks: tuple[tuple[str, Boxes], ...]


@dataclass(frozen=True, slots=True)
class _Brought:
    """Bytes that come into a cache by block and array, and the arrays that are there throughout."""

    bytes: Mapping[tuple[str, str], float]
    stays: frozenset[str]

    def of(self, array: str) -> float:
        return sum(count for (_, a), count in self.bytes.items() if a == array)


@dataclass(frozen=True)
class TreeTraffic:
    """A tree whose tensors have `homes`, as one of several workers runs it, or one alone; tensors
    in memories that are `unseen` lie in no cache."""

    state: LoopTree
    homes: Mapping[str, tuple[str, ...]]
    machine: Processor
    unseen: frozenset[str]
    workers: int = 1

    def brought(self, capacity_bytes: float) -> Mapping[str, float]:
        """Bytes by block that come into a cache of a capacity."""
        result: dict[str, float] = {}
        for (block, _), count in self._brought(self._root, capacity_bytes).bytes.items():
            result[block] = result.get(block, 0.0) + count
        return result

    # What is touched

    @cached_property
    def _trips(self) -> Trips:
        """Iterations of a loop that one worker runs one after another."""
        found: dict[str, int] = {}
        for site in self.state.sites:
            left = self.workers
            for loop in site.loops:
                found[loop.name] = loop.extent
                shared = self.machine.runs(loop.kind) in ("parallel", "bind")
                if shared and loop.name not in self._steps:
                    found[loop.name] = ceil(loop.extent / left)
                    left = max(1, left // loop.extent)
        return found

    @cached_property
    def _steps(self) -> frozenset[str]:
        """Loops whose iterations are threads that go on together."""
        kinds = {k.name for k in self.machine.coordinates("thread")}
        return frozenset(x.name for x in self.state.loop.values() if x.kind in kinds)

    @cached_property
    def _sizes(self) -> dict[str, tuple[int, tuple[int, ...]]]:
        """Of arrays, bytes of an element, and the shape of where they are stored."""
        found: dict[str, tuple[int, tuple[int, ...]]] = {}
        for tensor in self.state.tensors:
            shape = tensor.shape
            whole = {f"d{n}": e for n, e in enumerate(shape)}
            if layout := self._layout(tensor.name):
                shape = tuple(interval(e, whole)[1] + 1 for e in layout)
            found[tensor.name] = DTYPES[tensor.dtype], shape
        return found

    def _layout(self, tensor: str) -> tuple[Expr, ...]:
        return self.state.storage[tensor].layout if tensor in self.state.storage else ()

    @cached_property
    def _accesses(self) -> Mapping[str, tuple[tuple[str, frozenset[str], tuple[Index, ...]], ...]]:
        """By block: arrays, loops that do not move them, and indices."""
        return {s.block.name: tuple(self._of_block(s)) for s in self.state.sites}

    def _of_block(self, site: Site) -> Iterator[tuple[str, frozenset[str], tuple[Index, ...]]]:
        stage = self.state.stage[site.block.stage]
        for access in dict.fromkeys((stage.target, *stage.reads_in(site.block.part))):
            if self.state.memory(access.tensor) not in self.unseen:
                array = self.state.versions.get(access.tensor, (access.tensor,))[-1]
                still = frozenset(self.homes.get(access.tensor, ()))
                yield array, still, self._indices(access, array, site)

    def _indices(self, access: Access, array: str, site: Site) -> tuple[Index, ...]:
        binding, extents = site.block.binding, site.extents
        values = [simplify(substitute(i, binding), extents) for i in access.indices]
        if layout := self._layout(array):
            given = {f"d{n}": v for n, v in enumerate(values)}
            values = [simplify(substitute(e, given), extents) for e in layout]
        _, shape = self._sizes[array]
        return tuple(Index.of(v, e) for v, e in zip(values, shape, strict=True))

    @cached_property
    def _root(self) -> _Branch:
        return self._beside(self.state.root, ())

    def _beside(self, nodes: Sequence[Node], around: tuple[Loop, ...]) -> _Branch:
        branches = tuple(self._branch(n, around) for n in nodes)
        blocks = tuple(b for branch in branches for b in branch.blocks)
        return _Branch(1, branches, _hull(boxes for _, boxes in blocks), blocks)

    def _branch(self, node: Node, around: tuple[Loop, ...]) -> _Branch:
        match node:
            case Block():
                boxes = self._boxes(node.name, around, len(around))
                return _Branch(1, (), boxes, ((node.name, boxes),))
            case Loop():
                body = self._beside(node.body, (*around, node))
                trips = 1 if node.name in self._steps else self._trips[node.name]
                blocks = tuple((b, self._boxes(b, around, len(around))) for b, _ in body.blocks)
                return _Branch(trips, (body,), _hull(boxes for _, boxes in blocks), blocks)

    def _boxes(self, block: str, around: tuple[Loop, ...], depth: int) -> Boxes:
        """What a block touches in one iteration of the outermost loops around it."""
        fixed = {x.name for x in around[:depth]} - self._steps
        found: list[Boxes] = []
        for array, still, indices in self._accesses[block]:
            inside = {n: 1 if n in fixed or n in still else e for n, e in self._trips.items()}
            found.append({array: tuple(i.reach(inside) for i in indices)})
        return _hull(found)

    def _bytes(self, array: str, box: Box) -> float:
        """Of a box: rows take whole lines where they are not whole themselves."""
        width, shape = self._sizes[array]
        reach = [high - low + 1 for low, high in box]
        if not reach:
            return float(width)
        row = reach[-1] * width
        if reach[-1] < shape[-1]:
            row = min(ceil(row / self.machine.line_bytes) * self.machine.line_bytes,
                      shape[-1] * width)  # fmt: skip
        return float(prod(reach[:-1]) * row)

    def _together(self, boxes: Boxes) -> float:
        return sum(self._bytes(array, box) for array, box in boxes.items())

    # What comes

    def _brought(self, branch: _Branch, capacity: float) -> _Brought:
        if not branch.branches or self._together(branch.boxes) <= capacity:
            return self._once(branch)
        if len(branch.branches) == 1:
            return self._again(branch, branch.branches[0], capacity)
        return self._in_turn(branch, capacity)

    def _once(self, branch: _Branch) -> _Brought:
        """Each array comes once, with the first blocks that touch it."""
        found: dict[tuple[str, str], float] = {}
        there: dict[str, Box] = {}
        for block, boxes in branch.blocks:
            for array, box in boxes.items():
                found[block, array] = self._more(array, there.get(array), box)
                there |= _hull([{array: there[array]} if array in there else {}, {array: box}])
        return _Brought(found, frozenset(branch.boxes))

    def _more(self, array: str, there: Box | None, box: Box) -> float:
        if there is None:
            return self._bytes(array, box)
        both = _hull([{array: there}, {array: box}])[array]
        return self._bytes(array, both) - self._bytes(array, there)

    def _again(self, loop: _Branch, body: _Branch, capacity: float) -> _Brought:
        """What a body brings in every iteration of its loop."""
        inner = self._brought(body, capacity)
        times = dict.fromkeys(body.boxes, float(loop.trips))
        for array in inner.stays:
            new = self._bytes(array, loop.boxes[array]) / self._bytes(array, body.boxes[array])
            times[array] = min(times[array], max(1.0, new))
        found = {(b, a): count * times[a] for (b, a), count in inner.bytes.items()}
        stays = (a for a in inner.stays if loop.boxes[a] == body.boxes[a])
        return _Brought(found, frozenset(stays))

    def _in_turn(self, nodes: _Branch, capacity: float) -> _Brought:
        """What nodes bring one after another, less what is still there."""
        found: dict[tuple[str, str], float] = {}
        last: dict[str, int] = {}
        for number, branch in enumerate(nodes.branches):
            mine = self._brought(branch, capacity)
            since: Boxes = branch.boxes
            fits = number
            first = min((last[a] for a in branch.boxes if a in last), default=number)
            while fits > first and mine.stays == frozenset(branch.boxes):
                since = _hull([nodes.branches[fits - 1].boxes, since])
                if self._together(since) > capacity:
                    break
                fits -= 1
            for (block, array), count in mine.bytes.items():
                found[block, array] = count
                before = last.get(array, -1)
                if before >= fits and count:
                    there = nodes.branches[before].boxes[array]
                    new = self._more(array, there, branch.boxes[array])
                    found[block, array] *= min(1.0, new / mine.of(array))
            last |= dict.fromkeys(branch.boxes, number)
        return _Brought(found, frozenset())


def _hull(boxes: Iterable[Boxes]) -> dict[str, Box]:
    """The smallest boxes that hold all."""
    found: dict[str, Box] = {}
    for some in boxes:
        for array, box in some.items():
            old = found.get(array, box)
            found[array] = tuple(
                (min(a, c), max(b, d)) for (a, b), (c, d) in zip(old, box, strict=True)
            )
    return found
