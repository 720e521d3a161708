"""Prefetches at the start of a loop's body: the lines that a later iteration reads."""

from __future__ import annotations

from collections.abc import Mapping

from hwgen.codegen.nodes import If, Node, PrefetchOf, counted
from hwgen.codegen.processor.boxes import Use, box, uses
from hwgen.codegen.processor.conditions import needed
from hwgen.codegen.processor.storage import Placed
from hwgen.polyhedral.tree.build import unique
from hwgen.polyhedral.tree.loop_tree import Loop, LoopTree, Prefetch
from hwgen.polyhedral.tree.terms import simplify
from hwgen.spec.expression import (
    DTYPES,
    Access,
    Binary,
    Const,
    Expr,
    Name,
    add,
    conjunction,
    multiply,
    substitute,
)
from hwgen.spec.processor import Processor


def prefetches(
    state: LoopTree,
    placed: Mapping[str, Placed],
    loop: Loop,
    around: tuple[Loop, ...],
    processor: Processor,
) -> list[Node]:
    """One loop nest over lines per prefetch; `around` ends with `loop` itself."""
    found: list[Node] = []
    for wanted in loop.prefetches:
        reads = [
            u
            for u in uses(state, loop.body, around)
            if u.access.tensor == wanted.tensor and not u.writes
        ]
        # What a later iteration reads of a buffer that is made anew in each does not exist yet.
        if reads and loop.name not in (*placed[wanted.tensor].home, placed[wanted.tensor].turn):
            found += _prefetch(state, placed[wanted.tensor], wanted, loop, around, reads, processor)
    return found


def _prefetch(
    state: LoopTree,
    placed: Placed,
    wanted: Prefetch,
    loop: Loop,
    around: tuple[Loop, ...],
    reads: list[Use],
    processor: Processor,
) -> list[Node]:
    shape = state.tensor[wanted.tensor].shape
    touched = box(reads, {x.name for x in around}, shape)
    line = max(1, processor.line_bytes // DTYPES[placed.buffer.dtype])
    taken = set(state.loop)
    later = {loop.name: add(Name(loop.name), Const(wanted.distance))}
    indices: list[Expr] = []
    lines: list[tuple[str, int]] = []
    for d, (origin, extent) in enumerate(zip(touched.origins, touched.extents, strict=True)):
        last = d == len(shape) - 1
        count = -(-extent // line) if last else extent
        index = substitute(origin, later)
        if count > 1:
            name = unique(f"{wanted.tensor}_line{d}", taken)
            taken.add(name)
            lines.append((name, count))
            index = add(index, multiply(Name(name), Const(line if last else 1)))
        indices.append(index)
    loops = (*around, *(Loop(n, e, ()) for n, e in lines))
    extents = {x.name: x.extent for x in loops}
    indices = [simplify(i, extents) for i in indices]
    access = Access(wanted.tensor, tuple(indices))
    use = Use(reads[0].block, loops, access, False, extents, extents)
    node: Node = PrefetchOf(Access(placed.buffer.name, (placed.flat(use),)))
    inside = [Binary(">=", i, Const(0)) for i in indices]
    inside += [Binary("<", i, Const(e)) for i, e in zip(indices, shape, strict=True)]
    # In range wherever the later iteration exists.
    ranges = extents | {loop.name: loop.extent - wanted.distance}
    guard = conjunction(tuple(needed(inside, ranges).values()))
    node = node if guard is None else If(guard, (node,))
    for name, count in reversed(lines):
        node = counted(name, count, (node,))
    end = Binary("<", later[loop.name], Const(loop.extent))
    return [If(end, (node,))] if loop.extent > wanted.distance else []
