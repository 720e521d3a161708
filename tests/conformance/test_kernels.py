"""Every shipped workload on every chip, through each independent judge.

The judges: the simulator with all its checks, the race detector, the C model compiled and run, the
emitted C through the shim of the vendor's runtime, and an independent model of the timing rules.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest

import hwgen
from hwgen.model.bound import lower_bound
from hwgen.model.compiled import compile_model, have_compiler
from hwgen.model.reference import random_inputs, run_reference
from hwgen.passes.kernel import Kernel
from hwgen.spec.hardware import HardwareSpec
from hwgen.verify.examine import examine
from tests.conformance.test_emitted_c import modelled_cycles, run_through_shim
from tests.conformance.test_scripts import again_the_same
from tests.redundancy import redundant
from tests.samples import PAIRS, SMALLER
from tests.sampling import EVERYTHING, QUICK, THOROUGH, products, some, tiered

ROOT = Path(__file__).parents[2]

# H, W, Cin, Cout, K, pad, stride: ResNet-18 at batch 1.
RESNET18 = [
    (56, 56, 64, 64, 3, 1, 1),
    (56, 56, 64, 128, 3, 1, 2),
    (56, 56, 64, 128, 1, 0, 2),
    (28, 28, 128, 128, 3, 1, 1),
    (28, 28, 128, 256, 3, 1, 2),
    (28, 28, 128, 256, 1, 0, 2),
    (14, 14, 256, 256, 3, 1, 1),
    (14, 14, 256, 512, 3, 1, 2),
    (14, 14, 256, 512, 1, 0, 2),
    (7, 7, 512, 512, 3, 1, 1),
]
LAYERS = RESNET18 if EVERYTHING else [RESNET18[n] for n in (0, 4, 5, 9)]
"""Else one of each stride and size of its kernel, of the first and last stages too."""
ODD = (1, 7, 17, 255, 257)
SOME = ("compute_first", "load_first", "random:1")
VTA = ROOT / "hw_specs" / "vta.yaml"
WORKLOADS = [path.stem for spec, path in PAIRS if spec == VTA]

FEW = [
    (spec, path)
    for spec, path in PAIRS
    if (spec.stem, path.stem)
    in {
        ("gemmini", "conv2d_scaled"),
        ("gemmini", "gemm_scaled"),
        ("npu_shared_buffer", "linear_relu"),
        ("tpu_v1", "add"),
        ("tpu_v1", "conv2d"),
        ("tpu_v1", "depthwise_conv2d"),
        ("tpu_v1", "gemm"),
        ("tpu_v1", "matvec"),
        ("tpu_v1", "relu"),
        ("vta", "conv2d_requant"),
        ("vta", "gemm_requant"),
        ("vtcm_two_banks", "attention"),
        ("vtcm_two_banks", "layernorm"),
        ("vtcm_two_banks", "mlp"),
        ("x86_avx2", "matmul"),
        ("x86_avx512", "matmul"),
    }
]
"""Each chip, and each workload on one of them."""

needs_compiler = pytest.mark.skipif(not have_compiler(), reason="no C compiler")


@cache
def chip(batch: int = 1) -> HardwareSpec:
    return hwgen.load_hardware(VTA, {"BATCH": batch})


_SEARCHED: dict[tuple[Path, Path, tuple[tuple[str, int], ...]], Kernel] = {}


def searched(spec: Path, path: Path, sizes: dict[str, int]) -> Kernel:
    """By the whole search; once for the same sizes, whether they are given or the file's own."""
    workload = hwgen.load_workload(path, sizes)
    key = spec, path, workload.sizes
    if key not in _SEARCHED:
        _SEARCHED[key] = hwgen.compile_kernel(workload, hwgen.load_hardware(spec))
    return _SEARCHED[key]


def as_written(path: Path, spec: Path) -> Kernel:
    return searched(spec, path, SMALLER.get((spec.stem, path.stem), {}))


def kernel(name: str, sizes: tuple[tuple[str, int], ...]) -> Kernel:
    return searched(VTA, ROOT / "workloads" / f"{name}.yaml", dict(sizes))


@cache
def quickly(name: str, sizes: tuple[tuple[str, int], ...] = (), batch: int = 1) -> Kernel:
    workload = hwgen.load_workload(ROOT / "workloads" / f"{name}.yaml", dict(sizes))
    return hwgen.compile_kernel(workload, chip(batch), options=QUICK)


def sizes_of(shape: tuple[int, ...]) -> tuple[tuple[str, int], ...]:
    return tuple(zip(("H", "W", "C", "O", "R", "P", "S"), shape, strict=True))


def judged(compiled: Kernel, seed: int = 0) -> float:
    """Modelled cycles over the lower bound, after every check has passed."""
    found = examine(compiled, random_inputs(compiled.workload, seed))
    return found.timing.cycles / found.bound.cycles


def through_c(compiled: Kernel, seed: int, batch: int = 1) -> None:
    inputs = random_inputs(compiled.workload, seed)
    expected = run_reference(compiled.workload, inputs)
    runs = [compile_model(compiled.source).run(inputs)]
    configuration = {"BATCH": batch} if batch > 1 else None
    runs += run_through_shim(compiled.source, inputs, SOME, configuration=configuration)
    for outputs in runs:
        for tensor in compiled.workload.outputs:
            np.testing.assert_array_equal(outputs[tensor.name], expected[tensor.name])


@pytest.mark.parametrize(("spec", "path"), tiered(PAIRS, FEW), ids=lambda p: p.stem)
def test_every_workload_on_every_chip(path: Path, spec: Path) -> None:
    assert judged(as_written(path, spec)) >= 1


@pytest.mark.parametrize(
    ("spec", "path"),
    tiered(some(PAIRS, 2), [p for p in some(PAIRS, 2) if p in FEW]),
    ids=lambda p: p.stem,
)
def test_a_script_replays_to_the_same_bytes(path: Path, spec: Path) -> None:
    again_the_same(as_written(path, spec))


@needs_compiler
@pytest.mark.parametrize("name", tiered(WORKLOADS, [p.stem for spec, p in FEW if spec == VTA]))
def test_emitted_c_of_every_workload(name: str) -> None:
    through_c(as_written(ROOT / "workloads" / f"{name}.yaml", VTA), seed=1)


@needs_compiler
@pytest.mark.parametrize(
    ("name", "batch"),
    products(("gemm_requant", "conv2d_requant", "add"), (2, 4))
    if EVERYTHING
    else tiered(
        [("gemm_requant", 2), ("conv2d_requant", 2), ("add", 4)],
        [("conv2d_requant", 2), ("add", 4)],
    ),
)
def test_emitted_c_of_other_configurations(name: str, batch: int) -> None:
    compiled = quickly(name, batch=batch)
    assert judged(compiled) >= 1
    through_c(compiled, seed=2, batch=batch)


layers = pytest.mark.parametrize(
    "shape", tiered(LAYERS, [RESNET18[0], RESNET18[5]], values=True), ids=str
)


@layers
def test_resnet_convolutions_are_close_to_the_bound(shape: tuple[int, ...]) -> None:
    ratio = judged(kernel("conv2d_requant", sizes_of(shape)))
    # A 1x1 convolution is over soon: filling and draining the pipeline shows.
    assert ratio <= (1.10 if shape[4] == 3 else 1.30)


@needs_compiler
@layers
def test_resnet_convolutions_through_emitted_c(shape: tuple[int, ...]) -> None:
    through_c(kernel("conv2d_requant", sizes_of(shape)), seed=3)


CUBE = (("M", 256), ("N", 256), ("K", 256))


@pytest.mark.parametrize(
    ("name", "sizes", "most"),
    [
        ("gemm", (), 9_046),
        ("gemm", CUBE, 76_595),
        pytest.param("gemm_requant", CUBE, 95_000, marks=THOROUGH),
    ],
)
def test_gemms_are_close_to_the_bound(
    name: str, sizes: tuple[tuple[str, int], ...], most: int
) -> None:
    compiled = kernel(name, sizes)
    assert judged(compiled) <= 1.10
    assert compiled.cycles <= most


TIMED = [
    ("gemm", ()),
    ("gemm", CUBE),
    ("gemm_requant", CUBE),
    ("add", ()),
    ("relu", ()),
    ("conv2d_requant", sizes_of(RESNET18[0])),
    ("conv2d_requant", sizes_of(RESNET18[5])),
    ("conv2d_requant", sizes_of(RESNET18[9])),
]
QUICKLY_TIMED = TIMED[1], TIMED[6]
LATENCIES = (20, 100, 1, 200)


@needs_compiler
@pytest.mark.parametrize(
    ("name", "sizes", "latency"),
    [
        pytest.param(*timed, latency, marks=() if timed in QUICKLY_TIMED else THOROUGH)
        for n, timed in enumerate(TIMED)
        for latency in (LATENCIES if EVERYTHING else (LATENCIES[n % 4],))
    ],
)
def test_cycles_agree_with_an_independent_timing_model(
    name: str, sizes: tuple[tuple[str, int], ...], latency: int
) -> None:
    hardware = hwgen.load_hardware(VTA, {"READ_LATENCY": latency, "WRITE_LATENCY": latency})
    workload = hwgen.load_workload(ROOT / "workloads" / f"{name}.yaml", dict(sizes))
    compiled = hwgen.compile_kernel(workload, hardware, options=QUICK)
    measured = modelled_cycles(compiled.source, random_inputs(workload, 0), latency, latency)
    assert compiled.cycles == measured


ODD_CUBES = some(products(ODD, ODD, ODD), 2)


@pytest.mark.parametrize("sizes", tiered(ODD_CUBES, ODD_CUBES[::4], values=True), ids=str)
def test_odd_gemms(sizes: tuple[int, int, int]) -> None:
    judged(quickly("gemm_requant", tuple(zip("MNK", sizes, strict=True))))


ELEMENTWISE = products(("add", "relu", "matvec"), ODD, ODD)


@pytest.mark.parametrize(("name", "rows", "columns"), tiered(ELEMENTWISE, ELEMENTWISE[::6]))
def test_odd_elementwise(name: str, rows: int, columns: int) -> None:
    judged(quickly(name, (("M", rows), ("K" if name == "matvec" else "N", columns))))


ODD_WINDOWS = some(
    products(((7, 17, 17, 7, 3), (17, 7, 7, 33, 3), (17, 17, 1, 17, 1)), (1, 2), (0, 1, 2, 3)), 2
)


@pytest.mark.parametrize(("shape", "stride", "pad"), tiered(ODD_WINDOWS, ODD_WINDOWS[1:4]))
def test_odd_convolutions(shape: tuple[int, int, int, int, int], stride: int, pad: int) -> None:
    judged(quickly("conv2d_requant", sizes_of((*shape, pad, stride))))


# H, W, Cin, Cout, K, pad, stride: each dimension at its odd sizes.
LONG = [
    (255, 7, 17, 1, 3, 1, 1),
    (257, 1, 7, 17, 1, 0, 2),
    (1, 257, 1, 7, 3, 3, 2),
    (7, 255, 7, 1, 1, 2, 1),
    (7, 7, 255, 17, 3, 1, 1),
    (7, 1, 257, 7, 3, 2, 2),
    (1, 7, 17, 255, 1, 0, 1),
    (17, 7, 7, 257, 3, 1, 2),
    (7, 7, 3, 5, 7, 3, 1),
    (255, 257, 1, 1, 3, 0, 1),
]


@pytest.mark.parametrize("shape", tiered(some(LONG, 2), some(LONG, 2)[1:3], values=True), ids=str)
def test_long_convolutions(shape: tuple[int, ...]) -> None:
    judged(quickly("conv2d_requant", sizes_of(shape)))


@needs_compiler
@pytest.mark.parametrize("sizes", [(7, 255, 1), pytest.param((257, 17, 255), marks=THOROUGH)])
def test_odd_gemms_through_emitted_c(sizes: tuple[int, int, int]) -> None:
    through_c(quickly("gemm_requant", tuple(zip("MNK", sizes, strict=True))), seed=4)


@needs_compiler
@pytest.mark.parametrize(
    "shape", [(7, 17, 17, 7, 3, 2, 2), pytest.param((17, 7, 33, 17, 3, 3, 1), marks=THOROUGH)]
)
def test_odd_convolutions_through_emitted_c(shape: tuple[int, ...]) -> None:
    through_c(quickly("conv2d_requant", sizes_of(shape)), seed=5)


@pytest.mark.parametrize(
    ("name", "sizes"), [("gemm_requant", CUBE), ("conv2d_requant", ()), ("add", ()), ("gemm", ())]
)
def test_no_token_is_left_over_or_redundant(name: str, sizes: tuple[tuple[str, int], ...]) -> None:
    compiled = quickly(name, sizes)
    assert redundant(compiled.program, compiled.hardware) == ()


@pytest.mark.parametrize("name", ["gemm_requant", "conv2d_requant"])
def test_intermediates_stay_on_chip(name: str) -> None:
    compiled = quickly(name)
    kept = {t.name for t in compiled.workload.tensors if t.role == "intermediate"}
    assert kept.isdisjoint(i.tensor for i in compiled.program.images)


def test_bound_counts_what_cannot_be_avoided() -> None:
    compiled = quickly("gemm_requant", CUBE)
    bound = lower_bound(compiled.program, compiled.hardware)
    entries = 256 * 16
    # 16 products an entry; reset, bias (two operands: twice), shift, max and min once each.
    assert bound.cycles >= entries * (16 + 1 + 2 + 3)
