"""Schedules that random campaigns once found wrong, each as small as it gets."""

from __future__ import annotations

import pytest

from hwgen import HwgenError, Schedule, compile_nest
from hwgen.model.compiled import have_compiler
from hwgen.polyhedral.tree.legality import check
from hwgen.spec.load import load_hardware
from hwgen.spec.workload import Workload
from tests.fuzz.nest_runs import run_kernels
from tests.fuzz.schedules import lowered
from tests.unit.tree.toy import ROOT, ROWSUM, SPECS, chip, make, refusal

CALLS = ROOT / "tests" / "specs" / "cpu_small_calls.yaml"

CHAIN = make(
    "chain",
    {"x": "float32[6, 5]", "t": "float32[6, 5]", "y": "float32[6, 5]"},
    ["t[i, j] = x[i, j] * 2", "y[i, j] = t[i, j] + 1"],
)
ADD = make(
    "add",
    {"a": "float32[3, 12]", "b": "float32[3, 12]", "c": "float32[3, 12]"},
    ["c[n, i] = a[n, i] + b[n, i]"],
)
COPY = make("move", {"x": "float32[5, 4]", "y": "float32[5, 4]"}, ["y[i, j] = x[i, j]"])


def right(workload: Workload, script: str, spec: str = "") -> Schedule:
    """A schedule that must compute the reference."""
    hardware = load_hardware(SPECS[spec] if spec else CALLS, trust=True)
    schedule = Schedule(workload, hardware).replay(script)
    kernel = lowered(schedule, 0)
    if have_compiler():
        assert run_kernels([kernel], hardware) == [""]
    return schedule


def refused(schedule: Schedule, primitive: str, *arguments: str | int) -> HwgenError:
    """The error of a call that must be refused."""
    before = str(schedule)
    with pytest.raises(HwgenError) as caught:
        getattr(schedule, primitive)(*arguments)
    assert str(schedule) == before
    return caught.value


def test_a_prefetch_of_what_is_made_anew_in_each_iteration() -> None:
    """The address that a later iteration reads was taken of a buffer not yet there."""
    script = "s.prefetch('t', 'y_i', 1)\ns.compute_at('t', 'y_j')\n"
    schedule = right(CHAIN, script, "cpu")
    assert "prefetch t" in str(schedule)
    assert "prefetch" not in lowered(schedule, 0).source.c


def test_a_prefetch_goes_with_what_is_inlined() -> None:
    schedule = right(CHAIN, "s.prefetch('t', 'y_i', 1)\ns.compute_inline('t')\n", "cpu")
    assert "prefetch" not in str(schedule)


@pytest.mark.parametrize("kind", ["parallel", "vectorize", "unroll"])
def test_one_pragma_per_loop(kind: str) -> None:
    """A pragma between that of the kind and its loop is no C."""
    schedule = Schedule(COPY, load_hardware(SPECS["cpu"]))
    schedule.pragma("j", "GCC unroll", 4)
    assert refused(schedule, kind, "j").code == "H413"
    schedule.undo()
    getattr(schedule, kind)("j")
    assert refused(schedule, "pragma", "j", "GCC unroll", 4).code == "H413"


def test_vectorized_loops_stay_innermost() -> None:
    """A parallel loop inside lanes is no C."""
    schedule = Schedule(COPY, load_hardware(SPECS["cpu"]))
    schedule.vectorize("j")
    error = refused(schedule, "reorder", "j", "i")
    assert error.code == "H413"
    assert "i inside j, which is vectorize" in str(error)
    refused(Schedule(COPY, load_hardware(SPECS["cpu"])), "vectorize", "i")


def test_operands_of_a_call_are_within_the_intrinsics_strides() -> None:
    """The call was told of no stride for a dimension that it takes as dense."""
    script = "s.split('j', factor=2)\ns.reorder('i', 'j_i', 'j_o')\ns.tensorize('j_i', 'copy')\n"
    schedule = Schedule(COPY, load_hardware(CALLS)).replay(script)
    with pytest.raises(HwgenError) as caught:
        lowered(schedule, 0)
    assert caught.value.code == "H623"
    assert "by 2 elements (j_o)" in str(caught.value)
    right(COPY, script.replace("'j_i', 'j_o'", "'j_o', 'j_i'").replace("e('j_i'", "e('j_o'"))


def test_a_copy_for_a_call_becomes_its_operand() -> None:
    script = "s.split('i', factor=4)\ns.tensorize('i_i', 'add')\ns.cache_read('a', 'heap')\n"
    schedule = right(ADD, script)
    assert "add  # from i_i: c[n, i_o * 4 + i_i] = a_heap[" in str(schedule)
    check(schedule.state)


def test_nothing_is_inlined_into_a_call() -> None:
    stages = make(
        "stages",
        {"x": "float32[4]", "t": "float32[4]", "b": "float32[4]", "c": "float32[4]"},
        ["t[i] = x[i] * 2", "c[i] = t[i] + b[i]"],
    )
    schedule = right(stages, "s.tensorize('c_i', 'add')\n")
    error = refused(schedule, "compute_inline", "t")
    assert error.code == "H413"
    assert "a call of add" in str(error)


def test_nothing_around_a_call_is_padded() -> None:
    schedule = right(ADD, "s.split('i', factor=4)\ns.tensorize('i_i', 'add')\n")
    error = refused(schedule, "pad", "n", 4)
    assert error.code == "H413"
    assert "whose operands would change" in str(error)


def test_a_copy_of_a_reduction_comes_after_all_of_it() -> None:
    """It stood right behind the initialisation, where that was apart, and was refused."""
    rows = make("rows", {"x": "float32[6, 5]", "y": "float32[6]"}, ["y[i] += x[i, k]"])
    script = "s.decompose_reduction('y', 'i')\ns.cache_write('y', 'heap')\n"
    schedule = right(rows, script, "cpu")
    assert [b.block.name for b in schedule.state.sites][-1] == "y"


def test_padding_ends_where_the_loop_ended_not_the_tensor() -> None:
    workload = make(
        "head",
        {"a": "int32[20]", "c": "int32[1]"},
        [{"do": "c[0] += a[k]", "loops": {"k": 5}}],
    )
    right(workload, "s.pad('k', 8)", "cpu")


def test_padding_of_a_padded_copy_stays_inside_the_operand() -> None:
    right(ADD, "s.pad('n', 8)\ns.pad('a_pad_0', 3)", "cpu")


def test_padding_multiplies_no_float_by_zero() -> None:
    workload = make(
        "scaled",
        {"a": "float32[3]", "b": "float32[5]", "c": "float32[3]"},
        ["c[i] += a[i] * b[k]"],
    )
    schedule = Schedule(workload, load_hardware(SPECS["cpu"]))
    with pytest.raises(HwgenError, match="H413"):
        schedule.pad("k", 8)


ROWS = make(
    "rows",
    {"a": "int32[4, 6]", "t": "int32[4]", "c": "int32[4, 6]"},
    ["t[i] += a[i, k]", "c[i, j] = a[i, j] + t[i]"],
)


def test_undo_inside_a_batch_does_not_hide_an_edit() -> None:
    schedule = Schedule(ROWS, load_hardware(SPECS["cpu"]))
    schedule.split("k", 2)
    before = str(schedule)

    def edits() -> None:
        with schedule.batch():
            schedule.undo()
            schedule.set_store_predicate("t", "i == 0")

    with pytest.raises(HwgenError, match="H411"):
        edits()
    assert str(schedule) == before


def test_undo_goes_back_to_a_legal_schedule() -> None:
    schedule = Schedule(ROWS, load_hardware(SPECS["cpu"]))
    before = str(schedule)
    with schedule.batch():
        schedule.set_store_predicate("t", "i == 0")
        schedule.set_store_predicate("t", "i >= 0")
    schedule.undo()
    assert str(schedule) == before


def test_any_exception_takes_a_batch_back() -> None:
    schedule = Schedule(ROWS, load_hardware(SPECS["cpu"]))

    def edits() -> None:
        with schedule.batch():
            schedule.set_store_predicate("t", "i == 0")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        edits()
    assert schedule.trace() == ""


@pytest.mark.parametrize(
    "call",
    [
        """s.pragma("k", "GCC", 'ivdep\\nsystem("id");')""",
        "s.pragma('k', 'omp', 'parallel for')",
        "s.pragma('k', 'unroll', 'x')",
        "s.transform_layout('t', '[i] -> [i * i]')",
        "s.transform_layout('t', '[i] -> [i // 0]')",
        "s.transform_layout('t', '[i] -> [i * 0.5]')",
        "s.transform_layout('t', '[i] -> [i < 2, i]')",
        "s.set_store_predicate('t', 'i * k == 0')",
        "s.set_store_predicate('t', 'i // 0 == 0')",
        "s.set_store_predicate('t', 'i')",
        "s.set_store_predicate('t', 'exp(i) > 0')",
        "s.set_store_predicate('t', '(i < 3) == (k < 3)')",
    ],
)
def test_hostile_text_is_refused(call: str) -> None:
    schedule = Schedule(ROWS, load_hardware(SPECS["cpu"]))
    with pytest.raises(HwgenError, match="H413"):
        schedule.replay(call)
    assert schedule.trace() == ""


def test_a_long_row_sum_is_scheduled() -> None:
    workload = make(
        "row_sums",
        {"a": "float32[64, 5000]", "t": "float32[64]", "q": "float32[64]"},
        ["t[i] += a[i, k]", "q[i] = t[i] * 2"],
    )
    assert compile_nest(workload, load_hardware(SPECS["cpu"])).cycles > 0


@pytest.mark.parametrize(
    ("name", "call", "line"),
    [
        ("cpu", "s.pragma('k', 'unroll', 4)", "#pragma GCC unroll 4"),
        ("cpu", "s.pragma('k', 'nounroll')", "#pragma GCC unroll 1"),
        (
            "cpu",
            "s.pragma('k', 'GCC unroll', 4)\ns.pragma('k', 'unroll', 8)",
            "#pragma GCC unroll 8",
        ),
        ("cuda", "s.pragma('k', 'unroll')", "#pragma unroll"),
        ("cuda", "s.pragma('k', 'unroll', 4)", "#pragma unroll 4"),
    ],
)
def test_a_pragma_is_what_the_compiler_heeds(name: str, call: str, line: str) -> None:
    """gcc ignores `#pragma unroll`, and takes no second pragma before a loop."""
    made = compile_nest(ROWSUM, chip(name), call, auto=False)
    lines = [text.strip() for text in made.source.c.splitlines()]
    place = lines.index(line)
    assert lines[place + 1].startswith("for (int64_t k = 0;")
    assert sum(text.startswith("#pragma") for text in lines) == 1


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("cpu", "s.pragma('k', 'GCC unroll')"),  # no number is an error of gcc's
        ("cpu", "s.pragma('k', 'unroll', 65535)"),
        ("cpu", "s.pragma('k', 'unroll', 0)"),
        ("cpu", "s.pragma('k', 'nounroll', 2)"),
        ("cuda", "s.pragma('k', 'GCC unroll', 4)"),
    ],
)
def test_a_pragma_that_the_compiler_would_not_heed_is_refused(name: str, call: str) -> None:
    assert refusal(ROWSUM, call, name).code == "H413"
