"""A chip whose registers have literal names: kernels simulated, compiled and executed."""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from benchmarks.whole import simulate_timing
from hwgen.codegen.emit_c import emit
from hwgen.codegen.lower.literals import with_literals
from hwgen.codegen.nodes import Call, If, Loop, Node, calls
from hwgen.errors import HwgenError
from hwgen.model.c_compiler import load_library
from hwgen.model.compiled import have_compiler
from hwgen.passes.kernel import Kernel
from hwgen.passes.scripting import compile_script
from hwgen.passes.trees import compile_tree
from hwgen.polyhedral.schedule.schedule import Schedule
from hwgen.spec.expression import Const
from hwgen.spec.hardware import HardwareSpec
from hwgen.spec.load import load_hardware, load_workload
from hwgen.spec.workload import Workload
from hwgen.verify.data import draw_inputs
from hwgen.verify.examine import examine
from tests.conftest import Golden
from tests.inner_loops import disassembled, inner_loops, on_the_stack
from tests.sampling import tiered

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = (ROOT / "workloads" / "schedules" / "matmul_panels.script").read_text(encoding="utf-8")
STRICT = ("-std=c11", "-O3", "-march=native", "-Wall", "-Wextra", "-Werror", "-pedantic")
FLAGS = Path("/proc/cpuinfo")
NATIVE = have_compiler() and FLAGS.is_file() and " avx512f " in FLAGS.read_text()
"""Whether this machine runs what is emitted."""

SIZES = [
    (24, 64, 32),
    (12, 32, 256),
    (13, 33, 257),
    (2, 2, 2),
    (31, 47, 33),
    (25, 401, 300),
    (127, 513, 255),
]
"""M, N and K: whole tiles, and each of the tails."""

DIRECT = """\
c_zmm = s.cache_write('c', 'zmm')
rows, row = s.split('c_0', factor=4)
vectors, lane = s.split('c_1', factor=16)
s.reorder(vectors, rows, row, lane)
s.compute_at(c_zmm, rows)
v, j = s.split('n', factor=16)
s.reorder('k', 'm', v, j)
s.decompose_reduction(c_zmm, 'k')
b_zmm = s.cache_read('b', 'zmm')
s.compute_at(b_zmm, 'k')
l, b_lane = s.split('b_zmm_1', factor=16)
s.tensorize('n_i_init', 'zero')
s.tensorize(j, 'fma_direct')
s.tensorize(b_lane, 'load_direct')
s.tensorize(lane, 'store')
"""
"""Every operand where the caller has it: one of a multiply-add from memory, repeated."""


@cache
def chip() -> HardwareSpec:
    return load_hardware(ROOT / "hw_specs" / "x86_avx512.yaml")


def product(m: int, n: int, k: int) -> Workload:
    return load_workload(ROOT / "workloads" / "matmul.yaml", {"M": m, "N": n, "K": k})


def compiled(script: str, m: int, n: int, k: int) -> Kernel:
    return compile_script(product(m, n, k), chip(), script)


def executed(kernel: Kernel, m: int, n: int, k: int) -> None:
    """What is emitted for the chip, as strict compilers take it, on this machine."""
    library = load_library(kernel.source.c, kernel.source.function, (*STRICT, "-shared", "-fPIC"))
    function = getattr(library, kernel.source.function)
    draw = np.random.default_rng(0)
    a, b = (draw.integers(-8, 9, shape).astype(np.float32) for shape in ((m, k), (k, n)))
    # What lies past the end of the result must stay as it is.
    found = np.full(m * n + 64, 7.0, np.float32)
    given = (x.ctypes.data_as(ctypes.c_void_p) for x in (a, b, found))
    assert function(*given) == 0
    assert np.array_equal(found[: m * n], (a @ b).ravel())
    assert np.all(found[m * n :] == 7.0)


@pytest.mark.parametrize(("m", "n", "k"), tiered(SIZES[:-2], [SIZES[0], SIZES[3]]))
def test_a_product_in_panels_is_right(m: int, n: int, k: int) -> None:
    kernel = compiled(SCRIPT, m, n, k)
    examine(kernel, draw_inputs(kernel.workload, 1), "both" if have_compiler() else "python")


@pytest.mark.skipif(not NATIVE, reason="this machine has no AVX-512")
@pytest.mark.parametrize(("m", "n", "k"), tiered(SIZES, SIZES[::3]))
def test_what_is_emitted_is_right(m: int, n: int, k: int) -> None:
    executed(compiled(SCRIPT, m, n, k), m, n, k)


@pytest.mark.parametrize(("m", "n", "k"), [(8, 32, 8), (9, 35, 8)])
def test_an_operand_of_a_computation_comes_from_memory(m: int, n: int, k: int) -> None:
    kernel = compiled(DIRECT, m, n, k)
    examine(kernel, draw_inputs(kernel.workload, 1), "both" if have_compiler() else "python")
    (image,) = {
        o.buffer for c in calls(kernel.program.body) if c.intrinsic == "fma_direct"
        for o in c.operands if o.name == "a"
    }  # fmt: skip
    assert kernel.program.image[image].in_place
    if NATIVE:
        executed(kernel, m, n, k)


def test_only_loops_that_move_registers_are_written_out() -> None:
    """Of the tile of 6 x 64: those of its sums, not that over k, nor those of the packing."""
    kernel = compiled(SCRIPT, 24, 128, 1024)
    found = sorted({x.variable for x in _loops(kernel.program.body)})
    assert found == ["c_k_o", "c_m_o", "c_n_i_o", "call0", "call1", "call2", "k_i"]
    (inner,) = {x.body for x in _loops(kernel.program.body) if x.variable == "k_i"}
    made = [c.intrinsic for c in inner if isinstance(c, Call)]
    assert made == ["load"] * 4 + ["fma_direct"] * 24
    sites = [c.site for c in calls(kernel.program.body)]
    assert sites == list(range(len(sites)))


def _loops(nodes: tuple[Node, ...]) -> list[Loop]:
    found: list[Loop] = []
    for node in nodes:
        if isinstance(node, Loop):
            found += [node, *_loops(node.body)]
        elif isinstance(node, If):
            found += _loops((*node.then, *node.otherwise))
    return found


def test_every_register_has_a_name() -> None:
    kernel = compiled(SCRIPT, 24, 64, 32)
    for call in calls(kernel.program.body):
        declared = chip().intrinsic[call.intrinsic].operands
        for given, operand in zip(call.operands, declared, strict=True):
            if chip().memory[operand.memory].literal:
                assert isinstance(given.address, Const)
    used = {int(n) for n in re.findall(r"zmm(\d+)\b", kernel.source.c)}
    assert used == set(range(28))
    (declared,) = re.findall(r"^ *__m512 (.*);$", kernel.source.c, re.MULTILINE)
    assert len(declared.split(", ")) == len(used)


def test_the_program_with_names_is_the_one_that_was_estimated() -> None:
    """The same calls in the same order; once they have names, nothing is left to do."""
    made = compile_tree(Schedule(product(25, 33, 40), chip()).replay(SCRIPT))
    full = simulate_timing(made.program, chip())
    assert (
        made.timing.cycles == full.cycles == simulate_timing(made.lowering.program, chip()).cycles
    )
    assert with_literals(made.program, chip()) == made.program


def test_an_address_that_is_no_number_is_not_emitted() -> None:
    made = compile_tree(Schedule(product(24, 64, 32), chip()).replay(SCRIPT))
    with pytest.raises(HwgenError, match="is no number") as caught:
        emit(made.lowering.program, chip(), made.workload)
    assert caught.value.code == "H602"


SLOTS = "s.double_buffer(b_zmm, 2)\ns.shift(b_zmm, 'k', -1)\n"
"""Loads a step ahead, into registers in turn."""


@pytest.mark.parametrize("k", [8, 9])
def test_slots_in_turn_are_registers_in_turn(k: int) -> None:
    """The loop over k is written out twice, for the two slots, and not as often as it runs."""
    kernel = compiled(DIRECT + SLOTS, 4, 16, k)
    examine(kernel, draw_inputs(kernel.workload, 1), "both" if have_compiler() else "python")
    made = [x for x in _loops(kernel.program.body) if x.variable == "k"]
    assert made
    for loop in made:
        assert [c.intrinsic for c in loop.body if isinstance(c, Call)].count("load_direct") == 2
    if NATIVE:
        executed(kernel, 4, 16, k)


def test_loops_that_are_too_long_are_not_written_out(
    golden: Golden, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A chip of more registers than any, all of which a tile takes."""
    monkeypatch.chdir(tmp_path)
    text = (ROOT / "hw_specs" / "x86_avx512.yaml").read_text(encoding="utf-8")
    wide = Path("wide.yaml")
    wide.write_text(text.replace("size: 31*64", "size: 8192*64"), encoding="utf-8")
    script = DIRECT.replace("'c_0', factor=4", "'c_0', factor=4096")
    with pytest.raises(HwgenError) as caught:
        compile_tree(Schedule(product(4096, 16, 8), load_hardware(wide)).replay(script))
    assert caught.value.code == "H618"
    golden(ROOT / "tests" / "error" / "compile" / "literal_addresses.txt", str(caught.value))


@pytest.mark.skipif(not (NATIVE and shutil.which("objdump")), reason="no AVX-512, or no objdump")
def test_no_register_is_spilled_in_the_inner_loop(tmp_path: Path) -> None:
    """24 multiply-adds and what they need: all 28 registers stay registers."""
    kernel = compiled(SCRIPT, 48, 64, 512)
    source, made = tmp_path / "kernel.c", tmp_path / "kernel.o"
    source.write_text(kernel.source.c, encoding="utf-8")
    subprocess.run(["gcc", *STRICT, "-c", str(source), "-o", str(made)], check=True)
    found = inner_loops(disassembled(made), "vfmadd", 24)
    assert found
    for body in found:
        assert not on_the_stack(body, "%zmm")
