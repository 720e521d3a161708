"""Workloads: sizes, roles, loops, bounds, writes; YAML and Python give the same."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import hwgen
from hwgen.errors import HwgenError
from hwgen.polyhedral.dependences import dependences
from hwgen.polyhedral.scop import build_scop
from hwgen.spec.load import load_workload
from hwgen.spec.source import read_document
from hwgen.spec.workload import Workload
from hwgen.spec.workload_resolve import POLYHEDRAL_WORDS

ROOT = Path(__file__).parents[3]
Given = str | Mapping[str, object]
WORKLOADS = sorted((ROOT / "workloads").glob("*.yaml"))


def make(
    compute: list[Given] | str, sizes: dict[str, int | str] | None = None, **tensors: str
) -> Workload:
    statements = [compute] if isinstance(compute, str) else compute
    return hwgen.workload("test", sizes=sizes, tensors=tensors, compute=statements)


def code(
    compute: list[Given] | str, sizes: dict[str, int | str] | None = None, **tensors: str
) -> str:
    with pytest.raises(HwgenError) as caught:
        make(compute, sizes, **tensors)
    return caught.value.code


@pytest.mark.parametrize("path", WORKLOADS, ids=lambda p: p.stem)
def test_python_and_json_equal_yaml(path: Path, tmp_path: Path) -> None:
    data = read_document(path).data
    assert isinstance(data, dict)
    loaded = load_workload(path)
    arguments: dict[str, Any] = {k: v for k, v in data.items() if k != "hwgen"}
    assert hwgen.workload(**arguments) == loaded
    (tmp_path / "w.json").write_text(json.dumps(data), encoding="utf-8")
    assert load_workload(tmp_path / "w.json") == loaded


def test_gemm() -> None:
    gemm = load_workload(ROOT / "workloads/gemm.yaml", {"M": 17})
    assert gemm.sizes == (("M", 17), ("N", 256), ("K", 256))
    assert [(t.name, t.dtype, t.shape, t.role, t.constant) for t in gemm.tensors] == [
        ("a", "int8", (17, 256), "input", False),
        ("b", "int8", (256, 256), "input", True),
        ("acc", "int32", (17, 256), "intermediate", False),
        ("c", "int8", (17, 256), "output", False),
    ]
    assert gemm.statements[0].loops == (("m", 17), ("n", 256), ("k", 256))
    assert str(gemm.statements[1]) == "c[m, n] = int8(acc[m, n])"


@pytest.mark.parametrize(
    ("sizes", "height"),
    [({}, 56), ({"H": 7}, 7), ({"S": 2}, 28), ({"P": 0}, 54), ({"OH": 10}, 10), ({"P": 3}, 60)],
)
def test_sizes_that_depend_on_sizes(sizes: dict[str, int], height: int) -> None:
    conv = load_workload(ROOT / "workloads/conv2d.yaml", sizes)
    assert conv.tensor["y"].shape[2] == height


def test_numbers_in_indices_are_folded() -> None:
    conv = load_workload(ROOT / "workloads/conv2d.yaml")
    assert str(conv.statements[1].value) == "xp[n, c, i + r, j + s] * w[o, c, r, s]"
    conv = load_workload(ROOT / "workloads/conv2d.yaml", {"P": 0, "S": 2})
    assert str(conv.statements[0].value).endswith("x[n, c, h, w], 0)")
    assert str(conv.statements[1].value) == "xp[n, c, i * 2 + r, j * 2 + s] * w[o, c, r, s]"


def test_default_loops_follow_the_target_then_appearance() -> None:
    w = make("y[j, i] += x[k, i] * z[l, k, j]", x="int8[2, 3]", z="int8[4, 2, 5]", y="int32[5, 3]")
    assert w.statements[0].loops == (("j", 5), ("i", 3), ("k", 2), ("l", 4))


def test_a_loop_that_the_target_indexes_has_the_targets_extent() -> None:
    w = make("c[i] = b[i] + b[i + 2]", b="float32[8]", c="float32[6]")
    assert w.statements[0].loops == (("i", 6),)
    w = make("c[i] += b[i, k] * a[i, k]", a="int8[4, 3]", b="int8[8, 3]", c="int32[4]")
    assert w.statements[0].loops == (("i", 4), ("k", 3))


@pytest.mark.parametrize(
    ("statement", "a"),
    [
        ("c[i] = a[i]", "int32[3]"),
        ("c[i] += a[k] * b[k]", "int8[4]"),
        ("c[i] += a[i] * b[k] * a[k]", "int8[6]"),
    ],
)
def test_extents_that_disagree(statement: str, a: str) -> None:
    """What is read is smaller than the target, or a sum runs over two extents."""
    tensors = {"a": a, "c": "int32[6]"} | ({"b": "int8[8]"} if "b[" in statement else {})
    assert code(statement, None, **tensors) == "H217"


def test_an_index_that_takes_all_of_the_targets_two_dimensions() -> None:
    assert code("c[i, i] = a[i]", a="int32[6]", c="int32[4, 6]") == "H217"


@pytest.mark.parametrize(
    "statement",
    [
        "y[i] = select(x[i] < 0.5, 1, 0)",
        "y[i] = select(x[i] < 0.5, 1, 0) + 2",
        "y[i] = select(i < 300, 1, 0)",
        "y[i] = select(x[i] < 1e30, select(x[i] > 2.5, 3, 2), 0)",
    ],
)
def test_numbers_of_a_condition_are_not_those_of_the_value(statement: str) -> None:
    tensors = {"y": "int32[8]" if "+" in statement else "uint8[8]"}
    make(statement, None, **tensors | ({"x": "float32[8]"} if "x[" in statement else {}))


@pytest.mark.parametrize("number", ["0.5", "300", "-1"])
def test_numbers_of_the_value_are(number: str) -> None:
    assert code(f"y[i] = select(x[i] < 0.5, 1, {number})", x="float32[8]", y="uint8[8]") == "H219"


def test_explicit_loops_fix_order_and_may_add_unit_loops() -> None:
    statement: Given = {"do": "y[i] += x[i, k]", "loops": {"u": 1, "k": "K", "i": 4}}
    w = make([statement], {"K": 3}, x="int8[4, 3]", y="int32[4]")
    assert w.statements[0].loops == (("u", 1), ("k", 3), ("i", 4))


def test_a_loop_may_be_called_as_a_tensor() -> None:
    w = make("y[x] = x[x]", x="int8[4]", y="int8[4]")
    assert w.statements[0].loops == (("x", 4),)


@pytest.mark.parametrize(
    ("statement", "accepted"),
    [
        ("y[i] = select(i >= 1, x[i - 1], 0)", True),
        ("y[i] = select(i > 1, x[i - 1], 0)", True),
        ("y[i] = select(i >= 0, x[i - 1], 0)", False),
        ("y[i] = select(i < 1, 0, x[i - 1])", True),
        ("y[i] = select(not (i < 1), x[i - 1], 0)", True),
        ("y[i] = select(i < 7 and i % 2 == 0, x[i + 1], 0)", True),
        ("y[i] = select(i < 7 or i % 2 == 0, x[i + 1], 0)", False),
        ("y[i] = select(i != 7, x[i + 1], x[i])", True),
        ("y[i] = select(i == 7, x[i - 7], x[i + 1])", True),
        ("y[i] = select(i > 2, select(i < 6, x[i + 2] + x[i - 3], 0), 0)", None),
        ("y[i] = select(2*i <= 7, x[2*i], 0)", True),
        ("y[i] = select(2*i <= 8, x[2*i], 0)", False),
        ("y[i] = select(x[i + 1] > 0, 1, 0)", False),
    ],
)
def test_guards(statement: str, accepted: bool | None) -> None:
    if accepted is None:
        # x[i + 2] is int8, their sum int32: the type is what is wrong, not the bounds.
        assert code(statement, x="int8[8]", y="int8[8]") == "H219"
    elif accepted:
        make(statement, x="int8[8]", y="int8[8]")
    else:
        assert code(statement, x="int8[8]", y="int8[8]") == "H218"


def test_guards_over_several_loops() -> None:
    sizes: dict[str, int | str] = {"H": 9, "R": 3, "P": 1}
    guard = "i + r >= P and i + r < H + P"
    tensors = {"x": "int8[H]", "w": "int8[R]", "y": "int32[H]"}
    make(f"y[i] += select({guard}, x[i + r - P], 0) * w[r]", sizes, **tensors)
    off = guard.replace("<", "<=")
    assert code(f"y[i] += select({off}, x[i + r - P], 0) * w[r]", sizes, **tensors) == "H218"
    # The guard bounds i + r, the index is 2i + 2r: parallel, so still exact.
    make(
        "y[i] += select(i + r < 5, x[2*i + 2*r - 2*P + 2 - 2], 0) * w[r]",
        sizes | {"P": 0},
        **tensors,
    )


@pytest.mark.parametrize(
    ("statement", "accepted"),
    [
        ("y[i] = x[i]", True),
        ("y[7 - i] = x[i]", True),
        ("y[4*j + k] = z[j, k]", True),
        ("y[3*j + k] = z[j, k]", False),
        ("y[j + k] = z[j, k]", False),
        ("y[j + 2*k] = z[j, k]", True),
    ],
)
def test_assignments_write_each_element_once(statement: str, accepted: bool) -> None:
    tensors = {"x": "int8[8]", "z": "int8[2, 4]", "y": "int8[8]"}
    used = {n: t for n, t in tensors.items() if f"{n}[" in statement}
    loops = {"i": 8} if "i]" in statement else {"j": 2, "k": 4}
    spelt: Given = {"do": statement, "loops": dict(loops)}
    if accepted:
        make([spelt], None, **used)
    else:
        assert code([spelt], None, **used) == "H224"


def test_joint_indices_determine_the_loops() -> None:
    spelt: Given = {"do": "y[i, i + j] = x[i, j]", "loops": {"i": 3, "j": 3}}
    assert code([spelt], x="int8[3, 3]", y="int8[3, 5]") == "H225"  # written once, not wholly


def test_roles() -> None:
    w = make(
        ["t[i] = x[i]", "t[i] = max(t[i], b[i])", "y[i] = t[i]", "z[i] = x[i]"],
        x="int8[4]", b="int8[4]", t="int8[4]", y="int8[4]", z="int8[4]",
    )  # fmt: skip
    assert {t.name: t.role for t in w.tensors} == {
        "x": "input", "b": "input", "t": "intermediate", "y": "output", "z": "output",
    }  # fmt: skip
    assert [t.name for t in w.inputs] == ["x", "b"]
    assert [t.name for t in w.outputs] == ["y", "z"]


def test_an_output_may_be_written_in_pieces() -> None:
    compute: list[Given] = [
        {"do": "y[i] = x[i]", "loops": {"i": 4}},
        {"do": "y[i + 4] = 0", "loops": {"i": 4}},
    ]
    assert make(compute, x="int8[4]", y="int8[8]").tensor["y"].role == "output"


def test_errors_in_python_have_no_line_but_a_field() -> None:
    with pytest.raises(HwgenError) as caught:
        make("y[i] = x[j]", x="int8[4]", y="int32[4]")
    assert str(caught.value.diagnostic.location) == "<python>"
    assert caught.value.diagnostic.field == "compute[0]"


def test_a_value_that_is_not_data() -> None:
    with pytest.raises(HwgenError) as caught:
        hwgen.workload("test", tensors={"x": {"type": object()}}, compute=[])
    assert caught.value.code == "H032"


def test_the_package_exports_lazily() -> None:
    assert hwgen.HwgenError is HwgenError
    assert hwgen.load_workload is load_workload
    with pytest.raises(AttributeError):
        _ = vars(hwgen)["__getattr__"]("nothing")


def test_infinity_is_a_float() -> None:
    sizes = {"M": 4}
    made = hwgen.workload(
        "test",
        sizes=sizes,
        tensors={"x": "float32[M]", "y": "float32[M]"},
        compute=["y[i] = max(x[i], -inf)"],
    )
    assert str(made.statements[0].value) == "max(x[i], -inf)"
    for tensors, statement, code in (
        ({"x": "int32[M]", "y": "int32[M]"}, "y[i] = max(x[i], -inf)", "H219"),
        ({"x": "float32[M]", "inf": "float32[M]"}, "inf[i] = x[i]", "H204"),
        ({"x": "float32[M]", "y": "float32[M]"}, "y[i] = x[inf]", "H215"),
    ):
        with pytest.raises(HwgenError) as caught:
            hwgen.workload("test", sizes=sizes, tensors=tensors, compute=[statement])
        assert caught.value.code == code


@pytest.mark.parametrize(
    "word", sorted({*POLYHEDRAL_WORDS, "NaN", "Exists"} - {"and", "or", "not"})
)
def test_loops_are_not_called_as_words_of_isl(word: str) -> None:
    text = f"y[{word}] += x[{word}, k]"
    for statement in (text, {"do": text, "loops": {word: 4, "k": 8}}):
        with pytest.raises(HwgenError) as caught:
            hwgen.workload(
                "test",
                tensors={"x": "float32[4, 8]", "y": "float32[4]"},
                compute=[statement],
            )
        assert caught.value.code == "H204"


@pytest.mark.parametrize("word", ["mod_", "int", "lcm", "sym", "def", "for", "T", "A"])
def test_other_words_are_loops(word: str) -> None:
    made = hwgen.workload(
        "test",
        tensors={"x": "float32[4, 8]", "y": "float32[4]"},
        compute=[f"y[{word}] += x[{word}, k]"],
    )
    assert word in str(dependences(build_scop(made)))


def test_tensors_may_be_called_as_words_of_isl() -> None:
    made = hwgen.workload(
        "test",
        tensors={"exists": "float32[4, 8]", "mod": "float32[4]"},
        compute=["mod[i] += exists[i, k]"],
    )
    assert "S0_init[i] -> S0[" in str(dependences(build_scop(made)).binding)
