"""Dependences, views of inputs, and statements that share loops."""

from __future__ import annotations

import pytest

import hwgen
from hwgen.errors import HwgenError
from hwgen.polyhedral import isl
from hwgen.polyhedral.dependences import dependences
from hwgen.polyhedral.scop import Scop, build_scop, scop_of_nest


def matvec() -> Scop:
    return build_scop(
        hwgen.workload(
            "matvec",
            tensors={"a": "int8[3, 4]", "x": "int8[4]", "s": "int32[3]", "y": "int8[3]"},
            compute=["s[m] += a[m, k] * x[k]", "y[m] = int8(s[m])"],
        )
    )


def test_every_contribution_is_bound_between_start_and_use() -> None:
    found = dependences(matvec())
    expected = isl.UnionMap(
        "{ S0_init[m] -> S0[m, k] : 0 <= m < 3 and 0 <= k < 4;"
        "  S0[m, k] -> S1[m] : 0 <= m < 3 and 0 <= k < 4; S0_init[m] -> S1[m] : 0 <= m < 3 }"
    )
    assert found.binding.is_equal(expected)
    assert found.live_out == ("y",)
    assert not found.reductions.is_empty()


def test_padding_becomes_a_view() -> None:
    scop = build_scop(
        hwgen.workload(
            "shifted",
            tensors={"x": "int8[8]", "p": "int8[10]", "y": "int8[10]"},
            compute=[
                "p[i] = select(i >= 1 and i < 9, x[i - 1], 0)",
                "y[i] = int8(max(p[i], 0))",
            ],
        )
    )
    assert [str(v.indices[0]) for v in scop.views] == ["d0 - 1"]
    assert [s.name for s in scop.statements] == ["S1"]


def test_narrower_guard_than_bounds_is_refused() -> None:
    workload = hwgen.workload(
        "masked",
        tensors={"x": "int8[8]", "p": "int8[10]", "y": "int8[10]"},
        compute=["p[i] = select(i >= 2 and i < 9, x[i - 1], 0)", "y[i] = int8(max(p[i], 0))"],
    )
    with pytest.raises(HwgenError) as caught:
        build_scop(workload)
    assert caught.value.code == "H402"
    assert "1" in caught.value.diagnostic.found


def test_transposed_intermediate_is_fused_by_renaming() -> None:
    scop = build_scop(
        hwgen.workload(
            "transposed",
            tensors={
                "a": "int8[4, 16]",
                "b": "int8[8, 16]",
                "s": "int32[4, 8]",
                "y": "int8[8, 4]",
            },
            compute=["s[m, n] += a[m, k] * b[n, k]", "y[i, j] = int8(s[j, i])"],
        )
    )
    assert [n for n, _ in scop.statements[1].loops] == ["n", "m"]


def test_a_shifted_intermediate_is_no_nest() -> None:
    workload = hwgen.workload(
        "halo",
        tensors={"a": "int8[9, 16]", "b": "int8[16]", "s": "int32[9]", "y": "int8[8]"},
        compute=[
            "s[m] += a[m, k] * b[k]",
            {"do": "y[i] = int8(max(s[i], s[i + 1]))", "loops": {"i": 8}},
        ],
    )
    assert scop_of_nest(workload) is None
