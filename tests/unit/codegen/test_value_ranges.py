"""What a kernel's tensors can hold at most."""

from __future__ import annotations

import pytest

from hwgen.codegen.value_ranges import value_ranges
from hwgen.polyhedral.tree.build import build_state
from hwgen.spec.intervals import Interval
from hwgen.spec.load import parse_workload

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
