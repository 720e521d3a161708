"""What every primitive needs: finding loops and blocks by name, and refusing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from hwgen.errors import HwgenError
from hwgen.polyhedral.tree.build import numbered
from hwgen.polyhedral.tree.loop_tree import (
    Block,
    Loop,
    LoopTree,
    Node,
    Site,
    Stage,
    blocks,
    loops,
    map_blocks,
    map_loops,
    sites,
)
from hwgen.polyhedral.tree.terms import apply
from hwgen.spec.expression import Access, Expr, Name
from hwgen.spec.hardware import HardwareSpec
from hwgen.spec.suggest import suggestion
from hwgen.spec.typecheck import dtype_of


def refuse(message: str, found: str, allowed: str, repair: str, code: str = "H413") -> HwgenError:
    """The error of an edit that does not apply."""
    return HwgenError(code, message, found=found, allowed=allowed, repair=repair)


def _unknown(kind: str, name: str, known: Iterable[str], why: str = "") -> HwgenError:
    names = list(known)
    return HwgenError(
        "H414",
        f"no {kind} {name}",
        found=why or name,
        allowed=", ".join(names) or "none",
        repair=(not why and suggestion(name, names)) or f"name one of the {kind}s",
    )


def find_loop(state: LoopTree, name: str, known: Iterable[str] | None = None) -> Loop:
    """A loop by name; `known`: the loops that an error lists, all if left out.

    Raises:
        HwgenError: H414 with what became of the loop, if it once existed.
    """
    around = path(state.root, name)
    if not around:
        listed = state.loop if known is None else known
        raise _unknown("loop", name, listed, dict(state.gone).get(name, ""))
    return around[-1]


def find_stage(state: LoopTree, name: str) -> Stage:
    """The stage that defines a tensor.

    Raises:
        HwgenError: H414.
    """
    if name not in state.stage:
        block = state.block(name)
        why = f"{name} is an input: no stage computes it" if name in state.tensor else ""
        why = why if block is None else f"{name} is a block of stage {block.block.stage}"
        raise _unknown("stage", name, state.stage, why or dict(state.gone).get(name, ""))
    return state.stage[name]


def check_tensor(state: LoopTree, name: str) -> None:
    """Raises:
    HwgenError: H414 where there is no such tensor.
    """
    if name not in state.tensor:
        raise _unknown("tensor", name, state.tensor, dict(state.gone).get(name, ""))


def check_memory(hardware: HardwareSpec, memory: str) -> None:
    """Raises:
    HwgenError: H414 where the chip has no such memory.
    """
    known = [m.name for m in hardware.memories if m.kind != "offchip"]
    if memory not in known:
        raise HwgenError(
            "H414",
            f"no memory {memory}",
            found=memory,
            allowed=", ".join(known) or "none",
            repair=suggestion(memory, known) or "name one of the chip's memories",
        )


def fresh(name: str, state: LoopTree) -> str:
    """A loop name that neither exists nor ever did."""
    gone = {n for n, _ in state.gone}
    return next(n for n in numbered(name) if n not in gone and not state.taken(n))


def check_plain(loop: Loop, what: str) -> None:
    """Raises:
    HwgenError: H413 where a loop is already run in a special way.
    """
    if loop.kind != "serial":
        raise refuse(
            f"{loop.name} is {loop.kind}; it cannot be {what}",
            f"a loop of kind {loop.kind}",
            "serial loops",
            f"{what} the loop first, then make it {loop.kind}",
        )


def check_not_tensorized(state: LoopTree, name: str) -> None:
    """Raises:
    HwgenError: H413 where a loop is a part of an intrinsic's call.
    """
    for site in under(state, name):
        done = site.block.tensorized
        if done is None or not done.loop:
            continue
        inside = site.names[site.names.index(done.loop) :]
        if name in inside:
            raise refuse(
                f"{name} is inside a call of {done.intrinsic}",
                f"loops {', '.join(inside)} of {site.block.name}",
                "loops around the call",
                "tensorize last",
            )


def find_uncalled(state: LoopTree, name: str) -> Stage:
    """The stage that defines a tensor, which is no call yet.

    Raises:
        HwgenError: H413, H414.
    """
    stage = find_stage(state, name)
    site = main_site(state, name)
    if site.block.tensorized is not None:
        check_not_tensorized(state, site.names[-1] if site.names else name)
    return stage


def value_dtype(value: Expr, dtypes: Mapping[str, str]) -> str:
    """The type of a value; `dtypes`: of the tensors in it. A loop's number is an int32.

    Raises:
        ExpressionTypeError: as `dtype_of`.
    """

    def type_of(node: Access | Name) -> str:
        return dtypes.get(node.tensor, "") if isinstance(node, Access) else "int32"

    return dtype_of(value, type_of)


def substitute_loops(
    nodes: tuple[Node, ...], bindings: Mapping[str, Expr], extents: Mapping[str, int]
) -> tuple[Node, ...]:
    """Every block under the nodes with loops replaced by expressions over new loops."""

    def changed(block: Block) -> Block:
        return replace(
            block,
            bindings=tuple((n, apply(e, bindings, extents)) for n, e in block.bindings),
            predicate=tuple(apply(p, bindings, extents) for p in block.predicate),
            store_predicate=None
            if block.store_predicate is None
            else apply(block.store_predicate, bindings, extents),
        )

    return map_blocks(nodes, changed)


def add_predicate(nodes: tuple[Node, ...], condition: Expr) -> tuple[Node, ...]:
    """Every block under the nodes runs only where the condition holds too."""

    def changed(block: Block) -> Block:
        if condition in block.predicate:
            return block
        return replace(block, predicate=(*block.predicate, condition))

    return map_blocks(nodes, changed)


def replace_loop(
    nodes: tuple[Node, ...], name: str, edit: Callable[[Loop], tuple[Node, ...]]
) -> tuple[Node, ...]:
    """The tree with one loop replaced by what `edit` makes of it."""
    return map_loops(nodes, edit, name)


def inserted(
    root: tuple[Node, ...], site: Site, depth: int, nests: tuple[Node, ...]
) -> tuple[Node, ...]:
    """The tree with nests before the one of a block."""
    at = site.places[depth]

    def among(nodes: tuple[Node, ...]) -> tuple[Node, ...]:
        return (*nodes[:at], *nests, *nodes[at:])

    if not depth:
        return among(root)
    wanted = site.loops[depth - 1].name
    return replace_loop(root, wanted, lambda x: (replace(x, body=among(x.body)),))


def around(node: Node) -> tuple[str, ...]:
    """Names of the loops of a node and inside it."""
    return tuple(x.name for x in loops((node,)))


def under(state: LoopTree, name: str) -> tuple[Site, ...]:
    """The blocks inside a loop."""
    around = path(state.root, name)
    found = sites(around[-1:], around[:-1], (0,) * (len(around) - 1)) if around else ()
    return tuple[Site, ...](found)


def stages_of(node: Node) -> tuple[str, ...]:
    """Stages with a block under a node."""
    return tuple(dict.fromkeys(b.stage for b in blocks((node,))))


def path(nodes: tuple[Node, ...], name: str) -> tuple[Loop, ...]:
    """The loops from the root to a loop, itself included."""
    for node in nodes:
        if isinstance(node, Loop) and name in node.names:
            return (node,) if node.name == name else (node, *path(node.body, name))
    return ()


def block_of(state: LoopTree, name: str) -> Site:
    """The block of a name, or that of a stage of the name that computes.

    Raises:
        HwgenError: H414.
    """
    return state.block(name) or main_site(state, find_stage(state, name).tensor)


def main_site(state: LoopTree, stage: str) -> Site:
    """The block of a stage that computes (not its initialisation)."""
    return next(s for s in state.sites_of(stage) if s.block.part != "init")
