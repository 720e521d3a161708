"""One workload serves every chip: its data types are set from outside, by name or by tensor."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import hwgen
from hwgen.errors import HwgenError
from hwgen.pipeline import compile_workload
from hwgen.spec.find import shipped_in
from tests.commands import run
from tests.sampling import THOROUGH

FLOATS = {"T": "float32", "ACC": "float32"}
TYPES: dict[str, dict[str, str]] = {
    "apple_amx": FLOATS,
    "arm_neon": {"OUT": "int32"},
    "cpu_generic": FLOATS,
    "cuda_generic": FLOATS,
    "davinci_core": {"T": "float16", "ACC": "float32"},
    "gemmini": {},
    "hexagon_hvx": {"a": "uint8", "OUT": "int32"},
    "npu_shared_buffer": FLOATS,
    "riscv_rvv": {"OUT": "int32"},
    "tpu_v1": {},
    "vta": {},
    "vtcm_two_banks": FLOATS,
    "x86_avx2": FLOATS,
    "x86_avx512": FLOATS,
    "x86_bf16": {"T": "bfloat16", "ACC": "float32"},
    "x86_vnni": {"a": "uint8", "OUT": "int32"},
}
"""What to say for each chip; the files' own types are int8 and int32."""
SIZES = {
    "gemm": {"M": 2, "N": 16, "K": 16},
    "matvec": {"M": 16, "K": 16},
    "relu": {"M": 2, "N": 16},
}


def of(chip: str, workload: str) -> dict[str, str]:
    return {n: d for n, d in TYPES[chip].items() if n == "T" or workload != "relu"}


def test_every_chip_is_here() -> None:
    assert {p.stem for p in shipped_in("hw_specs")} == set(TYPES)


@pytest.mark.parametrize(
    ("chip", "workload"),
    [
        pytest.param(chip, workload, marks=THOROUGH if (c + w) % 3 else ())
        for c, chip in enumerate(TYPES)
        for w, workload in enumerate(SIZES)
    ],
)
def test_a_kernel_for_every_chip(chip: str, workload: str) -> None:
    hardware = hwgen.load_hardware(chip)
    loaded = hwgen.load_workload(workload, SIZES[workload], of(chip, workload))
    assert compile_workload(loaded, hardware).source.c


def test_a_kernel_of_floats_computes_with_floats() -> None:
    kernel = hwgen.build(
        "gemm", "npu_shared_buffer", sizes=SIZES["gemm"], dtypes=FLOATS, engine="python"
    )
    a, b = np.ones((2, 16), np.float32) / 2, np.ones((16, 16), np.float32)
    assert np.array_equal(np.asarray(kernel(a, b)), np.full((2, 16), 8, np.float32))


def test_a_type_may_be_of_one_above_it() -> None:
    named = {"T": "int8", "OUT": "T"}
    tensors = {"x": "T[4]", "y": "OUT[4]"}
    made = hwgen.workload("w", dtypes=named, tensors=tensors, compute=["y[i] = OUT(max(x[i], 0))"])
    assert [t.dtype for t in made.tensors] == ["int8", "int8"]
    assert made.dtypes == (("T", "int8"), ("OUT", "int8"))
    assert made.set_dtypes == ()


@pytest.mark.parametrize(
    ("dtypes", "function"),
    [
        ({"T": "float32", "ACC": "float32"}, "gemm_npu_T_float32_ACC_float32"),
        ({"T": "int8"}, "gemm_npu"),
        ({"a": "uint8"}, "gemm_npu_a_uint8"),
    ],
)
def test_kernels_of_other_types_have_other_names(dtypes: dict[str, str], function: str) -> None:
    from hwgen.codegen.c_names import kernel_name

    hardware = hwgen.load_hardware("npu_shared_buffer")
    loaded = hwgen.load_workload("gemm", None, dtypes)
    assert kernel_name(loaded, hardware) == function.replace("npu", "npu_shared_buffer")


@pytest.mark.parametrize(
    ("given", "code", "says"),
    [
        ("T=flot32", "H228", "did you mean 'float32'?"),
        ("Q=int8", "H005", "allowed: ACC, OUT, T, a, acc, b, c"),
        ("t=int8", "H005", "did you mean T=int8?"),
        ("T", "H004", "for example --dtype T=float16"),
        ("T=int8 --dtype T=int8", "H004", "keep one of the two"),
        ("ACC=int8", "H219", "int32 into int8, with ACC=int8 set from outside"),
        ("acc=float32", "H219", "with acc=float32 set from outside"),
    ],
)
def test_what_cannot_be_set(
    given: str, code: str, says: str, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str], tmp_path: Path,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    ran = run(f"hwgen generate --spec vta --workload gemm --dtype {given}", monkeypatch, capsys)
    assert ran.status == 1
    assert f"error[{code}]" in ran.err
    assert says in ran.err, ran.err


def test_python_says_the_same() -> None:
    with pytest.raises(HwgenError) as caught:
        hwgen.load_workload("relu", dtypes={"q": "int8"})
    assert (caught.value.code, caught.value.diagnostic.allowed) == ("H227", "T, x, y")
    loaded = hwgen.load_workload("relu", dtypes={"T": "int16"})
    with pytest.raises(HwgenError) as caught:
        hwgen.build(loaded, "vta", dtypes={"T": "int8"})
    assert caught.value.code == "H050"


def test_a_failure_of_a_campaign_says_the_types() -> None:
    from hwgen.spec.find import find_spec, find_workload
    from hwgen.verify.campaign import Runner
    from hwgen.verify.strategies import Case

    runner = Runner(find_spec("vta"), find_workload("relu"), dtypes={"T": "int16"})
    assert "--dtype T=int16" in runner.command(Case())
