"""A stage computed inside the loops of what it reads: its own loops split as those, and merged."""

from __future__ import annotations

from hwgen.errors import HwgenError
from hwgen.polyhedral.schedule.primitives import Primitives
from hwgen.polyhedral.tree.edit import find_loop, find_stage, path, refuse
from hwgen.polyhedral.tree.loop_tree import LoopTree
from hwgen.spec.affine import Affine, affine
from hwgen.spec.expression import Access, substitute


def follow(s: Primitives, stage: str, loop: str) -> None:
    """Merge loops of a stage with those down to a loop in which one that it reads is computed.

    Raises:
        HwgenError: H411, H413, H414.
    """
    find_loop(s.state, loop)
    read = _read(s.state, stage, loop)
    steps = _steps(s.state, read.tensor, loop)
    with s.batch():
        chosen: list[str] = []
        for name, (dimension, step) in steps.items():
            chosen.append(_part(s, stage, read, dimension, step, name))
        inside = [n for n in s.loops(stage) if n not in chosen]
        if s.loops(stage) != (*chosen, *inside):
            s.reorder(*chosen, *inside)
        for name, own in zip(steps, chosen, strict=True):
            s.merge(name, own)


def _read(state: LoopTree, stage: str, loop: str) -> Access:
    """What the stage reads that is computed inside the loop."""
    made = {x.block.stage for x in state.sites if loop in x.names}
    found = [r for r in find_stage(state, stage).reads if r.tensor in made]
    if not found or stage in made:
        raise refuse(
            f"{stage} cannot be computed inside {loop}",
            f"{', '.join(sorted(made))} there, and {stage} reads "
            f"{', '.join(sorted({r.tensor for r in state.stage[stage].reads})) or 'nothing'}",
            "a loop of a stage that it reads, and that is not its own",
            "compute_at moves what is read into the loops of its reader",
        )
    return found[0]


def _steps(state: LoopTree, tensor: str, loop: str) -> dict[str, tuple[int, int]]:
    """Of the loops down to one, outermost first, which index of the tensor each moves, and by how
    much."""
    target = find_stage(state, tensor).target
    indices = [_index(state, tensor, target, d) for d in range(len(target.indices))]
    steps: dict[str, tuple[int, int]] = {}
    for name in (x.name for x in path(state.root, loop)):
        moved = [(d, i.coefficient(name)) for d, i in enumerate(indices) if i.coefficient(name)]
        if len(moved) != 1:
            raise refuse(
                f"nothing can follow {tensor} in {name}",
                f"{name} moves {len(moved)} indices of {tensor}",
                "loops that move one index each, and none that carries a sum",
                "name a loop further out, or reorder the loops of sums to the inside",
            )
        steps[name] = moved[0]
    return steps


def _index(state: LoopTree, stage: str, access: Access, dimension: int) -> Affine:
    """An index of an access over the loops around its stage."""
    block = next(s.block for s in state.sites if s.block.stage == stage and s.block.part != "init")
    found = affine(substitute(access.indices[dimension], block.binding))
    if found is None:
        raise _other(stage, access)
    return found


def _other(stage: str, access: Access) -> HwgenError:
    return refuse(
        f"{stage} cannot follow {access.tensor}",
        str(access),
        "indices that are sums of loops",
        "compute_at moves what is read into the loops of its reader",
    )


def _part(s: Primitives, stage: str, read: Access, dimension: int, step: int, followed: str) -> str:
    """The stage's loop that moves an index by so much; one is split where there is none."""
    index = _index(s.state, stage, read, dimension)
    moves = {n: index.coefficient(n) for n in s.loops(stage) if index.coefficient(n) > 0}
    for name, own in moves.items():
        if own == step:
            return name
    fitting = [n for n, own in moves.items() if own < step and step % own == 0]
    if not fitting:
        raise refuse(
            f"{stage} cannot follow {read.tensor} in {followed}",
            f"{read}: its loops move the index by {sorted(moves.values())}",
            f"a loop that moves it by {step} or less",
            f"split the loops of {stage} as those of {read.tensor}, and merge them",
        )
    widest = max(fitting, key=lambda n: moves[n])
    return s.split(widest, step // moves[widest])[0]
