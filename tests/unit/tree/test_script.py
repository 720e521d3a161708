"""Scripts: what a schedule writes, reading repeats; anything else is refused with its line."""

from __future__ import annotations

import pytest

from hwgen import HwgenError
from hwgen.polyhedral.schedule import script
from hwgen.polyhedral.schedule.history import VIEWS
from hwgen.polyhedral.schedule.primitives import Primitives
from hwgen.polyhedral.schedule.schedule import Schedule
from hwgen.polyhedral.schedule.script import Edit, write
from hwgen.polyhedral.schedule.stage_view import StageView
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
        ("s.split('i', 1, 2, 3)", 1, "factors is 3"),
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


WORDS = {
    "factors": "o, m, i = s.split('k', factors=[None, 4, 2])\ns.reorder(m, o)",
    "of a stage": "o, i = s['c'].split('i', factor=4)\nt = s['c'].split('j', factors=[2, None])\n"
    "s.unroll(i)",
    "loops": "i, j, k = s.get_loops('c')\ns.reorder(k, i, j)",
    "block": "b = s.get_block('c')\nx = s.get_loops(b)\ns.reorder(x[2], x[0], x[-2])",
    "axis": "i, j = s['c'].axis\n(k,) = s['c'].reduce_axis\ns.reorder(k, j, i)\n"
    "all = s['c'].loops\n"
    "s.parallel(all[2])",
    "annotate": "s['c'].unroll('k')\ns.annotate('i', 'pragma_unroll', 4)\n"
    "s['c'].pragma('j', 'unroll', 2)",
    "rfactor": "p = s.rfactor('c', 'k', factor_axis=1)\ns[p].compute_root()",
    "compute_at": "a = s.cache_read('a', 'stack', 'c')\ns[a].compute_at(s['c'], 'k')",
    "predicate": "s['c'].set_store_predicate('i >= 0')",
}  # fmt: skip


@pytest.mark.parametrize("words", WORDS)
def test_scripts_take_the_words_of_schedules(words: str) -> None:
    """A line means the same as in Python."""
    python, read = start(MATMUL), start(MATMUL)
    exec(WORDS[words], {"s": python})
    assert read.replay(WORDS[words]).trace() == python.trace() != ""
    assert str(start(MATMUL).replay(read.trace())) == str(python)


def test_a_script_follows_what_is_read() -> None:
    text = "o, i = s['b'].split('i', factor=16)\ns['c'].reverse_compute_at(s['b'], o)\n"
    python = start(CHAIN)
    exec(text, {"s": python})
    assert start(CHAIN).replay(text).trace() == python.trace()
    assert start(CHAIN).replay(text.replace("s['c'].", "s.").replace("(s['b'],", "('c',")).trace()


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("s['c'].split('i')", "split takes either factor or nparts"),
        ("s['c'].split()", "missing a required argument: 'loop'"),
        ("s['c'].unroll('i', nonsense=1)", "nonsense"),
        ("s.get_loops()", "missing a required argument: 'stage'"),
        ("s['c'].cache_read('a')", "no primitive cache_read"),
        ("s['c'].undo()", "no primitive undo"),
        ("s['c'].__init__()", "no primitive __init__"),
        ("s['c'].schedule.undo()", "s.PRIMITIVE"),
        ("x = s['c'].schedule", "no primitive schedule"),
        ("s.axis", "calls of primitives"),
        ("x = s.state", "s.PRIMITIVE"),
        ("s['x'].unroll('i')", "H414"),
        ("s[0].unroll('i')", 's["STAGE"]'),
        ("s[x].unroll('i')", "write 'x' in quotes"),
        ("t['c'].unroll('i')", 's["STAGE"]'),
        ("s['c']['d'].unroll('i')", 's["STAGE"]'),
        ("x = s.get_loops('c')\ns.unroll(x[3])", "counted from 0"),
        ("x = s.get_loops('c')\ns.unroll(x['a'])", "counted from 0"),
        ("x = s.get_loops('c')\ns.unroll(x[0][0])", "strings, numbers"),
        ("i, j = s['c'].loops", "2 names for 3 results"),
    ],
)
def test_other_words_in_scripts_are_refused(line: str, found: str) -> None:
    s = start(MATMUL)
    with pytest.raises(HwgenError) as caught:
        s.replay(line)
    assert found in str(caught.value)
    assert str(caught.value).startswith(f"script:{line.count(chr(10)) + 1}:")
    assert s.trace() == ""


def test_every_word_is_of_the_table() -> None:
    """Schedules and their stages have no words that scripts do not know, but those that print."""
    own = {n for c in (Schedule, Primitives) for n in vars(c) if not n.startswith("_")}
    assert own == {*script.WORDS, "mod", "show"}
    views = {n for n in vars(StageView) if not n.startswith("_")}
    assert views - {*script.WORDS} == {*VIEWS, "schedule", "tensor", "loop"}


def test_an_edit_of_a_line_of_several_is_blamed_at_it() -> None:
    with pytest.raises(HwgenError) as caught:
        start(MATMUL).replay(
            "\no, m, i = s.split('k', factors=[2, None, 4])\ns.parallel(m)\n", "x.py"
        )
    assert str(caught.value).startswith("x.py:3:1: error[H412]")
