"""The kernels that the tests of this folder look at, compiled once."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

from numpy.typing import NDArray

import hwgen
from hwgen.codegen.emit_c import FirmwareSource, emit_firmware
from hwgen.passes.kernel import Kernel
from hwgen.pipeline import compile_workload
from hwgen.spec.workload import Workload
from tests.firmware import harness
from tests.sampling import QUICK


def two_layers(name: str, narrowed: str) -> Workload:
    """Two products in int8, whose sums `narrowed` makes 8 bits: what is between them goes through
    off-chip memory."""
    return hwgen.workload(
        name,
        tensors={
            "x": "int8[5, 20]", "h": "int8[5, 24]", "y": "int8[5, 8]",
            "w": {"type": "int8[20, 24]", "constant": True},
            "v": {"type": "int8[24, 8]", "constant": True},
            "s": "int32[5, 24]", "t": "int32[5, 8]",
        },
        compute=[
            "s[m, h_] += x[m, k] * w[k, h_]",
            f"h[m, h_] = int8(clip({narrowed.format('s[m, h_]')}, -128, 127))",
            "t[m, n] += h[m, g] * v[g, n]",
            f"y[m, n] = int8(clip({narrowed.format('t[m, n]')}, -128, 127))",
        ],
    )  # fmt: skip


LAYERS = {
    "two_layers": "round(float32({}) * 0.0078125)",
    "two_shifted_layers": "{} >> 7",
    "two_divided_layers": "{} // 100",
}
"""By name, how sums are narrowed."""


@dataclass(frozen=True, slots=True)
class Case:
    """A kernel and the constants that are compiled into it."""

    chip: str
    workload: str
    sizes: tuple[tuple[str, int], ...] = ()
    weights: tuple[str, ...] = ()

    def __str__(self) -> str:
        return "-".join((self.chip, self.workload, *self.weights))


CONVOLUTION = (("C", 20), ("H", 5), ("W", 6), ("O", 20))
QUANTISED = (("M", 3), ("N", 20), ("K", 24))
CASES = (
    Case("npu_shared_buffer", "linear_relu"),
    Case("npu_shared_buffer", "linear_relu", weights=("w", "b")),
    Case("vta", "conv2d_requant", CONVOLUTION),
    Case("vta", "conv2d_requant", CONVOLUTION, ("w", "bias")),
    Case("vta", "conv2d_requant", CONVOLUTION, ("bias",)),
    Case("gemmini", "conv2d_scaled", CONVOLUTION, ("w",)),
    Case("gemmini", "two_layers"),
    Case("gemmini", "two_layers", weights=("w",)),
    # A processor beside the units computes the rounding, and the divisions.
    Case("vta", "quantised/fully_connected", QUANTISED, ("w", "bias")),
    Case("gemmini", "quantised/fully_connected", QUANTISED, ("w",)),
    Case("gemmini", "two_divided_layers", weights=("v",)),
    # The kernel supplies weights of its own.
    Case("vta", "add", (("M", 6), ("N", 40))),
)


@cache
def compiled(chip: str, workload: str, sizes: tuple[tuple[str, int], ...]) -> Kernel:
    if workload in LAYERS:
        made = two_layers(workload, LAYERS[workload])
    else:
        made = hwgen.load_workload(workload, dict(sizes))
    return compile_workload(made, hwgen.load_hardware(chip), options=QUICK)


def firmware(case: Case) -> FirmwareSource:
    c = compiled(case.chip, case.workload, case.sizes)
    return emit_firmware(c.program, c.hardware, c.workload, frozenset(case.weights))


@cache
def drawn(chip: str, workload: str, sizes: tuple[tuple[str, int], ...]) -> dict[str, NDArray[Any]]:
    inputs = compiled(chip, workload, sizes).workload.inputs
    return harness.draw({t.name: (t.dtype, t.shape) for t in inputs}, 5)
