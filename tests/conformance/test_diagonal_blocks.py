"""Depthwise convolutions as products with diagonal blocks of weights, which one call loads."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import hwgen
from hwgen.errors import HwgenError
from hwgen.passes.scripting import compile_script
from hwgen.pipeline import compile_workload
from hwgen.spec.load import load_hardware
from hwgen.spec.workload import Workload
from hwgen.verify.data import draw_inputs
from hwgen.verify.examine import examine
from tests.sampling import QUICK, tiered

CHIP = Path(__file__).resolve().parents[2] / "hw_specs" / "gemmini.yaml"


def depthwise(channels: int, stride: int) -> Workload:
    size = 4 * stride + 3
    return hwgen.workload(
        "depthwise",
        tensors={
            "x": f"int8[{size}, {size}, {channels}]",
            "w": {"type": f"int8[3, 3, {channels}]", "constant": True},
            "acc": f"int32[5, 5, {channels}]",
            "y": f"int8[5, 5, {channels}]",
        },
        compute=[
            f"acc[i, j, c] += x[{stride}*i + r, {stride}*j + s, c] * w[r, s, c]",
            "y[i, j, c] = int8(clip(round(float32(acc[i, j, c]) * 0.0078125), -128, 127))",
        ],
    )


def without_blocks(folder: Path) -> Path:
    text = CHIP.read_text(encoding="utf-8")
    start = text.index("  mvin_block:")
    rest = re.search(r"\n  (?=\S)", text[start + 3 :])
    assert rest is not None
    path = folder / "rows.yaml"
    path.write_text(text[:start] + text[start + 3 + rest.start() + 1 :], encoding="utf-8")
    return path


@pytest.mark.parametrize(("rows", "columns"), [(48, 64), (37, 32)])
def test_unit_weights_stay_while_rows_of_bytes_are_added(rows: int, columns: int) -> None:
    """The array holds the diagonal of ones, not a row of data that it would be used for once."""
    shape = f"int8[{rows}, {columns}]"
    work = hwgen.workload(
        "residual",
        tensors={"a": shape, "b": shape, "c": shape},
        compute=["c[m, n] = int8(clip(round(float32(int32(a[m, n]) + b[m, n]) * 0.5), -128, 127))"],
    )
    kernel = compile_workload(work, load_hardware(CHIP), QUICK)
    for data in ("extremes", "random"):
        examine(kernel, draw_inputs(work, 1, data))
    assert "stationary=" in kernel.script
    again = compile_script(work, load_hardware(CHIP), kernel.script)
    assert again.files == kernel.files
    unsaid = re.sub(r", stationary=\w+", "", kernel.script)
    slower = compile_script(work, load_hardware(CHIP), unsaid)
    assert 2 * kernel.cycles < slower.cycles
    with pytest.raises(HwgenError, match="H422") as refused:
        compile_script(
            work, load_hardware(CHIP), re.sub(r"stationary=\w+", "stationary='c'", kernel.script)
        )
    assert "a, b, " in refused.value.diagnostic.allowed


CASES = [(c, s) for c in (16, 35, 64) for s in (1, 2)]


@pytest.mark.parametrize(("channels", "stride"), tiered(CASES, [(35, 1), (16, 2)]))
def test_one_call_computes_as_many_channels_as_the_array_has(
    channels: int, stride: int, tmp_path: Path
) -> None:
    work = depthwise(channels, stride)
    kernel = compile_workload(work, load_hardware(CHIP), QUICK)
    assert "mvin_block" in kernel.script
    for data in ("extremes", "random"):
        examine(kernel, draw_inputs(work, 1, data))
    by_rows = compile_workload(work, load_hardware(without_blocks(tmp_path)), QUICK)
    assert 3 * kernel.cycles < by_rows.cycles
