"""Synchronisation that orders nothing: without it, every conflict stays ordered."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from hwgen.codegen.program import Program
from hwgen.codegen.sync_nodes import Barrier
from hwgen.errors import HwgenError
from hwgen.model.stream import ISSUER, Stream
from hwgen.model.sync_check import CHECK_LIMIT, Clock, Clocks, check_synchronisation
from hwgen.model.waits import Await, Heard
from hwgen.spec.hardware import HardwareSpec

MOST_STATEMENTS = 12
"""Pushes and pops of a group up to which each pair of them is tried."""


@dataclass(frozen=True, slots=True)
class RedundantTokens:
    """Tokens of one edge, given by the `pushes`-th and taken by the `pops`-th token statements of
    the text (counted from 0), without which every conflict stays ordered."""

    source: str
    target: str
    pushes: tuple[int, ...]
    pops: tuple[int, ...]
    tokens: int

    def __str__(self) -> str:
        return f"{self.tokens} x {self.source} -> {self.target}"


@dataclass(frozen=True, slots=True)
class RedundantBarrier:
    """A wait for what `awaited` says, the `statement`-th synchronisation of the text (counted from
    0); every conflict stays ordered where it waits for less."""

    awaited: str
    statement: int
    executions: int

    def __str__(self) -> str:
        return f"{self.executions} x wait for {self.awaited}"


def check_minimal(program: Program, hardware: HardwareSpec) -> None:
    """Check that all synchronisation is needed.

    Raises:
        HwgenError: H766 where some is not, after those of `check_synchronisation`.
    """
    found = redundant(program, hardware)
    if found:
        raise HwgenError(
            "H766",
            "synchronisation that orders nothing",
            found=", ".join(map(str, found)),
            allowed="only what some conflict needs",
            repair="remove it",
        )


def redundant(
    program: Program, hardware: HardwareSpec
) -> tuple[RedundantTokens | RedundantBarrier, ...]:
    """Tokens, or signals and waits, that order nothing: groups of statements that can go together,
    and alone; barriers and fences that wait for more than they must, each alone.

    A group is the pushes and pops of one edge that exchange tokens with each other. Of a group
    that has several, a push and a pop that are executed equally often may go alone too, where no
    other pop then waits for a later push: that would order more, not less. Programs of more than
    `CHECK_LIMIT` operations are judged by that many first ones.

    Raises:
        HwgenError: as `check_synchronisation`, whose errors come first.
    """
    machine, stream = _recorded(program, hardware)
    return *_tokens(machine, stream), *_barriers(machine)


def _tokens(machine: Clocks, stream: Stream) -> tuple[RedundantTokens, ...]:
    found: list[RedundantTokens] = []
    for edge, (source, target) in enumerate(stream.edges):
        pushed, popped = stream.pushed[edge], stream.popped[edge]
        for pushes, pops in _groups(list(zip(pushed, popped, strict=False))):
            options = [(pushes, pops)]
            if 2 < len(pushes) + len(pops) <= MOST_STATEMENTS:
                options += [((a,), (b,)) for a in pushes for b in pops]
            for some_pushes, some_pops in options:
                given = {(edge, k) for k, push in enumerate(pushed) if push in some_pushes}
                taken = {(edge, k) for k, pop in enumerate(popped) if pop in some_pops}
                if (
                    len(given) == len(taken)
                    and _no_later(given, taken)
                    and _ordered(machine, given, taken)
                ):
                    found.append(
                        RedundantTokens(source, target, some_pushes, some_pops, len(given))
                    )
                    break
    return tuple(found)


def _no_later(given: Collection[tuple[int, int]], taken: Collection[tuple[int, int]]) -> bool:
    """Whether every pop that stays takes the same push as before or an earlier one: of each first
    few tokens, at least as many pops go as pushes."""
    return all(
        took <= gave for (_, gave), (_, took) in zip(sorted(given), sorted(taken), strict=True)
    )


def _barriers(machine: Clocks) -> tuple[RedundantBarrier, ...]:
    statements: dict[int, list[tuple[Await, ...]]] = {}
    for event in machine.executed:
        if event.operation.unit == ISSUER:
            statements.setdefault(event.operation.site, []).append(event.operation.awaits)
    found: list[RedundantBarrier] = []
    for statement, awaits in sorted(statements.items()):
        less = _weaker(awaits[0], machine.hardware)
        if _ordered(machine, (), (), {statement: less}):
            text = _awaited_text(awaits[0], machine.names)
            found.append(RedundantBarrier(text, statement, len(awaits)))
    return tuple(found)


def _recorded(program: Program, hardware: HardwareSpec) -> tuple[Clocks, Stream]:
    """A program's operations one by one, after the checks of `check_synchronisation`."""
    check_synchronisation(program, hardware)
    machine = Clocks(program, hardware, record=True)
    stream = Stream(program, hardware, machine.costs, machine, limit=CHECK_LIMIT, located=True)
    machine.stream = stream
    stream.run()
    return machine, stream


def _groups(pairs: list[tuple[int, int]]) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Connected components of push and pop statements."""
    groups: list[tuple[set[int], set[int]]] = []
    for push, pop in dict.fromkeys(pairs):
        joined = [g for g in groups if push in g[0] or pop in g[1]]
        pushes = {push}.union(*(g[0] for g in joined))
        pops = {pop}.union(*(g[1] for g in joined))
        groups = [g for g in groups if g not in joined] + [(pushes, pops)]
    return [(tuple(sorted(a)), tuple(sorted(b))) for a, b in groups]


def _ordered(
    machine: Clocks,
    pushes: Collection[tuple[int, int]],
    pops: Collection[tuple[int, int]],
    changed: Mapping[int, tuple[Await, ...]] | None = None,
) -> bool:
    """Whether all conflicts of the recorded operations are ordered without some pushes and pops,
    as (edge, number), and with some barriers changed, and no flag could be signalled too often."""
    spaces = machine.costs.spaces
    units = len(machine.clock)
    clock = [[0] * units for _ in range(units)]
    heard = Heard(machine.hardware)
    writes = [[[0] * units for _ in s.writes] for s in spaces]
    reads = [[[0] * units for _ in s.writes] for s in spaces]
    # Of each edge: the clocks of the pushes so far, and its target's at each pop so far.
    given: list[list[Clock]] = [[] for _ in machine.edges]
    awaited: list[list[int]] = [[] for _ in machine.edges]
    history: dict[tuple[int, int], list[int]] = {}
    for event in machine.executed:
        operation = event.operation
        unit = operation.unit
        if unit == ISSUER:
            heard.wait((changed or {}).get(operation.site, operation.awaits))
            continue
        mine = list(heard.after(clock[unit]))
        mine[unit] += 1
        for edge, number in event.popped:
            if (edge, number) in pops:
                continue
            taken = len(awaited[edge])
            if taken >= len(given[edge]):
                return False
            mine = [max(a, b) for a, b in zip(mine, given[edge][taken], strict=True)]
            awaited[edge].append(mine[unit])
        for space, footprint, write in operation.touches:
            for atom in spaces[space].atoms[footprint]:
                against = (
                    [writes[space][atom], reads[space][atom]] if write else [writes[space][atom]]
                )
                for row in against:
                    for u in range(units):
                        if row[u] <= mine[u]:
                            continue
                        if not (machine.interlocked and spaces[space].onchip):
                            return False
                        mine = [max(a, b) for a, b in zip(mine, history[u, row[u]], strict=True)]
                (writes if write else reads)[space][atom][unit] = mine[unit]
        clock[unit] = mine
        heard.ran(operation, mine)
        if machine.interlocked:
            history[unit, mine[unit]] = mine
        for edge, number in event.pushed:
            if (edge, number) in pushes:
                continue
            earlier = len(given[edge]) - machine.in_flight[edge]
            given[edge].append(tuple(mine))
            if machine.in_flight[edge] and earlier >= 0:
                waits = awaited[edge]
                if earlier >= len(waits) or waits[earlier] > mine[machine.target_of[edge]]:
                    return False
    return True


def _weaker(awaits: tuple[Await, ...], hardware: HardwareSpec) -> tuple[Await, ...]:
    """The next less that a barrier of the chip can wait for: the barrier is needed where that is
    not enough. A run counts as a whole: a smaller tile may use the results of a part of it."""
    most = hardware.barriers.outstanding if hardware.barriers else 0
    match awaits:
        case (Await(unit, outstanding),) if outstanding < most:
            return (Await(unit, outstanding, before_run=True),)
        case _:
            return ()


def _awaited_text(awaits: tuple[Await, ...], names: Sequence[str]) -> str:
    """What a barrier waits for, in words."""
    match awaits:
        case (Await(unit, outstanding),):
            return Barrier(names[unit], outstanding=outstanding).awaited
        case _:
            return Barrier("").awaited
