"""Loops, conditions and statements: what is lowered computes what the reference does."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from hwgen.codegen.nodes import If, Loop, PrefetchOf, nodes
from hwgen.codegen.processor.emit import emit_nest
from hwgen.codegen.processor.lower import lower_nest
from hwgen.codegen.processor.races import findings
from hwgen.errors import HwgenError
from hwgen.model.compiled import have_compiler
from hwgen.model.native import compile_portable
from hwgen.model.reference import random_inputs, run_reference
from hwgen.polyhedral.schedule.schedule import Schedule
from hwgen.polyhedral.tree.build import build_state
from hwgen.polyhedral.tree.edit import replace_loop
from hwgen.polyhedral.tree.loop_tree import map_blocks
from hwgen.spec.expression import Access, Binary, Const, Name
from hwgen.spec.hardware import HardwareSpec
from hwgen.spec.load import load_hardware, load_workload, make_workload
from tests.unit.codegen_processor import samples

pytestmark = pytest.mark.skipif(not have_compiler(), reason="no C compiler")


@pytest.mark.parametrize("name", samples.WORKLOADS)
def test_a_workload_as_written(name: str) -> None:
    workload = samples.workload(name)
    state = build_state(workload)
    hardware = samples.cpu()
    homes: dict[str, tuple[str, ...]] = {t.name: () for t in state.tensors}
    program = lower_nest(state, homes, hardware)[0]
    assert findings(program, hardware) == []
    source = emit_nest(program, hardware, workload)
    inputs = random_inputs(workload, 3)
    found = compile_portable(source, hardware).run(inputs)
    samples.agree(found, run_reference(workload, inputs))


def test_the_same_program_and_text_every_time() -> None:
    first, second = (samples.schedule("conv2d", samples.cpu()) for _ in range(2))
    assert str(samples.program(first)) == str(samples.program(second))
    assert samples.source(first) == samples.source(second)


def test_a_tail_becomes_a_bound() -> None:
    s = samples.schedule("relu", samples.cpu())
    s.split("n", factor=4)
    program = samples.program(s)
    assert not any(isinstance(n, If) for n in nodes(program.body))
    bounds = [str(n.upper) for n in nodes(program.body) if isinstance(n, Loop)]
    assert "min(4, n_o * -4 + 7)" in bounds
    samples.check_native(s)


def test_a_fused_tail_stays_a_condition() -> None:
    s = samples.schedule("relu", samples.cpu())
    outer, inner = s.split("n", factor=4)
    s.fuse(outer, inner)
    program = samples.program(s)
    assert any(isinstance(n, Loop) and n.extent == 8 for n in nodes(program.body))
    samples.check_native(s)


def test_conditions_settle_outside_of_loops_that_they_do_not_name() -> None:
    s = samples.schedule("gemm", samples.cpu())
    outer, inner = s.split("m", factor=3)
    s.reorder(outer, inner, "k", "n")
    tails = [n for n in nodes(samples.program(s).body) if isinstance(n, Loop) and n.extent == 3]
    assert [str(n.upper) for n in tails] == ["min(3, m_o * -3 + 5)"]
    samples.check_native(s)


def test_ways_to_run_a_loop() -> None:
    s = samples.schedule("gemm", samples.cpu(), N=16)
    s.reorder("m", "k", "n")
    s.parallel("m")
    s.vectorize("n")
    s.unroll("k")
    s.pragma("c_m", "GCC unroll", 2)
    s.prefetch("b", "m", 1)
    text = samples.check_native(s).c
    for line in ("#pragma omp parallel for", "#pragma GCC unroll 1\n", "#pragma GCC unroll 9",
                 "#pragma GCC unroll 2"):  # fmt: skip
        assert line in text
    assert "__builtin_prefetch(&b[" in text


def summing(folder: Path) -> HardwareSpec:
    """A core whose lanes may share a sum."""
    text = (samples.ROOT / "hw_specs" / "cpu_generic.yaml").read_text(encoding="utf-8")
    alone = 'emit: "{% if extent <= 16 %}#pragma GCC unroll 1{% endif %}"'
    assert text.count(alone) == 1
    file = folder / "summing.yaml"
    shared = 'emit: "#pragma omp simd", sum: "#pragma omp simd reduction(+:{{ sum }})"'
    file.write_text(text.replace(alone, shared), encoding="utf-8")
    return load_hardware(file, trust=True)


def test_lanes_share_a_sum(tmp_path: Path) -> None:
    """Also a tail's, and what begins with none of its own; what moves with the lanes is no sum."""
    s = samples.schedule("layernorm", summing(tmp_path), M=5, N=27)
    outer, inner = s.split("n", factor=8)
    s.vectorize(inner)
    s.decompose_reduction("sq", "sq_n")
    s.vectorize("sq_n")
    s.vectorize("c_n")
    text = samples.check_native(s).c
    assert text.count("reduction(+:total_sum)") == text.count("reduction(+:sq_sum)") == 1
    assert text.count("#pragma omp simd") == 3
    assert s.loops("total") == ("m", outer, inner)


@pytest.mark.parametrize("op", ["max=", "min="])
def test_lanes_share_no_extremum(op: str, tmp_path: Path) -> None:
    """Nothing says what a compiler makes of NaNs there. One iteration has nothing to share."""
    tensors = {"a": "float32[4, 1, 8]", "m": "float32[4]"}
    given = make_workload("most", sizes={}, tensors=tensors, compute=[f"m[i] {op} a[i, j, k]"])
    s = Schedule(given, summing(tmp_path))
    with pytest.raises(HwgenError, match="conflict"):
        s.vectorize("k")
    s.reorder("i", "k", "j")
    s.vectorize("j")
    assert "reduction" not in samples.check_native(s).c


def test_lanes_along_a_result_as_well_share_no_sum(tmp_path: Path) -> None:
    s = samples.schedule("layernorm", summing(tmp_path))
    both = s.fuse("m", "n")
    with pytest.raises(HwgenError, match="conflict"):
        s.vectorize(both)


def test_a_loop_of_lanes_alone_is_told_what_its_pointers_reach() -> None:
    """`c` and `total` lie in one room: nothing else says that a store leaves the mean as it is."""
    s = samples.schedule("layernorm", samples.cpu(), M=6, N=40)
    s.compute_at("total", s.merge("m", "c_m"))
    s.vectorize("c_n")
    text = samples.check_native(s).c
    (head,) = [x for x in text.splitlines() if x.startswith("static void") and "_c(" in x]
    assert "const float *restrict total" in head


def test_a_prefetch_covers_what_comes_and_nothing_else() -> None:
    s = samples.schedule("gemm", samples.cpu(), M=2, N=6, K=200)
    s.prefetch("b", "n", 2)
    found = [n for n in nodes(samples.program(s).body) if isinstance(n, PrefetchOf)]
    assert [str(n.access) for n in found] == ["b[n * 200 + b_line1 * 64 + 400]"]
    loop = next(n for n in nodes(samples.program(s).body)
                if isinstance(n, Loop) and n.variable == "b_line1")  # fmt: skip
    assert loop.extent == 4  # 200 bytes in lines of 64
    guard = next(n for n in nodes(samples.program(s).body) if isinstance(n, If))
    assert str(guard.condition) == "n + 2 < 6"
    samples.check_native(s)


def test_producers_inside_reductions_are_initialised_in_time() -> None:
    s = samples.schedule("conv2d", samples.cpu())
    s.compute_at("acc", "y_i")
    s.compute_at("xp", "y_i")
    samples.check_native(s)


@pytest.mark.parametrize("loop", ["m", "n", "k"])
def test_a_reduction_taken_apart(loop: str) -> None:
    s = samples.schedule("gemm", samples.cpu())
    s.decompose_reduction("acc", loop)
    samples.check_native(s)


def test_names_of_the_language_are_not_ours() -> None:
    s = samples.schedule("relu", samples.cpu())
    s.split("n", factor=2)
    text = samples.source(s).c
    expected = "void relu_cpu_generic_M5_N7(const int8_t *restrict x, int8_t *restrict y)"
    assert expected in text


def test_a_loop_and_a_buffer_of_one_name() -> None:
    s = samples.schedule("relu", samples.cpu())
    program = samples.program(s)
    (m,) = (n for n in program.body if isinstance(n, Loop))
    assert samples.source(s).c.count("for (int64_t m = ") == 1
    state = replace_loop(s.resolved.root, "n", lambda x: (replace(x, name="y"),))
    renamed = map_blocks(state, lambda b: replace(b, bindings=(("m", Name("m")), ("n", Name("y")))))
    clash = lower_nest(replace(s.resolved, root=renamed), s.homes, samples.cpu())[0]
    text = emit_nest(clash, samples.cpu(), s.workload).c
    assert "y[m * 7 + y_] = " in text
    assert m.extent == 5


GEMV = """
hwgen: 1
name: gemv
sizes: {M: 32, K: 128}
tensors:
  a: float32[M, K]
  x: float32[K]
  y: float32[M]
compute:
  - y[m] += a[m, k] * x[k]
"""


def test_an_intrinsic_gets_pointers_and_strides(tmp_path: Path) -> None:
    path = tmp_path / "gemv.yaml"
    path.write_text(GEMV)
    hardware = load_hardware(samples.ROOT / "tests/specs/cpu_gemv.yaml", trust=True)
    s = Schedule(load_workload(path), hardware)
    m_o, m_i = s.split("m", factor=16)
    k_o, k_i = s.split("k", factor=64)
    s.reorder(m_o, k_o, m_i, k_i)
    s.tensorize(m_i, "gemv")
    text = samples.check_native(s).c
    assert "gemv_16x64(&y_[m_o * 16], &a_[m_o * 2048 + k_o * 64], &x_[k_o * 64], 128);" in text
    assert findings(samples.program(s), hardware) == []
    # Cut inside the call, the address is no longer linear in its loops.
    state = s.resolved
    stage = replace(state.stage["y"], target=Access("y", (Binary("%", Name("m"), Const(10)),)))
    bent = replace(state, stages=(stage,))
    block = state.site["y"].block
    made = block.calling(block.call.on(lambda a: stage.target if a.tensor == "y" else a))
    bent = replace(bent, root=map_blocks(state.root, lambda b: made if b == block else b))
    with pytest.raises(HwgenError) as caught:
        lower_nest(bent, s.homes, hardware)
    assert caught.value.code == "H623"


def test_a_chip_of_intrinsics_alone_is_refused() -> None:
    s = samples.schedule("relu", samples.cpu())
    chip = load_hardware(samples.ROOT / "hw_specs" / "npu_shared_buffer.yaml")
    with pytest.raises(HwgenError) as caught:
        lower_nest(s.resolved, s.homes, chip)
    assert caught.value.code == "H621"


def test_text_of_blocks_does_not_run_here() -> None:
    s = Schedule(samples.workload("relu"), samples.gpu())
    with pytest.raises(HwgenError) as caught:
        compile_portable(samples.source(s), samples.gpu()).run(random_inputs(s.workload, 0))
    assert caught.value.code == "H705"


def test_a_missing_input_is_named() -> None:
    s = samples.schedule("relu", samples.cpu())
    with pytest.raises(HwgenError) as caught:
        compile_portable(samples.source(s), samples.cpu()).run({})
    assert caught.value.code == "H701"
