"""tensorize: the innermost loops of a stage become one call of an intrinsic.

The intrinsic's semantics must be the stage's value with operands for accesses, its iterators the
loops, and each operand's element must depend on a loop exactly when the operand's own index does.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import permutations

from hwgen.errors import HwgenError
from hwgen.polyhedral.tree.binding import Binding, Tensorized
from hwgen.polyhedral.tree.edit import check_not_tensorized, find_loop, refuse, stages_of, under
from hwgen.polyhedral.tree.loop_tree import (
    Block,
    Loop,
    LoopTree,
    Site,
    Stage,
    map_blocks,
)
from hwgen.polyhedral.unify import unify
from hwgen.spec.expression import Access, Expr, Name, names, walk
from hwgen.spec.hardware import HardwareSpec, Intrinsic
from hwgen.spec.suggest import suggestion
from hwgen.spec.typecheck import is_float


def tensorize(
    state: LoopTree,
    loop: str,
    intrinsics: Sequence[str],
    hardware: HardwareSpec,
    *,
    lanes: bool = True,
    stationary: Sequence[str] = (),
) -> LoopTree:
    """The loops from `loop` inwards run as one call of an intrinsic, or of several on one unit;
    of a block, those that can, or without `lanes` none. `stationary`: the tensors that the unit
    holds for several calls.

    Raises:
        HwgenError: H413, H414; H416 with the first condition that fails.
    """
    for name in intrinsics:
        _check_known(name, hardware)
    chosen = [hardware.intrinsic[n] for n in intrinsics]
    block = state.block(loop)
    if stationary:
        _check_stationary(state, stationary, chosen)
    held = tuple(stationary)
    if block is not None and chosen and all(x.unit for x in chosen):
        single = not lanes or all(e == 1 for x in chosen for _, e in x.iterators)
        done = Tensorized(" ".join(intrinsics), "", single=single, stationary=held)
        return marked(state, block, done)
    found = find_loop(state, loop)
    check_not_tensorized(state, loop)
    inside = stages_of(found)
    first, *others = under(state, loop)
    chain = first.loops[first.names.index(loop) :]
    if others or any(len(x.body) != 1 for x in chain):
        raise refuse(
            f"{loop} holds more than one block",
            ", ".join(inside),
            "loops directly inside one another around one block",
            "decompose_reduction outside of the loop, or move stages away",
        )
    if chosen and all(x.unit for x in chosen):
        return marked(state, first, replace(_lanes(state, chain, chosen), stationary=held))
    if len(chosen) != 1:
        raise refuse(
            "one intrinsic at a time",
            ", ".join(intrinsics) or "none",
            "one intrinsic of the processor",
            "name one intrinsic",
        )
    return marked(state, first, match(state, first, chain, chosen[0]))


def _check_stationary(state: LoopTree, tensors: Sequence[str], chosen: Sequence[Intrinsic]) -> None:
    for tensor in tensors:
        if tensor not in state.tensor:
            raise HwgenError(
                "H414",
                f"no tensor {tensor}",
                found=tensor,
                allowed=", ".join(sorted(state.tensor)),
                repair=suggestion(tensor, list(state.tensor)) or "name a tensor of the schedule",
            )
    if not any(x.stationary for x in chosen):
        raise refuse(
            "nothing is held for several calls",
            ", ".join(x.name for x in chosen) or "no intrinsic",
            "an intrinsic with `stationary`",
            "leave `stationary` out",
        )


def _check_known(name: str, hardware: HardwareSpec) -> None:
    known = hardware.intrinsic
    if name not in known:
        raise HwgenError(
            "H414",
            f"no intrinsic {name}",
            found=name,
            allowed=", ".join(known) or "none: this chip has no intrinsics",
            repair=suggestion(name, list(known)) or "name one of the chip's intrinsics",
        )


def marked(state: LoopTree, site: Site, done: Tensorized) -> LoopTree:
    """The state in which a block is called so."""

    def changed(block: Block) -> Block:
        return replace(block, tensorized=done) if block.name == site.block.name else block

    return state.with_root(map_blocks(state.root, changed, site.block.stage))


def to_lanes(state: LoopTree, loop: str, extent: int, lanes: int) -> tuple[str, tuple[str, ...]]:
    """The edit that gives a loop the extent of lanes, as text; "" where it has that. And what it
    makes of the loop, outermost first."""
    if extent == lanes:
        return "", (loop,)
    if extent > lanes:
        return f"split({loop!r}, {lanes})", (f"{loop}_o", f"{loop}_i")
    for before, why in reversed(state.gone):
        if loop in why.split() and f"{before} was split" in why:
            edit = why.removeprefix(f"{before} was ")
            return f"split({before!r}, {lanes}) in place of the {edit}", (loop,)
    return f"pad({loop!r}, {lanes})", (loop,)


def _lanes(state: LoopTree, chain: tuple[Loop, ...], intrinsics: Sequence[Intrinsic]) -> Tensorized:
    """Loops that are lanes of units' intrinsics; how they match is decided with all operands, and
    a loop that runs once is no lane."""
    for intrinsic in intrinsics:
        extents = [e for _, e in intrinsic.iterators]
        for loop in chain:
            if loop.extent > 1 and loop.extent not in extents:
                raise HwgenError(
                    "H416",
                    f"{loop.name} is no lane of {intrinsic.name}",
                    found=f"{loop.extent} iterations",
                    allowed=", ".join(f"{n}: {e}" for n, e in intrinsic.iterators) or "no lanes",
                    repair=_into_lanes(state, chain, loop, intrinsic),
                )
    return Tensorized(" ".join(x.name for x in intrinsics), chain[0].name)


def _into_lanes(state: LoopTree, chain: tuple[Loop, ...], loop: Loop, intrinsic: Intrinsic) -> str:
    """The edits that make a loop a lane of an intrinsic, from the outermost of a chain inwards."""
    lanes = sorted(e for _, e in intrinsic.iterators if e > 1)
    if not lanes:
        return f"tensorize a loop inside {loop.name}, or the block, with {intrinsic.name}"
    wanted = next((e for e in reversed(lanes) if e <= loop.extent), lanes[0])
    edit, made = to_lanes(state, loop.name, loop.extent, wanted)
    first, *others = (*(x.name for x in chain[: chain.index(loop)]), made[-1])
    if others and len(made) > 1:
        edit += f", reorder({', '.join(map(repr, (made[0], first, *others[:-1])))})"
    return f"{edit}, then tensorize({first!r}, {intrinsic.name!r})"


def match(state: LoopTree, site: Site, chain: tuple[Loop, ...], intrinsic: Intrinsic) -> Tensorized:
    """The way in which a chain of loops around a block is the intrinsic.

    Raises:
        HwgenError: H416.
    """
    stage = state.stage[site.block.stage]
    _check_whole(site, chain, intrinsic)
    reasons: list[str] = []
    for operands in _values(state, site, stage, intrinsic):
        for iterators in _assignments(chain, intrinsic):
            reason = _fails(site, operands, iterators, intrinsic, chain)
            if not reason:
                accesses = tuple(operands[o.same_as or o.name] for o in intrinsic.operands)
                binding = Binding(intrinsic, accesses, tuple(iterators.items()))
                return Tensorized(intrinsic.name, chain[0].name, binding=binding)
            reasons.append(reason)
    if not reasons:
        loops = ", ".join(f"{x.name}: {x.extent}" for x in chain)
        wanted = ", ".join(f"{n}: {e}" for n, e in intrinsic.iterators)
        same = any(True for _ in _values(state, site, stage, intrinsic))
        reasons.append(
            f"loops {loops} where the intrinsic runs {wanted}"
            if same
            else f"{stage} where the intrinsic computes {intrinsic.semantics[0]}"
        )
    raise HwgenError(
        "H416",
        f"{stage.tensor} at {chain[0].name} is not {intrinsic.name}",
        found=reasons[0],
        allowed=f"{intrinsic.semantics[0]} for "
        + ", ".join(f"{n}: {e}" for n, e in intrinsic.iterators),
        repair="split the loops to the intrinsic's extents and reorder them to the inside",
    )


def _check_whole(site: Site, chain: tuple[Loop, ...], intrinsic: Intrinsic) -> None:
    inner = {x.name for x in chain}
    for condition in site.block.predicate:
        if inner & set(names(condition)):
            raise HwgenError(
                "H416",
                f"a tail cuts through {intrinsic.name}",
                found=f"{site.block.name} runs only where {condition}",
                allowed="whole tiles in every call",
                repair="pad the loop to a multiple of the intrinsic's extent before splitting it",
            )


def _values(
    state: LoopTree, site: Site, stage: Stage, intrinsic: Intrinsic
) -> Iterator[dict[str, Access]]:
    """Operands bound to accesses so that the semantics equal the stage's statement."""
    if len(intrinsic.semantics) != 1:
        return
    rule = intrinsic.semantics[0]
    op, value = stage.op, stage.spelt
    if site.block.part == "init":
        return
    if rule.op != op:
        return
    types = {n: t.dtype for n, t in state.tensor.items() if is_float(t.dtype)}
    for found in unify(rule.value, value, {i.name: i for i in intrinsic.immediates}, types):
        operands: dict[str, Access] = {rule.target.tensor: stage.target}
        plain = True
        for name, access in found.operands:
            if isinstance(access, Access) and operands.get(name, access) == access:
                operands[name] = access
            else:
                plain = False
        dtypes = all(
            state.tensor[a.tensor].dtype == intrinsic.operand(n).dtype for n, a in operands.items()
        )
        if plain and dtypes:
            yield operands


def _assignments(chain: tuple[Loop, ...], intrinsic: Intrinsic) -> Iterator[dict[str, str]]:
    """Every way to give each loop an iterator of its extent; iterators of extent one may lack."""
    iterators = intrinsic.iterators
    if len(chain) > len(iterators):
        return
    for chosen in permutations(range(len(iterators)), len(chain)):
        fits = all(iterators[i][1] == loop.extent for i, loop in zip(chosen, chain, strict=True))
        rest = (e for n, (_, e) in enumerate(iterators) if n not in chosen)
        if fits and all(e == 1 for e in rest):
            result = {name: "" for name, _ in iterators}
            result |= {iterators[i][0]: x.name for i, x in zip(chosen, chain, strict=True)}
            yield result


def steps(site: Site, access: Access, loop: str, inner: set[str]) -> tuple[int, ...] | None:
    """By how much each index of an access moves per iteration of a loop; None where not affine in
    the inner loops."""
    result: list[int] = []
    for terms in site.moves(access):
        step = 0
        for coefficient, term in terms:
            if isinstance(term, Name):
                step += coefficient if term.name == loop else 0
            elif term is not None and not inner.isdisjoint(names(term)):
                return None
        result.append(step)
    return tuple(result)


def _fails(
    site: Site,
    operands: dict[str, Access],
    iterators: dict[str, str],
    intrinsic: Intrinsic,
    chain: tuple[Loop, ...],
) -> str:
    """Why the assignment is not a match; empty where it is one."""
    inner = {x.name for x in chain}
    rule = intrinsic.semantics[0]
    if rule.op == "=":
        # Iterations that take values from each other run in the order of the iterators.
        used = {n for i in rule.target.indices for n in names(i)}
        taken = [iterators[n] for n, _ in intrinsic.iterators if n not in used and iterators[n]]
        if taken != [x.name for x in chain if x.name in taken]:
            return f"it runs {', '.join(taken)} in another order"
    patterns: dict[str, tuple[Expr, ...]] = {rule.target.tensor: rule.target.indices}
    for name in operands:
        found = _pattern(rule.value, name)
        if found is not None:
            patterns[name] = found
    for name, access in operands.items():
        used = {n for i in patterns[name] for n in names(i)}
        for iterator, loop in iterators.items():
            if not loop:
                continue
            step = steps(site, access, loop, inner)
            if step is None:
                return f"{access} is not affine in {loop}"
            moves = any(step)
            if moves and iterator not in used:
                return f"{access} moves with {loop}, but operand {name} has no index {iterator}"
            if not moves and iterator in used:
                return f"{access} does not move with {loop}, but operand {name} does ({iterator})"
    return ""


def _pattern(value: Expr, operand: str) -> tuple[Expr, ...] | None:

    for node in walk(value):
        if isinstance(node, Access) and node.tensor == operand:
            return node.indices
    return None
