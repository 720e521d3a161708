"""What the primitives take: one declaration, the same refusals from Python and from scripts."""

from __future__ import annotations

import copy
import inspect
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from hwgen import HwgenError
from hwgen.polyhedral.schedule.schedule import Schedule
from hwgen.polyhedral.schedule.script import PRIMITIVES
from tests.unit.tree.toy import MATMUL, start

SAMPLES: dict[str, Any] = {
    "str": "i",
    "Sequence[int]": [2],
    "int": 2,
    "bool": False,
    "Sequence[str]": ["i"],
}
NEVER: tuple[Any, ...] = (
    2.0,
    1e300,
    [[["i"]]],
    {"i": 1},
    object(),
    np.zeros(3),
    np.float32(2),
    b"i",
)
"""What no argument of any primitive may be."""


def _parameters(primitive: str) -> list[inspect.Parameter]:
    return list(inspect.signature(getattr(Schedule, primitive)).parameters.values())[1:]


def _sample(parameter: inspect.Parameter) -> object:
    return next(v for kind, v in SAMPLES.items() if kind in str(parameter.annotation))


def _call(primitive: str, wrong: inspect.Parameter, value: object) -> str:
    """What a primitive says where one argument is replaced."""
    s = start(MATMUL)
    given: list[object] = []
    named: dict[str, object] = {}
    for parameter in _parameters(primitive):
        mine = value if parameter.name == wrong.name else _sample(parameter)
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY:
            named[parameter.name] = mine
        else:
            given.append(mine)
    with pytest.raises(HwgenError) as caught:
        getattr(s, primitive)(*given, **named)
    assert caught.value.code == "H418"
    assert s.trace() == ""
    return caught.value.diagnostic.found


@pytest.mark.parametrize("primitive", PRIMITIVES)
def test_wrong_arguments_are_refused(primitive: str) -> None:
    for parameter in _parameters(primitive):
        annotation = str(parameter.annotation)
        wrong = [*NEVER]
        wrong += [None] * ("None" not in annotation)
        wrong += [True, np.True_] * ("bool" not in annotation)
        wrong += [3, np.int64(3)] * ("int" not in annotation)
        wrong += [["i"], ("i",)] * ("Sequence" not in annotation)
        wrong += ["i"] * ("str" not in annotation)
        for value in wrong:
            assert _call(primitive, parameter, value).startswith(f"{parameter.name} is ")
    with pytest.raises(HwgenError) as caught:
        getattr(start(MATMUL), primitive)(nonsense=1)
    assert caught.value.code == "H418"


def test_calls_and_scripts_refuse_with_the_same_words() -> None:
    def said(edit: Callable[[Schedule], object]) -> tuple[str, ...]:
        with pytest.raises(HwgenError) as caught:
            edit(start(MATMUL))
        d = caught.value.diagnostic
        return d.code, d.message, d.found, d.allowed, d.repair

    wrong: Any = 2.5
    assert said(lambda s: s.tile("i", "j", 4, wrong)) == said(
        lambda s: s.replay("s.tile('i', 'j', 4, 2.5)")
    )
    assert said(lambda s: s.tile("i", "j", 4, wrong))[2:4] == (
        "y_factor is 2.5",
        "tile(x: str, y: str, x_factor: int, y_factor: int) -> tuple[str, str, str, str]",
    )


@pytest.mark.parametrize("factor", [np.int8(4), np.int64(4), np.uint16(4), np.array(4)])
def test_integers_of_any_type_are_numbers(factor: Any) -> None:
    s = start(MATMUL)
    s.split("i", factor=factor)
    assert s.trace() == "i_o, i_i = s.split('i', factor=4)\n"


def test_other_texts_and_sequences_are_plain() -> None:
    name: Any = np.str_("i")
    s = start(MATMUL)
    s.split(name, factor=4)
    readers: Any = ("c",)
    s.cache_read("a", "stack", readers)
    assert s.trace() == (
        "i_o, i_i = s.split('i', factor=4)\na_stack = s.cache_read('a', 'stack', readers=['c'])\n"
    )


def test_an_argument_stands_once() -> None:
    with pytest.raises(HwgenError) as caught:
        start(MATMUL).replay("s.split('i', factor=2, factor=3)")
    assert (caught.value.code, caught.value.diagnostic.found) == ("H418", "factor twice")


@pytest.mark.parametrize(
    "line",
    [
        f"s.split('i', factor={'-' * 900}1)",
        f"s.split({'not ' * 900}1)",
        "s.split" + "()" * 900,
        f"x = {'lambda: ' * 900}1",
        "s" + ".a" * 3000 + "()",
        f"s.reorder({'[' * 150}'i'{']' * 150})",
        f"s.split('i', factor={'1 + ' * 3000}1)",
    ],
)
def test_deep_text_is_no_script(line: str) -> None:
    with pytest.raises(HwgenError) as caught:
        start(MATMUL).replay(line, "my.txt")
    assert caught.value.code == "H418"
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize(
    "line",
    [
        f"s.set_store_predicate('c', '{'-' * 900}i == 0')",
        f"s.transform_layout('a', '[i, k] -> [{'-' * 900}i, k]')",
    ],
)
def test_deep_expressions_of_a_script_are_refused_with_its_line(line: str) -> None:
    with pytest.raises(HwgenError) as caught:
        start(MATMUL).replay(f"\n{line}", "my.txt")
    assert caught.value.code == "H023"
    assert str(caught.value.diagnostic.location) == "my.txt:2:1"


def test_what_an_undone_edit_returned_is_refused() -> None:
    s = start(MATMUL)
    outer, inner = s.split("k", factor=4)
    s.undo()
    again, _ = s.split("k", factor=16)
    assert again == outer

    def reorder(name: str) -> None:
        s.reorder("i", name)

    uses: tuple[Callable[[str], object], ...] = (s.unroll, s.extent, s.loops, s.describe, reorder)
    for use in uses:
        with pytest.raises(HwgenError) as caught:
            use(inner)
        assert caught.value.code == "H414"
        assert caught.value.diagnostic.found == "k_o, k_i = s.split('k', factor=4)"
    s.unroll(str(inner))
    assert s.trace() == "k_o, k_i = s.split('k', factor=16)\ns.unroll(k_i)\n"


def test_what_a_refused_batch_returned_is_refused() -> None:
    s = start(MATMUL)
    kept: list[str] = []

    def refused() -> None:
        with s.batch():
            kept.extend(s.split("k", factor=4))
            s.parallel(kept[0])

    with pytest.raises(HwgenError):
        refused()
    s.split("k", factor=16)
    with pytest.raises(HwgenError, match="H414"):
        s.unroll(kept[1])


def test_what_holds_edits_returned_stays_usable() -> None:
    s = start(MATMUL)
    outer, inner = s.split("k", factor=4)
    s.unroll(inner)
    s.undo()
    assert s.extent(inner) == 4
    other = start(MATMUL).replay(s.trace())
    assert other.extent(outer) == s.extent(outer)
    assert {outer, str(outer)} == {"k_o"}
    for same in (pickle.loads(pickle.dumps(outer)), copy.deepcopy(outer)):
        assert (type(same), same) == (str, "k_o")


def test_homes_cannot_be_changed() -> None:
    homes: Any = start(MATMUL).homes
    with pytest.raises(TypeError):
        homes["c"] = ("i",)
