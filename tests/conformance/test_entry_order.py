"""The order in which a chip's file has its entries decides nothing."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import cast

import pytest

from hwgen.pipeline import compile_workload
from hwgen.spec.find import find_workload
from hwgen.spec.load import load_workload, parse_hardware
from hwgen.spec.source import read_document
from tests.sampling import EVERYTHING, QUICK, WHOLE, tiered

CHIPS = Path(__file__).resolve().parents[2] / "hw_specs"
SHUFFLED = ("intrinsics", "memories", "buses")
SEEDS = (1, 2) if EVERYTHING else (1,)

ALL = [
    ("npu_shared_buffer", ("layernorm", "matmul", "mlp", "attention")),
    ("vtcm_two_banks", ("mlp", "attention", "layernorm")),
    ("vta", ("gemm", "relu", "gemm_requant")),
    ("gemmini", ("gemm", "gemm_scaled", "mlp")),
    ("tpu_v1", ("gemm", "mlp")),
    ("davinci_core", ("gemm", "mlp")),
]
PAIRS = [(chip, names if EVERYTHING else names[: len(names) // 2]) for chip, names in ALL]
"""Of each chip at least one: half of them."""


def chip(name: str) -> dict[str, object]:
    return cast("dict[str, object]", read_document(CHIPS / f"{name}.yaml").data)


def shuffled(data: dict[str, object], seed: int) -> dict[str, object]:
    """The same entries in another order."""
    result = dict(data)
    for key in SHUFFLED:
        entries = cast("dict[str, object]", data[key])
        names = sorted(entries)
        Random(seed).shuffle(names)
        result[key] = {n: entries[n] for n in names}
    return result


@pytest.mark.parametrize(
    ("name", "workloads"),
    tiered(PAIRS, [p for p in PAIRS if p[0] not in ("npu_shared_buffer", "gemmini")]),
    ids=lambda x: x if isinstance(x, str) else "",
)
def test_kernels_are_the_same_bytes(name: str, workloads: tuple[str, ...]) -> None:
    data = chip(name)
    for workload in workloads:
        loaded = load_workload(find_workload(workload))
        # The smallest as users get it; of others, candidates are ranked before any is simulated.
        options = WHOLE if workload in ("gemm", "matmul") else QUICK
        made = compile_workload(loaded, parse_hardware(data), options)
        for seed in SEEDS:
            other = shuffled(data, seed)
            assert str(other) != str(data)
            again = compile_workload(loaded, parse_hardware(other), options)
            assert again.source.c == made.source.c, workload
