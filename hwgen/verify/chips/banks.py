"""Banks of a random chip's memories."""

from __future__ import annotations

from hwgen.errors import HwgenError
from hwgen.spec.load import parse_hardware
from hwgen.verify.chips.draws import Pick, Spec

COUNTS = (2, 1, 3, 4, 8)
PORTS = (1, {"read": 1, "write": 1}, {"read": 2, "write": 1}, 2)


def draw_banks(spec: Spec, pick: Pick) -> None:
    """Banks for some memories: how many, of those counts that divide the memory, and ports."""
    try:
        hardware = parse_hardware(spec)
    except HwgenError:
        return  # Refused already: reading it again counts as that.
    for memory in hardware.memories:
        if memory.kind == "offchip" or pick.chance(3):
            continue
        counts = [n for n in COUNTS if memory.capacity_entries % n == 0]
        ports = pick(PORTS)
        spec["memories"][memory.name]["banks"] = {
            "count": pick(counts),
            "ports": dict(ports) if isinstance(ports, dict) else ports,
        }
