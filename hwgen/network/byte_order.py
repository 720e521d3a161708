"""Values to and from bytes, the lowest first, on any machine."""

from __future__ import annotations

import numpy as np

from hwgen.model.numeric import STORAGE, Array


def little_endian(values: Array, dtype: str) -> bytes:
    """The values' bytes."""
    return values.astype(_stored(dtype)).tobytes()


def from_little_endian(raw: bytes, dtype: str) -> Array:
    """The values of bytes."""
    return np.frombuffer(raw, _stored(dtype)).astype(STORAGE[dtype])


def _stored(dtype: str) -> np.dtype[np.generic]:
    kind = STORAGE[dtype]
    return np.dtype(f"<{kind.kind}{kind.itemsize}")
