"""Sums over boxes of points, each point a monomial, at one fixed place of a large prime field.

A point `(p, q, ...)` is the monomial `x^p * y^q * ...`; a multiset of points is the sum of theirs.
Two multisets of points are equal if and only if these polynomials are. The sum over a box of loops
has a closed form, so its value costs nothing that grows with the box. Different polynomials have
different values but for one place in 2^60 or so; the place is fixed, from the coordinates' names.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256

PRIME = 2**127 - 1

Vector = Mapping[str, int]
"""By coordinate, how far a point lies along it."""


@dataclass(frozen=True)
class Place:
    """Values of the coordinates, and what has been computed of them."""

    values: dict[str, int] = field(default_factory=dict[str, int])
    powers: dict[tuple[str, int], int] = field(default_factory=dict[tuple[str, int], int])
    runs: dict[tuple[int, int, int], int] = field(default_factory=dict[tuple[int, int, int], int])

    def monomial(self, point: Vector) -> int:
        result = 1
        for coordinate, exponent in point.items():
            if exponent:
                result = result * self._power(coordinate, exponent) % PRIME
        return result

    def _power(self, coordinate: str, exponent: int) -> int:
        key = coordinate, exponent
        if key not in self.powers:
            if coordinate not in self.values:
                digest = sha256(coordinate.encode()).digest()
                self.values[coordinate] = int.from_bytes(digest, "big") % PRIME
            self.powers[key] = pow(self.values[coordinate], exponent, PRIME)
        return self.powers[key]

    def box(self, first: Vector, loops: Iterable[tuple[tuple[int, int], Vector]]) -> int:
        """The sum over a box: from a point on, loops of a half-open range that move it each."""
        result = self.monomial(first)
        for (low, high), step in loops:
            result = result * self._run(self.monomial(step), low, high) % PRIME
        return result

    def _run(self, base: int, low: int, high: int) -> int:
        """The sum of a number's powers."""
        if base == 1 or low >= high:
            return max(0, high - low)
        key = base, low, high
        if key not in self.runs:
            ends = pow(base, high, PRIME) - pow(base, low, PRIME)
            self.runs[key] = ends * pow(base - 1, -1, PRIME) % PRIME
        return self.runs[key]
