"""How long a loop tree takes on units that each work in order: one rule for every schedule.

A tree has blocks for leaves. A block starts when its unit is free, what it reads is written, and
the version of the buffer that it writes is read; a host that issues calls goes through them in the
order of the text and waits where a queue is full. A few iterations of each loop are walked, and the
last one where it is another; the others take what the last of these few took. Extents, cycles and
versions may be arrays: then one walk costs a tree for all of its sizes at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hwgen.polyhedral.search.cost_tree import (
    HOST,
    ZERO,
    Array,
    Block,
    Counts,
    Machine,
    Node,
    Repeat,
    blocks,
    largest,
    points,
)

WALKED: Final = 6
"""Iterations of a loop that are walked: those that follow take what the last two take. With fewer,
buffers of three versions are not full yet."""

AGAIN: Final = 2
"""The same of a loop whose steady state is known from an earlier walk, the last one among them if
that stands apart: loops of two iterations are walked as they are."""

Row = tuple[str, str, int]
"""A kind of thing, its name, and of a buffer how old the version is."""


def cycles(nodes: Sequence[Node], machine: Machine, versions: Mapping[str, Counts]) -> Array:
    """Cycles of a tree whose buffers have so many versions; 0 of them: one for every write."""
    walk = _Walk(machine, versions, nodes)
    walk.nodes(nodes)
    buses: dict[str, Array] = {}
    _add_busy(nodes, (), {}, buses)
    return np.maximum(walk.last(), largest(buses.values()))


class Least(NamedTuple):
    """What a tree takes at least: cycles in which one unit works after it has begun, or a bus; and
    the beats of all buses."""

    cycles: Array
    beats: Array


def least(nodes: Sequence[Node], machine: Machine, versions: Mapping[str, Counts]) -> Least:
    """A bound on a tree's cycles: of each unit, what goes before its first block, its work, and
    what depends on its last block."""
    units: dict[str, Array] = {}
    buses: dict[str, Array] = {}
    _add_busy(nodes, (), units, buses)
    once = [*map(_once, nodes)]
    walk = _Walk(machine, versions, once)
    walk.nodes(once)
    ends = _ends([*blocks(nodes)])
    begun, after = ({HOST: ZERO, **x} for x in (walk.begun, ends))
    work = largest(begun[u] + n + after[u] for u, n in units.items() if u in begun)
    beats = np.rint(sum(buses.values(), ZERO))
    return Least(np.maximum(work, largest(buses.values())), beats)


def _ends(every: Sequence[Block]) -> dict[str, Array]:
    """Cycles of what depends on the last block of each unit, one thing after the other."""
    after: list[Array] = []
    found: dict[str, Array] = {}
    for block in reversed(every):
        mine = ZERO
        for later, rest in zip(reversed(every), after, strict=False):
            if later.unit == block.unit or {*block.writes} & {*later.reads}:
                mine = np.maximum(mine, _last(later) + rest)
        after.append(mine)
        found.setdefault(block.unit, mine)
    return found


def _last(block: Block) -> Array:
    """Cycles of a block in the last iteration of all loops."""
    return prod((part for _, part in block.ends), start=block.cycles)


def _around(nodes: Sequence[Node], loops: Sequence[Repeat]) -> Iterator[tuple[int, Sequence[str]]]:
    """The loops around each block, as far in as one that takes new versions of what it writes."""
    for node in nodes:
        if isinstance(node, Repeat):
            yield from _around(node.body, (*loops, node))
        else:
            mine = [n for n, x in enumerate(loops, 1) if {*x.fresh} & {*node.writes}]
            yield id(node), [x.name for x in loops[: max(mine, default=len(loops))]]


def _short(every: Sequence[Block]) -> set[str]:
    """The loops in whose last iteration a block is shorter at some point."""
    short = {name for b in every for name, part in b.ends if (part != 1).any()}
    # Of what runs ahead, whether that iteration is next depends on all loops further in.
    ahead = {name for b in every if b.shift < 0 for name, _ in b.ends}
    return {name for b in every for name, _ in b.ends} if short & ahead else short


def _matter(nodes: Sequence[Node], short: set[str]) -> Iterator[tuple[str, set[str]]]:
    """Of each loop, those in whose last iteration something inside of it is shorter."""
    for node in nodes:
        if isinstance(node, Repeat):
            yield node.name, short & {name for b in blocks(node.body) for name, _ in b.ends}
            yield from _matter(node.body, short)


def _once(node: Node) -> Node:
    """A tree whose loops have one iteration, none of them a last one."""
    if isinstance(node, Block):
        return replace(node, ends=())
    return replace(node, count=np.ones(1, np.int64), body=tuple(map(_once, node.body)))


def _add_busy(
    nodes: Sequence[Node],
    around: Sequence[Repeat],
    units: dict[str, Array],
    buses: dict[str, Array],
) -> None:
    for node in nodes:
        if isinstance(node, Repeat):
            _add_busy(node.body, (*around, node), units, buses)
        elif around or not node.shift:  # What runs ahead of all loops they do not do again.
            times = node.times(around)
            units[node.unit] = units.get(node.unit, ZERO) + times * node.cycles
            units[HOST] = units.get(HOST, ZERO) + times * node.issuing
            if node.bus:
                buses[node.bus] = buses.get(node.bus, ZERO) + times * node.beats


class _Touched(NamedTuple):
    """Rows of a block: of its unit; of the versions that it reads; where it writes, of the newest
    version that may have to be read, with how many versions there are; of all that it has read and
    written when it ends."""

    unit: int
    reads: tuple[int, ...]
    writes: tuple[tuple[int, Counts], ...]
    ends: tuple[int, ...]


class _Iterations:
    """How many iterations a loop has at each point, and what is asked of these again and again."""

    def __init__(self, count: Counts) -> None:
        self.count = count
        self.fewest, self.most = int(count.min()), int(count.max())
        self._beyond: dict[int, Counts] = {}
        self._equal: dict[int, NDArray[np.bool_]] = {}

    def beyond(self, number: int) -> Counts:
        """How many more than a number."""
        if number not in self._beyond:
            self._beyond[number] = np.maximum(self.count - number, 0)
        return self._beyond[number]

    def equal(self, number: int) -> NDArray[np.bool_]:
        """Where they are so many."""
        if number not in self._equal:
            self._equal[number] = self.count == number
        return self._equal[number]


class _Walk:
    """`times`: when units, the host, and versions of buffers are free or done, a row for each of
    `rows`. `queued`: the last two blocks of each unit. `now`: the iteration of each loop; `ending`,
    `before_last`: those in their last and in the one before; `shorter`: those in whose last a block
    is shorter, and `foreseen` where it is one that runs ahead; `around`: the loops of each block of
    which those that it runs ahead of are iterations; `matter`: of each loop, those whose last
    iterations matter inside; `numbers`: of last iterations, and of which points."""

    def __init__(
        self, machine: Machine, versions: Mapping[str, Counts], nodes: Sequence[Node]
    ) -> None:
        every, size = [*blocks(nodes)], points(nodes)
        self.machine = machine
        self.versions = versions
        self.first: dict[str, int] = {}
        last: dict[str, int] = {}
        self.watched: dict[str, int] = {}
        for block in every:
            for name in (*block.reads, *block.writes):
                self.first[name] = min(block.shift, self.first.get(name, 0))
                last[name] = max(block.shift, last.get(name, 0))
            for name, number in block.at:
                self.watched[name] = max(number, self.watched.get(name, 0))
        self.has_ahead = any(b.shift < 0 for b in every)
        self.has_behind = any(b.shift > 0 for b in every)
        self.shorter = _short(every)
        self.foreseen = self.shorter & {n for b in every if b.shift < 0 for n, _ in b.ends}
        self.around = dict(_around(nodes, ()))
        self.matter = dict(_matter(nodes, self.shorter))
        self.numbers: dict[tuple[str, int], list[tuple[int, NDArray[np.bool_]]]] = {}
        units = sorted({b.unit for b in every} | {b.held for b in every if b.held})
        kinds = ("unit", "before", "done", "posted")
        rows: list[Row] = [(kind, u, 0) for kind in kinds for u in units]
        self.ages: dict[str, int] = {}
        for name in self.first:
            self.ages[name] = int(versions[name].max()) + last[name] - self.first[name]
            for kind in ("written", "read"):
                rows += [(kind, name, age) for age in range(self.ages[name] + 1)]
        self.rows = {row: n for n, row in enumerate([("host", HOST, 0), *rows])}
        self.times: Array = np.zeros((len(self.rows), size), np.float64)
        self.row: list[Array] = [*self.times]
        self.columns = np.arange(size)
        self.touched = {id(b): self._touched(b) for b in every}
        self.queued: dict[str, tuple[Block, Block | None]] = {}
        self.rooms: dict[tuple[int, ...], _Room] = {}
        self.begun: dict[str, Array] = {}
        self.now: dict[str, int] = {}
        self.ending: set[str] = set()
        self.before_last: set[str] = set()
        self.steady: dict[tuple[object, ...], Array] = {}
        self.counts: dict[tuple[str, int], _Iterations] = {}
        self.scaled: dict[tuple[object, ...], Block] = {}

    def _touched(self, block: Block) -> _Touched:
        """A block's rows: of a buffer's versions the newest that is begun is 0 iterations old."""
        age = {n: block.shift - self.first[n] for n in (*block.reads, *block.writes)}
        writes = [(self.rows["read", n, age[n]], self.versions[n]) for n in block.writes]
        written, read = (
            tuple(self.rows[kind, n, age[n]] for n in names)
            for kind, names in (("written", block.writes), ("read", block.reads))
        )
        done = (self.rows["done", block.unit, 0],) if block.shift >= 0 else ()
        return _Touched(
            self.rows["unit", block.unit, 0],
            tuple(self.rows["written", n, age[n]] for n in block.reads),
            tuple((row, count) for row, count in writes if count.max()),
            (*written, *read, *done),
        )

    def last(self) -> Array:
        """When everything is done that is needed."""
        needed = [n for (kind, *_), n in self.rows.items() if kind in ("done", "posted")]
        return self.times[needed].max(axis=0)

    def nodes(self, nodes: Sequence[Node]) -> None:
        for node in nodes:
            if isinstance(node, Repeat):
                self.repeat(node)
            elif all(self.now.get(n, 0) == at for n, at in node.at):
                self._shifted(node)

    def _shifted(self, block: Block) -> None:
        """Run a block where the iteration that it is shifted to is one."""
        if block.shift > 0 and self.now and not any(self.now.values()):
            return
        if block.shift >= 0 or not self.now or len(self.ending) < len(self.now):
            self.run(self._now(block))

    def _now(self, block: Block) -> Block:
        """A block as it is in this iteration of its loops."""
        if not block.ends:
            return block
        last = self.ending if block.shift >= 0 else self._last_ahead(block)
        parts = [(name, part) for name, part in block.ends if name in last]
        if not parts:
            return block
        key = (id(block), *(name for name, _ in parts))
        if key not in self.scaled:
            part = prod(x for _, x in parts)
            changed = {n: getattr(block, n) * part for n in ("cycles", "issuing", "written")}
            made = self.scaled[key] = replace(block, **changed)
            self.touched[id(made)] = self.touched[id(block)]
        return self.scaled[key]

    def _last_ahead(self, block: Block) -> set[str]:
        """The loops that are in their last iteration in the one that comes next."""
        found, carried = set[str](), True
        for name in reversed(self.around[id(block)]):
            if name in self.now:
                found |= {name} & (self.before_last if carried else self.ending)
                carried = carried and name in self.ending
        return found

    def repeat(self, loop: Repeat) -> None:
        """A few iterations, all others at the pace of the last of these, and the last one or two.

        What is walked does not depend on extents, so that each point costs what it does alone."""
        final = self.has_ahead and len(self.ending) == len(self.now)
        apart = int(final or loop.name in self.shorter) + (loop.name in self.foreseen)
        self._few(loop, apart)
        for left, now in ((2, self.before_last), (1, self.ending)):
            if left <= apart:
                now.add(loop.name)
                self._end(loop, left)
                now.remove(loop.name)

    def _few(self, loop: Repeat, apart: int) -> None:
        """All iterations but so many, which stand apart: none of these is a last one."""
        now = sorted(self.now.items())
        watched = ((n, min(i, self.watched[n] + 1)) for n, i in now if n in self.watched)
        matter = self.matter[loop.name]
        ends = (sorted(x & matter) for x in (self.ending, self.before_last))
        key = (loop.name, *watched, *map(tuple, ends))
        if (loop.name, apart) not in self.counts:
            self.counts[loop.name, apart] = _Iterations(np.maximum(loop.count - apart, 0))
        count, pace = self.counts[loop.name, apart], self.steady.get(key)
        again = max(AGAIN - apart, 1, self.watched.get(loop.name, 0) + 1)
        steady = pace is not None or count.most <= again
        walked = min(count.most, again) if steady else WALKED
        passed: dict[int, Array] = {}
        for n in range(walked):
            if n >= count.fewest or (not steady and n == WALKED - 2):
                passed[n] = np.array(self.times)
            self._iteration(loop, n)
        if not steady:
            pace = self.steady[key] = (self.times - passed[WALKED - 2]) / 2
        if count.most > walked:
            assert pace is not None
            self.times += pace * count.beyond(walked)
        for few in range(count.fewest, walked):
            np.copyto(self.times, passed[few], where=count.equal(few))

    def _end(self, loop: Repeat, left: int) -> None:
        """One of the last iterations, by its number where that matters to a block."""
        if (loop.name, left) not in self.numbers:
            most = max(self.watched.get(loop.name, -1) + 1, int(self.has_behind))
            numbers = np.minimum(loop.count - left, most)
            every = [(n, numbers == n) for n in np.unique(numbers).tolist() if n >= 0]
            self.numbers[loop.name, left] = every
        every = self.numbers[loop.name, left]
        if len(every) == 1 and every[0][1].all():
            self._iteration(loop, every[0][0])
            return
        before = np.array(self.times)
        after = np.array(before)
        for number, mine in every:
            self._iteration(loop, number)
            np.copyto(after, self.times, where=mine)
            self.times[:] = before
        self.times[:] = after

    def _iteration(self, loop: Repeat, number: int) -> None:
        """Walk an iteration."""
        self.now[loop.name] = number
        for name in loop.fresh:
            if age := self.ages.get(name, 0):
                for kind in ("read", "written"):
                    row = self.rows[kind, name, 0]
                    self.times[row + 1 : row + age + 1] = self.times[row : row + age]
        self.nodes(loop.body)
        del self.now[loop.name]

    def run(self, block: Block) -> None:
        """Run a block."""
        row, unit = self.row, block.unit
        touched = self.touched[id(block)]
        start = own = row[touched.unit]
        for read in touched.reads:
            start = np.maximum(start, row[read])
        for write, count in touched.writes:
            start = np.maximum(start, self._released(write, count))
        if block.held:
            other = row[self.rows["unit", block.held, 0]]
            start = np.where(block.share == 1, np.maximum(start, other), start)
        hosted = unit in self.machine.queues
        if hosted:
            start, end = self._issued(block, start)
            row[self.rows["before", unit, 0]][:] = own
        else:
            end = start + block.cycles
        if unit not in self.begun:
            self.begun[unit] = np.array(start)
        if block.held:
            other = row[self.rows["unit", block.held, 0]]
            beside = other + block.share * block.cycles
            other[:] = np.where(block.share == 1, np.maximum(other, end), beside)
        if block.posts:
            posted = row[self.rows["posted", unit, 0]]
            np.maximum(np.maximum(posted, start) + block.written, end, out=posted)
        own[:] = end  # `start` may be the same array until here.
        if hosted:
            host = row[0]
            np.maximum(host, self._room(block, self.machine.queues[unit]), out=host)
        if self.machine.handover:
            end = end + self.machine.handover
        for number in touched.ends:
            np.maximum(row[number], end, out=row[number])

    def _issued(self, block: Block, start: Array) -> tuple[Array, Array]:
        """When a block begins and ends whose calls a host issues, which goes on when they are in
        the queue."""
        host, unit = self.row[0], block.unit
        each = block.issuing / block.calls
        arrival = np.maximum(host + each, self._room_before(unit, self.machine.queues[unit] - 1))
        start = np.maximum(start, arrival)
        rest = block.issuing - each
        host[:] = arrival + rest
        self.queued[unit] = block, self.queued[unit][0] if unit in self.queued else None
        return start, np.maximum(start + block.cycles, host + block.cycles / block.calls)

    def _released(self, row: int, versions: Counts) -> Array:
        """When all have read what is in the place of the version that is written."""
        if len(versions) == 1:
            return self.row[row + int(versions[0])]
        return self.times[row + versions, self.columns]

    def _room_before(self, unit: str, left: int) -> Array:
        """When at most so many calls of a unit are not done, of those issued until now."""
        return self._room(self.queued[unit][0], left) if unit in self.queued else ZERO

    def _room(self, block: Block, left: int) -> Array:
        """When at most so many calls of a block and the one before on its unit are not done."""
        _, other = self.queued[block.unit]
        key = (id(block), id(other), left)
        room = self.rooms.get(key)
        if room is None:
            room = self.rooms[key] = _Room.of(block, other, left)
        last = self.times[self.rows["unit", block.unit, 0]]
        before = self.times[self.rows["before", block.unit, 0]]
        return room.when(last, before)


class _Room(NamedTuple):
    """When a queue has room: while one of the two last blocks runs, or before."""

    own: Array
    before: Array
    in_own: NDArray[np.bool_]
    in_before: NDArray[np.bool_]

    @staticmethod
    def of(block: Block, other: Block | None, left: int) -> _Room:
        """Of the last block, the one before it, and how many of their calls may stand in it."""
        own = block.cycles * np.minimum(1, left / block.calls)
        in_own = block.calls > left
        if other is None:
            return _Room(own, ZERO, in_own, np.zeros(1, np.bool_))
        before = other.cycles * np.minimum(1, (left - block.calls) / other.calls)
        return _Room(own, before, in_own, block.calls + other.calls > left)

    def when(self, last: Array, before: Array) -> Array:
        if self.in_own.all():
            return last - self.own
        found = np.where(self.in_before, before - self.before, 0) if self.in_before.any() else ZERO
        return np.where(self.in_own, last - self.own, found) if self.in_own.any() else found
