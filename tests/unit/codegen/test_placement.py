"""Where buffers lie in a memory of banks."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from hwgen.codegen.layout import BufferLayout
from hwgen.codegen.placement import Placed, Wanted, by_bank, first_fit
from hwgen.spec.memory import Banks
from tests.sampling import examples


def wanted(
    name: str, slots: int, entries: int, usable: range, phases: tuple[int, int] = (0, 0)
) -> Wanted:
    layout = BufferLayout(name, "m", slots, entries, (entries,), (1,), "")
    return Wanted(name, name, layout, *phases, usable)


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
    placed = by_bank(
        banks, [wanted("a", 2, 60, range(200)), wanted("b", 2, 40, range(200))], overlaps
    )
    assert banks_of(placed, banks) == {"a": [0, 1], "b": [0, 1]}
    assert disjoint(placed)


def test_a_buffer_that_others_are_filled_beside_gets_a_bank_of_its_own() -> None:
    banks = Banks(3, 100, shared_ports=1)
    overlaps = {(("a", 0), ("r", 0)): 1.0, (("a", 1), ("r", 0)): 1.0, (("a", 0), ("a", 1)): 1.0}
    placed = by_bank(
        banks, [wanted("a", 2, 60, range(300)), wanted("r", 1, 30, range(300))], overlaps
    )
    found = banks_of(placed, banks)
    assert len({*found["a"], *found["r"]}) == 3


def test_where_no_bank_has_room_a_buffer_crosses() -> None:
    banks = Banks(2, 100, shared_ports=1)
    placed = by_bank(banks, [wanted("a", 1, 150, range(200)), wanted("b", 1, 40, range(200))], {})
    (big,) = (p for p in placed if p.wanted.name == "a")
    assert [len(r) for r in big.banks(banks)] == [2]
    assert disjoint(placed)


def test_slots_larger_than_a_bank_take_several() -> None:
    banks = Banks(8, 10, shared_ports=1)
    overlaps = {(("a", 0), ("a", 1)): 1.0}
    (placed,) = by_bank(banks, [wanted("a", 2, 25, range(80))], overlaps)
    first, second = placed.banks(banks)
    assert first.stop <= second.start
    assert placed.stride % 10 == 0


@settings(max_examples=examples(100), deadline=None)
@given(st.data())
def test_random_placements(data: st.DataObject) -> None:
    banks = Banks(data.draw(st.sampled_from([2, 3, 4])), 32, shared_ports=1)
    first = st.one_of(st.just(0), st.integers(0, 40))
    last = st.one_of(st.just(banks.count * 32), st.integers(24, banks.count * 32))
    windows = st.tuples(first, last).map(lambda ends: range(*ends))
    phases = st.tuples(st.integers(0, 2), st.integers(0, 2)).map(lambda p: (min(p), max(p)))
    sizes = st.tuples(st.integers(1, 3), st.integers(1, 20), windows, phases)
    some = [
        wanted(f"b{n}", *drawn) for n, drawn in enumerate(data.draw(st.lists(sizes, max_size=5)))
    ]
    slots = [(w.name, n) for w in some for n in range(w.layout.slots)]
    overlaps = {
        (min(a, b), max(a, b)): float(data.draw(st.integers(0, 3))) for a in slots for b in slots
    }
    placed = by_bank(banks, some, overlaps)
    plain = first_fit(some)
    assert sorted(p.wanted.name for p in placed) == sorted(w.name for w in some)
    assert disjoint(placed)
    assert all(p.wanted.usable.start <= p.base for p in [*placed, *plain])
    if all(p.end <= p.wanted.usable.stop for p in plain):
        # Banks never make a kernel impossible.
        assert all(p.end <= p.wanted.usable.stop for p in placed)
