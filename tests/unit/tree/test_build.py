"""The first state of a workload: one stage and one nest per statement."""

from __future__ import annotations

from hwgen.polyhedral.tree.build import build_state
from tests.unit.tree.toy import CHAIN, make, start


def test_one_nest_per_statement_with_loops_of_its_own() -> None:
    s = start(CHAIN)
    assert s.loops() == ("i", "j", "c_i", "c_j")
    assert (s.loops("b"), s.loops("c")) == (("i", "j"), ("c_i", "c_j"))
    assert (s.extent("c_j"), s.buffers()) == (48, ("a", "b", "c"))
    assert s.describe("b") == "intermediate b: float32[64, 48] in heap"


def test_a_rewritten_tensor_becomes_two() -> None:
    workload = make(
        "twice",
        {"a": "float32[8]", "c": "float32[8]"},
        ["c[i] = a[i] * 2", "c[i] = c[i] + a[i]"],
    )
    state = build_state(workload)
    assert [str(s) for s in state.stages] == ["c_0[i] = a[i] * 2", "c[i] = c_0[i] + a[i]"]
    assert (state.tensor["c_0"].role, state.tensor["c"].role) == ("intermediate", "output")


def test_a_part_of_a_tensor_is_rewritten_in_its_place() -> None:
    workload = make(
        "part",
        {"a": "float32[8]", "c": "float32[8]"},
        ["c[i] = a[i] * 2", {"do": "c[i] = a[i]", "loops": {"i": 4}}],
    )
    state = build_state(workload)
    assert [str(s) for s in state.stages] == ["c_0[i] = a[i] * 2", "c[i] = a[i]"]
    assert (state.stage["c"].over, state.storage["c_0"].alias) == ("c_0", "c")


def test_a_sum_of_shared_elements_begins_with_all_of_them() -> None:
    shared = {"do": "c[2*i + r] += a[i]", "loops": {"i": 4, "r": 3}}
    state = build_state(make("shared", {"a": "float32[4]", "c": "float32[9]"}, [shared]))
    assert [str(s) for s in state.stages] == ["c_0[d0] = 0.0", "c[2 * i + r] += a[i]"]
    assert (state.stage["c"].continues, state.stage["c_0"].continues) == (True, False)
    assert [b.part for b in (s.block for s in state.sites)] == ["whole", "update"]
