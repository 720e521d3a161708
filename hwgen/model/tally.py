"""How often a program's operations run: polynomials over the trips of its loops.

The stream that the timing model runs is walked once, without a clock. Of a loop's iterations those
that repeat stand for what grows with its trips; the others, at its ends, are counted one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import product
from math import prod

from hwgen.codegen.nodes import Call, Loop, Node
from hwgen.codegen.program import MicroKernelDef, Program
from hwgen.spec.call_cycles import formula_names
from hwgen.spec.expression import Expr, names
from hwgen.spec.hardware import HardwareSpec, Intrinsic

from .costs import CycleCosts
from .loop_runner import LoopRunner
from .periodicity import Use, Zone
from .stream import ISSUER, Operation, Stream
from .traffic import Moved, off_chip_bytes

EXACT_OPERATIONS = 1 << 18
"""Operations that are sent one by one, where they do not repeat, before mean rates are taken."""
SAMPLED_OPERATIONS = 20_000
"""The same, of a stream that is longer."""

Monomial = tuple[str, ...]
"""Parameters that are multiplied, outermost loop first."""
Count = dict[Monomial, int | Fraction]
"""A polynomial: the factor of each monomial."""
Body = dict[int, Count]
"""How often each kind of operation runs."""


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
    are one operation. `moved`: off chip. `posts`: its writes are left to the bus's buffer."""

    unit: str
    name: str
    cycles: int
    rule: Expr | None = None
    given: tuple[tuple[str, int], ...] = ()
    runs: int = 1
    moved: tuple[Moved, ...] = ()
    posts: bool = False


class Kinds(CycleCosts):
    """The timing model's costs, with what they were worked out from."""

    def __init__(self, program: Program, hardware: HardwareSpec) -> None:
        super().__init__(program, hardware)
        self._numbers: dict[Kind, int] = {}
        self._of: dict[int, int] = {}
        self._given: Mapping[str, int] = {}
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
        extents = values[: len(call.extents)] if not call.kernel else ()
        runs = prod(extents[: intrinsic.software_loops])
        moved = off_chip_bytes(call, extents, self.program, self.hardware)
        self._know(made, intrinsic.cycles, self._given, runs, moved)
        return made

    def kernel_load(self, call: Call, kernel: MicroKernelDef, first: int) -> Operation:
        made = super().kernel_load(call, kernel, first)
        micro = self.hardware.intrinsic[call.intrinsic].micro_kernel
        assert micro is not None
        assert made.bursts is not None
        given = {"operations": kernel.operations, "bursts": made.bursts.count}
        given |= {"beats": made.bursts.total_beats, "transfer": self.alone(made) - made.cycles}
        self._know(made, micro.load_cycles, given)
        self.once.add(made.identity)
        return made

    def _cycles(
        self,
        intrinsic: Intrinsic,
        extents: tuple[int, ...],
        steps: tuple[int, ...],
        names: Mapping[str, int],
        fresh: bool,
    ) -> int:
        self._given = formula_names(intrinsic, extents, names)
        return super()._cycles(intrinsic, extents, steps, names, fresh)

    def _know(
        self,
        made: Operation,
        rule: Expr | None = None,
        given: Mapping[str, int] | None = None,
        runs: int = 1,
        moved: tuple[Moved, ...] = (),
    ) -> None:
        known = dict(given or {})
        if made.posts:
            known["transfer"] = self.alone(made) - made.cycles
        used = tuple((n, known[n]) for n in (names(rule) if rule is not None else ()))
        unit = self.hardware.units[made.unit].name
        kind = Kind(unit, made.name, self.alone(made), rule, used, runs, moved, made.posts)
        self._of[made.identity] = self._numbers.setdefault(kind, len(self._numbers))


@dataclass(slots=True)
class _Iteration:
    """What an iteration did, the how manieth it is, and how many are like it, itself included."""

    body: Body
    place: int
    times: int = 1


class _Ledger:
    """What has run so far, loop by loop; a `Sink` that lets iterations be skipped as soon as the
    stream's own state repeats."""

    def __init__(self) -> None:
        self.counts: Body = {}
        self._open: list[list[_Iteration]] = []

    def add(self, number: int, once: bool) -> None:
        """Count an operation of a kind; `once`: whatever the trips of the loops around it."""
        body = self._open[-1][-1].body if self._open and not once else self.counts
        count = body.setdefault(number, {})
        count[()] = count.get((), 0) + 1

    def enter(self) -> None:
        """A loop begins."""
        self._open.append([])

    def begin(self) -> None:
        """The next of its iterations begins."""
        done = self._open[-1]
        done.append(_Iteration({}, sum(i.times for i in done)))

    def leave(self, parameter: str, first: int, zones: Sequence[Zone]) -> None:
        """It has ended, and began at `first`."""
        done = self._open.pop()
        into = self._open[-1][-1].body if self._open else self.counts
        for body, factor in _weighed(done, parameter, first, zones):
            _add(into, body, factor)

    # As a sink

    def accept(self, operation: Operation, where: tuple[int, ...]) -> None:
        del operation, where

    def signature(self, touched: Set[Use]) -> Hashable:
        del touched
        return ()

    def settled(self, read: Use) -> bool:
        del read
        return False

    def mark(self) -> object:
        return len(self._open[-1])

    def steady(self, mark: object) -> bool:
        del mark
        return True

    def repeat(self, mark: object, times: int) -> None:
        assert isinstance(mark, int)
        for iteration in self._open[-1][mark:]:
            iteration.times += iteration.times * times


def _weighed(
    done: Sequence[_Iteration], parameter: str, first: int, zones: Sequence[Zone]
) -> Iterator[tuple[Body, Count]]:
    """The different bodies of a loop's iterations, and how often each runs.

    Those of its longest zone that come back with the zone's period take what the trips leave.
    """
    middle = len(zones) // 2
    longest = max(
        range(len(zones)), key=lambda n: (zones[n].end - zones[n].start, -abs(n - middle))
    )
    zone = zones[longest]
    # A body as what it holds, to its number.
    known: dict[Hashable, int] = {}
    bodies: list[Body] = []
    times: list[int] = []
    inside: list[int] = []
    last = 0
    for iteration in done:
        held = frozenset((n, frozenset(count.items())) for n, count in iteration.body.items())
        number = known.setdefault(held, len(bodies))
        if number == len(bodies):
            bodies.append(iteration.body)
            times.append(0)
            inside.append(0)
        times[number] += iteration.times
        if zone.start <= first + iteration.place < zone.end:
            inside[number] += iteration.times
            last = number
    if not parameter:
        for body, n in zip(bodies, times, strict=True):
            yield body, {(): n}
        return
    size = zone.end - zone.start
    period = min(zone.period, size) or size
    share = [round(Fraction(n * period, size)) for n in inside]
    if not any(share):
        share[last] = 1
    turn = sum(share)
    turns = min(n // k for n, k in zip(times, share, strict=True) if k)
    apart = sum(times) - turn * turns
    for body, n, k in zip(bodies, times, share, strict=True):
        each = Fraction(k, turn)
        yield body, {(parameter,): each, (): n - k * turns - each * apart}


def _add(into: Body, body: Body, factor: Count) -> None:
    """Add a body so often to another one."""
    for number, count in body.items():
        sums = into.setdefault(number, {})
        for (inner, n), (outer, times) in product(count.items(), factor.items()):
            monomial = tuple(sorted((*outer, *inner)))
            if total := sums.get(monomial, 0) + n * times:
                sums[monomial] = total
            else:
                sums.pop(monomial, None)


class _Loop(LoopRunner):
    """A loop whose iterations are told apart."""

    def __init__(self, tally: Tally, loop: Loop) -> None:
        super().__init__(tally, loop)
        self.tally = tally
        self.body = [tally.ledger.begin, *self.body]

    def run(self) -> None:
        values, ledger = self.stream.values, self.tally.ledger
        first, end = self.lower(values), self.upper(values)
        if first < end:
            parameter = self.tally.parameters.of(self.loop.variable, first, end)
            ledger.enter()
            super().run()
            ledger.leave(parameter, first, self._zones(first, end))


class Tally(Stream):
    """Walks a program of units once and counts its operations in `ledger`, by the numbers that
    `kinds` gives them."""

    def __init__(
        self, kinds: Kinds, parameters: Parameters, *, budget: int = 0, limit: int = 1 << 62
    ) -> None:
        self.ledger = _Ledger()
        self.kinds = kinds
        self.parameters = parameters
        super().__init__(
            kinds.program, kinds.hardware, kinds, self.ledger, skip=True, budget=budget, limit=limit
        )

    def call(self, base: Operation, where: tuple[int, ...], *, is_call: bool = True) -> None:
        super().call(base, where, is_call=is_call)
        if base.unit != ISSUER:
            self.ledger.add(self.kinds.number(base), base.identity in self.kinds.once)

    def _compile(self, node: Node) -> Callable[[], None]:
        return _Loop(self, node).run if isinstance(node, Loop) else super()._compile(node)


def tally(
    program: Program, hardware: HardwareSpec, parameters: Parameters
) -> tuple[dict[Kind, Count], bool]:
    """How often operations of each kind run, of a program that units run alone; and whether that is
    exact: of very many operations that do not repeat, kinds that differ by the alignment of their
    bursts alone share their calls at the rate of a part of them."""
    for limit, budget in ((EXACT_OPERATIONS, 0), (1 << 62, SAMPLED_OPERATIONS)):
        kinds = Kinds(program, hardware)
        walk = Tally(kinds, parameters, budget=budget, limit=limit)
        walk.run()
        if not walk.truncated:
            return {kinds.all[n]: count for n, count in walk.ledger.counts.items()}, walk.exact
    raise AssertionError("the second walk has no limit")
