"""What a processor runs, alone or beside units, executed from its program in NumPy.

Iterations that run at once (of parallel loops, blocks and threads of a launch) take every step
together: all of them one node, then the next. Loops around a single statement run at once too where
its instances do not depend on each other, all others in order. An element that nothing has written
is never read: a buffer is fresh in every iteration around it, and each who does not share it has
one of his own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod

import numpy as np
import numpy.typing as npt

from hwgen.codegen.nodes import (
    Allocate,
    Assign,
    Call,
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
    Sync,
    ThreadBarrier,
    counted,
    inner,
    nodes,
)
from hwgen.errors import HwgenError
from hwgen.spec.expression import Access, Binary, Const, Name, Unary, UpdateOp, names, walk
from hwgen.spec.hardware import HardwareSpec
from hwgen.spec.typecheck import integer_range, is_float, promoted

from .integers import evaluate_rows
from .numeric import (
    STORAGE,
    Array,
    Mask,
    Value,
    evaluate,
    load,
    store,
)

POINTS = 1 << 21
"""Instances that are in memory at once."""

Rows = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class _Lanes:
    """Iterations `first ..< end` of a loop that run at once. `level`: who each of them is."""

    variable: str
    first: int
    end: int
    level: str

    @property
    def extent(self) -> int:
        return self.end - self.first


_Chain = tuple[Loop | If | _Lanes, ...]


@dataclass(frozen=True, slots=True)
class CodeRun:
    """Outputs by name, instances of statements that ran, and elements that they read."""

    outputs: dict[str, Array]
    instances: int
    read_elements: int


@np.errstate(all="ignore")
def run_code(program: Code, hardware: HardwareSpec, arrays: Mapping[str, Array]) -> CodeRun:
    """The outputs of a program on row-major inputs, by name.

    Raises:
        HwgenError: H726, an input is missing or has another shape or data type; H729, an element
            is read that was not written, or lies outside, or an output is not written whole; H727
            undefined arithmetic.
    """
    machine = _Machine(program, hardware)
    for name in program.inputs:
        machine.values[name] = np.array(np.ravel(_given(program, name, arrays)))
    for name in program.outputs:
        machine.room(name, ())
    machine.nodes(program.body, (), {})
    for name in program.outputs:
        missing = int(np.count_nonzero(~machine.written[name]))
        if missing:
            raise _wrong(f"{missing} elements of {name} are never written", "an incomplete output")
    outputs = {n: np.reshape(machine.values[n], program.array[n].extents) for n in program.outputs}
    return CodeRun(outputs, machine.instances, machine.read_elements)


def _given(program: Code, name: str, arrays: Mapping[str, Array]) -> Array:
    buffer, given = program.array[name], arrays.get(name)
    kind = STORAGE[buffer.dtype]
    if given is None or given.shape != buffer.extents or given.dtype != kind:
        raise HwgenError(
            "H726",
            f"an input tensor is missing or does not fit: {name}",
            found="nothing" if given is None else f"{given.dtype}{list(given.shape)}",
            allowed=f"{kind}{list(buffer.extents)}",
        )
    return given


def _wrong(message: str, found: str) -> HwgenError:
    return HwgenError(
        "H729",
        message,
        field="processor",
        found=found,
        allowed="elements inside a buffer, written before they are read",
        repair="report the workload, the spec and this message",
    )


@dataclass
class _Machine:
    """`values`: flat buffers, one after the other where several lanes have their own; `owners`: by
    buffer, these lanes; `written`: by buffer that the program writes, which elements are."""

    program: Code
    hardware: HardwareSpec
    values: dict[str, Array] = field(default_factory=dict[str, Array])
    owners: dict[str, tuple[_Lanes, ...]] = field(default_factory=dict[str, tuple[_Lanes, ...]])
    written: dict[str, Mask] = field(default_factory=dict[str, Mask])
    instances: int = 0
    read_elements: int = 0

    def room(self, name: str, chain: _Chain) -> None:
        """A buffer before anything is written to it, in some loops."""
        buffer = self.program.array[name]
        memory = self.hardware.memory.get(buffer.memory)
        level = "thread" if memory is None else memory.shared_by
        # Threads of a block share what is a block's, but not what is another iteration's of a
        # parallel loop.
        shares = {"thread": (), "block": ("thread",), "kernel": ("thread", "block")}[level]
        lanes = tuple(x for x in chain if isinstance(x, _Lanes) and x.level not in shares)
        count = buffer.elements * prod(x.extent for x in lanes)
        self.owners[name] = lanes
        self.values[name] = np.zeros(count, STORAGE[buffer.dtype])
        self.written[name] = np.zeros(count, np.bool_)

    def nodes(self, nodes: tuple[Node, ...], chain: _Chain, at: Mapping[str, int]) -> None:
        for node in nodes:
            self.node(node, chain, at)

    def node(self, node: Node, chain: _Chain, at: Mapping[str, int]) -> None:
        """Run a node in the loops and conditions of `chain`, which hold nothing else."""
        match node:
            case Assign():
                self.assign(node, chain, at)
            case Loop() if self.hardware.machine.runs(node.kind) == "parallel":
                self.at_once(node, chain, at)
            case Call() | Sync():
                raise AssertionError("code has no calls of units")
            case If(condition, then, (_, *_) as otherwise):
                self.nodes((If(condition, then), If(Unary("not", condition), otherwise)), chain, at)
            case Loop(body=(only,)) | If(then=(only,)):
                self.node(only, (*chain, node), at)
            case Keep(body=(only,)) | Routine(body=(only,)):
                self.node(only, chain, at)
            case IntrinsicCall():
                loops = tuple(counted(n, e, ()) for n, e in node.loops)
                self.assign(node.meaning, (*chain, *loops), at)
            case ThreadBarrier() | PrefetchOf():
                pass
            case Loop() | If() | Keep() | Routine() if self.apart(node, chain, at):
                more = (node,) if isinstance(node, Loop | If) else ()
                self.nodes(inner(node), (*chain, *more), at)
            case _ if any(isinstance(x, Loop) for x in chain):
                self.in_turn((node,), chain, at)
            case Loop():
                self.in_turn(node.body, (*chain, node), at)
            case If():
                self.nodes(node.then, (*chain, node), at)
            case Keep() | Routine():
                self.nodes(node.body, chain, at)
            case Allocate():
                self.room(node.buffer, chain)
                self.nodes(node.body, chain, at)
            case Launch():
                self.launch(node, chain, at)
            case CombineAcrossThreads():
                _Combined(self, node, chain, at).run()

    def in_turn(self, body: tuple[Node, ...], chain: _Chain, at: Mapping[str, int]) -> None:
        """Nodes in each iteration of the outermost loop of a chain that is run in order; all lanes
        together."""
        place = next(n for n, x in enumerate(chain) if isinstance(x, Loop))
        loop = chain[place]
        assert isinstance(loop, Loop)
        before, after = chain[:place], chain[place + 1 :]
        own = _within(loop)
        for i in range(_count(loop)):
            self.nodes(body, (*before, *own, *after), {**at, loop.variable: i})

    def at_once(self, loop: Loop, chain: _Chain, at: Mapping[str, int]) -> None:
        """A parallel loop; in parts where there are too many iterations."""
        if any(isinstance(x, Loop) for x in chain):
            self.in_turn((loop,), chain, at)
            return
        for lanes in self.parts(loop.variable, _count(loop), "parallel", chain, loop.body):
            self.nodes(loop.body, (*chain, lanes, *_within(loop)), at)

    def launch(self, launch: Launch, chain: _Chain, at: Mapping[str, int]) -> None:
        """Blocks and threads; in parts of whole blocks where there are too many."""
        kinds = self.hardware.machine.loop
        lanes = [_Lanes(v, 0, e, kinds[k].level) for k, v, e in launch.coordinates]
        lanes.sort(key=lambda x: x.level != "block")
        first = next((x for x in lanes if x.level == "block"), None)
        if first is None:
            self.nodes(launch.body, (*chain, *lanes), at)
            return
        around = (*chain, *(x for x in lanes if x is not first))
        for part in self.parts(first.variable, first.extent, "block", around, launch.body):
            self.nodes(launch.body, (*chain, *(part if x is first else x for x in lanes)), at)

    def parts(
        self, variable: str, extent: int, level: str, chain: _Chain, body: tuple[Node, ...]
    ) -> list[_Lanes]:
        """Lanes for all iterations, in as many parts as memory needs."""
        each = prod(x.extent for x in chain if isinstance(x, _Lanes))
        held = max((self.program.array[n.buffer].elements for n in nodes(body)
                    if isinstance(n, Allocate)), default=1)  # fmt: skip
        count = max(1, POINTS // max(1, each * held))
        return [_Lanes(variable, n, min(extent, n + count), level) for n in range(0, extent, count)]

    def apart(self, node: Loop | If | Keep | Routine, chain: _Chain, at: Mapping[str, int]) -> bool:
        """Whether the nodes of a body may run one after the other for all iterations of the loops
        around: what each iteration writes, it alone touches, in one element."""
        around = (*chain, node) if isinstance(node, Loop | If) else chain
        found = [n for n in nodes(inner(node)) if not isinstance(n, Loop | If | Keep | Assign)]
        if found or not around:
            return False
        statements = [n for n in nodes(inner(node)) if isinstance(n, Assign)]
        for target in {s.target: None for s in statements}:
            touched = (a for s in statements for a in (s.target, *walk(s.value)))
            if any(a.tensor == target.tensor and a != target for a in touched
                   if isinstance(a, Access)):  # fmt: skip
                return False
            own = Assign("", target, "=", Const(0))
            known = {*at, *(x.variable for x in around if not isinstance(x, If))}
            if not {*names(target)} <= known or not _Batch(self, own, around, at).distinct:
                return False
        return True

    def assign(self, node: Assign, chain: _Chain, at: Mapping[str, int]) -> None:
        """All instances of a statement; long chains in parts."""
        loops = [x for x in chain if not isinstance(x, If)]
        batch = _Batch(self, node, chain, at)
        if not any(isinstance(x, Loop) for x in loops):
            batch.run()
            return
        if prod(batch.shape) <= POINTS and batch.independent:
            batch.run()
            return
        self.in_turn((node,), chain, at)


def _count(loop: Loop | _Lanes) -> int:
    """Iterations of a loop, at most."""
    if isinstance(loop, Loop) and isinstance(loop.upper, Const):
        return int(loop.upper.value)
    return loop.extent


def _within(loop: Loop) -> tuple[If, ...]:
    """The condition of an iteration, where not all run."""
    if isinstance(loop.upper, Const):
        return ()
    return (If(Binary("<", Name(loop.variable), loop.upper), ()),)


class _Batch:
    """Instances of one statement that run at once: one axis per loop."""

    def __init__(
        self, machine: _Machine, node: Assign, chain: _Chain, at: Mapping[str, int]
    ) -> None:
        self.machine, self.node = machine, node
        loops = [x for x in chain if not isinstance(x, If)]
        self.shape = tuple(map(_count, loops))
        rank = len(loops)
        self.rows: dict[str, Rows] = {n: np.full((1,) * rank, i, np.int64) for n, i in at.items()}
        for axis, loop in enumerate(loops):
            places = [1] * rank
            places[axis] = self.shape[axis]
            first = loop.first if isinstance(loop, _Lanes) else 0
            values = np.arange(first, first + self.shape[axis], dtype=np.int64)
            self.rows[loop.variable] = np.reshape(values, places)
        self.mask: Mask = np.ones((1,) * rank, np.bool_)
        for item in chain:
            match item:
                case Loop(variable, _, bound) if not isinstance(bound, Const):
                    self.narrow(self.rows[variable] < evaluate_rows(bound, self.rows))
                case If(condition):
                    self.narrow(evaluate_rows(condition, self.rows) != 0)
                case _:
                    pass

    def narrow(self, holds: Mask) -> None:
        """Fewer instances."""
        self.mask = np.logical_and(self.mask, holds)

    @property
    def independent(self) -> bool:
        """Whether no instance reads what another one writes."""
        target = self.node.target
        own = [a for a in walk(self.node.value) if isinstance(a, Access)]
        own = [a for a in own if a.tensor == target.tensor]
        if not own:
            return True
        return all(a == target for a in own) and self.distinct

    @property
    def distinct(self) -> bool:
        """Whether each instance has an element of its own. Conditions further in may keep some from
        writing theirs, so that it need not lie in the buffer."""
        _, rows = self._elements(self.node.target)
        places = np.broadcast_to(rows, self.shape)
        chosen = places[np.broadcast_to(self.mask, self.shape)]
        return np.unique(chosen).size == chosen.size

    def run(self) -> None:
        if not self.mask.any():
            return
        self.machine.instances += int(np.count_nonzero(np.broadcast_to(self.mask, self.shape)))
        self.put(self.node.target, self.node.op, self.value())

    def put(self, target: Access, op: UpdateOp, given: Value) -> None:
        """Write a value of every instance."""
        buffer = self.machine.program.array[target.tensor]
        offsets = self._offsets(target, self.mask)
        value = store(given, buffer.dtype)
        if op == "=":
            shape = np.broadcast_shapes(offsets.shape, value.shape, self.mask.shape)
            chosen = np.broadcast_to(self.mask, shape)
            places = np.broadcast_to(offsets, shape)[chosen]
            self.machine.values[target.tensor][places] = np.broadcast_to(value, shape)[chosen]
        else:
            self._check(target, offsets, self.mask)
            still = self._still(target)
            sums = self.folded(op, value, buffer.dtype, still)
            chosen = np.any(np.broadcast_to(self.mask, self.shape), axis=still, keepdims=True)
            at = np.max(np.broadcast_to(offsets, self.shape), axis=still, keepdims=True)
            places = at[chosen]
            self._add(target, op, places, sums[chosen])
        self.machine.written[target.tensor][places] = True

    def folded(self, op: UpdateOp, value: Array, dtype: str, axes: tuple[int, ...]) -> Array:
        """The values of all instances along some axes put together."""
        # An instance for every value of the loops, whether anything moves along them or not.
        new = np.broadcast_to(load(value, dtype).array, self.shape)
        wide = np.dtype(np.float64) if is_float(dtype) else new.dtype
        if not self.mask.all():
            new = np.where(self.mask, new, _neutral(op, dtype, wide))
        match op:
            case "max=":
                return np.asarray(np.max(new, axis=axes, keepdims=True), wide)
            case "min=":
                return np.asarray(np.min(new, axis=axes, keepdims=True), wide)
            case _:
                return np.asarray(np.sum(new, axis=axes, dtype=wide, keepdims=True))

    def _still(self, access: Access) -> tuple[int, ...]:
        """Axes along which an access does not move."""
        own = self.machine.owners.get(access.tensor, ())
        moving = {*names(access), *(x.variable for x in own)}
        loops = [n for n, rows in self.rows.items() if rows.size > 1]
        axes = {int(np.argmax(np.array(self.rows[n].shape) > 1)) for n in loops if n in moving}
        return tuple(n for n in range(len(self.shape)) if n not in axes)

    def _add(self, target: Access, op: UpdateOp, places: Rows, new: Array) -> None:
        """Fold values into elements, several into one in order."""
        fold = FOLDS[op]
        flat = self.machine.values[target.tensor]
        dtype = self.machine.program.array[target.tensor].dtype
        order = np.argsort(places, kind="stable")
        unique, starts = np.unique(places[order], return_index=True)
        sums = fold.reduceat(new[order], starts)
        old = load(flat[unique], dtype).array.astype(new.dtype)
        kind = "float64" if is_float(dtype) else promoted(dtype)
        flat[unique] = store(Value(np.asarray(fold(old, sums)), kind), dtype)

    def _offsets(self, access: Access, mask: Mask) -> Rows:
        """Flat offsets; 0 where the mask does not hold."""
        inside, rows = self._elements(access)
        if not np.logical_or(inside, np.logical_not(mask)).all():
            raise _wrong(f"{access} lies outside of its buffer", self._at(inside, mask))
        return np.where(np.logical_and(inside, mask), rows, 0)

    def _elements(self, access: Access) -> tuple[Mask, Rows]:
        """Which elements of an access are inside its buffer, and all as flat offsets."""
        (index,) = access.indices
        rows = evaluate_rows(index, self.rows)
        size = self.machine.program.array[access.tensor].elements
        number = np.zeros((), np.int64)
        for lanes in self.machine.owners.get(access.tensor, ()):
            number = number * lanes.extent + self.rows[lanes.variable] - lanes.first
        return np.logical_and(rows >= 0, rows < size), rows + number * size

    def _check(self, access: Access, offsets: Rows, mask: Mask) -> None:
        written = self.machine.written.get(access.tensor)
        if written is None:
            return
        known = written[offsets]
        if not np.logical_or(known, np.logical_not(mask)).all():
            raise _wrong(f"{access} is not there yet", self._at(known, mask))

    def _at(self, good: Mask, mask: Mask) -> str:
        """The first point at which a mask holds and something else does not."""
        bad = np.broadcast_to(np.logical_and(mask, np.logical_not(good)), self.shape)
        place = tuple(int(i[0]) for i in np.nonzero(bad)) if self.shape else ()
        values = {n: int(np.broadcast_to(r, self.shape)[place]) for n, r in self.rows.items()}
        return ", ".join(f"{n}={v}" for n, v in values.items()) or "the only point"

    def value(self) -> Value:
        """The statement's value in every instance."""
        scalars = {n: Value(r.astype(np.int32), "int32") for n, r in self.rows.items()}

        def read(access: Access, mask: Mask | None) -> Value:
            used = self.mask if mask is None else np.logical_and(self.mask, mask)
            offsets = self._offsets(access, used)
            self._check(access, offsets, used)
            active = np.broadcast_to(used, self.shape)
            self.machine.read_elements += int(np.count_nonzero(active))
            dtype = self.machine.program.array[access.tensor].dtype
            return load(self.machine.values[access.tensor][offsets], dtype)

        return evaluate(self.node.value, read, scalars, None if self.mask.all() else self.mask)


FOLDS = {"+=": np.add, "max=": np.maximum, "min=": np.minimum}


class _Combined:
    """What threads have, each its part, put together by those that differ in some coordinates."""

    def __init__(
        self,
        machine: _Machine,
        node: CombineAcrossThreads,
        chain: _Chain,
        at: Mapping[str, int],
    ) -> None:
        self.machine, self.node = machine, node
        takes = (*chain, *(If(c, ()) for c in node.participates))
        own = Assign(node.stage, node.target, "=", node.partial)
        self.parts = _Batch(machine, own, takes, at)
        self.stored = _Batch(machine, own, (*takes, *(If(c, ()) for c in node.stores)), at)
        lanes = [x.variable for x in chain if isinstance(x, _Lanes)]
        self.axes = tuple(lanes.index(n) for n, _ in node.coordinates)

    def run(self) -> None:
        """All threads of all blocks."""
        if not self.parts.mask.any():
            return
        dtype = self.machine.program.array[self.node.target.tensor].dtype
        part = store(self.parts.value(), dtype)
        whole = self.parts.folded(self.node.op, part, dtype, self.axes)
        shape = self.parts.shape
        kind = "float64" if is_float(dtype) else promoted(dtype)
        self.stored.put(self.node.target, "=", Value(np.broadcast_to(whole, shape), kind))


def _neutral(op: UpdateOp, dtype: str, wide: np.dtype[np.generic]) -> Array:
    """What changes no result of an operation."""
    if op == "+=":
        return np.zeros((), wide)
    lowest, highest = (-np.inf, np.inf) if is_float(dtype) else integer_range(dtype)
    return np.asarray(lowest if op == "max=" else highest, wide)
