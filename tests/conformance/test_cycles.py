"""Modelled cycles, exactly: against kernels measured on the RTL, and on drawn programs against a
model that runs the published rules one cycle after another."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.whole import simulate_timing
from hwgen.codegen.nodes import Call, Node, Pop, Push
from hwgen.codegen.program import KernelLoop, MicroKernelDef, Program
from hwgen.model.compiled import have_compiler
from hwgen.model.timing import estimate_cycles
from hwgen.passes.scripting import compile_script
from hwgen.spec.expression import Const
from hwgen.spec.hardware import HardwareSpec
from hwgen.spec.load import load_hardware, load_workload
from tests.conformance.test_emitted_c import modelled_cycles, random_inputs
from tests.samples import ROOT
from tests.sampling import examples
from tests.shim.rtl_model import run_trace
from tests.unit.timing.nests import image, operand, sizes

GEMM = """
c_m_o, c_m_i = s.split('c_m', factor=16)
c_m_o_o, c_m_o_i = s.split(c_m_o, factor=1)
c_n_o, c_n_i = s.split('c_n', factor=61)
s.reorder(c_m_o_o, c_n_o, c_m_o_i, c_n_i, c_m_i)
s.set_scope('acc', 'acc')
s.compute_at('acc', c_n_o)
m_o, m_i = s.split('m', factor=16)
k_o, k_i = s.split('k', factor=16)
k_o_o, k_o_i = s.split(k_o, factor=2)
s.reorder(k_o_o, m_o, 'n', k_o_i, m_i, k_i)
acc_init = s.decompose_reduction('acc', k_o_o)
b_inp = s.cache_read('b', 'inp')
s.compute_at(b_inp, k_o_o)
b_inp_1_o, b_inp_1_i = s.split('b_inp_1', factor=16)
s.retain(b_inp, c_m_o_o)
a_wgt = s.cache_read('a', 'wgt')
s.compute_at(a_wgt, c_m_o_o)
a_wgt_0_o, a_wgt_0_i = s.split('a_wgt_0', factor=16)
a_wgt_1_o, a_wgt_1_i = s.split('a_wgt_1', factor=16)
s.reorder(a_wgt_0_o, a_wgt_1_o, a_wgt_0_i, a_wgt_1_i)
s.double_buffer('acc', 2)
s.tensorize('m_i_init', 'reset')
s.tensorize(m_i, 'gemm')
s.tensorize(c_m_i, 'store_out')
s.tensorize(b_inp_1_i, 'load_inp')
s.tensorize(a_wgt_0_i, 'load_wgt')
"""
REQUANTISED = """
c_acc = s.cache_write('c', 'acc')
c_1_o, c_1_i = s.split('c_1', factor=16)
c_n_o, c_n_i = s.split('c_n', factor=16)
s.set_scope('acc', 'acc')
n_o, n_i = s.split('n', factor=16)
k_o, k_i = s.split('k', factor=16)
s.reorder('m', n_o, k_o, n_i, k_i)
acc_init = s.decompose_reduction('acc', 'm')
a_inp = s.cache_read('a', 'inp')
a_inp_1_o, a_inp_1_i = s.split('a_inp_1', factor=16)
b_wgt = s.cache_read('b', 'wgt')
b_wgt_0_o, b_wgt_0_i = s.split('b_wgt_0', factor=16)
b_wgt_1_o, b_wgt_1_i = s.split('b_wgt_1', factor=16)
s.reorder(b_wgt_0_o, b_wgt_1_o, b_wgt_0_i, b_wgt_1_i)
bias_acc = s.cache_read('bias', 'acc')
bias_acc_0_o, bias_acc_0_i = s.split('bias_acc_0', factor=16)
s.tensorize('n_i_init', 'reset')
s.tensorize(n_i, 'gemm')
s.tensorize(c_n_i, 'add', 'shr_imm', 'max_imm', 'min_imm')
s.tensorize(c_1_i, 'store_out')
s.tensorize(a_inp_1_i, 'load_inp')
s.tensorize(b_wgt_0_i, 'load_wgt')
s.tensorize(bias_acc_0_i, 'load_acc')
"""
MEASURED = (
    ("gemm", {"M": 29, "N": 183, "K": 69}, GEMM, 1, 60, 5_906),
    ("gemm_requant", {"M": 1, "N": 10, "K": 64}, REQUANTISED, 20, 20, 460),
)
"""Workload, sizes, schedule, latencies of reads and writes, cycles of the RTL."""


def vta(read: int, write: int) -> HardwareSpec:
    """The chip with these latencies."""
    latencies: dict[str, Any] = {"READ_LATENCY": read, "WRITE_LATENCY": write}
    return load_hardware(ROOT / "hw_specs" / "vta.yaml", latencies)


@pytest.mark.parametrize(("name", "shape", "script", "read", "write", "cycles"), MEASURED)
def test_kernels_that_were_measured(
    name: str, shape: dict[str, int], script: str, read: int, write: int, cycles: int
) -> None:
    workload = load_workload(ROOT / "workloads" / f"{name}.yaml", shape)
    compiled = compile_script(workload, vta(read, write), script)
    assert compiled.cycles == cycles
    if have_compiler():
        inputs = random_inputs(compiled.source)
        assert modelled_cycles(compiled.source, inputs, read, write) == cycles


Step = tuple[str, int, int, int, int]
"""Kind, rows, entries of a row, entries from one row to the next, and the first entry."""

LOADS = {"load_inp": (1, 2, 16, "a"), "load_wgt": (1, 1, 256, "b"), "load_acc": (2, 3, 64, "bias")}
"""Stage, memory, bytes of an entry and image of each load."""
STAGES = {1: "load", 2: "compute", 3: "store"}
PLACES = {"a": 1 << 20, "b": 2 << 20, "bias": 3 << 20, "c": 4 << 20}

steps = st.lists(
    st.tuples(
        st.sampled_from([*LOADS, "gemm", "add_imm", "store"]),
        st.integers(1, 40),
        st.integers(1, 24),
        st.integers(0, 40),
        st.integers(0, 30),
    ),
    min_size=1,
    max_size=30,
)
tokens = st.lists(st.tuples(st.integers(0, 29), st.integers(0, 29)), max_size=20)


def stage_of(step: Step) -> int:
    return LOADS[step[0]][0] if step[0] in LOADS else 3 if step[0] == "store" else 2


def ordered(drawn: list[Step], pairs: list[tuple[int, int]]) -> dict[tuple[int, str, int], None]:
    """Which steps push to, and pop from, which stages: (step, way, other stage)."""
    found: dict[tuple[int, str, int], None] = {}
    for first, then in pairs:
        if first < then < len(drawn):
            source, target = stage_of(drawn[first]), stage_of(drawn[then])
            push, pop = (first, "push", target), (then, "pop", source)
            if abs(source - target) == 1 and push not in found and pop not in found:
                found[push] = found[pop] = None
    return found


def traced(drawn: list[Step], order: dict[tuple[int, str, int], None]) -> list[dict[str, Any]]:
    """The instructions, as the shim would write them down."""
    blank: dict[str, Any] = {"memory": 0, "address": 0, "entry_bytes": 4, "x": 0, "y": 0,
                             "stride": 0, "pads": [0, 0, 0, 0], "iterations": 0, "operands": 1,
                             "pop": [0, 0], "push": [0, 0]}  # fmt: skip
    found: list[dict[str, Any]] = []
    operations = 0
    for n, (kind, rows, entries, stride, at) in enumerate(drawn):
        stage = stage_of(drawn[n])
        pop, push = (
            [int((n, way, stage + d) in order) for d in (-1, 1)] for way in ("pop", "push")
        )
        moved = {"stage": stage, "x": entries, "y": rows, "stride": stride}
        if kind in LOADS:
            _, memory, size, name = LOADS[kind]
            place = {"memory": memory, "entry_bytes": size, "address": PLACES[name] + at * size}
            found.append({**blank, "kind": "load", **moved, **place, "pop": pop, "push": push})
        elif kind == "store":
            place = {"memory": 4, "entry_bytes": 16, "address": PLACES["c"] + at * 16}
            found.append({**blank, "kind": "store", **moved, **place, "pop": pop, "push": push})
        else:
            made = {"address": 4 * operations, "x": entries, "y": 1, "stride": entries}
            found.append({**blank, "kind": "load_uop", "stage": 2, **made, "pop": pop})
            operations += entries
            run = {"kind": "gemm" if kind == "gemm" else "alu", "iterations": rows * entries}
            found.append({**blank, "stage": 2, **run, "push": push})
    # The completion; the last push of the store unit belongs to its call, where that is the last.
    if found[-1]["stage"] == 3 and not found[-1]["push"][0]:
        found[-1]["push"] = [1, 0]
    else:
        found.append({**blank, "kind": "nop", "stage": 3, "push": [1, 0]})
    found.append({**blank, "kind": "nop", "stage": 1, "push": [0, 1]})
    found.append({**blank, "kind": "nop", "stage": 2, "pop": [1, 1]})
    return [*found, {**blank, "kind": "finish", "stage": 2}]


def programmed(drawn: list[Step], order: dict[tuple[int, str, int], None]) -> Program:
    """The same as a program."""
    body: list[Node] = []
    kernels: list[MicroKernelDef] = []
    for n, (kind, rows, entries, stride, at) in enumerate(drawn):
        unit = STAGES[stage_of(drawn[n])]
        given_ = [(way, STAGES[other]) for step, way, other in order if step == n]
        body += [Pop(other, unit) for way, other in given_ if way == "pop"]
        if kind in LOADS:
            image_ = LOADS[kind][3]
            places = operand("dst", "x", 0, entries, 1), operand("src", image_, at, stride, 1)
            body.append(Call(n, kind, unit, places, sizes(rows, entries)))
        elif kind == "store":
            places = operand("dst", "c", at, stride, 1), operand("src", "y", 0, entries, 1)
            body.append(Call(n, "store_out", unit, places, sizes(rows, entries)))
        else:
            count = 3 if kind == "gemm" else 2
            immediates = () if kind == "gemm" else (("imm", 1),)
            loops = (KernelLoop(rows, (0,) * count),), (KernelLoop(entries, (1,) * count),)
            kernels.append(MicroKernelDef(f"k{n}", kind, *loops, ((0,) * count,), immediates))
            body.append(Call(n, kind, unit, (), (), (), f"k{n}", Const(0)))
        body += [Push(unit, other) for way, other in given_ if way == "push"]
    images = (
        image("a", "int8", (4096,), (1, 16)),
        image("b", "int8", (4096,), (16, 16)),
        image("bias", "int32", (4096,), (1, 16)),
        image("c", "int8", (4096,), (1, 16)),
    )
    inputs = ("a", "b", "bias")
    return Program("p", "vta", "w", inputs, ("c",), images, (), tuple(kernels), tuple(body))


@settings(max_examples=examples(60))
@given(steps, tokens, st.integers(1, 200), st.integers(1, 200))
def test_drawn_programs(
    drawn: list[Step], pairs: list[tuple[int, int]], read: int, write: int
) -> None:
    """Several readers at once, rows of all lengths and alignments, at many latencies."""
    hardware, order = vta(read, write), ordered(drawn, pairs)
    program = programmed(drawn, order)
    expected = run_trace(traced(drawn, order), read, write)
    for timing in (simulate_timing(program, hardware), estimate_cycles(program, hardware)):
        assert timing.cycles == expected.total_cycles
        busy = {stage: timing.unit(unit).busy for stage, unit in STAGES.items()}
        assert busy == expected.busy_cycles
