"""Orders of buffers and images: one position per element, few calls, the tensor's order seen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache, partial
from itertools import permutations, product
from math import prod
from pathlib import Path

import pytest
from hypothesis import assume, given, reject, settings
from hypothesis import strategies as st

import hwgen
from hwgen.codegen.layout import dense
from hwgen.codegen.lower.image_uses import packed_bytes
from hwgen.codegen.lower.place import Place
from hwgen.codegen.lower.program import Lowered
from hwgen.codegen.lower.trials import Trials
from hwgen.codegen.storages import Image
from hwgen.errors import HwgenError, Location, Tolerating
from hwgen.passes.phase import by_packing
from hwgen.passes.trees import compile_tree
from hwgen.polyhedral.match.matching import Match, match, ranked_matches
from hwgen.polyhedral.match.select import select
from hwgen.polyhedral.schedule.schedule import Schedule
from hwgen.polyhedral.scop import Scop, build_scop
from hwgen.polyhedral.search.choose import LIMITS
from hwgen.polyhedral.search.tiling import Tiling
from hwgen.polyhedral.search.tiling_script import apply_tiling
from hwgen.spec.expression import Const, Expr, Name, add, evaluate, multiply
from hwgen.spec.hardware import HardwareSpec
from hwgen.spec.load import load_hardware
from hwgen.spec.workload import Tensor
from tests.sampling import examples

SPECS = Path(__file__).parents[2] / "specs"
CHIPS = ("row_array", "token_rows", "block_rows")


@cache
def matched(name: str) -> tuple[Scop, HardwareSpec, Match]:
    """A product of odd sizes on one of the chips."""
    dtype, sums = ("float32", "float32") if name == "block_rows" else ("int8", "int32")
    workload = hwgen.workload(
        "product",
        tensors={"x": f"{dtype}[13, 17]", "w": f"{dtype}[17, 22]", "y": f"{sums}[13, 22]"},
        compute=["y[m, n] += x[m, k] * w[k, n]"],
    )
    hardware = load_hardware(SPECS / f"{name}.yaml")
    scop = build_scop(workload)
    return scop, hardware, match(scop, select(scop, hardware))[0]


@st.composite
def tilings(draw: st.DrawFn, name: str) -> Tiling:
    _, _, found = matched(name)
    tiles = {n: draw(st.integers(1, count)) for n, count in found.count.items()}
    order = tuple(draw(st.permutations([n for n in found.selection.spatial if n in tiles])))
    bare = Tiling(found, tuple(sorted(tiles.items())), order, (), ())
    loaded = {s for o in found.selection.operations if o.kind == "load" for s in o.storages}
    depths = {
        s.name: draw(st.integers(0, len(bare.loops))) if s.name in loaded else bare.spatial_depth
        for s in found.selection.storages
    }
    return Tiling(found, bare.tiles, order, tuple(depths.items()), tuple((n, 1) for n in depths))


def lowered(name: str, tiling: Tiling) -> Lowered:
    """The tree of a tiling, where it fits."""
    scop, hardware, _ = matched(name)
    schedule = Schedule(scop.workload, hardware)
    apply_tiling(schedule, scop, tiling)
    try:
        return compile_tree(schedule).lowering
    except HwgenError as error:
        if error.code in LIMITS:
            reject()
        raise


def buffers(made: Lowered) -> dict[str, Place]:
    return {p.name: p for p in made.places.values() if p.image is None}


@pytest.mark.parametrize("name", CHIPS)
@given(data=st.data())
@settings(deadline=None, derandomize=True, max_examples=examples(12))
def test_every_element_has_a_place_of_its_own(name: str, data: st.DataObject) -> None:
    for place in buffers(lowered(name, data.draw(tilings(name)))).values():
        rows = [(extent, step) for _, extent, step in place.rows]
        extents = (*place.counts, *(e for e, _ in rows))
        strides = (*place.strides, *(s for _, s in rows))
        assume(prod(extents) <= 20_000)
        places = {
            sum(i * s for i, s in zip(index, strides, strict=True))
            for index in product(*(range(e) for e in extents))
        }
        assert places == set(range(prod(extents)))
        assert place.layout.padding == 0


@pytest.mark.parametrize("name", CHIPS)
@given(data=st.data())
@settings(deadline=None, derandomize=True, max_examples=examples(8))
def test_no_other_order_of_a_buffer_has_fewer_calls(name: str, data: st.DataObject) -> None:
    made = lowered(name, data.draw(tilings(name)))
    trials = Trials(made.parts[0].covered, made.parts[0].whole)

    def calls(found: Mapping[str, Place]) -> float:
        """Calls in all iterations."""
        places = {use: found.get(p.name, p) for use, p in made.places.items()}
        sites = trials.sites(places, frozenset(block for block, _ in places))
        with Tolerating("H614"):
            return sum(x.absorbed.issued * prod(o.high - o.low for o in x.loops) for x in sites)
        return float("inf")

    chosen = buffers(made)
    best = calls(chosen)
    plain = {n: replace(p, strides=p.arranged(range(len(p.counts)))) for n, p in chosen.items()}
    assert best <= calls(plain)
    for storage, place in chosen.items():
        for order in permutations(range(len(place.counts))):
            other = replace(place, strides=place.arranged(order))
            assert best <= calls(chosen | {storage: other}), storage


# Images.


@st.composite
def images(draw: st.DrawFn) -> tuple[Image, tuple[int, ...]]:
    """A tensor's blocked image, its dimensions in any order."""
    shape = tuple(draw(st.lists(st.integers(1, 9), min_size=1, max_size=3)))
    blocks = [draw(st.integers(1, 4)) for _ in shape]
    axes = [(d, inner) for d in range(len(shape)) for inner in (False, True)]
    order = draw(st.one_of(st.just(axes), st.permutations(axes)))
    extents = tuple(blocks[d] if inner else -(-shape[d] // blocks[d]) for d, inner in order)
    index: list[Expr] = []
    for d in range(len(shape)):
        outer, inner = (Name(f"p{order.index((d, inside))}") for inside in (False, True))
        index.append(add(multiply(outer, Const(blocks[d])), inner))
    lanes = draw(st.integers(0, len(extents)))
    split = len(extents) - lanes
    image = Image("i", "t", "output", "int8", extents[:split], extents[split:], tuple(index), 0)
    return image, shape


def elements(image: Image, shape: tuple[int, ...]) -> list[int]:
    """The tensor's elements in the image's order, by their numbers; positions outside left out."""
    steps = dense(shape)
    result: list[int] = []
    for position in product(*(range(e) for e in (*image.outer, *image.lanes))):
        values = {f"p{n}": i for n, i in enumerate(position)}
        index = [int(evaluate(e, values)) for e in image.index]
        if all(0 <= i < extent for i, extent in zip(index, shape, strict=True)):
            result.append(sum(i * s for i, s in zip(index, steps, strict=True)))
    return result


@given(images())
@settings(deadline=None, derandomize=True, max_examples=300)
def test_an_image_that_keeps_order_has_all_elements_in_order(
    made: tuple[Image, tuple[int, ...]],
) -> None:
    image, shape = made
    found = elements(image, shape)
    assert sorted(found) == list(range(prod(shape)))
    if image.keeps_order(shape):
        assert found == sorted(found)
    elif all(extent % 4 == 0 for extent in shape):
        assert found != sorted(found)


@given(images())
@settings(deadline=None, derandomize=True, max_examples=300)
def test_an_image_that_is_its_tensor_has_every_element_at_its_place(
    made: tuple[Image, tuple[int, ...]],
) -> None:
    image, shape = made
    tensor = Tensor("t", "int8", shape, "output", False, Location("t.yaml", 1))
    whole = prod(image.outer) * prod(image.lanes)
    plain = whole == prod(shape) and elements(image, shape) == list(range(whole))
    assert image.is_tensor(tensor.dtype, tensor.shape) == plain
    assert not image.is_tensor("int32", tensor.shape)


def image(outer: tuple[int, ...], lanes: tuple[int, ...], *index: Expr) -> Image:
    return Image("i", "t", "input", "int8", outer, lanes, index, 0)


def test_orders_that_are_kept_and_that_are_not() -> None:
    p = [Name(f"p{n}") for n in range(4)]
    plain = image((4,), (8,), p[0], p[1])
    assert plain.keeps_order((4, 8))
    assert not plain.keeps_order((4, 16)) or elements(plain, (4, 16))[:8] == list(range(8))
    by_column = image((2, 4), (8,), p[1], add(multiply(p[0], Const(8)), p[2]))
    assert not by_column.keeps_order((4, 16))
    by_row = image((4, 2), (8,), p[0], add(multiply(p[1], Const(8)), p[2]))
    assert by_row.keeps_order((4, 16))
    transposed = image((8,), (4,), p[1], p[0])
    assert not transposed.keeps_order((4, 8))
    broadcast = image((5, 4), (8,), p[1], p[2])
    assert not broadcast.keeps_order((4, 8))


def test_matches_for_which_the_host_packs_more_are_left_out_where_that_has_no_cost() -> None:
    scop, hardware, _ = matched("row_array")
    assert hardware.offchip.shared
    assert hardware.processor is None
    cost = partial(packed_bytes, scop, hardware)
    plain = list(ranked_matches(scop, select(scop, hardware)))
    careful = list(by_packing(plain, scop, hardware))
    assert [g[0].iterations for g in plain] == [g[0].iterations for g in careful]
    for some, chosen in zip(plain, careful, strict=True):
        assert {cost(m) for m in chosen} == {min(cost(m) for m in (*some, *chosen))}
    most = max(cost(m) for group in plain for m in group)
    assert all(cost(m) < most for group in careful for m in group)


def test_matches_for_which_a_host_core_packs_more_are_a_group_apart() -> None:
    scop, hardware, _ = matched("row_array")
    cored = replace(hardware, processor=load_hardware("vta").processor)
    cost = partial(packed_bytes, scop, cored)
    plain = list(ranked_matches(scop, select(scop, hardware)))
    apart = list(by_packing(plain, scop, cored))
    assert len(apart) > len(plain)
    assert all(len({cost(m) for m in group}) == 1 for group in apart)
    assert sorted(str(m) for g in plain for m in g) == sorted(str(m) for g in apart for m in g)


def test_a_tensor_of_one_element_is_in_order() -> None:
    assert image((1, 1), (), Name("p0")).keeps_order((1,))
