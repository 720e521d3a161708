"""Banks of a random chip's memories, contiguous or in turns, and calls that share them."""

from __future__ import annotations

from hwgen.errors import HwgenError
from hwgen.spec.load import parse_hardware
from hwgen.verify.natural.draws import Pick, Spec

COUNTS = (2, 1, 3, 4, 8)
PORTS = (1, {"read": 1, "write": 1}, {"read": 2, "write": 1}, 2)
RUNS = (1, 2, 4)
"""Consecutive entries of interleaved banks."""
AT_ONCE = (4, 1, 3, 16)
"""Iterations whose accesses banks serve together."""


def draw_banks(spec: Spec, pick: Pick) -> None:
    """Banks for some memories: how many, of those counts that divide the memory, and ports."""
    try:
        hardware = parse_hardware(spec)
    except HwgenError:
        return  # Refused already: reading it again counts as that.
    for memory in hardware.of_kind("scratchpad"):
        if pick.chance(3):
            continue
        counts = [n for n in COUNTS if memory.capacity_entries % n == 0]
        ports = pick(PORTS)
        count = pick(counts)
        spec["memories"][memory.name]["banks"] = banks = {
            "count": count,
            "ports": dict(ports) if isinstance(ports, dict) else ports,
        }
        runs = [n for n in RUNS if memory.capacity_entries % (count * n) == 0]
        if pick(range(3)):
            banks["interleave"] = pick(runs)
    _draw_conflicts(spec, pick)


def _draw_conflicts(spec: Spec, pick: Pick) -> None:
    """Calls with an operand in interleaved banks, and none in others, whose accesses may meet."""
    for intrinsic in spec["intrinsics"].values():
        memories = [spec["memories"][o["memory"]] for o in intrinsic["operands"].values()]
        banked = [m["banks"] for m in memories if "banks" in m]
        repeated = "micro_kernel" in intrinsic or intrinsic.get("software_loops")
        if (
            banked
            and all("interleave" in b for b in banked)
            and not repeated
            and not pick.chance(4)
        ):
            intrinsic["iterations_per_cycle"] = pick(AT_ONCE)
            intrinsic["cycles"] = f"{intrinsic['cycles']} + bank_cycles"
