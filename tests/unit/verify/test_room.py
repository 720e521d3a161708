"""What is too large to be run is refused before it is."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from pathlib import Path

import pytest

import hwgen
from hwgen.errors import HwgenError
from hwgen.model.reference import random_inputs
from hwgen.pipeline import compile_kernel
from hwgen.spec.load import load_hardware, load_workload
from hwgen.spec.workload import Workload
from hwgen.verify.room import MAX_ELEMENTS, check_images, check_room, check_tensors
from tests.conftest import Golden
from tests.sampling import tiered

ROOT = Path(__file__).resolve().parents[3]
GEMM = ROOT / "workloads" / "gemm.yaml"


def gemm(name: str, value: int) -> Workload:
    return load_workload(GEMM, {name: value})


def test_the_size_that_is_named_is_the_largest_that_can_be_run() -> None:
    with pytest.raises(HwgenError) as caught:
        check_tensors(gemm("M", 10**8), gemm)
    assert caught.value.diagnostic.repair == "a smaller size, as --set M=174677"
    for m, fits in ((174677, True), (174678, False)):
        assert (sum(prod(t.shape) for t in gemm("M", m).tensors) <= MAX_ELEMENTS) == fits
    check_tensors(gemm("M", 174677), gemm)


def test_images_count_with_their_padding() -> None:
    compilation = compile_kernel(gemm("M", 16), load_hardware(ROOT / "hw_specs" / "vta.yaml"))
    check_images(compilation.workload, compilation.program.images)
    a, *others = compilation.program.images
    large = replace(a, outer=(MAX_ELEMENTS // 16, 1), lanes=(1, 16))
    check_images(compilation.workload, [large])
    with pytest.raises(HwgenError) as caught:
        check_images(compilation.workload, [large, *others])
    assert caught.value.code == "H792"
    assert f", 134,217,728 of them for {a.tensor}" in caught.value.diagnostic.found


ROOMY = ["cpu_generic", "vta", "cuda_generic", "x86_avx2"]


@pytest.mark.parametrize("chip", tiered(ROOMY, ROOMY[:1]))
@pytest.mark.parametrize(
    "edit",
    [
        "s.split('m', factor=1000000000)",
        "s.split('k', factor=2000000000)",
        "s.split('m', nparts=1000000000)",
        "s.pad('m', 1000000000)",
        "s.pad('k', 4000000)",
    ],
)
def test_tiles_far_larger_than_their_loops(chip: str, edit: str) -> None:
    """They compile; what runs, runs at once, and what would not is refused before it is run."""
    workload = load_workload(GEMM, {"M": 16, "N": 16, "K": 16})
    kernel = hwgen.build(workload, chip, script=edit, engine="python")
    try:
        check_room(workload, kernel.compilation.program)
    except HwgenError:
        with pytest.raises(HwgenError, match="H792"):
            kernel(*random_inputs(workload, 0).values())
    else:
        kernel.check()


def test_too_many_iterations_are_named(golden: Golden) -> None:
    workload = load_workload(GEMM, {"M": 16, "N": 16, "K": 16})
    kernel = hwgen.build(workload, "cpu_generic", script="s.split('m', factor=1000000000)")
    with pytest.raises(HwgenError) as caught:
        kernel.check()
    text = str(caught.value).replace(f"{ROOT}/", "")
    golden(ROOT / "tests" / "error" / "compile" / "iterations.txt", text)
