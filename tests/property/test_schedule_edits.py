"""Whatever primitives do, in any order: a schedule that exists computes what the workload says."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hwgen import HwgenError, Schedule
from hwgen.polyhedral.tree.bind_expr import parts_to_bind
from hwgen.spec.workload import Workload
from tests.unit.tree.interpreter import Machine, TooLongError, values
from tests.unit.tree.toy import chip, make

WORKLOADS = (
    make("matmul", {"a": "int32[3, 5]", "b": "int32[5, 4]", "c": "int32[3, 4]"},
         ["c[i, j] += a[i, k] * b[k, j]"]),
    make("blur", {"a": "int32[8]", "b": "int32[8]", "c": "int32[6]"},
         ["b[i] = a[i] * 2", {"do": "c[i] = b[i] + b[i + 1] + b[i + 2]", "loops": {"i": 6}}]),
    make("sliding", {"a": "int32[7]", "b": "int32[7]", "c": "int32[4, 4]"},
         [{"do": "b[n] = a[n] * a[n]", "loops": {"n": 7}}, "c[i, j] = b[i + j]"]),
    make("windows", {"a": "int32[6, 3]", "t": "int32[6]", "c": "int32[4]"},
         ["t[i] += a[i, k]", {"do": "c[i] = t[i] + t[i + 2]", "loops": {"i": 4}}]),
    make("norm", {"a": "int32[3, 4]", "t": "int32[3]", "b": "int32[3, 4]"},
         ["t[i] max= a[i, k]", "b[i, j] = a[i, j] - t[i]"]),
    make("chain", {"a": "int32[3, 4]", "b": "int32[3, 4]", "c": "int32[3, 4]", "d": "int32[4]"},
         ["b[i, j] = a[i, j] * 2", "c[i, j] = b[i, j] + a[i, j]", "d[j] += c[i, j] * b[i, j]"]),
    make("two", {"a": "int32[5]", "b": "int32[5]", "c": "int32[5]", "d": "int32[5]"},
         ["b[i] = a[i] * 2", "c[i] = b[i] + 1", "d[i] = b[4 - i] + c[i]"]),
)  # fmt: skip

Edit = Callable[[Schedule, st.DataObject], object]


def pick(data: st.DataObject, names: tuple[str, ...]) -> str:
    return data.draw(st.sampled_from(names)) if names else "nothing"


def loop(s: Schedule, data: st.DataObject) -> str:
    return pick(data, s.loops())


def stage(s: Schedule, data: st.DataObject) -> str:
    return pick(data, tuple(s.state.stage))


def condition(s: Schedule, data: st.DataObject) -> str:
    one, two = loop(s, data), loop(s, data)
    return data.draw(
        st.sampled_from(
            [f"{one} == 0", f"{one} == 0 or {two} == {s.extent(two) - 1}", f"{one} < 2"]
        )
    )


def several(s: Schedule, data: st.DataObject) -> list[str]:
    return data.draw(st.permutations(s.loops(stage(s, data)))) or ["nothing"]


def small(data: st.DataObject) -> int:
    return data.draw(st.integers(1, 5))


def memory(s: Schedule, data: st.DataObject) -> str:
    return pick(data, tuple(m.name for m in s.hardware.of_kind("workspace")))


def kind(s: Schedule, data: st.DataObject) -> object:
    assert s.hardware.processor is not None
    kinds = s.hardware.processor.loops
    chosen = data.draw(st.sampled_from(kinds))
    if chosen.kind == "bind":
        return s.bind(loop(s, data), chosen.name)
    return getattr(s, chosen.kind)(loop(s, data))


def part(s: Schedule, data: st.DataObject, name: str) -> str:
    """A part of a stage's value; a number where it has none."""
    found = parts_to_bind(s.state.stage[name]) if name in s.state.stage else []
    return pick(data, tuple(map(str, found)) or ("1",))


def bind_part(s: Schedule, data: st.DataObject) -> object:
    name = stage(s, data)
    return s.bind_expr(name, part(s, data, name))


def rewrite_part(s: Schedule, data: st.DataObject) -> object:
    name = stage(s, data)
    old = part(s, data, name)
    return s.rewrite_expr(name, old, f"({old}) * 3 - ({old}) - ({old})")


EDITS: dict[str, Edit] = {
    "bind_expr": bind_part,
    "rewrite_expr": rewrite_part,
    "distribute": lambda s, d: s.distribute(stage(s, d)),
    "split": lambda s, d: s.split(loop(s, d), factor=small(d)),
    "nparts": lambda s, d: s.split(loop(s, d), nparts=small(d)),
    "fuse": lambda s, d: s.fuse(loop(s, d), loop(s, d)),
    "reorder": lambda s, d: s.reorder(*several(s, d)),
    "tile": lambda s, d: s.tile(loop(s, d), loop(s, d), small(d), small(d)),
    "kind": kind,
    "compute_at": lambda s, d: s.compute_at(stage(s, d), loop(s, d)),
    "compute_at again": lambda s, d: s.compute_at(stage(s, d), loop(s, d)),
    "compute_root": lambda s, d: s.compute_root(stage(s, d)),
    "compute_inline": lambda s, d: s.compute_inline(stage(s, d)),
    "cache_read": lambda s, d: s.cache_read(pick(d, s.buffers()), memory(s, d)),
    "cache_write": lambda s, d: s.cache_write(stage(s, d), memory(s, d)),
    "set_scope": lambda s, d: s.set_scope(stage(s, d), memory(s, d)),
    "rfactor": lambda s, d: s.rfactor(stage(s, d), loop(s, d)),
    "decompose_reduction": lambda s, d: s.decompose_reduction(stage(s, d), loop(s, d)),
    "set_store_predicate": lambda s, d: s.set_store_predicate(stage(s, d), condition(s, d)),
    "pad": lambda s, d: s.pad(loop(s, d), small(d)),
}  # fmt: skip


@pytest.mark.parametrize("name", ["cpu", "cuda"])
@settings(
    deadline=None,
    max_examples=60,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(data=st.data())
def test_every_schedule_that_exists_is_right(name: str, data: st.DataObject) -> None:
    workload: Workload = data.draw(st.sampled_from(WORKLOADS), label="workload")
    s = Schedule(workload, chip(name))
    inputs = values(s.state)
    wanted = Machine(s.state, s.homes, inputs).run()
    legal = 0
    for edit in data.draw(st.lists(st.sampled_from(sorted(EDITS)), min_size=1, max_size=10)):
        before = (str(s), s.trace())
        try:
            EDITS[edit](s, data)
        except HwgenError:
            assert (str(s), s.trace()) == before
            continue
        legal += 1
    if not legal:
        return
    try:
        found = Machine(s.resolved, s.homes, inputs, seed=legal).run()
    except TooLongError:
        return
    assert found == wanted, s.trace()
    assert str(Schedule(workload, chip(name)).replay(s.trace())) == str(s)


def test_all_threads_add_to_a_sum_that_one_of_them_stores() -> None:
    workload = next(w for w in WORKLOADS if w.name == "windows")
    s = Schedule(workload, chip("cuda"))
    inputs = values(s.state)
    wanted = Machine(s.state, s.homes, inputs).run()
    s.bind("k", "threadIdx.x")
    s.set_store_predicate("t", "k == 0")
    assert Machine(s.resolved, s.homes, inputs, seed=1).run() == wanted
