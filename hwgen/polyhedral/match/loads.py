"""Copies from off-chip memory: which bring a tensor to a memory, and which bring whole blocks."""

from __future__ import annotations

from collections.abc import Mapping

from hwgen.polyhedral.match.operations import Operation
from hwgen.polyhedral.match.partial_lanes import Lanes
from hwgen.polyhedral.semantics import marginal_cycles, widens, written
from hwgen.spec.expression import DTYPES, Access
from hwgen.spec.hardware import HardwareSpec, Intrinsic
from hwgen.spec.typecheck import is_float


def loaders(hardware: HardwareSpec, memory: str, dtype: str, *, constant: bool) -> list[Intrinsic]:
    """The copies from off-chip memory into `memory`, the cheapest first, which keep every value of
    `dtype`: integers in an integer type, as float arithmetic rounds where theirs wraps around.
    `constant`: what is copied may lie in a memory of constants."""
    able: list[tuple[float, bool, int, Intrinsic]] = []
    for intrinsic in sorted(hardware.intrinsics, key=lambda i: i.name):
        only = written(intrinsic)
        if only is None or not isinstance(only[0].value, Access) or only[0].op != "=":
            continue
        target = intrinsic.operand(only[1])
        source = intrinsic.operand(only[0].value.tensor)
        held = hardware.memory[source.memory]
        offchip = held.kind == "offchip" and (constant or not held.constants_only)
        keeps = widens(dtype, source.dtype) and is_float(dtype) == is_float(source.dtype)
        if target.memory == memory and offchip and keeps:
            size = DTYPES[source.dtype]
            able.append((marginal_cycles(intrinsic), not held.constants_only, size, intrinsic))
    # Of those as fast, from a memory that holds nothing but constants; then of the narrowest type,
    # which the tensor may have, so that nobody needs to widen it before.
    return [intrinsic for *_, intrinsic in sorted(able, key=lambda x: x[:3])]


def in_whole_blocks(operation: Operation, pinned: Mapping[str, Lanes]) -> Operation:
    """The load that brings all rows of a block in one call, where there is one and a block is a
    diagonal: one loop runs along rows and lanes, and each row has another element. `pinned`: the
    loops along the lanes of each storage, as far as they are known."""
    for storage in operation.storages if operation.wider else ():
        loops = [n for n in pinned.get(storage, ()) if n]
        if len({*loops}) < len(loops):
            return max(operation.wider, key=lambda o: len(o.intrinsic.written.indices))
    return operation
