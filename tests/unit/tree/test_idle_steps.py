"""Steps that change no number are left out, and no others."""

from __future__ import annotations

import pytest

from hwgen.passes.start import Start
from hwgen.polyhedral.tree.idle_steps import plain
from tests.unit.tree.toy import chip, make

TENSORS = {"x": "int8[8]", "w": "int32[8]", "f": "float32[8]", "y": "int8[8]"}


@pytest.mark.parametrize(
    ("value", "left"),
    [
        ("int8(clip(max(x[i], x[i] >> 3), -128, 127))", "int8(max(x[i], x[i] >> 3))"),
        ("int8(min(x[i], 127))", "x[i]"),
        ("int8(int16(x[i]) >> 1)", "int8(x[i] >> 1)"),
        ("int8(clip(w[i], -128, 127))", "int8(clip(w[i], -128, 127))"),
        ("int8(clip(x[i] + 1, -128, 127))", "int8(min(x[i] + 1, 127))"),
        ("int8(int16(w[i]) >> 8)", "int8(int16(w[i]) >> 8)"),
        ("int8(clip(f[i], -128, 127))", "int8(clip(f[i], -128, 127))"),
    ],
)
def test_what_is_left(value: str, left: str) -> None:
    tensors = {n: t for n, t in TENSORS.items() if f"{n}[" in value} | {"y": TENSORS["y"]}
    state = Start(make("idle", tensors, [f"y[i] = {value}"]), chip("cpu")).schedule.state
    made = plain(state)
    assert str(made.stage["y"].value) == left
    assert (made is state) == (left == value)
