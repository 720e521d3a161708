"""Orders and placements that are best at some tile sizes.

Each has a bound on its cost that takes a fraction of the cost's time. In the order of their bounds
they are costed until the bounds alone say that all others are worse.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable, Sequence
from functools import cached_property

import numpy as np

from hwgen.polyhedral.search.estimate import Costing, Wanted
from hwgen.polyhedral.search.estimate_moved import moved_cost
from hwgen.polyhedral.search.estimate_shape import Shape
from hwgen.polyhedral.search.objective import Objective


def promising(shapes: Sequence[Shape], count: int, objective: Objective) -> list[int]:
    """The places of the best shapes of the same points, so many of those with tiles in parts and of
    the others, ascending."""
    alike = [shape.alike for shape in shapes]
    costs: dict[object, _ShapeCost] = {}
    for shape, key in zip(shapes, alike, strict=True):
        if key not in costs:
            costs[key] = _ShapeCost(shape, objective)
    kept: list[int] = []
    for parts in (False, True):
        mine = [n for n, shape in enumerate(shapes) if bool(shape.parts) is parts]
        mine.sort(key=lambda n: costs[alike[n]].bound)
        kept += _best([(n, costs[alike[n]]) for n in mine], count)
    return sorted(kept)


class _ShapeCost:
    """What the best point of a shape costs, and a `bound` below it; infinite where none fits."""

    def __init__(self, shape: Shape, objective: Objective) -> None:
        self.shape, self.objective = shape, objective
        self.costing = Costing(shape)
        bound = self.costing.bound
        if objective != "cycles":
            bound = np.where(np.isfinite(bound), moved_cost(shape, objective), np.inf)
        self.bound = float(bound.min())

    @cached_property
    def cost(self) -> float:
        if self.objective != "cycles":
            return self.bound
        return float(self.costing.costed(Wanted(1)).with_caches(self.shape).cycles.min())


def _best(shapes: Iterable[tuple[int, _ShapeCost]], count: int) -> list[int]:
    """Of shapes in the order of their bounds, the places of the best."""
    best: list[tuple[float, int]] = []
    for n, shape in shapes:
        if len(best) >= count and shape.bound > best[count - 1][0]:
            break
        insort(best, (shape.cost, n))
    return [n for _, n in best[:count]]
