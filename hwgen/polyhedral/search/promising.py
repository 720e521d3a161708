"""Orders and placements that are best at some tile sizes.

Each has a bound on its cost that takes a fraction of the cost's time. In the order of their bounds
they are costed until the bounds alone say that all others are worse.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable, Sequence

import numpy as np

from hwgen.polyhedral.search.estimate import Costing, Wanted, estimate
from hwgen.polyhedral.search.estimate_moved import moved_cost
from hwgen.polyhedral.search.estimate_shape import Shape
from hwgen.polyhedral.search.objective import Objective


def promising(shapes: Sequence[Shape], count: int, objective: Objective) -> list[int]:
    """The places of the best shapes of the same points, so many of those with tiles in parts and of
    the others, ascending."""
    alike = [shape.alike for shape in shapes]
    bounds: dict[object, float] = {}
    for shape, key in zip(shapes, alike, strict=True):
        if key not in bounds:
            bounds[key] = least_bound(shape, objective)
    kept: list[int] = []
    for parts in (False, True):
        mine = [n for n, shape in enumerate(shapes) if bool(shape.parts) is parts]
        mine.sort(key=lambda n: bounds[alike[n]])
        kept += _best(shapes, mine, [bounds[alike[n]] for n in mine], count, objective)
    return sorted(kept)


def _best(
    shapes: Sequence[Shape],
    places: Sequence[int],
    bounds: Iterable[float],
    count: int,
    objective: Objective,
) -> list[int]:
    """Of shapes in the order of their bounds, the places of the best."""
    costs: dict[object, float] = {}
    best: list[tuple[float, int]] = []
    for n, bound in zip(places, bounds, strict=True):
        if len(best) >= count and bound > best[count - 1][0]:
            break
        key = shapes[n].alike
        if key not in costs:
            # By another objective the bound is the cost.
            costs[key] = least_cost(shapes[n]) if objective == "cycles" else bound
        insort(best, (costs[key], n))
    return [n for _, n in best[:count]]


def least_cost(shape: Shape) -> float:
    """Cycles of the best point of a shape; infinite where none fits."""
    return float(estimate(shape, Wanted(1)).cycles.min())


def least_bound(shape: Shape, objective: Objective) -> float:
    """What the best point of a shape costs at least; infinite where none fits."""
    bound = Costing(shape).bound
    if objective != "cycles":
        bound = np.where(np.isfinite(bound), moved_cost(shape, objective), np.inf)
    return float(bound.min())
