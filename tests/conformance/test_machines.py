"""The C for vector units: executed here, or cross-compiled and executed by user-mode emulation."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from shutil import which
from typing import cast

import numpy as np
import pytest

import hwgen
from hwgen.calibrate.counted import built, called
from hwgen.calibrate.tools import Tools
from hwgen.codegen.nodes import calls
from hwgen.model.numeric import Array
from hwgen.model.reference import run_reference
from hwgen.passes.kernel import Kernel
from hwgen.pipeline import compile_workload
from hwgen.spec.load import parse_workload
from hwgen.verify.compare import unexplained
from hwgen.verify.data import Style, draw_inputs
from hwgen.verify.examine import examine
from tests.sampling import QUICK, tiered

Case = tuple[str | dict[str, object], dict[str, int], dict[str, str], str]
LAYER: dict[str, object] = {
    "name": "layer",
    "tensors": {
        "x": "bfloat16[5, 19]",
        "w": {"type": "bfloat16[19, 37]", "constant": True},
        "b": {"type": "float32[37]", "constant": True},
        "acc": "float32[5, 37]",
        "h": "float32[5, 37]",
        "y": "bfloat16[5, 37]",
    },
    "compute": [
        "acc[m, n] += float32(x[m, k]) * float32(w[k, n])",
        "h[m, n] = max(acc[m, n] + b[n], 0)",
        "y[m, n] = bfloat16(h[m, n])",
    ],
}
ROUNDED_LAYER: dict[str, object] = {
    "name": "rounded_layer",
    "tensors": {n: t for n, t in cast("dict[str, object]", LAYER["tensors"]).items() if n != "h"},
    "compute": [
        "acc[m, n] += float32(x[m, k]) * float32(w[k, n])",
        "y[m, n] = bfloat16(max(acc[m, n] + b[n], 0))",
    ],
}
FLAGS = ("-std=c11", "-O2", "-static")
ARM = (*FLAGS, "-march=armv8.2-a+dotprod")
NATIVE = (*FLAGS, "-march=native")
RVV, RISCV = ("clang-19", "--target=riscv64-linux-gnu"), ("qemu-riscv64", "-cpu")
CORE = "rv64,v=true,vext_spec=v1.0"
CPU = Path("/proc/cpuinfo")


@dataclass(frozen=True, slots=True)
class Machine:
    """A compiler of a chip's C and what runs its programs; nothing: this machine, with a `flag`."""

    chip: str
    tools: Tools
    flag: str = ""

    def missing(self) -> str:
        """What this machine lacks to run them."""
        programs = [p for p in (*self.tools.compiler[:1], *self.tools.runner[:1]) if not which(p)]
        here = CPU.read_text() if CPU.is_file() else ""
        return ", ".join([*programs, *([self.flag] if f"{self.flag} " not in here else [])])

    def __str__(self) -> str:
        return "-".join([self.chip, self.tools.compiler[0], *self.tools.runner[-1:]])


MACHINES = (
    Machine("arm_neon", Tools(("aarch64-linux-gnu-gcc",), ARM, ("qemu-aarch64",))),
    Machine("arm_neon", Tools(("clang", "--target=aarch64-linux-gnu"), ARM, ("qemu-aarch64",))),
    *(
        Machine(
            "riscv_rvv", Tools((*RVV, "-march=rv64gcv"), FLAGS, (*RISCV, f"{CORE},vlen={bits}"))
        )
        for bits in (128, 256)
    ),
    Machine("x86_bf16", Tools(("gcc",), NATIVE), "avx512_bf16"),
    Machine("x86_bf16", Tools(("clang",), NATIVE), "avx512_bf16"),
    Machine("x86_vnni", Tools(("gcc",), NATIVE), "avx512_vnni"),
    Machine("x86_vnni", Tools(("clang",), NATIVE), "avx512_vnni"),
)
TO_INT32 = {"OUT": "int32"}
FLOATS = {"T": "float32", "ACC": "float32"}
ROUNDED = {"T": "bfloat16", "ACC": "float32"}


def integers(product: str) -> dict[str, Case]:
    """Products of bytes by an intrinsic."""
    return {
        "whole tiles": ("gemm", {"M": 6, "N": 64, "K": 32}, TO_INT32, product),
        "tails": ("gemm", {"M": 5, "N": 37, "K": 19}, TO_INT32, product),
        "one row": ("gemm", {"M": 1, "N": 9, "K": 64}, TO_INT32, product),
        "vector": ("matvec", {"M": 35, "K": 22}, TO_INT32, product),
        "requantised": ("gemm_requant", {"M": 7, "N": 21, "K": 40}, {}, "store_shifted"),
    }


SINGLES: dict[str, Case] = {
    "floats": ("matmul", {"M": 6, "N": 20, "K": 20}, {}, "fma"),
    "tails of floats": ("gemm", {"M": 5, "N": 19, "K": 7}, FLOATS, "fma"),
    "layer": ("linear_relu", {"M": 3, "K": 13, "N": 22}, {}, "relu"),
}
HALVES: dict[str, Case] = {
    "whole tiles": ("gemm", {"M": 8, "N": 64, "K": 32}, {**ROUNDED, "OUT": "float32"}, "dot"),
    "rounded": ("gemm", {"M": 5, "N": 37, "K": 19}, ROUNDED, "store_rounded"),
    "vector": ("matvec", {"M": 35, "K": 22}, ROUNDED, "dot"),
    "layer": (LAYER, {}, {}, "relu"),
    "layer in one statement": (ROUNDED_LAYER, {}, {}, "relu"),
}
BYTES: dict[str, Case] = {
    name: (workload, sizes, {**types, "a": "uint8"}, intrinsic)
    for name, (workload, sizes, types, intrinsic) in integers("dot").items()
    if name != "vector"
}
CHANNELS: dict[str, Case] = {
    "channels": ("depthwise_conv2d", {"N": 1, "C": 21, "H": 6, "W": 5}, {}, "multiply_add")
}
KERNELS = {
    "arm_neon": integers("dot") | SINGLES,
    "riscv_rvv": integers("multiply") | SINGLES,
    "x86_bf16": HALVES,
    "x86_vnni": BYTES | CHANNELS,
}
"""For each chip: workloads, their sizes and types, and an intrinsic that the kernel must use."""
EVERY = [(chip, case) for chip, cases in KERNELS.items() for case in cases]
RUNS = [(machine, case) for machine in MACHINES for case in KERNELS[machine.chip]]


@cache
def made(chip: str, case: str) -> Kernel:
    workload, sizes, types, _ = KERNELS[chip][case]
    loaded = (
        hwgen.load_workload(workload, sizes, types)
        if isinstance(workload, str)
        else parse_workload(workload)
    )
    return compile_workload(loaded, hwgen.load_hardware(chip), QUICK)


def executed(kernel: Kernel, inputs: dict[str, Array], tools: Tools, folder: Path) -> bytes:
    """The bytes of the first output of the kernel's C."""
    to, (output, *_) = folder / "outputs", kernel.source.outputs
    lines = [
        f"if ({called(kernel.source)[:-1]} != 0) return 2;",
        f'file = fopen("{to}", "wb");',
        f"fwrite(own_{output.name}, 1, sizeof own_{output.name}, file);",
        "fclose(file);",
    ]
    program = built(kernel.source.c, kernel.source, inputs, tools, folder, lines)
    tools.run(program, "1", folder / "inputs")
    return to.read_bytes()


@pytest.mark.parametrize(("chip", "case"), EVERY)
def test_units_compute_it(chip: str, case: str) -> None:
    kernel = made(chip, case)
    assert not kernel.program.codes
    assert KERNELS[chip][case][-1] in {call.intrinsic for call in calls(kernel.program.body)}
    examine(kernel, draw_inputs(kernel.workload, 0), "python")


@pytest.mark.parametrize(("machine", "case"), tiered(RUNS, RUNS[::3]), ids=str)
def test_executed_c_is_equal(machine: Machine, case: str, tmp_path: Path) -> None:
    if machine.missing():
        pytest.skip(f"no {machine.missing()}")
    kernel = made(machine.chip, case)
    styles: tuple[Style, ...] = ("random", "extremes")
    for seed, style in enumerate(styles):
        inputs = draw_inputs(kernel.workload, seed, style)
        ((name, expected),) = run_reference(kernel.workload, inputs).items()
        found = np.empty_like(expected)
        found.data.cast("B")[:] = executed(kernel, inputs, machine.tools, tmp_path)
        outputs = {name: found}
        assert unexplained(kernel.workload, inputs, outputs, {name: expected}) is None
