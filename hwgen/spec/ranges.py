"""Closed intervals of integers."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Range:
    """Closed interval of integers; `minimum == maximum` means a fixed value."""

    minimum: int
    maximum: int

    def __contains__(self, value: int | float) -> bool:
        return self.minimum <= value <= self.maximum

    def __str__(self) -> str:
        return f"{self.minimum}..{self.maximum}"
