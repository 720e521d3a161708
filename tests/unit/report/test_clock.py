"""Seconds and operations per second next to cycles, where the chip's file has a clock."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from hwgen.cli import main
from hwgen.kernel import Kernel, build
from hwgen.report.html import page
from hwgen.report.kernels import kernel_html
from hwgen.report.records import kernel_record
from hwgen.report.text import describe, measure, results
from hwgen.spec.load import load_hardware
from hwgen.spec.shown import hertz_text, rate_text, seconds_text
from tests.sampling import QUICK

ROOT = Path(__file__).resolve().parents[3]
SIZES = {"M": 16, "N": 32, "K": 48}
OPERATIONS = 2 * 16 * 32 * 48
ADDED = {"clock_hertz", "seconds", "operations", "operations_per_second"}


def made(name: str, hertz: float | None) -> Kernel:
    chip = replace(load_hardware(ROOT / "hw_specs" / f"{name}.yaml"), clock_hz=hertz)
    options = QUICK if chip.units else None
    return build("matmul", chip, sizes=SIZES, engine="python", options=options)


@pytest.mark.parametrize("name", ["npu_shared_buffer", "cpu_generic"])
def test_a_clock_adds_time_to_every_report_and_changes_nothing_else(name: str) -> None:
    without, timed = made(name, None), made(name, 2e9)
    assert (without.c, without.cycles) == (timed.c, timed.cycles)
    assert without.seconds is None
    seconds = timed.cycles / 2e9
    assert timed.seconds == seconds
    rate = OPERATIONS / seconds
    speed = f"{seconds_text(seconds)} at 2 GHz, {rate_text(rate)}"

    assert f"{timed.cycles:,} cycles ({speed}), lower bound" in repr(timed)
    assert repr(without) == repr(timed).replace(f" ({speed})", "")
    line = f"  {speed} (a multiply-add is two operations)\n"
    text = describe(measure(timed.compilation))
    assert line in text
    assert describe(measure(without.compilation)) == text.replace(line, "")
    assert f"<b>time</b>: {speed}" in kernel_html(timed.compilation)
    assert "<b>time</b>" not in kernel_html(without.compilation)

    header, _, row = results([measure(timed.compilation)]).splitlines()[:3]
    assert header.split()[:4] == ["workload", "cycles", "time", "speed"]
    assert f"{seconds_text(seconds)}  {rate_text(rate)}" in row
    assert "time" not in results([measure(without.compilation)])

    card = f"<div>Time</div><div>{seconds_text(seconds)}</div><div>{rate_text(rate)} at 2 GHz"
    assert card in page(timed.compilation)
    assert "<div>Time</div>" not in page(without.compilation)


def test_json_has_them_as_numbers() -> None:
    timed = made("npu_shared_buffer", 2e9)
    record = kernel_record(measure(timed.compilation))
    assert record["clock_hertz"] == 2e9
    assert record["seconds"] == timed.seconds
    assert record["operations"] == OPERATIONS
    assert record["operations_per_second"] == pytest.approx(OPERATIONS * 2e9 / timed.cycles)
    without = kernel_record(measure(made("npu_shared_buffer", None).compilation))
    assert {*record} - {*without} == ADDED


def test_simulate_and_check_say_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = (ROOT / "hw_specs/npu_shared_buffer.yaml").read_text(encoding="utf-8")
    file = tmp_path / "chip.yaml"
    file.write_text(text.replace("\nparameters:", "\nclock: T*50 MHz\nparameters:"), "utf-8")
    assert main(["check", str(file)]) == 0
    assert re.search(r"^clock +800 MHz$", capsys.readouterr().out, re.MULTILINE)
    assert main(["simulate", "--spec", str(file), "--workload", "matmul", "--set", "M=16"]) == 0
    out = capsys.readouterr().out
    assert re.search(r"^time {8}\d[\d.]* us at 800 MHz, [\d.]+ GOPS \(", out, re.MULTILINE)
    simulate = ["simulate", "--spec", str(file), "--workload", "matmul", "--set", "M=16", "--json"]
    assert main(simulate) == 0
    assert json.loads(capsys.readouterr().out).keys() >= ADDED


def test_texts_have_the_largest_unit_that_fits() -> None:
    assert [hertz_text(h) for h in (1e9, 1.53e9, 7e8, 32768)] == [
        "1 GHz", "1.53 GHz", "700 MHz", "32.77 kHz",
    ]  # fmt: skip
    assert [seconds_text(s) for s in (2, 5e-3, 1.23456e-5, 9e-9, 1e-10)] == [
        "2 s", "5 ms", "12.35 us", "9 ns", "0.1 ns",
    ]  # fmt: skip
    assert [rate_text(r) for r in (9.2e13, 2.5e9, 3e6, 10.0)] == [
        "92 TOPS", "2.5 GOPS", "3 MOPS", "1e-05 MOPS",
    ]  # fmt: skip
