"""How many lanes take part in each call, against the intrinsic's fields."""

from __future__ import annotations

from collections.abc import Iterator

from hwgen.codegen.nodes import calls
from hwgen.codegen.program import Program
from hwgen.spec.expression import Const
from hwgen.spec.hardware import HardwareSpec
from hwgen.spec.ranges import Range


def lane_problems(program: Program, hardware: HardwareSpec) -> Iterator[tuple[str, str, str]]:
    """Lanes that no field of a call can say, and loops that need all of them: what, found and
    allowed."""
    for call in calls(program.body):
        intrinsic = hardware.intrinsic[call.intrinsic]
        where = f"site {call.site} ({call.intrinsic})"
        if call.lanes and len(call.lanes) != len(intrinsic.iterators):
            yield f"{where}: lanes", str(len(call.lanes)), f"{len(intrinsic.iterators)} iterators"
            continue
        for (name, extent), lanes in zip(intrinsic.iterators, call.lanes, strict=False):
            allowed = Range(1 if name in intrinsic.partial else extent, extent)
            if lanes not in allowed:
                yield f"{where}: lanes of {name}", str(lanes), str(allowed)
        if intrinsic.narrowed(call.lanes) is intrinsic:
            continue
        for loop, trips in zip(intrinsic.loops, call.extents, strict=True):
            if loop.whole_lanes and trips != Const(1):
                yield f"{where}: {loop.name} with fewer lanes", str(trips), "1"
