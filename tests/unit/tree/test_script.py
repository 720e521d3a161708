"""Scripts: what a schedule writes, reading repeats; anything else is refused with its line."""

from __future__ import annotations

import pytest

from hwgen import HwgenError
from hwgen.polyhedral.schedule.script import Edit, write
from tests.golden.test_primitives import CASES
from tests.unit.tree.toy import CHAIN, GROUP, MATMUL, ROWSUM, make, start

SCRIPT = """\
i_o, j_o, i_i, j_i = s.tile('i', 'j', 16, 32)
s.reorder(i_o, j_o, 'k', i_i, j_i)
a_stack = s.cache_read('a', 'stack', readers=['c'])
s.compute_at(a_stack, 'k')
s.parallel(i_o)
s.vectorize(j_i)
"""


def test_trace_repeats_the_schedule() -> None:
    s = start(MATMUL).replay(SCRIPT)
    assert s.trace() == SCRIPT
    again = start(MATMUL).replay(s.trace())
    assert (str(again), again.trace(), again.homes) == (str(s), s.trace(), s.homes)
    assert again.state == s.state


@pytest.mark.parametrize("primitive", CASES)
def test_every_primitive_is_traced(primitive: str) -> None:
    workload, chip, setup, edit = CASES[primitive]
    s = start(workload, chip).replay(setup).replay(edit)
    assert f"s.{primitive}(" in s.trace()
    assert str(start(workload, chip).replay(s.trace())) == str(s)


def test_calls_and_scripts_are_the_same() -> None:
    s = start(MATMUL)
    i_o, j_o, i_i, j_i = s.tile("i", "j", 16, 32)
    s.reorder(i_o, j_o, "k", i_i, j_i)
    copy = s.cache_read("a", "stack", readers=["c"])
    s.compute_at(copy, "k")
    s.parallel(i_o)
    s.vectorize(j_i)
    assert s.trace() == SCRIPT


def test_undo_goes_back_step_by_step() -> None:
    s = start(MATMUL)
    seen: list[tuple[str, str]] = []
    for line in (
        "s.tile('i', 'j', 16, 32)",
        "s.cache_write('c', 'heap')",
        "s.compute_at('c_heap', 'c_0')",
        "s.parallel('c_0')",
    ):
        seen.append((str(s), s.trace()))
        s.replay(line)
    while seen:
        s.undo()
        assert (str(s), s.trace()) == seen.pop()
    s.undo()
    assert (s.trace(), str(s)) == ("", str(start(MATMUL)))


def test_a_name_for_several_results_and_lists() -> None:
    s = start(GROUP).replay("g = s.create_group(['E'], ('A', 'B'))\ns.compute_at(g, 'F_i')\n")
    assert s.loops("E")[0] == "F_i"
    s = start(MATMUL).replay('"""A docstring."""\n# a comment\nboth = s.split("k", factor=4)\n')
    assert s.loops() == ("i", "j", "k_o", "k_i")


def test_a_refused_script_changes_nothing() -> None:
    s = start(ROWSUM).replay("s.parallel('i')")
    before = (str(s), s.trace())
    with pytest.raises(HwgenError) as caught:
        s.replay("o, i = s.split('k', factor=8)\ns.unroll(i)\n\ns.parallel(o)\n", "my.txt")
    assert caught.value.code == "H412"
    assert str(caught.value.diagnostic.location) == "my.txt:4:1"
    assert (str(s), s.trace()) == before


def test_a_batch_is_checked_at_its_end() -> None:
    s = start(CHAIN)
    with s.batch():
        s.parallel("c_i")
        s.set_scope("b", "stack")  # not yet legal
        s.compute_at("b", "c_i")
    assert s.homes["b"] == ("c_i",)
    before = str(s)

    def wrong() -> None:
        with s.batch():
            s.split("j", factor=8)
            s.compute_root("b")

    with pytest.raises(HwgenError) as caught:
        wrong()
    assert caught.value.code == "H417"
    assert str(s) == before


def test_names_that_are_no_identifiers() -> None:
    edits = [
        Edit("split", ("x",), (("factor", 2),), ("for", "s")),
        Edit("fuse", ("for", "s"), (), ("a.b",)),
        Edit("unroll", ("a.b",), (), ()),
    ]
    assert write(edits) == (
        "for_, s_ = s.split('x', factor=2)\na_b = s.fuse(for_, s_)\ns.unroll(a_b)\n"
    )


@pytest.mark.parametrize(
    ("script", "line", "found"),
    [
        ("s.split('i', factor=2)\nimport os\n", 2, "import os"),
        ("x = 3", 1, "x = 3"),
        ("\n\nprint(s)", 3, "print"),
        ("t.split('i')", 1, "t.split"),
        ("s.state.loop('i')", 1, "s.state.loop"),
        ("s.split('i', factor=2 + 2)", 1, "2 + 2"),
        ("s.split(i, factor=2)", 1, "i"),
        ("s.split('i', factor=open('x'))", 1, "open('x')"),
        ("s.split(f'{i}', factor=2)", 1, "f'{i}'"),
        ("s.fuse(*['i', 'k'])", 1, "*['i', 'k']"),
        ("s.split(**{'loop': 'i'})", 1, "{'loop': 'i'}"),
        ("a, b, c = s.split('i', factor=2)", 1, "3 names for 2 results"),
        ("a, b.c = s.split('i', factor=2)", 1, "b.c"),
        ("a = s.unroll('k')", 1, "1 names for 0 results"),
        ("s.split('i' factor=2)", 1, "invalid syntax. Perhaps you forgot a comma?"),
        ("s.undo()", 1, "undo"),
        ("s.trace()", 1, "trace"),
        ("s._commit('i')", 1, "_commit"),
        ("s.splitt('i', factor=2)", 1, "splitt"),
        ("s.split()", 1, "missing a required argument: 'loop'"),
        ("s.split('i', 1, 2, 3)", 1, "too many positional arguments"),
        ("s.split('i', size=2)", 1, "got an unexpected keyword argument 'size'"),
        ("s.split(3)", 1, "loop is 3"),
        ("s.split('i', factor='2')", 1, "factor is '2'"),
        ("s.split('i', factor=2.5)", 1, "factor is 2.5"),
        ("s.split('i', factor=True)", 1, "factor is True"),
        ("s.reorder(['i', 'k'])", 1, "loops is ['i', 'k']"),
        ("s.cache_read('a', 'stack', readers=[1])", 1, "readers is [1]"),
        ("s.pragma('k', 3)", 1, "key is 3"),
    ],
)
def test_wrong_scripts(script: str, line: int, found: str) -> None:
    s = start(ROWSUM)
    with pytest.raises(HwgenError) as caught:
        s.replay(script, "my.txt")
    assert caught.value.code == "H418"
    place = caught.value.diagnostic.location
    assert place is not None
    assert (place.file, place.line) == ("my.txt", line)
    assert caught.value.diagnostic.found == found
    assert s.trace() == ""


def test_the_nearest_name_is_offered() -> None:
    with pytest.raises(HwgenError, match="did you mean 'split'"):
        start(ROWSUM).replay("s.splitt('i', factor=2)")
    with pytest.raises(HwgenError, match="i was split into i_o and i_i"):
        start(ROWSUM).replay("s.split('i', factor=2)\ns.unroll('i')")


def test_a_sum_of_one_contribution_begins_right_before_it() -> None:
    """No loop of it is left to stand before, where its elements are those of other loops."""
    tensors = {"a": "float32[8]", "b": "float32[8]", "c": "float32[8]"}
    sums = {"do": "b[i] += a[i] * a[7 - i]", "loops": {"i": 8}}
    folded = make("folded", tensors, [sums, "c[i] = b[i] + 1.0"])
    s = start(folded, "cpu")
    s.compute_at("b", "c_i")
    assert s.decompose_reduction("b") == "b_init"
    text = str(s)
    assert text.index("b[c_i] = 0.0") < text.index("b[c_i] +=") < text.index("c[c_i] =")
    again = start(folded, "cpu").replay(s.trace())
    assert str(again) == text
