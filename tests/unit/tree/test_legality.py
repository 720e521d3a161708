"""The legality check looks at a state alone: states broken by hand are rejected."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from hwgen import HwgenError
from hwgen.polyhedral.tree.legality import check
from hwgen.polyhedral.tree.loop_tree import Block, Loop, LoopTree, Node, map_blocks, map_loops
from hwgen.spec.grammar import parse_expression
from hwgen.spec.workload import Workload
from tests.unit.tree.toy import BLUR, CHAIN, MATMUL, NORM, ONCE, ROWSUM, SLIDING, WINDOWS, start

Change = Callable[[LoopTree], LoopTree]


def state(workload: Workload, script: str = "", chip: str = "cpu") -> LoopTree:
    """A legal state."""
    found = start(workload, chip).replay(script).state
    check(found)
    return found


def only(node: Node) -> tuple[Loop, Node]:
    """A loop and what alone is in it."""
    assert isinstance(node, Loop)
    (inner,) = node.body
    return node, inner


def interchange(s: LoopTree) -> LoopTree:
    """The two outermost loops of the last nest change places."""
    *rest, last = s.root
    outer, inner = only(last)
    assert isinstance(inner, Loop)
    return replace(s, root=(*rest, replace(inner, body=(replace(outer, body=inner.body),))))


def swap_nests(s: LoopTree) -> LoopTree:
    """The last nest first."""
    return replace(s, root=(s.root[-1], *s.root[:-1]))


def swap_body(name: str) -> Change:
    """The parts of a loop's body in the opposite order."""
    return lambda s: replace(
        s,
        root=map_loops(
            s.root,
            lambda x: (replace(x, body=x.body[::-1]),) if x.name == name else (x,),
        ),
    )


def resize(name: str, by: int) -> Change:
    """A loop that runs more or less often."""
    return lambda s: replace(
        s,
        root=map_loops(
            s.root,
            lambda x: (replace(x, extent=x.extent + by),) if x.name == name else (x,),
        ),
    )


def of_kind(name: str, kind: str, combines: bool = False) -> Change:
    """A loop that runs in another way."""
    return lambda s: replace(
        s,
        root=map_loops(
            s.root,
            lambda x: (replace(x, kind=kind, combines=combines),) if x.name == name else (x,),
        ),
    )


def bind(stage: str, iterator: str, text: str) -> Change:
    """An iterator of a stage bound to something else."""

    def changed(block: Block) -> Block:
        if block.stage != stage:
            return block
        bindings = block.binding | {iterator: parse_expression(text)}
        return replace(block, bindings=tuple(bindings.items()))

    return lambda s: replace(s, root=map_blocks(s.root, changed))


def guard(stage: str, *conditions: str) -> Change:
    """Other guards around a stage's blocks."""
    return lambda s: replace(
        s,
        root=map_blocks(
            s.root,
            lambda b: (
                replace(b, predicate=tuple(map(parse_expression, conditions)))
                if b.stage == stage
                else b
            ),
        ),
    )


def init_inside(s: LoopTree) -> LoopTree:
    """An initialisation moved from before a reduction loop to its body."""
    (outer,) = s.root
    assert isinstance(outer, Loop)
    init, loop = outer.body
    assert isinstance(loop, Loop)
    return replace(s, root=(replace(outer, body=(replace(loop, body=(init, *loop.body)),)),))


def shifted(s: LoopTree) -> LoopTree:
    """A placed stage that computes the elements after those that are read."""
    moved = bind("b", "i", "c_i_o * 16 + i + 1")(s)
    return guard("b", "c_i_o * 16 + i + 1 < 66")(moved)


def repeated(name: str, extent: int) -> Change:
    """A whole nest run several times over."""
    return lambda s: replace(
        s, root=tuple(Loop(f"{name}{n}", extent, (x,)) for n, x in enumerate(s.root))
    )


def reader_inside(s: LoopTree) -> LoopTree:
    """The nest of the reader moved into the loops of the reduction that it reads."""
    reduction, reader = s.root
    outer, inner = only(reduction)
    assert isinstance(inner, Loop)
    inner = replace(inner, body=(*inner.body, reader))
    return replace(s, root=(replace(outer, body=(inner,)),))


MUTATIONS: dict[str, tuple[Workload, str, Change, str]] = {
    "loop order against a dependence": (SLIDING, ONCE, interchange, "before what it needs has run"),
    "nests in the wrong order": (CHAIN, "", swap_nests, "before what it needs has run"),
    "reader before the stage placed beside it": (
        CHAIN, "s.compute_at('b', 'c_j')", swap_body("c_j"), "before what it needs has run",
    ),
    "box one too small": (
        BLUR, "s.split('c_i', factor=16)\ns.compute_at('b', 'c_i_o')", resize("i", -1),
        "before what it needs has run",
    ),
    "box shifted by one": (
        BLUR, "s.split('c_i', factor=16)\ns.compute_at('b', 'c_i_o')",
        shifted, "before what it needs has run",
    ),
    "reduction box one too small": (
        WINDOWS, "s.compute_at('t', 'c_i')", resize("k", -1), "added twice",
    ),
    "missing guard": (ROWSUM, "s.split('k', factor=20)", guard("b"), "k is not in 0..47"),
    "guard too narrow": (
        ROWSUM, "s.split('k', factor=20)", guard("b", "k_o * 20 + k_i < 47"), "never runs",
    ),
    "an output in part": (MATMUL, "", resize("i", -1), "never runs"),
    "first contribution left out": (ROWSUM, "", bind("b", "k", "k + 1"), "k is not in 0..47"),
    "init inside the reduction": (
        ROWSUM, "s.decompose_reduction('b', 'k')", init_inside, "initialisation comes after",
    ),
    "init after the reduction": (
        ROWSUM, "s.decompose_reduction('b', 'k')", swap_body("i"), "initialisation comes after",
    ),
    "init of too few": (
        ROWSUM, "s.decompose_reduction('b', 'i')", resize("i_init", -1), "no initialisation",
    ),
    "a reduction twice": (ROWSUM, "", repeated("r", 2), "added twice"),
    "a contribution twice": (MATMUL, "", bind("c", "k", "k // 2"), "added twice"),
    "the last contribution first": (ROWSUM, "", bind("b", "k", "47 - k"), "comes late"),
    "reader inside the reduction": (
        NORM, "", reader_inside, "before",
    ),
}  # fmt: skip
"""What was broken: a workload, a legal script, the mutation, a part of the reason."""


@pytest.mark.parametrize("name", MUTATIONS)
def test_mutation_is_rejected(name: str) -> None:
    workload, script, change, reason = MUTATIONS[name]
    legal = state(workload, script)
    broken = change(legal)
    assert broken != legal
    with pytest.raises(HwgenError) as caught:
        check(broken)
    assert caught.value.code == "H411"
    assert reason in caught.value.diagnostic.found


CONFLICTS: dict[str, tuple[Workload, str, str, str]] = {
    "reduction": (ROWSUM, "", "k", "writes"),
    "kept between iterations": (SLIDING, ONCE, "i", "reads"),
    "kept between inner iterations": (
        SLIDING, "s.compute_at('b', 'i')\ns.set_store_predicate('b', 'i == 0 or n == 7')", "i",
        "reads",
    ),
    "one row for all": (MATMUL, "", "k", "writes"),
}  # fmt: skip


@pytest.mark.parametrize("name", CONFLICTS)
@pytest.mark.parametrize("kind", ["parallel", "vectorize", "blockIdx.x"])
def test_conflict_is_rejected(name: str, kind: str) -> None:
    workload, script, loop, verb = CONFLICTS[name]
    with pytest.raises(HwgenError) as caught:
        check(of_kind(loop, kind)(state(workload, script)))
    assert caught.value.code == "H412"
    assert caught.value.diagnostic.found.endswith(verb)


def test_loops_in_order_never_conflict() -> None:
    for workload, script, loop, _ in CONFLICTS.values():
        check(of_kind(loop, "unroll")(state(workload, script)))


def test_threads_may_combine_a_reduction_but_somebody_stores() -> None:
    legal = of_kind("k", "threadIdx.x", combines=True)(state(ROWSUM))
    assert check(legal) == {"b": ()}

    def stored(text: str) -> LoopTree:
        condition = parse_expression(text)
        return replace(
            legal, root=map_blocks(legal.root, lambda b: replace(b, store_predicate=condition))
        )

    check(stored("k == 47"))
    with pytest.raises(HwgenError, match="nobody stores b"):
        check(stored("k == 48"))


HOMES: list[tuple[Workload, str, dict[str, tuple[str, ...]]]] = [
    (CHAIN, "", {"b": (), "c": ()}),
    (CHAIN, "s.compute_at('b', 'c_i')", {"b": ("c_i",), "c": ()}),
    (CHAIN, "s.compute_at('b', 'c_j')", {"b": ("c_i", "c_j"), "c": ()}),
    (WINDOWS, "s.compute_at('t', 'c_i')", {"t": ("c_i",), "c": ()}),
    (SLIDING, "s.compute_at('b', 'j')", {"b": ("i", "j"), "c": ()}),
    # Kept from iteration to iteration: the buffer outlives them.
    (SLIDING, ONCE, {"b": (), "c": ()}),
]


@pytest.mark.parametrize("number", range(len(HOMES)))
def test_homes_are_as_deep_as_values_allow(number: int) -> None:
    workload, script, homes = HOMES[number]
    assert check(state(workload, script)) == homes


def test_a_limit_moves_a_home_outwards_or_refuses() -> None:
    placed = state(CHAIN, "s.compute_at('b', 'c_j')")
    assert check(placed, {"b": 1})["b"] == ("c_i",)
    assert check(placed, {"b": 0})["b"] == ()
    # Windows overlap: in one buffer for all iterations, contributions would be added again.
    overlapping = state(WINDOWS, "s.compute_at('t', 'c_i')")
    with pytest.raises(HwgenError, match="one contribution is added twice"):
        check(overlapping, {"t": 0})


def test_recomputation_of_plain_values_is_no_contradiction() -> None:
    placed = state(BLUR, "s.split('c_i', factor=16)\ns.compute_at('b', 'c_i_o')")
    assert check(placed, {"b": 0})["b"] == ()
    # The same in parallel, where neighbours would write one element, is one; a home of its own not.
    at_once = of_kind("c_i_o", "parallel")(placed)
    assert check(at_once)["b"] == ("c_i_o",)
    with pytest.raises(HwgenError) as caught:
        check(at_once, {"b": 0})
    assert caught.value.code == "H412"
