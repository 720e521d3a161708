"""`compute_at` in any order of lines: what a stage's loops were made into comes with it."""

from __future__ import annotations

import pytest

from hwgen.errors import HwgenError
from hwgen.pipeline import compile_kernel
from hwgen.spec.expression import Const, Name, add
from hwgen.spec.load import load_hardware
from tests.unit.tree.toy import CHAIN, MATMUL, ROOT, make, start

CACHE = "c_local = s.cache_write('c', 'local')\n"
TILES = "c_0_o, c_1_o, c_0_i, c_1_i = s.tile('c_0', 'c_1', 16, 16)\n"
SUM = "k_o, k_i = s.split('k', factor=8)\ns.reorder(k_o, 'i', 'j', k_i)\n"
PLACE = "s.compute_at(c_local, c_1_o)\n"
LOAD = "a_local = s.cache_read('a', 'local')\ns.compute_at(a_local, k_o)\n"


def shown(script: str) -> list[str]:
    """The buffers, in any order, and the loops."""
    lines = str(start(MATMUL, "npu").replay(script)).splitlines()
    loops = next(n for n, line in enumerate(lines) if line.startswith("for "))
    return [*sorted(lines[:loops]), *lines[loops:]]


@pytest.mark.parametrize(
    "script",
    [
        CACHE + SUM + TILES + PLACE + LOAD,
        CACHE + SUM + LOAD + TILES + PLACE,
        SUM + CACHE + LOAD + TILES + PLACE,
        SUM + LOAD + CACHE + TILES + PLACE,
    ],
)
def test_it_may_come_before_or_after_its_stages_loops_are_edited(script: str) -> None:
    assert shown(script) == shown(CACHE + TILES + PLACE + SUM + LOAD)


def test_lines_stay_as_they_were_written() -> None:
    script = CACHE + SUM + LOAD + TILES + PLACE
    s = start(MATMUL, "npu").replay(script)
    assert s.trace() == script
    before = start(MATMUL, "npu").replay(script.removesuffix(PLACE))
    s.undo()
    assert str(s) == str(before)
    with pytest.raises(HwgenError) as caught:
        start(MATMUL, "npu").replay(script + "s.split('c_0', factor=2)", "mine.py")
    place = caught.value.diagnostic.location
    assert (caught.value.code, place and place.line) == ("H414", script.count("\n") + 1)


def test_loops_of_one_iteration_can_still_be_named() -> None:
    s = start(CHAIN)
    s.compute_at("b", "c_j")  # one element
    assert "b_j" not in s.loops()
    assert "j" not in s.loops()
    outer, inner = s.split("j", factor=4)
    assert (s.extent(outer), s.extent(inner)) == (1, 4)
    assert str(start(CHAIN).replay(s.trace())) == str(s)


def test_a_refused_edit_leaves_no_loop_of_one_iteration() -> None:
    s = start(CHAIN)
    s.compute_at("b", "c_j")
    before = str(s)
    with pytest.raises(HwgenError):
        s.fuse("j", "c_i")
    assert str(s) == before


def test_what_sums_several_loops_into_one_is_placed_anew() -> None:
    """`rfactor` makes another stage of one: that comes before, as it did."""
    s = start(MATMUL)
    k_o, _ = s.split("k", factor=8)
    partial = s.rfactor("c", k_o)
    s.compute_at(partial, "c_j")
    assert partial in s.buffers()


def test_a_sum_is_decomposed_outside_of_its_call() -> None:
    script = "s.tensorize('c', 'matmul')\ns.decompose_reduction('c', 'k')\n"
    other = "s.decompose_reduction('c', 'k')\ns.tensorize('c', 'matmul')\n"
    assert shown(script) == shown(other)


@pytest.mark.parametrize(
    ("read", "box", "first"),
    [
        ("a[63, k] * w[k]", (1, 48), (63, 0)),
        ("a[i + 8, k] * w[k]", (16, 48), (8, 0)),
        ("a[i, 5] * w[k]", (16, 1), (0, 5)),
        ("a[2, 5] * w[k]", (1, 1), (2, 5)),
        ("a[i + 8, k] * a[5, k] * w[k]", (19, 48), (5, 0)),
        ("select(i >= 100, a[i - 100, k], w[k])", (1, 48), (0, 0)),  # Of these it reads none.
        ("select(i < 0, a[i + 200, k], w[k])", (1, 48), (63, 0)),
    ],
)
def test_a_copy_holds_what_is_read(read: str, box: tuple[int, ...], first: tuple[int, ...]) -> None:
    tensors = {"a": "float32[64, 48]", "w": "float32[48]", "c": "float32[16]"}
    s = start(make("rows", tensors, [f"c[i] += {read}"]), "npu")
    copy = s.cache_read("a", "local")
    stage = s.state.stage[copy]
    assert tuple(e for _, e in stage.iterators) == box
    assert stage.target.indices == tuple(
        add(Name(n), Const(low)) for (n, _), low in zip(stage.iterators, first, strict=True)
    )


@pytest.mark.parametrize("chip", ["npu_shared_buffer", "vtcm_two_banks"])
@pytest.mark.parametrize(
    ("x", "read", "y"),
    [
        ("[64, 64]", "x[63, k]", "[1, 64]"),  # The last of a sequence.
        ("[8, 16, 64]", "x[m, 0, k]", "[8, 64]"),  # The first of each.
        ("[16, 192]", "x[m, 64 + k]", "[16, 64]"),  # The second of three parts.
    ],
)
def test_a_part_of_a_tensor_crosses_the_bus_alone(chip: str, x: str, read: str, y: str) -> None:
    tensors = {"x": f"float32{x}", "w": "float32[64, 64]", "y": f"float32{y}"}
    workload = make("part", tensors, [f"y[m, n] += {read} * w[k, n]"])
    made = compile_kernel(workload, load_hardware(ROOT / "hw_specs" / f"{chip}.yaml"))
    rows = workload.tensor["y"].shape[0]
    assert made.offchip_bytes == 4 * (rows * 64 + 64 * 64 + rows * 64)
