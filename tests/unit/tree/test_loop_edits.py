"""What edits of loops do to what is attached to them."""

from __future__ import annotations

from hwgen.polyhedral.tree.loop_tree import Prefetch
from tests.unit.tree.toy import MATMUL, ROWSUM, start


def test_prefetches_reach_as_far_after_a_split() -> None:
    s = start(ROWSUM)
    s.prefetch("a", "k", 20)
    s.split("k", factor=8)
    assert s.state.loop["k_o"].prefetches == (Prefetch("a", 3),)
    s.undo()
    s.split("k", factor=24)
    assert s.state.loop["k_o"].prefetches == (Prefetch("a", 1),)


def test_prefetches_reach_as_far_after_a_fusion() -> None:
    s = start(MATMUL)
    s.prefetch("a", "i", 2)
    s.prefetch("b", "j", 3)
    s.fuse("i", "j")
    assert s.state.loop["i_j_f"].prefetches == (Prefetch("b", 3), Prefetch("a", 128))


def test_pragmas_stay_with_the_inner_loop_and_are_kept_by_a_fusion() -> None:
    s = start(ROWSUM)
    s.pragma("k", "GCC unroll", 4)
    k_o, k_i = s.split("k", factor=8)
    assert not s.state.loop[k_o].pragmas
    assert s.state.loop[k_i].pragmas == (("GCC unroll", 4),)
    both = s.fuse(k_o, k_i)
    assert s.state.loop[both].pragmas == (("GCC unroll", 4),)


def test_names_are_never_given_again() -> None:
    s = start(ROWSUM)
    k_o, k_i = s.split("k", factor=8)
    assert s.fuse(k_o, k_i) == "k_o_k_i_f"
    assert s.split("k_o_k_i_f", factor=4) == ("k_o_k_i_f_o", "k_o_k_i_f_i")
    assert "k" not in s.loops()
    assert dict(s.state.gone)["k"] == "k was split into k_o and k_i"


def test_tiles_of_one_guard_only_where_there_is_a_tail() -> None:
    s = start(ROWSUM)
    s.split("k", nparts=5)
    assert "if k_o * 10 + k_i < 48:" in str(s)
    s.undo()
    s.split("k", factor=12)
    assert "if" not in str(s)
