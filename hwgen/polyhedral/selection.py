"""Instruction selection: cover every statement's value tree by intrinsics, cheapest first.

The result is a chain of operations over storages: buffers in the chip's memories that are loaded,
updated in place, and stored. Which loops become lanes is decided afterwards (`matching`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from hwgen.errors import HwgenError
from hwgen.polyhedral import isl
from hwgen.polyhedral.affine import Affine
from hwgen.polyhedral.operations import NOTHING_SHARED, Kind, Operation, Selection, Sharing, Storage
from hwgen.polyhedral.scop import Reference, Scop, ScopStatement, normalise, reference
from hwgen.polyhedral.semantics import (
    marginal_cycles,
    neutral_element,
    updates,
    widens,
    written,
    written_position,
)
from hwgen.polyhedral.unify import Unification, unify
from hwgen.spec.expression import Access, Binary, Const, Expr, walk
from hwgen.spec.hardware import HardwareSpec, Immediate, Intrinsic, Operand


@dataclass(frozen=True, slots=True)
class _Input:
    """An input tensor brought into a memory by a copy intrinsic, or there already (None)."""

    ref: Reference
    memory: str
    copy: Intrinsic | None
    cost: float


@dataclass(frozen=True, slots=True)
class _Held:
    """A value that an earlier statement left in a memory."""

    ref: Reference
    cost: float = 0.0


@dataclass(frozen=True, slots=True)
class _Apply:
    """An intrinsic applied to covered operands."""

    intrinsic: Intrinsic
    operands: tuple[tuple[str, Plan], ...]
    immediates: tuple[tuple[str, int | float], ...]
    cost: float


Plan = _Input | _Held | _Apply


class Selector:
    """State of one selection: where produced values live and how often each is read."""

    def __init__(
        self, scop: Scop, hardware: HardwareSpec, sharing: Sharing = NOTHING_SHARED
    ) -> None:
        self.scop = scop
        self.hardware = hardware
        self.sharing = sharing
        self.taken = dict(sharing.takes)
        self.held: dict[str, str] = {}  # tensor -> storage name
        self.storages: dict[str, Storage] = {}
        self.operations: list[Operation] = []
        # Plans known for values of a statement: a statement is covered before it is built.
        self.plans: dict[tuple[Expr, str, str], Plan | None] = {}
        self.reads: dict[str, int] = {}
        for s in scop.statements:
            for node in walk(s.value):
                if isinstance(node, Access):
                    self.reads[node.tensor] = self.reads.get(node.tensor, 0) + 1
        self.onchip = [m.name for m in hardware.memories if m.kind != "offchip"]
        self.units = {n: 0 for n, e in scop.extents.items() if e == 1}

    # -- covering ---------------------------------------------------------------------------

    def cover(self, value: Expr, memory: str, statement: ScopStatement) -> Plan | None:
        """The cheapest way to have a value in a memory."""
        key = (value, memory, statement.name)
        if key not in self.plans:
            self.plans[key] = self._cheapest(value, memory, statement)
        return self.plans[key]

    def _cheapest(self, value: Expr, memory: str, statement: ScopStatement) -> Plan | None:
        plans: list[Plan] = list(self._applications(value, memory, statement))
        if isinstance(value, Access):
            ref = reference(value, self.units)
            if value.tensor in self.held:
                if self.storages[self.held[value.tensor]].memory == memory:
                    plans.append(_Held(ref))
            elif value.tensor in self.taken:
                if self.taken[value.tensor] == memory:
                    plans.append(_Input(ref, memory, None, 0.0))
            elif self.is_input(value.tensor):
                copy = self.loader(memory, self.scop.dtype[value.tensor])
                if copy is not None:
                    plans.append(_Input(ref, memory, copy, 4.0))
        return min(plans, key=lambda p: p.cost, default=None)

    def is_input(self, tensor: str) -> bool:
        declared = self.scop.workload.tensor.get(tensor)
        return tensor in self.scop.view or (declared is not None and declared.role == "input")

    def loader(self, memory: str, dtype: str) -> Intrinsic | None:
        """A copy from off-chip memory into `memory` that keeps every value of `dtype`."""
        for intrinsic in self.hardware.intrinsics:
            only = written(intrinsic)
            if only is None or not isinstance(only[0].value, Access) or only[0].op != "=":
                continue
            target = intrinsic.operand(only[1])
            source = intrinsic.operand(only[0].value.tensor)
            offchip = self.hardware.memory[source.memory].kind == "offchip"
            if target.memory == memory and offchip and widens(dtype, source.dtype):
                return intrinsic
        return None

    def _applications(self, value: Expr, memory: str, statement: ScopStatement) -> Iterator[_Apply]:
        offchip = self.hardware.memory[memory].kind == "offchip"
        for intrinsic in self.hardware.intrinsics:
            only = written(intrinsic)
            if only is None or only[0].op != "=":
                continue
            if intrinsic.operand(only[1]).memory != memory:
                continue
            if isinstance(only[0].value, Access) and not offchip:
                continue  # a plain copy computes nothing
            if offchip and intrinsic.operand(only[1]).dtype != self.stored_dtype(statement):
                continue
            for found in unify(only[0].value, value, self.immediates(intrinsic)):
                plan = self._operands(intrinsic, found, statement, only[1])
                if plan is not None:
                    yield plan

    def stored_dtype(self, statement: ScopStatement) -> str:
        """The type that a store must write: the host reads an output in the type it declares."""
        return self.scop.dtype[statement.target.tensor]

    def update(self, statement: ScopStatement) -> Iterator[_Apply]:
        """Every intrinsic that performs a statement's accumulation, with covered operands."""
        for intrinsic in self.hardware.intrinsics:
            for op, value in updates(intrinsic):
                if op != statement.op:
                    continue
                for found in unify(value, statement.value, self.immediates(intrinsic)):
                    plan = self._operands(intrinsic, found, statement, "")
                    if plan is not None:
                        yield plan

    @staticmethod
    def immediates(intrinsic: Intrinsic) -> dict[str, Immediate]:
        return {i.name: i for i in intrinsic.immediates}

    def _operands(
        self, intrinsic: Intrinsic, found: Unification, statement: ScopStatement, target: str
    ) -> _Apply | None:
        plans: list[tuple[str, Plan]] = []
        for name, value in found.operands:
            plan = self.accepted(intrinsic.operand(name), value, statement)
            if plan is not None and name == target and not self.expendable(plan, statement):
                plan = self._copied(intrinsic.operand(name), value, statement)
            if plan is None:
                return None
            plans.append((name, plan))
        cost = marginal_cycles(intrinsic) + sum(p.cost for _, p in plans)
        return _Apply(intrinsic, tuple(plans), found.immediates, cost)

    def accepted(self, operand: Operand, value: Expr, statement: ScopStatement) -> Plan | None:
        """A plan for an operand whose last writer the hardware accepts.

        Where the value would come from another writer, an operation that changes nothing follows.
        """
        plan = self.cover(value, operand.memory, statement)
        if plan is None or not operand.written_by or self._writer(plan) in operand.written_by:
            return plan
        same = [Binary("+", value, Const(0)), Binary(">>", value, Const(0))]
        if not self.hardware.memory[operand.memory].dtype.startswith(("int", "uint")):
            same = [Binary("+", value, Const(-0.0))]  # 0.0 would make 0.0 of -0.0
        plans = [p for v in same for p in self._applications(v, operand.memory, statement)]
        accepted = [p for p in plans if p.intrinsic.name in operand.written_by]
        return min(accepted, key=lambda p: p.cost, default=None)

    def _copied(self, operand: Operand, value: Expr, statement: ScopStatement) -> Plan | None:
        """A value in an entry of its own: zero, to which an in-place operation adds the value."""
        if not self.hardware.memory[operand.memory].dtype.startswith(("int", "uint")):
            return None  # -0.0 + 0.0 is not -0.0
        zero = Const(0)
        plans: list[_Apply] = []
        for intrinsic in self.hardware.intrinsics:
            only = written(intrinsic)
            if only is None or only[0].op != "=" or len(intrinsic.operands) < 2:
                continue
            if intrinsic.operand(only[1]).memory != operand.memory:
                continue
            if operand.written_by and intrinsic.name not in operand.written_by:
                continue
            for found in unify(only[0].value, Binary("+", value, zero), self.immediates(intrinsic)):
                if dict(found.operands).get(only[1], zero) != zero:
                    continue
                plan = self._operands(intrinsic, found, statement, only[1])
                if plan is not None:
                    plans.append(plan)
        return min(plans, key=lambda p: p.cost, default=None)

    def _writer(self, plan: Plan) -> str:
        """The intrinsic that writes a plan's value last."""
        match plan:
            case _Input():
                return plan.copy.name if plan.copy is not None else ""
            case _Apply():
                return plan.intrinsic.name
            case _Held():
                storage = self.held[plan.ref.tensor]
                return next(
                    o.intrinsic.name
                    for o in reversed(self.operations)
                    if o.storages[written_position(o.intrinsic)] == storage
                )

    def expendable(self, plan: Plan, statement: ScopStatement) -> bool:
        """Whether an in-place operation may overwrite the value: an entry per iteration, read
        once."""
        if isinstance(plan, _Apply):
            return True
        if isinstance(plan, _Input):
            shared = plan.copy is None or plan.ref.tensor in self.sharing.keeps
            return not shared and self._injective(plan.ref.indices, statement)
        tensor = plan.ref.tensor
        if tensor in self.sharing.leaves:
            return False
        storage = self.held[tensor]
        alone = list(self.held.values()).count(storage) == 1 and self.reads[tensor] == 1
        return alone and self._injective(self.storages[storage].indices, statement)

    @staticmethod
    def _injective(indices: tuple[Affine, ...], statement: ScopStatement) -> bool:
        """Whether distinct iterations read distinct elements."""
        loops = [(n, e) for n, e in statement.loops if e > 1]
        head, _, where = isl.box("", loops).partition(" : ")
        target = ", ".join(map(str, indices))
        text = f"{{ {head} -> [{target}]{' : ' + where if where else ''} }}"
        return isl.Map(text).is_injective()

    # -- building ---------------------------------------------------------------------------

    def build(self, plan: Plan, statement: ScopStatement, private: bool = False) -> str:
        """Append a plan's operations; the storage that then holds the value."""
        match plan:
            case _Held(ref):
                return self.held[ref.tensor]
            case _Input(ref, memory, copy, _):
                return self._load(ref, memory, copy, statement, private)
            case _Apply(intrinsic, operands, immediates, _):
                return self._apply(intrinsic, operands, immediates, statement)

    def _load(
        self,
        ref: Reference,
        memory: str,
        copy: Intrinsic | None,
        statement: ScopStatement,
        private: bool,
    ) -> str:
        base = f"{ref.tensor}_{memory}"
        for storage in self.storages.values():
            same = storage.memory == memory and storage.tensor == ref.tensor
            if same and storage.indices == ref.indices and not private:
                overwritten = any(
                    o.kind in ("map", "update")
                    and o.storages[written_position(o.intrinsic)] == storage.name
                    for o in self.operations
                )
                if not overwritten:
                    return storage.name
        name = self._fresh(base)
        shared = copy is None or ref.tensor in self.sharing.keeps
        shape = self.scop.workload.tensor[ref.tensor].shape if shared else ()
        there = copy is None or (
            shared
            and any(s.tensor == ref.tensor and s.memory == memory for s in self.storages.values())
        )
        self.storages[name] = Storage(name, memory, ref.tensor, ref.indices, shape)
        if there or copy is None:
            return name
        loops = tuple(n for n, _ in statement.loops if any(n in i.names for i in ref.indices))
        only = written(copy)
        assert only is not None
        assert isinstance(only[0].value, Access)
        order = {only[1]: name, only[0].value.tensor: ref.tensor}
        self._append(statement, "load", copy, order, (), loops)
        return name

    def _apply(
        self,
        intrinsic: Intrinsic,
        operands: tuple[tuple[str, Plan], ...],
        immediates: tuple[tuple[str, int | float], ...],
        statement: ScopStatement,
    ) -> str:
        only = written(intrinsic)
        assert only is not None
        order = {
            name: self.build(plan, statement, private=name == only[1]) for name, plan in operands
        }
        kind: Kind = "map"
        if self.hardware.memory[intrinsic.operand(only[1]).memory].kind == "offchip":
            order[only[1]] = statement.target.tensor
            kind = "store"
        elif only[1] not in order:
            name = self._fresh(f"{statement.target.tensor}_{intrinsic.operand(only[1]).memory}")
            memory = intrinsic.operand(only[1]).memory
            indices = statement.target.indices
            if statement.op != "=":
                indices = tuple(Affine(((n, 1),)) for n in self._active(statement))
            self.storages[name] = Storage(name, memory, statement.target.tensor, indices)
            order[only[1]] = name
        self._append(statement, kind, intrinsic, order, immediates, self._active(statement))
        return order[only[1]]

    def leave(self, statement: ScopStatement) -> None:
        """What a statement computes stays whole for later phases, under its own name."""
        name = self.held[statement.target.tensor]
        storage = self.storages[name]
        self.storages[name] = replace(
            storage,
            tensor=statement.target.tensor,
            indices=statement.target.indices,
            shape=self.scop.workload.tensor[statement.target.tensor].shape,
        )

    @staticmethod
    def _active(statement: ScopStatement) -> tuple[str, ...]:
        """Loops of a statement that run more than once."""
        return tuple(n for n, extent in statement.loops if extent > 1)

    def accumulate(self, statement: ScopStatement, plan: _Apply) -> None:
        """Append reset, operand loads and the accumulation of an update statement."""
        intrinsic = plan.intrinsic
        target = intrinsic.semantics[0].target.tensor
        memory = intrinsic.operand(target).memory
        name = self._fresh(f"{statement.target.tensor}_{memory}")
        self.storages[name] = Storage(
            name, memory, statement.target.tensor, statement.target.indices
        )
        neutral = neutral_element(statement.op, self.scop.dtype[statement.target.tensor])
        init = self._initialiser(memory, neutral, statement)
        self._append(
            statement, "init", init, {init.semantics[0].target.tensor: name}, (), statement.spatial
        )
        order = {op: self.build(p, statement) for op, p in plan.operands if op != target}
        order[target] = name
        self._append(
            statement, "update", intrinsic, order, plan.immediates, self._active(statement)
        )
        self.held[statement.target.tensor] = name

    def _initialiser(
        self, memory: str, neutral: int | float, statement: ScopStatement
    ) -> Intrinsic:
        for intrinsic in self.hardware.intrinsics:
            only = written(intrinsic)
            if only is None or only[0].op != "=":
                continue
            value = only[0].value
            if any(isinstance(n, Access) for n in walk(value)):
                continue
            if normalise(value, {}) != Const(neutral):
                continue
            if intrinsic.operand(only[1]).memory == memory:
                return intrinsic
        raise HwgenError(
            "H305",
            f"no intrinsic sets {memory} to {neutral}, from which `{statement.op}` starts",
            location=statement.source.location,
            field="compute",
            found=str(statement),
            allowed=f"an intrinsic with semantics `dst[...] = {neutral}` on memory {memory}",
            repair=f"add such an intrinsic to {self.hardware.name}",
        )

    def _fresh(self, base: str) -> str:
        name, n = base, 2
        while name in self.storages:
            name, n = f"{base}{n}", n + 1
        return name

    def _append(
        self,
        statement: ScopStatement,
        kind: Kind,
        intrinsic: Intrinsic,
        order: Mapping[str, str],
        immediates: tuple[tuple[str, int | float], ...],
        loops: tuple[str, ...],
    ) -> None:
        storages = tuple(order[o.name] for o in intrinsic.operands)
        name = f"{statement.name}.{len(self.operations)}"
        active = tuple(n for n in loops if self.scop.extents[n] > 1)
        self.operations.append(
            Operation(name, statement.name, kind, intrinsic, storages, immediates, active)
        )


def select(
    scop: Scop, hardware: HardwareSpec, sharing: Sharing = NOTHING_SHARED
) -> list[Selection]:
    """Cover all statements; one selection per way to perform the accumulation.

    Raises:
        HwgenError: H301 where no intrinsic covers a statement, H305 where an accumulator cannot
            be initialised, H404 where more than one accumulation would have to be fused.
    """
    reductions = [s for s in scop.statements if s.op != "="]
    if len(reductions) > 1:
        raise HwgenError(
            "H404",
            f"{len(reductions)} accumulations in one kernel",
            location=reductions[1].source.location,
            field="compute",
            found="; ".join(str(s) for s in reductions),
            allowed="one accumulation and the elementwise statements around it",
            repair="give each accumulation a workload of its own",
        )
    first, ways = _select_with(scop, hardware, sharing, 0)
    return [first, *(_select_with(scop, hardware, sharing, n)[0] for n in range(1, ways))]


def _select_with(
    scop: Scop, hardware: HardwareSpec, sharing: Sharing, choice: int
) -> tuple[Selection, int]:
    """The selection that takes one of the ways to accumulate, and how many ways there are."""
    selector = Selector(scop, hardware, sharing)
    ways = 1
    for statement in scop.statements:
        if statement.op != "=":
            plans = list(selector.update(statement))
            if not plans:
                raise uncovered(selector, statement)
            ways = len(plans)
            selector.accumulate(statement, plans[choice])
            continue
        declared = scop.workload.tensor.get(statement.target.tensor)
        leaves = statement.target.tensor in sharing.leaves
        if declared is not None and declared.role == "output" and not leaves:
            plan = selector.cover(statement.value, hardware.offchip.name, statement)
            if plan is None:
                raise uncovered(selector, statement)
            selector.build(plan, statement)
            continue
        covers = [
            c
            for memory in selector.onchip
            if (c := selector.cover(statement.value, memory, statement)) is not None
        ]
        if not covers:
            raise uncovered(selector, statement)
        best = min(covers, key=lambda p: p.cost)
        selector.held[statement.target.tensor] = selector.build(best, statement)
        if leaves:
            selector.leave(statement)
    anchor = scop.anchor
    reduction = anchor.reduction if anchor.op != "=" else ()
    others = [n for o in selector.operations for n in o.loops if n not in reduction]
    selection = Selection(
        tuple(selector.storages.values()),
        tuple(selector.operations),
        tuple(dict.fromkeys([*anchor.spatial, *others])),
        reduction,
    )
    _check_after(scop, selection)
    return selection, ways


def _check_after(scop: Scop, selection: Selection) -> None:
    """What follows an accumulation must not run over the loops that it sums up.

    Raises:
        HwgenError: H401.
    """
    for operation in selection.operations:
        again = [n for n in operation.loops if n in selection.reduction]
        if again and operation.kind in ("map", "store") and not selection.early(operation):
            statement = next(s for s in scop.statements if s.name == operation.statement)
            raise HwgenError(
                "H401",
                f"{statement.name} cannot be fused with {scop.anchor.name}",
                location=statement.source.location,
                field="compute",
                found=f"{statement} runs over {again[0]}, which {scop.anchor.name} reduces",
                allowed="statements over the loops that an accumulation leaves",
                repair=f"split the workload in two, so that what {scop.anchor.name} computes is "
                "an output of the first",
            )


def uncovered(selector: Selector, statement: ScopStatement) -> HwgenError:
    """The error that names the first part of a statement that no intrinsic performs."""
    from hwgen.polyhedral.explain import nearest_miss

    reason, repair = nearest_miss(selector, statement)
    return HwgenError(
        "H301",
        f"no intrinsics of {selector.hardware.name} compute {statement.name}",
        location=statement.source.location,
        field="compute",
        found=f"{statement}: {reason}",
        allowed="a value that the chip's intrinsics compute step by step",
        repair=repair,
    )
