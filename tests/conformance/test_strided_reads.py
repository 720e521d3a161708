"""Convolutions whose steps leave out elements of their input: only what is read is moved."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hwgen.model.columns import off_chip_traffic
from hwgen.passes.kernel import Kernel
from hwgen.pipeline import SearchOptions, compile_kernel
from hwgen.spec.load import load_hardware, load_workload
from hwgen.verify.data import draw_inputs
from hwgen.verify.examine import examine
from tests.sampling import QUICK, THOROUGH, WHOLE, examples, tiered

ROOT = Path(__file__).parents[2]
CHIPS = [("vta", "conv2d_requant"), ("gemmini", "conv2d_scaled"), ("tpu_v1", "conv2d")]


def convolution(
    chip: str, name: str, sizes: dict[str, int], options: SearchOptions = WHOLE
) -> Kernel:
    hardware = load_hardware(ROOT / f"hw_specs/{chip}.yaml")
    made = compile_kernel(load_workload(name, {"P": 0, **sizes}), hardware, options=options)
    examine(made, draw_inputs(made.workload, 1))
    return made


@pytest.mark.parametrize(("chip", "name"), CHIPS)
@pytest.mark.parametrize("window", tiered([1, 2], [1]))
def test_what_no_window_covers_stays_off_chip(chip: str, name: str, window: int) -> None:
    """Channels fill the lanes; every third row and column, or all but every third, are read."""
    places = 5
    sizes = {"H": 3 * places - 1, "W": 3 * places - 1, "C": 16, "O": 16, "S": 3, "R": window}
    made = convolution(chip, name, sizes, QUICK)
    moved = {t.tensor: t for t in off_chip_traffic(made.program, made.hardware, made.workload)}
    lanes = {"tpu_v1": 256}.get(chip, 16)
    assert moved["x"].loaded == (places * window) ** 2 * lanes


@THOROUGH
def test_strided_1x1_convolutions_of_a_network_are_near_their_bound() -> None:
    sizes = {"H": 28, "W": 28, "C": 128, "O": 256, "R": 1, "S": 2}
    made = convolution("vta", "conv2d_requant", sizes)
    assert made.cycles <= 1.09 * made.bound.cycles


@settings(max_examples=examples(2), deadline=None)
@given(
    step=st.integers(2, 4),
    window=st.integers(1, 4),
    extra=st.integers(0, 3),
    channels=st.sampled_from([3, 16]),
    chip=st.sampled_from(CHIPS),
)
def test_any_step_and_window(
    step: int, window: int, extra: int, channels: int, chip: tuple[str, str]
) -> None:
    height = 3 * step + window + extra
    sizes = {"H": height, "W": height + 1, "C": channels, "O": 20, "S": step, "R": window}
    made = convolution(*chip, sizes, QUICK)
    assert made.cycles >= made.bound.cycles
