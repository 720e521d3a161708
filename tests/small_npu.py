"""The chip of one shared buffer, with as many bytes as a test asks for."""

from __future__ import annotations

from pathlib import Path
from typing import cast

from hwgen.spec.hardware import HardwareSpec
from hwgen.spec.load import parse_hardware
from hwgen.spec.source import read_document
from hwgen.verify.natural.draws import Spec

SPEC = Path(__file__).parents[1] / "hw_specs" / "npu_shared_buffer.yaml"


def npu_of(size: int) -> HardwareSpec:
    """Operands reach all of the buffer."""
    spec = cast(Spec, read_document(SPEC).data)
    spec["memories"]["local"]["size"] = size
    for intrinsic in spec["intrinsics"].values():
        for operand in intrinsic["operands"].values():
            if operand["memory"] == "local":
                operand["address"] = f"0..{size // 4 - 1}"
    return parse_hardware(spec)
