"""Each scheduling primitive on a tiny kernel: the schedule before and after it."""

from __future__ import annotations

from pathlib import Path

import pytest

from hwgen.polyhedral.schedule.script import PRIMITIVES
from hwgen.spec.workload import Workload
from tests.conftest import Golden
from tests.unit.tree import toy

HERE = Path(__file__).parent / "primitives"

CASES: dict[str, tuple[Workload, str, str, str]] = {
    "cache_read": (toy.MATMUL, "cpu", "", "s.cache_read('b', 'stack')"),
    "reindex_cache_read": (
        toy.BLUR,
        "cpu",
        "",
        "s.reindex_cache_read('b', 'stack', 'c', occurrence=3)",
    ),
    "cache_write": (toy.MATMUL, "cpu", "", "s.cache_write('c', 'stack')"),
    "planes": (toy.WIDE, "cpu", "", "s.planes('b', 'int16')"),
    "weigh": (toy.NARROW, "npu", "", "s.weigh('c', 'int8')"),
    "bind_expr": (toy.NARROW, "npu", "", "s.bind_expr('c', 'a[i, j] - b[i, j]')"),
    "rewrite_expr": (
        toy.NARROW,
        "npu",
        "",
        "s.rewrite_expr('c', 'a[i, j] - b[i, j]', 'a[i, j] + 300 - b[i, j] - 300')",
    ),
    "distribute": (toy.OFFSET, "npu", "", "s.distribute('c')"),
    "decompose_padding": (toy.PADDED, "npu", "", "s.decompose_padding('p')"),
    "set_scope": (toy.CHAIN, "cpu", "s.compute_at('b', 'c_i')", "s.set_scope('b', 'stack')"),
    "storage_align": (toy.CHAIN, "cpu", "", "s.storage_align('b', 0, 32, 8)"),
    "compute_at": (toy.BLUR, "cpu", "s.split('c_i', factor=16)", "s.compute_at('b', 'c_i_o')"),
    "compute_inline": (toy.CHAIN, "cpu", "", "s.compute_inline('b')"),
    "compute_root": (toy.CHAIN, "cpu", "s.compute_at('b', 'c_j')", "s.compute_root('b')"),
    "fuse": (toy.ROWSUM, "cpu", "", "s.fuse('i', 'k')"),
    "merge": (toy.CHAIN, "cpu", "s.compute_root('b')", "s.merge('c_i', 'i')"),
    "split": (toy.ROWSUM, "cpu", "", "s.split('k', factor=20)"),
    "reorder": (toy.MATMUL, "cpu", "", "s.reorder('k', 'i')"),
    "tile": (toy.MATMUL, "cpu", "", "s.tile('i', 'j', 16, 32)"),
    "unroll": (toy.ROWSUM, "cpu", "s.split('k', factor=4)", "s.unroll('k_i')"),
    "vectorize": (toy.CHAIN, "cpu", "s.split('j', factor=8)", "s.vectorize('j_i')"),
    "bind": (toy.ROWSUM, "cuda", "", "s.bind('i', 'blockIdx.x')"),
    "parallel": (toy.ROWSUM, "cpu", "", "s.parallel('i')"),
    "pragma": (toy.ROWSUM, "cpu", "", "s.pragma('k', 'GCC unroll', 4)"),
    "prefetch": (toy.ROWSUM, "cpu", "", "s.prefetch('a', 'i', 2)"),
    "tensorize": (
        toy.MATVEC,
        "gemv",
        "s.tile('i', 'k', 16, 64)",
        "s.tensorize('i_i', 'gemv')",
    ),
    "rescale": (toy.EXPS, "cpu", "", "s.rescale('top', 20)"),
    "rfactor": (toy.ROWSUM, "cpu", "s.split('k', factor=8)", "s.rfactor('b', 'k_i')"),
    "set_store_predicate": (
        toy.ROWSUM,
        "cuda",
        "s.bind('i', 'blockIdx.x')\ns.bind('k', 'threadIdx.x')",
        "s.set_store_predicate('b', 'k == 0')",
    ),
    "create_group": (
        toy.GROUP,
        "cpu",
        "",
        "g = s.create_group('E', ['A', 'B'])\ns.compute_at(g, 'F_i')",
    ),
    "double_buffer": (toy.CHAIN, "cpu", "s.compute_at('b', 'c_i')", "s.double_buffer('b')"),
    "transform_layout": (
        toy.CHAIN,
        "cpu",
        "",
        "s.transform_layout('b', '[i, j] -> [j // 16, i, j % 16]')",
    ),
    "set_bank": (
        toy.CHAIN,
        "cuda",
        "s.bind('c_i', 'blockIdx.x')\ns.compute_at('b', 'c_i')\ns.set_scope('b', 'shared')",
        "s.set_bank('b', 3)",
    ),
    "pad": (toy.ROWSUM, "cpu", "", "s.pad('k', 32)"),
    "decompose_reduction": (toy.ROWSUM, "cpu", "", "s.decompose_reduction('b', 'k')"),
    "set_address": (
        toy.CHAIN,
        "cuda",
        "s.bind('c_i', 'blockIdx.x')\ns.compute_at('b', 'c_i')\ns.set_scope('b', 'shared')",
        "s.set_address('b', 256)",
    ),
    "shift": (
        toy.CHAIN,
        "npu",
        "s.compute_at('b', 'c_i')\ns.set_scope('b', 'local')\ns.double_buffer('b')",
        "s.shift('c', 'c_i', 1)",
    ),
    "sink": (
        toy.MATMUL,
        "npu",
        "c = s.cache_write('c', 'local')\ns.split('k', factor=16)\ns.reorder('k_o', 'i', 'j')",
        "s.sink('c', 'k_o', 'last')",
    ),
    "interleave": (
        toy.CHAIN,
        "npu",
        "s.split('i', factor=32)\ns.split('c_i', factor=32)\ns.merge('i_o', 'c_i_o')",
        "s.interleave('i_i', 'c_i_i', (16, 12), 'i_o')",
    ),
    "retain": (
        toy.MATMUL,
        "npu",
        "s.cache_read('b', 'local')\ns.compute_at('b_local', 'i')",
        "s.retain('b_local', 'i')",
    ),
    "start_from": (toy.BIASED, "npu", "", "s.start_from('acc', 'bias')"),
    "alias": (
        toy.STEPS,
        "npu",
        "s.set_scope('b', 'local')\ns.set_scope('t', 'local')",
        "s.alias('t', 'b')",
    ),
}


def test_every_primitive_has_a_case() -> None:
    assert set(CASES) == set(PRIMITIVES)


@pytest.mark.parametrize("primitive", CASES)
def test_primitive(primitive: str, golden: Golden) -> None:
    workload, chip, setup, edit = CASES[primitive]
    s = toy.start(workload, chip).replay(setup)
    before = str(s)
    s.replay(edit)
    assert str(s) != before
    text = f"{before}\n\n# {edit.replace(chr(10), chr(10) + '# ')}\n\n{s}\n"
    assert len(text.splitlines()) < 60
    golden(HERE / f"{primitive}.txt", text)
    for _ in edit.splitlines():
        s.undo()
    assert str(s) == before
