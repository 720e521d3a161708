"""Instruction streams as data: what a stream reads, and the C functions that issue it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

DIM = 16
SPAD_ROWS = 16384
ACC_ROWS = 1024
MAX_BLOCKS = 4
"""DIM-blocks that one move of int8 takes; a move of int32 takes one."""
GARBAGE = 0xFFFFFFFF
ACCUMULATOR, ACCUMULATE, FULL = 1 << 31, 1 << 30, 1 << 29
WEIGHT_STATIONARY = 1


@dataclass(frozen=True, slots=True)
class Dram:
    """An address: `offset_bytes` into a tensor."""

    tensor: str
    offset_bytes: int


ZEROS = 0
"""The DRAM address that stands for zeros."""

Argument = int | float | Dram
Instruction = tuple[str, tuple[Argument, ...]]
"""A macro's name and its arguments."""


def numbers(arguments: Iterable[Argument]) -> tuple[int, ...]:
    """Arguments that are integers, all of them."""
    given = tuple(arguments)
    found = tuple(a for a in given if isinstance(a, int))
    assert len(found) == len(given)
    return found


def bytes_of(stream: Iterable[Instruction]) -> dict[str, int]:
    """Bytes that the moves in of a stream read, by tensor."""
    found: dict[str, int] = {}
    for name, arguments in stream:
        if "mvin" in name and isinstance(arguments[0], Dram):
            tensor = arguments[0].tensor
            _, cols, rows = numbers(arguments[1:])
            found[tensor] = found.get(tensor, 0) + cols * rows * (4 if tensor == "D" else 1)
    return found


_STATEMENTS_PER_FUNCTION = 400
"""Compilers take long over one function of many thousand calls."""


def function_of(stream: Iterable[Instruction], function: str, declared: tuple[str, ...]) -> str:
    """A stream as a C function of pointers, `declared` as C declares them."""
    calls = [f"  {name}({', '.join(map(_c, a))});" for name, a in stream]
    names = [d.split("*")[1] for d in declared]
    unused = [f"  (void){name};" for name in names]
    lines = ['#include "include/gemmini.h"']
    parts = range(0, len(calls), _STATEMENTS_PER_FUNCTION)
    for number, start in enumerate(parts):
        body = [*unused, *calls[start : start + _STATEMENTS_PER_FUNCTION]]
        head = f"static void {function}_{number}({', '.join(declared)})"
        lines += [head, "{", *body, "}"]
    lines += [f"void {function}({', '.join(declared)});", f"void {function}({', '.join(declared)})"]
    lines += ["{", *(f"  {function}_{n}({', '.join(names)});" for n in range(len(parts))), "}", ""]
    return "\n".join(lines)


def _c(argument: Argument) -> str:
    match argument:
        case Dram(tensor=tensor, offset_bytes=offset):
            return f"(const char *){tensor} + {offset}"
        case float():
            return f"{argument!r}f"
        case int():
            return f"0x{argument:X}u" if argument >= 1 << 31 else str(argument)
