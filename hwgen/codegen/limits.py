"""Numbers of a finished program against what C and memories hold: the last check before any text.

Both kinds of programs come down to the same questions: how many elements each array has, and which
values each index expression and its parts take.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from hwgen.codegen.names import expressions, ranged
from hwgen.codegen.nodes import Code, If, Loop
from hwgen.codegen.program import Program
from hwgen.polyhedral.limits import check_elements, check_extent, check_value, held
from hwgen.spec.expression import Access, Binary, Const, Expr, walk
from hwgen.spec.intervals import Ranges, interval

_CONDITIONS = {"<", "<=", ">", ">=", "==", "!=", "and", "or"}


def check_kernel(program: Program) -> None:
    """A program of calls: images, buffers, micro-kernels, addresses, strides and extents.

    Raises:
        HwgenError: H617.
    """
    for image in program.images:
        check_elements(image.name, image.entries * prod(image.lanes))
        ranges = {f"p{d}": (0, n - 1) for d, n in enumerate(image.outer + image.lanes)}
        for index in image.index:
            _check(f"an index of {image.tensor} in image {image.name}", index, ranges)
    for buffer in program.buffers:
        check_elements(buffer.name, buffer.end)
    for kernel in program.kernels:
        levels = (*kernel.loops, *kernel.sequence)
        _check_span(kernel.name, kernel.bases, [(x.extent, x.strides) for x in levels])
    for node, ranges in ranged(program.body, {}):
        for expr in expressions(node):
            _check("an address or extent", expr, ranges)


def _check_span(
    name: str,
    bases: Sequence[tuple[int, ...]],
    levels: Sequence[tuple[int, tuple[int, ...]]],
) -> None:
    """All addresses of a micro-kernel's operands."""
    for base in bases:
        for n, first in enumerate(base):
            steps = [(extent - 1) * strides[n] for extent, strides in levels]
            low, high = (sum(s for s in steps if (s > 0) == up) for up in (False, True))
            check_value(f"an address of micro-kernel {name}", first + low, first + high)


def check_nest(program: Code) -> None:
    """A program of loops: buffers, extents, indices and constants.

    Raises:
        HwgenError: H617.
    """
    for buffer in program.arrays:
        if buffer.tensor:
            check_elements(buffer.name, buffer.elements)
    for node, ranges in ranged(program.body, {}):
        if isinstance(node, Loop):
            check_extent(node.variable, node.extent)
        for expr in expressions(node):
            if isinstance(node, Loop | If):
                _check("a bound or condition", expr, ranges)
            else:
                _check_values(expr, ranges)


def _check_values(expr: Expr, ranges: Ranges) -> None:
    """Indices of accesses, and constants; values of elements have types that see to themselves."""
    for part in walk(expr):
        match part:
            case Access(tensor, indices):
                for index in indices:
                    _check(f"an index of {tensor}", index, ranges)
            case Const(int(value)):
                check_value("a constant", value, value)
            case _:
                pass


def _check(what: str, expr: Expr, ranges: Ranges) -> None:
    """Every part of an integer expression fits 64 bits."""
    for part in walk(expr):
        if not (isinstance(part, Binary) and part.op in _CONDITIONS):
            low, high = interval(part, ranges)
            if not (held(low) and held(high)):  # Only then is it worth its text.
                check_value(f"{what}, {str(part)[:80]},", low, high)
