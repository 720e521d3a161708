"""Choices that can be made again, and made simpler.

Everything random of a chip and its workload is a choice of one item of a sequence, the first being
the simplest. A draw is therefore a list of positions: the same list gives the same chip, and zeros
in it a simpler one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any, TypeVar

T = TypeVar("T")
Spec = dict[str, Any]
"""A chip or a workload as plain data: what its YAML file holds."""
Choose = Callable[[Sequence[object]], object]
"""Chooses one item of a sequence; `Random(seed).choice` is one."""


class Pick:
    """Typed wrapper of a chooser."""

    def __init__(self, choose: Choose) -> None:
        self.choose = choose

    def __call__(self, options: Sequence[T]) -> T:
        return self.choose(options)  # type: ignore[return-value]

    def chance(self, of: int) -> bool:
        """True once in `of` times; the simplest choice is False."""
        return self(range(of)) == of - 1


class Tape:
    """A chooser that remembers the positions it chose.

    Args:
        source: chooses where `given` ends; without it the simplest is chosen there.
        given: positions to choose first; past the end of a sequence, its last item.
    """

    def __init__(self, source: Random | None = None, given: Sequence[int] = ()) -> None:
        self._source = source
        self._given = given
        self.taken: list[int] = []

    def choose(self, options: Sequence[object]) -> object:
        """One item of `options`."""
        at, last = len(self.taken), len(options) - 1
        if at < len(self._given):
            position = min(self._given[at], last)
        else:
            position = self._source.randint(0, last) if self._source is not None else 0
        self.taken.append(position)
        return options[position]
