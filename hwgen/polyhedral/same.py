"""An object as itself, in keys of what is remembered of it."""

from __future__ import annotations

from typing import Generic, TypeVar, cast

T = TypeVar("T")


class Same(Generic[T]):
    """A value as itself: `x + 0` and `x + 0.0` are equal, and not the same; nor are two workloads
    that stand in different files. To hash a value by what it holds takes long, too."""

    __slots__ = ("value",)

    def __init__(self, value: T) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and self.value is cast("Same[object]", other).value

    def __hash__(self) -> int:
        return id(self.value)
