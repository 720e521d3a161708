"""The synchronisation that a program needs: the least that orders every cross-unit conflict.

Two calls of different units conflict where they touch the same entries and one of them
writes. Units are in order, so a wait for a call covers every earlier call of its unit. The calls
are walked in order; what a unit already knows to be done, by its own waits and by what those it
waited for knew, needs no further wait. Units that cannot tell each other anything do so by way of a
third that has a call in between. What the chip offers decides what a
wait is: tokens, events (numbered flags), or barriers; a scoreboard needs fences alone, for what one
phase stores off chip and another loads. The simulator's race detector checks the result on the real
program, with none of this reasoning.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import lcm, prod

from hwgen.codegen.lower.conflicts import Box, Counters, Instance, inside
from hwgen.codegen.lower.sites import Body, CallSite, Item, sites_of
from hwgen.codegen.lower.stream import Stream
from hwgen.codegen.nodes import Barrier, Pop, Push, Signal, SyncNode, Wait
from hwgen.errors import HwgenError
from hwgen.spec.hardware import Barriers, Events, HardwareSpec, Scoreboard, Tokens

Edge = tuple[str, str]
Clock = dict[str, int]
"""By unit: the latest position in the stream of its calls that are known to be done."""


@dataclass(frozen=True, slots=True)
class SyncSite:
    """`node` stands before or after the calls of a site at the tile counters in `boxes`."""

    node: SyncNode
    before: bool
    site: int
    boxes: tuple[Box, ...]


@dataclass(frozen=True, slots=True)
class _Pairs:
    """Per edge, what must be exchanged: call u of its source, before call v of its target, as
    positions that increase on both sides; and each call's clock when it is done. `relayed`: whether
    some of it goes by way of a third unit."""

    exchanged: dict[Edge, list[tuple[int, int]]]
    clocks: list[Clock]
    relayed: bool = False


def synchronise(hardware: HardwareSpec, program: Stream) -> list[SyncSite]:
    """Synchronisation for a program, found on it with its loops cut.

    Raises:
        HwgenError: H611 where the chip cannot order two conflicting units, H615 where it has too
            few flags.
    """
    match hardware.synchronization:
        case None:
            return []
        case Scoreboard() as board:
            return _fences(hardware, board, program)
        case Tokens():
            program, pairs = _settled(hardware, program)
            edges = pairs.exchanged
            ends = {edge: (Push(*edge), Pop(*edge)) for edge in edges}
            return _exchanges(program, program.instances, edges, ends)
        case Events() as events:
            program, pairs, most = _outstanding(hardware, events, *_settled(hardware, program))
            flags = _flags(hardware, events, most)
            ends = {edge: (Signal(*edge, *f), Wait(*edge, *f)) for edge, f in flags.items()}
            return _exchanges(program, program.instances, pairs.exchanged, ends)
        case Barriers() as barriers:
            # A barrier serves every buffer: what needs none after it shows up slots later.
            period = lcm(*(t.slots for s in program.sites for t in s.touches if not t.kept))
            program = program.cut(program.reach, period)
            return _barriers(
                hardware, barriers, program, program.cut(program.reach + period, period)
            )


def _settled(hardware: HardwareSpec, program: Stream) -> tuple[Stream, _Pairs]:
    """What must be exchanged, found on a program whose loops are cut so little that it does not
    change any more: what goes by way of a third unit may reach over several generations of its
    buffers.

    Raises:
        HwgenError: H611.
    """
    program, pairs = _pairs(hardware, program)
    while pairs.relayed:
        longer = program.cut(program.reach + max(program.reach, program.period))
        if longer.short == program.short:
            break
        longer, more = _pairs(hardware, longer)
        settled = _places(program, pairs) == _places(longer, more)
        program, pairs = longer, more
        if settled:
            break
    return program, pairs


def _places(program: Stream, pairs: _Pairs) -> list[SyncSite]:
    ends = {edge: (Push(*edge), Pop(*edge)) for edge in pairs.exchanged}
    return _exchanges(program, program.instances, pairs.exchanged, ends)


def _pairs(hardware: HardwareSpec, program: Stream) -> tuple[Stream, _Pairs]:
    """What must be exchanged, and the program that it is of: cut less where one side of an exchange
    would stand for more calls than the other, so that as many tokens are given as taken."""
    while True:
        pairs = _of_instances(hardware, program)
        calls = program.instances
        matched = (pair for found in pairs.exchanged.values() for pair in found)
        uneven = {loop for a, b in matched for loop in program.uneven(calls[a], calls[b])}
        if not uneven:
            return program, pairs
        program = program.uncut(uneven)


def _of_instances(hardware: HardwareSpec, program: Stream) -> _Pairs:
    """What must be exchanged, where needed by way of third units, as the program is cut."""
    instances, relayed = program.instances, False
    while True:
        found = _exchanged(hardware, program, instances)
        if isinstance(found, _Pairs):
            return replace(found, relayed=relayed)
        instances, relayed = found, True


def _exchanged(
    hardware: HardwareSpec, program: Stream, instances: Sequence[Instance]
) -> _Pairs | list[Instance]:
    """What must be exchanged; where two units exchange nothing, the instances as they are when a
    call of a third waits for the first of them, and the second for that call."""
    exchanged: dict[Edge, list[tuple[int, int]]] = {}
    known: dict[str, Clock] = {}
    clocks: list[Clock] = []
    for position, call in enumerate(instances):
        mine = known.setdefault(call.unit, {})
        needed = [(other, when) for other, when in call.latest if when > mine.get(other, -1)]
        for other, when in needed:
            # What another of these waits brings along needs none of its own.
            if any(clocks[w].get(other, -1) >= when for o, w in needed if o != other):
                continue
            if not _can_tell(hardware, other, call.unit):
                site = program.sites[call.site]
                edge, between = (other, call.unit), (when, position)
                through = _through(hardware, instances, edge, between)
                if through is None:
                    raise _no_edge(hardware, other, call.unit, site)
                return _relayed(instances, other, when, through, position)
            exchanged.setdefault((other, call.unit), []).append((when, position))
        for _, when in needed:
            for unit, done in clocks[when].items():
                mine[unit] = max(mine.get(unit, -1), done)
        mine[call.unit] = position
        clocks.append(dict(mine))
    return _Pairs(exchanged, clocks)


def _exchanges(
    program: Stream,
    instances: Sequence[Instance],
    exchanged: Mapping[Edge, Sequence[tuple[int, int]]],
    ends: Mapping[Edge, tuple[SyncNode, SyncNode]],
) -> list[SyncSite]:
    """Each edge's nodes after its sources and before its targets."""
    result: list[SyncSite] = []
    for side in (0, 1):
        places: dict[tuple[Edge, int], set[Counters]] = {}
        for edge, pairs in exchanged.items():
            for pair in pairs:
                call = instances[pair[side]]
                places.setdefault((edge, call.site), set()).add(call.counters)
        for (edge, site), points in sorted(places.items()):
            boxes = program.boxes(points, site)
            result.append(SyncSite(ends[edge][side], side == 1, site, boxes))
    return result


def _flags(
    hardware: HardwareSpec, events: Events, outstanding: Mapping[Edge, int]
) -> dict[Edge, tuple[int, int]]:
    """First flag and number of flags of each edge, taken in turn; `outstanding`: as many signals as
    they must count together."""
    found: dict[Edge, tuple[int, int]] = {}
    first = 0
    for edge in events.edges:
        if edge not in outstanding:
            continue
        most = outstanding[edge]
        count = -(-most // events.maximum)
        if first + count > events.flags:
            raise HwgenError(
                "H615",
                f"synchronising {edge[0]} with {edge[1]} needs more flags than there are",
                location=hardware.location,
                field="synchronization.flags",
                found=f"{most} signals before the first is awaited: {count} flags that count to "
                f"{events.maximum}" + (f", after {first} of other edges" if first else ""),
                allowed=f"at most {events.flags}",
                repair="fewer slots, or fewer buffers in use at once",
            )
        found[edge] = (first, count)
        first += count if events.shared else 0
    return found


def _outstanding(
    hardware: HardwareSpec, events: Events, program: Stream, pairs: _Pairs
) -> tuple[Stream, _Pairs, dict[Edge, int]]:
    """Per edge, the most signals that its source cannot know to be taken, of a program and what
    must be exchanged in it.

    Loads that stay hear nothing back, so that their signals add up over all iterations: the program
    is then cut less until they are no more, or too many for the flags anyway. Cut less, it may also
    be known of iterations that they touch nothing in common, and need no edge.
    """
    most = _unanswered(pairs)
    kept = any(t.kept for s in program.sites for t in s.touches)
    while kept and max(most.values(), default=0) <= events.flags * events.maximum:
        longer = program.cut(2 * program.reach)
        if longer.short == program.short:
            break
        longer, further = _pairs(hardware, longer)
        more = _unanswered(further)
        if more == most:
            break
        program, pairs, most = longer, further, more
    return program, pairs, most


def _unanswered(pairs: _Pairs) -> dict[Edge, int]:
    """Per edge, how many earlier signals its source may find not yet taken, and its own."""
    found: dict[Edge, int] = {}
    for edge, exchanged in pairs.exchanged.items():
        most = taken = 0
        for k, (signal, _) in enumerate(exchanged):
            # Waits come before their calls: a call known to be done took its flag.
            done = pairs.clocks[signal].get(edge[1], -1)
            while exchanged[taken][1] <= done:
                taken += 1
            most = max(most, k + 1 - taken)
        found[edge] = most
    return found


def _fences(hardware: HardwareSpec, board: Scoreboard, program: Stream) -> list[SyncSite]:
    """Waits for what the hardware does not order: conflicts in off-chip memory."""
    apart = program.offchip()
    users = {s.unit for s in apart.sites if s.touches}
    if len(users) < 2:
        return []
    if not board.fence:
        tensors = sorted({t.buffer for s in apart.sites for t in s.touches})
        raise HwgenError(
            "H611",
            f"units {' and '.join(sorted(users))} share off-chip data, which no fence orders",
            location=hardware.location,
            field="synchronization.fence",
            found=f"a scoreboard of on-chip memories, and {', '.join(tensors)} off chip",
            allowed="a fence, which waits for all calls",
            repair="add fence if the chip has such a call",
        )
    every = Barriers((), "", board.fence, board.fence_cycles)
    return _barriers(hardware, every, apart, apart.cut(apart.reach + 1))


class _Issued:
    """How many calls come between two of a program whose loops are cut: those that are left, and of
    loops that lie between them as a whole also those that were cut."""

    def __init__(self, program: Stream) -> None:
        self.program = program
        self.instances = program.instances

    def after(self, unit: str, call: int, place: int) -> int:
        """Calls of a unit after one of its own and before another, by their positions."""
        counts, around = self._walked
        site = self.program.sites[self.instances[call].site]
        between = counts[place].get(unit, 0) - counts[call].get(unit, 0) - _calls(site)
        # Of the loops around the first that have ended by then, it is not known which iteration
        # of the middle it was in.
        ended = [x for x in around[call] if not any(x is y for y in around[place])]
        return between - sum(x.get(unit, 0) for x in ended)

    @cached_property
    def _walked(self) -> tuple[list[dict[str, int]], list[tuple[dict[str, int], ...]]]:
        """Of each call: by unit the calls before it, and of the loops around it those cut, which
        count where such a loop ends."""
        program, counts, around = self.program, list[dict[str, int]](), list[_Cuts]()
        count: dict[str, int] = {}

        def walk(items: Sequence[Item], counters: Counters, cuts: _Cuts) -> None:
            for item in items:
                if isinstance(item, Body):
                    loop(item, counters, cuts)
                    continue
                if len(counts) == len(self.instances):
                    return
                call = self.instances[len(counts)]
                if (call.site, call.counters) == (item.index, counters):
                    counts.append(dict(count))
                    around.append(cuts)
                    count[item.unit] = count.get(item.unit, 0) + _calls(item)

        def loop(body: Body, counters: Counters, cuts: _Cuts) -> None:
            short = program.short[next(sites_of(body.items)).index][len(counters)]
            skipped = (body.loop.high - body.loop.low - short) // program.period
            cut: dict[str, int] = {}
            before: dict[str, int] = {}
            middle: dict[str, int] = {}
            for c in range(short):
                if c == program.reach:
                    before = dict(count)
                walk(body.items, (*counters, c), (*cuts, cut))
                if c == program.reach + program.period - 1:
                    middle = {unit: n - before.get(unit, 0) for unit, n in count.items()}
            for unit, n in middle.items() if skipped else ():
                cut[unit] = n * skipped
                count[unit] += cut[unit]

        walk(program.items, (), ())
        return counts, around


_Cuts = tuple[dict[str, int], ...]


def _calls(site: CallSite) -> int:
    """Calls that a site makes in one iteration of the loops around it."""
    return prod(walk.extent for walk in site.absorbed.outer)


class _Waited:
    """Which calls the waits so far were for: by unit, the latest place of a wait that leaves so
    many outstanding."""

    def __init__(self, issued: _Issued) -> None:
        self.issued = issued
        self.places: dict[str, dict[int, int]] = {}

    def has(self, unit: str, call: int) -> bool:
        return any(
            place > call and (not left or self.issued.after(unit, call, place) >= left)
            for left, place in self.places.get(unit, {}).items()
        )

    def add(self, unit: str, left: int, place: int) -> None:
        self.places.setdefault(unit, {})[left] = place


def _barriers(
    hardware: HardwareSpec, barriers: Barriers, program: Stream, longer: Stream
) -> list[SyncSite]:
    """A wait stands as late as the first call that needs it allows: so it serves most calls. It
    leaves as many calls outstanding as were issued after the one that is needed, so that none waits
    for more than it must.

    Where the waits do not repeat as assumed, which `longer` shows, every call that ever waits for a
    unit always does.
    """
    issued = _Issued(program)
    waited = _Waited(issued)
    places: dict[tuple[str, int, int], set[Counters]] = {}
    units = [unit.name for unit in hardware.units]
    most = barriers.outstanding
    for position, call in enumerate(issued.instances):
        needed = {
            other: min(most, issued.after(other, when, position)) if most else 0
            for other, when in call.latest
            if not waited.has(other, when)
        }
        single = all(other in barriers.units for other in needed)
        several = len(needed) > 1 and not any(needed.values())
        together = bool(barriers.emit_all) and (several or not single)
        if needed and not single and not together:
            missing = next(other for other in needed if other not in barriers.units)
            raise _misfit(hardware, missing, program.sites[call.site], "units", barriers.units)
        for unit, left in {"": 0}.items() if together else needed.items():
            places.setdefault((unit, call.site, left), set()).add(call.counters)
        for unit, left in dict.fromkeys(units, 0).items() if together else needed.items():
            waited.add(unit, left, position)
    boxes = {place: program.boxes(points, place[1]) for place, points in places.items()}
    if not _all_waited(units, longer, boxes):
        # Fewest left where a site's waits differ.
        least = {place[:2]: place[2] for place in sorted(boxes, reverse=True)}
        boxes = {
            (unit, site, left): (tuple((a, b, 1) for a, b in program.sites[site].ranges),)
            for (unit, site), left in least.items()
        }
    return [
        SyncSite(Barrier(unit, outstanding=left), True, site, box)
        for (unit, site, left), box in sorted(boxes.items())
    ]


def _all_waited(
    units: Sequence[str], program: Stream, boxes: Mapping[tuple[str, int, int], Sequence[Box]]
) -> bool:
    """Whether every conflict of a program has its wait at the places given as boxes."""
    by_site: dict[int, list[tuple[str, int, Sequence[Box]]]] = {}
    for (unit, site, left), where in boxes.items():
        by_site.setdefault(site, []).append((unit, left, where))
    waited = _Waited(_Issued(program))
    for position, call in enumerate(waited.issued.instances):
        counters = program.real(call)
        for unit, left, where in by_site.get(call.site, ()):
            if inside(counters, where):
                for one in [unit] if unit else units:
                    waited.add(one, left, position)
        if not all(waited.has(other, when) for other, when in call.latest):
            return False
    return True


def _can_tell(hardware: HardwareSpec, source: str, target: str) -> bool:
    """Whether one unit can tell another."""
    exchange = hardware.tokens or hardware.events
    assert exchange is not None
    return (source, target) in exchange.edges


def _through(
    hardware: HardwareSpec, instances: Sequence[Instance], edge: Edge, between: tuple[int, int]
) -> int | None:
    """The last call between two that its unit can hear of the first before, and tell the second
    after."""
    source, target = edge
    for position in reversed(range(between[0] + 1, between[1])):
        unit = instances[position].unit
        if _can_tell(hardware, source, unit) and _can_tell(hardware, unit, target):
            return position
    return None


def _relayed(
    instances: Sequence[Instance], source: str, when: int, through: int, position: int
) -> list[Instance]:
    """A call waits for another by way of a third that comes between them."""
    result = list(instances)
    first, second = instances[through], instances[position]
    heard = {**dict(first.latest), source: max(when, dict(first.latest).get(source, -1))}
    told = {n: w for n, w in second.latest if n != source}
    told[first.unit] = max(through, told.get(first.unit, -1))
    result[through] = replace(first, latest=tuple(sorted(heard.items())))
    result[position] = replace(second, latest=tuple(sorted(told.items())))
    return result


def _no_edge(hardware: HardwareSpec, source: str, target: str, site: CallSite) -> HwgenError:
    exchange = hardware.tokens or hardware.events
    assert exchange is not None
    what, short = ("token queue", "queue") if hardware.tokens else ("flag", "flag")
    return HwgenError(
        "H611",
        f"units {source} and {target} share data but no {what}",
        location=hardware.location,
        field="synchronization.edges",
        found=f"{site.operation.intrinsic.name} waits for {source}",
        allowed=", ".join(f"{a} -> {b}" for a, b in exchange.edges),
        repair=f"add [{source}, {target}] if the chip has such a {short}",
    )


def _misfit(
    hardware: HardwareSpec, source: str, site: CallSite, field: str, known: Sequence[str]
) -> HwgenError:
    return HwgenError(
        "H611",
        f"no barrier waits for unit {source}",
        location=hardware.location,
        field=f"synchronization.{field}",
        found=f"{site.operation.intrinsic.name} waits for {source}",
        allowed=", ".join(known),
        repair=f"add {source}, or emit_all, if the chip has such a call",
    )
