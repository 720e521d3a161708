"""Chips of other shapes than the first: a systolic array behind a unified buffer, and a core with a
matrix and a vector unit, two levels of buffers and events between pipes. No code knows of them."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hwgen
from hwgen.cli import main
from hwgen.errors import HwgenError
from hwgen.model.columns import off_chip_traffic
from hwgen.model.compiled import compile_model, have_compiler
from hwgen.model.numeric import Array
from hwgen.model.reference import random_inputs, run_reference
from hwgen.passes.kernel import Kernel
from hwgen.pipeline import SearchOptions, compile_workload
from hwgen.spec.hardware import HardwareSpec
from hwgen.spec.workload import Workload
from hwgen.verify.examine import examine
from tests.fuzz.edits import catch
from tests.fuzz.mutations_synchronisation import synchronisation_mutations
from tests.redundancy import check_minimal
from tests.sampling import QUICK, THOROUGH, WHOLE, products, some, tiered
from tests.shim_chips.harness import ORDERS, Shim

ROOT = Path(__file__).parents[2]

needs_compiler = pytest.mark.skipif(not have_compiler(), reason="no C compiler")


@cache
def chip(name: str) -> HardwareSpec:
    return hwgen.load_hardware(ROOT / "hw_specs" / f"{name}.yaml")


# --- workloads in float16: sums in float32, narrowed, then vectors ---


def _half(name: str, sizes: dict[str, str], compute: list[str], constants: str = "") -> Workload:
    tensors: dict[str, str | dict[str, object]] = {}
    for tensor, text in sizes.items():
        constant = tensor in constants.split()
        tensors[tensor] = {"type": text, "constant": True} if constant else text
    return hwgen.workload(name, tensors=tensors, compute=compute)


def gemm_half(m: int, n: int, k: int) -> Workload:
    return _half(
        "gemm_half",
        {
            "x": f"float16[{m}, {k}]",
            "w": f"float16[{k}, {n}]",
            "acc": f"float32[{m}, {n}]",
            "y": f"float16[{m}, {n}]",
        },
        [
            "acc[m, n] += float32(x[m, k]) * float32(w[k, n])",
            "y[m, n] = float16(acc[m, n])",
        ],
        "w",
    )


def linear_half(m: int, n: int, k: int) -> Workload:
    return _half(
        "linear_half",
        {
            "x": f"float16[{m}, {k}]",
            "w": f"float16[{k}, {n}]",
            "b": f"float16[{n}]",
            "acc": f"float32[{m}, {n}]",
            "h": f"float16[{m}, {n}]",
            "y": f"float16[{m}, {n}]",
        },
        [
            "acc[m, n] += float32(x[m, k]) * float32(w[k, n])",
            "h[m, n] = float16(acc[m, n])",
            "y[m, n] = max(h[m, n] + b[n], 0)",
        ],
        "w b",
    )


def mlp_half(m: int, n: int, k: int, hidden: int = 96) -> Workload:
    return _half(
        "mlp_half",
        {
            "x": f"float16[{m}, {k}]",
            "w1": f"float16[{k}, {hidden}]",
            "b1": f"float16[{hidden}]",
            "w2": f"float16[{hidden}, {n}]",
            "b2": f"float16[{n}]",
            "s1": f"float32[{m}, {hidden}]",
            "t1": f"float16[{m}, {hidden}]",
            "h1": f"float16[{m}, {hidden}]",
            "s2": f"float32[{m}, {n}]",
            "t2": f"float16[{m}, {n}]",
            "y": f"float16[{m}, {n}]",
        },
        [
            "s1[m, h] += float32(x[m, k]) * float32(w1[k, h])",
            "t1[m, h] = float16(s1[m, h])",
            "h1[m, h] = max(t1[m, h] + b1[h], 0)",
            "s2[m, n] += float32(h1[m, h]) * float32(w2[h, n])",
            "t2[m, n] = float16(s2[m, n])",
            "y[m, n] = t2[m, n] + b2[n]",
        ],
        "w1 b1 w2 b2",
    )


def add_half(m: int, n: int, _: int) -> Workload:
    return _half(
        "add_half",
        {"a": f"float16[{m}, {n}]", "b": f"float16[{m}, {n}]", "y": f"float16[{m}, {n}]"},
        ["y[m, n] = a[m, n] + b[m, n]"],
    )


def relu_half(m: int, n: int, _: int) -> Workload:
    return _half(
        "relu_half",
        {"x": f"float16[{m}, {n}]", "y": f"float16[{m}, {n}]"},
        ["y[m, n] = max(x[m, n], 0)"],
    )


def scaled_half(m: int, n: int, _: int) -> Workload:
    return _half(
        "scaled_half",
        {"x": f"float16[{m}, {n}]", "g": f"float16[{n}]", "y": f"float16[{m}, {n}]"},
        ["y[m, n] = x[m, n] * g[n] * 0.5 + 0.25"],
        "g",
    )


HALF: dict[str, Callable[[int, int, int], Workload]] = {
    "gemm": gemm_half,
    "linear": linear_half,
    "mlp": mlp_half,
    "add": add_half,
    "relu": relu_half,
    "scaled": scaled_half,
}
BYTES = {"tpu_v1": ("gemm", "gemm_requant", "add", "relu", "matvec")}
EVEN, ODD = (64, 48, 80), [(1, 1, 1), (1, 33, 17), (17, 7, 255), (50, 257, 33)]


@cache
def kernel(
    spec: str, name: str, shape: tuple[int, int, int], options: SearchOptions = QUICK
) -> Kernel:
    if spec == "davinci_core":
        workload = HALF[name](*shape)
    else:
        path = ROOT / "workloads" / f"{name}.yaml"
        sizes = hwgen.load_workload(path).sizes
        given = dict(zip("MNK", shape, strict=True))
        workload = hwgen.load_workload(path, {n: given[n] for n, _ in sizes if n in given})
    return hwgen.compile_kernel(workload, chip(spec), options=options)


def inputs_of(workload: Workload, seed: int = 0) -> dict[str, Array]:
    random = np.random.default_rng(seed)
    if any("float" in t.dtype for t in workload.inputs):
        # Small integers: every sum is exact, whatever its order.
        return {t.name: random.integers(-2, 3, t.shape).astype(t.dtype) for t in workload.inputs}
    return random_inputs(workload, seed)


CASES = [
    *(("davinci_core", name, shape) for name in HALF for shape in (EVEN, *ODD[1:])),
    *(("davinci_core", name, ODD[0]) for name in HALF if name != "mlp"),
    *(("tpu_v1", name, shape) for name in BYTES["tpu_v1"] for shape in (EVEN, *ODD)),
]


def named(cases: list[tuple[str, str, tuple[int, int, int]]]) -> list[Any]:
    """Of three cases in the suite one is tried by `make test`."""
    return [
        pytest.param(*case, id="-".join(map(str, case)), marks=THOROUGH if n % 3 else ())
        for n, case in enumerate(some(cases, 2))
    ]


BOTH = named(CASES)
SHIMMED = named([c for c in CASES if c[2] in (EVEN, ODD[1], ODD[2])])


def equal(outputs: dict[str, Array], workload: Workload, inputs: dict[str, Array]) -> None:
    expected = run_reference(workload, inputs)
    for tensor in workload.outputs:
        np.testing.assert_array_equal(outputs[tensor.name], expected[tensor.name])


@pytest.mark.parametrize(("spec", "name", "shape"), tiered(BOTH, BOTH[::3]))
def test_kernels_are_right_and_minimal(spec: str, name: str, shape: tuple[int, int, int]) -> None:
    c = kernel(spec, name, shape)
    inputs = inputs_of(c.workload)
    examine(c, inputs)
    check_minimal(c.program, c.hardware)
    if have_compiler():
        equal(compile_model(c.source).run(inputs), c.workload, inputs)


@needs_compiler
@pytest.mark.parametrize(("spec", "name", "shape"), tiered(SHIMMED, SHIMMED[::3]))
def test_emitted_c_runs_on_the_chip(
    spec: str, name: str, shape: tuple[int, int, int], tmp_path: Path
) -> None:
    c = kernel(spec, name, shape)
    inputs = inputs_of(c.workload, 1)
    shim = Shim(c.source, tmp_path)
    for order in ORDERS:
        outputs = shim.run(inputs, order)
        assert shim.fault == "", order
        equal(outputs, c.workload, inputs)


@needs_compiler
@pytest.mark.parametrize("spec", ["davinci_core", "tpu_v1"])
def test_the_chip_notices_what_is_missing(spec: str, tmp_path: Path) -> None:
    """Without any one wait there is a race, whatever the order; without a signal, a deadlock."""
    c = kernel(spec, "gemm", (32, 200, 200) if spec == "davinci_core" else (64, 600, 600))
    inputs = inputs_of(c.workload, 1)
    waits, signals = ("wait_flag(", "tpu_wait("), ("set_flag(", "tpu_signal(")
    lines = c.source.c.splitlines()
    places = [n for n, line in enumerate(lines) if line.strip().startswith((*waits, *signals))]
    for calls in (waits, signals):
        assert any(lines[n].strip().startswith(calls) for n in places)
    # One program for all of them: which call is left out is a variable of it.
    for n in places:
        lines[n] = f"if (left_out != {n}) {lines[n].strip()}"
    text = "\n".join(["int left_out = -1;", *lines]) + "\n"
    shim = Shim(replace(c.source, c=text), tmp_path)
    left_out = ctypes.c_int.in_dll(shim.library, "left_out")
    shim.run(inputs)
    assert not shim.fault
    for n in places:
        left_out.value = n
        for order in (0, 1, 3):
            shim.run(inputs, order)
            assert shim.fault, (lines[n], order)


@pytest.mark.parametrize("spec", ["davinci_core", "tpu_v1"])
def test_every_mutant_of_the_synchronisation_is_caught(spec: str) -> None:
    c = kernel(spec, "gemm", (32, 200, 200) if spec == "davinci_core" else (64, 600, 600))
    inputs = inputs_of(c.workload)
    caught = 0
    for mutation in synchronisation_mutations(c.hardware):
        mutant = mutation.mutate(c.program, 0)
        if mutant is not None:
            assert catch(mutant, c.hardware, c.workload, inputs) in mutation.caught_by, mutation
            caught += 1
    assert caught


def test_operands_travel_through_both_levels() -> None:
    """From global memory to L1 and to an L0 of its own; sums come back by the vector unit."""
    c = kernel("davinci_core", "linear", (512, 512, 512))
    memories = {(b.tensor, b.memory) for b in c.program.buffers}
    assert {m for t, m in memories if t == "x"} == {"l1", "l0a"}
    assert {m for t, m in memories if t == "w"} == {"l1", "l0b"}
    assert {m for t, m in memories if t == "b"} == {"ub_rows"}
    moved = {
        t.tensor: t.loaded + t.stored for t in off_chip_traffic(c.program, c.hardware, c.workload)
    }
    # The output leaves once, the bias comes once; one operand comes again for every tile.
    assert moved["y"] == 512 * 512 * 2
    assert moved["b"] == 512 * 2
    assert moved["x"] + moved["w"] <= 4 * 512 * 512 * 2


def test_lanes_past_the_end_of_a_layer_are_refused_between_layers() -> None:
    """A number times what is not known to be finite is not known to be zero."""
    with pytest.raises(HwgenError, match="H302"):
        hwgen.compile_kernel(mlp_half(17, 7, 33, 50), chip("davinci_core"), options=QUICK)


def test_what_is_between_two_layers_stays_on_the_core() -> None:
    c = kernel("davinci_core", "mlp", EVEN)
    assert {i.tensor for i in c.program.images} == {"x", "w1", "b1", "w2", "b2", "y"}
    assert {b.memory for b in c.program.buffers if b.tensor == "h1"} >= {"ub", "l1"}


def test_weights_come_from_a_memory_of_their_own() -> None:
    """On a bus of its own: what is not constant cannot be put there."""
    c = kernel("tpu_v1", "gemm", (256, 512, 512))
    buses = {
        image.tensor: next(
            chip("tpu_v1").memory[o.memory].bus
            for i in chip("tpu_v1").intrinsics
            for o in i.operands
            if i.name == ("read_weights" if image.tensor == "b" else "read_host_memory")
            and chip("tpu_v1").memory[o.memory].kind == "offchip"
        )
        for image in c.program.images
        if image.role == "input"
    }
    assert buses == {"a": "pcie", "b": "ddr3"}
    variable = hwgen.workload(
        "gemm",
        tensors={
            "a": "int8[16, 32]", "b": "int8[16, 32]", "acc": "int32[16, 16]", "c": "int8[16, 16]",
        },
        compute=["acc[m, n] += a[m, k] * b[n, k]", "c[m, n] = int8(acc[m, n])"],
    )  # fmt: skip
    with pytest.raises(HwgenError, match="H301"):
        hwgen.compile_kernel(variable, chip("tpu_v1"), options=QUICK)


BIG = [
    # The cube is busy for 262,144 cycles of it; the rest fills and drains the pipes.
    pytest.param("davinci_core", "gemm", (1024, 1024, 1024), 1.08, marks=THOROUGH),
    # The host's bus carries 4 MiB at 21 bytes per cycle, one way at a time.
    ("tpu_v1", "gemm", (2048, 1024, 1024), 1.08),
]


@THOROUGH
@pytest.mark.parametrize(("spec", "name", "shape", "most"), BIG, ids=str)
def test_big_gemms_are_near_the_bound(
    spec: str, name: str, shape: tuple[int, int, int], most: float
) -> None:
    c = kernel(spec, name, shape, WHOLE)
    found = examine(c, inputs_of(c.workload))
    assert 1 <= found.timing.cycles / found.bound.cycles <= most
    moved = {
        t.tensor: t.loaded + t.stored for t in off_chip_traffic(c.program, c.hardware, c.workload)
    }
    m, n, _ = shape
    assert moved[c.workload.outputs[0].name] == m * n * (2 if spec == "davinci_core" else 1)


def lateness(c: Kernel, stage: str) -> int:
    """By how many iterations of any loops a stage runs later than its own."""
    block = c.schedule.state.site[stage].block
    return block.lag or sum(later for _, later in block.shifts)


def test_a_unit_that_loads_and_stores_loads_a_tile_ahead() -> None:
    """Behind the store of a tile the next load would wait for all of that tile's work."""
    c = kernel("tpu_v1", "gemm", (2048, 1024, 1024), WHOLE)
    assert lateness(c, "a_ub") == -1
    assert lateness(c, "c") == 0


def test_results_of_several_tiles_are_stored_together() -> None:
    """A row of the result is in several tiles: stored with them, it would be cut in as many
    transfers."""
    c = kernel("tpu_v1", "gemm", (2048, 1024, 1024), WHOLE)
    assert [x.loop for x in c.tiling.loops] == ["m", "n", "k"]
    assert [x.extent for x in c.schedule.state.site["c"].loops][1:] == [1024, 4, 256]
    (stored,) = (b for b in c.program.buffers if b.tensor == "c")
    assert stored.entries == 2 * 1024 * 4


def test_what_is_loaded_outside_of_other_loads_comes_in_parts_between_them() -> None:
    """At once it would keep them waiting: each load inside has a part of the next outer tile."""
    c = kernel("davinci_core", "gemm", (1024, 1024, 1024), WHOLE)
    outer, inner = (x.count for x in c.tiling.loops[:2])
    (stage,) = (n for n in c.schedule.state.stage if n.endswith("_l1") and lateness(c, n) == -1)
    assert [x.extent for x in c.schedule.state.site[stage].loops[:2]] == [outer, inner]


def mlp_bytes(m: int, n: int, k: int, hidden: int) -> Workload:
    return hwgen.workload(
        "mlp_bytes",
        tensors={
            "x": f"int8[{m}, {k}]",
            "w1": {"type": f"int8[{hidden}, {k}]", "constant": True},
            "w2": {"type": f"int8[{n}, {hidden}]", "constant": True},
            "s1": f"int32[{m}, {hidden}]",
            "t1": f"int8[{m}, {hidden}]",
            "h1": f"int8[{m}, {hidden}]",
            "s2": f"int32[{m}, {n}]",
            "y": f"int8[{m}, {n}]",
        },
        compute=[
            "s1[m, h] += x[m, k] * w1[h, k]",
            "t1[m, h] = int8(min(max(s1[m, h] >> 2, -128), 127))",
            "h1[m, h] = max(t1[m, h], 0)",
            "s2[m, n] += h1[m, h] * w2[n, h]",
            "y[m, n] = int8(min(max(s2[m, n] >> 3, -128), 127))",
        ],
    )


@pytest.mark.parametrize(
    ("spec", "hidden"),
    tiered(products(("davinci_core", "tpu_v1"), (24, 50)), [("davinci_core", 50), ("tpu_v1", 24)]),
)
def test_layers_whose_width_is_no_multiple_of_the_lanes_compile(spec: str, hidden: int) -> None:
    """Bytes past the end are multiplied by zeros; of floats the processor beside the units takes
    the second sum, as they might be infinite."""
    made = {"davinci_core": mlp_half, "tpu_v1": mlp_bytes}[spec](17, 7, 33, hidden)
    c = compile_workload(made, chip(spec), QUICK)
    assert bool(c.program.codes) == (spec == "davinci_core")
    examine(c, inputs_of(made))


@needs_compiler
def test_float16_rounds_alike_everywhere(tmp_path: Path) -> None:
    """Sums of any two numbers, subnormal and infinite ones too: NumPy, C model, and the chip."""
    c = kernel("davinci_core", "add", (64, 48, 80))
    random = np.random.default_rng(5)
    for seed in range(4):
        inputs: dict[str, Array] = {}
        for tensor in c.workload.inputs:
            drawn = random.integers(0, 1 << 16, tensor.shape, dtype=np.uint16)
            numbers: Array = np.ndarray(tensor.shape, np.float16, drawn.tobytes())
            inputs[tensor.name] = np.where(np.isnan(numbers), np.float16(seed), numbers)
        with np.errstate(invalid="ignore", over="ignore"):
            equal(compile_model(c.source).run(inputs), c.workload, inputs)
            equal(Shim(c.source, tmp_path).run(inputs), c.workload, inputs)


@THOROUGH
def test_the_workload_that_the_documentation_shows_has_the_cycles_that_it_quotes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (ROOT / "docs" / "chips.md").read_text(encoding="utf-8")
    snippet = page.split("```yaml\n")[1].split("```")[0]
    file = tmp_path / "gemm_half.yaml"
    file.write_text(snippet, encoding="utf-8")
    spec = ["--spec", str(ROOT / "hw_specs" / "davinci_core.yaml"), "--workload", str(file)]
    assert main(["generate", *spec]) == 0
    shown = re.findall(r"\n  ([\d,]+), lower bound ([\d,]+) ", capsys.readouterr().out)
    quoted = re.findall(r"\n\| `davinci_core`, 1024 .* \| ([\d,]+) \| ([\d,]+) \|", page)
    assert shown == quoted
    # A layer on top, as the page says, at sizes that fill no fractal.
    layer = snippet.replace("  c: float16", "  h: float16[M, N]\n  bias: float16[N]\n  c: float16")
    narrowed, rest = re.findall(r"`(h\[m, n\] = [^`]*)`, then `([^`]*)`", page)[0]
    layer = layer.replace("c[m, n] = float16(acc[m, n])", f"{narrowed}\n  - {rest}")
    assert layer.count("  - ") == 3
    file.write_text(layer, encoding="utf-8")
    sizes = ["--set", "M=33", "--set", "N=17", "--set", "K=50"]
    assert main(["simulate", *spec, *sizes]) == 0
    assert "equal to the reference" in capsys.readouterr().out
