"""A host that issues into queues: arrivals and delays of small programs, worked out by hand."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hwgen.model.issue import Issuer
from hwgen.model.stream import Operation


@dataclass
class Units:
    """Units that start each operation when it has arrived and the one before has ended."""

    capacities: tuple[int, ...]
    cycles: int
    free: list[int] = field(default_factory=list[int])
    waiting: list[list[tuple[Operation, int, int]]] = field(
        default_factory=list[list[tuple[Operation, int, int]]]
    )
    starts: list[int] = field(default_factory=list[int])

    def __post_init__(self) -> None:
        self.free = [0] * len(self.capacities)
        self.waiting = [[] for _ in self.capacities]
        self.issuer = Issuer(self.cycles, self.capacities, self.step, self.pending, self.stuck)

    def step(self) -> bool:
        unit = next((u for u, queue in enumerate(self.waiting) if queue), None)
        if unit is None:
            return False
        operation, arrival, duration = self.waiting[unit].pop(0)
        start = max(self.free[unit], arrival)
        self.free[unit] = start + duration
        self.starts.append(start)
        self.issuer.finish(operation, start, self.free[unit])
        return True

    def pending(self, unit: int) -> int:
        return sum(operation.instructions for operation, _, _ in self.waiting[unit])

    def stuck(self, unit: int) -> None:
        raise AssertionError(f"unit {unit} is stuck")

    def issue(self, unit: int, instructions: int, duration: int) -> tuple[int, int]:
        """Arrival, and how much of it is due to a full queue."""
        operation = Operation(1, unit, "call", 0, duration, instructions=instructions)
        arrival, late = self.issuer.arrival(operation)
        # The unit sees the operation before the host goes on.
        self.waiting[unit].append((operation, arrival, duration))
        self.issuer.issued(operation, arrival)
        return arrival, late


def test_one_instruction_after_the_other() -> None:
    units = Units((8,), 4)
    assert [units.issue(0, 1, 1) for _ in range(3)] == [(4, 0), (8, 0), (12, 0)]


def test_a_queue_of_two_takes_the_third_when_the_first_has_finished() -> None:
    units = Units((2,), 1)
    # Calls of 10 cycles end at 11, 21, 31; the one that runs is in the queue.
    assert [units.issue(0, 1, 10) for _ in range(5)] == [(1, 0), (2, 0), (11, 8), (21, 9), (31, 9)]


def test_a_run_of_five_keeps_the_host_until_its_last_instruction_is_in() -> None:
    units = Units((2, 2), 4)
    # It runs from 4 to 54, ten cycles each: three of five have finished at 34.
    assert units.issue(0, 5, 50) == (4, 0)
    assert units.issuer.free == 34
    assert units.issue(1, 1, 1) == (38, 0)


def test_a_queue_that_holds_the_run_lets_the_host_go_on() -> None:
    units = Units((5, 2), 4)
    assert units.issue(0, 5, 50) == (4, 0)
    assert units.issuer.free == 20
    assert units.issue(1, 1, 1) == (24, 0)


def test_two_runs_in_one_queue() -> None:
    units = Units((4,), 1)
    # The first runs from 1 to 31: its instructions finish at 11, 21 and 31.
    assert units.issue(0, 3, 30) == (1, 0)
    assert units.issuer.free == 3
    # One place is left; the others become free at 11 and 21.
    assert units.issue(0, 3, 30) == (4, 0)
    assert units.issuer.free == 21


def test_a_blocked_host_issues_nothing_else() -> None:
    units = Units((1, 1), 1)
    assert units.issue(0, 1, 100) == (1, 0)
    assert units.issue(0, 1, 5) == (101, 99)
    # The other unit has been idle all the time.
    assert units.issue(1, 1, 5) == (102, 0)


def test_the_state_repeats_relative_to_now() -> None:
    units = Units((2,), 1)
    for _ in range(6):
        units.issue(0, 1, 10)
    before, now = units.issuer.signature(units.free[0]), units.free[0]
    units.issue(0, 1, 10)
    after = units.issuer.signature(units.free[0])
    assert units.free[0] == now + 10 or before == after
    units.issuer.shift(1000)
    assert units.issuer.signature(units.free[0] + 1000) == after


calls = st.lists(
    st.tuples(st.integers(0, 1), st.integers(1, 9), st.integers(1, 40)), min_size=1, max_size=30
)


@settings(deadline=None, derandomize=True)
@given(calls, st.integers(1, 5), st.tuples(st.integers(1, 6), st.integers(1, 6)))
def test_arrivals_are_in_order_and_no_queue_overflows(
    given_calls: list[tuple[int, int, int]], cycles: int, capacities: tuple[int, int]
) -> None:
    units = Units(capacities, cycles)
    last = 0
    finished: list[list[int]] = [[], []]
    for unit, count, each in given_calls:
        arrival, late = units.issue(unit, count, count * each)
        assert arrival >= last + cycles
        assert late <= arrival - last - cycles
        # Of what was issued to the unit before, so much is still in its queue.
        inside = sum(end > arrival for end in finished[unit])
        assert inside < capacities[unit]
        last = units.issuer.free
        assert last >= arrival + (count - 1) * cycles
        while units.waiting[unit]:
            units.step()
        start = units.free[unit] - count * each
        finished[unit] += [start + each * (n + 1) for n in range(count)]
        # When the host goes on, what it issued fits.
        assert sum(end > last for end in finished[unit]) <= capacities[unit]


@pytest.mark.parametrize("capacity", [1, 2, 3])
def test_a_shorter_queue_never_lets_the_host_go_on_earlier(capacity: int) -> None:
    def free(entries: int) -> int:
        units = Units((entries,), 2)
        for count in (3, 1, 4, 1, 5):
            units.issue(0, count, 7 * count)
        return units.issuer.free

    assert free(capacity) >= free(capacity + 1)
