"""Numbers against their bounds (`spec/limits.py`): the one error for what is beyond them."""

from __future__ import annotations

from hwgen.errors import HwgenError
from hwgen.spec.limits import INT64, MAX_ELEMENTS, MAX_EXTENT


def beyond(what: str, found: str, allowed: str, repair: str) -> HwgenError:
    """H617: a size, stride, address or constant that C, or any memory, cannot hold."""
    return HwgenError("H617", f"{what} is too large", found=found, allowed=allowed, repair=repair)


def check_extent(loop: str, extent: int) -> None:
    """Raises:
    HwgenError: H617 a loop that is too long.
    """
    if extent > MAX_EXTENT:
        raise beyond(
            f"loop {loop}", f"{_shown(extent)} iterations", f"at most {MAX_EXTENT}",
            "smaller factors, or fewer loops in one",
        )  # fmt: skip


def check_elements(buffer: str, elements: int) -> None:
    """Raises:
    HwgenError: H617 a buffer that is too large.
    """
    if elements > MAX_ELEMENTS:
        raise beyond(
            f"buffer {buffer}", f"{_shown(elements)} elements", f"at most {MAX_ELEMENTS}",
            f"a layout of {buffer} with smaller steps, a smaller alignment, or fewer slots",
        )  # fmt: skip


def held(value: int) -> bool:
    """Whether a 64-bit integer holds a value."""
    return INT64.minimum <= value <= INT64.maximum


def check_value(what: str, low: int, high: int) -> None:
    """Raises:
    HwgenError: H617 values, from `low` to `high`, that no 64-bit integer holds.
    """
    for value in (low, high):
        if not held(value):
            raise beyond(
                what, f"values such as {_shown(value)}", str(INT64),
                "smaller factors, steps or constants",
            )  # fmt: skip


def _shown(value: int) -> str:
    """A number, or how long it is where nobody would read it."""
    return str(value) if abs(value) < 10**24 else f"a number of {len(str(abs(value)))} digits"
