"""The bounds of every number that reaches C, in one place.

Loop variables, addresses and strides of emitted C are `int` where all fit, else `int64_t`; sizes
are `size_t`. With these bounds none of them can wrap around: the largest tensor has 2**43 bytes.
"""

from __future__ import annotations

from hwgen.spec.ranges import Range

MAX_EXTENT = (1 << 31) - 1
"""Iterations of one loop, and elements along one dimension."""

MAX_ELEMENTS = 1 << 40
"""Of one tensor, or of one buffer with all that its layout leaves free."""

MAX_BYTES = MAX_ELEMENTS * 8
"""Of one memory on the chip."""

INT64 = Range(-(1 << 63), (1 << 63) - 1)
