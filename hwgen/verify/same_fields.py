"""Operands whose fields must repeat those of the written operand, in programs."""

from __future__ import annotations

from collections.abc import Iterator

from hwgen.codegen.nodes import Call, CallOperand, calls
from hwgen.codegen.program import Program
from hwgen.spec.affine import affine
from hwgen.spec.expression import Expr
from hwgen.spec.hardware import HardwareSpec, Intrinsic

Problem = tuple[str, str, str]


def same_problems(program: Program, hardware: HardwareSpec) -> Iterator[Problem]:
    """Where an operand with `same_as` is, or moves, otherwise than the operand that it names."""
    for kernel in program.kernels:
        for mine, theirs in _twins(hardware.intrinsic[kernel.intrinsic]):
            bases = [[b[n] for b in kernel.bases] for n in (mine, theirs)]
            steps = [
                [x.strides[n] for x in (*kernel.loops, *kernel.sequence) if x.extent > 1]
                for n in (mine, theirs)
            ]
            for what, (found, allowed) in (("begins", bases), ("moves", steps)):
                if found != allowed:
                    yield (
                        f"{kernel.name}: an operand {what} elsewhere than the one that it is",
                        (_numbers(found)),
                        _numbers(allowed),
                    )
    for call in calls(program.body):
        for mine, theirs in _twins(hardware.intrinsic[call.intrinsic]):
            yield from _in_call(call, call.operands[mine], call.operands[theirs])


def _twins(intrinsic: Intrinsic) -> Iterator[tuple[int, int]]:
    """Positions of the operands, and of those that they are the same as."""
    names = [o.name for o in intrinsic.operands]
    for n, operand in enumerate(intrinsic.operands):
        if operand.same_as:
            yield n, names.index(operand.same_as)


def _in_call(call: Call, mine: CallOperand, theirs: CallOperand) -> Iterator[Problem]:
    fields = [("address", mine.address, theirs.address)]
    fields += [
        (f"stride {n}", a, b)
        for n, (a, b) in enumerate(zip(mine.strides, theirs.strides, strict=True))
        if str(call.extents[n]) != "1"
    ]
    for what, found, allowed in fields:
        if mine.buffer != theirs.buffer or not _equal(found, allowed):
            yield (
                f"site {call.site} ({call.intrinsic}): {mine.name} has another {what} than "
                f"{theirs.name}",
                f"{mine.buffer}, {found}",
                f"{theirs.buffer}, {allowed}",
            )


def _equal(a: Expr, b: Expr) -> bool:
    forms = affine(a), affine(b)
    return a == b or (None not in forms and forms[0] == forms[1])


def _numbers(values: list[int]) -> str:
    return ", ".join(map(str, values))
