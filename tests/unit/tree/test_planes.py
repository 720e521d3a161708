"""Planes of wide integers: no bit is lost, in expressions, schedules and workloads."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hwgen.model.reference import run_reference
from hwgen.passes.start import Start
from hwgen.polyhedral.schedule.schedule import Schedule
from hwgen.polyhedral.tree.planes import narrower, parts_of, planes_for, whole_of, written_whole
from hwgen.spec.expression import DTYPES, Access, Cast, Const, evaluate, map_accesses, rewrite
from hwgen.spec.load import load_hardware, make_workload
from hwgen.spec.typecheck import integer_range
from tests.sampling import examples
from tests.unit.tree.toy import ROOT, WIDE, start

PAIRS = [
    ("int16", "int8"),
    ("int32", "int8"),
    ("int32", "int16"),
    ("int64", "int8"),
    ("int64", "int32"),
]


def _wrapped(value: int, dtype: str) -> int:
    low, high = integer_range(dtype)
    return (value - low) % (high - low + 1) + low


@pytest.mark.parametrize(("wide", "narrow"), PAIRS)
@given(data=st.data())
@settings(max_examples=examples(50), deadline=None)
def test_a_value_is_put_together_from_its_planes(
    wide: str, narrow: str, data: st.DataObject
) -> None:
    low, high = integer_range(wide)
    value = data.draw(st.one_of(st.integers(low, high), st.sampled_from((low, high, -1, 0, 255))))
    x = Access("x", ())
    planes: list[int] = []
    for part in parts_of(x, wide, narrow):
        assert isinstance(part, Cast)
        shifted = map_accesses(part.operand, lambda _: Const(value))
        planes.append(_wrapped(int(evaluate(shifted, {})), narrow))
    assert len(planes) == DTYPES[wide] // DTYPES[narrow]
    total = whole_of([Access(f"p{q}", ()) for q in range(len(planes))], wide, narrow)
    total = map_accesses(total, lambda a: Const(planes[int(a.tensor[1:])]))
    total = rewrite(total, lambda e: e.operand if isinstance(e, Cast) else e)
    assert evaluate(total, {}) == value


def test_types_that_have_planes() -> None:
    assert narrower("int32", "int8")
    for pair in (("int8", "int32"), ("int32", "uint8"), ("uint32", "int8"), ("float32", "int8")):
        assert not narrower(*pair)


def test_what_chips_store_in_planes() -> None:
    vta, gemmini = (load_hardware(ROOT / "hw_specs" / f"{n}.yaml") for n in ("vta", "gemmini"))
    assert planes_for(vta, "int32") == "int8"
    assert planes_for(vta, "int8") == ""
    assert planes_for(vta, "float32") == ""
    assert planes_for(gemmini, "int32") == ""


def test_the_workload_that_planes_leave_is_the_same() -> None:
    s = start(WIDE)
    names = s.planes("b", "int8")
    parted = Start(s.workload, s.hardware, s).workload
    assert {t.name for t in parted.tensors} == {t.name for t in s.state.tensors}
    assert {s.target.tensor for s in parted.statements} == {*names, "b", "c"}
    inputs = {"a": np.random.default_rng(0).integers(-128, 128, (8, 48), np.int8)}
    expected, found = (run_reference(w, inputs)["c"] for w in (WIDE, parted))
    assert np.array_equal(expected, found)


def test_what_is_read_before_it_is_whole_has_no_planes() -> None:
    assert written_whole(WIDE, "b")
    again = make_workload(
        "again",
        tensors={"a": "int8[8]", "b": "int32[8]", "c": "int32[8]"},
        compute=["b[i] = a[i] * 3", "c[i] = b[i] + 1", "b[i] = b[i] * a[i]"],
    )
    assert not written_whole(again, "b")
    assert written_whole(again, "c")


def test_names_that_are_taken_are_left() -> None:
    taken = make_workload(
        "taken",
        tensors={"b_whole": "int8[8]", "b": "int32[8]"},
        compute=["b[i] = b_whole[i] * 300"],
    )
    s = Schedule(taken, load_hardware(ROOT / "hw_specs" / "cpu_generic.yaml"))
    assert s.planes("b", "int16") == ("b_whole_1", "b_plane0", "b_plane1")
    assert "b_whole_1" in Start(s.workload, s.hardware, s).workload.tensor
