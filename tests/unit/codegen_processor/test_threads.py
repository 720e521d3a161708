"""Blocks and threads: launches, guards, barriers, reductions over threads; every barrier counts."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from hwgen.codegen.nodes import (
    Code,
    If,
    Launch,
    Loop,
    Node,
    ThreadBarrier,
    nodes,
    with_inner,
)
from hwgen.codegen.processor.emit import emit_nest
from hwgen.codegen.processor.lower import lower_nest
from hwgen.codegen.processor.races import findings
from hwgen.errors import HwgenError
from hwgen.model.reference import random_inputs, run_reference
from hwgen.polyhedral.schedule.schedule import Schedule
from hwgen.polyhedral.tree.edit import replace_loop
from hwgen.polyhedral.tree.loop_tree import Loop as TreeLoop
from hwgen.spec.load import load_workload, parse_workload
from tests.sampling import tiered
from tests.shim.cuda import device
from tests.unit.codegen_processor import samples

needs_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="no g++")


def tiled() -> Schedule:
    """Blocks over tiles, threads over elements, operands staged through shared memory."""
    s = samples.schedule("gemm_requant", samples.gpu(), M=10, N=13, K=9)
    m_o, m_i = s.split("m", factor=4)
    n_o, n_i = s.split("n", factor=8)
    k_o, k_i = s.split("k", factor=4)
    s.reorder(m_o, n_o, k_o, m_i, n_i, k_i)
    copies = [s.cache_read(t, "scratch", "acc") for t in ("a", "b")]
    for copy in copies:
        s.compute_at(copy, k_o)
        s.set_scope(copy, "shared")
    for loop, kind in ((m_o, "blockIdx.y"), (n_o, "blockIdx.x")):
        s.bind(loop, kind)
    for copy in (*copies, "acc"):
        inner = [x for x in s.loops(copy) if x not in (m_o, n_o, k_o, k_i)]
        s.bind(inner[0], "threadIdx.y")
        s.bind(inner[1], "threadIdx.x")
    return s


def races(s: Schedule, program: Code | None = None) -> list[str]:
    return findings(program or samples.program(s), samples.gpu())


@needs_compiler
@pytest.mark.parametrize("name", tiered(samples.WORKLOADS, samples.WORKLOADS[::6]))
def test_a_workload_as_written(name: str) -> None:
    s = samples.schedule(name, samples.gpu(), N=3, K=4, C=2, H=4, W=3)
    assert races(s) == []
    samples.check_blocks(s)


@needs_compiler
def test_staged_tiles() -> None:
    s = tiled()
    program = samples.program(s)
    assert races(s) == []
    waits = [n for n in nodes(program.body) if isinstance(n, ThreadBarrier)]
    # Before the tiles are read, and before they are overwritten: no fewer do.
    assert len(waits) == 2
    text = samples.check_blocks(s).c
    assert "<<<dim3(2, 3, 1), dim3(8, 8, 1)>>>" in text
    # Else a block of many threads may need more registers than there are, and never start.
    assert "static __global__ void __launch_bounds__(64) gemm_requant_0(" in text


def removed(program: Code) -> Iterator[Code]:
    """The program without one of its barriers, for each of them."""
    count = sum(isinstance(n, ThreadBarrier) for n in nodes(program.body))

    def without(body: tuple[Node, ...], left: list[int]) -> tuple[Node, ...]:
        result: list[Node] = []
        for node in body:
            match node:
                case ThreadBarrier():
                    left[0] -= 1
                    if left[0] != -1:
                        result.append(node)
                case _:
                    result.append(with_inner(node, lambda inside: without(inside, left)))
        return tuple(result)

    for n in range(count):
        yield replace(program, body=without(program.body, [n]))


@needs_compiler
def test_every_barrier_that_is_removed_is_missed() -> None:
    s = tiled()
    inputs = random_inputs(s.workload, 5)
    expected = run_reference(s.workload, inputs)
    programs = list(removed(samples.program(s)))
    assert programs
    for program in programs:
        assert any("without a barrier" in f or "between barriers" in f for f in races(s, program))
        source = emit_nest(program, samples.gpu(), s.workload)
        found = [device.run(source, inputs, seed).outputs["c"] for seed in range(6)]
        assert any(not np.array_equal(f, expected["c"]) for f in found)


@needs_compiler
def test_a_barrier_in_divergent_code_is_seen() -> None:
    s = tiled()
    program = samples.program(s)

    def guarded(body: tuple[Node, ...]) -> tuple[Node, ...]:
        first = next(n for n in nodes(program.body) if isinstance(n, If))
        result: list[Node] = []
        for node in body:
            match node:
                case ThreadBarrier():
                    result.append(If(first.condition, (node,)))
                case _:
                    result.append(with_inner(node, guarded))
        return tuple(result)

    wrong = replace(program, body=guarded(program.body))
    assert any("different barriers" in f for f in races(s, wrong))
    source = emit_nest(wrong, samples.gpu(), s.workload)
    done = device.run(source, random_inputs(s.workload, 5))
    assert "barrier" in done.message


@needs_compiler
@pytest.mark.parametrize(
    ("serial_first", "threads"),
    tiered(
        list(product((False, True), (1, 2, 3, 5, 6, 8))),
        [(False, 3), (True, 5)],
    ),
)
def test_threads_combine_a_reduction(threads: int, serial_first: bool) -> None:
    s = samples.schedule("matvec", samples.gpu(), M=5, K=23)
    outer, inner = s.split("k", factor=threads)
    s.reorder(*(("m", outer, inner) if serial_first else ("m", inner, outer)))
    s.bind("m", "blockIdx.x")
    s.bind(inner, "threadIdx.x")
    assert races(s) == []
    samples.check_blocks(s)
    s.set_store_predicate("acc", f"{inner} == 0")
    assert races(s) == []
    samples.check_blocks(s)


@needs_compiler
def test_threads_combine_beside_threads_that_do_not() -> None:
    s = samples.schedule("gemm", samples.gpu(), M=5, N=6, K=11)
    m_o, m_i = s.split("m", factor=3)
    outer, inner = s.split("k", factor=4)
    s.reorder(m_o, m_i, inner, "n", outer)
    s.bind(m_o, "blockIdx.x")
    s.bind(m_i, "threadIdx.y")
    s.bind(inner, "threadIdx.x")
    assert races(s) == []
    samples.check_blocks(s)


@needs_compiler
@pytest.mark.parametrize("name", ["acc_scratch", "acc_part"])
def test_a_tensor_may_be_called_like_what_threads_combine_in(name: str) -> None:
    text = {
        "tensors": {"a": "int32[5, 9]", name: "int32[5]", "acc": "int32[5]", "c": "int32[5]"},
        "compute": ["acc[m] += a[m, k]", f"{name}[m] = acc[m] + 1", f"c[m] = {name}[4 - m]"],
    }
    s = Schedule(parse_workload({"name": "named", **text}), samples.gpu())
    s.split("k", factor=2)
    s.bind("m", "blockIdx.x")
    s.bind("k_i", "threadIdx.x")
    assert races(s) == []
    samples.check_blocks(s)


@needs_compiler
def test_a_loop_around_blocks_stays_on_the_host() -> None:
    s = samples.schedule("gemm", samples.gpu())
    s.reorder("k", "m", "n")
    s.bind("m", "blockIdx.x")
    s.bind("n", "threadIdx.x")
    program = samples.program(s)
    hosted = [n for n in nodes(program.body) if isinstance(n, Loop) and n.variable == "k"]
    assert any(isinstance(n, Launch) for n in hosted[0].body)
    assert races(s) == []
    assert "int64_t k)" in samples.check_blocks(s).c


@needs_compiler
def test_fewer_threads_than_the_block_has() -> None:
    s = samples.schedule("conv2d", samples.gpu(), C=2, H=4, W=3)
    s.compute_at("acc", "y_o")
    s.bind("y_o", "blockIdx.x")
    s.set_scope("acc", "shared")
    s.bind("y_i", "threadIdx.x")
    inner = s.loops("acc")
    s.bind(next(x for x in inner if x.startswith("j")), "threadIdx.y")
    assert races(s) == []
    samples.check_blocks(s)


def refused(s: Schedule) -> str:
    with pytest.raises(HwgenError) as caught:
        samples.program(s)
    return caught.value.code


def test_too_many_threads() -> None:
    s = samples.schedule("relu", samples.gpu(), M=64, N=64)
    s.bind("m", "threadIdx.y")
    s.bind("n", "threadIdx.x")
    assert refused(s) == "H621"


def test_threads_of_a_fused_loop_do_not_combine() -> None:
    s = samples.schedule("matvec", samples.gpu())
    s.fuse("m", "k")
    name = s.loops("acc")[0]
    root = replace_loop(
        s.resolved.root, name, lambda x: (replace(x, kind="threadIdx.x", combines=True),)
    )
    with pytest.raises(HwgenError) as caught:
        lower_nest(replace(s.resolved, root=root), s.homes, samples.gpu())
    assert caught.value.code == "H620"


def test_blocks_do_not_wait_for_each_other() -> None:
    s = samples.schedule("gemm", samples.gpu())
    state = s.resolved
    (sums, last) = state.root
    assert isinstance(sums, TreeLoop)
    assert isinstance(last, TreeLoop)
    apart = tuple(replace(x, kind="blockIdx.x") for x in (sums, last))
    outer = TreeLoop("both", 2, apart, "blockIdx.y")
    with pytest.raises(HwgenError) as caught:
        lower_nest(replace(state, root=(outer,)), s.homes, samples.gpu())
    assert caught.value.code == "H624"


def test_combining_needs_memory_of_a_block() -> None:
    s = samples.schedule("matvec", samples.gpu())
    s.bind("k", "threadIdx.x")
    poor = tuple(m for m in samples.gpu().memories if m.shared_by != "block")
    chip = replace(samples.gpu(), memories=poor)
    with pytest.raises(HwgenError) as caught:
        lower_nest(s.resolved, s.homes, chip)
    assert caught.value.code == "H625"


def test_a_host_loop_is_serial() -> None:
    s = samples.schedule("relu", samples.gpu())
    s.unroll("m")
    s.bind("n", "blockIdx.x")
    assert refused(s) == "H622"


def halves() -> Schedule:
    """Floats of 16 bits, which are unpacked and packed by functions for floating point."""
    file = samples.ROOT / "workloads" / "relu.yaml"
    s = Schedule(load_workload(file, {"M": 3, "N": 40}, {"T": "float16"}), samples.gpu())
    s.bind("n", "threadIdx.x")
    return s


@needs_compiler
def test_floats_of_16_bits_in_threads() -> None:
    samples.check_blocks(halves())


@needs_compiler
def test_text_for_the_device_compiles() -> None:
    compiler = shutil.which("nvcc")
    if compiler is None:
        pytest.skip("no nvcc")
    matvec = samples.schedule("matvec", samples.gpu(), K=32)
    matvec.bind("m", "blockIdx.x")
    matvec.bind("k", "threadIdx.x")
    for s in (tiled(), matvec, samples.schedule("linear_relu", samples.gpu()), halves()):
        path = Path(device.build(samples.source(s).c)).with_suffix(".cu")
        path.write_text(samples.source(s).c)
        done = subprocess.run(
            [compiler, "-ptx", str(path), "-o", str(path.with_suffix(".ptx"))],
            capture_output=True, text=True, check=False, timeout=300,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
