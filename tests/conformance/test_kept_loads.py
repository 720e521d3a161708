"""Loads that happen once: tiles that stay where they were brought, on chips of several kinds."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from hwgen.errors import HwgenError
from hwgen.model.bound import lower_bound
from hwgen.model.columns import off_chip_traffic
from hwgen.passes.kernel import Kernel
from hwgen.passes.trees import compile_tree
from hwgen.pipeline import compile_kernel, compile_workload
from hwgen.polyhedral.match.matching import ranked_matches
from hwgen.polyhedral.match.select import select
from hwgen.polyhedral.schedule.schedule import Schedule
from hwgen.polyhedral.scop import build_scop
from hwgen.polyhedral.search import tiling_loads
from hwgen.polyhedral.search.choose import TIE, choose
from hwgen.polyhedral.search.objective import Objective
from hwgen.polyhedral.search.search import Candidate, SearchResult, Watch, search
from hwgen.polyhedral.search.tiling import Tiling
from hwgen.polyhedral.tree import legality
from hwgen.spec.hardware import HardwareSpec
from hwgen.spec.load import load_hardware, load_workload, make_workload, parse_hardware
from hwgen.spec.source import read_document
from hwgen.verify.data import draw_inputs
from hwgen.verify.examine import examine
from hwgen.verify.natural.draws import Spec
from tests.conftest import Mutate
from tests.made import Made
from tests.sampling import QUICK, THOROUGH, tiered

ROOT = Path(__file__).parents[2]
ARRAY = ROOT / "hw_specs" / "gemmini.yaml"
UNBIASED = ROOT / "tests" / "gemmini" / "workloads" / "gemm_unbiased.yaml"


def product(m: int, n: int, k: int) -> Kernel:
    workload = load_workload(UNBIASED, {"M": m, "N": n, "K": k})
    return compile_kernel(workload, load_hardware(ARRAY))


def loaded(c: Kernel) -> dict[str, float]:
    """How often each byte of an input is loaded."""
    moved = off_chip_traffic(c.program, c.hardware, c.workload)
    return {t.tensor: t.loaded / t.size for t in moved if t.role == "input"}


def test_both_factors_of_a_cube_are_read_once() -> None:
    c = product(256, 256, 256)
    assert loaded(c) == {"a": 1, "b": 1}
    assert c.cycles <= 1.02 * lower_bound(c.program, c.hardware).cycles
    found = examine(c, draw_inputs(c.workload, 0)).functional
    assert found is not None
    for name in ("a", "b"):
        assert found.traffic_bytes("dram", name, "read") == 65536


@pytest.mark.parametrize(
    "sizes",
    tiered([(512, 512, 512), (12544, 256, 64), (784, 1024, 256)], [(512, 512, 512)], values=True),
)
def test_products_on_an_array_are_near_their_bound(sizes: tuple[int, int, int]) -> None:
    c = product(*sizes)
    assert c.cycles <= 1.02 * lower_bound(c.program, c.hardware).cycles


def of_vta(name: str, sizes: dict[str, int]) -> Kernel:
    workload = load_workload(ROOT / "workloads" / f"{name}.yaml", sizes)
    return compile_kernel(workload, load_hardware(ROOT / "hw_specs" / "vta.yaml"))


WINDOWS = {"N": 1, "H": 56, "W": 56, "C": 64, "O": 64}


@pytest.mark.parametrize(
    ("name", "sizes", "most"),
    [
        ("gemm", {"M": 1024, "N": 1024, "K": 1024}, 6_291_456),
        pytest.param("gemm", {"M": 784, "N": 1024, "K": 256}, 1_265_664, marks=THOROUGH),
        ("conv2d", WINDOWS, 498_150),
    ],
)
def test_what_comes_in_parts_moves_little_and_is_as_fast(
    name: str, sizes: dict[str, int], most: int
) -> None:
    """Products move what an optimal mapper proves to be least with all of each memory, the
    convolution a tenth more than that. The estimate is right to a hundredth."""
    c = of_vta(name, sizes)
    bound = lower_bound(c.program, c.hardware).cycles
    assert c.offchip_bytes <= most
    assert c.cycles <= 1.02 * bound
    kept = [s for s, _ in c.tiling.depths if c.tiling.kept(s)]
    assert kept
    every = (
        *c.account.search.candidates,
        *c.account.search.near,
    )
    found = next(x for x in every if x.tiling is c.tiling)
    assert found.cycles == pytest.approx(c.cycles, rel=0.01)


CHIPS = ("hw_specs/vta.yaml",)


def searched(chip: str) -> tuple[Kernel, SearchResult, HardwareSpec]:
    """A product whose weights are loaded again for each tile of rows."""
    hardware = load_hardware(ROOT / chip)
    floats = any(m.dtype == "float32" for m in hardware.memories)
    name, sizes = "matmul" if floats else "gemm", {"M": 48, "N": 80, "K": 96}
    workload = load_workload(ROOT / "workloads" / f"{name}.yaml", sizes)
    scop = build_scop(workload)
    found = search(hardware, next(ranked_matches(scop, select(scop, hardware))), 64)
    return compile_kernel(workload, hardware, options=QUICK), found, hardware


def with_kept(found: SearchResult) -> list[Candidate]:
    """The candidates some of whose tiles stay for several passes."""
    every = (*found.candidates, *found.near)
    return [c for c in every if any(c.tiling.kept(s) for s, _ in c.tiling.depths)]


@pytest.mark.parametrize("chip", CHIPS)
def test_kept_tiles_are_ordered_and_right(chip: str) -> None:
    c, found, hardware = searched(chip)
    inputs = draw_inputs(c.workload, 1)
    tried = 0
    for candidate in with_kept(found):
        tiling = candidate.tiling
        kept = [s for s, _ in tiling.depths if tiling.kept(s)]
        assert kept
        kernel = compile_kernel(c.workload, hardware, Candidate(tiling, 0.0))
        examine(kernel, inputs)
        examine(kernel, inputs, "c")
        for storage in kept:
            tensor = tiling.match.selection.storage(storage).tensor
            assert loaded(kernel)[tensor] == 1, tensor
        tried += 1
        if tried >= 6:
            break
    assert tried >= 2


@pytest.mark.parametrize(
    ("slower", "slack", "taken"),
    [
        (TIE - 0.0005, None, 10),
        (TIE + 0.0005, None, 900),
        (1.0295, 0.03, 10),
        (1.0305, 0.03, 900),
        (TIE - 0.0005, 0.0, 900),
    ],
)
def test_of_equally_fast_schedules_the_thriftiest(
    slower: float, slack: float | None, taken: int
) -> None:
    _, found, hardware = searched("hw_specs/vta.yaml")
    first, second = found.candidates[:2]

    def build(candidate: Candidate) -> Made:
        if candidate is first:
            return Made(100_000, 900)
        return Made(round(100_000 * slower), 10) if candidate is second else Made(200_000, 1)

    best, _ = choose(hardware, found, build, Watch(), slack=slack)
    assert best.offchip_bytes == taken


def one_way(k_tiles: int, flags: int) -> Kernel:
    """Weights that stay where a unit brought them that nobody makes wait."""
    hardware = load_hardware(ROOT / "tests" / "specs" / "one_way_events.yaml", {"FLAGS": flags})
    sizes = {"M": 9, "N": 4, "K": 4 * k_tiles}
    workload = load_workload(ROOT / "workloads" / "matmul.yaml", sizes)
    scop = build_scop(workload)
    (match,) = next(ranked_matches(scop, select(scop, hardware)))[:1]
    (b,) = (s.name for s in match.selection.storages if s.memory == "right")
    (a,) = (s.name for s in match.selection.storages if s.memory == "left")
    (c,) = (s.name for s in match.selection.storages if s.memory == "sums")
    tiling = Tiling(
        match,
        tuple(sorted(dict.fromkeys(match.count, 1).items())),
        match.selection.spatial,
        ((a, 2), (b, 2), (c, 1)),
        ((a, 1), (b, k_tiles), (c, 1)),
    )
    assert tiling.kept(b)
    return compile_kernel(workload, hardware, Candidate(tiling, 0.0))


@pytest.mark.parametrize("k_tiles", [2, 5, 6, 7, 8, 40])
def test_every_load_that_stays_has_a_flag_of_its_own(k_tiles: int) -> None:
    """One that counted on fewer signals in flight set a flag that was set."""
    kernel = one_way(k_tiles, max(8, k_tiles))
    examine(kernel, draw_inputs(kernel.workload, k_tiles))


@pytest.mark.parametrize(("k_tiles", "flags"), [(9, 8), (40, 39), (60, 8)])
def test_loads_that_stay_are_refused_where_flags_run_out(k_tiles: int, flags: int) -> None:
    with pytest.raises(HwgenError, match="H615"):
        one_way(k_tiles, flags)


def test_a_tensor_that_is_kept_whole_has_no_slots() -> None:
    """Rows that are both factors, one of them copied to a memory of its own, and a second phase."""
    spec = copy.deepcopy(
        cast(Spec, read_document(ROOT / "hw_specs" / "npu_shared_buffer.yaml").data)
    )
    intrinsics = spec["intrinsics"]
    spec["memories"]["tile"] = {"kind": "scratchpad", "dtype": "float32", "size": "16 KiB"}
    intrinsics["matmul"]["operands"]["a"] = {"memory": "tile"}
    move = copy.deepcopy(intrinsics["relu"])
    move["operands"]["dst"] = {"memory": "tile"}
    intrinsics["move"] = move | {"semantics": "dst[] = x[]", "emit": "move({{ dst.address }});"}
    workload = make_workload(
        "gram",
        tensors=dict.fromkeys("xuy", "float32[40, 40]") | {"r": "float32[40]"},
        compute=["y[i, j] += x[i, k] * x[j, k]", "r[i] += u[i, j]"],
    )
    found = compile_kernel(workload, parse_hardware(spec), options=QUICK)
    examine(found, draw_inputs(workload, 1))
    first = found.parts[0].tiling
    whole = [s.name for s in first.match.selection.storages if s.shape]
    assert whole
    assert all((first.depth[n], first.slot[n]) == (0, 1) for n in whole)


QUEUES = ROOT / "hw_specs" / "gemmini.yaml"


def product_on_array(m: int, n: int, k: int) -> tuple[Kernel, SearchResult, HardwareSpec]:
    """On a chip whose host issues calls in order into short queues."""
    hardware = load_hardware(QUEUES)
    workload = load_workload(ROOT / "workloads" / "gemm_scaled.yaml", {"M": m, "N": n, "K": k})
    made = compile_kernel(workload, hardware, options=QUICK)
    return made, search(hardware, made.account.matches, 24), hardware


def test_parts_that_stay_are_loaded_once_for_each_tile() -> None:
    """And no more often than the whole tile would be, before the loops that it stays for."""
    c, found, hardware = product_on_array(96, 96, 128)
    inputs = draw_inputs(c.workload, 1)
    turns: list[int] = []
    for candidate in with_kept(found):
        tiling = candidate.tiling
        kept = [s for s, _ in tiling.depths if tiling.kept(s)]
        assert kept
        turns += [tiling.turns(s) for s in kept]
        kernel = compile_kernel(c.workload, hardware, Candidate(tiling, 0.0))
        examine(kernel, inputs)
        for storage in kept:
            tensor = tiling.match.selection.storage(storage).tensor
            assert loaded(kernel)[tensor] == 1, tensor
    assert turns


PARTS_OF_IMAGES: list[tuple[Objective, dict[str, int]]] = [
    ("traffic", {"N": 2, "H": 20, "W": 20, "O": 48, "S": 1}),
    ("cycles", {"N": 1, "H": 41, "W": 41, "O": 64, "S": 2}),
]


@pytest.mark.parametrize(("objective", "sizes"), tiered(PARTS_OF_IMAGES, PARTS_OF_IMAGES[:1]))
def test_parts_of_images_bring_what_no_part_before_has(
    objective: Objective, sizes: dict[str, int]
) -> None:
    """Rows and columns that windows of neighbours share are loaded once, and counted once."""
    hardware = load_hardware(QUEUES)
    workload = load_workload(ROOT / "workloads" / "conv2d_scaled.yaml", sizes)
    made = compile_kernel(workload, hardware, options=QUICK)
    found = search(hardware, made.account.matches, 24, objective=objective)
    step, rows = sizes["S"], workload.tensor["y"].shape[1]
    read = (step * (rows - 1) + 3) ** 2 * sizes["N"] * 32
    tried = 0
    for tiling, counted in ((c.tiling, c.moved) for c in with_kept(found)):
        (x,) = (s.name for s in tiling.match.selection.storages if s.tensor == "xp")
        if not tiling.kept(x) or tiling.home(x):
            continue
        kernel = compile_kernel(workload, hardware, Candidate(tiling, 0.0))
        examine(kernel, draw_inputs(workload, tried))
        (buffer,) = (b for b in kernel.program.buffers if b.name == x)
        assert buffer.entries <= tiling.taken(x)
        assert _loaded(kernel, "x") == read
        assert objective == "cycles" or counted == kernel.offchip_bytes
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(tiling_loads, "overlaps", nothing)
            again = compile_kernel(workload, hardware, Candidate(tiling, 0.0))
        assert _loaded(again, "x") > read
        tried += 1
    assert tried


def _loaded(c: Kernel, tensor: str) -> int:
    """Bytes of a tensor."""
    moved = off_chip_traffic(c.program, c.hardware, c.workload)
    return sum(t.loaded for t in moved if t.tensor == tensor)


LONG = {(512, 512, 512): (534_000, 2_621_440), (784, 1024, 256): (815_000, 4_476_928)}
"""Cycles and bytes; before parts, and before sums began after the stores that they wait for,
539,656 and 3,670,016; 959,515 and 10,768,384."""


@THOROUGH
@pytest.mark.parametrize("sizes", tiered([*LONG], [(512, 512, 512)], values=True))
def test_a_host_that_issues_in_order_keeps_the_array_at_work(sizes: tuple[int, int, int]) -> None:
    workload = load_workload(
        ROOT / "workloads" / "gemm_scaled.yaml", dict(zip("MNK", sizes, strict=True))
    )
    made = compile_kernel(workload, load_hardware(QUEUES))
    cycles, moved = LONG[sizes]
    assert made.cycles <= cycles
    assert made.offchip_bytes <= moved


READ = {
    (512, 512, 512): 786_432,
    (1024, 1024, 1024): 6_291_456,
    (784, 1024, 256): 462_848,
    (3136, 128, 512): 1_671_168,
}
"""Bytes of both factors, the least that buffers allow which fill the memories. 2,359,296 and
17,825,792 of the cubes where parts that stay had two slots in turn, and stores came at once."""


@pytest.mark.parametrize("sizes", tiered([*READ], [(512, 512, 512), (3136, 128, 512)], values=True))
def test_of_what_takes_as_long_an_array_loads_little(sizes: tuple[int, int, int]) -> None:
    workload = load_workload(
        ROOT / "tests" / "gemmini" / "workloads" / "gemm_unbiased.yaml",
        dict(zip("MNK", sizes, strict=True)),
    )
    made = compile_kernel(workload, load_hardware(QUEUES))
    assert made.cycles <= 1.005 * lower_bound(made.program, made.hardware).cycles
    m, n, _ = sizes
    assert made.offchip_bytes - m * n <= READ[sizes]


def test_images_that_wait_for_their_place_take_no_longer_than_the_host_does() -> None:
    """Weights come once for two images of one slot, not once for each; 1,842,784 cycles and
    2,822,144 bytes where all buffers had one slot as soon as two of each did not fit."""
    sizes = {"N": 4, "H": 14, "W": 14, "C": 256, "O": 256}
    workload = load_workload(ROOT / "workloads" / "conv2d_scaled.yaml", sizes)
    made = compile_kernel(workload, load_hardware(QUEUES))
    assert made.cycles <= 1_834_000
    assert made.offchip_bytes <= 1_642_496


@THOROUGH
@pytest.mark.parametrize(
    ("size", "channels", "cycles", "moved"),
    [(56, 64, 1_843_000, 1_700_864), (28, 128, 1_846_000, 1_040_384)],
)
def test_rows_that_windows_share_are_loaded_once(
    size: int, channels: int, cycles: int, moved: int
) -> None:
    """1,986,560 and 1,073,152 bytes where parts were loaded with what the one before has."""
    sizes = {"N": 4, "H": size, "W": size, "C": channels, "O": channels}
    workload = load_workload(ROOT / "workloads" / "conv2d_scaled.yaml", sizes)
    made = compile_kernel(workload, load_hardware(QUEUES))
    assert made.cycles <= cycles
    assert made.offchip_bytes <= moved


def test_the_estimate_of_a_host_that_waits_for_queues_is_near() -> None:
    """Loads, stores and what begins sums share queues with few entries. Where the unit that loads
    has as much to do as the one that computes, each waits for the other now and then."""
    c, found, hardware = product_on_array(512, 512, 512)
    for candidate in (*found.candidates[:8], *with_kept(found)[:4]):
        kernel = compile_kernel(c.workload, hardware, Candidate(candidate.tiling, 0.0))
        assert candidate.cycles == pytest.approx(kernel.cycles, rel=0.02)
    assert len(found.candidates) >= 8
    assert len(with_kept(found)) >= 4


def by_hand(sizes: tuple[int, int, int], tiles: tuple[int, int, int]) -> Kernel:
    """Products in tiles, the second factor in parts that stay for all rows of a tile's columns."""
    workload = load_workload(UNBIASED, dict(zip("MNK", sizes, strict=True)))
    hardware = load_hardware(ARRAY)
    base = compile_kernel(workload, hardware, options=QUICK).tiling
    m, n, k = tiles
    parts = -(-base.match.count["k"] // k)
    tiling = replace(
        base,
        order=("n", "m"),
        tiles=(("m", m), ("n", n), ("k", k)),
        depths=(("acc_acc", 2), ("a_spad", 3), ("b_spad", 3)),
        slots=(("acc_acc", 2), ("a_spad", 3), ("b_spad", parts)),
    )
    assert tiling.kept("b_spad")
    assert tiling.turns("b_spad") == 1
    return compile_kernel(workload, hardware, Candidate(tiling, 0.0))


@pytest.mark.parametrize(
    ("sizes", "tiles"),
    [
        ((96, 64, 64), (48, 2, 1)),
        pytest.param((96, 80, 112), (32, 3, 1), marks=THOROUGH),
        ((112, 80, 70), (40, 2, 1)),
    ],
)
def test_parts_that_stay_take_the_places_of_those_before(
    sizes: tuple[int, int, int], tiles: tuple[int, int, int]
) -> None:
    c = by_hand(sizes, tiles)
    assert loaded(c)["b"] == 1
    examine(c, draw_inputs(c.workload, 2))
    (buffer,) = (b for b in c.program.buffers if b.name == "b_spad")
    assert buffer.entries == 16 * -(-sizes[2] // 16) * tiles[1]


def nothing(*_: object) -> None:
    """Stands in for a check that finds nothing wrong."""


def test_a_part_that_comes_too_early_needs_a_place_of_its_own(
    mutate: Mutate,
) -> None:
    """A part sooner than its place is free; without the check values are wrong."""
    c = by_hand((96, 64, 64), (48, 2, 1))
    around = "[c_n_o_o, c_m_o, k_o_o]"
    shifted = f"s.shift(b_spad, {around}, -1)"
    assert shifted in c.script
    early = c.script.replace(shifted, f"s.shift(b_spad, {around}, -5)")
    assert Schedule(c.workload, c.hardware).replay(c.script).homes["b_spad"] == ("c_n_o_o",)
    schedule = Schedule(c.workload, c.hardware).replay(early)
    assert schedule.homes["b_spad"] == ()
    compile_tree(schedule)
    mutate(legality, "overtaken", nothing)
    with pytest.raises(HwgenError):
        examine(
            compile_tree(Schedule(c.workload, c.hardware).replay(early)),
            draw_inputs(c.workload, 2),
        )


@pytest.mark.parametrize(("rows", "parts"), [(16, 1), (64, 4)])
def test_stores_longer_than_their_queue_come_in_parts(rows: int, parts: int) -> None:
    """Of 4 entries. The host would issue no work meanwhile."""
    c = by_hand((256, 128, 128), (rows, 4, 2))
    assert ("s.merge(" in c.script) == (parts > 1)
    examine(c, draw_inputs(c.workload, 3))
    moved = off_chip_traffic(c.program, c.hardware, c.workload)
    assert [t.stored for t in moved if t.role == "output"] == [256 * 128]


@THOROUGH
def test_sums_are_stored_in_parts_whatever_loops_have_one_iteration() -> None:
    """The statement that stores has them, its copy has dimensions alone."""
    sizes = {"N": 1, "C": 17, "H": 1, "W": 9, "O": 8, "R": 1, "P": 4}
    workload = load_workload(ROOT / "workloads" / "conv2d.yaml", sizes)
    made = compile_workload(workload, load_hardware(QUEUES))
    examine(made, draw_inputs(workload, 4))
