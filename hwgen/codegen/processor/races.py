"""A program's accesses, run thread by thread: what a wrong lowering would do, found by running it.

Shares nothing with the insertion of barriers: threads of a block run from one barrier to the next,
and whatever two of them touch in between, one writing, is a race. Small programs run whole. Of
large ones, `check` runs the first and the last iterations of every loop, of blocks and of threads:
there affine indices are largest and smallest, and neighbours meet.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from math import prod

from hwgen.codegen.nodes import (
    Allocate,
    Assign,
    Code,
    CombineAcrossThreads,
    If,
    IntrinsicCall,
    Keep,
    Launch,
    Loop,
    Node,
    PrefetchOf,
    Routine,
    ThreadBarrier,
    inner,
    nodes,
)
from hwgen.codegen.processor import tenants
from hwgen.errors import HwgenError
from hwgen.spec.expression import DTYPES, Access, Binary, Call, Expr, children, evaluate, walk
from hwgen.spec.hardware import HardwareSpec

Values = Mapping[str, int]
Cell = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Touch:
    """One access of one thread. `shared`: writers with the same text write the same value."""

    buffer: str
    element: int
    writes: bool
    shared: str = ""


Steps = Generator[Touch | ThreadBarrier | Allocate, None, None]

STEPS = 2_000
"""Nodes of a program that `check` visits, once whole and once in part: a tenth of a second."""


class _EndOfSteps(Exception):  # noqa: N818 - not an error
    """As many steps as allowed have been run."""


def check(program: Code, hardware: HardwareSpec, steps: int = STEPS) -> None:
    """Run as many steps of a program; of one that takes more, the corners of its loops too.

    Raises:
        HwgenError: H757 with what is wrong.
    """
    found = tenants.findings(program, hardware)
    for whole in (True, False):
        run = _Run(program, hardware, found, whole=whole, left=steps)
        try:
            run.host(program.body, {})
        except _EndOfSteps:
            if not found:
                continue
        break
    if found:
        raise HwgenError(
            "H757",
            "the program of a schedule is wrong",
            found="; ".join(list(dict.fromkeys(found))[:4]),
            allowed="accesses inside their buffers, to what was written, ordered between threads",
            repair="report this schedule: lowering is wrong",
        )


def findings(program: Code, hardware: HardwareSpec) -> list[str]:
    """What is wrong: buffers in each other's place, elements outside of buffers, reads of what was
    never written, races between threads or blocks, barriers that not all threads of a block reach.
    Each once, in order."""
    run = _Run(program, hardware, tenants.findings(program, hardware))
    run.host(program.body, {})
    return list(dict.fromkeys(run.found))


@dataclass
class _Run:
    program: Code
    hardware: HardwareSpec
    found: list[str]
    written: dict[Cell, str] = field(default_factory=dict[Cell, str])
    """What was written, and by which name: buffers may take turns in one place."""
    whole: bool = True
    """Else only corners of loops are run, so that what they read may have been written outside."""
    left: int | None = None
    """Steps that may still be run."""

    def step(self) -> None:
        if self.left is not None:
            self.left -= 1
            if self.left < 0:
                raise _EndOfSteps

    def points(self, extent: int) -> Sequence[int]:
        """The iterations of a loop that are run."""
        return range(extent) if self.whole or extent <= 3 else (0, 1, extent - 1)

    # Outside of launches

    def host(self, body: tuple[Node, ...], values: Values) -> None:
        for node in body:
            match node:
                case Launch():
                    self.launch(node, values)
                case Loop(variable, _, bound, inside) if _launches(inside):
                    for i in self.points(int(evaluate(bound, values))):
                        self.step()
                        self.host(inside, {**values, variable: i})
                case Allocate(_, inside) if _launches(inside):
                    self.forget(node.buffer)
                    self.host(inside, values)
                case _:
                    for step in self.steps((node,), values):
                        if isinstance(step, Touch):
                            self.serial(step)
                        elif isinstance(step, Allocate):
                            self.forget(step.buffer)

    def forget(self, buffer: str) -> None:
        """A fresh buffer holds nothing."""
        if not self.whole:
            return
        elements = range(self.program.array[buffer].elements)
        own = self.cells(buffer, elements) if len(elements) <= len(self.written) else self.written
        for cell in [c for c in own if self.written.get(c) == buffer]:
            del self.written[cell]

    def serial(self, touch: Touch) -> None:
        if not self.inside(touch):
            return
        for cell in self.cells(touch.buffer, (touch.element,)):
            if touch.writes:
                self.written[cell] = touch.buffer
            else:
                self.check_written(touch, cell)

    def inside(self, touch: Touch) -> bool:
        buffer = self.program.array[touch.buffer]
        if 0 <= touch.element < buffer.elements:
            return True
        self.found.append(f"{touch.buffer}[{touch.element}] is outside of {buffer.elements}")
        return False

    def check_written(self, touch: Touch, cell: Cell) -> None:
        known = self.program.array[touch.buffer].role == "input" or not self.whole
        if not known and self.written.get(cell) != touch.buffer:
            self.found.append(f"{touch.buffer} is read where nothing was written")

    def cells(self, name: str, elements: range | tuple[int, ...]) -> Iterator[Cell]:
        """Elements as what they occupy: bytes of a pool or a room, or elements of the buffer."""
        buffer = self.program.array[name]
        if buffer.address_bytes is None:
            yield from ((name, e) for e in elements)
            return
        size = DTYPES[buffer.dtype]
        for e in elements:
            start = buffer.address_bytes + e * size
            place = f"@{buffer.within or buffer.memory}"
            yield from ((place, b) for b in range(start, start + size))

    # Blocks and threads

    def launch(self, launch: Launch, values: Values) -> None:
        kinds = self.hardware.machine.loop
        blocks = [(v, e) for k, v, e in launch.coordinates if kinds[k].level == "block"]
        threads = [(v, e) for k, v, e in launch.coordinates if kinds[k].level == "thread"]
        owners: dict[Cell, tuple[int, bool]] = {}
        for number, block in enumerate(product(*(self.points(e) for _, e in blocks))):
            outer = {**values, **{v: i for (v, _), i in zip(blocks, block, strict=True)}}
            running: list[Steps] = []
            for thread in product(*(self.points(e) for _, e in threads)):
                own = {v: i for (v, _), i in zip(threads, thread, strict=True)}
                running.append(self.steps(launch.body, {**outer, **own}))
            self.block(running, number, owners)

    def block(
        self, running: list[Steps], number: int, owners: dict[Cell, tuple[int, bool]]
    ) -> None:
        private: list[dict[Cell, str]] = [{} for _ in running]
        while True:
            phase: dict[Cell, list[tuple[int, Touch]]] = {}
            waits: list[int] = []
            for thread, steps in enumerate(running):
                waits.append(self.advance(steps, thread, private[thread], phase))
            for cell, touches in phase.items():
                self.check_cell(cell, touches)
                self.check_owner(cell, touches, number, owners)
            for cell, touches in phase.items():
                # Where several threads meet, none of them writes what another reads.
                for _, touch in touches:
                    if touch.writes:
                        self.written[cell] = touch.buffer
                    else:
                        self.check_written(touch, cell)
            if len(set(waits)) > 1:
                self.found.append("threads of a block wait at different barriers, or some do not")
                return
            if waits[0] == 0:
                return

    def advance(
        self,
        steps: Steps,
        thread: int,
        private: dict[Cell, str],
        phase: dict[Cell, list[tuple[int, Touch]]],
    ) -> int:
        """Run one thread to its next barrier; its number, 0 at the end."""
        for step in steps:
            if isinstance(step, ThreadBarrier):
                return id(step)
            if isinstance(step, Allocate):
                if self.level(step.buffer) == "thread":
                    for cell in [c for c, n in private.items() if n == step.buffer]:
                        del private[cell]
                continue
            if not self.inside(step):
                continue
            if self.level(step.buffer) == "thread":
                for cell in self.cells(step.buffer, (step.element,)):
                    if step.writes:
                        private[cell] = step.buffer
                    elif private.get(cell) != step.buffer and self.whole:
                        self.found.append(f"{step.buffer} is read where nothing was written")
                continue
            for cell in self.cells(step.buffer, (step.element,)):
                phase.setdefault(cell, []).append((thread, step))
        return 0

    def level(self, buffer: str) -> str:
        memory = self.hardware.memory.get(self.program.array[buffer].memory)
        return "kernel" if memory is None else memory.shared_by

    def check_cell(self, cell: Cell, touches: list[tuple[int, Touch]]) -> None:
        writers = {(n, t.shared) for n, t in touches if t.writes}
        users = {n for n, _ in touches}
        if not writers or len(users) == 1:
            return
        alike = {text for _, text in writers}
        readers = {n for n, t in touches if not t.writes}
        if len({n for n, _ in writers}) > 1 and (len(alike) > 1 or "" in alike):
            self.found.append(f"threads write one place of {_label(touches)} between barriers")
        elif any(n != w for n in readers for w, _ in writers):
            self.found.append(f"{_label(touches)} crosses threads without a barrier")
        del cell

    def check_owner(
        self,
        cell: Cell,
        touches: list[tuple[int, Touch]],
        number: int,
        owners: dict[Cell, tuple[int, bool]],
    ) -> None:
        """What blocks of one launch share, none of them writes."""
        if any(self.level(t.buffer) != "kernel" for _, t in touches):
            return
        writes = any(t.writes for _, t in touches)
        before, wrote = owners.get(cell, (number, False))
        if before != number and (writes or wrote):
            self.found.append(f"{_label(touches)} crosses blocks of one launch")
        owners[cell] = (number, writes or wrote)

    # What one thread does

    def steps(self, body: tuple[Node, ...], values: Values) -> Steps:
        for node in body:
            self.step()
            match node:
                case Loop(variable, _, bound, inside):
                    before = -1
                    for i in self.points(int(evaluate(bound, values))):
                        self.step()
                        if i > before + 1 and _waits(inside):
                            # Iterations that are left out have barriers.
                            yield _LEFT_OUT
                        before = i
                        yield from self.steps(inside, {**values, variable: i})
                case If(condition, then, otherwise):
                    chosen = then if evaluate(condition, values) else otherwise
                    yield from self.steps(chosen, values)
                case Allocate(_, inside):
                    yield node
                    yield from self.steps(inside, values)
                case Keep(_, inside) | Routine(_, inside):
                    yield from self.steps(inside, values)
                case Assign():
                    yield from _assign(node, values)
                case IntrinsicCall(_, _, _, loops, meaning, _):
                    for point in product(*(self.points(e) for _, e in loops)):
                        self.step()
                        inner = {n: i for (n, _), i in zip(loops, point, strict=True)}
                        yield from _assign(meaning, {**values, **inner})
                case ThreadBarrier():
                    yield node
                case CombineAcrossThreads():
                    yield from _combine(node, values)
                case PrefetchOf(access):
                    touch = _touch(access, values, writes=False)
                    if not 0 <= touch.element < self.program.array[touch.buffer].elements:
                        self.inside(touch)
                case _:
                    raise AssertionError("a launch inside a launch, or a call of units")


def _launches(body: tuple[Node, ...]) -> bool:
    return any(
        isinstance(n, Launch) or (isinstance(n, Loop | If | Allocate) and _launches(inner(n)))
        for n in body
    )


def _waits(body: tuple[Node, ...]) -> bool:
    return any(isinstance(n, ThreadBarrier | CombineAcrossThreads) for n in nodes(body))


def _label(touches: list[tuple[int, Touch]]) -> str:
    return " and ".join(sorted({t.buffer for _, t in touches}))


def _touch(access: Access, values: Values, *, writes: bool, shared: str = "") -> Touch:
    return Touch(access.tensor, int(evaluate(access.indices[0], values)), writes, shared)


def _assign(node: Assign, values: Values) -> Steps:
    yield from (_touch(a, values, writes=False) for a in _reads(node.value, values))
    if node.op != "=":
        yield _touch(node.target, values, writes=False)
    yield _touch(node.target, values, writes=True)


def _reads(value: Expr, values: Values) -> Iterator[Access]:
    """Accesses that are evaluated; behind a condition on data, those of the condition only."""
    match value:
        case Access():
            yield value
        case Call("select", (condition, yes, no)):
            yield from _reads(condition, values)
            if not _on_data(condition):
                yield from _reads(yes if evaluate(condition, values) else no, values)
        case Binary("and" | "or" as op, left, right):
            yield from _reads(left, values)
            if not _on_data(left) and bool(evaluate(left, values)) == (op == "and"):
                yield from _reads(right, values)
        case _:
            for child in children(value):
                yield from _reads(child, values)


def _on_data(condition: Expr) -> bool:
    return any(isinstance(n, Access) for n in walk(condition))


_LEFT_OUT = ThreadBarrier("iterations left out")
_WAIT = tuple(ThreadBarrier(f"part {n}") for n in range(64))


def _combine(node: CombineAcrossThreads, values: Values) -> Steps:
    count = prod(e for _, e in node.coordinates)
    rank = place = 0
    for name, extent in node.coordinates:
        rank = rank * extent + values[name]
    for name, extent in (*node.others, *node.coordinates):
        place = place * extent + values[name]
    takes = all(evaluate(c, values) for c in node.participates)
    waits = iter(_WAIT)
    if node.leading:
        yield next(waits)
    if takes:
        yield _touch(node.partial, values, writes=False)
        yield Touch(node.scratch, place, True)
    yield next(waits)
    width = count
    while width > 1:
        half = (width + 1) // 2
        if takes and rank + half < width:
            yield Touch(node.scratch, place + half, False)
            yield Touch(node.scratch, place, False)
            yield Touch(node.scratch, place, True)
        yield next(waits)
        width = half
    if takes and all(evaluate(c, values) for c in node.stores):
        yield Touch(node.scratch, place - rank, False)
        yield _touch(node.target, values, writes=True, shared=f"result of {node.stage}")
