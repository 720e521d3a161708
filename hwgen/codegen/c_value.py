"""Typed expressions of an intrinsic's semantics as C text with defined behaviour throughout.

Integers narrower than 32 bits are promoted to int32; sums, differences and products wrap around,
through unsigned arithmetic wherever the operands' intervals allow an overflow; `//` and `%` round
towards minus infinity; `/` is true division; right shifts of signed values are arithmetic.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from hwgen.codegen.c_constants import integer, number_text
from hwgen.codegen.c_expr import Helpers
from hwgen.codegen.c_names import C_TYPES
from hwgen.codegen.rounding_shift import (
    ROUNDED,
    ROUNDED_SHIFT,
    rounded_helper,
    rounded_shift,
)
from hwgen.spec.expression import (
    Access,
    Binary,
    Call,
    Cast,
    Const,
    Expr,
    Name,
    Unary,
)
from hwgen.spec.intervals import Interval, combined, within
from hwgen.spec.typecheck import common_type, integer_range, promoted

FLOATS = ("float16", "bfloat16", "float32", "float64")
HALVES = ("float16", "bfloat16")
"""Floats that are held as their 16 bits."""


def _integer_helpers() -> dict[str, str]:
    library: dict[str, str] = {}
    for bits in (32, 64):
        signed, unsigned = f"int{bits}_t", f"uint{bits}_t"
        mask = bits - 1
        library[f"shr_int{bits}"] = (
            f"static inline {signed} {{p}}_shr_int{bits}({signed} a, int n)\n"
            f"{{{{\n  return a < 0 ? ~(~a >> (n & {mask})) : a >> (n & {mask});\n}}}}"
        )
        library[f"shl_int{bits}"] = (
            f"static inline {signed} {{p}}_shl_int{bits}({signed} a, int n)\n"
            f"{{{{\n  return ({signed})(({unsigned})a << (n & {mask}));\n}}}}"
        )
    library["shr_uint32"] = (
        "static inline uint32_t {p}_shr_uint32(uint32_t a, int n)\n{{\n  return a >> (n & 31);\n}}"
    )
    library["shl_uint32"] = (
        "static inline uint32_t {p}_shl_uint32(uint32_t a, int n)\n{{\n  return a << (n & 31);\n}}"
    )
    library["floor_div"] = (
        "static inline int64_t {p}_floor_div(int64_t a, int64_t b)\n{{\n"
        "  if (b == 0)\n    return 0;\n"
        "  if (b == -1)\n    return (int64_t)(0u - (uint64_t)a);\n"
        "  return a / b - (a % b != 0 && (a < 0) != (b < 0));\n}}"
    )
    library["floor_mod"] = (
        "static inline int64_t {p}_floor_mod(int64_t a, int64_t b)\n{{\n"
        "  if (b == 0 || b == -1)\n    return 0;\n"
        "  int64_t r = a % b;\n  return r != 0 && (r < 0) != (b < 0) ? r + b : r;\n}}"
    )
    return library


def _typed_helpers() -> dict[str, str]:
    library: dict[str, str] = {}
    for dtype in ("int32", "uint32", "int64", "float32", "float64"):
        c = C_TYPES[dtype]
        nan = " || a != a" if dtype in FLOATS else ""
        for name, sign in (("min", "<"), ("max", ">")):
            library[f"{name}_{dtype}"] = (
                f"static inline {c} {{p}}_{name}_{dtype}({c} a, {c} b)\n"
                f"{{{{\n  return a {sign} b{nan} ? a : b;\n}}}}"
            )
    for dtype in ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64"):
        low, high = dtype_interval(dtype)
        c = C_TYPES[dtype]
        library[f"round_to_{dtype}"] = (
            f"static inline {c} {{p}}_round_to_{dtype}(double a)\n{{{{\n"
            f"  if (!(a > {low}.0))\n    return a != a ? 0 : ({c})({low + 1} - 1);\n"
            f"  return a >= {high}.0 ? ({c}){high} : ({c})a;\n}}}}"
        )
    for dtype, f, whole in (("float32", "f", "8388608.0f"), ("float64", "", "4503599627370496.0")):
        c = C_TYPES[dtype]
        # From `whole` on a float has no fraction, and a sum with it keeps none of a smaller one's.
        # Cores without an instruction that rounds would call a library.
        library[f"rint_{dtype}"] = (
            f"static inline {c} {{p}}_rint_{dtype}({c} a)\n{{{{\n"
            "#if defined(__FLT_EVAL_METHOD__) && __FLT_EVAL_METHOD__ == 0 && \\\n"
            "    !defined(__SSE4_1__) && !defined(__ARM_FEATURE_DIRECTED_ROUNDING)\n"
            f"  {c} size = fabs{f}(a);\n"
            f"  return size < {whole} ? copysign{f}((size + {whole}) - {whole}, a) : a;\n"
            f"#else\n  return rint{f}(a);\n#endif\n}}}}"
        )
    return library


_IN_LANES = {
    # Cody and Waite's reduction to |r| <= log(2)/2 and the polynomial of Cephes' expf, off by less
    # than one unit in the last place; a power of two in two steps, for subnormal results. Floats
    # are compared as integers, and NaNs put in by masks: compilers make a branch of what may trap,
    # and have no lanes for branches.
    "exp_float32": (
        "static inline float {p}_exp_float32(float a)\n{{\n"
        "  union {{\n    uint32_t bits;\n    float value;\n  }} in, x, low, high, out;\n"
        "  in.value = a;\n"
        "  uint32_t size = in.bits & 0x7fffffff;\n"
        "  x.bits = (in.bits & 0x80000000) | (size < 0x42d00000 ? size : 0x42d00000);\n"
        "  float n = rintf(x.value * 1.44269504f);\n"
        "  float r = x.value - n * 0.693359375f + n * 2.12194440e-4f;\n"
        "  float y = 1.9875691500e-4f;\n"
        "  y = y * r + 1.3981999507e-3f;\n"
        "  y = y * r + 8.3334519073e-3f;\n"
        "  y = y * r + 4.1665795894e-2f;\n"
        "  y = y * r + 1.6666665459e-1f;\n"
        "  y = y * r + 5.0000001201e-1f;\n"
        "  y = y * r * r + r + 1.0f;\n"
        "  int32_t power = (int32_t)n, half = power / 2;\n"
        "  low.bits = (uint32_t)(half + 127) << 23;\n"
        "  high.bits = (uint32_t)(power - half + 127) << 23;\n"
        "  out.value = y * low.value * high.value;\n"
        "  uint32_t nan = 0u - (uint32_t)(size > 0x7f800000);\n"
        "  out.bits = (out.bits & ~nan) | (in.bits & nan);\n"
        "  return out.value;\n}}"
    ),
}
"""Functions that C libraries have one element at a time."""

HALF_HELPERS = {
    # Bits of a float16, and back: a double is rounded once, to nearest and even. They need nothing
    # of a library.
    "float16": (
        "static inline float {p}_float16(uint16_t bits)\n{{\n"
        "  union {{\n    uint32_t bits;\n    float value;\n  }} a;\n"
        "  uint32_t size = bits & 0x7fffu;\n"
        "  if (size < 0x400)\n    a.value = (float)size * 5.9604644775390625e-8f;\n"
        "  else\n    a.bits = (size << 13) + (size < 0x7c00 ? 0x38000000u : 0x70000000u);\n"
        "  a.bits |= (bits & 0x8000u) << 16;\n"
        "  return a.value;\n}}"
    ),
    "float16_bits": (
        "static inline uint16_t {p}_float16_bits(double a)\n{{\n"
        "  union {{\n    double value;\n    uint64_t bits;\n  }} in;\n"
        "  in.value = a;\n"
        "  uint32_t sign = (uint32_t)(in.bits >> 48) & 0x8000u;\n"
        "  int e = (int)(in.bits >> 52 & 2047) - 1008;\n"
        "  if (a != a)\n    return 0x7e00;\n"
        "  if (a >= 65520.0 || a <= -65520.0)\n    return (uint16_t)(sign | 0x7c00);\n"
        "  if (e < -10)\n    return (uint16_t)sign;\n"
        "  int cut = e > 0 ? 42 : 43 - e;\n"
        "  uint64_t m = (in.bits & 0xfffffffffffffu) | 0x10000000000000u;\n"
        "  uint64_t rest = m & (((uint64_t)1 << cut) - 1), half = (uint64_t)1 << (cut - 1);\n"
        "  uint32_t found = (uint32_t)(m >> cut);\n"
        "  found += rest > half || (rest == half && (found & 1));\n"
        "  /* A full mantissa carries into the exponent. */\n"
        "  return (uint16_t)(sign + (e > 0 ? (uint32_t)(e - 1) << 10 : 0) + found);\n}}"
    ),
    # The upper half of a float. A double that a float does not hold is first cut towards zero and
    # its last bit set: what is rounded then is not a tie.
    "bfloat16": (
        "static inline float {p}_bfloat16(uint16_t bits)\n{{\n"
        "  union {{\n    uint32_t bits;\n    float value;\n  }} a;\n"
        "  a.bits = (uint32_t)bits << 16;\n  return a.value;\n}}"
    ),
    "bfloat16_bits": (
        "static inline uint16_t {p}_bfloat16_bits(double value)\n{{\n"
        "  union {{\n    float value;\n    uint32_t bits;\n  }} a;\n"
        "  if (value != value)\n    return 0x7fc0;\n"
        "  a.value = (float)value;\n"
        "  if ((double)a.value != value)\n"
        "    a.bits = (a.bits - (((double)a.value > value) == (value > 0))) | 1;\n"
        "  return (uint16_t)((a.bits + 0x7fff + (a.bits >> 16 & 1)) >> 16);\n}}"
    ),
}
"""Conversions of floats that are held as their 16 bits."""

_WITHIN_FLOAT = {
    # A NaN is not inside.
    "within_float": (
        "static inline int {p}_within_float(double value, double low, double high,\n"
        "                                   const char *what)\n{{\n"
        "  if (value >= low && value <= high)\n    return 0;\n"
        '  snprintf({p}_text, sizeof {p}_text, "%s: %g (limits %g and %g)", what,\n'
        "           value, low, high);\n"
        "  return 2;\n}}"
    )
}


def dtype_interval(dtype: str) -> Interval:
    """The integers that a data type holds; for a float, nothing useful."""
    return (0, 0) if dtype in FLOATS else integer_range(dtype)


def value_helpers(prefix: str) -> Helpers:
    """A collector over every helper that typed expressions and immediates may need."""
    computed = {**_integer_helpers(), **_typed_helpers(), **_IN_LANES, **ROUNDED_SHIFT}
    return Helpers(prefix, {**computed, **HALF_HELPERS, **_WITHIN_FLOAT})


@dataclass(frozen=True, slots=True)
class Value:
    """C text of type `dtype` (int32 or wider, or a float); integers lie in `interval`; `numbers` as
    in `Typed`."""

    text: str
    dtype: str
    interval: Interval
    numbers: tuple[int | float, ...] = ()

    @property
    def is_float(self) -> bool:
        return self.dtype in FLOATS


_ZERO = Value("0", "int32", (0, 0), (0,))


def _numbers(left: Value, right: Value) -> tuple[int | float, ...]:
    """Those that a value of two others is made of."""
    return left.numbers + right.numbers if left.numbers and right.numbers else ()


@dataclass(slots=True)
class ValueText:
    """Prints semantics; `load` gives an element's C text and data type, `scalars` the iterators
    and immediates (C text, data type, interval). `checks` collects C conditions that must hold.
    `lanes`: values are computed in vectors, and so is what a library has for one value alone.
    `intervals`: of tensors, what all elements lie in, where that is less than their type."""

    helpers: Helpers
    load: Callable[[Access], tuple[str, str]]
    scalars: Mapping[str, tuple[str, str, Interval]]
    checks: list[str] = field(default_factory=list[str])
    lanes: bool = False
    intervals: Mapping[str, Interval] = field(default_factory=dict[str, Interval])

    def __call__(self, expr: Expr) -> Value:
        match expr:
            case Const(int(value)):
                dtype = "int32" if -(1 << 31) <= value < 1 << 31 else "int64"
                text = integer(value)
                text = f"({text})" if text.startswith("-") else text
                return Value(text, dtype, (value, value), (value,))
            case Const(value):
                return Value(number_text(value, "float64"), "float64", (0, 0), (value,))
            case Name(name):
                text, dtype, interval = self.scalars[name]
                return Value(text, promoted(dtype), interval)
            case Access():
                text, dtype = self.load(expr)
                value = self.loaded(text, dtype)
                return replace(value, interval=self.intervals.get(expr.tensor, value.interval))
            case Unary("-", operand):
                return self._negated(self(operand))
            case Unary(_, operand):
                return Value(f"(!{self(operand).text})", "int32", (0, 1))
            case Cast(dtype, operand):
                return self._rounded(expr) or self.cast(self(operand), dtype)
            case Binary(op, left, right):
                return self._binary(op, self(left), self(right))
            case Call(function, arguments):
                return self._call(function, [self(a) for a in arguments])

    def loaded(self, text: str, dtype: str) -> Value:
        """An element as C computes with it."""
        if dtype in HALVES:
            text = self.helpers.call(dtype, text)
        return Value(text, promoted(dtype), dtype_interval(dtype))

    def converted(self, text: str, source: str, target: str) -> str:
        """An element of one data type as one of another."""
        return text if source == target else self.stored(self.loaded(text, source), target)

    def stored(self, value: Value, dtype: str) -> str:
        """The C text of a value as an element of a memory."""
        if dtype in HALVES:
            return self.helpers.call(f"{dtype}_bits", value.text)
        return self.cast(value, dtype).text

    def cast(self, value: Value, dtype: str) -> Value:
        """The value converted to `dtype`: integers keep the low bits, floats are cut and clamped
        when they become integers."""
        c = C_TYPES[dtype]
        if dtype in HALVES:
            return self.loaded(self.stored(value, dtype), dtype)
        if dtype in FLOATS:
            return Value(f"(({c}){value.text})", dtype, (0, 0))
        if value.is_float:
            call = self.helpers.call(f"round_to_{dtype}", value.text)
            return Value(call, promoted(dtype), dtype_interval(dtype))
        inside = within(value.interval, dtype_interval(dtype))
        interval = value.interval if inside else dtype_interval(dtype)
        if promoted(dtype) == value.dtype and inside:
            return Value(value.text, value.dtype, interval)
        return Value(f"(({c}){value.text})", promoted(dtype), interval)

    def _common(self, left: Value, right: Value) -> tuple[Value, Value]:
        """Both operands in the type in which C computes with them."""
        dtype = common_type(left, right)
        return self._to(left, dtype), self._to(right, dtype)

    def _to(self, value: Value, dtype: str) -> Value:
        if value.dtype == dtype:
            return value
        limits = dtype_interval(dtype)
        interval = value.interval if within(value.interval, limits) else limits
        return Value(f"({C_TYPES[dtype]}){value.text}", dtype, interval, value.numbers)

    def _negated(self, value: Value) -> Value:
        if value.is_float:
            inner = f"({value.text})" if value.text.startswith("-") else value.text
            return Value(f"(-{inner})", value.dtype, (0, 0), value.numbers)
        made = self._arithmetic("-", _ZERO, value)
        return replace(made, numbers=value.numbers)

    def _arithmetic(self, op: str, left: Value, right: Value) -> Value:
        one, other = self._common(left, right)
        dtype, numbers = one.dtype, _numbers(left, right)
        text = f"({one.text} {op} {other.text})"
        if dtype in FLOATS:
            return Value(text, dtype, (0, 0), numbers)
        interval = combined(op, left.interval, right.interval)
        if within(interval, dtype_interval(dtype)):
            return Value(text, dtype, interval, numbers)
        unsigned = "uint64_t" if dtype == "int64" else "uint32_t"
        text = f"(({C_TYPES[dtype]})(({unsigned}){left.text} {op} ({unsigned}){right.text}))"
        return Value(text, dtype, dtype_interval(dtype), numbers)

    def _binary(self, op: str, left: Value, right: Value) -> Value:
        match op:
            case "+" | "-" | "*":
                return self._arithmetic(op, left, right)
            case "/":
                dtype = common_type(left, right)
                dtype = dtype if dtype in FLOATS else "float64"
                c = C_TYPES[dtype]
                text = f"(({c}){left.text} / ({c}){right.text})"
                return Value(text, dtype, (0, 0), _numbers(left, right))
            case "//" | "%":
                return self._floor(op, left, right)
            case "<<" | ">>":
                return self._shift(op, left, right)
            case "and" | "or":
                sign = "&&" if op == "and" else "||"
                return Value(f"(({left.text}) {sign} ({right.text}))", "int32", (0, 1))
            case _:
                one, other = self._common(left, right)
                return Value(f"({one.text} {op} {other.text})", "int32", (0, 1))

    def _floor(self, op: str, left: Value, right: Value) -> Value:
        numbers = _numbers(left, right)
        left, right = self._common(left, right)
        dtype = left.dtype
        assert dtype not in FLOATS, f"{op} is for integers"
        if right.interval[0] <= 0 <= right.interval[1]:
            self.checks.append(f"{right.text} != 0")
        if left.interval[0] >= 0 and right.interval[0] > 0:
            text = f"({left.text} {'/' if op == '//' else '%'} {right.text})"
            high = left.interval[1] if op == "//" else right.interval[1] - 1
            return Value(text, dtype, (0, high), numbers)
        name = "floor_div" if op == "//" else "floor_mod"
        call = self.helpers.call(name, left.text, right.text)
        return Value(f"(({C_TYPES[dtype]}){call})", dtype, dtype_interval(dtype), numbers)

    def _shift(self, op: str, left: Value, right: Value) -> Value:
        dtype = left.dtype
        most = 63 if dtype == "int64" else 31
        low, high = right.interval
        if low < 0:
            self.checks.append(f"{right.text} >= 0")
        if high > most:
            self.checks.append(f"{right.text} <= {most}")
        if right.interval == (0, 0):
            return left
        amount = right.text if right.dtype == "int32" else f"(int){right.text}"
        call = self.helpers.call(f"{'shr' if op == '>>' else 'shl'}_{dtype}", left.text, amount)
        interval = dtype_interval(dtype)
        if 0 <= low <= high <= most:
            ends = [x >> n if op == ">>" else x << n for x in left.interval for n in (low, high)]
            if within((min(ends), max(ends)), interval):
                interval = (min(ends), max(ends))
        return Value(call, dtype, interval, _numbers(left, right))

    def _rounded(self, expr: Expr) -> Value | None:
        """In lanes, a division by a power of two that need not be in 64 bits; None for others."""
        found = rounded_shift(expr) if self.lanes else None
        if found is None:
            return None
        number, amount = map(self, found)
        if (number.dtype, amount.dtype) != ("int32", "int32"):
            return None
        name = rounded_helper(number.interval, amount.interval)
        call = self.helpers.call(name, number.text, amount.text)
        ends = (min(number.interval[0], 0), max(number.interval[1], 0))
        interval = dtype_interval("int32") if name == ROUNDED else ends
        return Value(call, "int32", interval, number.numbers)

    def _call(self, function: str, arguments: list[Value]) -> Value:
        match function, arguments:
            case (("min" | "max"), [left, right]):
                return self._extreme(function, left, right)
            case "clip", [value, low, high]:
                return self._extreme("min", self._extreme("max", value, low), high)
            case "select", [condition, yes, no]:
                numbers = _numbers(yes, no)
                yes, no = self._common(yes, no)
                text = f"({condition.text} ? {yes.text} : {no.text})"
                low = min(yes.interval[0], no.interval[0])
                interval = low, max(yes.interval[1], no.interval[1])
                return Value(text, yes.dtype, interval, numbers)
            case "abs", [value] if not value.is_float:
                if value.interval[0] >= 0:
                    return value
                negated = self._negated(value)
                text = f"({value.text} < 0 ? {negated.text} : {value.text})"
                low = min(negated.interval[0], 0)
                interval = low, max(map(abs, value.interval))
                return Value(text, value.dtype, interval, value.numbers)
            case (("round" | "ceil" | "floor"), [value]) if not value.is_float:
                return value
            case _, [value]:
                return self._transcendental(function, value)
            case _:
                raise AssertionError(f"{function} with {len(arguments)} arguments")

    def _extreme(self, function: str, left: Value, right: Value) -> Value:
        numbers = _numbers(left, right)
        left, right = self._common(left, right)
        pick = min if function == "min" else max
        interval = (
            pick(left.interval[0], right.interval[0]),
            pick(left.interval[1], right.interval[1]),
        )
        call = self.helpers.call(f"{function}_{left.dtype}", left.text, right.text)
        return Value(call, left.dtype, interval, numbers)

    def _transcendental(self, function: str, value: Value) -> Value:
        single = value.dtype == "float32"
        dtype, suffix, one = ("float32", "f", "1.0f") if single else ("float64", "", "1.0")
        x = self._to(value, dtype).text
        match function:
            case "rsqrt":
                text = f"({one} / sqrt{suffix}({x}))"
            case "sigmoid":
                text = f"({one} / ({one} + {self._library('exp', dtype, f'-({x})')}))"
            case "abs":
                text = f"fabs{suffix}({x})"
            case "round" if not self.lanes:
                text = self.helpers.call(f"rint_{dtype}", x)
            case "round":
                text = f"rint{suffix}({x})"
            case _:
                text = self._library(function, dtype, x)
        return Value(text, dtype, (0, 0), value.numbers)

    def _library(self, function: str, dtype: str, x: str) -> str:
        own = f"{function}_{dtype}"
        if self.lanes and own in _IN_LANES:
            return self.helpers.call(own, x)
        return f"{function}{'f' if dtype == 'float32' else ''}({x})"
