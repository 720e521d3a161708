"""Numbers as C text; nothing else prints one."""

from __future__ import annotations

from sys import byteorder

import numpy as np


def integer(value: int) -> str:
    """A C constant of that value, of a type wide enough. The least value of a width has no literal
    of its own: the minus is an operation."""
    if value == -(1 << 31):
        return "(-2147483647 - 1)"
    if value == -(1 << 63):
        return "(-INT64_C(9223372036854775807) - 1)"
    return str(value) if abs(value) < 1 << 31 else f"INT64_C({value})"


def number_text(value: int | float, dtype: str) -> str:
    """A constant as C computes with it: an integer in decimal; a float in the fewest digits that a
    compiler reads back as the same bits, 16-bit ones as a float."""
    if "float" not in dtype:
        return integer(int(value))
    with np.errstate(over="ignore"):
        exact = np.float64(value) if dtype == "float64" else np.float32(value)
    if not np.isfinite(exact):
        return "NAN" if np.isnan(exact) else "INFINITY" if exact > 0 else "-INFINITY"
    digits, e, exponent = str(exact).partition("e")
    text = f"{digits if '.' in digits else f'{digits}.0'}{e}{exponent}"
    return text if dtype == "float64" else f"{text}f"


def element_text(value: int | float, dtype: str) -> str:
    """A constant as an element of memory: 16-bit floats as their bits."""
    if dtype not in ("float16", "bfloat16"):
        return integer(value) if isinstance(value, int) else number_text(value, dtype)
    with np.errstate(over="ignore"):
        if dtype == "float16":
            return f"0x{int.from_bytes(np.float16(value).tobytes(), byteorder):04x}"
        single = np.float32(value)
    bits = int.from_bytes(single.tobytes(), byteorder)
    if np.isnan(single):
        return "0x7fc0"
    if float(single) != value:
        # Cut towards zero, and the last bit set: the value that is rounded next is not a tie.
        bits = (bits - (abs(float(single)) > abs(value))) | 1
    return f"0x{(bits + 0x7FFF + (bits >> 16 & 1)) >> 16:04x}"
