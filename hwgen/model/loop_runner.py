"""The loops of an instruction stream: run, or skipped where their iterations repeat."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import TYPE_CHECKING, NamedTuple

from hwgen.codegen.nodes import Call, Loop, Node, inner, nodes
from hwgen.spec.expression import names
from hwgen.spec.intervals import Interval

from .periodicity import Zone, interval, watched_names, zones

if TYPE_CHECKING:
    from .stream import Sink, Stream

STEP_OPERATIONS = 24
"""A loop's state is compared about every so many operations."""
MARKS = 512
"""States remembered per loop."""
STATES, FEWEST_STATES = 3, 1
"""States of a loop that are seen before one stands for it, past the budget and past twice the
budget: of nested loops, each multiplies what the others inside of it take."""
SETTLING = 2
"""Iterations of a loop after which what was written before it is done, mostly."""
PHASES = 4
"""Of iterations that look the same, so many are compared with the present one."""
SAMPLE_OPERATIONS = 2048
SAMPLE_ITERATIONS = 8
"""Past the budget, so much of a loop is run before a part of its period stands for all of it."""

Zones = dict[int, dict[tuple[int, ...], tuple[Zone, ...]]]
"""Of each loop of a program, by its identity: its zones, by the values that decide on them."""


class _Seen(NamedTuple):
    """An iteration of a loop: the sink's mark where it begins, the operations until then, and of
    each edge the tokens that are due."""

    iteration: int
    mark: object
    emitted: int
    due: tuple[int, ...]


class LoopRunner:
    """One loop of the program; finds where its iterations repeat, and lets the sink skip them."""

    def __init__(self, stream: Stream, loop: Loop) -> None:
        self.stream = stream
        self.loop = loop
        self.lower = stream.compile(loop.lower)
        self.upper = stream.compile(loop.upper)
        self.slot = stream.slot(loop.variable)
        self.body = stream.compile_body(loop.body)
        self.watched = [
            w for w in stream.watched_in(loop.body) if loop.variable in names(w.expression)
        ]
        within = tuple(nodes(loop.body))
        self.touched = {t for n in within if isinstance(n, Call) for t in stream.costs.touched(n)}
        written = {t.place for t in self.touched if t.writes}
        # Of memories that nothing in the loop writes to.
        self.reads = {w.read for w in self.watched if w.read and w.read.place not in written}
        inner = {n.variable for n in within if isinstance(n, Loop)} | {loop.variable}
        self.deciding = [
            stream.slot(n)
            for n in dict.fromkeys(n for w in self.watched for n in watched_names(w))
            if n not in inner
        ]
        self.zones = stream.zones.setdefault(id(loop), {})

    def run(self) -> None:
        values, slot, body = self.stream.values, self.slot, self.body
        first, end = self.lower(values), self.upper(values)
        skip = self.stream.skip if end - first > 3 else None
        start = min(end, first + SETTLING) if skip and self.reads else first
        for v in range(first, start if skip else end):
            values[slot] = v
            for part in body:
                part()
        if skip:
            settled = all(skip.settled(read) for read in self.reads)
            for zone in self._zones(start, end, settled):
                self._skip(zone, skip)

    def _zones(self, first: int, end: int, settled: bool = False) -> tuple[Zone, ...]:
        """Its zones; `settled`: it does not matter where units read in what it does not write."""
        if first >= end:
            return ()
        values = self.stream.values
        key = (first, end, settled, *(values[s] for s in self.deciding))
        known = self.zones.get(key)
        if known is None:
            ranges = {n: (values[s], values[s]) for n, s in self.stream.variables.items()}
            ranges[self.loop.variable] = (first, end - 1)
            _inner_ranges(self.loop.body, ranges)
            watched = [w for w in self.watched if not (settled and w.read in self.reads)]
            known = zones(watched, self.loop.variable, (first, end - 1), ranges)
            self.zones[key] = known
        return known

    def _skip(self, zone: Zone, sink: Sink) -> None:
        stream, values, slot, body = self.stream, self.stream.values, self.slot, self.body
        v, end, step, stride = zone.start, zone.end, 0, 0
        seen: dict[Hashable, list[_Seen]] = {}
        sample: list[_Seen] = []
        watching = end - v > 2 * max(1, zone.period)
        structure = max(1, zone.structure)
        sampling = stream.approximate and structure < zone.period
        while v < end:
            found = None
            if watching and step and (v - zone.start) % step == 0 and end - v >= step:
                found = self._repeated(sink, seen, v, zone.period)
            if found is None and sampling and stride and (v - zone.start) % stride == 0:
                found = self._sampled(sink, sample, v)
            if found is not None:
                since = v - found.iteration
                times = (end - v) // since
                if times:
                    sink.repeat(found.mark, times)
                    v += times * since
                watching = sampling = False
                continue
            already = stream.emitted
            values[slot] = v
            for part in body:
                part()
            v += 1
            if not step:
                operations = max(1, stream.emitted - already)
                step, stride = (
                    period * -(-STEP_OPERATIONS // (operations * period))
                    for period in (zone.period or structure, structure)
                )

    def _now(self, sink: Sink, v: int) -> _Seen:
        stream = self.stream
        return _Seen(v, sink.mark(), stream.emitted, (*stream.due,))

    def _even(self, seen: Iterable[_Seen]) -> list[_Seen]:
        """Those since which as many tokens were taken as sent: of others, nobody would send or take
        what skipped iterations do."""
        due = (*self.stream.due,)
        return [s for s in seen if s.due == due]

    def _sampled(self, sink: Sink, sample: list[_Seen], v: int) -> _Seen | None:
        """Past the budget, an iteration from which on the loop has its mean rate, where its whole
        period would take too long; all iterations since have the same calls."""
        stream = self.stream
        if stream.emitted <= stream.budget:
            return None
        even = self._even(sample)
        if len(even) >= 3:
            long = stream.emitted - even[0].emitted >= SAMPLE_OPERATIONS
            if long and v - even[0].iteration >= SAMPLE_ITERATIONS:
                stream.exact = False
                return even[len(even) // 2]
        sample.append(self._now(sink, v))
        return None

    def _repeated(
        self, sink: Sink, seen: dict[Hashable, list[_Seen]], v: int, period: int
    ) -> _Seen | None:
        """The iteration whose state this one has again, or stands for it past the budget."""
        stream = self.stream
        signature: Hashable = stream.signature(sink, self.touched) if period else v
        alike = seen.setdefault(signature, [])
        for found in reversed(alike[-PHASES:]):
            if sink.steady(found.mark):
                return found
        count = sum(map(len, seen.values()))
        spent = stream.emitted > stream.budget or count >= MARKS
        fewest = STATES if stream.emitted <= 2 * stream.budget else FEWEST_STATES
        if stream.approximate and spent and count >= fewest:
            even = self._even(state for states in seen.values() for state in states)
            if even:
                stream.exact = False
                return sorted(even, key=lambda state: state.iteration)[len(even) // 2]
        alike.append(self._now(sink, v))
        return None


def _inner_ranges(nodes: tuple[Node, ...], ranges: dict[str, Interval]) -> None:
    """Add the ranges of the loops inside, over everything that the outer ranges allow."""
    for node in nodes:
        match node:
            case Loop(variable, lower, upper, body):
                low = interval(lower, ranges)[0]
                high = interval(upper, ranges)[1] - 1
                ranges[variable] = (low, max(low, high))
                _inner_ranges(body, ranges)
            case _:
                _inner_ranges(inner(node), ranges)
