"""A scheduled nest executed in NumPy, loop by loop, with checks that the schedule's legality and
its lowering share no code with.

Every tensor is held whole, and every element knows in which iteration of its home it was written: a
read of anything else is an error, so a schedule that relies on a value from elsewhere is found even
where the value happens to be right. Loops around a single block run at once, the others in order.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod

import numpy as np
import numpy.typing as npt

from hwgen.errors import HwgenError
from hwgen.model.integers import evaluate_rows
from hwgen.model.numeric import (
    STORAGE,
    Array,
    Mask,
    Value,
    evaluate,
    integer_limits,
    is_float,
    load,
    promoted,
    store,
)
from hwgen.polyhedral.nest.relations import carried
from hwgen.polyhedral.nest.state import RUNNING, Block, Loop, Node, Stage, State
from hwgen.spec.expression import Access, Expr
from hwgen.spec.workload import Workload

POINTS = 1 << 21
"""Instances that are in memory at once."""

Rows = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class NestRun:
    """Outputs by name, instances that ran, and elements read and written per tensor."""

    outputs: dict[str, Array]
    instances: int
    read_elements: dict[str, int]
    written_elements: dict[str, int]


def run_nest(
    state: State,
    homes: Mapping[str, tuple[str, ...]],
    workload: Workload,
    inputs: Mapping[str, Array],
) -> NestRun:
    """Execute a schedule on row-major tensors.

    Args:
        state: the schedule.
        homes: per tensor that a stage writes, the loops around its home.
        workload: whose inputs and outputs these are.
        inputs: an array for every input, as `numeric.STORAGE` of its data type.

    Raises:
        HwgenError: H726, an input is missing or has another shape or data type; H729, an element
            is read that was not written in the same iteration of its home, or lies outside.
    """
    run = _Run(state, homes, workload)
    for tensor in workload.inputs:
        given = inputs.get(tensor.name)
        kind = STORAGE[tensor.dtype]
        if given is None or given.shape != tensor.shape or given.dtype != kind:
            raise HwgenError(
                "H726",
                f"an input tensor is missing or does not fit: {tensor.name}",
                location=tensor.location,
                found="nothing" if given is None else f"{given.dtype}{list(given.shape)}",
                allowed=f"{kind}{list(tensor.shape)}",
            )
        run.values[tensor.name] = np.ascontiguousarray(given).ravel()
    run.nodes(state.root, {})
    for tensor in workload.outputs:
        lost = int(np.count_nonzero(run.stamps[tensor.name] == 0))
        if lost:
            raise HwgenError(
                "H729",
                f"{lost} elements of {tensor.name} are never written",
                allowed="outputs that are written whole",
                repair="report it: the schedule should have been refused",
            )
    outputs = {t.name: np.reshape(run.values[t.name], t.shape) for t in workload.outputs}
    return NestRun(outputs, run.instances, run.read, run.written)


@dataclass
class _Run:
    """`values`: flat tensors; `stamps`: per element, one more than the number of the iteration of
    the tensor's home in which it was written; 0: never."""

    state: State
    homes: Mapping[str, tuple[str, ...]]
    workload: Workload
    values: dict[str, Array] = field(default_factory=dict[str, Array])
    stamps: dict[str, Rows] = field(default_factory=dict[str, Rows])
    instances: int = 0
    read: dict[str, int] = field(default_factory=dict[str, int])
    written: dict[str, int] = field(default_factory=dict[str, int])

    def __post_init__(self) -> None:
        for tensor in self.state.tensors:
            if tensor.role != "input":
                count = prod(tensor.shape)
                self.values[tensor.name] = np.zeros(count, STORAGE[tensor.dtype])
                self.stamps[tensor.name] = np.zeros(count, np.int64)

    def nodes(self, nodes: tuple[Node, ...], at: dict[str, int]) -> None:
        for node in nodes:
            match node:
                case Block():
                    self.block(node, (), at)
                case Loop():
                    self.loop(node, at)

    def loop(self, loop: Loop, at: dict[str, int]) -> None:
        chain = [loop]
        while len(chain[-1].body) == 1:
            inner = chain[-1].body[0]
            if isinstance(inner, Block):
                self.block(inner, tuple(chain), at)
                return
            chain.append(inner)
        for i in range(loop.extent):
            self.nodes(loop.body, {**at, loop.name: i})

    def block(self, block: Block, chain: tuple[Loop, ...], at: dict[str, int]) -> None:
        """All instances of a block in a chain of loops; long chains in parts."""
        stage = self.state.stage[block.stage]
        if stage.ordered and block.part != "init":
            carriers = carried(self.state, self.state.site[block.name])
            inner = next((x for x in chain if x.name in carriers), None)
            if inner is not None:
                rest = tuple(x for x in chain if x != inner)
                for i in range(inner.extent):
                    self.block(block, rest, {**at, inner.name: i})
                return
        if prod(x.extent for x in chain) > POINTS and len(chain) > 0:
            for i in range(chain[0].extent):
                self.block(block, chain[1:], {**at, chain[0].name: i})
            return
        _Batch(self, block, chain, at).run()


class _Batch:
    """Instances of one block that run at once: one axis per loop of the chain."""

    def __init__(
        self, run: _Run, block: Block, chain: tuple[Loop, ...], at: dict[str, int]
    ) -> None:
        self.run_, self.block = run, block
        self.stage: Stage = run.state.stage[block.stage]
        self.shape = tuple(x.extent for x in chain)
        rank = len(chain)
        self.loops: dict[str, Rows] = {n: np.full((1,) * rank, i, np.int64) for n, i in at.items()}
        for axis, loop in enumerate(chain):
            places = [1] * rank
            places[axis] = loop.extent
            self.loops[loop.name] = np.reshape(np.arange(loop.extent, dtype=np.int64), places)
        self.rows = {i: evaluate_rows(e, self.loops) for i, e in block.bindings}
        self.mask: Mask = np.ones((1,) * rank, np.bool_)
        conditions = list(block.predicate)
        combined = any(x.combines for x in run.state.site[block.name].loops)
        if block.store_predicate is not None and not combined:
            conditions.append(block.store_predicate)
        for condition in conditions:
            self.mask = np.logical_and(self.mask, self._holds(condition))

    def _holds(self, condition: Expr) -> Mask:
        scalars = {n: Value(r, "int64") for n, r in self.loops.items()}

        def none(access: Access, _: Mask | None) -> Value:
            raise AssertionError(f"{access} in a condition")

        return np.asarray(evaluate(condition, none, scalars).array != 0)

    def run(self) -> None:
        if not self.mask.any():
            return
        count = int(np.count_nonzero(np.broadcast_to(self.mask, self.shape)))
        self.run_.instances += count
        target = self.stage.target
        offsets = self._offsets(target, self.mask)
        stamp = self._stamp(target.tensor)
        written = self.run_.written
        written[target.tensor] = written.get(target.tensor, 0) + count
        if self.block.part == "init":
            self._start(offsets, stamp, self.mask)
        elif not self.stage.reduces:
            value = store(self._value(), self.run_.state.tensor[target.tensor].dtype)
            self._put(offsets, value, stamp, self.mask)
        else:
            if self.block.part == "whole":
                first = self.mask
                for iterator, _ in self.stage.reduction:
                    first = np.logical_and(first, self.rows[iterator] == 0)
                if first.any():
                    self._start(offsets, stamp, first)
            self._check(target, offsets, stamp, self.mask)
            if self.stage.ordered:
                dtype = self.run_.state.tensor[target.tensor].dtype
                self._put(offsets, store(self._value(), dtype), stamp, self.mask)
            else:
                self._accumulate(offsets)

    def _stamp(self, tensor: str) -> Rows:
        """One more than the number of the iteration of a tensor's home."""
        number = np.zeros((1,) * len(self.shape), np.int64)
        for loop in self.run_.homes.get(tensor, ()):
            if loop not in self.loops:
                raise HwgenError(
                    "H729",
                    f"{self.stage.tensor} touches {tensor} outside of its home",
                    found=f"a home inside {loop}",
                    allowed="homes that are around every access",
                    repair="report it: the schedule should have been refused",
                )
            number = number * self.run_.state.extents[loop] + self.loops[loop]
        return number + 1

    def _offsets(self, access: Access, mask: Mask) -> Rows:
        """Flat offsets; anything (0) where the mask does not hold."""
        result = np.zeros((1,) * len(self.shape), np.int64)
        inside: Mask = np.ones((1,) * len(self.shape), np.bool_)
        for index, extent in zip(
            access.indices, self.run_.state.tensor[access.tensor].shape, strict=True
        ):
            rows = evaluate_rows(index, self.rows)
            result = result * extent + rows
            inside = inside & (rows >= 0) & (rows < extent)
        if not np.logical_or(inside, np.logical_not(mask)).all():
            self._fail(f"{access} lies outside of {access.tensor}", inside, mask)
        return np.where(inside, result, 0)

    def _check(self, access: Access, offsets: Rows, stamp: Rows, mask: Mask) -> None:
        known = self.run_.stamps[access.tensor][offsets] == stamp
        if not np.logical_or(known, np.logical_not(mask)).all():
            self._fail(f"{access} is not there yet", known, mask)

    def _fail(self, what: str, good: Mask, mask: Mask) -> None:
        bad = np.broadcast_to(np.logical_and(mask, np.logical_not(good)), self.shape)
        place = tuple(int(i[0]) for i in np.nonzero(bad)) if self.shape else ()
        loops = {
            n: int(np.broadcast_to(r, self.shape)[place]) if self.shape else int(r)
            for n, r in self.loops.items()
        }
        where = ", ".join(f"{n}={v}" for n, v in loops.items())
        raise HwgenError(
            "H729",
            "a schedule reads what has not been written",
            found=f"{what} at {where or 'the only point'}",
            allowed="elements written before in the same iteration of the buffer's home",
            repair="report it: the schedule should have been refused",
        )

    def _value(self) -> Value:
        scalars: dict[str, Value] = {}
        for name, value in self.run_.workload.sizes:
            kind = "int32" if -(1 << 31) <= value < 1 << 31 else "int64"
            scalars[name] = Value(np.asarray(value, STORAGE[kind]), kind, weak=True)
        for name, rows in self.rows.items():
            scalars[name] = Value(rows.astype(np.int32), "int32")

        def read(access: Access, mask: Mask | None) -> Value:
            access = self.stage.target if access == RUNNING else access
            used = self.mask if mask is None else np.logical_and(self.mask, mask)
            offsets = self._offsets(access, used)
            if access.tensor in self.run_.stamps:
                self._check(access, offsets, self._stamp(access.tensor), used)
            dtype = self.run_.state.tensor[access.tensor].dtype
            counts = self.run_.read
            counts[access.tensor] = counts.get(access.tensor, 0) + offsets.size
            return load(self.run_.values[access.tensor][offsets], dtype)

        return evaluate(self.stage.value, read, scalars, None if self.mask.all() else self.mask)

    def _put(self, offsets: Rows, value: Array, stamp: Rows, mask: Mask) -> None:
        tensor = self.stage.target.tensor
        shape = np.broadcast_shapes(offsets.shape, value.shape, stamp.shape, mask.shape)
        chosen = np.broadcast_to(mask, shape)
        places = np.broadcast_to(offsets, shape)[chosen]
        self.run_.values[tensor][places] = np.broadcast_to(value, shape)[chosen]
        self.run_.stamps[tensor][places] = np.broadcast_to(stamp, shape)[chosen]

    def _start(self, offsets: Rows, stamp: Rows, mask: Mask) -> None:
        """Elements before their first contribution."""
        dtype = self.run_.state.tensor[self.stage.target.tensor].dtype
        match self.stage.op, is_float(dtype):
            case _ if self.stage.start is not None:
                start = self.stage.start.value
            case "max=", True:
                start = -np.inf
            case "min=", True:
                start = np.inf
            case "max=", False:
                start = integer_limits(dtype)[0]
            case "min=", False:
                start = integer_limits(dtype)[1]
            case _:
                start = 0
        kind = promoted(dtype)
        value = store(Value(np.asarray(start, STORAGE[kind]), kind), dtype)
        self._put(offsets, np.reshape(value, (1,) * len(self.shape)), stamp, mask)

    def _accumulate(self, offsets: Rows) -> None:
        """Add (or fold) every contribution to its element."""
        tensor = self.stage.target.tensor
        dtype = self.run_.state.tensor[tensor].dtype
        value = load(store(self._value(), dtype), dtype).array
        mask = self.mask
        if self.stage.op == "+=" and not mask.all():
            value = np.where(mask, value, value.dtype.type(0))
            mask = np.ones((1,) * len(self.shape), np.bool_)
        fold = {"+=": np.add, "max=": np.maximum, "min=": np.minimum}[self.stage.op]
        wide = np.float64 if is_float(dtype) else value.dtype
        full = np.broadcast_to(value.astype(wide, copy=False), self.shape)
        keep = np.broadcast_shapes(offsets.shape, mask.shape)
        axes = tuple(n for n, e in enumerate(self.shape) if keep[n] == 1 and e > 1) if keep else ()
        part: Array = full
        if axes:
            match self.stage.op:
                case "+=" | "=":
                    part = np.asarray(np.sum(full, axis=axes, dtype=wide, keepdims=True))
                case "max=":
                    part = np.max(full, axis=axes, keepdims=True)
                case "min=":
                    part = np.min(full, axis=axes, keepdims=True)
        chosen = np.broadcast_to(mask, part.shape)
        places = np.broadcast_to(offsets, part.shape)[chosen]
        flat = self.run_.values[tensor]
        sums = load(flat, dtype).array.astype(wide) if flat.size <= 4096 else None
        if sums is not None:
            fold.at(sums, places, part[chosen])
            kind = "float64" if is_float(dtype) else promoted(dtype)
            self.run_.values[tensor] = store(Value(sums, kind), dtype)
            return
        unique, inverse = np.unique(places, return_inverse=True)
        local = load(flat[unique], dtype).array.astype(wide)
        fold.at(local, inverse, part[chosen])
        kind = "float64" if is_float(dtype) else promoted(dtype)
        flat[unique] = store(Value(local, kind), dtype)
