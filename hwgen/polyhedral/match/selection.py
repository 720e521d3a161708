"""Instruction selection: cover every statement's value tree by intrinsics, cheapest first.

The result is a chain of operations over storages: buffers in the chip's memories that are loaded,
updated in place, and stored. Which loops become lanes is decided afterwards (`matching`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from math import prod

from hwgen.errors import HwgenError
from hwgen.polyhedral import isl
from hwgen.polyhedral.match.beginnings import beginning, no_beginning, starting_number
from hwgen.polyhedral.match.loads import loaders
from hwgen.polyhedral.match.operations import (
    NOTHING_SHARED,
    Apply,
    Kind,
    Operation,
    Plan,
    Sharing,
    Storage,
    There,
    rank,
)
from hwgen.polyhedral.scop import Reference, Scop, ScopStatement, reference
from hwgen.polyhedral.semantics import (
    adding,
    as_read,
    folds,
    marginal_cycles,
    moves,
    setting,
    updates,
    written,
)
from hwgen.polyhedral.unify import Unification, unify
from hwgen.spec.affine import Affine
from hwgen.spec.expression import Access, Binary, Const, Expr, tensors_of, walk
from hwgen.spec.hardware import HardwareSpec, Immediate, Intrinsic, Operand


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
        # What copies on the chip have brought where, and how often its source and the copy had
        # been written by then: it is brought once for as long as neither is written again.
        self.moved: dict[tuple[str, str, tuple[Affine, ...]], tuple[str, tuple[int, int]]] = {}
        # Plans known for values of a statement: a statement is covered before it is built.
        self.plans: dict[tuple[Expr, str, str], Plan | None] = {}
        self.reads: dict[str, int] = {}
        for s in scop.statements:
            for node in walk(s.value):
                # What goes on from its own last value does not read it as others do.
                if isinstance(node, Access) and node.tensor != s.target.tensor:
                    self.reads[node.tensor] = self.reads.get(node.tensor, 0) + 1
        self.onchip = sorted(m.name for m in hardware.of_kind("scratchpad"))
        self.intrinsics = sorted(hardware.intrinsics, key=lambda i: i.name)
        # By the memory that they write: those that set its elements, and the copies from another
        # memory on the chip.
        self.assigning: dict[str, list[Intrinsic]] = {}
        self.moving: dict[str, list[Intrinsic]] = {}
        for i in self.intrinsics:
            only = written(i)
            if only is None:
                continue
            memory = i.operand(only[1]).memory
            if only[0].op == "=" and not folds(i):
                self.assigning.setdefault(memory, []).append(i)
            if moves(hardware, i):
                self.moving.setdefault(memory, []).append(i)
        self.units = {n: 0 for n, e in scop.extents.items() if e == 1}
        self.constants = {t.name for t in scop.workload.tensors if t.constant}
        self.supplied = {t.name for t in scop.workload.tensors if t.supplied is not None}

    # -- covering ---------------------------------------------------------------------------

    def cover(self, value: Expr, memory: str, statement: ScopStatement) -> Plan | None:
        """The cheapest way to have a value in a memory."""
        key = (value, memory, statement.name)
        if key not in self.plans:
            self.plans[key] = self._cheapest(value, memory, statement)
        return self.plans[key]

    def _cheapest(
        self, value: Expr, memory: str, statement: ScopStatement, past: tuple[str, ...] = ()
    ) -> Plan | None:
        """The cheapest of all ways; those through the memories in `past` lead back to them."""
        plans: list[Plan] = list(self._applications(value, memory, statement))
        for copy, source in self.movers(memory):
            before = (*past, memory)
            if source.memory in before:
                continue
            there = self._cheapest(value, source.memory, statement, before)
            if there is None:
                continue
            cost = marginal_cycles(copy) + there.cost
            moved = reference(value, self.units) if isinstance(value, Access) else None
            plans.append(Apply(copy, ((source.name, there),), (), cost, moved))
        if isinstance(value, Access):
            ref = reference(value, self.units)
            if value.tensor in self.held:
                if self.storages[self.held[value.tensor]].memory == memory:
                    plans.append(There(ref, memory))
            elif value.tensor in self.taken:
                if self.taken[value.tensor] == memory:
                    plans.append(There(ref, memory))
            elif self.is_input(value.tensor):
                copy = self.loader(memory, self.scop.dtype[value.tensor], value.tensor)
                if copy is not None:
                    plans.append(There(ref, memory, copy, 4.0))
        return min(plans, key=rank, default=None)

    def is_input(self, tensor: str) -> bool:
        declared = self.scop.workload.tensor.get(tensor)
        return tensor in self.scop.view or (declared is not None and declared.role == "input")

    def loader(self, memory: str, dtype: str, tensor: str = "") -> Intrinsic | None:
        """The cheapest copy from off-chip memory that may hold a tensor into `memory`."""
        return next(iter(self._loaders(memory, dtype, tensor)), None)

    def _loaders(self, memory: str, dtype: str, tensor: str = "") -> list[Intrinsic]:
        return loaders(self.hardware, memory, dtype, constant=tensor in self.constants)

    def movers(self, memory: str) -> Iterator[tuple[Intrinsic, Operand]]:
        """Copies into a memory from another one on the chip, and the operand that they read."""
        for intrinsic in self.moving.get(memory, ()):
            value = intrinsic.semantics[0].value
            assert isinstance(value, Access)
            yield intrinsic, intrinsic.operand(value.tensor)

    def _applications(self, value: Expr, memory: str, statement: ScopStatement) -> Iterator[Apply]:
        offchip = self.hardware.is_offchip(memory)
        for intrinsic in self.assigning.get(memory, ()):
            only = written(intrinsic)
            assert only is not None
            if isinstance(only[0].value, Access) and not offchip:
                continue  # a plain copy computes nothing
            if offchip and intrinsic.operand(only[1]).dtype != self.stored_dtype(statement):
                continue
            fields, dtypes = self.immediates(intrinsic), self.scop.dtype
            for found in unify(only[0].value, value, fields, dtypes, whole=offchip):
                plan = self._operands(intrinsic, found, statement, only[1])
                if plan is not None:
                    yield plan
        yield from self._additions(value, memory, statement)

    def _additions(self, value: Expr, memory: str, statement: ScopStatement) -> Iterator[Apply]:
        """Ways to add what is supplied, or a product with it, by an intrinsic that accumulates:
        to another value, or to zero."""
        read = tensors_of(value)
        for intrinsic in self.intrinsics if self.supplied & read else ():
            added = adding(intrinsic)
            target = intrinsic.written.name
            if added is None or intrinsic.operand(target).memory != memory:
                continue
            for spelt in (value, Binary("+", Const(0), value)):
                for found in unify(added, spelt, self.immediates(intrinsic), self.scop.dtype):
                    values = dict(found.operands)
                    own = {v.tensor for v in values.values() if isinstance(v, Access)}
                    if spelt is not value and values[target] != Const(0):
                        continue
                    plan = self._operands(intrinsic, found, statement, target)
                    if self.supplied & own and plan is not None:
                        yield replace(plan, cost=plan.cost + self._surplus(intrinsic, values))

    def _surplus(self, intrinsic: Intrinsic, values: Mapping[str, Expr]) -> float:
        """What it costs besides that entries brought for a call are larger than its result: of two
        operands that commute, the larger one is to be what is supplied, and stays."""
        target = intrinsic.written
        moving = [
            intrinsic.operand(n)
            for n, v in values.items()
            if isinstance(v, Access) and v.tensor not in self.supplied and n != target.name
        ]
        return sum(4.0 * max(0.0, prod(o.shape) / prod(target.shape) - 1) for o in moving)

    def stored_dtype(self, statement: ScopStatement) -> str:
        """The type that a store must write: the host reads an output in the type it declares."""
        return self.scop.dtype[statement.target.tensor]

    def update(self, statement: ScopStatement) -> Iterator[Apply]:
        """Every intrinsic that performs a statement's accumulation, with covered operands."""
        for intrinsic in self.intrinsics:
            memory = intrinsic.written.memory
            if self.hardware.is_offchip(memory):
                continue  # A tiling has its sums on the chip; a script may add to them there.
            for op, value in updates(intrinsic):
                if op != statement.op:
                    continue
                fields, dtypes = self.immediates(intrinsic), self.scop.dtype
                for way in unify(value, statement.value, fields, dtypes):
                    found = self._running(intrinsic, way, statement)
                    plan = found and self._operands(intrinsic, found, statement, "")
                    if plan is not None:
                        yield plan

    def _running(
        self, intrinsic: Intrinsic, found: Unification, statement: ScopStatement
    ) -> Unification | None:
        """The operands besides the one that is updated; in an accumulation in order, that must be
        where the intrinsic reads the last value, in the type that the statement rounds it to."""
        if not statement.ordered:
            return found
        target = intrinsic.written
        tensor = statement.target.tensor
        own = dict(found.operands)[target.name]
        rest = tuple((n, v) for n, v in found.operands if n != target.name)
        again = any(isinstance(n, Access) and n.tensor == tensor for _, v in rest for n in walk(v))
        same = isinstance(own, Access) and reference(own, self.units) == statement.target
        fits = same and not again and target.dtype == self.scop.dtype[tensor]
        return Unification(rest, found.immediates) if fits else None

    @staticmethod
    def immediates(intrinsic: Intrinsic) -> dict[str, Immediate]:
        return {i.name: i for i in intrinsic.immediates}

    def _operands(
        self, intrinsic: Intrinsic, found: Unification, statement: ScopStatement, target: str
    ) -> Apply | None:
        plans: list[tuple[str, Plan]] = []
        for name, value in found.operands:
            operand = as_read(intrinsic, name)
            if self.hardware.is_offchip(operand.memory):
                return None  # A tiling has its operands on the chip; a script may read them there.
            plan = self.accepted(operand, value, statement)
            if plan is not None and name == target and not self.expendable(plan, statement):
                plan = self._copied(operand, value, statement)
            if plan is None:
                return None
            plans.append((name, plan))
        cost = marginal_cycles(intrinsic) + sum(p.cost for _, p in plans)
        cost += sum(self._repeats(intrinsic.operand(name), p) for name, p in plans)
        return Apply(intrinsic, tuple(plans), found.immediates, cost)

    @staticmethod
    def _repeats(operand: Operand, plan: Plan) -> float:
        """What it costs besides that a loaded value must be repeated along lanes that it does not
        move with: between intrinsics that are equally cheap, this decides."""
        if not isinstance(plan, There) or plan.copy is None:
            return 0.0
        lanes = sum(extent > 1 for extent in operand.shape)
        return 0.5 * max(0, lanes - sum(bool(i.names) for i in plan.ref.indices))

    def accepted(self, operand: Operand, value: Expr, statement: ScopStatement) -> Plan | None:
        """A plan for an operand whose last writer the hardware accepts: where the value would come
        from another one, an operation that changes nothing follows."""
        plan = self.cover(value, operand.memory, statement)
        if plan is None or not operand.written_by or self._writer(plan) in operand.written_by:
            return plan
        same = [Binary("+", value, Const(0)), Binary(">>", value, Const(0))]
        if not self.hardware.memory[operand.memory].dtype.startswith(("int", "uint")):
            same = [Binary("+", value, Const(-0.0))]  # 0.0 would make 0.0 of -0.0
        plans = [p for v in same for p in self._applications(v, operand.memory, statement)]
        accepted = [p for p in plans if p.intrinsic.name in operand.written_by]
        return min(accepted, key=rank, default=None)

    def _copied(self, operand: Operand, value: Expr, statement: ScopStatement) -> Plan | None:
        """A value in an entry of its own: zero, to which an in-place operation adds the value."""
        if not self.hardware.memory[operand.memory].dtype.startswith(("int", "uint")):
            return None  # -0.0 + 0.0 is not -0.0
        zero = Const(0)
        plans: list[Apply] = []
        for intrinsic in self.assigning.get(operand.memory, ()):
            only = written(intrinsic)
            assert only is not None
            if isinstance(only[0].value, Access) or len(intrinsic.operands) < 2:
                continue  # a plain copy adds nothing
            if operand.written_by and intrinsic.name not in operand.written_by:
                continue
            for found in unify(only[0].value, Binary("+", value, zero), self.immediates(intrinsic)):
                if dict(found.operands).get(only[1], zero) != zero:
                    continue
                plan = self._operands(intrinsic, found, statement, only[1])
                if plan is not None:
                    plans.append(plan)
        return min(plans, key=rank, default=None)

    def _writer(self, plan: Plan) -> str:
        """The intrinsic that writes a plan's value last."""
        if isinstance(plan, Apply):
            return plan.intrinsic.name
        if plan.ref.tensor not in self.held:
            return plan.copy.name if plan.copy is not None else ""
        storage = self.held[plan.ref.tensor]
        return next(o.intrinsic.name for o in reversed(self.operations) if o.written == storage)

    def expendable(self, plan: Plan, statement: ScopStatement) -> bool:
        """Whether an in-place operation may overwrite the value: an entry per iteration, read
        once, where the result has its element."""
        if isinstance(plan, Apply):
            return plan.moved is None or self._injective(plan.moved.indices, statement)
        tensor = plan.ref.tensor
        if tensor not in self.held:
            shared = plan.copy is None or tensor in self.sharing.keeps
            return not shared and self._injective(plan.ref.indices, statement)
        if tensor in self.sharing.leaves:
            return False
        storage = self.held[tensor]
        alone = list(self.held.values()).count(storage) == 1 and self.reads[tensor] == 1
        indices = self.storages[storage].indices
        held, own = ([n for i in x for n in i.names] for x in (indices, statement.target.indices))
        return alone and held == own and self._injective(indices, statement)

    def overwritable(
        self, operand: Operand, plan: Plan, value: Expr, statement: ScopStatement
    ) -> bool:
        """Whether an in-place operation may have a value, or a copy of it, to overwrite."""
        if self.expendable(plan, statement):
            return True
        return self._copied(operand, value, statement) is not None

    @staticmethod
    def _injective(indices: tuple[Affine, ...], statement: ScopStatement) -> bool:
        """Whether distinct iterations read distinct elements."""
        loops = [(n, e) for n, e in statement.loops if e > 1]
        head, _, where = isl.box("", loops).partition(" : ")
        target = ", ".join(map(str, indices))
        text = f"{{ {head} -> [{target}]{' : ' + where if where else ''} }}"
        return isl.Map(text).is_injective()

    def _whole(self, ref: Reference, statement: ScopStatement) -> bool:
        """Whether a statement's iterations read every element of a tensor."""
        variables = [n for n, _ in statement.loops]
        where = isl.box("", statement.loops).partition(" : ")[2]
        text = isl.relation("", variables, "", ref.indices)
        read = isl.Map(f"{{ {text}{' : ' + where if where else ''} }}").range()
        extents = self.scop.workload.tensor[ref.tensor].shape
        every = isl.box("", [(f"d{d}", extent) for d, extent in enumerate(extents)])
        return isl.Set(f"{{ {every} }}").is_subset(read)

    # -- building ---------------------------------------------------------------------------

    def build(self, plan: Plan, statement: ScopStatement, private: bool = False) -> str:
        """Append a plan's operations; the storage that then holds the value."""
        match plan:
            case There(ref) if ref.tensor in self.held:
                return self.held[ref.tensor]
            case There(ref, memory, copy):
                return self._load(ref, memory, copy, statement, private)
            case Apply(moved=Reference() as ref):
                return self._move(plan, ref, statement, private)
            case Apply():
                return self._apply(plan, statement)

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
                    o.kind in ("map", "update") and o.written == storage.name
                    for o in self.operations
                )
                if not overwritten:
                    return storage.name
        name = self._fresh(base)
        there = copy is None or any(
            s.shape and s.tensor == ref.tensor and s.memory == memory
            for s in self.storages.values()
        )
        # What stays is loaded here, all of it: others find it there.
        stays = ref.tensor in self.sharing.keeps and self._whole(ref, statement)
        shape = self.scop.workload.tensor[ref.tensor].shape if there or stays else ()
        self._hold(Storage(name, memory, ref.tensor, ref.indices, shape))
        if there or copy is None:
            return name
        loops = tuple(n for n, _ in statement.loops if any(n in i.names for i in ref.indices))

        def storages(intrinsic: Intrinsic) -> dict[str, str]:
            written = intrinsic.written.name
            return {o.name: name if o.name == written else ref.tensor for o in intrinsic.operands}

        self._append(statement, "load", copy, storages(copy), (), loops)
        load, every = (
            self.operations[-1],
            self._loaders(memory, self.scop.dtype[ref.tensor], ref.tensor),
        )
        wider = (i for i in every if len(i.written.indices) > len(copy.written.indices))
        found = (replace(load, intrinsic=i, storages=(*storages(i).values(),)) for i in wider)
        self.operations[-1] = replace(load, wider=tuple(found))
        return name

    def _move(self, plan: Apply, ref: Reference, statement: ScopStatement, private: bool) -> str:
        """Append what brings a value to its first memory, and the copy from there."""
        ((read, there),) = plan.operands
        source, memory = self.build(there, statement), plan.intrinsic.written.memory
        tensor, indices = ref.tensor, ref.indices
        key = (source, memory, indices)
        if not private and key in self.moved:
            known, written_then = self.moved[key]
            if (self._writes(source), self._writes(known)) == written_then:
                return known
        name = self._fresh(f"{tensor}_{memory}")
        self._hold(Storage(name, memory, tensor, indices))
        loops = tuple(n for n, _ in statement.loops if any(n in i.names for i in indices))
        order = {plan.intrinsic.written.name: name, read: source}
        self._append(statement, "map", plan.intrinsic, order, (), loops)
        if not private:
            self.moved[key] = (name, (self._writes(source), self._writes(name)))
        return name

    def _writes(self, storage: str) -> int:
        """How many operations write a storage so far."""
        return sum(o.written == storage for o in self.operations)

    def _apply(self, plan: Apply, statement: ScopStatement) -> str:
        intrinsic = plan.intrinsic
        only = written(intrinsic)
        assert only is not None
        order = {
            name: self.build(part, statement, private=name == only[1])
            for name, part in plan.operands
        }
        kind: Kind = "map"
        if self.hardware.is_offchip(intrinsic.operand(only[1]).memory):
            order[only[1]] = statement.target.tensor
            kind = "store"
        elif only[1] not in order:
            name = self._fresh(f"{statement.target.tensor}_{intrinsic.operand(only[1]).memory}")
            memory = intrinsic.operand(only[1]).memory
            indices = statement.target.indices
            if statement.accumulates:
                indices = tuple(Affine(((n, 1),)) for n in self._active(statement))
            self._hold(Storage(name, memory, statement.target.tensor, indices))
            order[only[1]] = name
        self._append(statement, kind, intrinsic, order, plan.immediates, self._active(statement))
        return order[only[1]]

    def settle(self, statement: ScopStatement, storage: str) -> None:
        """What a statement computes is in a storage; plans that read its tensor elsewhere are out
        of date."""
        self.held[statement.target.tensor] = storage
        self.plans.clear()

    def leave(self, statement: ScopStatement) -> None:
        """What a statement computes stays whole for later phases, under its own name; so does a
        copy in a memory that is said.

        Raises:
            HwgenError: H301 where it lies in the buffer of a tensor that is loaded or stays too.
        """
        name = self.held[statement.target.tensor]
        storage = self.storages[name]
        loaded = any(o.kind == "load" and name in o.storages for o in self.operations)
        said = statement.target.tensor in dict(self.sharing.places)
        copied = said and isinstance(statement.value, Access)
        if (loaded and not copied) or storage.shape:
            raise HwgenError(
                "H301",
                f"{statement.target.tensor} has no buffer of its own to stay in",
                location=statement.source.location,
                field="compute",
                found=f"{statement}, in the buffer of {storage.tensor}",
                allowed="a value that calls compute into another place of the chip",
                repair=f"read {storage.tensor} instead, or make {statement.target.tensor} an "
                "output of another workload",
            )
        self.storages[name] = replace(
            storage,
            tensor=statement.target.tensor,
            indices=statement.target.indices,
            shape=self.scop.workload.tensor[statement.target.tensor].shape,
        )

    def stores(self, memory: str, statement: ScopStatement) -> bool:
        """Whether a plain copy stores a statement's tensor from a memory."""
        for intrinsic in self.intrinsics:
            only = written(intrinsic)
            if only is None or only[0].op != "=" or not isinstance(only[0].value, Access):
                continue
            target, source = intrinsic.operand(only[1]), intrinsic.operand(only[0].value.tensor)
            offchip = self.hardware.is_offchip(target.memory)
            if offchip and source.memory == memory and target.dtype == self.stored_dtype(statement):
                return True
        return False

    @staticmethod
    def _active(statement: ScopStatement) -> tuple[str, ...]:
        """Loops of a statement that run more than once."""
        return tuple(n for n, extent in statement.loops if extent > 1)

    def accumulate(
        self, statement: ScopStatement, plan: Apply, start: Reference | None = None
    ) -> None:
        """Append reset, operand loads and the accumulation of an update statement. `start`: the
        input that the sums start from, brought in by a copy; else they start from nothing."""
        intrinsic = plan.intrinsic
        target = intrinsic.written.name
        memory = intrinsic.operand(target).memory
        name = self._fresh(f"{statement.target.tensor}_{memory}")
        self._hold(Storage(name, memory, statement.target.tensor, statement.target.indices))
        neutral = starting_number(self.scop, statement)
        first = setting(self.hardware, intrinsic, neutral) if start is None else None
        if first is not None:
            self._update(statement, plan, name, first)
            return
        if start is None:
            steps = beginning(self.hardware, self.scop, statement, intrinsic.operand(target))
            if not steps:
                raise no_beginning(self.hardware, self.scop, statement, memory)
            for step in steps:
                written_to = {operand.name: name for operand in step.intrinsic.operands}
                self._append(
                    statement,
                    "init",
                    step.intrinsic,
                    written_to,
                    step.immediates,
                    statement.spatial,
                )
        else:
            init = self.loader(memory, self.scop.dtype[start.tensor])
            assert init is not None, "plans whose sums cannot start from it are left out"
            only = init.semantics[0]
            assert isinstance(only.value, Access)
            written_to = {only.target.tensor: name, only.value.tensor: start.tensor}
            self._append(statement, "init", init, written_to, (), statement.spatial)
        self._update(statement, plan, name, None)

    def _update(
        self, statement: ScopStatement, plan: Apply, name: str, first: Intrinsic | None
    ) -> None:
        intrinsic = plan.intrinsic
        target = intrinsic.written.name
        order = {op: self.build(p, statement) for op, p in plan.operands if op != target}
        order[target] = name
        self._append(
            statement, "update", intrinsic, order, plan.immediates, self._active(statement)
        )
        self.operations[-1] = replace(self.operations[-1], first=first)
        self.settle(statement, name)

    def _hold(self, storage: Storage) -> None:
        rank = len(self.hardware.memory[storage.memory].entry_shape)
        self.storages[storage.name] = replace(storage, rank=rank)

    def _fresh(self, base: str) -> str:
        name, n = base, 2
        while name in self.storages or name in self.scop.dtype:
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
        storages = tuple(order[o.same_as or o.name] for o in intrinsic.operands)
        name = f"{statement.name}.{len(self.operations)}"
        active = tuple(n for n in loops if self.scop.extents[n] > 1)
        self.operations.append(
            Operation(name, statement.name, kind, intrinsic, storages, immediates, active)
        )
