"""A processor's program executes the instances that its tree intends, and every defect of that is
found by the check of it alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import cache

import pytest

import hwgen
from hwgen.codegen.instances.nests import check_nest_instances
from hwgen.codegen.nodes import Code, CombineAcrossThreads, If, IntrinsicCall, nodes
from hwgen.codegen.processor.lower import Placing, lower_nest
from hwgen.errors import HwgenError
from hwgen.passes.nest_pipeline import compile_nest
from hwgen.polyhedral.schedule.schedule import Schedule
from hwgen.spec.load import make_workload
from tests.planted.nests import executed_mutations
from tests.unit.codegen_processor import samples
from tests.unit.tree import toy


def staged() -> Schedule:
    """Blocks over tiles with tails, threads over elements, operands staged through shared memory
    in two slots."""
    s = samples.schedule("gemm_requant", samples.gpu(), M=10, N=13, K=8)
    m_o, m_i = s.split("m", factor=4)
    n_o, n_i = s.split("n", factor=8)
    k_o, k_i = s.split("k", factor=4)
    s.reorder(m_o, n_o, k_o, m_i, n_i, k_i)
    copies = [s.cache_read(t, "scratch", "acc") for t in ("a", "b")]
    for copy in copies:
        s.compute_at(copy, k_o)
        s.set_scope(copy, "shared")
        s.double_buffer(copy, 2)
    for loop, kind in ((m_o, "blockIdx.y"), (n_o, "blockIdx.x")):
        s.bind(loop, kind)
    for copy in (*copies, "acc"):
        inner = [x for x in s.loops(copy) if x not in (m_o, n_o, k_o, k_i)]
        s.bind(inner[0], "threadIdx.y")
        s.bind(inner[1], "threadIdx.x")
    return s


def combined() -> Schedule:
    """Threads that combine a sum, of which one stores the result."""
    s = samples.schedule("gemm", samples.gpu(), M=5, N=6, K=11)
    m_o, m_i = s.split("m", factor=3)
    outer, inner = s.split("k", factor=4)
    s.reorder(m_o, m_i, inner, "n", outer)
    s.bind(m_o, "blockIdx.x")
    s.bind(m_i, "threadIdx.y")
    s.bind(inner, "threadIdx.x")
    s.set_store_predicate("acc", f"{inner} == 0")
    return s


def combined_across() -> Schedule:
    """The same by threads of two kinds, the loop of the slower one inside."""
    s = samples.schedule("gemm", samples.gpu(), M=5, N=6, K=11)
    outer, inner = s.split("k", factor=4)
    s.reorder("m", "n", outer, inner)
    s.bind("m", "blockIdx.x")
    s.bind(outer, "threadIdx.y")
    s.bind(inner, "threadIdx.x")
    return s


def called() -> Schedule:
    """A tile of a product by one call of an intrinsic."""
    s = Schedule(toy.MATVEC, hwgen.load_hardware(samples.ROOT / "tests/specs/cpu_gemv.yaml"))
    s.tile("i", "k", 16, 64)
    s.tensorize("i_i", "gemv")
    return s


def found(workload: str, chip: str, **sizes: int) -> Schedule:
    """What the autoscheduler makes."""
    made = hwgen.build(workload, chip, sizes=sizes or None).compilation
    assert made.nest
    return made.schedule


def padded(dtype: str, sums: str) -> Schedule:
    """A convolution that reads its padding where it is, where tiles at a border choose, or as of
    integers in the copies of blocks."""
    tensors = {"x": f"{dtype}[6, 5, 3]", "xp": f"{dtype}[8, 7, 3]", "w": f"{dtype}[3, 3, 3, 8]"}
    compute = [
        "xp[h, v, c] = select(h >= 1 and h < 7 and v >= 1 and v < 6, x[h - 1, v - 1, c], 5)",
        "y[i, j, o] += xp[i + r, j + s, c] * w[r, s, c, o]",
    ]
    workload = make_workload(
        "padded", tensors={**tensors, "y": f"{sums}[6, 5, 8]"}, compute=compute
    )
    return compile_nest(workload, hwgen.load_hardware("cpu_generic")).schedule


KERNELS: dict[str, Callable[[], Schedule]] = {
    "staged": staged,
    "combined": combined,
    "combined across": combined_across,
    "vectors, padding": lambda: found("conv2d_requant", "cpu_generic", H=9, W=9, C=5, O=7),
    "padding in place": lambda: padded("float32", "float32"),
    "padding in copies": lambda: padded("int8", "int32"),
    "rows": lambda: found("layernorm", "cpu_generic"),
    "an intrinsic": called,
}


@cache
def made(name: str) -> tuple[Code, Placing]:
    s = KERNELS[name]()
    return lower_nest(s.resolved, s.homes, s.hardware)


def refused(program: Code, placing: Placing) -> str:
    try:
        check_nest_instances(program, placing)
    except HwgenError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("name", KERNELS)
def test_a_right_kernel_passes(name: str) -> None:
    assert refused(*made(name)) == ""


def test_the_kernels_have_what_they_are_for() -> None:
    for name, kind in (("combined", CombineAcrossThreads), ("an intrinsic", IntrinsicCall)):
        assert any(isinstance(n, kind) for n in nodes(made(name)[0].body)), name
    sides = [n for n in nodes(made("padding in place")[0].body) if isinstance(n, If)]
    assert all(n.otherwise for n in sides)
    assert len(sides) >= 2


@pytest.mark.parametrize("name", KERNELS)
def test_every_defect_is_found(name: str) -> None:
    program, placing = made(name)
    applied: Counter[str] = Counter()
    for defect, wrong in executed_mutations(program):
        text = refused(wrong, placing)
        applied[defect] += 1
        assert "error[H747]" in text, (defect, applied[defect])
        assert "not proved" not in text, (defect, applied[defect])
    assert applied["statement left out"] >= 2
    assert applied["one iteration fewer"] >= 1
