"""Random chips under small workloads: compiled and right, or refused properly."""

from __future__ import annotations

import copy
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hwgen.errors import HwgenError
from hwgen.pipeline import compile_kernel
from hwgen.polyhedral.phases import split_phases
from hwgen.spec.load import parse_hardware, parse_workload
from tests.property.oracle import SETTINGS, examples, judge, read
from tests.property.random_chips import SHIPPED, Spec, bare, random_chip, workload_for
from tests.property.random_phases import phased_workload, random_vector_chip
from tests.property.random_sync import KINDS, synchronise_otherwise
from tests.property.random_workloads import Pick, random_workload

GEMM: Spec = {
    "name": "gemm",
    "sizes": {"M": 17, "N": 33, "K": 40},
    "tensors": {"a": "int8[M, K]", "b": "int8[N, K]", "s": "int32[M, N]", "y": "int8[M, N]"},
    "compute": ["s[m, n] += a[m, k] * b[n, k]", "y[m, n] = int8(s[m, n])"],
}
ROWS: Spec = {
    "name": "rows",
    "sizes": {"M": 17, "K": 40},
    "tensors": {"a": "int8[M, K]", "s": "int32[M]", "y": "int8[M]"},
    "compute": ["s[m] += max(a[m, k], 0)", "y[m] = int8(s[m])"],
}


def chip() -> Spec:
    return bare(copy.deepcopy(SHIPPED[0]))


@pytest.mark.parametrize("entries", [1, 2, 3, 7])
def test_memories_of_a_few_entries(entries: int) -> None:
    spec = chip()
    for name, memory in spec["memories"].items():
        if memory["kind"] == "scratchpad":
            memory["size"] = entries * {"inp": 16, "wgt": 256, "acc": 64}[name]
    assert judge(parse_workload(GEMM), parse_hardware(spec)) == ""


def test_a_tile_that_does_not_fit_is_named() -> None:
    spec = chip()
    spec["memories"]["acc"]["size"] = 64
    with pytest.raises(HwgenError) as caught:
        compile_kernel(parse_workload(ROWS), parse_hardware(spec))
    assert caught.value.code == "H405"
    text = str(caught.value)
    assert "no tiling fits memory acc" in text
    assert "2 entries, 128 bytes" in text
    assert "s_acc 1" in text
    assert "a_acc 1" in text
    assert "1 entries, 64 bytes" in text


@pytest.mark.parametrize("variants", [1, 2, 99])
@pytest.mark.parametrize("operations", [8, 64])
def test_small_micro_kernel_memories(variants: int, operations: int) -> None:
    spec = chip()
    spec["micro_kernels"]["uop"] |= {
        "max_variants": variants, "capacity_operations": operations, "rewrite_distance": 1
    }  # fmt: skip
    assert judge(parse_workload(GEMM), parse_hardware(spec)) == ""


def test_result_latency_without_micro_kernels() -> None:
    spec = chip()
    del spec["micro_kernels"]
    spec["buses"]["axi"]["priority"].remove("load_uop")
    for intrinsic in spec["intrinsics"].values():
        intrinsic.pop("micro_kernel", None)
    assert judge(parse_workload(ROWS), parse_hardware(spec)) == ""


def test_one_unit_without_synchronisation() -> None:
    spec = chip()
    spec["units"] = {"compute": {}}
    spec["synchronization"] = {"kind": "none"}
    for intrinsic in spec["intrinsics"].values():
        intrinsic["unit"] = "compute"
    assert judge(parse_workload(GEMM), parse_hardware(spec)) == ""


@pytest.mark.parametrize(("size", "code"), [(16, ""), (1, "H614")])
def test_loops_that_run_at_least_twice(size: int, code: str) -> None:
    spec = chip()
    strides = dict.fromkeys(("dst", "src", "wgt"), "0..15")
    spec["intrinsics"]["gemm"]["loops"] = {"n": {"extent": "2..64", "strides": strides}}
    workload = parse_workload(GEMM, {"M": size, "N": 1, "K": 1})
    assert judge(workload, parse_hardware(spec)) == code


def test_most_chips_are_read() -> None:
    """A generator of refused chips would let every other test pass."""
    specs = [random_chip(Random(seed).choice) for seed in range(60)]
    assert sum(read(lambda s=s: parse_hardware(s)) is not None for s in specs) >= 40
    assert len({repr(s) for s in specs}) >= 50
    kinds = [s["synchronization"]["kind"] for s in specs]
    assert all(kinds.count(kind) >= 3 for kind in ("tokens", "barrier", "events", "scoreboard"))


def test_most_vector_chips_and_phased_workloads_are_read() -> None:
    """Most of what is drawn is read, and most of the workloads have several phases."""
    specs = [random_vector_chip(Random(seed).choice) for seed in range(40)]
    assert sum(read(lambda s=s: parse_hardware(s)) is not None for s in specs) >= 30
    workloads = [parse_workload(phased_workload(Random(seed).choice)) for seed in range(40)]
    assert sum(len(split_phases(w)) > 1 for w in workloads) >= 25


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_synchronisation(kind: str) -> None:
    """Some chip of each kind orders a kernel with tiles in two slots."""
    found: set[str] = set()
    for seed in range(4):
        spec = chip()
        synchronise_otherwise(spec, Pick(Random(seed).choice), kind)
        hardware = read(lambda s=spec: parse_hardware(s))
        if hardware is not None:
            found.add(judge(parse_workload(GEMM, {"M": 3, "N": 17}), hardware, seed))
    assert "" in found


@settings(SETTINGS, max_examples=examples(90))
@given(st.randoms(use_true_random=False), st.integers(0, 999), st.sampled_from((0, 0, 0, 1, 2, 5)))
def test_random_chips(random: Random, seed: int, rank: int) -> None:
    spec = random_chip(random.choice)
    hardware = read(lambda: parse_hardware(spec))
    if hardware is None:
        return
    suited = random.random() < 0.7
    drawn = workload_for(spec, random.choice) if suited else random_workload(random.choice)
    workload = read(lambda: parse_workload(drawn))
    if workload is not None:
        judge(workload, hardware, seed, rank)


@settings(SETTINGS, max_examples=examples(40))
@given(st.randoms(use_true_random=False), st.integers(0, 999))
def test_random_phases(random: Random, seed: int) -> None:
    spec = random_vector_chip(random.choice)
    hardware = read(lambda: parse_hardware(spec))
    workload = read(lambda: parse_workload(phased_workload(random.choice)))
    if hardware is not None and workload is not None:
        judge(workload, hardware, seed)
