"""Elements that no statement writes, and sums that no call adds up: the golden of each message."""

from __future__ import annotations

from pathlib import Path

import pytest

import hwgen
from hwgen.errors import HwgenError
from tests.conftest import Golden

HERE = Path(__file__).parent / "compile"
CASES = {
    "element_unwritten": (
        "x: float32[4]\n  t: float32[8]\n  y: float32[8]",
        't[2*i] = x[i]", loops: {i: 4}}\n  - {do: "y[i] = t[i] + 1.0", loops: {i: 8}}',
        "cpu_generic",
    ),
    "output_in_parts": (
        "a: float32[4]\n  b: float32[4]\n  y: float32[10]",
        'y[i] = a[i]", loops: {i: 4}}\n  - {do: "y[i + 5] = b[i]", loops: {i: 4}}',
        "vta",
    ),
    "shared_elements": (
        "x: float32[8]\n  w: float32[3]\n  y: float32[17]",
        'y[2*i + r] += x[i] * w[r]", loops: {i: 8, r: 3}}',
        "npu_shared_buffer",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_refused(
    case: str, golden: Golden, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    tensors, compute, chip = CASES[case]
    text = f'name: {case}\ntensors:\n  {tensors}\ncompute:\n  - {{do: "{compute}\n'
    Path("w.yaml").write_text(text, encoding="utf-8")
    with pytest.raises(HwgenError) as caught:
        hwgen.build(Path("w.yaml"), chip)
    golden(HERE / f"{case}.txt", str(caught.value))
