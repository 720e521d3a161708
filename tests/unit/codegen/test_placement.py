"""Where buffers lie in a memory of banks."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from hwgen.codegen.layout import BufferLayout
from hwgen.codegen.placement import Placed, Wanted, by_bank, first_fit
from hwgen.spec.hardware import Banks


def wanted(name: str, slots: int, entries: int, first: int = 0, last: int = 0) -> Wanted:
    layout = BufferLayout(name, "m", slots, (entries,), (1,), "")
    return Wanted(name, name, layout, first, last)


def disjoint(placed: list[Placed]) -> bool:
    spans = [(p.wanted, a, b) for p in placed for a, b in p.spans]
    return all(
        not w.meets(v) or b <= c or d <= a
        for n, (w, a, b) in enumerate(spans)
        for v, c, d in spans[:n]
    )


def banks_of(placed: list[Placed], banks: Banks) -> dict[str, list[int]]:
    return {p.wanted.name: [r.start for r in p.banks(banks)] for p in placed}


def test_slots_used_at_once_go_to_different_banks() -> None:
    banks = Banks(2, 100, shared_ports=1)
    overlaps = {
        (("a", 0), ("a", 1)): 5.0, (("a", 0), ("b", 1)): 5.0,
        (("a", 1), ("b", 0)): 5.0, (("b", 0), ("b", 1)): 5.0,
    }  # fmt: skip
    placed = by_bank(range(200), banks, [wanted("a", 2, 60), wanted("b", 2, 40)], overlaps)
    assert banks_of(placed, banks) == {"a": [0, 1], "b": [0, 1]}
    assert disjoint(placed)


def test_a_buffer_that_others_are_filled_beside_gets_a_bank_of_its_own() -> None:
    banks = Banks(3, 100, shared_ports=1)
    overlaps = {(("a", 0), ("r", 0)): 1.0, (("a", 1), ("r", 0)): 1.0, (("a", 0), ("a", 1)): 1.0}
    placed = by_bank(range(300), banks, [wanted("a", 2, 60), wanted("r", 1, 30)], overlaps)
    found = banks_of(placed, banks)
    assert len({*found["a"], *found["r"]}) == 3


def test_where_no_bank_has_room_a_buffer_crosses() -> None:
    banks = Banks(2, 100, shared_ports=1)
    placed = by_bank(range(200), banks, [wanted("a", 1, 150), wanted("b", 1, 40)], {})
    (big,) = (p for p in placed if p.wanted.name == "a")
    assert [len(r) for r in big.banks(banks)] == [2]
    assert disjoint(placed)


def test_slots_larger_than_a_bank_take_several() -> None:
    banks = Banks(8, 10, shared_ports=1)
    overlaps = {(("a", 0), ("a", 1)): 1.0}
    (placed,) = by_bank(range(80), banks, [wanted("a", 2, 25)], overlaps)
    first, second = placed.banks(banks)
    assert first.stop <= second.start
    assert placed.stride % 10 == 0


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_random_placements(data: st.DataObject) -> None:
    banks = Banks(data.draw(st.sampled_from([2, 3, 4])), 32, shared_ports=1)
    usable = range(data.draw(st.integers(0, 8)), banks.count * 32 - data.draw(st.integers(0, 8)))
    sizes = st.tuples(st.integers(1, 3), st.integers(1, 20), st.integers(0, 2), st.integers(0, 2))
    some = [
        wanted(f"b{n}", slots, entries, min(a, b), max(a, b))
        for n, (slots, entries, a, b) in enumerate(data.draw(st.lists(sizes, max_size=5)))
    ]
    slots = [(w.name, n) for w in some for n in range(w.layout.slots)]
    overlaps = {
        (min(a, b), max(a, b)): float(data.draw(st.integers(0, 3))) for a in slots for b in slots
    }
    placed = by_bank(usable, banks, some, overlaps)
    plain = first_fit(usable, some)
    assert sorted(p.wanted.name for p in placed) == sorted(w.name for w in some)
    assert disjoint(placed)
    if all(p.end <= usable.stop for p in plain):
        # Banks never make a kernel impossible.
        assert all(usable.start <= p.base and p.end <= usable.stop for p in placed)
