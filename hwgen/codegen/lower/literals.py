"""Literal addresses: loops that compute an address of a register file are written out.

A register is named in the C code, so its number cannot be computed there. Exactly the loops whose
variables occur in such addresses are unrolled, and in them the conditions that are then known;
loops around them, and all others, stay as they are. A loop that only takes slots in turn is
unrolled once around them, and renames registers so. Two such loops of as many iterations, one after
the other, take turns where nothing that one writes is touched by the other: what whole vectors of
a row and the partial one at its end take from memory is then in a register for one row at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import count
from math import gcd, lcm

from hwgen.codegen.nodes import Call, If, Loop, Node, calls, inner, rewritten
from hwgen.codegen.program import Program
from hwgen.codegen.rewrite import bind, simplify
from hwgen.errors import HwgenError
from hwgen.spec.affine import Affine, affine
from hwgen.spec.expression import Binary, Const, Expr, Name, add, evaluate, multiply, names
from hwgen.spec.hardware import HardwareSpec
from hwgen.spec.memory import Memory

MAX_CALLS = 4096
"""Calls of a kernel at most where loops are written out; more is no code that a compiler likes."""


def with_literals(program: Program, hardware: HardwareSpec) -> Program:
    """The program with a number for each address in a memory of literal addresses; sites are
    numbered anew, in textual order. It is the same calls, those of loops that take turns in another
    order, so a search, which compares programs by their cycles, does without. One that has these
    numbers stays as it is."""
    if not any(m.literal for m in hardware.memories):
        return program
    return replace(program, body=_numbered(_written_out(program.body, hardware), count()))


def entries_used(nodes: Sequence[Node], hardware: HardwareSpec, memory: Memory) -> list[int]:
    """The entries of a memory of literal addresses that calls touch, in order."""
    found: set[int] = set()
    for call in calls(tuple(nodes)):
        intrinsic = hardware.intrinsic[call.intrinsic].narrowed(call.lanes)
        extents = [int(evaluate(e, {})) for e in call.extents]
        for given, operand in zip(call.operands, intrinsic.operands, strict=True):
            if operand.memory != memory.name:
                continue
            first = {int(evaluate(given.address, {}))}
            for extent, stride in zip(extents, given.strides, strict=True):
                step = int(evaluate(stride, {}))
                first = {at + n * step for at in first for n in range(extent)}
            span = operand.span_of(intrinsic.iterators)
            found |= {at + row for at in first for row in range(span)}
    return sorted(found)


def _turns(loop: Loop, hardware: HardwareSpec) -> int:
    """How many iterations of a loop are written out one after the other: after so many, literal
    addresses are the same again; 1 where it moves none of them."""
    extent = int(evaluate(loop.upper, {})) - int(evaluate(loop.lower, {}))
    turns = 1
    for address in _literal(loop.body, hardware):
        turns = lcm(turns, _turn(address, loop.variable, extent))
        if turns >= extent:
            return extent
    return turns


def _turn(address: Expr, variable: str, extent: int) -> int:
    """The same of one address: all iterations, unless they only choose its slot in turn."""
    if variable not in names(address):
        return 1
    match address:
        case Binary("%", inner, Const(int(slots))):
            number = affine(inner)
            if number is None:
                return extent
            return slots // gcd(number.coefficient(variable), slots)
        case Binary("+" | "-", left, right):
            return lcm(_turn(left, variable, extent), _turn(right, variable, extent))
        case Binary("*", inner, Const()) | Binary("*", Const(), inner):
            return _turn(inner, variable, extent)
        case _:
            return extent


def _literal(nodes: tuple[Node, ...], hardware: HardwareSpec) -> Iterator[Expr]:
    """The addresses that are to be literal."""
    for call in calls(nodes):
        operands = hardware.intrinsic[call.intrinsic].operands
        for given, operand in zip(call.operands, operands, strict=True):
            if hardware.memory[operand.memory].literal:
                yield given.address


def _first_round(address: Expr) -> Expr:
    """An address in which iterations that take slots in the same order are one."""
    match address:
        case Binary("%", inner, Const(int(slots))):
            number = affine(inner)
            if number is None:
                return address
            terms = tuple((n, c % slots) for n, c in number.terms if c % slots)
            return simplify(
                Binary("%", Affine(terms, number.constant % slots).expression(), Const(slots))
            )
        case Binary(op, left, right):
            return simplify(Binary(op, _first_round(left), _first_round(right)))
        case _:
            return address


def _written_out(nodes: tuple[Node, ...], hardware: HardwareSpec) -> tuple[Node, ...]:
    result: list[Node] = []
    # Of the loop before, which is written out: where, and its iterations.
    last: tuple[int, list[tuple[Node, ...]]] | None = None
    for node in nodes:
        match node:
            case Loop(variable, lower, upper, body):
                copies = _turns(node, hardware)
                if copies == 1:
                    result.append(replace(node, body=_written_out(body, hardware)))
                    last = None
                    continue
                low, high = int(evaluate(lower, {})), int(evaluate(upper, {}))
                rounds = (high - low) // copies
                if rounds > 1:
                    # Each round takes the slots in the same order.
                    inside: list[Node] = []
                    for turn in range(copies):
                        at = add(multiply(Name(variable), Const(copies)), Const(low + turn))
                        inside += bind(body, {variable: at})
                    whole = _written_out(tuple(inside), hardware)
                    result.append(replace(node, lower=Const(0), upper=Const(rounds), body=whole))
                    low += rounds * copies
                written = [
                    _written_out(bind(body, {variable: Const(v)}), hardware)
                    for v in range(low, high)
                ]
                if rounds <= 1 and last is not None and _apart(last[1], written, hardware):
                    # What both take from memory in an iteration stays in a register for it.
                    del result[last[0] :]
                    written = [(*a, *b) for a, b in zip(last[1], written, strict=True)]
                last = (len(result), written) if rounds <= 1 else None
                result += [n for iteration in written for n in iteration]
                continue
            case If(condition, then, otherwise):
                if not names(condition):
                    taken = then if evaluate(condition, {}) else otherwise
                    result += _written_out(taken, hardware)
                    last = None
                    continue
                inner = (_written_out(part, hardware) for part in (then, otherwise))
                result.append(If(condition, *inner))
            case Call():
                result.append(_evaluated(node, hardware))
            case _:
                result.append(node)
        last = None
    return tuple(result)


def _apart(
    first: Sequence[tuple[Node, ...]], second: Sequence[tuple[Node, ...]], hardware: HardwareSpec
) -> bool:
    """Whether as many iterations of two loops may take turns: nothing that calls of one write,
    registers alone, is touched by those of the other."""
    if len(first) != len(second):
        return False
    written: list[set[tuple[str, int]]] = []
    touched: list[set[tuple[str, int]]] = []
    for body in ([n for part in first for n in part], [n for part in second for n in part]):
        made: list[tuple[str, int, bool]] = []
        for node in body:
            if not isinstance(node, Call):
                return False
            declared = hardware.intrinsic[node.intrinsic].operands
            for given, operand in zip(node.operands, declared, strict=True):
                writes = operand.access != "read"
                if not hardware.memory[operand.memory].literal:
                    if writes:
                        return False
                    continue
                if node.extents or operand.span > 1 or not isinstance(given.address, Const):
                    return False
                made.append((operand.memory, int(given.address.value), writes))
        written.append({(m, at) for m, at, writes in made if writes})
        touched.append({(m, at) for m, at, _ in made})
    return not (written[0] & touched[1] or written[1] & touched[0])


def _evaluated(call: Call, hardware: HardwareSpec) -> Call:
    declared = hardware.intrinsic[call.intrinsic].operands
    operands = tuple(
        replace(given, address=Const(int(evaluate(_first_round(given.address), {}))))
        if hardware.memory[operand.memory].literal
        else given
        for given, operand in zip(call.operands, declared, strict=True)
    )
    return replace(call, operands=operands)


def _numbered(nodes: tuple[Node, ...], numbers: Iterator[int]) -> tuple[Node, ...]:
    def numbered(node: Node) -> tuple[Node, ...]:
        return (replace(node, site=next(numbers)) if isinstance(node, Call) else node,)

    return rewritten(nodes, numbered)


def check_literals(nodes: tuple[Node, ...], hardware: HardwareSpec) -> None:
    """Refuse what would be too many calls, and say of which there are the most.

    Raises:
        HwgenError: H618 more than `MAX_CALLS` calls.
    """
    if not any(m.literal for m in hardware.memories):
        return
    total = sum(copies for copies, _ in _copies(nodes, hardware, 1))
    if total <= MAX_CALLS:
        return
    copies, call = max(_copies(nodes, hardware, 1), key=lambda pair: pair[0])
    memory, buffer = next(
        (hardware.memory[declared.memory], given.buffer)
        for given, declared in zip(
            call.operands, hardware.intrinsic[call.intrinsic].operands, strict=True
        )
        if hardware.memory[declared.memory].literal
    )
    raise HwgenError(
        "H618",
        f"addresses of {memory.name} are literal, and too many calls have one of their own",
        location=memory.location,
        field=f"memories.{memory.name}.addresses",
        found=f"{total} calls, {copies} of them {call.intrinsic} on {buffer}",
        allowed=f"at most {MAX_CALLS} calls in a kernel",
        repair=f"smaller tiles of {buffer}: split its loops, and compute_at the outer ones",
    )


def _copies(
    nodes: tuple[Node, ...], hardware: HardwareSpec, around: int
) -> Iterator[tuple[int, Call]]:
    """How often every call is written out."""
    for node in nodes:
        match node:
            case Loop(_, lower, upper, body):
                turns = _turns(node, hardware)
                extent = int(evaluate(upper, {})) - int(evaluate(lower, {}))
                copies = turns if turns in (1, extent) else turns + extent % turns
                yield from _copies(body, hardware, around * copies)
            case Call():
                yield around, node
            case _:
                yield from _copies(inner(node), hardware, around)
