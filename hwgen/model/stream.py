"""The instruction stream of a program: what each unit gets, with its synchronisation, in order.

Rules: a pop belongs to the next operation of its target, a push to the stream's last operation
where that is a call of the source that does not yet push this way; else an empty operation
carries it. A micro-kernel variant is loaded, on the same unit, before its first call. The
completion protocol ends the stream. Signals and waits are operations of their units, barriers
operations of whoever issues the stream. Loops whose iterations repeat can be skipped by the sink.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Set
from dataclasses import dataclass, replace
from typing import Protocol

from hwgen.codegen.nodes import (
    Barrier,
    Call,
    Code,
    Configure,
    If,
    Loop,
    Node,
    OfCode,
    Pop,
    Push,
    Signal,
    Sync,
    Wait,
)
from hwgen.codegen.program import MicroKernelDef, Program
from hwgen.errors import HwgenError
from hwgen.spec.affine import affine
from hwgen.spec.expression import Binary, Const, Expr, names
from hwgen.spec.expression import Call as Function
from hwgen.spec.hardware import HardwareSpec

from .bus import Bursts
from .closures import OPERATORS, Compiled, Environment, constant, maker
from .loop_runner import LoopRunner, Zones
from .periodicity import Use, Watched, value
from .waits import Await, awaits_of

ISSUER = -1
"""The "unit" of a barrier: whoever issues the stream."""
NO_TENSOR, EVERY_TENSOR = -1, -2


@dataclass(slots=True, eq=False)
class Operation:
    """One entry of the stream; equal entries are one object. `kind`: the same for those that differ
    only in where they read in memories.

    `cycles`: its duration, or the fixed part of it where `bursts` cross `bus`: where it `reads`,
    the first request is `lead` cycles after the start; where it `posts`, they are left to the bus's
    write buffer, after what it reads is here. `pops`, `pushes`: indices of token queues, one
    per edge, or per flag of an edge. `touches`: (memory, footprint, writes) of its accesses, for
    the checkers and scoreboards. `awaits`: of a barrier, what it waits for; `unit` is
    then `ISSUER`. `holds`: ports of banks that it needs while it runs. `instructions`: that a host
    issues for it, `issuing`: in how many cycles, if not 0. `tensor`: off chip, whose posted writes
    it makes or waits for; `EVERY_TENSOR`: all of them.
    """

    identity: int
    unit: int
    name: str
    site: int
    cycles: int = 0
    bursts: Bursts | None = None
    bus: int = 0
    priority: int = 0
    lead: int = 0
    touches: tuple[tuple[int, int, bool], ...] = ()
    pops: tuple[int, ...] = ()
    pushes: tuple[int, ...] = ()
    awaits: tuple[Await, ...] = ()
    holds: tuple[int, ...] = ()
    instructions: int = 1
    issuing: int = 0
    reads: bool = False
    posts: bool = False
    tensor: int = NO_TENSOR
    kind: int = 0

    def __post_init__(self) -> None:
        self.kind = self.kind or self.identity


class Costs(Protocol):
    """What a stream is made for: the numbers that matter of a call, and what they mean."""

    def watched(self, call: Call) -> tuple[Watched, ...]:
        """The expressions that distinguish the executions of a call site."""
        ...

    def operation(self, call: Call, values: tuple[int, ...]) -> Operation:
        """The operation of a call whose watched expressions have these values."""
        ...

    def touched(self, call: Call) -> tuple[Use, ...]:
        """What an order of units depends on, of the memories that a call touches."""
        ...

    def kernel_load(self, call: Call, kernel: MicroKernelDef, first: int) -> Operation:
        """The load of a micro-kernel variant that `first` micro-operations precede."""
        ...


class Receiver(Protocol):
    """What executes the stream."""

    def accept(self, operation: Operation, where: tuple[int, ...]) -> None: ...


class Sink(Receiver, Protocol):
    """What executes it and lets it skip repeating iterations."""

    def signature(self, touched: Set[Use]) -> Hashable:
        """The state relative to now: equal signatures have equal futures, where it is steady and
        nothing else is touched."""
        ...

    def settled(self, read: Use) -> bool:
        """Whether it does not matter any more where a unit reads in a memory."""
        ...

    def mark(self) -> object:
        """Now, and what was counted so far."""
        ...

    def steady(self, mark: object) -> bool:
        """Whether what happened since `mark`, whose signature was the same, happens again and
        again."""
        ...

    def repeat(self, mark: object, times: int) -> None:
        """Be as if what happened since `mark` had happened `times` more often."""
        ...


def check_variant(kernel: MicroKernelDef, variant: int, site: int) -> None:
    """A call must select a variant that its micro-kernel has.

    Raises:
        HwgenError: H722.
    """
    if not 0 <= variant < len(kernel.bases):
        raise HwgenError(
            "H722",
            f"micro-kernel {kernel.name} has no such variant",
            found=f"variant {variant} at call site {site}",
            allowed=f"0..{len(kernel.bases) - 1}",
            repair="report this command: the compiler selects variants",
        )


class _LimitReachedError(Exception):
    """No more operations are to be sent: everything that is still open ends here."""


class Stream:
    """Walks a program once. `variables`: loop variables in the order of `where`.

    `skip`: the sink, where it may skip repeating iterations. `budget`, if not 0: after so many
    operations, iterations are skipped at the mean rate even where the state does not exactly
    repeat (`exact` is false then). `limit`: stop there (`truncated`). `located`: tell the sink the
    loop variables.
    `zones`: those that an earlier stream of the program found in its loops.
    """

    def __init__(
        self,
        program: Program,
        hardware: HardwareSpec,
        costs: Costs,
        sink: Receiver,
        *,
        skip: Sink | None = None,
        budget: int = 0,
        located: bool = False,
        limit: int = 1 << 62,
        zones: Zones | None = None,
    ) -> None:
        self.hardware = hardware
        self.program = program
        self.costs = costs
        self.sink = sink
        self.skip = skip
        self.budget = budget
        self.approximate = budget > 0
        self.located = located
        self.limit = limit
        self.zones = {} if zones is None else zones
        self.units = {unit.name: i for i, unit in enumerate(hardware.units)}
        self.unit_names = [unit.name for unit in hardware.units]
        exchanged = hardware.tokens or hardware.events
        self.edges = exchanged.edges if exchanged is not None else ()
        # Of each edge, how many more tokens or signals were sent than waited for.
        self.due = [0] * len(self.edges)
        # Queues per edge: one, or one per flag.
        self.flags = hardware.events.flags if hardware.events is not None else 1
        self.emitted = 0
        self.exact = True
        self.truncated = False
        self.variables: dict[str, int] = {}
        self.values: Environment = []
        self._last: Operation | None = None
        self._last_where: tuple[int, ...] = ()
        self._last_is_call = False
        self._pops: list[tuple[int, ...]] = [() for _ in hardware.units]
        self._loaded: dict[tuple[str, int], None] = {}
        self._loaded_operations = 0
        self._sync_nodes = 0
        # Where `located`: for each edge in order, which push and pop of the text each token is of.
        self.pushed: list[list[int]] = [[] for _ in self.edges]
        self.popped: list[list[int]] = [[] for _ in self.edges]
        self._with_tokens: dict[tuple[int, tuple[int, ...], tuple[int, ...]], Operation] = {}
        self._identities = 1 << 20
        self._nops = [
            Operation(-1 - i, i, "nop", -1, hardware.tokens.nop_cycles if hardware.tokens else 0)
            for i in range(len(hardware.units))
        ]
        # Flags: the next of each edge at its signalling and at its waiting end.
        self._next_signal = [0] * len(self.edges)
        self._next_wait = [0] * len(self.edges)
        # By the object, which the program keeps: what executes a call without variables, and what
        # is watched of one.
        self._alone: dict[int, Callable[[], None]] = {}
        self._watched: dict[int, tuple[Watched, ...]] = {}
        self._root = [self._compile(node) for node in program.body]

    # Execution

    def run(self) -> None:
        """Send the whole program and its completion to the sink."""
        try:
            for node in self._root:
                node()
            self._complete()
        except _LimitReachedError:
            self.truncated = True

    def call(self, base: Operation, where: tuple[int, ...], *, is_call: bool = True) -> None:
        """Send an operation, with the pops that wait for its unit."""
        if self.emitted >= self.limit:
            raise _LimitReachedError
        last = self._last
        if last is not None:
            self.emitted += 1
            self.sink.accept(last, self._last_where)
        pops = self._pops[base.unit]
        if pops:
            self._pops[base.unit] = ()
            base = self._tokens(base, pops, ())
        self._last = base
        self._last_where = where
        self._last_is_call = is_call

    def push(self, edge: int, source: int) -> None:
        """Attach a push to the last operation, or to an empty one."""
        self.due[edge] += 1
        if self._pops[source]:
            self._nop(source)
        last = self._last
        if last is None or last.unit != source or not self._last_is_call or edge in last.pushes:
            self._nop(source)
            last = self._last
            assert last is not None
        self._last = self._tokens(last, last.pops, (*last.pushes, edge))

    def pop(self, edge: int, target: int) -> None:
        """Let the next operation of `target` wait for a token."""
        self.due[edge] -= 1
        if edge in self._pops[target]:
            self._nop(target)
        self._pops[target] = (*self._pops[target], edge)

    def signal(self, edge: int, node: Signal | Wait, operations: list[Operation]) -> None:
        """Send the operation of a signal or wait, one of `operations` by the edge's turn."""
        self.due[edge] += 1 if isinstance(node, Signal) else -1
        turns = self._next_signal if isinstance(node, Signal) else self._next_wait
        turn = turns[edge] % node.count
        turns[edge] = turn + 1
        self.call(operations[turn], tuple(self.values) if self.located else (), is_call=False)

    def barrier(self, operation: Operation) -> None:
        """Send a barrier; pops that wait for their unit's next call stay where they are."""
        if self._last is not None:
            self.emitted += 1
            self.sink.accept(self._last, self._last_where)
        self._last = operation
        self._last_where = tuple(self.values) if self.located else ()
        self._last_is_call = False

    def _nop(self, unit: int) -> None:
        self.call(self._nops[unit], tuple(self.values) if self.located else (), is_call=False)

    def _tokens(self, base: Operation, pops: tuple[int, ...], pushes: tuple[int, ...]) -> Operation:
        key = (base.identity, pops, pushes)
        known = self._with_tokens.get(key)
        if known is None:
            self._identities += 1
            known = replace(base, identity=self._identities, pops=pops, pushes=pushes, kind=0)
            self._with_tokens[key] = known
        return known

    def _complete(self) -> None:
        completion = self.hardware.completion
        if completion is not None:
            unit = self.units[completion.unit]
            for name in completion.wait_units:
                self.push(self.edge(name, completion.unit), self.units[name])
            for name in completion.wait_units:
                self.pop(self.edge(name, completion.unit), unit)
            if self._pops[unit]:
                self._nop(unit)
        for unit, pops in enumerate(self._pops):
            if pops:
                source, target = self.edges[pops[0]]
                raise HwgenError(
                    "H764",
                    f"a pop is followed by no call of unit {self.unit_names[unit]}",
                    found=f"pop {source} -> {target} at the end of the program",
                    allowed="pops before a call of their target unit",
                    repair="remove the pop and the push that it waits for",
                )
        if completion is not None:
            finish = Operation(
                -1 - len(self.units), self.units[completion.unit], "finish", -1, completion.cycles,
                tensor=EVERY_TENSOR,
            )  # fmt: skip
            self.call(finish, ())
        if self._last is not None:
            self.emitted += 1
            self.sink.accept(self._last, self._last_where)
            self._last = None

    def edge(self, source: str, target: str) -> int:
        """Index of a token edge.

        Raises:
            HwgenError: H763 where the chip has no such edge.
        """
        if (source, target) in self.edges:
            return self.edges.index((source, target))
        raise HwgenError(
            "H763",
            f"the chip has no {'flag' if self.hardware.events else 'token queue'} from {source} to "
            f"{target}",
            field="synchronization.edges",
            found=f"{source} -> {target}",
            allowed=", ".join(f"{a} -> {b}" for a, b in self.edges) or "none at all",
            repair="synchronise over units that have a queue between them",
        )

    # Compilation to closures

    def _compile(self, node: Node) -> Callable[[], None]:
        match node:
            case Call():
                return self._compile_call(node)
            case Push(source, target):
                edge, unit = self.edge(source, target), self.units[source]
                return self._originated(self.push, self.pushed[edge], edge, unit)
            case Pop(source, target):
                edge, unit = self.edge(source, target), self.units[target]
                return self._originated(self.pop, self.popped[edge], edge, unit)
            case Barrier():
                return self._compile_barrier(node)
            case Signal() | Wait():
                return self._compile_signal(node)
            case Configure():
                return self._compile_write(node)
            case Code() | OfCode():
                raise AssertionError("a stream is of units alone")
            case If(condition, then, otherwise):
                test = self.compile(condition)
                yes = [self._compile(n) for n in then]
                no = [self._compile(n) for n in otherwise]
                values = self.values

                def branch() -> None:
                    for part in yes if test(values) else no:
                        part()

                return branch
            case Loop():
                return LoopRunner(self, node).run

    def _compile_barrier(self, node: Barrier) -> Callable[[], None]:
        awaits = awaits_of(node, self.units)
        barriers, scoreboard = self.hardware.barriers, self.hardware.scoreboard
        cycles = barriers.cycles if barriers else scoreboard.fence_cycles if scoreboard else 0
        name = "barrier" if barriers else "fence"
        self._identities += 1
        self._sync_nodes += 1
        cycles += node.start_cycles
        operation = Operation(
            self._identities, ISSUER, name, self._sync_nodes - 1, cycles, awaits=awaits
        )
        return lambda: self.barrier(operation)

    def _compile_write(self, node: Configure) -> Callable[[], None]:
        given = self.hardware.configuration[node.configuration]
        self._identities += 1
        self._sync_nodes += 1
        unit = self.units[given.unit]
        operation = Operation(self._identities, unit, given.name, -1, given.cycles)
        return lambda: self.call(
            operation, tuple(self.values) if self.located else (), is_call=False
        )

    def _compile_signal(self, node: Signal | Wait) -> Callable[[], None]:
        edge, events = self.edge(node.source, node.target), self.hardware.events
        ordinal = self._sync_nodes
        self._sync_nodes += 1
        operations: list[Operation] = []
        for flag in range(node.first, node.first + node.count):
            queue = (edge * self.flags + flag,)
            self._identities += 1
            if isinstance(node, Signal):
                unit, cycles = self.units[node.source], events.signal_cycles if events else 0
                made = Operation(self._identities, unit, "signal", -1, cycles, pushes=queue)
            else:
                unit, cycles = self.units[node.target], events.wait_cycles if events else 0
                made = Operation(self._identities, unit, "wait", -1, cycles, pops=queue)
            operations.append(made)
        if not self.located:
            return lambda: self.signal(edge, node, operations)
        origins = (self.pushed if isinstance(node, Signal) else self.popped)[edge]

        def run() -> None:
            origins.append(ordinal)
            self.signal(edge, node, operations)

        return run

    def _originated(
        self, act: Callable[[int, int], None], origins: list[int], edge: int, unit: int
    ) -> Callable[[], None]:
        self._sync_nodes += 1
        ordinal = self._sync_nodes - 1
        if not self.located:
            return lambda: act(edge, unit)

        def run() -> None:
            origins.append(ordinal)
            act(edge, unit)

        return run

    def compile_body(self, nodes: tuple[Node, ...]) -> list[Callable[[], None]]:
        return [self._compile(n) for n in nodes]

    def slot(self, variable: str) -> int:
        """The place of a loop variable's value."""
        if variable not in self.variables:
            self.variables[variable] = len(self.values)
            self.values.append(0)
        return self.variables[variable]

    def compile(self, expr: Expr) -> Compiled:
        """A function of `values` for an expression."""
        linear = affine(expr)
        if linear is not None:
            constant = linear.constant
            terms = [(self.slot(n), c) for n, c in linear.terms]
            match terms:
                case []:
                    return lambda _: constant
                case [(s, c)]:
                    return lambda v: constant + c * v[s]
                case [(s, c), (s2, c2)]:
                    return lambda v: constant + c * v[s] + c2 * v[s2]
                case _:
                    return lambda v: constant + sum(c * v[s] for s, c in terms)
        match expr:
            case Binary(op, left, right) if op in OPERATORS:
                a, b, f = self.compile(left), self.compile(right), OPERATORS[op]
                return f(a, b)
            case Function("min", (left, right)):
                a, b = self.compile(left), self.compile(right)
                return lambda v: min(a(v), b(v))
            case Function("max", (left, right)):
                a, b = self.compile(left), self.compile(right)
                return lambda v: max(a(v), b(v))
            case _:
                slots = [(n, self.slot(n)) for n in names(expr)]
                return lambda v: value(expr, {n: v[s] for n, s in slots})

    def _compile_call(self, call: Call) -> Callable[[], None]:
        if id(call) in self._alone:
            return self._alone[id(call)]
        watched = self.watched(call)
        values, costs, located = self.values, self.costs, self.located
        given = [constant(w) for w in watched if isinstance(w.expression, Const)]
        if len(given) == len(watched) and not call.kernel:
            # Flat programs have tens of thousands of these, many of them the same.
            alone = costs.operation(call, tuple(given))
            send_alone = self._alone[id(call)] = lambda: self.call(
                alone, tuple(values) if located else ()
            )
            return send_alone
        # Most of what is watched is the same in all executions.
        moving = [n for n, w in enumerate(watched) if names(w.expression)]
        makers = [maker(self.compile(watched[n].expression), watched[n]) for n in moving]
        whole = [
            0 if n in moving else maker(self.compile(w.expression), w)(values)
            for n, w in enumerate(watched)
        ]
        known: dict[tuple[int, ...], Operation] = {}
        kinds: dict[tuple[int, ...], int] = {}
        read = [watched[n].read is not None for n in moving]

        def operation() -> Operation:
            key = tuple([f(values) for f in makers])
            found = known.get(key)
            if found is None:
                for n, number in zip(moving, key, strict=True):
                    whole[n] = number
                found = known[key] = costs.operation(call, tuple(whole))
                rest = tuple([v for v, reads in zip(key, read, strict=True) if not reads])
                found.kind = kinds.setdefault(rest, found.kind)
            return found

        send = self.call
        if not moving:
            only = operation()

            def run() -> None:
                send(only, tuple(values) if located else ())
        else:

            def run() -> None:
                send(operation(), tuple(values) if located else ())

        if not call.kernel:
            return run
        kernel = self.program.kernel[call.kernel]
        if self.hardware.intrinsic[kernel.intrinsic].micro_kernel is None:
            return run
        variant = self.compile(call.variant if call.variant is not None else Const(0))
        loaded = self._loaded

        def run_kernel() -> None:
            key = (kernel.name, variant(values))
            if key not in loaded:
                check_variant(kernel, key[1], call.site)
                loaded[key] = None
                load = costs.kernel_load(call, kernel, self._loaded_operations)
                self._loaded_operations += kernel.operations
                send(load, tuple(values) if located else (), is_call=False)
            run()

        return run_kernel

    # Skipping

    def signature(self, sink: Sink, touched: Set[Use]) -> Hashable:
        """The sink's state and the stream's own."""
        last = self._last
        return (
            sink.signature(touched),
            0 if last is None else last.kind,
            tuple(self._pops),
            tuple(self._next_signal),
            tuple(self._next_wait),
            len(self._loaded),
        )

    def watched(self, call: Call) -> tuple[Watched, ...]:
        """The expressions that distinguish the executions of a call of the program."""
        if id(call) not in self._watched:
            self._watched[id(call)] = self.costs.watched(call)
        return self._watched[id(call)]

    def watched_in(self, nodes: tuple[Node, ...]) -> list[Watched]:
        """Every expression that the stream of these nodes depends on, but for constants."""
        found: list[Watched] = []
        for node in nodes:
            match node:
                case Call():
                    every = self.watched(node)
                    found += [w for w in every if not isinstance(w.expression, Const)]
                    if node.variant is not None:
                        found.append(Watched(node.variant))
                case If(condition, then, otherwise):
                    found.append(Watched(condition))
                    found += self.watched_in(then) + self.watched_in(otherwise)
                case Loop(_, lower, upper, body):
                    found += [Watched(lower), Watched(upper), *self.watched_in(body)]
                case Sync() | OfCode():
                    pass
        return list(dict.fromkeys(found))
