"""A state as pseudo-code: buffers first, then loops and statements."""

from __future__ import annotations

from collections.abc import Iterator

from hwgen.polyhedral.tree.loop_tree import Block, Homes, Loop, LoopTree, Node, Storage
from hwgen.polyhedral.tree.reductions import beginning
from hwgen.polyhedral.tree.terms import simplify
from hwgen.spec.expression import (
    Access,
    Expr,
    Name,
    conjunction,
    rewrite,
    substitute,
)


def render(state: LoopTree, homes: Homes) -> str:
    """Buffers with their memories, then the tree."""
    lines = [f"schedule {state.name}"]
    lines += [buffer_text(state, t.name, homes) for t in state.tensors]
    lines += _nodes(state, state.root, 0)
    return "\n".join(lines)


def buffer_text(state: LoopTree, tensor: str, homes: Homes) -> str:
    """One line about a tensor's buffer."""
    info, storage = state.tensor[tensor], state.storage[tensor]
    shape = ", ".join(map(str, info.shape))
    parts = [f"{info.role} {tensor}: {info.dtype}[{shape}]"]
    if info.supplied is not None:
        parts.append(f"of {info.supplied}s, supplied")
    if info.role == "intermediate":
        parts.append(f"in {storage.memory or 'the default memory'}")
        if homes.get(tensor):
            parts.append(f"at {homes[tensor][-1]}")
    parts += _layout(storage)
    return " ".join(parts)


def _layout(storage: Storage) -> Iterator[str]:
    if storage.layout:
        yield f"as [{', '.join(map(str, storage.layout))}]"
    for axis, factor, offset in storage.aligns:
        yield f"align {axis}: {factor}+{offset}"
    if storage.alias:
        yield f"in the place of {storage.alias}"
    if storage.slots > 1:
        yield f"x {storage.slots} slots"
    if storage.bank is not None:
        yield f"bank {storage.bank}"
    if storage.address is not None:
        yield f"@{storage.address}"


def _nodes(state: LoopTree, nodes: tuple[Node, ...], depth: int) -> Iterator[str]:
    pad = "  " * depth
    for node in nodes:
        match node:
            case Loop():
                yield f"{pad}for {node.name} in 0..<{node.extent}{_marks(node)}:"
                for p in node.prefetches:
                    yield f"{pad}  prefetch {p.tensor} of {node.name} + {p.distance}"
                yield from _nodes(state, node.body, depth + 1)
            case Block():
                yield from _block(state, node, pad)


def _marks(loop: Loop) -> str:
    marks = [] if loop.kind == "serial" else [loop.kind]
    marks += [f"pragma {key}={value}" for key, value in loop.pragmas]
    return f" ({', '.join(marks)})" if marks else ""


def _block(state: LoopTree, block: Block, pad: str) -> Iterator[str]:
    condition = conjunction(block.predicate)
    if condition is not None:
        yield f"{pad}if {condition}:"
        pad += "  "
    text = _statement(state, block)
    if block.store_predicate is not None:
        text += f"  store if {block.store_predicate}"
    for loop, later in block.shifts:
        text += _later(later, loop)
    if block.band:
        text += _later(block.lag, ", ".join(block.band))
    if block.tensorized is not None:
        at = f"from {block.tensorized.loop}: " if block.tensorized.loop else ""
        text = f"{block.tensorized.intrinsic}  # {at}{text}"
    yield pad + text


def _later(iterations: int, loops: str) -> str:
    return f"  {abs(iterations)} {'later' if iterations > 0 else 'earlier'} in {loops}"


def _statement(state: LoopTree, block: Block) -> str:
    stage = state.stage[block.stage]
    target: Expr = bound(state, block, stage.target)
    if block.part == "init":
        start = bound(state, block, beginning(stage, state.tensor[stage.tensor].dtype))
        return f"{target} = {start}"
    op = stage.op if block.part == "update" or not stage.reduces else f"{stage.op}(init)"
    return f"{target} {op} {bound(state, block, stage.spelt)}"


def bound(state: LoopTree, block: Block, expr: Expr) -> Expr:
    """An expression of a stage over the loops around its block, indices simplified."""
    bindings, extents = block.binding, state.extents

    def over_loops(part: Expr) -> Expr:
        match part:
            case Name(name):
                return bindings.get(name, part)
            case Access(tensor, indices):
                places = (simplify(substitute(i, bindings), extents) for i in indices)
                return Access(tensor, tuple(places))
            case _:
                return part

    return rewrite(expr, over_loops)
