"""A tensor of any data type, as one of any other: on processors, host cores and units, in the
simulator and in C, with a cast in the workload and without."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

import hwgen
from hwgen.errors import HwgenError
from hwgen.model.compiled import have_compiler
from hwgen.model.numeric import STORAGE, Array, Value, store
from hwgen.passes.kernel import Kernel
from hwgen.pipeline import compile_workload
from hwgen.spec.expression import DTYPES
from hwgen.spec.hardware import HardwareSpec
from hwgen.spec.typecheck import converts, integer_range, is_float
from hwgen.spec.workload import Workload
from hwgen.verify.examine import Engine, examine
from tests.sampling import QUICK, tiered

ENGINES: tuple[Engine, ...] = ("python", "c") if have_compiler() else ("python",)
PROCESSORS = ("cpu_generic", "x86_avx2", "gemmini")
UNITS = ("npu_shared_buffer", "vtcm_two_banks", "x86_avx2", "x86_avx512", "davinci_core", "vta")


def numbers(dtype: str, count: int) -> Array:
    """Numbers of all sizes, the ends of the range among them."""
    if is_float(dtype):
        some = [0.0, 1.0, -2.5, 0.1, 300.7, -70000.0, 3e9, -1e19, 2.0**-20, float("inf"), -0.5]
    else:
        low, high = integer_range(dtype)
        some = [low, low + 1, max(low, -3), 0, 1, 2, 77, high // 2, high - 1, high]
    kind = "float64" if is_float(dtype) else "int64"
    return store(Value(np.resize(np.array(some, STORAGE[kind]), count), kind), dtype)


@pytest.mark.parametrize(
    ("chip", "source"),
    tiered(
        [(chip, source) for chip in PROCESSORS for source in DTYPES],
        [("cpu_generic", s) for s in [*DTYPES][::4]]
        + [("gemmini", s) for s in ("uint32", "bfloat16")],
    ),
)
def test_from_one_type_to_all(chip: str, source: str) -> None:
    cast = {f"c_{t}": f"{t}(a[i])" for t in DTYPES}
    plain = {f"p_{t}": "a[i]" for t in DTYPES if converts(source, t)}
    computed = {f"s_{t}": f"{t}({t}(a[i]) + 1)" for t in DTYPES}
    made = {**cast, **plain, **computed}
    workload = hwgen.workload(
        "converted",
        tensors={"a": f"{source}[33]", **{n: f"{n[2:]}[33]" for n in made}},
        compute=[f"{n}[i] = {value}" for n, value in made.items()],
    )
    kernel = compile_workload(workload, hwgen.load_hardware(chip), QUICK)
    for engine in ENGINES:
        examine(kernel, {"a": numbers(source, 33)}, engine)


SHAPES = {
    "scaled": {"a": (5, 9), "y": (5, 9)},
    "padded": {"a": (5, 9), "p": (7, 11), "y": (7, 11)},
    "product": {"a": (5, 8), "b": (8, 9), "y": (5, 9)},
}


def for_units(name: str, source: str, target: str, cast: str) -> Workload:
    """A workload that reads tensors of one type as the other; `cast`: its text, or nothing."""
    compute = {
        "scaled": [f"y[i, j] = {cast}(a[i, j]) * 2"],
        "padded": [
            "p[i, j] = select(i >= 1 and i < 6 and j >= 2, a[i - 1, j - 2], 1)",
            f"y[i, j] = {cast}(p[i, j]) * 2",
        ],
        "product": [f"y[i, j] += {cast}(a[i, r]) * {cast}(b[r, j])"],
    }[name]
    rows, columns = SHAPES[name]["y"]
    loops = {"i": rows, "j": columns, **({"r": 8} if name == "product" else {})}
    return hwgen.workload(
        name,
        tensors={
            n: f"{target if n == 'y' else source}{list(shape)}" for n, shape in SHAPES[name].items()
        },
        compute=[{"do": text, "loops": loops} for text in compute],
    )


def compiled(
    name: str, source: str, target: str, cast: str, hardware: HardwareSpec
) -> tuple[Workload, Kernel] | str:
    """Such a workload and its kernel, or the code of the refusal."""
    try:
        workload = for_units(name, source, target, cast)
        return workload, compile_workload(workload, hardware, QUICK)
    except HwgenError as error:
        return error.code


def small(dtype: str, shape: tuple[int, ...]) -> Array:
    """Numbers whose products and sums are exact in every type."""
    some = [1, 2, 0, 3, 1] if dtype.startswith("u") else [1, -2, 0, 3, -1]
    return store(Value(np.resize(np.array(some, np.int64), shape), "int64"), dtype)


@pytest.mark.parametrize(
    ("chip", "least"),
    tiered(
        [
            ("npu_shared_buffer", 10), ("vtcm_two_banks", 10), ("x86_avx2", 40),
            ("x86_avx512", 40), ("davinci_core", 60), ("vta", 40),
        ],
        [("npu_shared_buffer", 10)],
    ),
)  # fmt: skip
def test_what_units_load_is_converted(chip: str, least: int) -> None:
    """`least`: kernels that there are; what a chip cannot compute is refused."""
    hardware, ran = hwgen.load_hardware(chip), 0
    sums = {o.dtype for i in hardware.intrinsics for o in i.operands if o.access != "read"}
    for target, source, name, cast in product(sorted(sums), DTYPES, SHAPES, (False, True)):
        made = compiled(name, source, target, target if cast else "", hardware)
        if isinstance(made, str):
            assert made.startswith(("H2", "H3", "H4", "H5")), made
            continue
        workload, kernel = made
        inputs = {t.name: small(t.dtype, t.shape) for t in workload.inputs}
        for engine in ENGINES:
            examine(kernel, inputs, engine)
        ran += 1
    assert ran >= least
