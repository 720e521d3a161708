"""Iterations that run at once, executed one after another: what no worker may see of another one.

Each worker has memories of its own, so nothing that is in them outlives an iteration; and of what
all share, no two iterations touch an entry that one of them writes.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from .geometry import Region
from .state import SiteOperand, State, Store, call_error
from .trace import CallEvent

Numbers = npt.NDArray[np.int64]


class Workers:
    """Which iteration of a parallel loop touched each entry last. Iterations are numbered as they
    come; `_first` is the first of those that may run at once with the present one."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._loop: tuple[object, ...] = ()
        self._iteration: tuple[int, ...] = ()
        self._first = self._number = 0
        self._outside: dict[str, Store] = {}
        # Of each entry, twice the iteration that read or wrote it, plus one where it is not alone.
        self._touched: dict[tuple[str, bool], Numbers] = {}

    @property
    def inside(self) -> bool:
        """Whether the present call is in an iteration of a parallel loop."""
        return bool(self._loop)

    def enter(self, event: CallEvent) -> None:
        """Go to the iteration that a call is in."""
        team = event.site.team
        if team is None:
            if self._loop:
                self._leave()
            return
        loop = (team.loop, *event.values[: team.outside])
        iteration = event.values[: team.inside]
        if loop != self._loop:
            if self._loop:
                self._leave()
            self._outside = self._state.own_copies()
            self._loop, self._first = loop, self._number + 1
        elif iteration == self._iteration:
            return
        self._iteration = iteration
        self._number += 1
        self._state.forget(own=True)

    def _leave(self) -> None:
        """What runs in turn again finds its own memories as they were."""
        self._state.put_back(self._outside)
        self._loop, self._iteration = (), ()

    def touch(self, operand: SiteOperand, where: Region, address: int, event: CallEvent) -> None:
        """Note what a call touches of what all share.

        Raises:
            HwgenError: H751 another iteration touches the same, one of them writing.
        """
        rule = operand.rule
        memory = self._state.hardware.memory[rule.memory]
        if memory.shared_by == "thread":
            return
        entries: slice | Numbers = slice(address + where.low, address + where.high + 1)
        if where.offsets is not None:
            entries = np.asarray(where.offsets + address, np.int64)
        found = self._others(operand.store, entries, wrote=True)
        if rule.access != "read":
            found = found | self._others(operand.store, entries, wrote=False)
        if found.any():
            place = int(np.arange(operand.store.writer.size)[entries][int(np.argmax(found))])
            raise call_error(
                "H751",
                f"iterations of a parallel loop touch one entry of {operand.buffer}",
                event,
                found=f"{operand.store.name}[{place}], one of them writing",
                allowed="entries that one iteration writes are its own",
            )
        if rule.access != "write":
            read = self._numbers(operand.store, wrote=False)
            shared = self._others(operand.store, entries, wrote=False)
            read[entries] = 2 * self._number + shared
        if rule.access != "read":
            self._numbers(operand.store, wrote=True)[entries] = 2 * self._number

    def _numbers(self, store: Store, *, wrote: bool) -> Numbers:
        key = store.name, wrote
        if key not in self._touched:
            self._touched[key] = np.full(store.writer.size, -1, np.int64)
        return self._touched[key]

    def _others(
        self, store: Store, entries: slice | Numbers, *, wrote: bool
    ) -> npt.NDArray[np.bool_]:
        """Where an iteration that may run at once with this one has been."""
        last = self._numbers(store, wrote=wrote)[entries]
        at_once = (last >> 1) >= self._first
        return at_once & (((last >> 1) != self._number) | ((last & 1) == 1))
