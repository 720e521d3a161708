"""Loops around calls whose iterations run on different cores, each with units of its own."""

from __future__ import annotations

import ctypes
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

import hwgen
from benchmarks.whole import simulate_timing
from hwgen.codegen.nodes import SERIAL, Loop, rewritten
from hwgen.codegen.nodes import nodes as all_nodes
from hwgen.errors import HwgenError
from hwgen.model.c_compiler import load_library
from hwgen.model.compiled import have_compiler
from hwgen.model.functional import run
from hwgen.model.native import compile_native_units, lacking
from hwgen.model.reference import run_reference
from hwgen.model.timing import estimate_cycles
from hwgen.passes.kernel import Kernel
from hwgen.passes.on_cores import on_all_cores
from hwgen.passes.phase import SearchOptions
from hwgen.passes.scripting import compile_script
from hwgen.pipeline import compile_workload
from hwgen.spec.hardware import HardwareSpec
from hwgen.spec.load import load_hardware, load_workload
from hwgen.spec.workload import Workload
from hwgen.verify.compare import unexplained
from hwgen.verify.data import draw_inputs
from hwgen.verify.examine import examine
from tests.conformance.test_registers import NATIVE, ROOT, STRICT
from tests.fuzz.edits import catch
from tests.planted.programs import mutations
from tests.sampling import THOROUGH

SCHEDULES = ROOT / "workloads" / "schedules"
SCRIPT = (SCHEDULES / "matmul_two_cores.script").read_text(encoding="utf-8")
ALONE = (SCHEDULES / "matmul_panels.script").read_text(encoding="utf-8")
PARALLEL = "s.parallel(m_part)\n"
BUILD = (*STRICT, "-fopenmp", "-shared", "-fPIC")


@cache
def cores(count: int) -> HardwareSpec:
    return load_hardware(ROOT / "hw_specs" / "x86_avx512.yaml", {"CORES": count})


def product(m: int, n: int, k: int) -> Workload:
    return load_workload(ROOT / "workloads" / "matmul.yaml", {"M": m, "N": n, "K": k})


@cache
def compiled(m: int, n: int, k: int) -> Kernel:
    return compile_script(product(m, n, k), cores(2), SCRIPT)


@pytest.mark.parametrize(
    ("m", "n", "k"),
    [
        (48, 64, 32),
        pytest.param(13, 33, 257, marks=THOROUGH),
        pytest.param(31, 401, 20, marks=THOROUGH),
    ],
)
def test_two_cores_compute_what_one_does(m: int, n: int, k: int) -> None:
    kernel = compiled(m, n, k)
    examine(kernel, draw_inputs(kernel.workload, 1), "both" if have_compiler() else "python")
    found = [x for x in all_nodes(kernel.program.body) if isinstance(x, Loop) and x.kind != SERIAL]
    assert [x.kind for x in found] == ["parallel"], "tails are no loops that cores wait for"


@pytest.mark.skipif(not NATIVE, reason="this machine has no AVX-512")
@pytest.mark.parametrize(
    ("m", "n", "k"), [(127, 513, 255), pytest.param(200, 401, 300, marks=THOROUGH)]
)
def test_what_is_emitted_is_right_on_threads(m: int, n: int, k: int) -> None:
    kernel = compiled(m, n, k)
    assert kernel.source.c.count("#pragma omp parallel for num_threads(2)") == 1
    function = getattr(load_library(kernel.source.c, kernel.source.function, BUILD),
                       kernel.source.function)  # fmt: skip
    draw = np.random.default_rng(0)
    a, b = (draw.integers(-8, 9, shape).astype(np.float32) for shape in ((m, k), (k, n)))
    found = np.empty((m, n), np.float32)
    for _ in range(20):  # Threads that touch the same would not always meet.
        found[...] = 7.0
        assert function(*(x.ctypes.data_as(ctypes.c_void_p) for x in (a, b, found))) == 0
        assert np.array_equal(found, a @ b)


def test_each_core_has_memories_of_its_own() -> None:
    """They are declared where the body begins; without parallel loops, at the start."""
    text = compiled(48, 64, 32).source.c
    body = text[text.index("#pragma omp") :]
    assert text.count("__m512 zmm0") == body.count("__m512 zmm0") == 1
    assert body.count("static _Thread_local float") == 1
    alone = compile_script(product(48, 64, 32), cores(2), ALONE).source.c
    assert "_Thread_local" not in alone
    assert alone.count("__m512 zmm0") == alone.count("static float panels") == 1


def test_cycles_are_those_of_the_core_with_the_most_iterations() -> None:
    """Twenty tiles of 6 rows: ten for each of two cores. Of five parts, one core has three."""
    m, n, k = 120, 96, 64
    one = compile_script(product(m, n, k), cores(1), SCRIPT).timing.cycles
    two = compile_script(product(m, n, k), cores(2), SCRIPT)
    start = cores(2).processor
    assert start is not None
    begin = start.loop["parallel"].start_cycles
    exact = simulate_timing(two.program, cores(2)).cycles
    assert two.timing.cycles == pytest.approx(exact, rel=0.001)
    half = compile_script(product(m // 2, n, k), cores(1), ALONE).timing.cycles
    assert two.timing.cycles - begin == half
    assert half <= (one - begin) / 2 * 1.01
    assert two.timing.cycles >= two.bound.cycles
    parts = compile_script(product(m, n, k), cores(2), SCRIPT.replace("nparts=2", "nparts=5"))
    fifth = (one - begin) / 5
    assert fifth * 3 * 0.99 <= parts.timing.cycles - begin <= fifth * 3 * 1.2


def test_a_parallel_loop_starts_as_often_as_it_is_reached() -> None:
    kernel = compiled(48, 64, 32)
    twice = replace(kernel.program, body=(*kernel.program.body, *kernel.program.body))
    once = estimate_cycles(kernel.program, cores(2)).cycles
    assert estimate_cycles(twice, cores(2)).cycles == pytest.approx(2 * once, rel=0.02)


@THOROUGH
def test_iterations_that_touch_the_same_are_found() -> None:
    """Parts of sums over k, added up in memory: all of them to the same elements."""
    kernel = compile_script(product(3, 17, 1024), cores(2), ALONE)
    (mutation,) = (m for m in mutations(cores(2)) if m.name == "iterations at once")
    inputs = draw_inputs(kernel.workload, 1)
    for seed in range(3):
        program = mutation.mutate(kernel.program, seed)
        assert program is not None
        assert catch(program, cores(2), kernel.workload, inputs) in mutation.caught_by
    made = rewritten(kernel.program.body, lambda n: (replace(n, kind="parallel"),)
                     if isinstance(n, Loop) and n.variable == "c_k_o" else (n,))  # fmt: skip
    with pytest.raises(HwgenError) as caught:
        run(replace(kernel.program, body=made), cores(2), inputs)
    assert caught.value.code == "H751"


def test_nothing_is_found_that_another_iteration_left() -> None:
    """Panels that are packed before the loop whose iterations use them."""
    kernel = compile_script(product(25, 33, 40), cores(2), ALONE)
    inputs = draw_inputs(kernel.workload, 1)
    made = rewritten(kernel.program.body, lambda n: (replace(n, kind="parallel"),)
                     if isinstance(n, Loop) and n.variable == "c_m_o" else (n,))  # fmt: skip
    with pytest.raises(HwgenError) as caught:
        run(replace(kernel.program, body=made), cores(2), inputs)
    assert caught.value.code == "H717"


@pytest.mark.parametrize(
    ("loop", "code", "says"),
    [
        ("n_tile", "H417", "b_panels cannot live in panels"),
        ("'c_k_o'", "H412", "iterations of c_k_o conflict"),
        ("k_i", "H412", "iterations of k_i conflict"),
    ],
)
def test_what_cores_may_not_share_is_refused(loop: str, code: str, says: str) -> None:
    text = SCRIPT.replace(PARALLEL, "") + f"s.parallel({loop})\n"
    with pytest.raises(HwgenError, match=says) as caught:
        compile_script(product(48, 64, 600), cores(2), text)
    assert caught.value.code == code


def test_what_runs_in_another_iteration_than_its_own_is_refused() -> None:
    """Loads one tile ahead would be another core's."""
    rows = (
        "a_rows = s.cache_read('a', 'rows')\ns.compute_at(a_rows, m_tile)\n"
        "a_vector, a_lane = s.split('a_rows_1', factor=16)\ns.tensorize(a_lane, 'pack_row')\n"
        "s.tensorize(lane, 'fma')\ns.double_buffer(a_rows, 2)\ns.shift(a_rows, m_tile, -1)\n"
    )
    ahead = ALONE.replace("s.tensorize(lane, 'fma_direct')\n", "") + rows
    compile_script(product(48, 64, 32), cores(2), ahead)
    with pytest.raises(HwgenError, match="no loop in order around it") as caught:
        compile_script(product(48, 64, 32), cores(2), ahead + "s.parallel(m_tile)\n")
    assert caught.value.code == "H413"


BYTES = {"a": "uint8", "OUT": "int32"}
HALVES = {"T": "bfloat16", "ACC": "float32", "OUT": "float32"}


@cache
def found(chip: str, count: int, sizes: tuple[int, int, int], types: tuple[str, ...]) -> Kernel:
    """A product as the search finds it; `types`: names and types in turn."""
    m, n, k = sizes
    named = dict(zip(types[::2], types[1::2], strict=True))
    workload = load_workload("gemm", {"M": m, "N": n, "K": k}, named)
    return compile_workload(workload, load_hardware(chip, {"CORES": count}))


def flat(types: dict[str, str]) -> tuple[str, ...]:
    return tuple(word for pair in types.items() for word in pair)


@pytest.mark.parametrize(
    ("chip", "types", "sizes"),
    [
        ("x86_vnni", BYTES, (96, 128, 256)),
        ("x86_bf16", HALVES, (61, 130, 255)),
        pytest.param("x86_vnni", {"OUT": "int32"}, (61, 130, 255), marks=THOROUGH),
    ],
)
def test_a_loop_around_calls_runs_on_all_cores(
    chip: str, types: dict[str, str], sizes: tuple[int, int, int]
) -> None:
    one, two = (found(chip, count, sizes, flat(types)) for count in (1, 2))
    assert "parallel" not in one.script
    assert two.script.count("s.parallel(") == 1
    start = two.hardware.processor
    assert start is not None
    assert two.cycles - start.start_cycles <= 0.6 * one.cycles
    examine(two, draw_inputs(two.workload, 1), "both" if have_compiler() else "python")
    if lacking(two.hardware):
        return
    inputs = draw_inputs(two.workload, 2)
    expected = run_reference(two.workload, inputs)
    kernel = compile_native_units(two.source, two.hardware)
    for _ in range(20):  # Threads that touch the same would not always meet.
        assert unexplained(two.workload, inputs, kernel.run(inputs), expected) is None


def test_small_products_stay_on_one_core() -> None:
    """To start the other one takes longer."""
    one, two = (found("x86_vnni", count, (16, 64, 64), flat(BYTES)) for count in (1, 2))
    assert two.script == one.script


@pytest.mark.parametrize(
    ("sizes", "edits"),
    [
        ((256, 16, 512), "s.parallel(c_m_o)"),
        ((4, 2048, 512), "s.parallel(c_n_o_o)"),
        ((128, 80, 256), "s.reorder(c_m_o_o, c_n_o_o)\ns.parallel(c_m_o_o)"),
    ],
)
def test_cores_take_parts_that_are_alike(sizes: tuple[int, int, int], edits: str) -> None:
    """The outermost loop, or, of an odd number of blocks, a part of another one each: its rows,
    through blocks of columns as one core takes them, whose weights stay in its cache."""
    kernel = found("x86_vnni", 2, sizes, flat(BYTES))
    assert kernel.script.rstrip().endswith(edits)
    assert on_all_cores(kernel, SearchOptions()).cycles == kernel.cycles


def test_a_sum_is_of_one_core() -> None:
    """The loop around calls is the sum's: what each core adds would be lost."""
    sizes = {"M": 1, "N": 16, "K": 4096}
    kernel = hwgen.build("gemm", load_hardware("x86_vnni", {"CORES": 2}), sizes=sizes, dtypes=BYTES)
    assert "parallel" not in kernel.script
