"""Rates of a processor: numbers above zero, whole or not."""

from __future__ import annotations

from pathlib import Path

import pytest

from hwgen.errors import HwgenError
from hwgen.spec.load import load_hardware

VTA = Path(__file__).parents[3] / "hw_specs" / "vta.yaml"
RATE = "operations_per_cycle: 650 / 100"


def _written(tmp_path: Path, value: str) -> Path:
    text = VTA.read_text(encoding="utf-8")
    assert RATE in text
    path = tmp_path / "chip.yaml"
    path.write_text(text.replace(RATE, f"operations_per_cycle: {value}"), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("value", "rate"), [("650 / 100", 6.5), ("0.9", 0.9), ("3", 3.0), ("BLOCK_IN // 5", 3.0)]
)
def test_a_rate_is_a_number_or_an_expression(tmp_path: Path, value: str, rate: float) -> None:
    processor = load_hardware(_written(tmp_path, value)).processor
    assert processor is not None
    assert processor.operations_per_cycle == rate


@pytest.mark.parametrize(
    ("value", "code"),
    [
        ("0", "H026"),
        ("-0.5", "H026"),
        ("0 / 5", "H026"),
        ("1 / 0", "H024"),
        ("1..2", "H024"),
        ("abc", "H025"),
        ("true", "H032"),
        ("[1]", "H032"),
        ("1e999", "H012"),
    ],
)
def test_what_is_no_rate_is_refused_at_its_line(tmp_path: Path, value: str, code: str) -> None:
    path = _written(tmp_path, value)
    with pytest.raises(HwgenError) as caught:
        load_hardware(path)
    assert caught.value.code == code
    location = caught.value.diagnostic.location
    assert location is not None
    lines = path.read_text(encoding="utf-8").splitlines()
    assert location.line == 1 + next(n for n, x in enumerate(lines) if "operations_per" in x)
