"""Loops that indices decide, against all pairs of instances that have the indices in common."""

from __future__ import annotations

from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from hwgen.polyhedral.tree.decided import Index, common_index, decided, fills
from hwgen.spec.affine import Affine, combine

LOOPS = ("a", "b", "c")
STEPS = st.sampled_from((-4, -1, 0, 1, 2, 3, 4, 6, 8, 12))


def functions() -> st.SearchStrategy[Affine]:
    def function(steps: tuple[int, ...], constant: int) -> Affine:
        return combine(zip(LOOPS, steps, strict=True), constant)

    return st.builds(function, st.tuples(*[STEPS] * len(LOOPS)), st.integers(-2, 2))


def extents() -> st.SearchStrategy[dict[str, int]]:
    sizes = st.tuples(*[st.integers(1, 4)] * len(LOOPS))
    return sizes.map(lambda s: dict(zip(LOOPS, s, strict=True)))


def instances(sizes: dict[str, int]) -> list[dict[str, int]]:
    ranges = [range(n) for n in sizes.values()]
    return [dict(zip(sizes, point, strict=True)) for point in product(*ranges)]


@given(st.lists(functions(), min_size=1, max_size=3), extents(), st.sets(st.sampled_from(LOOPS)))
def test_what_is_decided_is_so_in_all_pairs(
    indices: list[Affine], sizes: dict[str, int], known: set[str]
) -> None:
    found = decided([Index(f.terms) for f in indices], sizes, known)
    for one, other in product(instances(sizes), repeat=2):
        alike = all(f.at(one) == f.at(other) for f in indices)
        if alike and all(one[n] == other[n] for n in known):
            assert all(one[n] == other[n] for n in found)


@given(functions(), functions(), extents(), extents())
def test_of_two_blocks(
    one: Affine, other: Affine, mine: dict[str, int], its: dict[str, int]
) -> None:
    """Whose loop a is the same, and what is inside it is each one's own."""
    its["a"] = mine["a"]
    index = common_index(one, other, ("a",), mine, its)
    if "a" in decided([index], {"a": mine["a"]}):
        for p, q in product(instances(mine), instances(its)):
            assert one.at(p) != other.at(q) or p["a"] == q["a"]


def test_digits_are_decided() -> None:
    """Tiles of tiles, as splits of a loop make them; not those that overlap."""
    sizes = {"a": 3, "b": 4, "c": 5}
    split = Index((("a", 20), ("b", 5), ("c", 1)))
    assert decided([split], sizes) == {*LOOPS}
    window = Index((("a", 4), ("c", 1)))
    assert decided([window], sizes) == set()
    assert decided([window, Index((("a", 1),))], sizes) == {"a", "c"}


@given(st.lists(st.tuples(STEPS, st.integers(1, 5)), max_size=4))
def test_loops_that_fill_a_range(loops: list[tuple[int, int]]) -> None:
    made = {
        sum(values) for values in product(*[range(0, c * n, c) if c else [0] for c, n in loops])
    }
    last = fills(loops)
    if last is not None:
        assert made == {*range(last + 1)}
    elif min(c for c, _ in loops) > 0:
        assert made != {*range(max(made) + 1)}
