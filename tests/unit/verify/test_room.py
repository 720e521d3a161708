"""What is too large to be run is refused before it is."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from pathlib import Path

import pytest

from hwgen.errors import HwgenError
from hwgen.pipeline import compile_kernel
from hwgen.spec.load import load_hardware, load_workload
from hwgen.spec.workload import Workload
from hwgen.verify.room import MAX_ELEMENTS, check_images, check_tensors

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
