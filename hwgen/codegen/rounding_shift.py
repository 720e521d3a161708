"""Division of an int32 by a power of two, rounded to the nearest with ties away from zero.

Quantised models write it in 64 bits, `(a + ((1 << n) >> 1) - (a < 0 and n > 0)) >> n`, as the sum
may leave 32. In lanes of vectors that is twice the work, and shifts of 64 bits that many processors
lack: there it is the sum of `a >> n` and of the rounded bits that this drops.
"""

from __future__ import annotations

from hwgen.spec.expression import Binary, Call, Cast, Const, Expr
from hwgen.spec.intervals import Interval

ROUNDED, _PART, _PLAIN = "rounded_shr_int32", "part_rounded_shr_int32", "plain_rounded_shr_int32"

ROUNDED_SHIFT = {
    ROUNDED: (
        "static inline int32_t {p}_rounded_shr_int32(int32_t a, int n)\n"
        "{{\n"
        "  const int r = n & 31;\n"
        "  const uint32_t one = (uint32_t)1 << r, odd = a < 0 && n > 0;\n"
        "  const uint32_t down = (uint32_t)(a < 0 ? ~(~a >> r) : a >> r);\n"
        "  const uint32_t up = (((uint32_t)a & (one - 1u)) + (one >> 1) - odd) >> r;\n"
        "  const int below = (n & 63) == 63 || ((n & 63) == 32 && a == INT32_MIN && n > 0);\n"
        "  return n & 32 ? -below : (int32_t)(down + up);\n"
        "}}"
    ),
    _PART: (
        "static inline int32_t {p}_part_rounded_shr_int32(int32_t a, int n)\n"
        "{{\n"
        "  const uint32_t one = (uint32_t)1 << n, odd = a < 0 && n > 0;\n"
        "  const uint32_t down = (uint32_t)(a < 0 ? ~(~a >> n) : a >> n);\n"
        "  return (int32_t)(down + ((((uint32_t)a & (one - 1u)) + (one >> 1) - odd) >> n));\n"
        "}}"
    ),
    _PLAIN: (
        "static inline int32_t {p}_plain_rounded_shr_int32(int32_t a, int n)\n"
        "{{\n"
        "  const int32_t sum = a + (int32_t)((1u << n) >> 1) - (a < 0 && n > 0);\n"
        "  return sum < 0 ? ~(~sum >> n) : sum >> n;\n"
        "}}"
    ),
}
"""The helper, for every `n` as 64 bits have it: these count the last six bits of an amount; for
amounts from 0 to 31; and for those where the sum does not leave 32 bits either."""


def rounded_helper(number: Interval, amount: Interval) -> str:
    """The cheapest helper that serves numbers and amounts of some intervals."""
    low, high = amount
    if low < 0 or high > 31:
        return ROUNDED
    half = (1 << high) >> 1
    return _PLAIN if number[0] - 1 >= -(1 << 31) and number[1] + half < 1 << 31 else _PART


def rounded_shift(expr: Expr) -> tuple[Expr, Expr] | None:
    """The number `a` and the amount `n` of such a division, or None where a value is none."""
    match expr:
        case Cast("int32", Binary(">>", Binary("-", Binary("+", Cast("int64", a), half), odd), n)):
            pass
        case _:
            return None
    power = Binary("<<", Cast("int64", Const(1)), n)
    tie = Binary("and", Binary("<", a, Const(0)), Binary(">", n, Const(0)))
    wanted = Binary(">>", power, Const(1)), Call("select", (tie, Const(1), Const(0)))
    return (a, n) if (half, odd) == wanted else None
