"""Moves: what a statement that no instruction computes may be instead, one file for each identity.

A move gives every form of a start in which the statement of a name is said otherwise, by a public
primitive. All compute the same; which is best, cost decides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from hwgen.passes.moves.bind_parts import bind_parts
from hwgen.passes.moves.distribute import distribute
from hwgen.passes.moves.in_chains import in_chains
from hwgen.passes.moves.inline import all_inlined, inline
from hwgen.passes.moves.padding_apart import padding_apart
from hwgen.passes.moves.places_apart import places_apart
from hwgen.passes.moves.signed_factors import signed_factors
from hwgen.passes.moves.simplify import simplify
from hwgen.passes.moves.split_clips import split_clips
from hwgen.passes.moves.split_constants import split_constants
from hwgen.passes.moves.start_from import start_from
from hwgen.passes.moves.unit_scales import unit_scales
from hwgen.passes.moves.unit_weights import unit_weights
from hwgen.passes.start import Start

__all__ = [
    "MOVES",
    "Move",
    "all_apart",
    "all_begun",
    "all_weighed",
    "any_turned",
    "plain",
    "with_padding_apart",
]

Move = Callable[[Start, str], Iterator[Start]]

MOVES: tuple[Move, ...] = (
    inline,
    split_constants,
    distribute,
    signed_factors,
    split_clips,
    unit_scales,
    bind_parts,
    unit_weights,
)
"""All of them, those first that need the fewest calls."""


def with_padding_apart(start: Start) -> Start:
    """The same without padding of what is computed."""
    return _everywhere(start, padding_apart)


def plain(start: Start) -> Start:
    """The same in the form in which most wordings meet: its statements in chains, all values in
    their simplest forms, no intermediate that is one step, what sums choose by place apart."""
    ordered = in_chains(start.given)
    if ordered is not start.given:
        start = Start(ordered, start.hardware)
    inlined = all_inlined(_everywhere(start, simplify))
    return _everywhere(_everywhere(inlined, simplify), places_apart)


def all_weighed(start: Start) -> Start:
    """The same with weights of all statements that take some."""
    return start if start.does("weigh") else _everywhere(start, unit_weights)


def all_apart(start: Start) -> Start:
    """The same with all in statements of their own that units may compute of others."""
    for move in (signed_factors, distribute, split_clips):
        start = _everywhere(start, move)
    return start


def any_turned(start: Start) -> bool:
    """Whether units multiply factors of a sum in the type of the other sign alone."""
    return _everywhere(start, signed_factors) is not start


def all_begun(start: Start) -> Start:
    """The same with all sums starting from what is added to them."""
    return start if start.does("start_from") else _everywhere(start, start_from, sums=False)


def _everywhere(start: Start, move: Move, *, sums: bool = True) -> Start:
    """The same after a move of every statement that has it, by its first form; one that only begins
    another's elements has none. `sums`: of accumulations too."""
    for statement in start.workload.statements:
        if start.stages.get(statement.name) and (sums or not statement.accumulates):
            start = next(move(start, statement.name), start)
    return start
