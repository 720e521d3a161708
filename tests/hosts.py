"""A chip of the shipped ones behind a host that issues calls in order."""

from __future__ import annotations

from pathlib import Path

from hwgen.spec.hardware import HardwareSpec
from hwgen.spec.load import parse_hardware
from hwgen.spec.source import read_document

NPU = Path(__file__).resolve().parents[1] / "hw_specs" / "npu_shared_buffer.yaml"


def behind_a_host(edge: int) -> HardwareSpec:
    """Units with short queues and a scoreboard in the place of tokens between them; `edge`: of the
    matrix unit's tiles."""
    data = read_document(NPU).data
    assert isinstance(data, dict)
    units = {unit: {"queue_entries": 4} for unit in ("dma", "matrix", "vector")}
    order = {"kind": "scoreboard", "cycles": 1, "fence": "fence();", "fence_cycles": 1}
    changed = {"units": units, "issue": {"cycles": 2}, "synchronization": order}
    return parse_hardware({**data, **changed}, {"T": edge})
