"""Loops that were made one (`fuse`), two again where calls need the parts.

Addresses are sums of loops. `f // 4` and `f % 4` of a loop `f` are no such sums, but the loops `a`
and `b` of `f = 4 * a + b` are: the same iterations in the same order.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from hwgen.polyhedral.tree.build import unique
from hwgen.polyhedral.tree.edit import add_predicate, replace_loop, substitute_loops
from hwgen.polyhedral.tree.loop_tree import Block, Homes, Loop, LoopTree, Node, blocks, map_blocks
from hwgen.polyhedral.tree.terms import simplify
from hwgen.spec.expression import Binary, Const, Expr, Name, walk


def unfused(state: LoopTree, homes: Homes) -> tuple[LoopTree, Homes]:
    """The same state without loops that are divided, and the loops around each tensor's home there.

    What ran later in such a loop runs as much later in the order of its two. A loop stays where it
    does not run in order, or blocks that run later in it are in the band of others."""
    while (found := next(_divided(state), None)) is not None:
        state, parts = _parted(state, *found)
        loop = found[0].name
        homes = {
            tensor: tuple(x for n in around for x in (parts if n == loop else (n,)))
            for tensor, around in homes.items()
        }
    return state, homes


def _divided(state: LoopTree) -> Iterator[tuple[Loop, int]]:
    """Loops of which blocks take parts, and by what they are divided."""
    for loop in state.loop.values():
        inside = tuple(blocks(loop.body))
        found = {d for b in inside for e in _expressions(b) for d in _divisors(e, loop.name)}
        # Of several, the others divide it or stay.
        if loop.kind != "serial" or not found or not 1 < max(found) < loop.extent:
            continue
        moved = [b for b in inside if loop.name in (*b.band, *dict(b.shifts))]
        whole = loop.extent % max(found) == 0
        if not moved or (whole and all(_movable(b, loop.name) for b in moved)):
            yield loop, max(found)


def _movable(block: Block, loop: str) -> bool:
    """Whether a block that runs later in a loop can as well in the order of its two parts."""
    return loop not in dict(block.shifts) or not block.band


def _expressions(block: Block) -> Iterator[Expr]:
    yield from (e for _, e in block.bindings)
    yield from block.predicate
    if block.store_predicate is not None:
        yield block.store_predicate


def _divisors(expr: Expr, loop: str) -> Iterator[int]:
    for node in walk(expr):
        match node:
            case Binary("//" | "%", Name(name), Const(int(divisor))) if name == loop:
                yield divisor
            case _:
                pass


def _parted(state: LoopTree, loop: Loop, factor: int) -> tuple[LoopTree, tuple[str, str]]:
    """The loop as two, the inner one of `factor` iterations."""
    taken = {*state.loop, *state.tensor}
    outer = unique(f"{loop.name}_o", taken)
    inner = unique(f"{loop.name}_i", {*taken, outer})
    count = -(-loop.extent // factor)
    extents = state.extents | {outer: count, inner: factor}
    value = simplify(Binary("+", Binary("*", Name(outer), Const(factor)), Name(inner)), extents)

    def edit(node: Loop) -> tuple[Node, ...]:
        body = substitute_loops(node.body, {loop.name: value}, extents)
        if count * factor > node.extent:
            body = add_predicate(body, Binary("<", value, Const(node.extent)))
        return (replace(node, name=outer, extent=count, body=(Loop(inner, factor, body),)),)

    def moved(block: Block) -> Block:
        lag = dict(block.shifts).get(loop.name)
        if lag is not None:
            rest = tuple(x for x in block.shifts if x[0] != loop.name)
            return replace(block, shifts=rest, band=(outer, inner), lag=lag)
        band = (x for n in block.band for x in ((outer, inner) if n == loop.name else (n,)))
        return replace(block, band=tuple(band))

    def called(block: Block) -> Block:
        call = block.tensorized
        if call is None or call.loop != loop.name:
            return block
        return replace(block, tensorized=replace(call, loop=outer))

    root = map_blocks(replace_loop(state.root, loop.name, edit), lambda b: called(moved(b)))
    return replace(state, root=root), (outer, inner)
