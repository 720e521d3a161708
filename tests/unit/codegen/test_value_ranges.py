"""What a kernel's tensors can hold at most."""

from __future__ import annotations

import pytest

from hwgen.codegen.value_ranges import value_ranges
from hwgen.pipeline import compile_workload
from hwgen.polyhedral.tree.build import build_state
from hwgen.spec.intervals import Interval
from hwgen.spec.load import load_hardware, parse_workload
from hwgen.verify.data import STYLES, draw_inputs
from hwgen.verify.examine import examine

K = 9


def _ranges(*compute: str, range_of_b: str = "0..15") -> dict[str, Interval]:
    workload = parse_workload(
        {
            "name": "w",
            "sizes": {"M": 4, "K": K},
            "tensors": {
                "x": "int8[M, K]",
                "w": "uint8[K]",
                "b": {"type": "int32[M]", "constant": True, "range": range_of_b},
                "acc": "int32[M]",
                "y": "int32[M]",
            },
            "compute": [*compute],
        }
    )
    return value_ranges(workload, build_state(workload))


def test_a_sum_holds_all_its_terms_and_what_it_has_on_the_way() -> None:
    found = _ranges("acc[m] += x[m, k] * w[k]", "y[m] = acc[m] + b[m]")
    assert found["acc"] == (-K * 128 * 255, K * 127 * 255)
    assert found["y"] == (found["acc"][0], found["acc"][1] + 15)
    assert found["b"] == (0, 15)
    # Sums that only grow begin at zero all the same.
    assert (
        _ranges("acc[m] += x[m, k] * w[k]", "y[m] += w[k] + 5 + acc[m] - acc[m] + b[m]")["y"][0] < 0
    )
    positive = _ranges("acc[m] += w[k] + 5 + x[m, k] * 0", "y[m] = acc[m] + b[m]")
    assert positive["acc"] == (0, K * 260)


def test_what_wraps_around_may_be_anything() -> None:
    found = _ranges("acc[m] += x[m, k] * w[k]", "y[m] = acc[m] * b[m]", range_of_b="0..2147483647")
    assert found["y"] == (-(1 << 31), (1 << 31) - 1)
    assert "acc" not in _ranges(
        "acc[m] += x[m, k] * w[k] * b[m]", "y[m] = acc[m]", range_of_b="0..65535"
    )


@pytest.mark.parametrize("op", ["max=", "min="])
def test_of_other_updates_nothing_is_known(op: str) -> None:
    assert "acc" not in _ranges(f"acc[m] {op} x[m, k] + w[k]", "y[m] = acc[m] + b[m]")


def test_a_kernel_uses_what_is_known_of_its_inputs() -> None:
    """Shifts of a known amount, of sums that stay in 32 bits, take one shift of 32 bits."""
    tensors = {
        "x": {"type": "int32[64]", "range": "-65536..65535"},
        "n": {"type": "int32[64]", "constant": True, "range": "1..15"},
        "y": "int32[64]",
    }
    half = "((int64(1) << n[m]) >> 1)"
    odd = "select(x[m] < 0 and n[m] > 0, 1, 0)"
    compute = [f"y[m] = int32((int64(x[m]) + {half} - {odd}) >> n[m])"]
    known = parse_workload({"name": "w", "tensors": tensors, "compute": compute})
    bare = {name: t["type"] if isinstance(t, dict) else t for name, t in tensors.items()}
    unknown = parse_workload({"name": "w", "tensors": bare, "compute": compute})
    plain = "_plain_rounded_shr_int32("
    assert plain not in compile_workload(unknown, load_hardware("cpu_generic")).source.c
    kernel = compile_workload(known, load_hardware("cpu_generic"))
    assert plain in kernel.source.c
    for style in STYLES:
        examine(kernel, draw_inputs(known, 0, style))
