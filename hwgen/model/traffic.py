"""Off-chip bytes that a program moves, counted from its loops without running them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from hwgen.codegen.nodes import Call, SyncNode
from hwgen.codegen.program import Program
from hwgen.model.costs import call_span, iterations
from hwgen.model.counting import total
from hwgen.spec.expression import Expr, evaluate
from hwgen.spec.hardware import HardwareSpec
from hwgen.spec.memory import WAYS
from hwgen.spec.workload import Workload


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


class Moved(NamedTuple):
    """Bytes of a tensor that a call reads in a memory (`way`: "load") or writes ("store")."""

    memory: str
    tensor: str
    way: str
    bytes: int


def call_bytes(
    call: Call, extents: tuple[int, ...], program: Program, hardware: HardwareSpec
) -> Iterator[Moved]:
    """What one execution of a call moves, operand by operand: what it updates goes both ways."""
    intrinsic = hardware.intrinsic[call.intrinsic]
    times = iterations(call, program, extents)
    for operand, rule in zip(call.operands, intrinsic.operands, strict=True):
        image = program.image.get(operand.buffer)
        entry = hardware.memory[rule.memory].entry_bytes if image is None else image.entry_bytes
        tensor = (image or program.buffer[operand.buffer]).tensor
        size = times * call_span(intrinsic, rule, call) * entry
        for way in WAYS[rule.access]:
            yield Moved(rule.memory, tensor, "load" if way == "read" else "store", size)


def off_chip_bytes(
    call: Call, extents: tuple[int, ...], program: Program, hardware: HardwareSpec
) -> tuple[Moved, ...]:
    """The part of `call_bytes` that crosses a bus."""
    moved = call_bytes(call, extents, program, hardware)
    return tuple(m for m in moved if hardware.is_offchip(m.memory))


def off_chip_traffic(
    program: Program, hardware: HardwareSpec, workload: Workload
) -> tuple[TensorTraffic, ...]:
    """Bytes per input and output tensor, and per other tensor that has an image, in the workload's
    order.

    Micro-operations and instruction fetch are not tensors and not counted.
    """

    def counted(node: Call | SyncNode) -> tuple[Expr, ...] | None:
        if isinstance(node, Call) and any(o.buffer in program.image for o in node.operands):
            return node.extents
        return None

    def leaf(node: Call | SyncNode, values: Mapping[str, int]) -> Mapping[str, int]:
        assert isinstance(node, Call)
        extents = tuple(int(evaluate(e, values)) for e in node.extents)
        moved: dict[str, int] = {}
        for _, tensor, way, size in off_chip_bytes(node, extents, program, hardware):
            key = f"{way} {tensor}"
            moved[key] = moved.get(key, 0) + size
        return moved

    found = total(program.body, counted, leaf)
    outer = {t.name for t in (*workload.inputs, *workload.outputs)}
    held = {image.tensor for image in program.images} - outer
    between = (t for n, t in program.tensors(workload).items() if n in held)
    return tuple(
        TensorTraffic(
            t.name,
            t.role,
            found[f"load {t.name}"],
            found[f"store {t.name}"],
            t.bytes,
        )
        for t in (*workload.inputs, *between, *workload.outputs)
    )
