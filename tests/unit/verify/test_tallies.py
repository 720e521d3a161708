"""What campaigns count adds up, and what they show of failures is the smallest of each look."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from hwgen.verify.campaign import simplest
from tests.fuzz.tallies import Counted, one_of_each


@dataclass
class Tally(Counted):
    """One field of each sort."""

    drawn: int = 0
    codes: Counter[str] = field(default_factory=Counter[str])
    wrong: list[str] = field(default_factory=list[str])


def test_tallies_add_up_field_by_field() -> None:
    tally = Tally(1, Counter(H1=2), ["a"])
    tally.add(Tally(2, Counter(H1=1, H2=1), ["b"]))
    assert tally == Tally(3, Counter(H1=3, H2=1), ["a", "b"])


def test_of_those_that_look_the_same_the_smallest_is_shown() -> None:
    found = ["xlong", "xs", "ylonger", "z", "yy"]
    assert one_of_each(found, lambda f: f[0], len, 2) == ["z", "xs"]
    assert one_of_each(found, lambda f: f[0], len, 9) == ["z", "xs", "yy"]


def test_a_failure_is_made_simpler_until_nothing_simpler_fails() -> None:
    def simpler(number: int) -> Iterator[int]:
        return (n for n in (number // 2, number - 1) if n >= 7)

    assert simplest(100, simpler) == 7
    assert simplest(7, simpler) == 7
