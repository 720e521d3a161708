"""What a processor beside units runs, executed from its program in NumPy.

Loops around a single statement run at once where its instances do not depend on each other, all
others in order. An element that nothing has written is never read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod

import numpy as np
import numpy.typing as npt

from hwgen.codegen.nest.program import (
    Allocate,
    Assign,
    Barrier,
    For,
    If,
    IntrinsicCall,
    Keep,
    NestProgram,
    Node,
    PrefetchOf,
    Routine,
    nodes,
)
from hwgen.errors import HwgenError
from hwgen.spec.expression import Access, Const, names, walk

from .integers import evaluate_rows
from .numeric import (
    STORAGE,
    Array,
    Mask,
    Value,
    evaluate,
    is_float,
    load,
    promoted,
    store,
)

POINTS = 1 << 21
"""Instances that are in memory at once."""

Rows = npt.NDArray[np.int64]

_Chain = tuple[For | If, ...]


def run_code(program: NestProgram, arrays: Mapping[str, Array]) -> dict[str, Array]:
    """The outputs of a program on row-major inputs, by name.

    Raises:
        HwgenError: H729, an element is read that was not written, or lies outside, or an output is
            not written whole; H727 undefined arithmetic.
    """
    machine = _Machine(program)
    for name in program.inputs:
        machine.values[name] = np.array(np.ravel(arrays[name]))
    for name in program.outputs:
        machine.room(name)
    machine.nodes(program.body, {})
    for name in program.outputs:
        missing = int(np.count_nonzero(~machine.written[name]))
        if missing:
            raise _wrong(f"{missing} elements of {name} are never written", "an incomplete output")
    return {n: np.reshape(machine.values[n], program.buffer[n].extents) for n in program.outputs}


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
    """`values`: flat buffers; `written`: by buffer that the program writes, which elements are."""

    program: NestProgram
    values: dict[str, Array] = field(default_factory=dict[str, Array])
    written: dict[str, Mask] = field(default_factory=dict[str, Mask])

    def room(self, name: str) -> None:
        """A buffer before anything is written to it."""
        buffer = self.program.buffer[name]
        self.values[name] = np.zeros(buffer.elements, STORAGE[buffer.dtype])
        self.written[name] = np.zeros(buffer.elements, np.bool_)

    def nodes(self, nodes: tuple[Node, ...], at: Mapping[str, int]) -> None:
        for node in nodes:
            self.node(node, (), at)

    def node(self, node: Node, chain: _Chain, at: Mapping[str, int]) -> None:
        """Run a node in the loops and conditions of `chain`, which hold nothing else."""
        match node:
            case Assign():
                self.assign(node, chain, at)
            case For() | If() if len(node.body) == 1:
                self.node(node.body[0], (*chain, node), at)
            case Keep() | Routine() if len(node.body) == 1:
                self.node(node.body[0], chain, at)
            case IntrinsicCall():
                loops = tuple(For(n, Const(e), e, "serial", ()) for n, e in node.loops)
                self.assign(node.meaning, (*chain, *loops), at)
            case For() | If() | Keep() | Routine() if self.apart(node, chain, at):
                more = (node,) if isinstance(node, For | If) else ()
                for inner in node.body:
                    self.node(inner, (*chain, *more), at)
            case _ if chain:
                for inner in self.points(chain, at):
                    self.node(node, (), inner)
            case For() | If() | Keep() | Routine():
                for inner in self.points((node,) if isinstance(node, For | If) else (), at):
                    self.nodes(node.body, inner)
            case Allocate():
                self.room(node.buffer)
                self.nodes(node.body, at)
            case Barrier() | PrefetchOf():
                pass
            case _:
                raise AssertionError(f"{type(node).__name__} beside units")

    def apart(self, node: For | If | Keep | Routine, chain: _Chain, at: Mapping[str, int]) -> bool:
        """Whether the nodes of a body may run one after the other for all iterations of the loops
        around: what each iteration writes, it alone touches, in one element."""
        around = (*chain, node) if isinstance(node, For | If) else chain
        found = [n for n in nodes(node.body) if not isinstance(n, For | If | Keep | Assign)]
        if found or not around:
            return False
        statements = [n for n in nodes(node.body) if isinstance(n, Assign)]
        for target in {s.target for s in statements}:
            touched = (a for s in statements for a in (s.target, *walk(s.value)))
            if any(a.tensor == target.tensor and a != target for a in touched
                   if isinstance(a, Access)):  # fmt: skip
                return False
            own = Assign("", target, "=", target)
            known = {*at, *(x.variable for x in around if isinstance(x, For))}
            if not {*names(target)} <= known or not _Batch(self, own, around, at).independent:
                return False
        return True

    def points(self, chain: _Chain, at: Mapping[str, int]) -> list[Mapping[str, int]]:
        """The values of loop variables at which a chain's body runs, in order."""
        found: list[Mapping[str, int]] = [at]
        for node in chain:
            rows = [{n: np.asarray(v, np.int64) for n, v in point.items()} for point in found]
            if isinstance(node, If):
                held = [bool(evaluate_rows(node.condition, row)) for row in rows]
                found = [p for p, holds in zip(found, held, strict=True) if holds]
            else:
                bounds = [int(evaluate_rows(node.bound, row)) for row in rows]
                pairs = zip(found, bounds, strict=True)
                found = [{**p, node.variable: i} for p, bound in pairs for i in range(bound)]
        return found

    def assign(self, node: Assign, chain: _Chain, at: Mapping[str, int]) -> None:
        """All instances of a statement; long chains in parts."""
        loops = [x for x in chain if isinstance(x, For)]
        batch = _Batch(self, node, chain, at)
        if not loops or (prod(x.extent for x in loops) <= POINTS and batch.independent):
            batch.run()
            return
        first = chain.index(loops[0])
        for point in self.points(chain[: first + 1], at):
            self.assign(node, chain[first + 1 :], point)


class _Batch:
    """Instances of one statement that run at once: one axis per loop."""

    def __init__(
        self, machine: _Machine, node: Assign, chain: _Chain, at: Mapping[str, int]
    ) -> None:
        self.machine, self.node = machine, node
        loops = [x for x in chain if isinstance(x, For)]
        self.shape = tuple(x.extent for x in loops)
        rank = len(loops)
        self.rows: dict[str, Rows] = {n: np.full((1,) * rank, i, np.int64) for n, i in at.items()}
        for axis, loop in enumerate(loops):
            places = [1] * rank
            places[axis] = loop.extent
            self.rows[loop.variable] = np.reshape(np.arange(loop.extent, dtype=np.int64), places)
        self.mask: Mask = np.ones((1,) * rank, np.bool_)
        for item in chain:
            holds = (
                self.rows[item.variable] < evaluate_rows(item.bound, self.rows)
                if isinstance(item, For)
                else evaluate_rows(item.condition, self.rows) != 0
            )
            self.mask = np.logical_and(self.mask, holds)

    @property
    def independent(self) -> bool:
        """Whether no instance reads what another one writes."""
        target = self.node.target
        own = [a for a in walk(self.node.value) if isinstance(a, Access)]
        own = [a for a in own if a.tensor == target.tensor]
        if not own:
            return True
        if any(a != target for a in own):
            return False
        places = np.broadcast_to(self._offsets(target, self.mask), self.shape)
        chosen = places[np.broadcast_to(self.mask, self.shape)]
        return np.unique(chosen).size == chosen.size

    def run(self) -> None:
        if not self.mask.any():
            return
        target, op = self.node.target, self.node.op
        buffer = self.machine.program.buffer[target.tensor]
        offsets = self._offsets(target, self.mask)
        value = store(self._value(), buffer.dtype)
        shape = np.broadcast_shapes(offsets.shape, value.shape, self.mask.shape)
        if op == "=":
            chosen = np.broadcast_to(self.mask, shape)
            places = np.broadcast_to(offsets, shape)[chosen]
            self.machine.values[target.tensor][places] = np.broadcast_to(value, shape)[chosen]
        else:
            # An instance for every value of the loops, whether anything moves along them or not.
            chosen = np.broadcast_to(self.mask, self.shape)
            places = np.broadcast_to(offsets, self.shape)[chosen]
            self._check(target, offsets, self.mask)
            self._fold(places, np.broadcast_to(value, self.shape)[chosen], op, buffer.dtype)
        self.machine.written[target.tensor][places] = True

    def _fold(self, places: Rows, values: Array, op: str, dtype: str) -> None:
        fold = {"+=": np.add, "max=": np.maximum, "min=": np.minimum}[op]
        flat = self.machine.values[self.node.target.tensor]
        new = load(values, dtype).array
        wide = np.dtype(np.float64) if is_float(dtype) else new.dtype
        order = np.argsort(places, kind="stable")
        unique, starts = np.unique(places[order], return_index=True)
        sums = fold.reduceat(new.astype(wide, copy=False)[order], starts)
        old = load(flat[unique], dtype).array.astype(wide)
        kind = "float64" if is_float(dtype) else promoted(dtype)
        flat[unique] = store(Value(np.asarray(fold(old, sums)), kind), dtype)

    def _offsets(self, access: Access, mask: Mask) -> Rows:
        """Flat offsets; 0 where the mask does not hold."""
        (index,) = access.indices
        rows = evaluate_rows(index, self.rows)
        inside = np.logical_and(rows >= 0, rows < self.machine.values[access.tensor].size)
        if not np.logical_or(inside, np.logical_not(mask)).all():
            raise _wrong(f"{access} lies outside of its buffer", self._at(inside, mask))
        return np.where(np.logical_and(inside, mask), rows, 0)

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

    def _value(self) -> Value:
        scalars = {n: Value(r.astype(np.int32), "int32") for n, r in self.rows.items()}

        def read(access: Access, mask: Mask | None) -> Value:
            used = self.mask if mask is None else np.logical_and(self.mask, mask)
            offsets = self._offsets(access, used)
            self._check(access, offsets, used)
            dtype = self.machine.program.buffer[access.tensor].dtype
            return load(self.machine.values[access.tensor][offsets], dtype)

        return evaluate(self.node.value, read, scalars, None if self.mask.all() else self.mask)
