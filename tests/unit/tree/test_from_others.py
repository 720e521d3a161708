"""The pages for users of other schedulers: every primitive is there, every line of code runs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import hwgen

DOCS = Path(__file__).parents[3] / "docs"

TE = """
split fuse reorder tile unroll vectorize parallel bind pragma prefetch compute_at compute_inline
compute_root cache_read cache_write set_scope storage_align double_buffer rolling_buffer rfactor
create_group env_threads opengl normalize set_store_predicate tensorize
"""
"""`te.Schedule` and `te.Stage`."""

TENSOR_IR = """
work_on copy seed fork_seed get remove_rv sample_categorical sample_perfect_tile
sample_partitioned_tile sample_compute_location get_block get_loops get_child_blocks get_producers
get_consumers get_output_blocks fuse merge split loop_partition reorder reorder_block_iter_var
add_unit_loop parallel vectorize bind unroll cache_read cache_write reindex_cache_read
reindex_cache_write cache_inplace cache_index reindex read_at write_at compute_at
reverse_compute_at compute_inline reverse_compute_inline rfactor decompose_reduction pad_einsum
storage_align set_scope unsafe_set_dtype blockize tensorize annotate unannotate transform_layout
transform_block_layout set_axis_separator decompose_padding rolling_buffer enter_postproc
unsafe_hide_buffer_access annotate_buffer_access show mod trace state
"""
"""`tir.Schedule`."""

EXO = """
divide_with_recompute divide_loop mult_loops join_loops cut_loop shift_loop reorder_loops fission
remove_loop add_loop unroll_loop lift_scope fuse specialize bind_expr resize_dim expand_dim
rearrange_dim divide_dim mult_dim unroll_buffer lift_alloc sink_alloc reuse_buffer stage_mem
delete_buffer rename make_instr simplify eliminate_dead_code delete_pass insert_pass inline_window
reorder_stmts commute_expr left_reassociate_expr rewrite_expr merge_writes split_write
fold_into_reduce inline_assign lift_reduce_constant extract_subproc replace call_eqv inline
bind_config delete_config write_config set_precision set_window set_memory parallelize_loop
"""
"""Exo's primitives, of its own pages on them."""

NAMES = {
    "from-tvm.md": {*TE.split(), *TENSOR_IR.split()},
    "from-exo.md": set(EXO.split()),
}
COMPILED = "(compiled)"
_PARTS = re.compile(r"^```python\n(.*?)^```$|^(\|.*)$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class Line:
    """A row with code. `before`: the page's definitions so far; `start`: its table's schedule."""

    page: str
    before: str
    start: str
    code: str
    compiled: bool


def parts(page: str) -> Iterator[re.Match[str]]:
    """The code blocks and the rows of tables, in order."""
    text = (DOCS / page).read_text(encoding="utf-8")
    # A row is one line; a block is not to reach over several rows.
    yield from re.finditer(r"^```python\n((?:(?!```).*\n)*)```$|^(\|.*\|)$", text, re.MULTILINE)


def lines(page: str) -> Iterator[Line]:
    before, start, compiled = "", "", False
    for found in parts(page):
        block, row = found.groups()
        if block is not None:
            if block.startswith("s = "):
                start = block
            else:
                before += block
            continue
        cells = [c.strip() for c in row.strip("|").split("|")]
        if cells[1].startswith("hwgen"):
            compiled = COMPILED in cells[1]
        elif code := re.fullmatch(r"`([^`]*)`", cells[1]):
            yield Line(page, before, start, code[1], compiled)


LINES = [line for page in NAMES for line in lines(page)]


@pytest.fixture(scope="module")
def definitions() -> dict[str, dict[str, Any]]:
    """What the pages' own blocks define, by the blocks."""
    return {}


@pytest.mark.parametrize("line", LINES, ids=lambda x: f"{x.page[5:8]}:{x.code[:48]}")
def test_a_line_runs(line: Line, definitions: dict[str, dict[str, Any]]) -> None:
    """Legal, and where the page says so a kernel for the chip comes of it."""
    if line.before not in definitions:
        made: dict[str, Any] = {}
        exec(line.before, made)
        definitions[line.before] = made
    names = dict(definitions[line.before])
    exec(f"{line.start}\n{line.code}", names)
    s = names["s"]
    assert isinstance(s, hwgen.Schedule)
    if line.compiled:
        assert hwgen.build(s.workload, s.hardware, script=s, auto=False).c


@pytest.mark.parametrize("page", NAMES)
def test_every_primitive_is_on_its_page(page: str) -> None:
    rows = [found[2] for found in parts(page) if found[2]]
    first = " ".join(row.split("|")[1] for row in rows)
    named = set(re.findall(r"\w+", " ".join(re.findall(r"`([^`]*)`", first))))
    assert NAMES[page] - named == set()
    assert all(len(row.strip("|").split("|")) == 3 for row in rows)


def test_a_wrong_line_is_found(definitions: dict[str, dict[str, Any]]) -> None:
    line = next(x for x in LINES if x.compiled)
    wrong = Line(line.page, line.before, line.start, 's.unroll("nothing")', compiled=True)
    with pytest.raises(hwgen.HwgenError, match="H414"):
        test_a_line_runs(wrong, definitions)
