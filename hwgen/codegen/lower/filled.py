"""Lanes along which no loop runs, where a call adds all of them up: those who write fill them.

A call that may let fewer lanes take part leaves the others of an entry as they were. Where a sum
reads them all the same, it writes them too, with the zeros that the host lays out there; and where
they are entries of their own, which nothing else would have written.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from hwgen.codegen.lower.lanes import check_neutral
from hwgen.polyhedral.match.bind import BoundTree
from hwgen.polyhedral.tree.aliases import places_of
from hwgen.polyhedral.tree.binding import Binding
from hwgen.spec.hardware import HardwareSpec

_Axis = tuple[str, int]
"""Where a tensor lives, and a position of its operands' indices from their end."""


def filled(covered: BoundTree, hardware: HardwareSpec) -> BoundTree:
    """The same with calls that let all lanes take part whose elements others add up, or read as
    entries of their own.

    Raises:
        HwgenError: H423 where what lies there would change a sum.
    """
    wanted = {*_added(covered), *_rows(covered, hardware)}
    if not wanted:
        return covered
    calls = {s.block.name: s.block.call for s in covered.state.sites}
    seen = set[_Axis]()
    while seen != wanted:
        seen = set(wanted)
        for name, call in calls.items():
            for iterator in _idle(call):
                if wanted.isdisjoint(_axes(covered, call, iterator, written=True)):
                    continue
                wanted.update(_axes(covered, call, iterator, written=False))
                if iterator in calls[name].single:
                    made = (*calls[name].filled, iterator)
                    calls[name] = replace(calls[name], filled=made)
    return replace(covered, state=covered.state.with_calls(calls))


def _added(covered: BoundTree) -> Iterator[_Axis]:
    """What calls read in lanes that they add up, though no loop runs along them."""
    for site in covered.state.sites:
        call = site.block.call
        target = call.intrinsic.written
        for iterator in _idle(call):
            if iterator not in (*target.indices, *call.single):
                check_neutral(covered, site, call, iterator, {iterator})
                yield from _axes(covered, call, iterator, written=False)


def _rows(covered: BoundTree, hardware: HardwareSpec) -> Iterator[_Axis]:
    """What calls read in lanes that are entries of their own, though no loop runs along them."""
    for site in covered.state.sites:
        call = site.block.call
        idle = [i for i in _idle(call) if i not in call.single]
        for operand in call.intrinsic.operands:
            memory = hardware.memory[operand.memory]
            rows = operand.indices[: len(operand.indices) - len(memory.entry_shape)]
            read = operand.access == "read" and memory.kind != "offchip"
            for iterator in idle if read else ():
                if iterator in rows:
                    yield from _axes(covered, call, iterator, written=False)


def _idle(call: Binding) -> list[str]:
    """Iterators of several lanes along which no loop runs."""
    return [i for i, n in call.intrinsic.iterators if n > 1 and not dict(call.lanes)[i]]


def _axes(covered: BoundTree, call: Binding, iterator: str, *, written: bool) -> Iterator[_Axis]:
    """Where the operands of a call that it writes, or reads, have an iterator."""
    home = places_of(covered.state)
    for operand, access in zip(call.intrinsic.operands, call.operands, strict=True):
        if (operand.access != "read") == written and iterator in operand.indices:
            place = home.get(access.tensor, access.tensor)
            yield place, len(operand.indices) - operand.indices.index(iterator)
