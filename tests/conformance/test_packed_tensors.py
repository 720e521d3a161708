"""Tensors that the user blocked himself, four-dimensional, as entries of the chip's memories: they
match as any others do, and nothing is packed again."""

from __future__ import annotations

from pathlib import Path

import pytest

import hwgen
from hwgen.model.compiled import have_compiler
from hwgen.passes.scripting import compile_script
from hwgen.pipeline import compile_kernel
from hwgen.spec.load import load_hardware
from hwgen.spec.workload import Workload
from hwgen.verify.data import draw_inputs
from hwgen.verify.examine import examine
from tests.sampling import QUICK, tiered

VTA = load_hardware(Path(__file__).parents[2] / "hw_specs" / "vta.yaml")


def packed(batch: int, order: str = "x[bo, ko, bi, ki] * w[no, ko, ni, ki]") -> Workload:
    return hwgen.workload(
        "packed",
        tensors={
            "x": f"int8[{batch}, 4, 1, 16]",
            "w": "int8[4, 4, 16, 16]",
            "acc": f"int32[{batch}, 4, 1, 16]",
            "y": f"int8[{batch}, 4, 1, 16]",
        },
        compute=[
            f"acc[bo, no, bi, ni] += {order}",
            "y[bo, no, bi, ni] = int8(clip(acc[bo, no, bi, ni] >> 4, -128, 127))",
        ],
    )


@pytest.mark.parametrize("batch", tiered([1, 2, 4], [2]))
@pytest.mark.parametrize(
    "order", ["x[bo, ko, bi, ki] * w[no, ko, ni, ki]", "w[no, ko, ni, ki] * x[bo, ko, bi, ki]"]
)
def test_nothing_is_packed_again(batch: int, order: str) -> None:
    kernel = compile_kernel(packed(batch, order), VTA, options=QUICK)
    examine(kernel, draw_inputs(kernel.workload, 1), "both" if have_compiler() else "python")
    text = kernel.source.c
    assert all(word not in text for word in ("_fill_", "_unpack_", "malloc", "memcpy"))
    assert "VTABufferCopy(x, 0, x_image_dev, 0," in text
    again = compile_script(kernel.workload, VTA, kernel.script)
    assert again.source.c == text


def test_rows_that_are_not_blocked_are_packed() -> None:
    tensors = {"x": "int8[4, 64]", "w": "int8[64, 64]", "s": "int32[4, 64]"}
    compute = ["s[m, n] += x[m, k] * w[n, k]", "y[m, n] = int8(s[m, n])"]
    plain = hwgen.workload("plain", tensors={**tensors, "y": "int8[4, 64]"}, compute=compute)
    text = compile_kernel(plain, VTA, options=QUICK).source.c
    assert "_fill_w_image" in text
