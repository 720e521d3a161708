"""Words of other schedulers: each is primitives, which the trace shows and scripts take."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from textwrap import dedent

import pytest

import hwgen
from hwgen.spec.declared import DeclaredIntrinsic
from tests.unit.tree.toy import ROOT

CPU = hwgen.load_hardware(ROOT / "hw_specs" / "cpu_generic.yaml")
CUDA = hwgen.load_hardware(ROOT / "hw_specs" / "cuda_generic.yaml")
LAYER = hwgen.workload(
    "layer",
    tensors=dict.fromkeys(("a", "c", "d"), "float32[64, 48]") | {"b": "float32[48, 48]"},
    compute=["c[i, j] += a[i, k] * b[k, j]", "d[i, j] = max(c[i, j], 0)"],
)
SUM = hwgen.workload(
    "sum", tensors={"a": "float32[64, 48]", "b": "float32[64]"}, compute=["b[i] += a[i, k]"]
)


def traced(edit: Callable[[hwgen.Schedule], object], workload: object = LAYER) -> list[str]:
    assert isinstance(workload, type(LAYER))
    s = hwgen.Schedule(workload, CPU)
    edit(s)
    again = hwgen.Schedule(workload, CPU).replay(s.trace())
    assert str(again) == str(s)
    return s.trace().splitlines()


def refused(edit: Callable[[hwgen.Schedule], object], chip: object = CPU) -> str:
    assert isinstance(chip, type(CPU))
    s = hwgen.Schedule(LAYER, chip)
    with pytest.raises(hwgen.HwgenError) as caught:
        edit(s)
    assert s.trace() == ""
    return f"{caught.value.code} {caught.value.diagnostic.message}"


def test_a_stage_knows_its_loops_by_their_own_names() -> None:
    s = hwgen.Schedule(LAYER, CPU)
    assert (s["c"].axis, s["c"].reduce_axis) == (("i", "j"), ("k",))
    assert s["d"].axis == s["d"].loops == s.get_loops(s.get_block("d")) == ("d_i", "d_j")
    assert traced(lambda s: s["d"].split("j", factor=8)) == [
        "d_j_o, d_j_i = s.split('d_j', factor=8)"
    ]
    assert traced(lambda s: s["c"].compute_at(s["d"], "i")) == ["s.compute_at('c', 'd_i')"]
    assert refused(lambda s: s["e"]) == "H414 no stage e"
    assert refused(lambda s: s["d"].unroll("k")) == "H414 d is in no loop k"
    assert refused(lambda s: s["d"].unroll("q")) == "H414 no loop q"


@pytest.mark.parametrize(
    ("factors", "extents"),
    [([None, 4, 2], (6, 4, 2)), ([2, None, 4], (2, 6, 4)), ([3, 4, None], (3, 4, 4)),
     ([6, 8], (6, 8)), ([None, 20], (3, 20))],
)  # fmt: skip
def test_factors_split_at_once(factors: list[int | None], extents: tuple[int, ...]) -> None:
    s = hwgen.Schedule(LAYER, CPU)
    made = s["c"].split("k", factors=factors)
    assert tuple(s.extent(n) for n in made) == extents
    assert tuple(made) == s.loops("c")[2:]
    assert str(hwgen.Schedule(LAYER, CPU).replay(s.trace())) == str(s)


@pytest.mark.parametrize("factors", [[], [None], [None, None], [5, 8], [0, None], [None, 0]])
def test_factors_that_do_not_make_up_a_loop_are_refused(factors: list[int | None]) -> None:
    assert refused(lambda s: s.split("k", factors=factors)).startswith("H413")


def test_a_reader_follows_what_it_reads() -> None:
    def edit(s: hwgen.Schedule) -> None:
        _, j_o, _, _ = s["c"].tile("i", "j", 16, 8)
        s["d"].reverse_compute_at(s["c"], j_o)
        assert s.homes["c"] == ("i_o", "j_o")

    assert traced(edit)[1:] == [
        "d_i_o, d_i_i = s.split('d_i', factor=16)",
        "d_j_o, d_j_i = s.split('d_j', factor=8)",
        "s.reorder(d_i_o, d_j_o, d_i_i, d_j_i)",
        "i_o = s.merge(i_o, d_i_o)",
        "j_o = s.merge(j_o, d_j_o)",
    ]
    assert refused(lambda s: s.reverse_compute_at("d", "k")) == "H413 nothing can follow c in k"
    assert refused(lambda s: s.reverse_compute_at("c", "d_i")).startswith("H413 c cannot be")


def test_coordinates_name_the_loops_bound_to_them() -> None:
    s = hwgen.Schedule(SUM, CUDA)
    outer, inner = s.split("k", factor=2)
    s.bind("i", "blockIdx.x")
    s.bind(outer, "threadIdx.x")
    s.bind(inner, "vthread")
    s.set_store_predicate("b", "threadIdx.x == 0")
    assert s.trace().splitlines()[-2:] == [
        "s.unroll(k_i)", "s.set_store_predicate('b', 'k_o == 0')",
    ]  # fmt: skip
    where = refused(lambda s: s.set_store_predicate("d", "threadIdx.x == 0"), CUDA)
    assert where == "H413 no loop around d is bound to threadIdx.x"


def test_other_words_for_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    assert traced(lambda s: s.annotate("k", "pragma_unroll", 4)) == ["s.pragma('k', 'unroll', 4)"]
    both = [traced(lambda s: s.rfactor("b", "k", 1), SUM),
            traced(lambda s: s.rfactor("b", "k", factor_axis=1), SUM)]  # fmt: skip
    assert both[0] == both[1]
    s = hwgen.Schedule(SUM, CPU)
    s.mod.show()
    assert capsys.readouterr().out == f"{s}\n"


def gemv(definitions: str = "") -> DeclaredIntrinsic:
    """That of `tests/specs/cpu_gemv.yaml`."""
    return hwgen.intrinsic(
        "gemv",
        iterators={"i": 16, "k": 64},
        semantics="y[i] += a[i, k] * x[k]",
        operands={
            "y": {"memory": "any", "dtype": "float32", "strides": [1]},
            "a": {"memory": "any", "dtype": "float32", "strides": ["any", 1]},
            "x": {"memory": "any", "dtype": "float32", "strides": [1]},
        },
        cycles=128,
        emit="gemv_16x64({{ y.pointer }}, {{ a.pointer }}, {{ x.pointer }}, {{ a.stride[0] }});",
        definitions=definitions,
    )


def test_an_intrinsic_of_python_is_that_of_the_file(tmp_path: Path) -> None:
    """The same chip comes of both, and so the same of everything."""
    path = ROOT / "tests" / "specs" / "cpu_gemv.yaml"
    text = path.read_text(encoding="utf-8")
    declared, code = text.index("intrinsics:"), text.index("code:")
    definitions = text.index("  definitions: |\n")
    without = tmp_path / "cpu_gemv.yaml"
    without.write_text(text[:declared] + text[code:definitions], encoding="utf-8")
    given = gemv(dedent(text[definitions:].split("\n", 1)[1]))
    assert hwgen.load_hardware(without, intrinsics=[given]) == hwgen.load_hardware(path)
    assert hwgen.load_hardware(without).intrinsics == ()
    with pytest.raises(hwgen.HwgenError, match="H011"):
        hwgen.load_hardware(path, intrinsics=[gemv()])


def test_a_wrong_intrinsic_is_refused_as_in_a_file() -> None:
    wrong = hwgen.intrinsic("f", semantics="y[i] = x[j]", operands={}, emit="", iterators={"i": 4})
    with pytest.raises(hwgen.HwgenError) as caught:
        hwgen.load_hardware(ROOT / "hw_specs" / "cpu_generic.yaml", intrinsics=[wrong])
    assert (caught.value.diagnostic.field or "").startswith("intrinsics.f")


@pytest.mark.parametrize("section", ["intrinsics: [f]", "code: [1]", "code: {definitions: [1]}"])
def test_a_file_that_is_wrong_is_refused_with_intrinsics_too(tmp_path: Path, section: str) -> None:
    """For what it says, and not hidden by what is declared."""
    path = tmp_path / "chip.yaml"
    path.write_text(f"name: chip\nmemories: {{}}\n{section}\n", encoding="utf-8")
    with pytest.raises(hwgen.HwgenError) as caught:
        hwgen.load_hardware(path, intrinsics=[gemv()])
    fields = {d.field or "" for d in caught.value.diagnostics}
    assert any(f.startswith(section.partition(":")[0]) for f in fields), fields


def test_the_buffers_of_a_group_are_allocated_once() -> None:
    """Outside of the loops, however far inside they are used."""
    tensors = dict.fromkeys("abde", "float32[64, 64]") | {"f": "float32[64]"}
    compute = ["d[i, j] = a[i, j] + b[i, j]", "e[i, j] = d[i, j] + b[i, j]", "f[i] += e[i, k]"]
    workload = hwgen.workload("group", tensors=tensors, compute=compute)
    s = hwgen.Schedule(workload, CPU)
    s[s.create_group("e", ["a", "b"])].compute_at(s["f"], "k")
    text = hwgen.build(workload, CPU, script=s, auto=False).c
    assert text.count("aligned_alloc") == 1
    assert text.index("aligned_alloc") < text.index("for (")
