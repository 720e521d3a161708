"""Fused loops of which calls need the parts: lowered as the loops that were fused."""

from __future__ import annotations

from pathlib import Path

import pytest

from hwgen.passes.kernel import Kernel
from hwgen.passes.trees import compile_tree
from hwgen.polyhedral.schedule.schedule import Schedule
from hwgen.spec.load import load_hardware, make_workload
from hwgen.verify.check_program import check_program
from hwgen.verify.data import draw_inputs
from hwgen.verify.examine import examine

SPEC = Path(__file__).parents[3] / "hw_specs" / "npu_shared_buffer.yaml"
ROWS = """\
c_local = s.cache_write('c', 'local')
a_local = s.cache_read('a', 'local')
s.set_scope('b', 'local')
s.storage_align('b', 0, 32)
"""
CALLS = """\
s.tensorize('b', 'mul_imm')
s.tensorize(c_local, 'add_imm')
s.tensorize('c', 'store')
s.tensorize(a_local, 'load')
"""
FUSED = {
    "rows of a buffer that are apart": "s.fuse('i', 'j')\n",
    "every nest": "s.fuse('i', 'j')\ns.fuse('c_i', 'c_j')\ns.fuse('a_local_0', 'a_local_1')\n",
    "parts of a split loop": "o, x = s.split('c_i', factor=2)\ns.fuse(o, x)\n",
    "parts with a tail": "o, x = s.split('c_i', factor=3)\ns.fuse(o, x)\n",
    "three loops": "o, x = s.split('i', factor=2)\nrows = s.fuse(o, x)\ns.fuse(rows, 'j')\n",
}
LATER = """\
sums = s.fuse('c_i', 'c_j')
stores = s.fuse('c_0', 'c_1')
block = s.merge(sums, stores)
s.compute_at('b', block)
s.double_buffer(c_local, {slots})
s.shift('c', block, {lag})
"""


def compiled(edits: str) -> Kernel:
    workload = make_workload(
        "rows",
        tensors=dict.fromkeys("abc", "float32[8, 16]"),
        compute=["b[i, j] = a[i, j] * 2", "c[i, j] = b[i, j] + 1"],
    )
    hardware = load_hardware(SPEC)
    return compile_tree(Schedule(workload, hardware).replay(ROWS + edits + CALLS))


def checked(edits: str) -> Kernel:
    made = compiled(edits)
    examine(made, draw_inputs(made.workload, 1))
    check_program(made.program, made.hardware, made.workload)
    return made


@pytest.mark.parametrize("edits", FUSED.values(), ids=FUSED)
def test_the_calls_are_those_of_the_loops_that_were_fused(edits: str) -> None:
    assert checked(edits).cycles == compiled("").cycles


@pytest.mark.parametrize(("lag", "slots"), [(1, 2), (2, 4), (17, 18)])
def test_what_runs_later_in_a_fused_loop_runs_later_in_both(lag: int, slots: int) -> None:
    """Seventeen iterations are one row and one column."""
    checked(LATER.format(lag=lag, slots=slots))
