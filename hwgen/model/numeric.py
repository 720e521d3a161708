"""Typed arithmetic on NumPy arrays, exactly as the expression language defines it.

Elements narrower than 32 bits are computed with as int32 (float16 and bfloat16 as float32);
sums, differences, products and left shifts wrap around; casts keep the low bits; `>>` is
arithmetic; `//` and `%` round towards minus infinity; `/` is true division; `round` goes to even;
a float that becomes an integer is cut and clamped. A written number takes its partner's type.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hwgen.errors import HwgenError
from hwgen.spec.expression import Access, Binary, Call, Cast, Const, Expr, Name, Unary
from hwgen.spec.typecheck import integer_range, is_float, promoted

Array = npt.NDArray[np.generic]
Mask = npt.NDArray[np.bool_]

STORAGE: dict[str, np.dtype[np.generic]] = {
    **{
        name: np.dtype(name)
        for name in (
            "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64",
            "float16", "float32", "float64",
        )
    },
    "bfloat16": np.dtype("uint16"),
}  # fmt: skip
"""How arrays hold each data type; bfloat16 as its 16 bits."""

_RANKS = ("int32", "uint32", "int64", "float32", "float64")


@dataclass(frozen=True, slots=True)
class Value:
    """Numbers of type `dtype`: int32, uint32, int64, float32 or float64. `weak`: written in the
    text, so that they take the other operand's type."""

    array: Array
    dtype: str
    weak: bool = False


Reader = Callable[[Access, Mask | None], Value]
"""The elements of an access where the mask holds (anything elsewhere); None: everywhere."""


def load(array: Array, dtype: str) -> Value:
    """Stored elements as values to compute with."""
    if dtype == "bfloat16":
        bits: npt.NDArray[np.uint32] = np.left_shift(array.astype(np.uint32), np.uint32(16))
        return Value(np.ndarray(bits.shape, np.float32, bits.tobytes()), "float32")
    wide = promoted(dtype)
    return Value(array.astype(STORAGE[wide], copy=False), wide)


def store(value: Value, dtype: str) -> Array:
    """Values as stored elements of a data type; integers keep the low bits."""
    array, wanted = value.array, STORAGE[dtype]
    if dtype == "bfloat16":
        with np.errstate(over="ignore"):
            return _bfloat16_bits(array.astype(np.float64, copy=False))
    if is_float(value.dtype) and not is_float(dtype):
        return _cut(array.astype(np.float64, copy=False), dtype)
    with np.errstate(over="ignore"):
        return array.astype(wanted, copy=False)


def cast(value: Value, dtype: str) -> Value:
    return load(store(value, dtype), dtype)


def _cut(array: npt.NDArray[np.float64], dtype: str) -> Array:
    low, high = integer_range(dtype)
    whole: npt.NDArray[np.float64] = np.trunc(np.nan_to_num(array, nan=0.0))
    inside: Mask = np.logical_and(whole > float(low), whole < float(high))
    ends: Array = np.where(whole >= float(high), np.int64(high), np.int64(low))
    ends = np.where(np.isnan(array), np.int64(0), ends)
    exact: Array = np.where(inside, whole, 0.0).astype(np.int64)
    return np.where(inside, exact, ends).astype(STORAGE[dtype])


def _bfloat16_bits(array: npt.NDArray[np.float64]) -> Array:
    """Rounded once, to nearest and even: what a float32 does not hold is cut towards zero and its
    last bit set, so that it is no tie."""
    single = array.astype(np.float32)
    bits = np.ndarray(single.shape, np.uint32, single.tobytes())
    above: Mask = np.abs(single.astype(np.float64)) > np.abs(array)
    inexact: Mask = np.logical_and(single != array, np.logical_not(np.isnan(array)))
    cut = np.bitwise_or(np.subtract(bits, above.astype(np.uint32)), np.uint32(1))
    odd = np.where(inexact, cut, bits).astype(np.uint64)
    rounded = (odd + 0x7FFF + ((odd >> np.uint64(16)) & np.uint64(1))) >> np.uint64(16)
    return np.where(np.isnan(array), np.uint64(0x7FC0), rounded).astype(np.uint16)


def evaluate(
    expr: Expr, read: Reader, scalars: Mapping[str, Value], mask: Mask | None = None
) -> Value:
    """The values of an expression, broadcast over whatever its parts yield.

    `scalars`: iterators, sizes and immediates by name. Where `mask` is False the result means
    nothing; the branches of `select` and the right side of `and` and `or` are read only where
    they count.

    Raises:
        HwgenError: H727, a shift amount out of range or an integer division by zero.
    """
    match expr:
        case Const(int(value)):
            dtype = "int32" if -(1 << 31) <= value < 1 << 31 else "int64"
            return Value(np.asarray(value, STORAGE[dtype]), dtype, weak=True)
        case Const(value):
            return Value(np.asarray(value, np.float64), "float64", weak=True)
        case Name(name):
            return scalars[name]
        case Access():
            return read(expr, mask)
        case Cast(dtype, operand):
            return cast(evaluate(operand, read, scalars, mask), dtype)
        case Unary("-", operand):
            value = evaluate(operand, read, scalars, mask)
            with np.errstate(over="ignore"):
                return Value(np.negative(value.array), value.dtype, value.weak)
        case Unary(_, operand):
            return _truth(np.logical_not(evaluate(operand, read, scalars, mask).array))
        case Binary("and" | "or" as op, left, right):
            first = evaluate(left, read, scalars, mask).array != 0
            matters = first if op == "and" else np.logical_not(first)
            second = evaluate(right, read, scalars, _both(mask, matters)).array != 0
            return _truth(first & second if op == "and" else first | second)
        case Binary(op, left, right):
            one = evaluate(left, read, scalars, mask)
            return binary(op, one, evaluate(right, read, scalars, mask), mask)
        case Call("select", (condition, yes, no)):
            chosen = evaluate(condition, read, scalars, mask).array != 0
            first = evaluate(yes, read, scalars, _both(mask, chosen))
            second = evaluate(no, read, scalars, _both(mask, np.logical_not(chosen)))
            dtype = _common(first, second)
            pair = (_as(first, dtype), _as(second, dtype))
            return Value(np.where(chosen, *pair), dtype, first.weak and second.weak)
        case Call(function, arguments):
            return _call(function, [evaluate(a, read, scalars, mask) for a in arguments])


def _both(mask: Mask | None, other: Mask) -> Mask:
    return other if mask is None else np.logical_and(mask, other)


def _truth(condition: Mask) -> Value:
    return Value(np.asarray(condition).astype(np.int32), "int32")


def _common(left: Value, right: Value) -> str:
    if left.weak != right.weak:
        strong, weak = (right, left) if left.weak else (left, right)
        if is_float(strong.dtype):
            return strong.dtype
        if not is_float(weak.dtype):
            low, high = integer_range(strong.dtype)
            if weak.array.size == 1 and low <= int(weak.array.astype(np.int64).item()) <= high:
                return strong.dtype
    return max(left.dtype, right.dtype, key=_RANKS.index)


def _as(value: Value, dtype: str) -> Array:
    return value.array if value.dtype == dtype else store(value, dtype)


def binary(op: str, left: Value, right: Value, mask: Mask | None = None) -> Value:
    """One operator on values; `mask` as in `evaluate`."""
    weak = left.weak and right.weak
    if op in ("<<", ">>"):
        return _shift(op, left, right, mask)
    dtype = _common(left, right)
    if op == "/" and not is_float(dtype):
        dtype = "float64"
    a, b = _as(left, dtype), _as(right, dtype)
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        match op:
            case "+":
                return Value(np.add(a, b), dtype, weak)
            case "-":
                return Value(np.subtract(a, b), dtype, weak)
            case "*":
                return Value(np.multiply(a, b), dtype, weak)
            case "/":
                return Value(np.divide(a, b), dtype, weak)
            case "//" | "%":
                if not is_float(dtype):
                    b = _nonzero(b, mask)
                result: Array = np.floor_divide(a, b) if op == "//" else np.remainder(a, b)
                return Value(result, dtype, weak)
            case "<":
                return _truth(np.less(a, b))
            case "<=":
                return _truth(np.less_equal(a, b))
            case ">":
                return _truth(np.greater(a, b))
            case ">=":
                return _truth(np.greater_equal(a, b))
            case "==":
                return _truth(np.equal(a, b))
            case _:
                return _truth(np.not_equal(a, b))


def _nonzero(divisor: Array, mask: Mask | None) -> Array:
    zero: Mask = np.equal(divisor, 0)
    if not zero.any():
        return divisor
    if mask is None or np.logical_and(zero, mask).any():
        raise HwgenError(
            "H727", "an integer is divided by zero", found="0", allowed="any other divisor"
        )
    return np.where(zero, divisor.dtype.type(1), divisor)


def _shift(op: str, left: Value, right: Value, mask: Mask | None) -> Value:
    bits = 64 if left.dtype == "int64" else 32
    amount = right.array.astype(np.int64, copy=False)
    wrong: Mask = np.logical_or(amount < 0, amount >= bits)
    if wrong.any():
        if mask is None or np.logical_and(wrong, mask).any():
            worst = np.broadcast_to(amount, wrong.shape)[wrong].ravel()
            raise HwgenError(
                "H727",
                f"a {left.dtype} is shifted by an undefined amount",
                found=str(int(worst[0])),
                allowed=f"0..{bits - 1}",
            )
        amount = np.where(wrong, np.int64(0), amount)
    shifts = amount.astype(STORAGE[left.dtype])
    function = np.left_shift if op == "<<" else np.right_shift
    return Value(function(left.array, shifts), left.dtype, left.weak and right.weak)


def _call(function: str, arguments: list[Value]) -> Value:
    match function, arguments:
        case (("min" | "max"), [left, right]):
            return extreme(function, left, right)
        case "clip", [value, low, high]:
            return extreme("min", extreme("max", value, low), high)
        case (("round" | "ceil" | "floor"), [value]) if not is_float(value.dtype):
            return value
        case "abs", [value]:
            with np.errstate(over="ignore"):
                return Value(np.abs(value.array), value.dtype, value.weak)
        case _, [value]:
            return _transcendental(function, value)
        case _:
            raise AssertionError(f"{function} with {len(arguments)} arguments")


def extreme(function: str, left: Value, right: Value) -> Value:
    """`min` or `max` of values; a NaN wins."""
    dtype = _common(left, right)
    pick = np.minimum if function == "min" else np.maximum
    return Value(pick(_as(left, dtype), _as(right, dtype)), dtype, left.weak and right.weak)


def _transcendental(function: str, value: Value) -> Value:
    dtype = "float32" if value.dtype == "float32" else "float64"
    x = _as(value, dtype)
    one = STORAGE[dtype].type(1)
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        match function:
            case "rsqrt":
                result: Array = np.divide(one, np.sqrt(x))
            case "sigmoid":
                result = np.divide(one, np.add(one, np.exp(np.negative(x))))
            case "round":
                result = np.rint(x)
            case "exp":
                result = np.exp(x)
            case "log":
                result = np.log(x)
            case "sqrt":
                result = np.sqrt(x)
            case "tanh":
                result = np.tanh(x)
            case "ceil":
                result = np.ceil(x)
            case _:
                result = np.floor(x)
    return Value(result, dtype, value.weak)


def exact_float(bound: int) -> type[np.float32] | type[np.float64] | None:
    """The narrowest float type in which sums of integers up to `bound` in size are exact."""
    if bound < 1 << 24:
        return np.float32
    return np.float64 if bound < 1 << 53 else None


def magnitude(array: Array, dtype: str, most: int) -> int:
    """A bound on the absolute values of integers: of the type if that is at most `most`, else
    of the elements themselves."""
    low, high = integer_range(dtype)
    bound = max(-low, high)
    if bound <= most or not array.size:
        return bound
    return max(abs(int(array.min())), abs(int(array.max())))


_PRODUCT_TERMS = 1 << 18
"""Multiplications in one library call: few enough that it starts no threads, whose waiting costs
more than they gain on matrices of a chip's size and on busy machines."""


def matrix_product(left: Array, right: Array) -> Array:
    """`left[m, k]` times `right[n, k]` transposed, as `[m, n]`, in the arrays' data type."""
    (rows, depth), columns = left.shape, right.shape[0]
    tall = min(rows, max(8, _PRODUCT_TERMS // max(1, columns * depth)))
    wide = min(columns, max(8, _PRODUCT_TERMS // max(1, tall * depth)))
    if tall == rows and wide == columns:
        return np.matmul(left, np.transpose(right))
    sums = np.empty((rows, columns), left.dtype)
    for j in range(0, columns, wide):
        part = np.transpose(right[j : j + wide])
        for i in range(0, rows, tall):
            np.matmul(left[i : i + tall], part, out=sums[i : i + tall, j : j + wide])
    return sums
