"""What an emitted file says so that compilers compute its floats as the reference does.

The sums that `+=` forms may be rounded in any order, so a product may become one operation with the
sum that it is added to. All other values are rounded operation by operation. Compilers contract
them where they may (GCC by default, Clang whatever the standard), so a file that has such values
forbids it. Flags that change results are refused where a file computes with floats at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from hwgen.codegen.nodes import Assign, Code, nodes
from hwgen.spec.expression import Access, Binary, Cast, Const, Expr, Name, parts
from hwgen.spec.expression import Assign as Semantics
from hwgen.spec.hardware import Intrinsic
from hwgen.spec.typecheck import is_float

_REFUSED = """\
/* Floats follow IEEE 754, with NaNs, infinities and signed zeros, and have no excess precision. */
#if defined(__FAST_MATH__) || defined(__ASSOCIATIVE_MATH__) || defined(__RECIPROCAL_MATH__) || \\
    defined(__NO_SIGNED_ZEROS__) || (defined(__FINITE_MATH_ONLY__) && __FINITE_MATH_ONLY__)
#error "compile without -ffast-math and the flags that it is made of: they change results"
#endif
#if defined(__FLT_EVAL_METHOD__) && (__FLT_EVAL_METHOD__ == 1 || __FLT_EVAL_METHOD__ == 2)
#error "floats are computed in a wider type: on 32-bit x86 use -msse2 -mfpmath=sse"
#endif"""

_SEPARATE = """\
/* Each operation is rounded by itself: a product and a sum never become one operation. This holds
   for GCC with any flags, and for Clang without an explicit -ffp-contract=fast. */
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("fp-contract=off")
#else
#pragma STDC FP_CONTRACT OFF
#endif"""

_SEPARATE_CPP = """\
/* Each operation is to be rounded by itself: compile without contraction (nvcc: -fmad=false). */"""


def floating_point_rules(
    codes: Iterable[Code], intrinsics: Iterable[Intrinsic] = (), language: str = "c"
) -> list[str]:
    """Lines before the includes of a file with a processor's programs, and functions that compute
    intrinsics."""
    used = {s for code in codes for s in _code_operators(code)}
    used.update(s for intrinsic in intrinsics for s in _intrinsic_operators(intrinsic))
    texts: list[str] = [_REFUSED] if used else []
    if used & {"*", "/"} and used & {"+", "-"}:
        texts.append(_SEPARATE if language == "c" else _SEPARATE_CPP)
    return [line for text in texts for line in text.split("\n")]


def _code_operators(program: Code) -> Iterator[str]:
    dtypes = {array.name: array.dtype for array in program.arrays}
    return _operators((n for n in nodes(program.body) if isinstance(n, Assign)), dtypes)


def _intrinsic_operators(intrinsic: Intrinsic) -> Iterator[str]:
    dtypes = {o.name: o.dtype for o in (*intrinsic.operands, *intrinsic.immediates)}
    return _operators(intrinsic.semantics, dtypes)


def _operators(steps: Iterable[Assign | Semantics], dtypes: Mapping[str, str]) -> Iterator[str]:
    """All operators in values of floats that are no terms of sums, and "float" for any value."""
    for step in steps:
        inside = tuple(_without_indices(step.value))
        if any(_of_floats(part, dtypes) for part in inside):
            yield "float"
            if step.op != "+=":
                yield from (part.op for part in inside if isinstance(part, Binary))


def _without_indices(value: Expr) -> Iterator[Expr]:
    waiting = [value]
    while waiting:
        yield (node := waiting.pop())
        waiting += parts(node)


def _of_floats(part: Expr, dtypes: Mapping[str, str]) -> bool:
    match part:
        case Cast(dtype):
            return is_float(dtype)
        case Access(name) | Name(name):
            return is_float(dtypes.get(name, "int32"))
        case Const(value):
            return isinstance(value, float)
        case _:
            return False
