"""Quantised layers are TFLite Micro's, bit for bit: as NumPy reference and as compiled C.

`tests/tflm.py` says each kernel anew, element by element. Inputs have the ends of int8, multipliers
and shifts their ends; each layer's inputs must notice every wrong way of rounding.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from hwgen.model.compiled import CompiledKernel, have_compiler
from hwgen.model.native import compile_portable
from hwgen.model.reference import run_reference
from hwgen.passes.nest_pipeline import compile_nest
from hwgen.spec.load import load_hardware, load_workload
from hwgen.spec.workload import Workload
from hwgen.verify.data import STYLES, draw_inputs
from tests import tflm
from tests.samples import ROOT
from tests.sampling import tiered

Array = npt.NDArray[Any]
FOLDER = ROOT / "workloads" / "quantised"
HALF, MOST = 1 << 30, (1 << 31) - 1
SCALES = (
    (HALF, 0), (MOST, 0), (HALF, -1), (1518500250, -3), (HALF + 1, -7), (MOST, -7), (HALF, 2),
    (1, 0), (0, 0), (MOST, -31), (HALF, -31), (HALF, -30),
)  # fmt: skip
"""Multipliers and shifts: the ends of both, and those of layers."""

Sizes = tuple[tuple[str, int], ...]
Given = tuple[dict[str, Array], dict[str, Array]]
"""A workload's inputs, and the outputs that the scalar kernels give."""


@cache
def workload(name: str, sizes: Sizes) -> Workload:
    return load_workload(FOLDER / f"{name}.yaml", dict(sizes))


@cache
def native(name: str, sizes: Sizes) -> CompiledKernel:
    hardware = load_hardware(ROOT / "hw_specs" / "cpu_generic.yaml")
    searched = name != "fully_connected_chain"  # Ten layers are searched for seconds.
    made = compile_nest(workload(name, sizes), hardware, auto=searched)
    return compile_portable(made.source, hardware)


def int8s(rng: np.random.Generator, *shape: int) -> Array:
    """The whole range, with many of its ends."""
    values = rng.integers(-128, 128, shape)
    ends = rng.choice(np.array([-128, -127, 0, 127]), shape)
    return np.where(rng.random(shape) < 0.3, ends, values).astype(np.int8)


def layer_constants(
    rng: np.random.Generator, shape: tuple[int, ...], scales: tuple[tuple[int, int], ...]
) -> tuple[Array, Array]:
    """Weights, channels first, and biases that leave most outputs inside of int8."""
    channels, depth = shape[0], int(np.prod(shape[1:]))
    w, bias = np.zeros((channels, depth), np.int8), np.zeros(channels, np.int32)
    for o, (multiplier, shift) in enumerate(scales):
        scale = multiplier / 2**31 * 2.0**shift
        if scale * depth * 127 * 255 < 128:  # Only the largest biases are more than 0 then.
            w[o] = rng.integers(-127, 128, depth)
            ends = (HALF - 1, HALF, HALF + 1, MOST - depth * 32385)
            bias[o] = rng.choice([-1, 1]) * rng.choice(ends)
            continue
        most = min(127.0, 100 / (scale * 85 * depth**0.5))
        some = rng.random(depth) < min(1.0, most)
        bound = max(1, round(most))
        w[o] = np.where(some, rng.integers(-bound, bound + 1, depth), 0)
        bias[o] = rng.integers(-40, 41) / scale
    return np.reshape(w, shape), bias


def folded(bias: Array, w: Array, zero: int) -> Array:
    """The bias that the workloads take; `w`: channels first."""
    sums = np.reshape(w.astype(np.int64), (w.shape[0], -1)).sum(axis=1)
    return (bias - zero * sums).astype(np.int32)


def convolution(name: str, sizes: Sizes, seed: int) -> Given:
    given, w = workload(name, sizes), dict(sizes)
    numbers, rng = dict(given.sizes), np.random.default_rng([seed, 1])
    layer = tflm.Layer(
        numbers["ZX"], numbers["ZY"], numbers["LOW"], numbers["HIGH"], numbers["S"],
        (numbers["PH"], numbers["PW"]), name.endswith("single_rounding"),
    )  # fmt: skip
    size, r, depth = (numbers["OH"], numbers["OW"]), numbers["R"], w["C"]
    deep = name == "depthwise_conv2d"
    channels = depth * numbers["D"] if deep else w["O"]
    scales = tuple(SCALES[(o + seed) % len(SCALES)] for o in range(channels))
    weights, bias = layer_constants(rng, (channels, r, r, 1 if deep else depth), scales)
    mul, shift = (np.array(part, np.int32) for part in zip(*scales, strict=True))
    x, fold = int8s(rng, w["H"], w["W"], depth), folded(bias, weights, layer.input_zero)
    inputs = {"x": x, "w": weights, "bias": fold, "mul": mul, "shift": shift}
    if deep:
        last = np.ascontiguousarray(np.moveaxis(weights[..., 0], 0, -1))
        y = tflm.depthwise(layer, x, last, bias, mul, shift, size)
        pair = (depth, numbers["D"])
        inputs |= {"w": np.reshape(last, (r, r, *pair)), "bias": np.reshape(fold, pair)}
        inputs |= {"mul": np.reshape(mul, pair), "shift": np.reshape(shift, pair)}
        return inputs, {"y": np.reshape(y, (*size, *pair))}
    return inputs, {"y": tflm.conv(layer, x, weights, bias, mul, shift, size)}


def fully_connected(name: str, sizes: Sizes, seed: int) -> Given:
    numbers, rng = dict(workload(name, sizes).sizes), np.random.default_rng([seed, 2])
    scale = (numbers["MUL"], numbers["SHIFT"])
    layer = tflm.Layer(-7, numbers["ZY"], numbers["LOW"], numbers["HIGH"])
    w, bias = layer_constants(rng, (numbers["N"], numbers["K"]), (scale,) * numbers["N"])
    x = int8s(rng, numbers["M"], numbers["K"])
    y = tflm.fully_connected(layer, x, w, bias, *scale)
    return {"x": x, "w": w, "bias": folded(bias, w, -7)}, {"y": y}


def chain(name: str, sizes: Sizes, seed: int) -> Given:
    given, rng = workload(name, sizes), np.random.default_rng([seed, 3])
    scales = tuple(SCALES[(n + seed) % 7] for n in range(10))
    zeros = [int(z) for z in rng.integers(-128, 20, 11)]
    lows = [max(-128, z) if n < 9 else -128 for n, z in enumerate(zeros[1:])]
    x = int8s(rng, *given.tensor["x0"].shape)
    inputs = {
        "mul": np.array([m for m, _ in scales], np.int32), "zero": np.array(zeros[1:], np.int32),
        "shift": np.array([s for _, s in scales], np.int32), "low": np.array(lows, np.int32),
        "x0": x,
    }  # fmt: skip
    for n in range(10):
        channels, depth = given.tensor[f"w{n}"].shape
        w, bias = layer_constants(rng, (channels, depth), (scales[n],) * channels)
        inputs |= {f"w{n}": w, f"b{n}": folded(bias, w, zeros[n])}
        layer = tflm.Layer(zeros[n], zeros[n + 1], lows[n])
        x = tflm.fully_connected(layer, x, w, bias, *scales[n])
    return inputs, {"x10": x}


def addition(name: str, sizes: Sizes, seed: int) -> Given:
    given, rng = workload(name, sizes), np.random.default_rng([seed, 4])
    n = dict(given.sizes)
    a, b = (int8s(rng, *given.tensor[which].shape) for which in "ab")
    scales = (tflm.Scale(n[f"Z{i}"], n[f"MUL{i}"], n[f"SHIFT{i}"]) for i in "12Y")
    return {"a": a, "b": b}, {"y": tflm.add(a, b, *scales)}


def pooling(name: str, sizes: Sizes, seed: int) -> Given:
    given, rng = workload(name, sizes), np.random.default_rng([seed, 5])
    n = dict(given.sizes)
    x = int8s(rng, *given.tensor["x"].shape)
    size = (n["OH"], n["OW"])
    return {"x": x}, {"y": tflm.average_pool(x, n["R"], n["S"], (n["PH"], n["PW"]), size)}


def softmax_input(sizes: Sizes, seed: int) -> Array:
    """Random rows; every difference that there is; equal ones; one that leads by much."""
    numbers, rng = dict(sizes), np.random.default_rng([seed, 6])
    x = int8s(rng, numbers["M"], numbers["N"])
    x[0] = np.arange(-128, 128)[np.arange(numbers["N"]) % 256]
    x[1], x[2], x[2, seed] = -128, -128, 127
    return x


def softmax(name: str, sizes: Sizes, seed: int) -> Given:
    numbers = dict(workload(name, sizes).sizes)
    x = softmax_input(sizes, seed)
    return {"x": x}, {"y": tflm.softmax(x, numbers["MUL"], numbers["SHIFT"]).y}


def named(**sizes: int) -> Sizes:
    return tuple(sizes.items())


CASES: dict[str, tuple[str, Sizes, Callable[[str, Sizes, int], Given]]] = {
    "conv2d": ("conv2d", named(H=5, W=6, C=3, O=12, ZX=-5, ZY=3), convolution),
    "conv2d-even": ("conv2d", named(H=6, W=7, C=2, O=12, S=2, ZX=127, LOW=-100), convolution),
    "conv2d-valid": ("conv2d", named(H=7, W=6, C=2, O=12, S=2, OH=3, OW=2), convolution),
    "conv2d-single": ("conv2d_single_rounding", named(H=5, W=6, C=3, O=12, ZX=-5), convolution),
    "depthwise": ("depthwise_conv2d", named(H=5, W=6, C=6, D=2, ZX=9, ZY=-1), convolution),
    "add": ("add", named(H=4, W=8, C=8), addition),
    "add-far": ("add", named(H=4, W=8, C=8, MUL2=HALF + 1, SHIFT2=-4, Z1=127, ZY=7), addition),
    "add-coarse": ("add", named(H=4, W=8, C=8, MULY=8191, SHIFTY=-1, Z2=-128), addition),
    "pool": ("average_pool", named(H=6, W=6, C=4, R=3), pooling),
    "pool-same": ("average_pool", named(H=5, W=4, C=4, R=4, S=2, OH=3, OW=2), pooling),
    "softmax": ("softmax", named(M=6, N=256), softmax),
    "softmax-steep": ("softmax", named(M=6, N=10, MUL=MOST, SHIFT=26), softmax),
    "softmax-flat": ("softmax", named(M=6, N=7, MUL=HALF, SHIFT=20), softmax),
    "chain": ("fully_connected_chain", named(M=2, I=12, H=9, B=3), chain),
}
for _multiplier, _shift in ((HALF, 0), (1518500250, -3), (MOST, -31), (HALF, 2)):
    CASES[f"fully_connected{_shift}"] = (
        "fully_connected", named(M=4, N=9, K=12, MUL=_multiplier, SHIFT=_shift, ZY=4),
        fully_connected,
    )  # fmt: skip

ONLY_NUMBERS = ("softmax-steep", "softmax-flat")
"""Cases of other numbers only, whose C takes a second to compile."""

every_case = pytest.mark.parametrize("case", list(CASES))
SEEDS = (0, 1, 2)


@cache
def expected(case: str, seed: int) -> Given:
    name, sizes, draw = CASES[case]
    return draw(name, sizes, seed)


def equal(found: dict[str, Array], wanted: dict[str, Array]) -> bool:
    assert found.keys() == wanted.keys()
    return all(np.array_equal(found[name], wanted[name]) for name in wanted)


@every_case
def test_the_reference_is_the_scalar_kernel(case: str) -> None:
    name, sizes, _ = CASES[case]
    for seed in SEEDS:
        inputs, outputs = expected(case, seed)
        assert equal(run_reference(workload(name, sizes), inputs), outputs)


IN_C = [c for c in CASES if c not in ONLY_NUMBERS]


@pytest.mark.parametrize("case", tiered(IN_C, IN_C[::3]))
@pytest.mark.skipif(not have_compiler(), reason="no C compiler")
def test_the_compiled_kernel_is_the_scalar_kernel(case: str) -> None:
    name, sizes, _ = CASES[case]
    for seed in SEEDS:
        inputs, outputs = expected(case, seed)
        assert equal(native(name, sizes).run(inputs), outputs)


@pytest.mark.parametrize("case", [c for c in CASES if c not in ONLY_NUMBERS])
@pytest.mark.skipif(not have_compiler(), reason="no C compiler")
def test_numbers_of_no_model_are_defined_too(case: str) -> None:
    name, sizes, _ = CASES[case]
    for style in STYLES:
        inputs = draw_inputs(workload(name, sizes), 7, style)
        assert equal(native(name, sizes).run(inputs), run_reference(workload(name, sizes), inputs))


def no_nudge(a: int, b: int) -> int:
    return a * b >> 31


def shift_only(x: int, exponent: int) -> int:
    return x >> exponent


def ties_upwards(x: int, exponent: int) -> int:
    return (x + (1 << exponent >> 1)) >> exponent


def once_without_nudge(x: int, multiplier: int, shift: int) -> int:
    return x * multiplier >> 31 - shift


def rounds_down(dividend: int, divisor: int) -> int:
    return dividend // divisor


LAYERS = ("conv2d", "depthwise", "chain", "fully_connected-3")
STRIDED = ("conv2d-even", "conv2d-valid")
SOFTMAXES = tuple(case for case in CASES if case.startswith("softmax"))
WRONG = [
    *((case, "srdhm", no_nudge) for case in (*LAYERS, *STRIDED, "fully_connected0", "add-coarse")),
    *((case, "rdbpot", shift_only) for case in (*LAYERS, *STRIDED, "fully_connected-31")),
    *((case, "rdbpot", shift_only) for case in ("add", "add-far", "add-coarse", *SOFTMAXES)),
    *((case, "rdbpot", ties_upwards) for case in (*LAYERS, "add-far")),
    *((case, "scaled", tflm.scaled_once) for case in (*LAYERS, *STRIDED)),
    ("conv2d-single", "scaled_once", once_without_nudge),
    ("conv2d-single", "scaled_once", tflm.scaled),
    *((case, "divide", rounds_down) for case in ("pool", "pool-same")),
]


@pytest.mark.parametrize(
    ("case", "what", "wrong"), [pytest.param(*w, id=f"{w[0]}-{w[2].__name__}") for w in WRONG]
)
def test_wrong_rounding_is_noticed(
    case: str, what: str, wrong: Callable[..., int], monkeypatch: pytest.MonkeyPatch
) -> None:
    name, sizes, draw = CASES[case]
    right = [expected(case, seed)[1] for seed in SEEDS]
    monkeypatch.setattr(tflm, what, wrong)
    assert not all(equal(draw(name, sizes, seed)[1], right[i]) for i, seed in enumerate(SEEDS))


STEPS = ("e", "sum", "scale")
"""What a softmax computes on the way, to 31 bits; its output has 8."""


def steps_of(x: Array, given: Workload) -> dict[str, Array]:
    numbers = dict(given.sizes)
    done = tflm.softmax(x, numbers["MUL"], numbers["SHIFT"])
    sums, scales = np.array(done.sums, np.int32), np.array(done.reciprocals, np.int32)
    return {"e": done.exponentials, "sum": sums, "scale": scales}


@pytest.mark.parametrize("case", SOFTMAXES)
def test_every_step_of_a_softmax_is_the_scalar_kernels(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = workload(*CASES[case][:2])
    x = softmax_input(CASES[case][1], 0)
    found = run_reference(given, {"x": x}, intermediates=True)
    steps = steps_of(x, given)
    assert equal({name: found[name] for name in STEPS}, steps)
    if have_compiler() and case == "softmax":
        text = (FOLDER / "softmax.yaml").read_text(encoding="utf-8")
        text = text.replace("tensors:\n", "tensors:\n  e_out: int32[M, N]\n  sum_out: int32[M]\n")
        text += "  - e_out[i, j] = e[i, j]\n  - sum_out[i] = sum[i]\n"
        (tmp_path / "steps.yaml").write_text(text, encoding="utf-8")
        hardware = load_hardware(ROOT / "hw_specs" / "cpu_generic.yaml")
        opened = load_workload(tmp_path / "steps.yaml", dict(CASES[case][1]))
        plain = compile_nest(opened, hardware, auto=False)
        outputs = compile_portable(plain.source, hardware).run({"x": x})
        assert equal(
            {"e": outputs["e_out"], "sum": outputs["sum_out"]},
            {name: steps[name] for name in ("e", "sum")},
        )
    monkeypatch.setattr(tflm, "srdhm", no_nudge)
    assert not equal(steps_of(x, given), steps)


EDGES = (tflm.LEAST, tflm.LEAST + 1, -HALF, -3, -1, 0, 1, 2, HALF - 1, HALF, MOST - 1, MOST)


def test_the_workloads_formulae_are_gemmlowps() -> None:
    """For all but the one product that saturates: no layer has it, its multipliers not being
    negative."""
    for a in EDGES:
        for b in EDGES:
            plain = (a * b + HALF) >> 31
            saturated = a == b == tflm.LEAST
            assert tflm.srdhm(a, b) == (MOST if saturated else plain)
            assert saturated == (plain > MOST)
        for e in range(32):
            half = (1 << e) >> 1
            assert tflm.rdbpot(a, e) == (a + half - (a < 0 and e > 0)) >> e
