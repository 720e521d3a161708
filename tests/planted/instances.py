"""Defects of what a program executes, each of which `check_instances` finds by itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import combinations
from random import Random

from hwgen.codegen.lower.program import Lowered
from hwgen.codegen.nodes import Call, If, Loop, Node, calls
from hwgen.codegen.program import KernelLoop, Program
from hwgen.polyhedral.tree.loop_tree import Block, blocks
from hwgen.polyhedral.tree.loop_tree import Loop as TreeLoop
from hwgen.polyhedral.tree.loop_tree import Node as TreeNode
from hwgen.spec.expression import Const, Expr, add
from tests.fuzz.edits import Change, Edit, Mutation, double, drop, on_one
from tests.planted.parts import (
    has_variants,
    longer,
    next_variant,
    with_kernel,
    with_operand,
    with_stride,
)

FOUND = ("H747",)


def instance_mutations() -> tuple[Mutation, ...]:
    """Of programs of calls, for every chip."""
    return tuple(
        Mutation(name, edit, FOUND)
        for name, edit in (
            ("call left out", on_one(_is_call, drop)),
            ("call made twice", on_one(_is_call, double)),
            ("loop one shorter", on_one(_around_calls, _ends(-1))),
            ("loop one longer", on_one(_around_calls, _ends(1))),
            ("tail that begins one early", on_one(_begins_late, _begins_early)),
            ("condition left out", on_one(_guards_calls, _unguarded)),
            ("hardware loop one longer", on_one(_has_loops, longer)),
            ("lane too few", on_one(_has_lanes, _fewer_lanes)),
            ("operand elsewhere", on_one(_has_operands, _moved)),
            ("step of an operand one more", on_one(_steps, _wider)),
            ("operands swapped", on_one(lambda n: bool(_pairs(n)), _swapped)),
            ("another variant", on_one(has_variants, next_variant)),
            ("micro-kernel loop one shorter", _kernel_loop(-1, 0)),
            ("step of a micro-kernel one more", _kernel_loop(0, 1)),
            ("base of a variant one more", _base),
            ("another word", _other_word),
        )
    )


def _is_call(node: Node) -> bool:
    return isinstance(node, Call)


def _around_calls(node: Node) -> bool:
    return isinstance(node, Loop) and any(calls(node.body))


def _ends(later: int) -> Change:
    def change(node: Node) -> tuple[Node, ...]:
        assert isinstance(node, Loop)
        return (replace(node, upper=add(node.upper, Const(later))),)

    return change


def _begins_late(node: Node) -> bool:
    return _around_calls(node) and isinstance(node, Loop) and node.lower != Const(0)


def _begins_early(node: Node) -> tuple[Node, ...]:
    assert isinstance(node, Loop)
    return (replace(node, lower=add(node.lower, Const(-1))),)


def _guards_calls(node: Node) -> bool:
    return isinstance(node, If) and any(calls(node.then))


def _unguarded(node: Node) -> tuple[Node, ...]:
    assert isinstance(node, If)
    return node.then


def _has_loops(node: Node) -> bool:
    return isinstance(node, Call) and not node.kernel and bool(node.extents)


def _has_lanes(node: Node) -> bool:
    return isinstance(node, Call) and any(n > 1 for n in node.lanes)


def _fewer_lanes(node: Node) -> tuple[Node, ...]:
    assert isinstance(node, Call)
    at = next(n for n, count in enumerate(node.lanes) if count > 1)
    return (replace(node, lanes=(*node.lanes[:at], node.lanes[at] - 1, *node.lanes[at + 1 :])),)


def _has_operands(node: Node) -> bool:
    return isinstance(node, Call) and not node.kernel


def _moved(node: Node) -> tuple[Node, ...]:
    assert isinstance(node, Call)
    last = node.operands[-1]
    moved = replace(last, address=add(last.address, Const(1)))
    return (with_operand(node, len(node.operands) - 1, moved),)


def _steps(node: Node) -> bool:
    return _has_loops(node) and isinstance(node, Call) and node.extents[-1] != Const(1)


def _wider(node: Node) -> tuple[Node, ...]:
    assert isinstance(node, Call)
    level, first = len(node.extents) - 1, node.operands[0]
    step: Expr = add(first.strides[level], Const(1))
    return (with_operand(node, 0, with_stride(first, level, step)),)


def _pairs(node: Node) -> list[tuple[int, int]]:
    """Operands of a call that are in different places."""
    if not isinstance(node, Call):
        return []
    found = combinations(range(len(node.operands)), 2)
    return [(a, b) for a, b in found if node.operands[a].buffer != node.operands[b].buffer]


def _swapped(node: Node) -> tuple[Node, ...]:
    assert isinstance(node, Call)
    one, other = _pairs(node)[0]
    a, b = node.operands[one], node.operands[other]
    changed = with_operand(node, one, replace(b, name=a.name))
    return (with_operand(changed, other, replace(a, name=b.name)),)


def _kernel_loop(longer: int, wider: int) -> Edit:
    """A loop of a micro-kernel that is longer, or moves its first operand further."""

    def change(program: Program, seed: int) -> Program | None:
        found = [k for k in program.kernels if k.loops and k.loops[-1].extent > 1]
        if not found:
            return None
        kernel = Random(seed).choice(found)
        last = kernel.loops[-1]
        strides = (last.strides[0] + wider, *last.strides[1:])
        wrong = KernelLoop(last.extent + longer, strides)
        return with_kernel(program, replace(kernel, loops=(*kernel.loops[:-1], wrong)))

    return change


def _base(program: Program, seed: int) -> Program | None:
    if not program.kernels:
        return None
    kernel = Random(seed).choice(program.kernels)
    variant = Random(seed).randrange(len(kernel.bases))
    first, *others = kernel.bases[variant]
    bases = (*kernel.bases[:variant], (first + 1, *others), *kernel.bases[variant + 1 :])
    return with_kernel(program, replace(kernel, bases=bases))


def _other_word(program: Program, seed: int) -> Program | None:
    """A call that tells another value of a loop than it has, one that all of its block's tell."""
    told: dict[str, frozenset[str]] = {}
    for call in calls(program.body):
        if (said := call.intended) is not None:
            names = frozenset(n for n, _ in said.loops)
            told[said.block] = told.get(said.block, names) & names

    def known(node: Node) -> list[str]:
        said = node.intended if isinstance(node, Call) else None
        return [] if said is None else [n for n, _ in said.loops if n in told[said.block]]

    def lie(node: Node) -> tuple[Node, ...]:
        assert isinstance(node, Call)
        assert node.intended is not None
        wrong = known(node)[0]
        loops = ((n, add(e, Const(1)) if n == wrong else e) for n, e in node.intended.loops)
        said = replace(node.intended, loops=tuple(loops))
        return (replace(node, site=-1 - node.site, intended=said),)  # What is said is not compared.

    return on_one(lambda node: bool(known(node)), lie)(program, seed)


def tree_mutations(lowering: Lowered) -> Iterator[tuple[str, Lowered]]:
    """What was lowered, with a tree of calls in which a block is missing, twice, or without its
    conditions."""
    for number, part in enumerate(lowering.parts):
        state = part.covered.state
        of_schedule = [
            b for b in blocks(state.root) if any(s.tensor == b.stage for s in part.tree.stages)
        ]
        for block in of_schedule:
            for name, change in _TREE.items():
                wrong = change(block)
                if wrong == (block,):
                    continue
                root = _with_blocks(state.root, block, wrong)
                covered = replace(part.covered, state=replace(state, root=root))
                changed = replace(part, covered=covered)
                parts = (*lowering.parts[:number], changed, *lowering.parts[number + 1 :])
                yield f"{name}: {block.name}", replace(lowering, parts=parts)


_TREE: dict[str, Callable[[Block], tuple[Block, ...]]] = {
    "block left out": lambda _: (),
    "block twice": lambda block: (block, block),
    "condition of a block left out": lambda block: (replace(block, predicate=()),),
}


def _with_blocks(
    nodes: tuple[TreeNode, ...], block: Block, wrong: tuple[Block, ...]
) -> tuple[TreeNode, ...]:
    found: list[TreeNode] = []
    for node in nodes:
        match node:
            case Block():
                found += wrong if node is block else (node,)
            case TreeLoop():
                found.append(replace(node, body=_with_blocks(node.body, block, wrong)))
    return tuple(found)
