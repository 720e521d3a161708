"""Float32 on a unit of outer products: the C that is emitted, executed by an emulation of the
instructions (`tests/apple_amx/aarch64.h`) that shares nothing with the chip's file."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path

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
from hwgen.verify.compare import unexplained
from hwgen.verify.data import Style, draw_inputs
from hwgen.verify.examine import examine
from tests.sampling import tiered

HEADERS = Path(__file__).resolve().parents[1] / "apple_amx"
COMPILER = next(filter(shutil.which, ("gcc", "clang")), "")
FLAGS = ("-std=c11", "-O2", "-ffp-contract=off", f"-I{HEADERS}")
CHECKED = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all")
NAMES = ("LDX", "LDY", "LDZ", "STY", "STZ", "EXTRY", "FMA32", "VECFP")
SIDE = 16
MOST = 1.05
"""Products over those that a kernel needs at least."""
PRODUCTS = [(64, 17, 33), (100, 100, 100), (16, 16, 8), (1, 40, 70), (48, 96, 64), (512, 512, 512)]
"""M, N and K."""
LAYERS = [(20, 48, 64), (3, 13, 22)]
"""M, K and N."""
STYLES: tuple[Style, ...] = ("random", "extremes")

pytestmark = pytest.mark.skipif(not COMPILER, reason="neither gcc nor clang")


@cache
def made(name: str, sizes: tuple[tuple[str, int], ...]) -> Kernel:
    return compile_workload(
        hwgen.load_workload(name, dict(sizes)), hwgen.load_hardware("apple_amx")
    )


def product(m: int, n: int, k: int) -> Kernel:
    return made("matmul", (("M", m), ("N", n), ("K", k)))


def layer(m: int, k: int, n: int) -> Kernel:
    return made("linear_relu", (("M", m), ("K", k), ("N", n)))


def executed(
    kernel: Kernel, inputs: Mapping[str, Array], folder: Path, *checks: str
) -> tuple[Array, dict[str, int]]:
    """The output, and how often each instruction was executed; nothing past a tensor is touched."""
    output = kernel.source.outputs[0]
    lines = [
        f"if ({called(kernel.source)[:-1]} != 0) return 2;",
        f'file = fopen("{folder / "output"}", "wb");',
        f"fwrite(own_{output.name}, 1, sizeof own_{output.name}, file);",
        "fclose(file);",
        'for (int n = 0; n < EMU_KINDS; ++n) printf("%c%llu", n ? 44 : 91, '
        "(unsigned long long)emu.executed[n]);",
        'printf("]");',
    ]
    tools = Tools((COMPILER,), (*FLAGS, *checks))
    program = built(kernel.source.c, kernel.source, dict(inputs), tools, folder, lines)
    counts = json.loads(tools.run(program, "1", folder / "inputs"))
    found: Array = np.empty(output.shape, np.float32)
    found.data.cast("B")[:] = (folder / "output").read_bytes()
    return found, dict(zip(NAMES, counts, strict=True))


@cache
def checks() -> tuple[str, ...]:
    """The sanitizers' flags, where there is their library."""
    kernel = product(16, 16, 8)
    with tempfile.TemporaryDirectory() as folder:
        try:
            executed(kernel, draw_inputs(kernel.workload, 0), Path(folder), *CHECKED)
        except hwgen.HwgenError:
            return ()
    return CHECKED


def whole(*shapes: tuple[int, ...]) -> list[np.ndarray]:
    """Small whole numbers: their products and sums are exact, in any order."""
    draw = np.random.default_rng(0)
    return [draw.integers(-4, 5, shape).astype(np.float32) for shape in shapes]


def ideal(m: int, n: int, k: int) -> int:
    return -(-m // SIDE) * -(-n // SIDE) * k


@pytest.mark.parametrize("sizes", tiered(PRODUCTS, PRODUCTS[:5], values=True), ids=str)
def test_a_product_takes_no_more_than_it_needs(sizes: tuple[int, int, int], tmp_path: Path) -> None:
    m, n, k = sizes
    kernel = product(m, n, k)
    a, b = whole((m, k), (k, n))
    found, counts = executed(kernel, {"a": a, "b": b}, tmp_path)
    assert np.array_equal(found, a @ b)
    assert counts["FMA32"] <= MOST * ideal(m, n, k)


@pytest.mark.parametrize("sizes", PRODUCTS[:5], ids=str)
def test_tensors_stay_where_they_are(sizes: tuple[int, int, int]) -> None:
    """No image is packed, padded or allocated, for tails neither."""
    kernel = product(*sizes)
    assert not kernel.program.codes
    assert "malloc(" not in kernel.source.c


def test_the_search_counts_cycles_and_not_products(tmp_path: Path) -> None:
    """What `docs/chips.md` says of two sizes that are not as the others."""
    kernel = product(48, 31, 2)
    _, counts = executed(kernel, draw_inputs(kernel.workload, 0), tmp_path)
    assert counts["FMA32"] == 4 * ideal(48, 31, 2)
    images = product(50, 31, 31).program.images
    assert sum(not image.in_place for image in images) == 2


@pytest.mark.parametrize("sizes", PRODUCTS[:2], ids=str)
def test_sums_are_in_the_order_of_the_reference(
    sizes: tuple[int, int, int], tmp_path: Path
) -> None:
    """Bit by bit, if each product is added without being rounded first."""
    kernel = product(*sizes)
    inputs = draw_inputs(kernel.workload, 1)
    found, _ = executed(kernel, inputs, tmp_path, *checks())
    expected = np.zeros(found.shape, np.float64)
    for k in range(sizes[2]):
        exact = inputs["a"][:, k : k + 1].astype(np.float64) * inputs["b"][k]
        expected = (expected + exact).astype(np.float32).astype(np.float64)
    assert np.array_equal(found, expected.astype(np.float32))


@pytest.mark.parametrize("sizes", LAYERS, ids=str)
def test_bias_and_relu_are_the_unit_s(sizes: tuple[int, int, int], tmp_path: Path) -> None:
    kernel = layer(*sizes)
    assert not kernel.program.codes
    assert {"outer", "add", "relu", "store"} <= {c.intrinsic for c in calls(kernel.program.body)}
    for seed, style in enumerate(STYLES):
        inputs = draw_inputs(kernel.workload, seed, style)
        examine(kernel, inputs)
        ((name, expected),) = run_reference(kernel.workload, inputs).items()
        found, counts = executed(kernel, inputs, tmp_path, *checks())
        assert unexplained(kernel.workload, inputs, {name: found}, {name: expected}) is None
        assert counts["VECFP"] >= sizes[0]


def test_a_product_is_examined() -> None:
    kernel = product(*PRODUCTS[0])
    for seed, style in enumerate(STYLES):
        examine(kernel, draw_inputs(kernel.workload, seed, style))
