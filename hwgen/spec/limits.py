"""The bounds of every number that reaches C, in one place, and the error where one is beyond them.

Loop variables, addresses and strides of emitted C are `int` where all fit, else `int64_t`; sizes
are `size_t`. With these bounds none of them can wrap around: the largest tensor has 2**43 bytes.
"""

from __future__ import annotations

from hwgen.errors import HwgenError
from hwgen.spec.ranges import Range

MAX_EXTENT = (1 << 31) - 1
"""Iterations of one loop, and elements along one dimension."""

MAX_ELEMENTS = 1 << 40
"""Of one tensor, or of one buffer with all that its layout leaves free."""

MAX_BYTES = MAX_ELEMENTS * 8
"""Of one memory on the chip."""

INT64 = Range(-(1 << 63), (1 << 63) - 1)


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


def check_value(what: str, low: int, high: int) -> None:
    """Raises:
    HwgenError: H617 values, from `low` to `high`, that no 64-bit integer holds.
    """
    for value in (low, high):
        if value not in INT64:
            raise beyond(
                what, f"values such as {_shown(value)}", str(INT64),
                "smaller factors, steps or constants",
            )  # fmt: skip


def _shown(value: int) -> str:
    """A number, or how long it is where nobody would read it."""
    return str(value) if abs(value) < 10**24 else f"a number of {len(str(abs(value)))} digits"
