"""Interleaved banks: what a call's own accesses cost in them, and the padding that avoids it."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import cache
from itertools import product
from math import prod
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.whole import simulate_timing
from hwgen.codegen.lower.padding import paddings
from hwgen.errors import HwgenError
from hwgen.model.bank_cycles import Touched, served_cycles
from hwgen.model.columns import shared_banks
from hwgen.model.compiled import have_compiler
from hwgen.passes.kernel import Kernel
from hwgen.passes.phase import DEFAULTS, SearchOptions
from hwgen.passes.scripting import compile_script
from hwgen.pipeline import compile_kernel
from hwgen.polyhedral.search.search import Candidate
from hwgen.polyhedral.search.tiling import Tiling
from hwgen.report.html import page
from hwgen.report.simulation import simulation_text
from hwgen.report.trace_events import trace
from hwgen.spec.hardware import HardwareSpec
from hwgen.spec.load import load_hardware, parse_workload
from hwgen.spec.memory import Access, Banks
from hwgen.spec.workload import Workload
from hwgen.verify.data import draw_inputs
from hwgen.verify.examine import examine
from tests.sampling import QUICK, tiered

ROOT = Path(__file__).resolve().parents[2]
LANES = 16
TRANSPOSED = "y[m, n] = a[m, n] + b[n, m]"
FEW = (1, 2, 3, 5)


SPECS = ROOT / "tests" / "specs"


def chip(**parameters: int) -> HardwareSpec:
    return load_hardware(SPECS / "interleaved_banks.yaml", parameters)


def statements(tensors: dict[str, str], *compute: str) -> Workload:
    """Of float32 tensors, by their extents."""
    shapes = {name: f"float32[{shape}]" for name, shape in tensors.items()}
    return parse_workload({"name": "drawn", "tensors": shapes, "compute": list(compute)})


@cache
def searched(
    m: int = 256, n: int = 256, banks: int = 16, options: SearchOptions = DEFAULTS
) -> Kernel:
    """The kernel that the search finds."""
    shapes = {"a": f"{m}, {n}", "b": f"{n}, {m}", "y": f"{m}, {n}"}
    return compile_kernel(statements(shapes, TRANSPOSED), chip(BANKS=banks), options=options)


def dense(kernel: Kernel) -> Kernel:
    """The same tiles without padding."""
    lines = [line for line in kernel.script.splitlines() if "storage_align" not in line]
    return compiled(kernel, "\n".join(lines))


def compiled(kernel: Kernel, script: str) -> Kernel:
    """Another schedule of the same workload."""
    return compile_script(kernel.workload, kernel.hardware, script)


def two_slots(tiling: Tiling, m: int, n: int) -> Tiling:
    """Other tiles, two slots of each."""
    slots = tuple((name, 2) for name, _ in tiling.slots)
    return replace(tiling, tiles=(("m", m), ("n", n)), slots=slots)


def squares(size: int) -> Kernel:
    """Square tiles, padded as is best for them; no load runs ahead of its tile, so that a call has
    the banks for itself."""
    found = searched()
    tiling = two_slots(found.tiling, size, size)
    made = compile_kernel(found.workload, found.hardware, Candidate(tiling, 0.0))
    lines = [line for line in made.script.splitlines() if "s.shift" not in line]
    return compiled(made, "\n".join(lines))


def busy(kernel: Kernel) -> int:
    return kernel.timing.unit("vector").busy


def test_a_transposed_operand_is_padded() -> None:
    """The transposed tile of 32 x 32 has rows 33 entries apart; the others stay dense."""
    kernel = squares(32)
    strides = {name: layout.strides for name, layout in kernel.layouts.items()}
    assert strides == {"a_local": (32, 1), "b_local": (33, 1), "y_local": (32, 1)}
    assert kernel.layouts["b_local"].padding == 31
    assert kernel.program.buffer["b_local"].slot_entries == 31 * 33 + 32


def test_padding_makes_every_access_conflict_free() -> None:
    kernel = squares(32)
    assert shared_banks(kernel.program, kernel.hardware) == ()
    assert busy(kernel) == 64 * (4 + 32 * 32 // LANES)
    assert "bank conflicts: none" in simulation_text(
        kernel, examine(kernel, draw_inputs(kernel.workload, 0))
    )


def test_without_padding_the_lanes_wait_for_one_bank_and_the_report_says_which() -> None:
    """Sixteen lanes read one bank with two ports, and another operand wants it too."""
    kernel = dense(squares(32))
    assert busy(kernel) == 64 * (4 + 9 * 32 * 32 // LANES)
    (conflict,) = shared_banks(kernel.program, kernel.hardware)
    assert (conflict.intrinsic, conflict.operand, conflict.memory) == ("add", "y", "local")
    assert (conflict.calls, conflict.lost) == (64, 64 * 8 * 32 * 32 // LANES)
    report = simulation_text(kernel, examine(kernel, draw_inputs(kernel.workload, 0)))
    assert "bank conflicts: 32,768 cycles" in report
    assert "its own y" in report


def test_pages_show_what_calls_lose_to_their_own_accesses() -> None:
    kernel = squares(32)
    assert "There are no bank conflicts" in page(kernel)
    shown = page(dense(kernel))
    assert "Calls waited 32,768 cycles (" in shown
    assert "for ports held by other calls or by their own accesses" in shown
    assert "its own y" in shown
    assert '"local banks"' in trace(kernel)


def test_the_search_finds_a_kernel_that_conflicts_do_not_slow() -> None:
    kernel = searched()
    assert shared_banks(kernel.program, kernel.hardware) == ()
    assert kernel.cycles <= squares(32).cycles
    assert kernel.cycles < 0.8 * dense(squares(32)).cycles


def test_the_script_says_the_padding_and_gives_it_again() -> None:
    kernel = squares(32)
    script = kernel.script
    assert "s.storage_align(b_local, 0, 16, " in script
    again = compile_script(kernel.workload, kernel.hardware, script)
    assert not again.parts
    assert (again.cycles, again.layouts) == (kernel.cycles, kernel.layouts)
    assert str(again.program) == str(kernel.program)


def test_a_script_decides_itself() -> None:
    """Nothing is added to what it says: no padding without `storage_align`, another with it."""
    kernel = squares(32)
    script = kernel.script
    assert set(dense(kernel).layouts["b_local"].strides) == {32, 1}
    other = script.replace("(b_local, 0, 16, 1)", "(b_local, 0, 32, 3)")
    assert other != script
    made = compile_script(kernel.workload, kernel.hardware, other)
    assert not made.parts
    assert made.layouts["b_local"].strides == (35, 1)
    assert made.cycles == kernel.cycles  # 35 = 3 modulo 16: every bank once
    examine(made, draw_inputs(made.workload, 1))


def test_padding_that_does_not_fit_is_an_error_of_capacity() -> None:
    kernel = squares(32)
    script = kernel.script.replace("(b_local, 0, 16, 1)", "(b_local, 0, 64, 3)")
    with pytest.raises(HwgenError, match="H502") as caught:
        compile_script(kernel.workload, kernel.hardware, script)
    known = caught.value.diagnostic
    assert "b_local 2 x 2109 entries" in known.found
    line = 1 + next(n for n, x in enumerate(script.splitlines()) if "storage_align" in x)
    assert known.repair == f"the same tiles fit without storage_align (script:{line})"


def test_a_full_memory_leaves_no_room_for_padding() -> None:
    """Tiles of 16 x 85 leave 32 entries, and a padded one takes 84 more in each of two slots."""
    found = searched()
    tiling = two_slots(found.tiling, 16, 85)
    entries = [tiling.slot[s] * tiling.entries(s) for s in ("a_local", "b_local", "y_local")]
    assert sum(entries) == 8192 - 32
    kernel = compile_kernel(found.workload, found.hardware, Candidate(tiling, 0.0))
    assert "storage_align" not in kernel.script


@pytest.mark.parametrize("banks", tiered([1, 2, 8, 64], [1, 64]))
def test_other_numbers_of_banks(banks: int) -> None:
    kernel = searched(70, 50, banks)
    examine(kernel, draw_inputs(kernel.workload, banks))
    full = simulate_timing(kernel.program, kernel.hardware)
    assert full.cycles == kernel.cycles
    least = 70 * 50 // LANES * (-(-(2 * LANES) // (2 * banks)))
    assert busy(kernel) > least


ODD_SIZES = list(product((1, 7, 17, 255), repeat=2))


@pytest.mark.parametrize(
    "sizes", tiered(ODD_SIZES, [s for s in ODD_SIZES if (s[0] + s[1]) % 8], values=True), ids=str
)
def test_odd_shapes(sizes: tuple[int, int]) -> None:
    kernel = searched(*sizes, options=QUICK)
    examine(kernel, draw_inputs(kernel.workload, sum(sizes)))
    if have_compiler() and 17 in sizes:
        examine(kernel, draw_inputs(kernel.workload, 1), "c")


# Padding is worth what the whole kernel gains


def test_padding_stays_only_where_the_kernel_is_faster() -> None:
    """Rows that are apart are short bursts, which a bus with few in flight takes long for."""
    shapes = {"a": "16, 128", "b": "128, 16", "y": "16, 128"}
    kernel = compile_kernel(statements(shapes, TRANSPOSED), chip(IN_FLIGHT=1), options=QUICK)
    assert "storage_align" not in kernel.script
    (align,) = paddings(kernel.hardware, kernel.lowering)
    text = f"s.storage_align('{align.tensor}', {align.axis}, {align.factor}, {align.offset})"
    other = compiled(kernel, kernel.script + text)
    assert kernel.cycles < 0.8 * other.cycles


def test_padding_that_fits_its_phase_and_not_the_kernel_is_left_out() -> None:
    shapes = {"a": "17, 21", "b": "21, 9", "c": "9, 21", "t": "17, 9", "y": "17, 21"}
    product = ("t[m, n] += a[m, k] * b[k, n]", "y[m, p] += t[m, n] * c[n, p]")
    for depth in (20, 21, 22):
        sizes = {n: s.replace("21", str(depth)) for n, s in shapes.items()}
        hardware = chip(ENTRIES=640, PORTS=1, LATENCY=5)
        kernel = compile_kernel(statements(sizes, *product), hardware, options=QUICK)
        examine(kernel, draw_inputs(kernel.workload, 1, "small"))


@pytest.mark.parametrize(
    ("banks", "run"), tiered([(16, 1), (8, 2), (5, 4), (3, 1)], [(8, 2), (3, 1)])
)
@pytest.mark.parametrize(
    "compute", ["y[m, n] += a[m, k] * b[n, k]", "y[m, n] += a[m, k] * b[k, n]"]
)
def test_sums_of_products(banks: int, run: int, compute: str) -> None:
    turned = "k, n" in compute
    shapes = {"a": "18, 15", "b": "15, 14" if turned else "14, 15", "y": "18, 14"}
    hardware = chip(BANKS=banks, RUN=run, ENTRIES=banks * run * 64)
    kernel = compile_kernel(statements(shapes, compute), hardware, options=QUICK)
    inputs = draw_inputs(kernel.workload, run, "small")
    examine(kernel, inputs)
    assert simulate_timing(kernel.program, hardware).cycles == kernel.cycles
    script = kernel.script
    again = compile_script(kernel.workload, hardware, script)
    assert str(again.program) == str(kernel.program)
    if have_compiler():
        examine(kernel, inputs, "c")


@pytest.mark.skipif(not have_compiler(), reason="no C compiler")
def test_a_kernel_that_gcc_12_gets_wrong() -> None:
    """Right at -O1 and with sanitizers, wrong at -O2 unless induction variables are left alone."""
    shapes = {"a": "18, 15", "b": "14, 15", "y": "18, 14"}
    workload = statements(shapes, "y[m, n] += a[m, k] * b[n, k]")
    hardware = chip(BANKS=5, RUN=4, ENTRIES=10000, LANES=8, IN_FLIGHT=1)
    kernel = compile_script(workload, hardware, PADDED_SUMS)
    assert not kernel.parts
    assert kernel.layouts["y_local"].strides == (56, 4)
    for engine in ("python", "c"):
        examine(kernel, draw_inputs(workload, 1, "small"), engine)


PADDED_SUMS = """
y_local = s.cache_write('y', 'local')
y_0_o, y_0_i = s.split('y_0', factor=4)
s.compute_at(y_local, y_0_o)
k_o, k_i = s.split('k', factor=8)
s.reorder(k_o, 'm', 'n', k_i)
y_local_init = s.decompose_reduction(y_local, k_o)
a_local = s.cache_read('a', 'local')
s.compute_at(a_local, y_0_o)
b_local = s.cache_read('b', 'local')
s.double_buffer(a_local, 2)
s.storage_align(y_local, 1, 20, 4)
s.tensorize(y_local_init, 'zero')
s.tensorize(y_local, 'mac')
s.tensorize('y', 'store')
s.tensorize(a_local, 'load')
s.tensorize(b_local, 'load')
"""


@pytest.mark.parametrize(("given", "step"), [("0, 16, 8", 3), ("0, 32, 0", 4), ("1, 8, 0", 3)])
def test_entries_of_several_elements_are_padded_whole(given: str, step: int) -> None:
    """Three entries of eight lanes in a row; axis 1 is that of the lanes."""
    kernel, script = lanes()
    made = compile_script(
        kernel.workload, kernel.hardware, f"{script}s.storage_align(b_local, {given})"
    )
    assert not made.parts
    assert step in made.layouts["b_local"].strides
    examine(made, draw_inputs(made.workload, 0))


@pytest.mark.parametrize(
    ("given", "repair"), [("15, 14", "16, 8"), ("7, 0", "8, 0"), ("16, 4", "16, 0")]
)
def test_parts_of_entries_are_refused(given: str, repair: str) -> None:
    kernel, script = lanes()
    with pytest.raises(HwgenError, match="H516") as caught:
        compile_script(
            kernel.workload, kernel.hardware, f"{script}s.storage_align(b_local, 0, {given})"
        )
    known = caught.value.diagnostic
    assert given.replace(", ", "*n + ") in known.found
    assert known.repair == f"storage_align('b_local', 0, {repair})"


def lanes() -> tuple[Kernel, str]:
    """A product whose right factor has entries of eight elements."""
    tensors = {"a": "int32[12, 20]", "b": "int32[20, 24]", "y": "int32[12, 24]"}
    compute = ["y[m, n] += a[m, k] * b[k, n]"]
    workload = parse_workload({"name": "product", "tensors": tensors, "compute": compute})
    kernel = compile_kernel(workload, load_hardware(SPECS / "wide_rows.yaml"), options=QUICK)
    return kernel, kernel.script


def test_more_iterations_than_a_call_has_cost_nothing_to_count() -> None:
    banks = Banks(1, 4096, 1, 1, ways=4)
    touched = (Touched("one", banks, "read", 0, (2,), 1),)
    assert served_cycles(10**12, (8,), touched) == served_cycles(8, (8,), touched) == 4


# The cost itself, against what the description says, element by element


def one_by_one(at_once: int, extents: tuple[int, ...], operands: list[Touched]) -> int:
    points = list(product(*(range(n) for n in extents)))
    cycles = 0
    for start in range(0, len(points), at_once):
        wanted: Counter[tuple[str, str, int]] = Counter()
        ports: dict[tuple[str, str, int], int] = {}
        for o in operands:
            entries = {
                o.address + n + sum(i * s for i, s in zip(point, o.strides, strict=True))
                for point in points[start : start + at_once]
                for n in range(o.span)
            }
            for entry in entries:
                for kind, count in o.banks.ports(o.access):
                    key = (o.memory, kind, (entry // o.banks.run) % o.banks.ways)
                    wanted[key] += 1
                    ports[key] = count
        cycles += max(1, *(-(-n // ports[key]) for key, n in wanted.items()))
    return cycles


@st.composite
def accesses(draw: st.DrawFn) -> tuple[int, tuple[int, ...], list[Touched]]:
    extents = tuple(draw(st.lists(st.integers(1, 9), max_size=3)))
    memories = {
        name: Banks(
            1, 4096, *draw(st.sampled_from([(1, 1, 0), (2, 1, 0), (0, 0, 1), (0, 0, 3)])),
            ways=draw(st.integers(1, 9)), run=draw(st.integers(1, 4)),
        )
        for name in ("one", "other")
    }  # fmt: skip
    kinds: tuple[Access, ...] = ("read", "write", "update")
    operands: list[Touched] = []
    for _ in range(draw(st.integers(1, 3))):
        memory = draw(st.sampled_from(sorted(memories)))
        strides = tuple(draw(st.integers(0, 12)) for _ in extents)
        banks = memories[memory]
        address = draw(st.integers(0, banks.turn - 1))
        access = draw(st.sampled_from(kinds))
        operands.append(Touched(memory, banks, access, address, strides, draw(st.integers(1, 3))))
    return draw(st.integers(1, 20)), extents, operands


@given(accesses())
def test_the_cost_counts_every_access(drawn: tuple[int, tuple[int, ...], list[Touched]]) -> None:
    at_once, extents, operands = drawn
    found = served_cycles(at_once, extents, tuple(operands))
    assert found == one_by_one(at_once, extents, operands)
    assert found >= -(-prod(extents) // at_once)
