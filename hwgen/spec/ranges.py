"""Closed intervals of integers, and what of them a field holds."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Range:
    """Closed interval of integers; `minimum == maximum` means a fixed value.

    A field may hold only some of them: every `step`-th from `minimum` on, or, where there are any,
    those in `among`, which are sorted and begin and end with the bounds.
    """

    minimum: int
    maximum: int
    step: int = 1
    among: tuple[int, ...] = ()

    def __contains__(self, value: int | float) -> bool:
        if self.among:
            return value in self.among
        inside = self.minimum <= value <= self.maximum
        return inside and (self.step == 1 or (value - self.minimum) % self.step == 0)

    @property
    def gaps(self) -> bool:
        """Whether some integers between the bounds are left out."""
        return self.step > 1 or bool(self.among)

    def multiple(self, most: int) -> int:
        """The greatest value up to `most` that divides it, 0 where none does."""
        values = self.among or range(self.minimum, min(most, self.maximum) + 1, self.step)
        return next((v for v in reversed(values) if 0 < v <= most and most % v == 0), 0)

    def __str__(self) -> str:
        if self.among:
            return f"{{{', '.join(map(str, self.among))}}}"
        return f"{self.minimum}..{self.maximum}" + (f" step {self.step}" if self.step > 1 else "")
