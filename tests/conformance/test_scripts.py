"""Scripts of the automatic scheduler: they replay to the same program, and can be edited."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from math import prod
from pathlib import Path

import pytest

from hwgen import completing
from hwgen.completing import complete_script
from hwgen.errors import HwgenError
from hwgen.passes.kernel import Kernel
from hwgen.passes.scripting import compile_script
from hwgen.passes.start import Start
from hwgen.passes.trees import build
from hwgen.pipeline import SearchOptions, compile_kernel
from hwgen.polyhedral.schedule.schedule import Schedule
from hwgen.polyhedral.scop import Scop
from hwgen.polyhedral.search.search import Candidate
from hwgen.polyhedral.search.tiling_script import apply_tiling
from hwgen.spec.load import load_hardware, load_workload, make_workload
from hwgen.spec.workload import Workload
from hwgen.verify.data import draw_inputs
from hwgen.verify.examine import examine
from tests.samples import PAIRS
from tests.sampling import EVERYTHING, QUICK, THOROUGH, WHOLE

ROOT = Path(__file__).resolve().parents[2]
VTA = ROOT / "hw_specs" / "vta.yaml"
ODD = {"M": 17, "N": 33, "K": 45, "H": 7, "W": 9, "C": 5, "O": 19}


def odd_sizes(path: Path) -> dict[str, int]:
    """Sizes that no lane and no tile divides, of those that the workload has."""
    names = dict(load_workload(path).sizes)
    return {name: value for name, value in ODD.items() if name in names}


def compiled(
    path: Path, chip: Path, sizes: dict[str, int], options: SearchOptions = QUICK
) -> Kernel:
    return _compiled(path, chip, tuple(sizes.items()), options)


@cache
def _compiled(
    path: Path, chip: Path, sizes: tuple[tuple[str, int], ...], options: SearchOptions
) -> Kernel:
    return compile_kernel(load_workload(path, dict(sizes)), load_hardware(chip), options=options)


@pytest.mark.parametrize(
    ("chip", "path"),
    [
        pytest.param(*pair, id=f"{pair[0].stem}-{pair[1].stem}", marks=THOROUGH if n % 4 else ())
        for n, pair in enumerate(PAIRS if EVERYTHING else PAIRS[1::2])
    ],
)
def test_a_script_replays_to_the_same_bytes(path: Path, chip: Path) -> None:
    """At sizes as written, `test_kernels.py` holds the same of what it searches anyhow."""
    again_the_same(compiled(path, chip, odd_sizes(path)))


def again_the_same(found: Kernel) -> None:
    again = compile_script(found.workload, found.hardware, found.script)
    assert str(again.program) == str(found.program)
    assert again.source.c == found.source.c
    assert again.cycles == found.cycles


@THOROUGH
def test_calls_with_fewer_lanes_than_a_block_has() -> None:
    """A load fills one row of the block that a product reads; `n` of one has no lane at all."""
    chip = ROOT / "tests" / "specs" / "row_array.yaml"
    for sizes in ({}, {"M": 17, "N": 9, "K": 30}, {"M": 9, "N": 1, "K": 8}):
        again_the_same(compiled(ROOT / "workloads" / "gemm_requant.yaml", chip, sizes))


PHASES: dict[str, tuple[dict[str, str], list[tuple[str, dict[str, int]]]]] = {
    "the first phase reads a part": (
        {"x": "[32, 16]", "w": "[31, 16]", "s": "[16]", "t": "[16]"},
        [
            ("s[c] += x[r + 1, c] * w[r, c]", {"r": 31, "c": 16}),
            ("t[c] += x[r, c] * s[c]", {"r": 32, "c": 16}),
        ],
    ),
    "both phases read all": (
        {"x": "[32, 16]", "w": "[32, 16]", "s": "[16]", "t": "[16]"},
        [
            ("s[c] += x[r, c] * w[r, c]", {"r": 32, "c": 16}),
            ("t[c] += x[r, c] * s[c]", {"r": 32, "c": 16}),
        ],
    ),
    "both read all, which does not fit": (
        {"x": "[9000, 16]", "w": "[9000, 16]", "s": "[16]", "t": "[16]"},
        [
            ("s[c] += x[r, c] * w[r, c]", {"r": 9000, "c": 16}),
            ("t[c] += x[r, c] * s[c]", {"r": 9000, "c": 16}),
        ],
    ),
    "one phase reads twice": (
        {"x": "[32, 64]", "y": "[64]"},
        [("y[c] += x[r, c] * x[r, c]", {"r": 32, "c": 64})],
    ),
    "one phase reads twice, another does not": (
        {"x": "[32, 64]", "w": "[32, 64]", "s": "[64]", "t": "[64]"},
        [
            ("s[c] += x[r, c] * x[r, c]", {"r": 32, "c": 64}),
            ("t[c] += w[r, c] * s[c]", {"r": 32, "c": 64}),
        ],
    ),
    "one phase reads twice what does not fit": (
        {"x": "[1000, 64]", "w": "[1000, 64]", "s": "[64]", "t": "[64]"},
        [
            ("s[c] += x[r, c] * x[r, c]", {"r": 1000, "c": 64}),
            ("t[c] += w[r, c] * s[c]", {"r": 1000, "c": 64}),
        ],
    ),
}


@pytest.mark.parametrize("case", PHASES)
def test_what_phases_share_is_read_off_the_script(case: str) -> None:
    shapes, statements = PHASES[case]
    workload = make_workload(
        name="shared",
        sizes={},
        tensors={name: f"int32{shape}" for name, shape in shapes.items()},
        compute=[{"do": do, "loops": loops} for do, loops in statements],
    )
    wide = load_hardware(ROOT / "tests" / "specs" / "wide_rows.yaml")
    again_the_same(compile_kernel(workload, wide, options=QUICK))


def test_a_tensor_stored_by_one_phase_and_cached_by_the_next() -> None:
    """Both have a buffer of it in the same memory, the first with one slot."""
    chip = ROOT / "hw_specs" / "npu_shared_buffer.yaml"
    sizes = {"M": 300, "H": 300, "G": 240}
    again_the_same(compiled(ROOT / "workloads" / "mlp.yaml", chip, sizes))


def gemm_script() -> tuple[Kernel, str]:
    found = compiled(ROOT / "workloads" / "gemm_requant.yaml", VTA, {}, WHOLE)
    return found, found.script


def edited(script: str, old: str, new: str) -> str:
    assert script.count(old) == 1, script
    return script.replace(old, new)


def test_two_changed_lines_make_another_right_kernel() -> None:
    found, script = gemm_script()
    script = edited(script, "s.split('c_0', factor=64)", "s.split('c_0', factor=32)")
    script = edited(script, "s.split(k_o, factor=2)", "s.split(k_o, factor=4)")
    other = compile_script(found.workload, found.hardware, script)
    assert not other.parts
    extents = other.schedule.state.extents
    assert (extents["c_0_i"], extents["k_o_i"]) == (32, 4)
    assert other.cycles != found.cycles
    examine(other, draw_inputs(other.workload, 7))


def test_a_slot_less_is_slower_and_right() -> None:
    found, script = gemm_script()
    script = edited(script, "s.double_buffer(a_inp, 2)\n", "")
    other = compile_script(found.workload, found.hardware, script)
    assert other.cycles > found.cycles
    examine(other, draw_inputs(other.workload, 8))


def test_an_illegal_edit_is_refused_at_its_call() -> None:
    found, script = gemm_script()
    lines = script.splitlines()
    number = next(i for i, x in enumerate(lines) if "compute_at(a_inp" in x)
    lines[number] = "s.compute_at(a_inp, 'no_such_loop')"
    with pytest.raises(HwgenError, match="H414") as refused:
        compile_script(found.workload, found.hardware, "\n".join(lines), "my.py")
    location = refused.value.diagnostic.location
    assert location is not None
    assert (location.file, location.line) == ("my.py", number + 1)


def test_what_calls_cannot_run_is_refused() -> None:
    found, script = gemm_script()
    wider = edited(script, "s.split('n', factor=16)", "s.split('n', factor=8)")
    with pytest.raises(HwgenError, match="H416"):
        compile_script(found.workload, found.hardware, wider)
    missing = edited(script, "s.tensorize(n_i, 'gemm')\n", "")
    with pytest.raises(HwgenError, match="H421"):
        compile_script(found.workload, found.hardware, missing)


@THOROUGH
def test_a_tile_below_the_lanes_of_a_call_is_refused_at_its_call() -> None:
    """A loop of one iteration is no lane, and its call takes what is there: at that call."""
    found = compiled(ROOT / "workloads" / "gemm_scaled.yaml", ROOT / "hw_specs/gemmini.yaml", {})
    script = found.script
    small = edited(script, "s.split('c_n', factor=16)", "s.split('c_n', factor=1)")
    with pytest.raises(HwgenError, match="H503") as refused:
        compile_script(found.workload, found.hardware, small, "my.py")
    shown = refused.value.diagnostic
    assert shown.location is not None
    assert shown.location.file == "my.py"
    assert small.splitlines()[shown.location.line - 1] == "s.tensorize(c_n_i, 'mvout')"
    begun = small[: small.index("s.set_scope")]
    other = complete_script(found.workload, found.hardware, begun, options=QUICK)
    assert other.script.startswith(begun)
    examine(other, draw_inputs(other.workload, 1))


def test_a_tensor_read_in_two_ways_has_two_caches() -> None:
    workload = make_workload(
        name="gram",
        sizes={},
        tensors={"a": "int8[32, 32]", "acc": "int32[32, 32]", "c": "int8[32, 32]"},
        compute=["acc[m, n] += a[m, k] * a[n, k]", "c[m, n] = int8(acc[m, n])"],
    )
    script = _replayed(workload)
    assert "cache_read('a', 'inp'" in script
    assert "cache_read('a', 'wgt'" in script
    assert "occurrence=" in script


def test_a_copy_that_no_call_makes_is_inlined() -> None:
    tensors = {"a": "int8[16, 32]", "b": "int8[16, 32]", "y": "int8[16, 16]"}
    workload = make_workload(
        name="copied",
        sizes={},
        tensors=tensors | dict.fromkeys("st", "int32[16, 16]"),
        compute=["s[i, j] += a[i, k] * b[j, k]", "t[i, j] = s[i, j]", "y[i, j] = int8(t[i, j])"],
    )
    assert "compute_inline('t')" in _replayed(workload)


def _replayed(workload: Workload) -> str:
    """A kernel's script, which makes the same kernel again; it is right."""
    found = compile_kernel(workload, load_hardware(VTA), options=QUICK)
    again = compile_script(workload, found.hardware, found.script)
    assert again.source.c == found.source.c
    examine(found, draw_inputs(workload, 1))
    return found.script


@THOROUGH
def test_tiles_of_a_sum_that_is_an_output_are_enough() -> None:
    """It is stored over fewer loops than it is summed over."""
    workload = load_workload(ROOT / "workloads" / "matmul.yaml", {"M": 32, "N": 32, "K": 64})
    hardware = load_hardware(ROOT / "hw_specs" / "vtcm_two_banks.yaml")
    lines = [f"{n}_o, {n}_i = s.split('{n}', factor={size})" for n, size in [("m", 16), ("k", 32)]]
    kernel = complete_script(workload, hardware, "\n".join(lines), "tiles.py", QUICK)
    assert kernel.parts
    assert {"m": 16, "k": 32}.items() <= dict(kernel.tiling.tiles).items()


def test_buffers_of_one_stage_have_the_same_slots() -> None:
    workload = make_workload(
        name="two_steps",
        sizes={},
        tensors={"x": "float32[8, 6]", "b": "float32[6]", "y": "float32[8, 6]"},
        compute=["y[m, n] = max(x[m, n] + b[n], 0)"],
    )
    found = compile_kernel(
        workload, load_hardware(ROOT / "hw_specs" / "vtcm_two_banks.yaml"), options=QUICK
    )
    tiling = found.tiling
    made = [s.name for s in found.match.selection.storages if s.tensor == "y"]
    assert len(made) == 2

    def script(*slots: int) -> str:
        numbers = dict(tiling.slots) | dict(zip(made, slots, strict=True))
        schedule = Schedule(workload, found.hardware)
        apply_tiling(schedule, found.scop, replace(tiling, slots=tuple(numbers.items())))
        return schedule.trace()

    assert script(2, 1) == script(1, 2) == script(1, 1) != script(2, 2)


@pytest.mark.parametrize(
    ("spec", "name", "sizes"),
    [
        ("vta", "gemm", {"M": 16, "N": 256, "K": 256}),
        ("npu_shared_buffer", "mlp", {}),
    ],
)
def test_any_beginning_of_the_best_script_goes_on_to_it(
    spec: str, name: str, sizes: dict[str, int]
) -> None:
    """Wherever it is cut, between calls and in a later phase too."""
    workload, chip = ROOT / "workloads" / f"{name}.yaml", ROOT / "hw_specs" / f"{spec}.yaml"
    best = compiled(workload, chip, sizes)
    lines = best.script.splitlines()
    for count in range(0, len(lines), 6 if EVERYTHING else 20):
        begun = "\n".join(lines[:count])
        found = complete_script(best.workload, best.hardware, begun, options=QUICK)
        assert found.source.c == best.source.c, count


TILES = ("n_o, n_i = s.split('n', factor=16)", "k_o, k_i = s.split('k', factor=16)")


@pytest.mark.parametrize("sizes", [{}, pytest.param({"M": 64}, marks=THOROUGH)])
def test_tiles_alone_are_a_script_in_any_order(sizes: dict[str, int]) -> None:
    """n by 16, k by 16, as the asker writes it: nothing but inputs and outputs leaves the chip."""
    workload = load_workload(ROOT / "workloads" / "linear_relu.yaml", sizes)
    hardware = load_hardware(ROOT / "hw_specs" / "npu_shared_buffer.yaml")
    ordered = (*TILES, "s.reorder(n_o, k_o, n_i, k_i)", "s.set_scope('acc', 'local')")
    found = [
        complete_script(workload, hardware, "\n".join(lines), options=QUICK)
        for lines in (
            (TILES, ordered) if sizes and not EVERYTHING else (TILES, TILES[::-1], ordered)
        )
    ]
    assert len({c.source.c for c in found}) == 1
    made = found[0]
    assert made.parts
    assert {n: made.tiling.tile[n] for n in ("n", "k")} == {"n": 16, "k": 16}
    assert made.offchip_bytes == sum(
        4 * prod(t.shape) for t in (*workload.inputs, *workload.outputs)
    )
    examine(made, draw_inputs(workload, 1))


def test_a_schedule_beyond_a_limit_leaves_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first that agrees has no room: the next one is taken."""
    workload = load_workload(ROOT / "workloads" / "linear_relu.yaml")
    hardware = load_hardware(ROOT / "hw_specs" / "npu_shared_buffer.yaml")
    tried: list[Candidate] = []

    def first_refused(start: Start, scop: Scop, candidate: Candidate) -> Kernel:
        tried.append(candidate)
        if len(tried) == 1:
            raise HwgenError("H502", "buffers exceed a memory")
        return build(start, scop, candidate)

    monkeypatch.setattr(completing, "build", first_refused)
    found = complete_script(workload, hardware, "\n".join(TILES), options=QUICK)
    assert len(tried) > 1
    examine(found, draw_inputs(workload, 1))
