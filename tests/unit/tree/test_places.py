"""Banks and addresses that a memory does not have are refused, whatever is edited last."""

from __future__ import annotations

from pathlib import Path

import pytest

from hwgen.errors import HwgenError
from hwgen.polyhedral.schedule.schedule import Schedule
from hwgen.spec.load import load_hardware, load_workload

ROOT = Path(__file__).resolve().parents[3]
UNITS = load_hardware(ROOT / "hw_specs/vtcm_two_banks.yaml")
MATMUL = load_workload(ROOT / "workloads/matmul.yaml", {"M": 64, "N": 64, "K": 128})


def _copied() -> Schedule:
    s = Schedule(MATMUL, UNITS)
    s.cache_read("a", "vtcm")
    return s


def _refused(s: Schedule, name: str, *arguments: str | int) -> tuple[str, str]:
    with pytest.raises(HwgenError) as raised:
        getattr(s, name)(*arguments)
    assert raised.value.code == "H413"
    return raised.value.diagnostic.found, raised.value.diagnostic.allowed


def test_a_bank_that_a_units_memory_does_not_have() -> None:
    s = _copied()
    assert _refused(s, "set_bank", "a_vtcm", 99) == ("bank 99", "0..1")
    s.set_bank("a_vtcm", 1)
    assert "bank 1" in s.describe("a_vtcm")


def test_an_address_past_a_units_memory_or_inside_an_entry() -> None:
    s = _copied()
    allowed = "byte 0 to 131068, every 4 bytes"
    assert _refused(s, "set_address", "a_vtcm", 131072) == ("byte 131072 of vtcm", allowed)
    assert _refused(s, "set_address", "a_vtcm", 6) == ("byte 6 of vtcm", allowed)
    s.set_address("a_vtcm", 131068)
    assert "@131068" in s.describe("a_vtcm")


def test_a_memory_without_the_bank_that_was_set_before() -> None:
    s = _copied()
    s.set_bank("a_vtcm", 1)
    assert _refused(s, "set_scope", "a_vtcm", "vmem") == ("bank 1", "no bank")
