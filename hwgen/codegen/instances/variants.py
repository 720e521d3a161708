"""Micro-kernels: that each variant begins where the addresses of a call say."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from math import prod

from hwgen.codegen.instances.boxes import MOST_BOXES
from hwgen.codegen.instances.forms import Ranges
from hwgen.codegen.instances.refuted import refuted, unproved
from hwgen.codegen.nodes import Call
from hwgen.codegen.program import MicroKernelDef
from hwgen.spec.expression import Binary, Const, Expr, Name


@dataclass(frozen=True, slots=True)
class Digits:
    """A sum of multiples of loops and of remainders, each as the expression that it is."""

    terms: Mapping[Expr, int]
    constant: int

    @classmethod
    def of(cls, expr: Expr) -> Digits:
        match expr:
            case Const(int(value)):
                return cls({}, value)
            case Name() | Binary("%", _, Const(int())):
                return cls({expr: 1}, 0)
            case Binary("+" | "-" as op, left, right):
                return cls.of(left).plus(cls.of(right), 1 if op == "+" else -1)
            case Binary("*", inner, Const(int(factor))) | Binary("*", Const(int(factor)), inner):
                return cls({}, 0).plus(cls.of(inner), factor)
            case _:
                raise unproved(str(expr), "a sum of loops and remainders")

    def plus(self, other: Digits, factor: int) -> Digits:
        terms = dict(self.terms)
        for digit, step in other.terms.items():
            terms[digit] = terms.get(digit, 0) + step * factor
        return Digits(
            {d: s for d, s in terms.items() if s}, self.constant + other.constant * factor
        )

    def at(self, values: Mapping[Expr, int]) -> int:
        return self.constant + sum(step * values[d] for d, step in self.terms.items())


def check_variants(call: Call, kernel: MicroKernelDef, ranges: Ranges) -> None:
    """Hold what variants begin with against what the addresses say, whatever chooses one. `ranges`:
    of the loops around the call, where it runs.

    Raises:
        HwgenError: H747 where they differ.
    """
    assert call.variant is not None
    chooses = Digits.of(call.variant)
    addresses = tuple(Digits.of(o.address) for o in call.operands)
    digits = sorted({d for a in (chooses, *addresses) for d in a.terms}, key=str)
    spans = [_span(d, ranges) for d in digits]
    where = f"site {call.site} ({call.intrinsic})"
    for digit, span in zip(digits, spans, strict=True):
        if digit not in chooses.terms and len(span) > 1:
            allowed = f"one for each {digit}"
            raise refuted("one variant for several addresses", f"{where}: {call.variant}", allowed)
    if prod(map(len, spans)) > MOST_BOXES:
        raise unproved(f"{where}: {call.variant}", f"at most {MOST_BOXES} values of its digits")
    for values in product(*spans):
        at = dict(zip(digits, values, strict=True))
        chosen, begins = chooses.at(at), tuple(a.at(at) for a in addresses)
        found = kernel.bases[chosen] if 0 <= chosen < len(kernel.bases) else None
        if found != begins:
            what = f"{where}, variant {chosen} of {kernel.name}: {found}"
            raise refuted("a variant begins elsewhere than its call", what, str(begins))


def _span(digit: Expr, ranges: Ranges) -> range:
    match digit:
        case Name(name):
            return range(*ranges[name])
        case Binary("%", _, Const(int(size))):
            return range(size)
        case _:
            raise AssertionError(f"{digit} is no digit")
