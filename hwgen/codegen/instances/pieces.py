"""Instances of loops under conditions, as boxes of points."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from hwgen.codegen.instances.boxes import Condition, boxes
from hwgen.codegen.instances.forms import Form, Ranges
from hwgen.codegen.instances.points import Limits, Piece, Walk
from hwgen.codegen.instances.refuted import unproved


def pieces_of(
    ranges: Ranges,
    conditions: Sequence[Condition],
    points: Mapping[str, Form],
    limits: Limits,
) -> Iterator[Piece]:
    """The points of loops, where conditions hold. `points`: by coordinate, a function of the loops.

    Raises:
        HwgenError: H747 a coordinate that is not affine.
    """
    for coordinate, form in points.items():
        if form.quotients:
            raise unproved(f"{coordinate}: {form}", "affine functions of loops")
    within = dict(ranges)
    for name, (low, high) in limits.items():
        within[name] = max(low, ranges[name][0]), min(high, ranges[name][1])
    for box in boxes(within, conditions):
        yield piece_of({n: box[n] for n in ranges}, points)


def piece_of(box: Ranges, points: Mapping[str, Form]) -> Piece:
    """The points of a box of loops; `points`: by coordinate, an affine function of them."""
    steps: dict[str, dict[str, int]] = {n: {} for n in box}
    for coordinate, form in points.items():
        for name, step in form.steps.items():
            steps[name][coordinate] = step
    first = {c: form.constant for c, form in points.items()}
    return Piece(first, tuple(Walk(*box[n], steps[n]) for n in box))
