"""What a program's calls add up to: bytes, iterations, energy, and cycles that banks cost.

Each is a column of one walk, `tally.executed`, which runs nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import NamedTuple

from hwgen.codegen.nodes import Call, Push, Signal
from hwgen.codegen.program import Program
from hwgen.codegen.sync_nodes import Edge
from hwgen.spec.call_cycles import repeats
from hwgen.spec.expression import Binary, Const, Expr, evaluate
from hwgen.spec.hardware import HardwareSpec
from hwgen.spec.memory import WAYS
from hwgen.spec.workload import Workload

from .bank_cycles import banked_operands, served_cycles, touched_banks
from .costs import call_span, entry_bytes, held_steps, iterations
from .tally import Count, Parameters, executed

PARTS = 1_000_000
"""Energies of calls are counted in such parts of a picojoule, whole ones, which add up exactly."""


def count_calls(program: Program, hardware: HardwareSpec) -> int:
    """Calls that a program executes."""
    return sum(run.times for run in executed(program, hardware, Call, lambda _: ()))


def count_tokens(
    program: Program, hardware: HardwareSpec
) -> dict[tuple[str, str], tuple[int, int]]:
    """Pushes and pops, or signals and waits, by edge."""
    found: Counter[tuple[str, str, bool]] = Counter()
    for run in executed(program, hardware, Edge, lambda _: ()):
        found[run.node.source, run.node.target, isinstance(run.node, Push | Signal)] += run.times
    exchanged = hardware.tokens or hardware.events
    edges = exchanged.edges if exchanged is not None else ()
    return {(a, b): (found[a, b, True], found[a, b, False]) for a, b in edges}


def intrinsic_iterations(program: Program, hardware: HardwareSpec) -> Counter[str]:
    """Iterations of the calls of each intrinsic."""
    found: Counter[str] = Counter()
    for run in executed(program, hardware, Call, lambda c: () if c.kernel else c.extents):
        found[run.node.intrinsic] += iterations(run.node, program, run.values) * run.times
    return found


# Bytes


class Moved(NamedTuple):
    """Bytes of a tensor that a call reads in a memory (`way`: "load") or writes ("store")."""

    memory: str
    tensor: str
    way: str
    bytes: int


def call_bytes(
    call: Call,
    extents: tuple[int, ...],
    program: Program,
    hardware: HardwareSpec,
    brought: int | None = None,
) -> Iterator[Moved]:
    """What one execution of a call moves, operand by operand: what it updates goes both ways.

    `brought`: how often it brings the operand that its unit holds, if not in each iteration.
    """
    intrinsic = hardware.intrinsic[call.intrinsic]
    times = iterations(call, program, extents)
    held = intrinsic.stationary.operand if intrinsic.stationary is not None else ""
    for operand, rule in zip(call.operands, intrinsic.operands, strict=True):
        tensor = (program.image.get(operand.buffer) or program.buffer[operand.buffer]).tensor
        often = times if brought is None or rule.name != held else brought
        size = often * call_span(intrinsic, rule, call) * entry_bytes(rule)
        for way in WAYS[rule.access]:
            yield Moved(rule.memory, tensor, "load" if way == "read" else "store", size)


def off_chip_bytes(
    call: Call, extents: tuple[int, ...], program: Program, hardware: HardwareSpec
) -> tuple[Moved, ...]:
    """The part of `call_bytes` that crosses a bus."""
    moved = call_bytes(call, extents, program, hardware)
    return tuple(m for m in moved if hardware.is_offchip(m.memory))


def off_chip_moves(
    program: Program, hardware: HardwareSpec, parameters: Parameters | None = None
) -> Iterator[tuple[Moved, Count]]:
    """What calls move across buses, and how often."""

    def wanted(call: Call) -> Sequence[Expr] | None:
        return call.extents if any(o.buffer in program.image for o in call.operands) else None

    for run in executed(program, hardware, Call, wanted, parameters):
        for moved in off_chip_bytes(run.node, run.values, program, hardware):
            yield moved, run.count


@dataclass(frozen=True, slots=True)
class TensorTraffic:
    """Bytes of one tensor that cross the bus; `size`: its bytes in the caller's memory."""

    tensor: str
    role: str
    loaded: int
    stored: int
    size: int

    @property
    def times(self) -> float:
        """How often each byte crosses the bus, padding counted."""
        return (self.loaded + self.stored) / self.size


def moved_bytes(program: Program, hardware: HardwareSpec, workload: Workload) -> int:
    """Bytes that calls move between the chip and its images, and a processor beside the units in
    its memory."""
    traffic = off_chip_traffic(program, hardware, workload)
    return sum(t.loaded + t.stored for t in traffic) + sum(c.memory_bytes for c in program.codes)


def off_chip_traffic(
    program: Program, hardware: HardwareSpec, workload: Workload
) -> tuple[TensorTraffic, ...]:
    """Bytes per input and output tensor, and per other tensor that has an image, in the workload's
    order.

    Micro-operations and instruction fetch are not tensors and not counted.
    """
    found: Counter[tuple[str, str]] = Counter()
    for moved, count in off_chip_moves(program, hardware):
        found[moved.way, moved.tensor] += moved.bytes * int(count[()])
    outer = {t.name for t in (*workload.inputs, *workload.outputs)}
    held = {image.tensor for image in program.images} - outer
    between = (t for n, t in program.tensors(workload).items() if n in held)
    return tuple(
        TensorTraffic(t.name, t.role, found["load", t.name], found["store", t.name], t.bytes)
        for t in (*workload.inputs, *between, *workload.outputs)
    )


# Energy


@dataclass(frozen=True, slots=True)
class EnergyPart:
    """Picojoules of accesses of a memory, and the `bytes` of these; or of calls of an intrinsic."""

    name: str
    picojoules: float
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class Energy:
    """By memory, then by intrinsic, in the order of the chip's file; those that take none are left
    out."""

    parts: tuple[EnergyPart, ...] = ()

    @property
    def picojoules(self) -> float:
        """Of all of them."""
        return sum(p.picojoules for p in self.parts)


def program_energy(program: Program, hardware: HardwareSpec) -> Energy:
    """What calls take, and every byte that they read or write; not what a processor computes.

    An operand that a unit holds is read when it is brought in, every other in each iteration.
    """
    if not hardware.has_energy:
        return Energy()

    def wanted(call: Call) -> Sequence[Expr]:
        fresh = () if call.fresh is None else (call.fresh,)
        return *call.extents, *held_steps(call, hardware.intrinsic[call.intrinsic]), *fresh

    touched: Counter[tuple[str, str]] = Counter()
    own: Counter[str] = Counter()
    for run in executed(program, hardware, Call, wanted):
        call, intrinsic = run.node, hardware.intrinsic[run.node.intrinsic]
        extents, rest = run.values[: len(call.extents)], run.values[len(call.extents) :]
        around = extents[: intrinsic.software_loops]
        runs = prod(around)
        brought = 0
        if intrinsic.stationary is not None and (call.fresh is None or rest[-1]):
            brought = runs // repeats(around, rest[: len(around)])
        for moved in call_bytes(call, extents, program, hardware, brought):
            touched[moved.way, moved.memory] += moved.bytes * run.times
        if intrinsic.energy is not None:
            inner = extents[len(around) :]
            if call.kernel:
                inner = tuple(x.extent for x in program.kernel[call.kernel].loops)
            loops = (x.name for x in intrinsic.loops[len(around) :])
            names = dict(zip(loops, inner, strict=False))
            names["iterations"] = iterations(call, program, extents) // runs
            each = evaluate(intrinsic.energy, names)
            own[intrinsic.name] += run.times * runs * round(PARTS * each)
    memories = [
        EnergyPart(
            m.name,
            touched["load", m.name] * m.read_energy + touched["store", m.name] * m.write_energy,
            touched["load", m.name] + touched["store", m.name],
        )
        for m in hardware.memories
    ]
    calls = [EnergyPart(i.name, own[i.name] / PARTS) for i in hardware.intrinsics]
    return Energy(tuple(p for p in (*memories, *calls) if p.picojoules))


# Cycles in banks


@dataclass(frozen=True, slots=True)
class SharedBanks:
    """A call site whose own accesses wait for each other. `lost`: cycles beyond those without any
    conflict, of all its calls; `operand`: the one that takes longest by itself; `memory`: where."""

    intrinsic: str
    site: int
    operand: str
    memory: str
    calls: int
    lost: int


def shared_banks(program: Program, hardware: HardwareSpec) -> tuple[SharedBanks, ...]:
    """The calls that lose cycles since their own accesses meet in a bank, by site."""
    banked = {i.name: list(banked_operands(i, hardware)) for i in hardware.intrinsics}

    def wanted(call: Call) -> Sequence[Expr] | None:
        found, given = list(call.extents), {o.name: o for o in call.operands}
        for operand, banks, _ in banked[call.intrinsic]:
            place = given[operand.name]
            found += [Binary("%", place.address, Const(banks.turn)), *place.strides]
        return found if banked[call.intrinsic] else None

    users: dict[int, Call] = {}
    lost: Counter[tuple[int, str]] = Counter()
    calls: Counter[int] = Counter()
    for run in executed(program, hardware, Call, wanted):
        site, name = run.node.site, run.node.intrinsic
        extents, places = run.values[: len(run.node.extents)], run.values[len(run.node.extents) :]
        touched = touched_banks(banked[name], places)
        at_once = hardware.intrinsic[name].iterations_per_cycle
        users[site] = run.node
        calls[site] += run.times
        alone = {o.name: (one,) for (o, *_), one in zip(banked[name], touched, strict=True)}
        for operand, some in {"": touched, **alone}.items():
            cycles = served_cycles(at_once, extents, some) - -(-prod(extents) // at_once)
            lost[site, operand] += cycles * run.times
    result: list[SharedBanks] = []
    for site, call in sorted(users.items()):
        if lost[site, ""]:
            operands = [o for o, *_ in banked[call.intrinsic]]
            worst = max(operands, key=lambda o: lost[site, o.name])
            where = call.intrinsic, site, worst.name, worst.memory
            result.append(SharedBanks(*where, calls[site], lost[site, ""]))
    return tuple(result)
