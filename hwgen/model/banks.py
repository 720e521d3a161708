"""Banks of on-chip memories: which ports a call holds, and what waiting for them costs.

While a call runs it holds, in every bank between the first and the last entry that an operand of
it touches, one read port if it reads there and one write port if it writes there, or one port where
both share them. Ports are granted in the order of the stream: a call waits while as many earlier
calls of other units as there are ports still hold, or will hold, one.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from itertools import product

from hwgen.codegen.nodes import Call, CallOperand
from hwgen.codegen.program import MicroKernelDef, Program
from hwgen.spec.affine import affine
from hwgen.spec.expression import Binary, Const, Expr, add, multiply
from hwgen.spec.expression import Call as Function
from hwgen.spec.hardware import HardwareSpec, Operand
from hwgen.spec.memory import Banks

from .ends import Ends
from .periodicity import Use, Watched
from .stream import Costs, Operation, check_variant

Who = tuple[str, int]
"""Name and call site of an operation."""


@dataclass(frozen=True, slots=True)
class Port:
    """The ports of one kind (`read`, `write`, or `any` where both share them) of one bank."""

    memory: str
    bank: int
    kind: str
    count: int
    name: str


@dataclass(frozen=True, slots=True)
class BankConflict:
    """A call that waited for a port of a bank which another held: how often, and cycles in all.

    Where a call waited for several banks, the one that it got last counts.
    """

    memory: str
    bank: int
    port: str
    waiting: Who
    holding: Who
    times: int
    cycles: int


@dataclass(frozen=True, slots=True)
class _Awaited:
    """Earlier operations that use a port: unit, number and operation of each unit's latest."""

    port: int
    earlier: tuple[tuple[int, int, Operation], ...]


Awaited = tuple[_Awaited, ...]


def bank_ports(hardware: HardwareSpec) -> tuple[Port, ...]:
    """The ports that calls may have to wait for: those with fewer than the units that use them."""
    found: list[Port] = []
    for memory in hardware.of_kind("scratchpad"):
        if memory.banks is None:
            continue
        users: dict[tuple[str, int], set[str]] = {}
        for intrinsic in hardware.intrinsics:
            for operand in intrinsic.operands:
                if operand.memory == memory.name:
                    for port in memory.banks.ports(operand.access):
                        users.setdefault(port, set()).add(intrinsic.unit)
        for (kind, count), units in sorted(users.items()):
            if len(units) > count:
                found += [
                    Port(memory.name, b, kind, count, memory.bank_name(b))
                    for b in range(memory.banks.count)
                ]
    return tuple(found)


class HoldingCosts:
    """`Costs` with the ports that each call holds."""

    def __init__(self, costs: Costs, program: Program, hardware: HardwareSpec) -> None:
        self.ports = bank_ports(hardware)
        self._costs = costs
        self._program = program
        self._hardware = hardware
        self._index = {(p.memory, p.bank, p.kind): n for n, p in enumerate(self.ports)}
        self._contended = {p.memory for p in self.ports}

    def _operands(self, call: Call) -> list[tuple[int, Operand, CallOperand]]:
        intrinsic = self._hardware.intrinsic[call.intrinsic]
        both = zip(intrinsic.operands, call.operands, strict=True)
        return [(n, o, c) for n, (o, c) in enumerate(both) if o.memory in self._contended]

    def watched(self, call: Call) -> tuple[Watched, ...]:
        found = list(self._costs.watched(call))
        if call.kernel:
            if self._operands(call):
                found.append(Watched(call.variant if call.variant is not None else Const(0)))
            return tuple(found)
        for _, operand, given in self._operands(call):
            banks = self._banks(operand)
            for end in self._ends(call, operand, given):
                found.append(Watched(end, divisor=banks.entries))
        return tuple(found)

    def operation(self, call: Call, values: tuple[int, ...]) -> Operation:
        operands = self._operands(call)
        count = len(values) - (bool(operands) if call.kernel else 2 * len(operands))
        made = self._costs.operation(call, values[:count])
        rest = iter(values[count:])
        variant = next(rest, 0) if call.kernel else 0
        held: set[int] = set()
        for number, operand, _ in operands:
            banks = self._banks(operand)
            if call.kernel:
                kernel = self._program.kernel[call.kernel]
                check_variant(kernel, variant, call.site)
                ends = self._kernel_ends(kernel, operand, number, variant)
                first, last = ends[0] // banks.entries, ends[1] // banks.entries
            else:
                first, last = next(rest), next(rest)
            for bank, (kind, _) in product(range(first, last + 1), banks.ports(operand.access)):
                port = self._index.get((operand.memory, bank, kind))
                if port is not None:
                    held.add(port)
        return replace(made, holds=tuple(sorted(held)))

    def touched(self, call: Call) -> tuple[Use, ...]:
        return self._costs.touched(call)

    def kernel_load(self, call: Call, kernel: MicroKernelDef, first: int) -> Operation:
        return self._costs.kernel_load(call, kernel, first)

    def _banks(self, operand: Operand) -> Banks:
        banks = self._hardware.memory[operand.memory].banks
        assert banks is not None
        return banks

    def _ends(self, call: Call, operand: Operand, given: CallOperand) -> tuple[Expr, Expr]:
        """The first and the last entry that an operand of a call touches."""
        low: Expr = given.address
        high: Expr = add(given.address, Const(operand.span - 1))
        for extent, stride in zip(call.extents, given.strides, strict=True):
            reach = multiply(Binary("-", extent, Const(1)), stride)
            known = affine(reach)
            if known is not None and not known.terms:
                low = add(low, Const(min(0, known.constant)))
                high = add(high, Const(max(0, known.constant)))
            else:
                low = add(low, Function("min", (Const(0), reach)))
                high = add(high, Function("max", (Const(0), reach)))
        return low, high

    def _kernel_ends(
        self, kernel: MicroKernelDef, operand: Operand, number: int, variant: int
    ) -> tuple[int, int]:
        low = high = kernel.bases[variant][number]
        for loop in (*kernel.loops, *kernel.sequence):
            reach = (loop.extent - 1) * loop.strides[number]
            low, high = low + min(0, reach), high + max(0, reach)
        return low, high + operand.span - 1


class Ports:
    """The latest operation of every unit at each port, and the conflicts so far."""

    def __init__(self, ports: tuple[Port, ...], units: int) -> None:
        self._ports = ports
        self._ends = Ends(units)
        self._latest: list[dict[int, tuple[int, Operation]]] = [{} for _ in ports]
        self.conflicts: dict[tuple[int, Who, Who], tuple[int, int]] = {}

    def enter(self, operation: Operation) -> Awaited:
        """What an operation, the next of the stream, may have to wait for."""
        unit = operation.unit
        number = self._ends.enter(unit)
        awaited: list[_Awaited] = []
        for port in operation.holds:
            latest = self._latest[port]
            earlier = tuple([(u, *latest[u]) for u in sorted(latest) if u != unit])
            if len(earlier) >= self._ports[port].count:
                awaited.append(_Awaited(port, earlier))
        for port in operation.holds:
            self._latest[port][unit] = (number, operation)
        return tuple(awaited)

    def ready(self, awaited: Awaited) -> int:
        """When there is a port for it in every bank; -1 where that is not known yet."""
        when = 0
        for wanted in awaited:
            ends = [self._ends.end(unit, number) for unit, number, _ in wanted.earlier]
            if min(ends) < 0:
                return -1
            when = max(when, sorted(ends, reverse=True)[self._ports[wanted.port].count - 1])
        return when

    def waited(self, operation: Operation, awaited: Awaited, cycles: int) -> str:
        """Count a conflict: the operation waited so long for the port that it got last. The name
        of that port's bank."""
        when = self.ready(awaited)
        for wanted in awaited:
            found = [(self._ends.end(u, n), made) for u, n, made in wanted.earlier]
            found.sort(key=lambda item: -item[0])
            end, holder = found[self._ports[wanted.port].count - 1]
            if end == when:
                key = wanted.port, (operation.name, operation.site), (holder.name, holder.site)
                times, before = self.conflicts.get(key, (0, 0))
                self.conflicts[key] = (times + 1, before + cycles)
                return self._ports[wanted.port].name
        raise AssertionError("one of the awaited ports was the last")

    def finish(self, unit: int, end: int, free: list[int]) -> None:
        """The next operation of a unit ends then; no unit begins anything before it is `free`."""
        self._ends.finish(unit, end)
        self._ends.forget(min(free))

    def relative(self, awaited: Awaited, now: int) -> Hashable:
        """What is awaited, relative to now and to what is done."""
        return tuple(
            [
                (w.port, tuple([(u, self._ends.age(u, n, now), o.site) for u, n, o in w.earlier]))
                for w in awaited
            ]
        )

    def signature(self, now: int) -> Hashable:
        return tuple(
            [
                tuple(
                    [
                        (u, self._ends.age(u, latest[u][0], now), latest[u][1].site)
                        for u in sorted(latest)
                    ]
                )
                for latest in self._latest
            ]
        )

    @property
    def done(self) -> tuple[int, ...]:
        """How many operations of each unit have ended."""
        return self._ends.done

    def shift(self, units: Sequence[int], done: Sequence[int]) -> None:
        """Be as if what ended after the first so many of each unit had ended so much later."""
        self._ends.shift(units, done)

    def repeat(self, before: dict[tuple[int, Who, Who], tuple[int, int]], times: int) -> None:
        """Count what happened since `before` so many times more."""
        for key, (count, cycles) in self.conflicts.items():
            known = before.get(key, (0, 0))
            self.conflicts[key] = (
                count + (count - known[0]) * times,
                cycles + (cycles - known[1]) * times,
            )

    @property
    def found(self) -> tuple[BankConflict, ...]:
        """The conflicts, by memory, bank and calls."""
        made = [
            BankConflict(p.memory, p.bank, p.kind, waiting, holding, times, cycles)
            for (port, waiting, holding), (times, cycles) in self.conflicts.items()
            for p in (self._ports[port],)
        ]
        return tuple(sorted(made, key=lambda c: (c.memory, c.bank, c.port, c.waiting, c.holding)))
