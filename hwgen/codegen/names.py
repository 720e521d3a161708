"""What nodes name: buffers and variables."""

from __future__ import annotations

from collections.abc import Iterator

from hwgen.codegen.nodes import (
    Allocate,
    Assign,
    Call,
    CombineAcrossThreads,
    If,
    IntrinsicCall,
    Keep,
    Launch,
    Loop,
    Node,
    PrefetchOf,
    Routine,
    Sync,
    ThreadBarrier,
    inner,
    nodes,
)
from hwgen.spec.expression import Access, Expr, Name, names, walk
from hwgen.spec.intervals import Interval, Ranges, interval


def expressions(node: Node) -> Iterator[Expr]:
    """The expressions of a node itself."""
    match node:
        case Loop():
            yield from (node.lower, node.upper)
        case Call():
            yield from node.extents
            for operand in node.operands:
                yield from (operand.address, *operand.strides)
        case If(condition):
            yield condition
        case Assign(_, target, _, value):
            yield from (target, value)
        case Keep(target, _):
            yield target
        case PrefetchOf(access):
            yield access
        case IntrinsicCall():
            yield from (o.access for o in node.operands)
        case CombineAcrossThreads():
            yield from (node.partial, node.target, *node.participates, *node.stores)
            yield from (Name(n) for n, _ in (*node.coordinates, *node.others))
            yield Access(node.scratch, ())
        case Allocate() | ThreadBarrier() | Launch() | Routine() | Sync():
            return


def loop_range(loop: Loop, ranges: Ranges) -> Interval:
    """The values that a loop's variable takes."""
    low = interval(loop.lower, ranges)[0]
    end = loop.extent or interval(loop.upper, ranges)[1]
    return low, max(low, end - 1)


def ranged(body: tuple[Node, ...], ranges: Ranges) -> Iterator[tuple[Node, Ranges]]:
    """Every node, with the ranges of the variables around it."""
    for node in body:
        yield node, ranges
        inside = dict(ranges)
        match node:
            case Loop():
                inside[node.variable] = loop_range(node, ranges)
            case Launch():
                inside |= {variable: (0, extent - 1) for _, variable, extent in node.coordinates}
            case _:
                pass
        yield from ranged(inner(node), inside)


def touched(body: tuple[Node, ...]) -> frozenset[str]:
    """Every buffer that the nodes name in an access."""
    return frozenset(
        part.tensor
        for node in nodes(body)
        for expr in expressions(node)
        for part in walk(expr)
        if isinstance(part, Access)
    )


def written(body: tuple[Node, ...]) -> frozenset[str]:
    """Every buffer that the nodes write."""
    found: set[str] = set()
    for node in nodes(body):
        match node:
            case Assign(_, target) | CombineAcrossThreads(target=target) | Keep(target):
                found.add(target.tensor)
            case IntrinsicCall():
                found.add(node.meaning.target.tensor)
            case _:
                pass
    return frozenset(found)


def allocated(body: tuple[Node, ...]) -> frozenset[str]:
    """Every buffer that lives inside the nodes only."""
    return frozenset(n.buffer for n in nodes(body) if isinstance(n, Allocate))


def variables(body: tuple[Node, ...]) -> frozenset[str]:
    """Every variable that an expression of the nodes names."""
    return frozenset(n for node in nodes(body) for e in expressions(node) for n in names(e))
