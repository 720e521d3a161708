"""Tiles of two levels: what registers hold inside of what caches hold, found without a script."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import hwgen
from hwgen.codegen.nodes import Call, Loop, Node, nodes
from hwgen.errors import HwgenError
from hwgen.model.columns import off_chip_traffic
from hwgen.passes.cache import ScheduleCache
from hwgen.passes.kernel import Kernel
from hwgen.passes.phase import SearchOptions
from hwgen.passes.trees import build
from hwgen.pipeline import compile_workload
from hwgen.polyhedral.caches import through_caches
from hwgen.polyhedral.match.wide_calls import adding_store, reading_in_place, wider_copy
from hwgen.polyhedral.search.estimate_caches import with_caches
from hwgen.polyhedral.search.estimate_shape import Cache, Shape
from hwgen.polyhedral.search.levels import contains_levels
from hwgen.polyhedral.search.search import Candidate
from hwgen.polyhedral.search.space import choose_space
from hwgen.polyhedral.search.tiling import Tiling
from hwgen.spec.affine import Affine, affine
from hwgen.spec.hardware import HardwareSpec
from tests.conformance.test_registers import NATIVE, STRICT, executed, product
from tests.inner_loops import disassembled, inner_loops, on_the_stack
from tests.sampling import QUICK, THOROUGH

ROOT = Path(__file__).resolve().parents[2]


@cache
def chip() -> HardwareSpec:
    return hwgen.load_hardware(ROOT / "hw_specs" / "x86_avx512.yaml")


@cache
def found(m: int, n: int, k: int) -> Kernel:
    made = hwgen.compile_kernel(product(m, n, k), chip())
    assert made.parts
    return made


def built(kernel: Kernel, tiling: Tiling) -> Kernel:
    """The same with another tiling."""
    return build(kernel.start, kernel.scop, Candidate(tiling, 0.0))


def in_parts(kernel: Kernel) -> Tiling:
    """Sums in parts over 16, panels of 3 of the small tiles, rows of each of these."""
    match = kernel.match
    return Tiling(
        match,
        (("m", 6), ("n", 2), ("k", 1)),
        ("m", "n"),
        (("c_acc_zmm", 4), ("a_rows", 3), ("b_panels", 2), ("b_zmm", 5)),
        tuple((s.name, 1) for s in match.selection.storages),
        (("n", 4), ("k", 16)),
        parts=True,
    )


@pytest.mark.skipif(not NATIVE, reason="this machine has no AVX-512")
@pytest.mark.parametrize(
    ("m", "n", "k"),
    [
        pytest.param(48, 96, 512, marks=THOROUGH),
        (25, 70, 33),
        pytest.param(127, 513, 255, marks=THOROUGH),
    ],
)
def test_a_product_is_right(m: int, n: int, k: int) -> None:
    executed(found(m, n, k), m, n, k)


@pytest.mark.skipif(not NATIVE, reason="this machine has no AVX-512")
@pytest.mark.parametrize(
    ("m", "n", "k"),
    [
        (14, 112, 40),
        pytest.param(13, 101, 39, marks=THOROUGH),
        pytest.param(12, 96, 33, marks=THOROUGH),
    ],
)
def test_sums_in_parts_are_right(m: int, n: int, k: int) -> None:
    """Whole parts and the last of them shorter, as all tiles of both levels."""
    kernel = built(found(14, 112, 40), in_parts(found(14, 112, 40)))
    assert "rfactor" in kernel.stage("schedule") or kernel.tiling.parts
    other = found(m, n, k)
    executed(built(other, in_parts(other)), m, n, k)


def in_place(kernel: Kernel) -> Tiling:
    """The same, with rows read where they lie."""
    tiling = in_parts(kernel)
    return replace(tiling, depths=tuple((tiling.depth | {"a_rows": 6}).items()))


@pytest.mark.skipif(not NATIVE, reason="this machine has no AVX-512")
@pytest.mark.parametrize(
    ("m", "n", "k"), [(14, 112, 40), pytest.param(13, 101, 39, marks=THOROUGH)]
)
def test_rows_that_are_read_where_they_lie_are_right(m: int, n: int, k: int) -> None:
    other = found(m, n, k)
    kernel = built(other, in_place(other))
    made = {c.intrinsic for c in nodes(kernel.program.body) if isinstance(c, Call)}
    assert "fma_direct" in made
    assert made.isdisjoint(("fma", "pack_row", "pack_one"))
    executed(kernel, m, n, k)


def test_what_calls_read_where_it_lies_is_found() -> None:
    """An element that a multiply-add repeats; not panels, which others load into registers."""
    kernel = found(14, 112, 40)
    selection = kernel.match.selection
    rows = reading_in_place(chip(), selection, "a_rows")
    assert rows is not None
    assert (rows[0].intrinsic.name, rows[1].name) == ("fma", "fma_direct")
    assert reading_in_place(chip(), selection, "b_panels") is None
    assert reading_in_place(chip(), selection, "b_zmm") is None
    stored = replace(selection, fetches=("a",))
    assert reading_in_place(chip(), stored, "a_rows") is None, "it lies by vectors"
    space, _ = choose_space(chip(), kernel.match)
    good = in_place(kernel)
    assert contains_levels(space, good)
    panels = tuple((good.depth | {"b_panels": 6}).items())
    assert not contains_levels(space, replace(good, depths=panels))


def test_multiply_adds_that_read_memory_are_in_the_bound() -> None:
    """Each takes a cycle, as none of what they read can be saved."""
    kernel = found(96, 512, 512)
    assert any(
        isinstance(c, Call) and c.intrinsic == "fma_direct" for c in nodes(kernel.program.body)
    )
    assert kernel.cycles >= kernel.bound.cycles >= 96 * 512 * 512 // 16


def test_a_product_has_what_makes_it_fast() -> None:
    """Registers full of sums, few reads of caches for each multiply-add, b packed once."""
    kernel = found(96, 512, 512)
    sums = kernel.tiling.entries(next(n for n, _ in kernel.tiling.depths if n.startswith("c_")))
    assert sums >= 24
    inner = [x for x in nodes(kernel.program.body) if isinstance(x, Loop) and _innermost(x)]
    names = [[c.intrinsic for c in nodes(x.body) if isinstance(c, Call)] for x in inner]
    bodies = [x for x in names if "fma_direct" in x]
    assert bodies
    body = max(bodies, key=len)
    tile = kernel.tiling.tile
    reads = body.count("load") + body.count("fma_direct") / tile["n"]
    assert reads <= 0.6 * body.count("fma_direct")
    moved = {x.tensor: x for x in off_chip_traffic(kernel.program, chip(), kernel.workload)}
    assert moved["b"].loaded == 512 * 512 * 4


def _innermost(loop: Node) -> bool:
    return isinstance(loop, Loop) and not any(
        isinstance(x, Loop) for child in loop.body for x in nodes((child,))
    )


@THOROUGH
@pytest.mark.skipif(not (NATIVE and shutil.which("objdump")), reason="no AVX-512, or no objdump")
@pytest.mark.parametrize("sizes", [pytest.param((48, 96, 512), marks=THOROUGH), (127, 513, 255)])
def test_no_vector_is_on_the_stack_in_the_inner_loop(
    sizes: tuple[int, int, int], tmp_path: Path
) -> None:
    """Of all that stands there, at most the loop's bound; nor where the last vectors of rows are
    partial ones."""
    source, made = tmp_path / "kernel.c", tmp_path / "kernel.o"
    source.write_text(found(*sizes).source.c, encoding="utf-8")
    subprocess.run(["gcc", *STRICT, "-c", str(source), "-o", str(made)], check=True)
    bodies = inner_loops(disassembled(made), "vfmadd", 16)
    assert bodies
    for body in bodies:
        assert not on_the_stack(body, "%zmm")
        assert len(on_the_stack(body)) <= 1


def test_a_tiling_of_two_levels_comes_back_from_the_cache(tmp_path: Path) -> None:
    options = SearchOptions(cache=ScheduleCache(tmp_path))
    first = hwgen.compile_kernel(product(48, 96, 512), chip(), options=options)
    again = hwgen.compile_kernel(product(48, 96, 512), chip(), options=options)
    assert first.parts
    assert again.parts
    assert str(again.tiling) == str(first.tiling)
    assert again.source.c == first.source.c
    assert again.account.search.points == first.account.search.points


def test_only_tilings_that_can_be_are_read_from_the_cache() -> None:
    kernel = found(14, 112, 40)
    space, _ = choose_space(chip(), kernel.match)
    good = in_parts(kernel)
    assert contains_levels(space, good)
    for bad in (
        replace(good, outer=(("n", 4), ("n", 2))),
        replace(good, outer=(("n", 99), ("k", 16))),
        replace(good, outer=(("x", 4),)),
        replace(good, outer=(("n", 4),)),  # parts of nothing
        replace(good, depths=tuple((n, 9) for n, _ in good.depths)),
        replace(good, slots=tuple((n, 2) for n, _ in good.slots)),
    ):
        assert not contains_levels(space, bad)


def test_what_does_not_fit_a_cache_is_brought_again() -> None:
    """Panels of 512 KiB read for every row stay in a second cache of 1 MiB, not of 64 KiB."""
    kernel = found(96, 512, 512)
    machine = chip().machine
    small = replace(machine.caches[1], capacity_bytes=64 * 1024)
    less = replace(machine, caches=(machine.caches[0], small, *machine.caches[2:]))

    def estimated(hardware: HardwareSpec) -> float:
        grid = {n: np.array([s]) for n, s in (("m", 6), ("n", 2), ("k", 1))}
        placement = {"c_acc_zmm": 2, "a_rows": 1, "b_panels": 0, "b_zmm": 3}
        shape = Shape(hardware, kernel.match, grid, ("m", "n", "k"), 2, placement, Cache(), 1)
        return float(with_caches(shape, np.ones(1))[0])

    assert estimated(replace(chip(), processor=less)) > 1.1 * estimated(chip())


@THOROUGH
def test_rows_that_begin_far_apart_are_late() -> None:
    """Panels of two vectors of each row of a matrix that no cache of the core holds."""
    match, machine = found(16, 4096, 1024).match, chip().machine

    def late(vectors: int) -> float:
        grid = {n: np.array([s]) for n, s in (("m", 6), ("n", 2), ("k", 1), ("n'", vectors))}
        placement = {"c_acc_zmm": 3, "a_rows": 5, "b_panels": 1, "b_zmm": 4}

        def estimated(far_cycles: float) -> float:
            costs = replace(machine.costs, far_cycles=far_cycles)
            hardware = replace(chip(), processor=replace(machine, costs=costs))
            loops = ("n'", "m", "n", "k")
            shape = Shape(hardware, match, grid, loops, 3, placement, Cache(), 1)
            return float(with_caches(shape, np.ones(1))[0])

        return estimated(2) - estimated(1)

    assert late(2) == pytest.approx(128 * 1024)
    assert late(16) == pytest.approx(16 * 1024)


def test_calls_that_do_more_are_found() -> None:
    operations = found(14, 112, 40).match.selection.operations
    rows = next(o for o in operations if o.intrinsic.name == "pack_one")
    store = next(o for o in operations if o.kind == "store")
    wide, adding = wider_copy(chip(), rows), adding_store(chip(), store)
    assert wide is not None
    assert adding is not None
    assert (wide.name, adding.name) == ("pack_row", "store_add")
    assert adding_store(chip(), rows) is None
    assert wider_copy(chip(), store) is None


def test_chips_without_a_core_have_one_level() -> None:
    for name in ("vta", "gemmini", "davinci_core"):
        assert not through_caches(hwgen.load_hardware(ROOT / "hw_specs" / f"{name}.yaml"))


def test_a_layer_with_a_bias_and_relu_is_one_loop_nest() -> None:
    """Both on the sums in registers, before they are stored."""
    workload = hwgen.load_workload(
        ROOT / "workloads" / "linear_relu.yaml", {"M": 20, "K": 64, "N": 96}
    )
    kernel = hwgen.compile_kernel(workload, chip())
    names = {c.intrinsic for c in nodes(kernel.program.body) if isinstance(c, Call)}
    assert {"fma_direct", "add", "relu", "store"} <= names
    assert not kernel.program.codes


def test_a_register_too_many_is_refused() -> None:
    """Sums and operands of 7 x 4 vectors are 32 registers."""
    kernel = found(14, 112, 40)
    tiles = (("m", 7), ("n", 4), ("k", 1))
    wide = replace(in_parts(kernel), tiles=tiles, outer=(("k", 16),))
    wide = replace(wide, depths=(("c_acc_zmm", 3), ("a_rows", 2), ("b_panels", 1), ("b_zmm", 4)))
    with pytest.raises(HwgenError) as caught:
        built(kernel, wide)
    assert caught.value.code in ("H405", "H502")


@THOROUGH
def test_panels_of_blocked_weights_are_read_one_after_the_other() -> None:
    """What calls of a tile read of a tensor that is blocked already lies together, and packing
    walks through it by the furthest steps outside."""
    file = ROOT / "benchmarks" / "conv2d_blocked.yaml"
    workload = hwgen.load_workload(file, {"H": 7, "W": 7, "C": 128, "O": 128})
    program = compile_workload(workload, chip(), QUICK).program
    loops = [n.body for n in nodes(program.body) if isinstance(n, Loop)]
    tiles = [[c for c in body if isinstance(c, Call) and c.intrinsic == "load"] for body in loops]
    reads = [[moved(c, "src").constant for c in tile] for tile in tiles if len(tile) > 1]
    assert reads
    assert all(r == list(range(r[0], r[0] + len(r))) for r in reads)
    packs = [n for n in nodes(program.body) if isinstance(n, Call) and n.intrinsic == "pack"]
    assert packs
    for call in packs:
        source, target = moved(call, "src"), moved(call, "dst")
        repeats = sorted(n for n, _ in source.terms if n.startswith("call"))
        steps = [max(source.coefficient(n), target.coefficient(n)) for n in repeats]
        assert steps == sorted(steps, reverse=True)


def moved(call: Call, operand: str) -> Affine:
    found = affine(next(o.address for o in call.operands if o.name == operand))
    assert found is not None
    return found
