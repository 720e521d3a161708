"""Deliberate defects of kernel programs, and the checks that must catch them.

A checker that has never refused anything proves nothing. Each mutation changes one place of a
program, chosen by a seed, as a defect of the compiler would; `caught_by` names the only errors
by which it may be found (H790: the result differs from the reference).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random

from hwgen.codegen.nodes import Call, CallOperand, Loop, Node, calls, rewritten
from hwgen.codegen.program import KernelLoop, MicroKernelDef, Program
from hwgen.codegen.storages import Buffer
from hwgen.spec.expression import Binary, Const, Expr, add, multiply, walk
from hwgen.spec.hardware import HardwareSpec, Intrinsic
from tests.fuzz.edits import Mutation, double, drop, in_a_body, on_one
from tests.fuzz.mutations_configuration import STATE, configuration_mutations
from tests.fuzz.mutations_lanes import lane_mutations
from tests.fuzz.mutations_synchronisation import ORDER, synchronisation_mutations
from tests.planted.images import image_mutations
from tests.planted.order import order_mutations
from tests.planted.parts import (
    exchanged,
    has_variants,
    is_modulo,
    longer,
    next_variant,
    with_kernel,
    with_operand,
    with_stride,
)
from tests.planted.same import APART, same_mutations
from tests.planted.workers import worker_mutations

ADDRESSES = ("H711", "H712", "H713")
UNDEFINED = ("H717", "H718")


def mutations(hardware: HardwareSpec) -> tuple[Mutation, ...]:
    """Every mutation, for programs of one chip."""
    chip = _Chip(hardware)
    return (
        *synchronisation_mutations(hardware),
        *configuration_mutations(hardware),
        Mutation(
            "off-by-one address",
            chip.shifted_address,
            (APART, *ADDRESSES, *UNDEFINED, "H724", "H790"),
        ),
        Mutation("swapped slots", chip.swapped_slots, (APART, *UNDEFINED, "H712", "H790")),
        Mutation("wrong variant", on_one(has_variants, next_variant), ("H722", "H723")),
        Mutation(
            "wrong stride",
            chip.wrong_stride,
            ("H715", STATE, APART, *ADDRESSES, *UNDEFINED, "H724", "H790"),
        ),
        Mutation("overflowing stride", chip.overflowing_stride, ("H715", STATE, APART)),
        Mutation("missing reset", on_one(chip.is_reset, drop), ("H717", "H790")),
        Mutation("missing load", on_one(chip.is_load, drop), ("H717", "H790")),
        Mutation("missing tail", _missing_tail, (*ORDER, "H717", "H724", "H790")),
        Mutation(
            "over-long extent", chip.long_extent, ("H714", "H715", STATE, *ADDRESSES, *UNDEFINED)
        ),
        Mutation("overlapping buffers", _overlapping_buffers, ("H733",)),
        *chip.bank_mutations,
        Mutation("buffer past its memory", chip.buffer_past_memory, ("H732", "H733")),
        Mutation("reordered calls", chip.reordered_calls, ("H717", "H718", "H790")),
        Mutation("wrong immediate", _wrong_immediate, ("H716", "H738", STATE, "H790")),
        *image_mutations(hardware),
        *lane_mutations(hardware),
        Mutation("dropped store", on_one(chip.is_store, drop), ("H717", "H724")),
        Mutation("duplicated accumulation", on_one(chip.is_accumulation, double), ("H790",)),
        Mutation("wrong micro-kernel base", _wrong_base, ("H723", "H734", APART)),
        Mutation("wrong micro-kernel step", chip.wrong_kernel_step, _STEP),
        Mutation("operation rewritten at once", chip.rewritten_at_once, ("H720", "H734")),
        Mutation("micro-kernel memory overflow", chip.overfull, ("H719", "H722", "H734", "H735")),
        Mutation("wrong buffer", chip.wrong_buffer, ("H712", APART)),
        Mutation("unbound address", _unbound_address, ("H737",)),
        *same_mutations(hardware),
        *order_mutations(hardware),
        *worker_mutations(hardware),
    )


_STEP = ("H715", "H721", "H734", APART, *ADDRESSES, *UNDEFINED, "H790")


def _missing_tail(program: Program, seed: int) -> Program | None:
    def shorten(node: Node) -> tuple[Node, ...]:
        assert isinstance(node, Loop)
        return (replace(node, upper=add(node.upper, Const(-1))),)

    return on_one(lambda node: isinstance(node, Loop), shorten)(program, seed)


def _unbound_address(program: Program, seed: int) -> Program | None:
    """The body of a loop left behind when the loop itself is gone."""

    def uses(node: Node) -> bool:
        return isinstance(node, Loop) and any(
            node.variable in str(o.address) for c in calls(node.body) for o in c.operands
        )

    def inner(node: Node) -> tuple[Node, ...]:
        assert isinstance(node, Loop)
        return node.body

    return on_one(uses, inner)(program, seed)


# Editing declarations.


def _overlapping_buffers(program: Program, seed: int) -> Program | None:
    pairs = [
        (one, other)
        for one in program.buffers
        for other in program.buffers
        if one is not other and one.memory == other.memory and one.base < other.base
    ]
    if not pairs:
        return None
    one, other = Random(seed).choice(pairs)
    moved = replace(other, base=one.base + one.entries - 1)
    buffers = tuple(moved if b is other else b for b in program.buffers)
    return replace(program, buffers=buffers)


def _wrong_immediate(program: Program, seed: int) -> Program | None:
    named = [k for k in program.kernels if k.immediates]
    if not named:
        return _wrong_plain_immediate(program, seed)
    kernel = Random(seed).choice(named)
    (name, value), *rest = kernel.immediates
    changed = ((name, value + 1), *rest)

    def edit(node: Node) -> tuple[Node, ...]:
        if isinstance(node, Call) and node.kernel == kernel.name:
            return (replace(node, immediates=changed),)
        return (node,)

    moved = with_kernel(program, replace(kernel, immediates=changed))
    return replace(moved, body=rewritten(program.body, edit))


def _wrong_plain_immediate(program: Program, seed: int) -> Program | None:
    """Half of a float, so that it stays one of its type; one more than an integer."""
    sites = [c.site for c in calls(program.body) if c.immediates]
    if not sites:
        return None
    chosen = Random(seed).choice(sites)

    def edit(node: Node) -> tuple[Node, ...]:
        if isinstance(node, Call) and node.site == chosen:
            (name, value), *rest = node.immediates
            wrong = (value / 2 or 1.0) if isinstance(value, float) else value + 1
            return (replace(node, immediates=((name, wrong), *rest)),)
        return (node,)

    return replace(program, body=rewritten(program.body, edit))


def _wrong_base(program: Program, seed: int) -> Program | None:
    if not program.kernels:
        return None
    random = Random(seed)
    kernel = random.choice(program.kernels)
    # The first variant: others may exist for tiles that a small problem does not have.
    base = list(kernel.bases[0])
    base[random.randrange(len(base))] += 1
    bases = (tuple(base), *kernel.bases[1:])
    return with_kernel(program, replace(kernel, bases=bases))


@dataclass(frozen=True, slots=True)
class _Chip:
    """Mutations that ask what an intrinsic does."""

    hardware: HardwareSpec

    def intrinsic(self, call: Call) -> Intrinsic:
        return self.hardware.intrinsic[call.intrinsic]

    def offchip(self, call: Call, access: str) -> bool:
        """Whether the call reads or writes off chip."""
        return any(
            o.access == access and self.hardware.memory[o.memory].kind == "offchip"
            for o in self.intrinsic(call).operands
        )

    def is_store(self, node: Node) -> bool:
        return isinstance(node, Call) and self.offchip(node, "write")

    def is_load(self, node: Node) -> bool:
        return isinstance(node, Call) and self.offchip(node, "read")

    def is_reset(self, node: Node) -> bool:
        return isinstance(node, Call) and all(
            o.access == "write" for o in self.intrinsic(node).operands
        )

    def is_accumulation(self, node: Node) -> bool:
        return isinstance(node, Call) and any(a.op == "+=" for a in self.intrinsic(node).semantics)

    def is_transfer(self, node: Node) -> bool:
        return isinstance(node, Call) and not node.kernel

    def _operand_edit(
        self,
        program: Program,
        seed: int,
        pick: Callable[[Call, int], CallOperand | None],
    ) -> Program | None:
        """Replace one operand of one call; `pick` gives the new one where there is one."""
        options = [
            (call.site, number)
            for call in calls(program.body)
            for number in range(len(call.operands))
            if pick(call, number) is not None
        ]
        if not options:
            return None
        site, number = Random(seed).choice(options)

        def edit(node: Node) -> tuple[Node, ...]:
            if isinstance(node, Call) and node.site == site:
                operand = pick(node, number)
                assert operand is not None
                return (with_operand(node, number, operand),)
            return (node,)

        return replace(program, body=rewritten(program.body, edit))

    def shifted_address(self, program: Program, seed: int) -> Program | None:
        def shift(call: Call, number: int) -> CallOperand | None:
            operand = call.operands[number]
            shifted = replace(operand, address=add(operand.address, Const(1)))
            return None if call.kernel else shifted

        return self._operand_edit(program, seed, shift)

    def swapped_slots(self, program: Program, seed: int) -> Program | None:
        """The other of two slots: `x % 2` becomes `(x + 1) % 2` in one address."""

        def swap(call: Call, number: int) -> CallOperand | None:
            operand = call.operands[number]
            modulo = next((e for e in walk(operand.address) if is_modulo(e)), None)
            if call.kernel or not isinstance(modulo, Binary):
                return None
            other = Binary("%", add(modulo.left, Const(1)), modulo.right)
            return replace(operand, address=exchanged(operand.address, modulo, other))

        return self._operand_edit(program, seed, swap)

    def wrong_stride(self, program: Program, seed: int) -> Program | None:
        """One more entry per step of a loop that runs more than once."""

        def widen(call: Call, number: int) -> CallOperand | None:
            operand = call.operands[number]
            for level, extent in enumerate(call.extents):
                if not call.kernel and isinstance(extent, Const) and extent.value > 1:
                    return with_stride(operand, level, add(operand.strides[level], Const(1)))
            return None

        return self._operand_edit(program, seed, widen)

    def overflowing_stride(self, program: Program, seed: int) -> Program | None:
        """A step just past its field."""

        def overflow(call: Call, number: int) -> CallOperand | None:
            operand = call.operands[number]
            for level, loop in enumerate(self.intrinsic(call).loops):
                rule = loop.stride(operand.name)
                if not call.kernel and not rule.dense_after:
                    return with_stride(operand, level, Const(rule.range.maximum + 1))
            return None

        return self._operand_edit(program, seed, overflow)

    def wrong_buffer(self, program: Program, seed: int) -> Program | None:
        """An operand that claims another buffer of its memory."""

        def other(call: Call, number: int) -> CallOperand | None:
            operand = call.operands[number]
            mine = program.buffer.get(operand.buffer)
            for buffer in program.buffers:
                if mine and buffer.memory == mine.memory and buffer.name != mine.name:
                    return replace(operand, buffer=buffer.name)
            return None

        return self._operand_edit(program, seed, other)

    def long_extent(self, program: Program, seed: int) -> Program | None:
        """A transfer one entry longer in its innermost loop."""

        def has_extent(node: Node) -> bool:
            return isinstance(node, Call) and self.is_transfer(node) and bool(node.extents)

        return on_one(has_extent, longer)(program, seed)

    @property
    def bank_mutations(self) -> tuple[Mutation, ...]:
        """For chips with banks."""
        held = self.hardware.of_kind("scratchpad")
        if all(m.banks is None or m.banks.count == 1 for m in held):
            return ()
        places, beside = ("H732", "H733", "H741"), ("H712", *UNDEFINED, "H790")
        return (
            Mutation("wrong slot stride", self.wrong_slot_stride, places),
            Mutation("wrong step between slots", self.wrong_slot_step, beside),
            Mutation("wrong bank", self.wrong_bank, places),
            Mutation("wrong bank named", self.wrong_bank_named, ("H741",)),
        )

    def _one_of(
        self, program: Program, seed: int, change: Callable[[Buffer], Buffer]
    ) -> Program | None:
        """One buffer whose slots are spread over banks, changed."""
        spread = [
            b
            for b in program.buffers
            if b.slot_stride and b.slots > 1 and self.hardware.memory[b.memory].banks is not None
        ]
        if not spread:
            return None
        chosen = Random(seed).choice(spread)
        buffers = tuple(change(b) if b is chosen else b for b in program.buffers)
        return replace(program, buffers=buffers)

    def wrong_slot_stride(self, program: Program, seed: int) -> Program | None:
        """Slots one after the other where they should be in banks of their own."""
        return self._one_of(
            program, seed, lambda b: replace(b, slot_stride=b.slot_stride - b.slot_entries // 2 - 1)
        )

    def wrong_bank(self, program: Program, seed: int) -> Program | None:
        """A buffer one bank further, or back."""

        def moved(b: Buffer) -> Buffer:
            banks = self.hardware.memory[b.memory].banks
            assert banks is not None
            step = banks.entries if seed % 2 else -banks.entries
            return replace(b, base=b.base + step)

        return self._one_of(program, seed, moved)

    def wrong_bank_named(self, program: Program, seed: int) -> Program | None:
        return self._one_of(program, seed, lambda b: replace(b, banks=b.banks[::-1]))

    def wrong_slot_step(self, program: Program, seed: int) -> Program | None:
        """A call whose address goes to its other slot by a wrong step."""

        def spread(expression: Expr) -> bool:
            match expression:
                case Binary("*", Binary("%", _, _), Const(step)):
                    return isinstance(step, int) and step > 1
                case _:
                    return False

        def has_slot(node: Node) -> bool:
            return isinstance(node, Call) and any(
                spread(part) for o in node.operands for part in walk(o.address)
            )

        def edit(node: Node) -> tuple[Node, ...]:
            assert isinstance(node, Call)
            done = False
            operands: list[CallOperand] = []
            for o in node.operands:
                found = next((p for p in walk(o.address) if spread(p)), None)
                if found is None or done:
                    operands.append(o)
                    continue
                done = True
                assert isinstance(found, Binary)
                assert isinstance(found.right, Const)
                # From the second slot on it is half a slot short.
                wrong = multiply(found.left, Const(int(found.right.value) // 2))
                operands.append(replace(o, address=exchanged(o.address, found, wrong)))
            return (replace(node, operands=tuple(operands)),)

        return on_one(has_slot, edit)(program, seed)

    def buffer_past_memory(self, program: Program, seed: int) -> Program | None:
        if not program.buffers:
            return None
        buffer = Random(seed).choice(program.buffers)
        capacity = self.hardware.memory[buffer.memory].capacity_entries
        moved = replace(buffer, base=capacity - buffer.entries + 1)
        return replace(program, buffers=tuple(moved if b is buffer else b for b in program.buffers))

    def reordered_calls(self, program: Program, seed: int) -> Program | None:
        """A call before the one that first defines what it updates."""

        def defines(first: Call, second: Call) -> bool:
            rules = self.intrinsic(first).operands
            made = {
                o.buffer for o, r in zip(first.operands, rules, strict=True) if r.access == "write"
            }
            return first.unit == second.unit and any(
                o.buffer in made and r.access == "update"
                for o, r in zip(second.operands, self.intrinsic(second).operands, strict=True)
            )

        def pairs(nodes: tuple[Node, ...]) -> list[int]:
            return [
                i
                for i in range(1, len(nodes))
                if isinstance(one := nodes[i - 1], Call)
                and isinstance(other := nodes[i], Call)
                and defines(one, other)
            ]

        def swapped(nodes: tuple[Node, ...], i: int) -> tuple[Node, ...]:
            return (*nodes[: i - 1], nodes[i], nodes[i - 1], *nodes[i + 1 :])

        return in_a_body(program, seed, pairs, swapped)

    def wrong_kernel_step(self, program: Program, seed: int) -> Program | None:
        """A loop of a micro-kernel that steps one entry too far, restated by its calls."""
        options = [
            (kernel, level, operand)
            for kernel in program.kernels
            for level, loop in enumerate(kernel.loops)
            if loop.extent > 1
            for operand in range(len(loop.strides))
            if loop.strides[operand]
        ]
        if not options:
            return None
        kernel, level, operand = Random(seed).choice(options)
        loop = kernel.loops[level]
        strides = (*loop.strides[:operand], loop.strides[operand] + 1, *loop.strides[operand + 1 :])
        loops = (
            *kernel.loops[:level],
            KernelLoop(loop.extent, strides),
            *kernel.loops[level + 1 :],
        )

        def edit(node: Node) -> tuple[Node, ...]:
            if isinstance(node, Call) and node.kernel == kernel.name:
                given = node.operands[operand]
                wider = with_stride(given, level, add(given.strides[level], Const(1)))
                return (with_operand(node, operand, wider),)
            return (node,)

        moved = with_kernel(program, replace(kernel, loops=loops))
        return replace(moved, body=rewritten(program.body, edit))

    def rewritten_at_once(self, program: Program, seed: int) -> Program | None:
        """Each operation of a sequence twice."""

        def close(kernel: MicroKernelDef) -> bool:
            micro = self.hardware.intrinsic[kernel.intrinsic].micro_kernel
            return micro is not None and micro.rewrite_distance > 1

        options = [k for k in program.kernels if close(k)]
        if not options:
            return None
        kernel = Random(seed).choice(options)
        still = KernelLoop(2, (0,) * len(kernel.bases[0]))
        return with_kernel(program, replace(kernel, sequence=(*kernel.sequence, still)))

    def overfull(self, program: Program, seed: int) -> Program | None:
        """So many variants that the micro-operations do not fit."""
        if not program.kernels:
            return None
        kernel = Random(seed).choice(program.kernels)
        micro = self.hardware.intrinsic[kernel.intrinsic].micro_kernel
        assert micro is not None
        times = micro.capacity_operations // (kernel.operations * len(kernel.bases)) + 1
        return with_kernel(program, replace(kernel, bases=kernel.bases * times))
