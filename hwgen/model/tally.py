"""How often a program's operations run: polynomials over the trips of its loops.

A program is walked once, without a clock. Of a loop's iterations those that repeat stand for what
grows with its trips; the others, at its ends, are counted one by one. `tally` counts the operations
of the stream that the timing model runs; `executed` counts some nodes by the values of a few
expressions, as if nothing stood between them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import product
from typing import Generic, TypeVar

from hwgen.codegen.nodes import Body, Call, If, Loop, Node, inner, with_inner
from hwgen.codegen.program import MicroKernelDef, Program
from hwgen.codegen.sync_nodes import Edge
from hwgen.spec.expression import Expr, names
from hwgen.spec.hardware import HardwareSpec

from .costs import CycleCosts
from .loop_runner import LoopRunner
from .periodicity import Watched, Zone
from .stream import ISSUER, Operation, Stream

EXACT_OPERATIONS = 1 << 18
"""Operations that are counted one by one, where they do not repeat."""
SAMPLED = 8
"""Past that, so many iterations of a loop stand for all that differ by their alignment alone."""

Monomial = tuple[str, ...]
"""Parameters that are multiplied, outermost loop first."""
Count = dict[Monomial, int | Fraction]
"""A polynomial: the factor of each monomial."""
ONCE: Count = {(): 1}
"""Whatever the trips."""
Counts = dict[tuple[int, ...], Count]
"""How often what has each key runs."""
Key = TypeVar("Key", bound=Hashable)
N = TypeVar("N", bound=Call | Edge)


@dataclass(slots=True)
class Parameter:
    """The trips of a loop of the schedule. `bounds`: the loops of the program that have as many."""

    name: str
    loop: str
    trips: int
    bounds: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])


class Parameters:
    """A parameter for each loop of a schedule, and another one where it has other trips: parts of
    it may stand in several loops of the program. Other loops are of a call, and numbers."""

    def __init__(self, loops: Collection[str]) -> None:
        self._loops = loops
        self._found: dict[tuple[str, int], Parameter] = {}

    @property
    def all(self) -> tuple[Parameter, ...]:
        return tuple(self._found.values())

    def of(self, loop: str, first: int, end: int) -> str:
        """The parameter of a loop from `first` to before `end`; "" where it has none."""
        if loop not in self._loops or end - first < 2:
            return ""
        key = loop, end - first
        if key not in self._found:
            mine = [p.name for p in self.all if p.loop == loop]
            taken = {*self._loops, *(p.name for p in self.all)} if mine else ()
            name, number = loop, 1
            while name in taken:
                number += 1
                name = f"{loop}_{number}"
            self._found[key] = Parameter(name, loop, end - first)
        bounds = self._found[key].bounds
        if (first, end) not in bounds:
            bounds.append((first, end))
        return self._found[key].name


@dataclass(frozen=True, slots=True)
class Kind:
    """Operations that are alike. `cycles`: that each keeps its unit busy for, with its bus to
    itself. `rule`: the spec's formula of a call, `given` what it names and `runs` how many calls
    are one operation. `posts`: its writes are left to the bus's buffer."""

    unit: str
    name: str
    cycles: int
    rule: Expr | None = None
    given: tuple[tuple[str, int], ...] = ()
    runs: int = 1
    posts: bool = False


class Kinds(CycleCosts):
    """The timing model's costs, with what they were worked out from."""

    def __init__(self, program: Program, hardware: HardwareSpec) -> None:
        super().__init__(program, hardware)
        self._numbers: dict[Kind, int] = {}
        self._of: dict[int, int] = {}
        # Micro-kernels are loaded before their first call.
        self.once: set[int] = set()

    @property
    def all(self) -> tuple[Kind, ...]:
        """By their numbers."""
        return tuple(self._numbers)

    def number(self, operation: Operation) -> int:
        """The number of an operation's kind."""
        if operation.identity not in self._of:
            self._know(operation)
        return self._of[operation.identity]

    def operation(self, call: Call, values: tuple[int, ...]) -> Operation:
        made = super().operation(call, values)
        intrinsic = self.hardware.intrinsic[call.intrinsic]
        self._know(made, intrinsic.cycles, self.given, made.instructions // intrinsic.instructions)
        return made

    def kernel_load(self, call: Call, kernel: MicroKernelDef, first: int) -> Operation:
        made = super().kernel_load(call, kernel, first)
        micro = self.hardware.intrinsic[call.intrinsic].micro_kernel
        assert micro is not None
        self._know(made, micro.load_cycles, self.given)
        self.once.add(made.identity)
        return made

    def _know(
        self,
        made: Operation,
        rule: Expr | None = None,
        given: Mapping[str, int] | None = None,
        runs: int = 1,
    ) -> None:
        known = dict(given or {})
        if made.posts:
            known["transfer"] = self.alone(made) - made.cycles
        used = tuple((n, known[n]) for n in (names(rule) if rule is not None else ()))
        unit = self.hardware.units[made.unit].name
        kind = Kind(unit, made.name, self.alone(made), rule, used, runs, made.posts)
        self._of[made.identity] = self._numbers.setdefault(kind, len(self._numbers))


@dataclass(slots=True)
class _Iteration:
    """What an iteration did, and how many are like it, itself included."""

    counts: Counts
    times: int = 1


def _weighed(
    done: Sequence[_Iteration], parameter: str, zones: Sequence[Zone]
) -> Iterator[tuple[Counts, Count]]:
    """What a loop's iterations did, and how often.

    Those of its longest zone that come back with the zone's period take what the trips leave.
    """
    if not parameter:
        for iteration in done:
            yield iteration.counts, {(): iteration.times}
        return
    middle = len(zones) // 2
    zone = max(zones, key=lambda z: (z.end - z.start, -abs(zones.index(z) - middle)))
    # By what they did: that, how many iterations did it, and how many of the zone.
    alike: dict[Hashable, tuple[Counts, int, int]] = {}
    last: Hashable = None
    place = zones[0].start
    for iteration in done:
        held = frozenset((n, frozenset(count.items())) for n, count in iteration.counts.items())
        inside = zone.start <= place < zone.end
        counts, n, k = alike.get(held, (iteration.counts, 0, 0))
        alike[held] = counts, n + iteration.times, k + iteration.times * inside
        last = held if inside else last
        place += iteration.times
    size = zone.end - zone.start
    period = min(zone.period, size) or size
    share = {held: round(Fraction(k * period, size)) for held, (_, _, k) in alike.items()}
    if not any(share.values()):
        share[last] = 1
    trips = place - zones[0].start
    for held, (counts, n, _) in alike.items():
        each = Fraction(share[held], sum(share.values()))
        yield counts, {(parameter,): each, (): n - each * trips}


def add(into: dict[Key, Count], counts: Mapping[Key, Count], factor: Count) -> None:
    """Add counts so often to other ones."""
    for key, count in counts.items():
        sums = into.setdefault(key, {})
        for (inside, n), (outer, times) in product(count.items(), factor.items()):
            monomial = tuple(sorted((*outer, *inside)))
            if total := sums.get(monomial, 0) + n * times:
                sums[monomial] = total
            else:
                sums.pop(monomial, None)


class _Loop(LoopRunner):
    """A loop whose iterations are told apart."""

    def __init__(self, walk: Tally, loop: Loop) -> None:
        super().__init__(walk, loop)
        self.walk = walk

    def run(self) -> None:
        values, walk = self.stream.values, self.walk
        first, end = self.lower(values), self.upper(values)
        if first >= end:
            return
        parameter = walk.parameters.of(self.loop.variable, first, end)
        zones, done, outside = self._zones(first, end), list[_Iteration](), walk.here
        for zone in zones:
            self._run_zone(zone, done)
        walk.here = outside
        for counts, factor in _weighed(done, parameter, zones):
            add(outside, counts, factor)

    def _run_zone(self, zone: Zone, done: list[_Iteration]) -> None:
        """Run iterations until whole periods of them leave the stream as they found it. These stand
        for the others."""
        walk, v = self.walk, zone.start
        period = zone.period or zone.end - v
        sampled = zone.structure * -(-SAMPLED // max(1, zone.structure))
        if walk.approximate and 0 < sampled < period:
            period, walk.exact = sampled, False
        seen: dict[Hashable, tuple[int, int]] = {}
        while v < zone.end:
            if (v - zone.start) % period == 0:
                start, mark = seen.setdefault(walk.state, (v, len(done)))
                times = (zone.end - v) // (v - start) if v > start else 0
                for iteration in done[mark:]:
                    iteration.times *= 1 + times
                v += times * (v - start)
                if v == zone.end:
                    break
            done.append(_Iteration({}))
            walk.here = done[-1].counts
            walk.values[self.slot] = v
            for part in self.body:
                part()
            v += 1


class Tally(Stream):
    """A stream that is counted, without a clock. `counts`: of the whole program; `here`: of the
    iteration that runs."""

    def __init__(
        self, program: Program, costs: CycleCosts, parameters: Parameters, limit: int = 1 << 62
    ) -> None:
        self.counts: Counts = {}
        self.here = self.counts
        self.parameters = parameters
        super().__init__(program, costs.hardware, costs, self, limit=limit)

    @property
    def state(self) -> Hashable:
        """All that decides to which operations the next synchronisation is attached."""
        last = self._last
        sent = None if last is None else (last.unit, self._last_is_call, last.pushes)
        return sent, tuple(self._pops)

    def count(self, into: Counts, key: tuple[int, ...]) -> None:
        """Count one more of a key."""
        count = into.setdefault(key, {})
        count[()] = count.get((), 0) + 1

    def accept(self, operation: Operation, where: tuple[int, ...]) -> None:
        """Nothing: it was counted when it was sent."""
        del operation, where

    def _compile(self, node: Node) -> Callable[[], None]:
        return _Loop(self, node).run if isinstance(node, Loop) else super()._compile(node)


class _Operations(Tally):
    """Counts the operations of units by their kinds."""

    def __init__(self, kinds: Kinds, parameters: Parameters, limit: int) -> None:
        self.kinds = kinds
        super().__init__(kinds.program, kinds, parameters, limit)

    def call(self, base: Operation, where: tuple[int, ...], *, is_call: bool = True) -> None:
        super().call(base, where, is_call=is_call)
        if base.unit != ISSUER:
            into = self.counts if base.identity in self.kinds.once else self.here
            self.count(into, (self.kinds.number(base),))


def tally(
    program: Program, hardware: HardwareSpec, parameters: Parameters
) -> tuple[dict[Kind, Count], bool]:
    """How often operations of each kind run, of a program that units run alone; and whether that is
    exact. If very many do not repeat, kinds that differ only by the alignment of their bursts share
    their calls at the rate of a few iterations."""
    for limit in (EXACT_OPERATIONS, 1 << 62):
        kinds = Kinds(program, hardware)
        walk = _Operations(kinds, parameters, limit)
        walk.approximate = limit > EXACT_OPERATIONS
        walk.run()
        if not walk.truncated:
            return {kinds.all[n]: count for (n,), count in walk.counts.items()}, walk.exact
    raise AssertionError("the second walk has no limit")


# Nodes by themselves


@dataclass(frozen=True, slots=True)
class Executed(Generic[N]):
    """Executions of a node in which what is wanted of it has the same `values`."""

    node: N
    values: tuple[int, ...]
    count: Count

    @property
    def times(self) -> int:
        """How many, where nothing was made a parameter."""
        return int(self.count[()])


class _Nodes(Tally):
    """Counts nodes by the values of what is wanted of them."""

    def __init__(
        self,
        program: Program,
        hardware: HardwareSpec,
        wanted: Mapping[int, Sequence[Expr]],
        parameters: Parameters,
    ) -> None:
        self._wanted = wanted
        super().__init__(program, CycleCosts(program, hardware), parameters)

    def watched(self, call: Call) -> tuple[Watched, ...]:
        return tuple(Watched(e) for e in self._wanted[id(call)])

    def _compile(self, node: Node) -> Callable[[], None]:
        if isinstance(node, Loop | If):
            return super()._compile(node)
        values, number = self.values, id(node)
        makers = [self.compile(e) for e in self._wanted[number]]
        return lambda: self.count(self.here, (number, *[make(values) for make in makers]))

    def run(self) -> None:
        for node in self._root:
            node()


def executed(
    program: Program,
    hardware: HardwareSpec,
    of: type[N],
    wanted: Callable[[N], Sequence[Expr] | None],
    parameters: Parameters | None = None,
) -> Iterator[Executed[N]]:
    """Count the executions of nodes, exactly, by the values of what is wanted of them.

    `of`: the kind of node. `wanted`: the expressions of a node, or None to leave it out.
    """
    known: dict[int, N] = {}
    found: dict[int, Sequence[Expr]] = {}

    def kept(body: Body) -> Body:
        some: list[Node] = []
        for node in body:
            around = with_inner(node, kept)
            if isinstance(node, of) and (values := wanted(node)) is not None:
                known[id(node)], found[id(node)] = node, values
            if inner(around) or id(node) in found:
                some.append(around)
        return tuple(some)

    part = replace(program, body=kept(program.body))
    walk = _Nodes(part, hardware, found, parameters or Parameters(()))
    walk.run()
    for (number, *values), count in walk.counts.items():
        yield Executed(known[number], tuple(values), count)
