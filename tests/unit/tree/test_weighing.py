"""Narrow integers as products with supplied weights: the same values, whatever they are."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from hwgen.errors import HwgenError
from hwgen.model.reference import run_reference
from hwgen.passes.moves.unit_weights import weight_type
from hwgen.passes.start import Start
from hwgen.polyhedral.schedule.schedule import Schedule
from hwgen.polyhedral.tree.build import build_state
from hwgen.polyhedral.tree.loop_tree import LoopTree
from hwgen.polyhedral.tree.weighing import weigh, weighed_out
from hwgen.spec.load import load_hardware
from hwgen.spec.workload import Workload
from hwgen.verify.data import draw_inputs
from tests.sampling import examples
from tests.unit.tree.toy import NARROW, ROOT, make

TENSORS = {"a": "int8[4]", "b": "uint8[4]", "d": "int16[4]", "e": "int32[4]", "t": "int8[4]"}


def _statement(value: str, target: str = "int8") -> Workload:
    """A statement in the narrow type of its target."""
    tensors = {n: t for n, t in TENSORS.items() if f"{n}[" in value}
    return make("drawn", {**tensors, "c": f"{target}[4]"}, [f"c[i] = {value}"])


def _supplied(state: LoopTree) -> dict[str, int]:
    return {t.name: t.supplied for t in state.tensors if t.supplied is not None}


def _values() -> st.SearchStrategy[str]:
    reads = st.sampled_from(("a[i]", "b[i]", "d[i]", "e[i]", "3", "100"))
    return st.recursive(
        reads,
        lambda inner: st.one_of(
            st.builds("({} {} {})".format, inner, st.sampled_from("+-"), inner),
            st.builds("({} * {})".format, inner, st.sampled_from(("2", "7"))),
            st.builds("({} >> {})".format, inner, st.sampled_from("12")),
            st.builds(
                "{}(int32({}), int32({}))".format, st.sampled_from(("min", "max")), inner, inner
            ),
            st.builds("(-{})".format, inner),
            st.builds("{}({})".format, st.sampled_from(("uint32", "int64", "int8")), inner),
            st.builds("clip(int32({}), -50, 60)".format, inner),
        ),
        max_leaves=6,
    )


def _drawn(value: str) -> Workload | None:
    """A statement; None where it is ill typed, or shifts a number."""
    try:
        return _statement(f"int8(clip(int32({value}), -128, 127))")
    except HwgenError:
        return None


def _start(workload: Workload) -> Start:
    """A workload on vta with c weighed."""
    start = Start(workload, load_hardware(ROOT / "hw_specs" / "vta.yaml"))
    return start.edited(lambda s: s.weigh("c", "int8"))


def _weighed(workload: Workload) -> Workload | None:
    try:
        return _start(workload).workload
    except HwgenError as error:
        refused = error
    assert refused.code == "H413"
    return None


@given(_values(), st.integers(0, 99))
@settings(max_examples=examples(100), deadline=None)
def test_weighed_values_are_what_they_were(value: str, seed: int) -> None:
    workload = _drawn(value)
    assume(workload is not None)
    assert workload is not None
    changed = _weighed(workload)
    if changed is None:
        assert {t.name for t in workload.inputs} <= {"e"}
        return
    given_by = {t.name: np.full(1, t.supplied, "int8") for t in changed.tensors if t.supplied}
    plain = replace(changed, tensors=tuple(replace(t, supplied=None) for t in changed.tensors))
    assert len(plain.inputs) == len(workload.inputs) + len(given_by)
    drawn = draw_inputs(workload, seed)
    wanted = run_reference(workload, drawn)["c"]
    assert np.array_equal(run_reference(plain, drawn | given_by)["c"], wanted)
    bare = weighed_out(build_state(changed)).stage["c"].value
    (statement,) = workload.statements
    numbers = replace(workload, statements=(replace(statement, value=bare),))
    assert np.array_equal(run_reference(numbers, drawn)["c"], wanted)


def test_factors_are_weights_where_their_type_holds_them() -> None:
    state, _ = weigh(build_state(_statement("int8(a[i] * 3 - d[i] + b[i] * 200)")), "c", "int8")
    assert str(state.stage["c"].value) == (
        "int8(int32(a[i]) * int32(c_times_3[0]) + int32(d[i]) * int32(c_times_minus_1[0]) + "
        "int32(b[i]) * int32(c_times_1[0]) * 200)"
    )
    assert _supplied(state) == {"c_times_3": 3, "c_times_minus_1": -1, "c_times_1": 1}


@pytest.mark.parametrize(
    "value",
    [
        "int8(e[i])",
        "int8(a[i] * b[i])",
        "int8(float32(a[i]) * 2.0)",
    ],
)
def test_what_is_not_weighed(value: str) -> None:
    """Wide integers, products, floats."""
    with pytest.raises(HwgenError) as caught:
        weigh(build_state(_statement(value)), "c", "int8")
    assert caught.value.code == "H413"


def test_a_workload_is_weighed_as_its_schedule_is() -> None:
    start = _start(NARROW)
    changed, s = start.workload, start.schedule
    names = s.last_edit()[1].results
    assert {t.name for t in changed.tensors if t.supplied is not None} == {*names}
    assert changed.inputs == NARROW.inputs
    assert [x.value for x in changed.statements] == [s.state.stage[n].value for n in ("c", "d")]
    again = build_state(changed)
    assert _supplied(again) == _supplied(s.state)


def test_names_that_are_taken() -> None:
    tensors = {"a": "int8[4]", "c_times_1": "int8[4]", "c": "int32[4]"}
    s = Schedule(
        make("taken", tensors, ["c[i] = a[i] + c_times_1[i]"]),
        load_hardware(ROOT / "hw_specs" / "vta.yaml"),
    )
    assert s.weigh("c", "int8") == ("c_times_1_1",)


def test_what_units_multiply_by() -> None:
    assert weight_type(load_hardware(ROOT / "hw_specs" / "vta.yaml")) == "int8"
    assert weight_type(load_hardware(ROOT / "hw_specs" / "cpu_generic.yaml")) == ""
