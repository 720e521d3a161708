"""Instances that show what a schedule breaks, and points of stages, as text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hwgen.polyhedral import isl
from hwgen.polyhedral.tree.loop_tree import Stage
from hwgen.polyhedral.tree.terms import isl_text
from hwgen.spec.expression import Access, Name, substitute

PRIME = "'"
POINT = "''''"
"""Suffix of a stage's own iterators, as distinct from its instances'."""


@dataclass(frozen=True, slots=True)
class Violation:
    """What a schedule breaks: two instances, and why they must not stand so."""

    reason: str
    first: str
    second: str

    def __str__(self) -> str:
        return f"{self.reason}: {self.first} and {self.second}"


def stage_domain(stage: Stage, suffix: str) -> list[str]:
    """Conditions on a stage's iterators, under a suffix."""
    rename = {n: Name(n + suffix) for n, _ in stage.iterators}
    inside = [isl_text(substitute(c, rename)) for c in stage.where]
    return [f"0 <= {n}{suffix} < {e}" for n, e in stage.iterators] + inside


def stage_point(stage: Stage, suffix: str) -> str:
    """A point of a stage, its iterators under a suffix."""
    return f"{stage.tensor}[{', '.join(n + suffix for n, _ in stage.iterators)}]"


def stage_elements(stage: Stage, access: Access, suffix: str) -> list[str]:
    """Indices of an access at a point of a stage."""
    rename = {n: Name(n + suffix) for n, _ in stage.iterators}
    return [isl_text(substitute(i, rename)) for i in access.indices]


def pair_text(pair: isl.Pair, first: Sequence[str], second: Sequence[str]) -> tuple[str, str]:
    """Two concrete instances, their dimensions named."""
    (a, x), (b, y) = pair
    return _show(a, first, x), _show(b, second, y)


def _show(name: str, labels: Sequence[str], values: Sequence[int]) -> str:
    """An instance as `name[loop=value, ...]`."""
    pairs = (f"{label.rstrip(PRIME)}={v}" for label, v in zip(labels, values, strict=True))
    return f"{name}[{', '.join(pairs)}]"


def point_text(point: isl.Point, labels: Sequence[str], name: str = "") -> str:
    """One point, its dimensions named."""
    found, values = point
    return _show(name or found, labels, values)
