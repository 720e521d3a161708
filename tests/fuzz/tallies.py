"""What campaigns count, and the failures that they show: one of those that look the same, as simple
as they get."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar, cast

if TYPE_CHECKING:
    from typing_extensions import Self

F = TypeVar("F")


@dataclass
class Counted:
    """Numbers, counters and lists, by field."""

    def add(self, other: Self) -> None:
        """Count another tally too."""
        for field in fields(self):
            mine: object = getattr(self, field.name)
            more: object = getattr(other, field.name)
            match mine:
                case Counter():
                    cast("Counter[object]", mine).update(cast("Counter[object]", more))
                case list():
                    cast("list[object]", mine).extend(cast("list[object]", more))
                case _:
                    setattr(self, field.name, cast(int, mine) + cast(int, more))


def one_of_each(
    failures: Iterable[F], look: Callable[[F], str], size: Callable[[F], object], most: int
) -> list[F]:
    """The smallest of the failures that look the same, at most so many of them."""
    found: dict[str, F] = {}
    for failure in sorted(failures, key=cast("Callable[[F], int]", size)):
        found.setdefault(look(failure), failure)
    return [*found.values()][:most]


def crash_text(error: Exception) -> str:
    """What an unexpected exception says, and where it was raised."""
    where = error.__traceback__
    while where is not None and where.tb_next is not None:
        where = where.tb_next
    place = ""
    if where is not None:
        code = where.tb_frame.f_code
        place = f" in {Path(code.co_filename).name}:{code.co_name}"
    return f"{type(error).__name__}{place}: {' '.join(str(error).split())[:200]}"
