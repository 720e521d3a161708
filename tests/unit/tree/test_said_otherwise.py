"""Values said otherwise: parts with a name, equal parts, sums in two. The numbers stay."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import hwgen
from hwgen.errors import HwgenError
from hwgen.model.reference import run_reference
from hwgen.passes.start import Start
from hwgen.polyhedral.schedule.arguments import parsed
from hwgen.polyhedral.simplify import simplified
from hwgen.polyhedral.tree import rewriting
from hwgen.polyhedral.tree.bind_expr import parts_to_bind
from hwgen.polyhedral.tree.rewriting import equal
from hwgen.spec.load import load_hardware
from hwgen.spec.workload import Workload
from hwgen.verify.data import draw_inputs
from tests.sampling import examples

ROOT = Path(__file__).resolve().parents[3]
CHIP = load_hardware(ROOT / "hw_specs" / "vta.yaml")
DTYPES = {"a": "int8", "b": "int8", "d": "int32", "u": "uint8", "f": "float32", "g": "int64"}


def _workload(value: str, dtype: str = "int64") -> Workload:
    tensors = {n: f"{t}[6]" for n, t in DTYPES.items() if f"{n}[" in value}
    cast = value if dtype == "int32" else f"{dtype}({value})"
    return hwgen.workload(
        "said", tensors=tensors | {"c": f"{dtype}[6]"}, compute=[f"c[i] = {cast}"]
    )


def _same(one: Workload, other: Workload, seed: int) -> bool:
    """Whether two workloads give the same of the same inputs; each may have some of its own."""
    drawn = draw_inputs(one, seed)
    drawn |= {n: a for n, a in draw_inputs(other, seed).items() if n not in drawn}
    results = [run_reference(w, {t.name: drawn[t.name] for t in w.inputs}) for w in (one, other)]
    return np.array_equal(results[0]["c"], results[1]["c"])


@st.composite
def values(draw: st.DrawFn, depth: int = 3) -> str:
    """Integers of several types in sums, products and what is neither."""
    if depth == 0 or draw(st.integers(0, 3)) == 0:
        return draw(st.sampled_from(["a[i]", "b[i]", "d[i]", "u[i]", "3", "70000", "a[i]"]))
    left, right = draw(values(depth - 1)), draw(values(depth - 1))
    form = draw(
        st.sampled_from(
            [
                "({} + {})",
                "({} - {})",
                "({} * {})",
                "min({}, {})",
                "(int32({}) + {})",
                "int8({} - {})",
            ]
        )
    )
    return form.format(left, right)


@given(values(), st.integers(0, 50), st.integers(0, 99))
@settings(max_examples=examples(60), deadline=None)
def test_parts_with_a_name_leave_the_numbers(value: str, which: int, seed: int) -> None:
    try:
        workload = _workload(value)
    except HwgenError:
        assume(False)
        return
    start = Start(workload, CHIP)
    parts = parts_to_bind(start.schedule.state.stage["c"])
    assume(parts)
    part = parts[which % len(parts)]
    made = start.edited(lambda s: s.bind_expr("c", str(part)))
    assert len(made.workload.statements) == 2
    assert _same(workload, made.workload, seed)


@given(values(), st.integers(0, 99))
@settings(max_examples=examples(150), deadline=None)
def test_a_simpler_value_is_the_same_number(value: str, seed: int) -> None:
    forms = [
        value,
        f"max({value}, 3) >> 2 >> 1",
        f"min(max(int16(clip({value}, -300, 400)), -5), 90)",
        f"select({value} <= 7, 7, {value}) // 8",
        f"5 - -({value}) + ({value}) * -1",
        f"({value}) * b[i] - 5 * b[i]",
        f"({value}) * g[i] - 5 * g[i]",
        f"({value}) * d[i] + 2000000000 * d[i]",
        f"g[i] + -({value})",
        f"int8(clip(round(float32(max({value}, 0)) * 0.25 * 0.5), -128, 127))",
    ]
    for form in forms:
        try:
            workload = _workload(form)
            simple = _workload(str(simplified(parsed(form), DTYPES)))
        except HwgenError:
            continue
        assert _same(workload, simple, seed)


@pytest.mark.parametrize(
    "value", ["d[i] * g[i] - 5 * g[i]", "g[i] + -d[i]", "d[i] * d[i] - 3000000000 * d[i]"]
)
def test_what_wraps_around_earlier_stays(value: str) -> None:
    assert simplified(parsed(value), DTYPES) == parsed(value)


@given(values(), values(), st.integers(0, 99))
@settings(max_examples=examples(150), deadline=None)
def test_what_is_proved_to_be_equal_is(one: str, other: str, seed: int) -> None:
    """Over random values, and over pairs that are equal by construction."""
    pairs = [
        (one, other),
        (f"{one} - {other}", f"-({other}) + {one}"),
        (f"({one}) * ({other} + 3)", f"({one}) * ({other}) + ({one}) * 3"),
        (f"({one}) << 2", f"({one}) * 4"),
        (f"{one} + 40000", f"{one} + 32767 + 7233"),
        (f"min({one}, {other}) + 1", f"min({other}, {one}) + 1"),
        (f"int8({one} + {other})", f"int8({other} + {one})"),
        (f"select(i > 2, ({one}) * ({other}), 0)", f"select(i > 2, {one}, 0) * ({other})"),
        (f"select(i > 2, {one}, {other})", f"{other} + select(i > 2, ({one}) - ({other}), 0)"),
        (f"int8({one} - 128) + 128", f"{one} + 0"),
        (f"int8(clip({one}, -5, 90))", f"int8(min(int8(clip({one}, -5, 127)), 90))"),
        (f"int8(clip({one}, -5, 90))", f"int8(max(int8(clip({one}, -9, 90)), {other}))"),
    ]
    for left, right in pairs:
        try:
            if not equal(parsed(left), parsed(right), DTYPES):
                continue
            both = _workload(left), _workload(right)
        except HwgenError:
            continue
        assert _same(*both, seed)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("a[i] + 40000", "a[i] + 32767 + 7233"),
        ("a[i] << 2", "a[i] * 4"),
        ("(a[i] - 3) * d[i]", "a[i] * d[i] - 3 * d[i]"),
        ("-(a[i] - b[i])", "b[i] - a[i]"),
        ("int32(a[i]) * int32(b[i])", "b[i] * a[i]"),
        ("d[i] * 65536 * 65536", "d[i] * 0"),
        ("int8(a[i] + b[i])", "int8(b[i] + a[i])"),
        ("min(a[i] + b[i], d[i] + 0)", "min(b[i] + a[i], d[i] + 1 - 1)"),
        ("u[i] * a[i]", "(int8(u[i] - 128) + 128) * a[i]"),
        ("int8(max(min(a[i] + b[i], 100), -5)) + 1", "max(min(a[i] + b[i], 100), -5) + 1"),
        ("int8(clip(d[i], 0, 96))", "int8(min(int8(clip(d[i], 0, 127)), 96))"),
        ("int8(clip(d[i], -50, 127))", "int8(max(int8(clip(d[i], -128, 127)), -50))"),
        ("int8(clip(f[i], -9, 9))", "int8(clip(int16(clip(f[i], -300, 9)), -9, 9))"),
        ("int8(clip(a[i] + b[i], -9, 9))", "int8(clip(round(float32(a[i] + b[i]) * 1.0), -9, 9))"),
        ("d[i] >> 1", "d[i] // 2 + 0"),
        ("(d[i] >> 20) >> 11", "d[i] >> 31"),
        ("f[i] / 2.0", "f[i] * 0.5"),
        ("max(a[i], b[i])", "select(a[i] > b[i], a[i], b[i])"),
        ("a[i] * b[i] - 3 * b[i]", "(a[i] - 3) * b[i]"),
        ("max(a[i], 3)", "int8(clip(round(float32(int32(a[i])) * 1.0), 3, 127))"),
        ("select(i > 2, a[i] * b[i], 0)", "select(i > 2, a[i], 0) * b[i]"),
        ("select(i > 2, a[i] * b[i], d[i])", "select(i > 2, a[i] * b[i] - d[i], 0) + d[i]"),
    ],
)
def test_what_is_proved(one: str, other: str) -> None:
    assert equal(parsed(one), parsed(other), DTYPES)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("a[i] + 40000", "a[i] + 40001"),
        ("a[i] + b[i]", "int8(a[i] + b[i])"),
        ("int8(a[i] + b[i]) + 1", "a[i] + b[i] + 1"),
        ("f[i] + f[i]", "f[i] * 2.0"),
        ("(f[i] + f[i]) + f[i]", "f[i] + (f[i] + f[i])"),
        ("int64(d[i]) * int64(d[i])", "int64(d[i] * d[i])"),
        ("a[i] * 3 // 3", "a[i]"),
        ("d[i] >> 1", "d[i] // 3"),
        ("f[i] / 2.0", "f[i] * 0.25"),
        ("max(f[i], g[i])", "select(f[i] > g[i], f[i], g[i])"),
        ("uint32(a[i]) + uint32(1)", "uint32(a[i] + 2)"),
        ("u[i] * a[i]", "(int8(u[i] - 127) + 127) * a[i]"),
        ("d[i] + 1", "int16(d[i]) + 1"),
        ("int8(clip(d[i], 0, 96))", "int8(min(int8(clip(d[i], 1, 127)), 96))"),
        ("int8(clip(d[i], 0, 96))", "int8(clip(int8(d[i]), 0, 96))"),
        ("int8(clip(d[i], 0, 96))", "int8(min(int8(clip(d[i], 0, 95)), 96))"),
        ("int8(clip(d[i], -200, 96))", "int8(min(int16(clip(d[i], -200, 127)), 96))"),
        ("int8(clip(f[i], 0, 9))", "int8(clip(f[i] + 0.0, 0, 9))"),
        ("int8(clip(d[i], -9, 9))", "int8(clip(round(float32(d[i]) * 1.0), -9, 9))"),
        ("int8(clip(a[i], -9, 9))", "int8(clip(round(float32(a[i]) * 0.5), -9, 9))"),
        ("int8(clip(a[i], -9, 9))", "int8(clip(floor(float32(a[i]) * 1.0), -9, 9))"),
        ("select(i > 2, a[i] * b[i], 0)", "select(i > 3, a[i], 0) * b[i]"),
        ("select(i > 2, f[i] * f[i], 0)", "select(i > 2, f[i], 0) * f[i]"),
        ("select(i > 2, a[i] * (b[i] // d[i]), 0)", "select(i > 2, a[i], 0) * (b[i] // d[i])"),
    ],
)
def test_what_is_not_proved(one: str, other: str) -> None:
    assert not equal(parsed(one), parsed(other), DTYPES)


def test_a_proof_that_forgets_a_sign_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = (parsed(x) for x in ("a[i] - b[i]", "a[i] + b[i]"))
    assert not equal(one, other, DTYPES)
    proof = rewriting._Proof  # pyright: ignore[reportPrivateUsage]
    right = proof._sum  # pyright: ignore[reportPrivateUsage]

    def unsigned(one: Counter[Any], other: Counter[Any], sign: int) -> Counter[Any]:
        return right(one, other, abs(sign))

    monkeypatch.setattr(proof, "_sum", staticmethod(unsigned))
    assert equal(one, other, DTYPES)


def test_a_read_that_a_condition_keeps_inside_stays_there() -> None:
    value = "select(i >= 1, a[i - 1] * b[i], 0)"
    workload = hwgen.workload(
        "kept",
        tensors=dict.fromkeys("ab", "int8[6]") | {"c": "int32[6]"},
        compute=[f"c[i] = {value}"],
    )
    start = Start(workload, CHIP)

    def said(new: str) -> Start:
        return start.edited(lambda s: s.rewrite_expr("c", value, new))

    assert _same(workload, said("select(i >= 1, a[i - 1], 0) * b[i]").workload, 1)
    with pytest.raises(HwgenError) as refused:
        said("select(i >= 1, b[i], 0) * a[i - 1]")
    assert refused.value.code == "H413"


@pytest.mark.parametrize("number", [5, -3, 128])
@pytest.mark.parametrize(
    "product",
    [
        "(a[i, k] - {}) * w[k, j]",
        "w[k, j] * (a[i, k] + {})",
        "(a[i, k] - {}) * v[k]",
        "(a[i, k] - {}) * z[j]",
    ],
)
def test_sums_in_two_are_what_they_were(product: str, number: int) -> None:
    """A factor of its own, one that moves with fewer loops, and one that the sum does not move."""
    shapes = {"a": "int8[4, 9]", "w": "int8[9, 7]", "v": "int8[9]", "z": "int8[7]"}
    workload = hwgen.workload(
        "two",
        tensors={n: t for n, t in shapes.items() if f"{n}[" in product} | {"c": "int32[4, 7]"},
        compute=[{"do": f"c[i, j] += {product.format(number)}", "loops": {"i": 4, "j": 7, "k": 9}}],
    )
    made = Start(workload, CHIP).edited(lambda s: s.distribute("c"))
    assert len(made.workload.statements) == 3
    for seed in range(3):
        assert _same(workload, made.workload, seed)


@pytest.mark.parametrize("op", ["+=", "max=", "min="])
@pytest.mark.parametrize("dtype", ["int32", "uint32", "int64"])
@pytest.mark.parametrize("read", ["t[2*i + p, j]", "t[i + p, 0]", "t[7 - i - p, j]"])
def test_a_sum_of_sums_is_one_sum(op: str, dtype: str, read: str) -> None:
    """Also where it reads some of them several times, or not at all."""
    loops = {"i": 4, "p": 2} | ({"j": 3} if "j" in read else {})
    workload = hwgen.workload(
        "sums",
        tensors={"x": f"{dtype}[8, 3, 5]", "t": f"{dtype}[8, 3]", "c": f"{dtype}[4]"},
        compute=[
            f"t[h, j] {op} x[h, j, i]",
            {"do": f"c[i] {op} {read}", "loops": loops},
        ],
    )
    made = Start(workload, CHIP).edited(lambda s: s.compute_inline("t"))
    assert len(made.workload.statements) == 1
    made.schedule.settle()
    for seed in range(3):
        assert _same(workload, made.workload, seed)


@pytest.mark.parametrize(
    ("first", "second", "dtype"),
    [
        ("t[h] += x[h, i]", "c[0] += t[h]", "float32"),
        ("t[h] += x[h, i]", "c[0] max= t[h]", "int32"),
        ("t[h] += x[h, i]", "c[0] += t[h] * 2", "int32"),
    ],
)
def test_other_sums_stay_apart(first: str, second: str, dtype: str) -> None:
    tensors = {"x": f"{dtype}[8, 5]", "t": f"{dtype}[8]", "c": f"{dtype}[1]"}
    start = Start(hwgen.workload("apart", tensors=tensors, compute=[first, second]), CHIP)
    with pytest.raises(HwgenError) as refused:
        start.edited(lambda s: s.compute_inline("t"))
    assert refused.value.code == "H413"


@given(st.integers(0, 4), st.integers(1, 9), st.integers(-4, 4), st.integers(0, 99))
@settings(max_examples=examples(40), deadline=None)
def test_what_padding_computes_has_a_name_inside(low: int, more: int, by: int, seed: int) -> None:
    """Of the elements that are chosen, wherever they lie in what they are computed from."""
    extent, high = 12, min(low + more, 12)
    assume(low + by >= 0)
    part = f"x[i + {by}] * 3" if by >= 0 else f"x[i - {-by}] * 3"
    workload = hwgen.workload(
        "padding",
        tensors={"x": f"int8[{high + by}]", "c": f"int32[{extent}]"},
        compute=[f"c[i] = select(i >= {low} and i < {high}, {part}, 7)"],
    )
    made = Start(workload, CHIP).edited(lambda s: s.bind_expr("c", part))
    assert dict(made.workload.statements[0].loops) == {"i": high - low}
    assert _same(workload, made.workload, seed)


def test_what_reads_outside_where_it_is_not_chosen_has_no_name() -> None:
    value = "select(i + j >= 1, a[i + j - 1] * 3, 0)"
    tensors = {"a": "int8[11]", "c": "int32[6, 6]"}
    start = Start(hwgen.workload("sums", tensors=tensors, compute=[f"c[i, j] = {value}"]), CHIP)
    with pytest.raises(HwgenError, match="only where it is chosen"):
        start.edited(lambda s: s.bind_expr("c", "a[i + j - 1] * 3"))
