"""One call a block: a stage that several intrinsics compute together becomes one stage for each.

What one call leaves for the next is a tensor of its own, in the memory where the next one reads it.
The loops directly around the block are then as many nests, one after the other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import permutations

from hwgen.errors import HwgenError
from hwgen.polyhedral.nest.aliases import root
from hwgen.polyhedral.nest.build import unique
from hwgen.polyhedral.nest.legality import Homes
from hwgen.polyhedral.nest.reductions import beginning
from hwgen.polyhedral.nest.state import (
    Block,
    Loop,
    Node,
    Site,
    Stage,
    State,
    Storage,
    Tensor,
    map_loops,
)
from hwgen.polyhedral.nest.tensorize import steps
from hwgen.polyhedral.normal_form import normalise
from hwgen.polyhedral.semantics import updates, written
from hwgen.polyhedral.unify import unify
from hwgen.spec.expression import Access, Const, Expr, Name, names, replace_access, substitute, walk
from hwgen.spec.hardware import HardwareSpec, Intrinsic, Operand


@dataclass(frozen=True, slots=True)
class BlockCall:
    """What runs the instances of a block. `operands`: the access, over the stage's iterators, that
    each of the intrinsic's stands for; `lanes`: the loop that each of its iterators is ("" where
    one lane does)."""

    intrinsic: Intrinsic
    operands: tuple[Access, ...]
    immediates: tuple[tuple[str, int | float], ...]
    lanes: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Covered:
    """A state in which every block is one call, by the block's name."""

    state: State
    homes: Homes
    calls: Mapping[str, BlockCall]


@dataclass(frozen=True, slots=True)
class _Step:
    """One call of several: what it writes, and by which of its intrinsic's patterns."""

    target: Access
    pattern: Expr
    intrinsic: Intrinsic
    operands: tuple[Access, ...]
    immediates: tuple[tuple[str, int | float], ...]


def covered(state: State, homes: Homes, hardware: HardwareSpec) -> Covered:
    """Every block with its call.

    Raises:
        HwgenError: H421 a block without intrinsics; H422 one that its intrinsics do not compute.
    """
    calls: dict[str, BlockCall] = {}
    homes = dict(homes)
    for name in [s.block.name for s in state.sites]:
        site = state.site[name]
        state, mine = _split(state, homes, site, _steps(state, site, hardware), hardware)
        calls |= mine
    return Covered(state, homes, calls)


# What computes a block


def _steps(state: State, site: Site, hardware: HardwareSpec) -> list[_Step]:
    """The calls that compute a block together, in order."""
    block, stage = site.block, state.stage[site.block.stage]
    if block.tensorized is None:
        raise HwgenError(
            "H421",
            f"no call computes {block.name}",
            found=str(stage),
            allowed="an intrinsic for every block",
            repair=f"tensorize({(site.names or (block.name,))[-1]!r}, ...)",
        )
    if stage.reduces and block.part == "whole":
        raise HwgenError(
            "H421",
            f"no call begins {block.name}",
            found=f"{stage}, which begins with its first contribution",
            allowed=f"a block that puts {beginning(stage, state.tensor[stage.tensor].dtype)} there",
            repair=f"decompose_reduction({stage.tensor!r}, {(site.names or ('',))[0]!r})",
        )
    pool = [hardware.intrinsic[n] for n in block.tensorized.intrinsic.split()]
    search = _Search(state, stage, hardware)
    for found in search.root(block, pool):
        return found
    raise HwgenError(
        "H422",
        f"{', '.join(x.name for x in pool)} do not compute {block.name}",
        found=search.shown(block),
        allowed="; ".join(f"{x.name}: {x.semantics[0]}" for x in pool),
        repair="the intrinsics that --stage script names for this stage, on the same memories",
    )


@dataclass(frozen=True, slots=True)
class _Search:
    state: State
    stage: Stage
    hardware: HardwareSpec

    @property
    def dtypes(self) -> dict[str, str]:
        return {t.name: t.dtype for t in self.state.tensors}

    def shown(self, block: Block) -> str:
        if block.part == "init":
            dtype = self.state.tensor[self.stage.tensor].dtype
            return f"{self.stage.target} = {beginning(self.stage, dtype)}"
        return str(self.stage)

    def root(self, block: Block, pool: Sequence[Intrinsic]) -> Iterator[list[_Step]]:
        """Every way to compute a block with all of some intrinsics; what begins a sum is one."""
        if block.part == "init" and len(pool) > 1:
            return
        stage = self.stage
        value = normalise(stage.value, self.dtypes)
        for n, intrinsic in enumerate(pool):
            rest = [*pool[:n], *pool[n + 1 :]]
            for pattern in self._patterns(intrinsic, block):
                wanted = value
                if block.part == "init":
                    wanted = beginning(stage, self.state.tensor[stage.tensor].dtype)
                yield from self._applied(intrinsic, pattern, wanted, stage.target, rest)

    def _patterns(self, intrinsic: Intrinsic, block: Block) -> Iterator[Expr]:
        """The values that an intrinsic may put where the block does."""
        only = written(intrinsic)
        if only is None:
            return
        if block.part == "init" or not self.stage.reduces:
            if only[0].op == "=":
                yield only[0].value
            return
        for op, value in updates(intrinsic):
            if op == self.stage.op:
                yield value

    def _applied(
        self,
        intrinsic: Intrinsic,
        pattern: Expr,
        value: Expr,
        target: Access,
        rest: Sequence[Intrinsic],
    ) -> Iterator[list[_Step]]:
        """Every way to have an intrinsic compute a value of what the others compute."""
        result = _written(intrinsic)
        name = result.name
        if not self._holds(result, target.tensor):
            return
        fields = {i.name: i for i in intrinsic.immediates}
        offchip = self.hardware.memory[result.memory].kind == "offchip"
        for found in unify(pattern, value, fields, self.dtypes, whole=offchip):
            wanted = {o: v for o, v in found.operands if o != name}
            inside = {o: v for o, v in wanted.items() if not isinstance(v, Access)}
            plain = {o: v for o, v in wanted.items() if isinstance(v, Access)}
            if any(not self._holds(intrinsic.operand(o), a.tensor) for o, a in plain.items()):
                continue
            own = dict(found.operands).get(name, target)
            if own != target:
                continue
            for before, made in self._inner(intrinsic, list(inside.items()), rest):
                operands = plain | made | {name: target}
                step = _Step(
                    target,
                    pattern,
                    intrinsic,
                    tuple(operands[o.same_as or o.name] for o in intrinsic.operands),
                    found.immediates,
                )
                yield [*before, step]

    def _inner(
        self, intrinsic: Intrinsic, wanted: list[tuple[str, Expr]], rest: Sequence[Intrinsic]
    ) -> Iterator[tuple[list[_Step], dict[str, Access]]]:
        """Every way to compute an intrinsic's operands by all of the others."""
        if not wanted:
            if not rest:
                yield [], {}
            return
        if len(wanted) > 1:
            return  # Two operands that are both computed first: no chip needs it so far.
        ((operand, value),) = wanted
        used = tuple(n for n, _ in self.stage.iterators if n in names(value))
        # What is left tells the calls apart whose operands have one name.
        target = Access(f"<{operand} of {len(rest)}>", tuple(Name(n) for n in used))
        for n, other in enumerate(rest):
            only = written(other)
            if only is None or only[0].op != "=":
                continue
            if other.operand(only[1]).memory != intrinsic.operand(operand).memory:
                continue
            left = [*rest[:n], *rest[n + 1 :]]
            for found in self._applied(other, only[0].value, value, target, left):
                yield found, {operand: target}

    def _holds(self, operand: Operand, tensor: str) -> bool:
        """Whether an operand may be where a tensor is; what has no name yet may be anywhere."""
        declared = self.state.tensor.get(tensor)
        if declared is None:
            return True
        memory = self.state.storage[tensor].memory if tensor in self.state.storage else ""
        if memory:
            return operand.memory == memory
        return self.hardware.memory[operand.memory].kind == "offchip"


# One block for each call


def _split(
    state: State,
    homes: dict[str, tuple[str, ...]],
    site: Site,
    found: list[_Step],
    hardware: HardwareSpec,
) -> tuple[State, dict[str, BlockCall]]:
    """A state in which a block's calls are blocks, and these calls."""
    depth = _depth(state, homes, site)
    stage = state.stage[site.block.stage]
    taken = {*(t.name for t in state.tensors), *state.loop}
    named: dict[str, str] = {}
    nests: list[Node] = []
    calls: dict[str, BlockCall] = {}
    for number, step in enumerate(found[:-1]):
        tensor = unique(f"{stage.tensor}_{step.intrinsic.name}", taken)
        taken.add(tensor)
        operands = tuple(_renamed(a, named) for a in step.operands)
        named[step.target.tensor] = tensor
        iterators = tuple(x for x in stage.iterators if Name(x[0]) in step.target.indices)
        target = Access(tensor, step.target.indices)
        chain, block, own = _copied(site, depth, tensor, taken, {n for n, _ in iterators})
        taken |= {x.name for x in chain}
        operands = tuple(target if a == step.target else a for a in operands)
        calls[tensor] = BlockCall(
            step.intrinsic, operands, step.immediates, _lanes(own, operands, step.intrinsic)
        )
        nests.append(_nest(chain, block))
        memory = _written(step.intrinsic).memory
        dtype = hardware.memory[memory].dtype or state.tensor[stage.tensor].dtype
        place = _place(state, stage, step, found[number + 1 :], memory, dtype)
        state = _with_stage(
            state,
            stage,
            Stage(tensor, iterators, target, "=", _value(step, operands)),
            Tensor(tensor, dtype, tuple(e for _, e in iterators), "intermediate"),
            Storage(tensor, memory, alias=place),
        )
        homes[tensor] = homes[place] if place else site.names[:depth]
    last = found[-1]
    operands = tuple(_renamed(a, named) for a in last.operands)
    name = site.block.name
    calls[name] = BlockCall(
        last.intrinsic, operands, last.immediates, _lanes(site, operands, last.intrinsic)
    )
    if nests:
        reads = replace(state.stage[stage.tensor], value=_value(last, operands))
        state = replace(
            state, stages=tuple(reads if s.tensor == stage.tensor else s for s in state.stages)
        )
        state = replace(state, root=_inserted(state.root, site, depth, tuple(nests)))
    return state, calls


def _written(intrinsic: Intrinsic) -> Operand:
    only = written(intrinsic)
    assert only is not None
    return intrinsic.operand(only[1])


def _renamed(access: Access, named: Mapping[str, str]) -> Access:
    return Access(named.get(access.tensor, access.tensor), access.indices)


def _value(step: _Step, operands: Sequence[Access]) -> Expr:
    """What a call computes, over its operands' accesses."""
    table = dict(zip((o.name for o in step.intrinsic.operands), operands, strict=True))
    value = substitute(step.pattern, {n: Const(v) for n, v in step.immediates})
    for node in [n for n in walk(value) if isinstance(n, Access)]:
        value = replace_access(value, node, table[node.tensor])
    return value


def _place(
    state: State, stage: Stage, step: _Step, later: Sequence[_Step], memory: str, dtype: str
) -> str:
    """The tensor in whose place a call may leave what the next ones take up: that which the stage
    computes, where each element goes to its own place and nothing else there is read later."""
    whole = state.tensor[stage.tensor]
    rest = {a.tensor for s in later for a in s.operands if a.tensor in state.tensor}
    place = root(state, stage.tensor)
    used = {root(state, t) for t in rest - {stage.tensor} if t in state.storage}
    alike = (
        not stage.reduces
        and state.storage[stage.tensor].memory == memory
        and step.target.indices == stage.target.indices
        and whole.dtype == dtype
        and whole.shape == tuple(extent for _, extent in stage.iterators)
    )
    return stage.tensor if alike and place not in used else ""


def _with_stage(
    state: State, before: Stage, stage: Stage, tensor: Tensor, storage: Storage
) -> State:
    at = [s.tensor for s in state.stages].index(before.tensor)
    return replace(
        state,
        tensors=(*state.tensors, tensor),
        stages=(*state.stages[:at], stage, *state.stages[at:]),
        storages=(*state.storages, storage),
    )


def _depth(state: State, homes: Homes, site: Site) -> int:
    """How many loops around a block stay around all of its calls: those that hold other blocks too,
    or around which a tensor that it touches lives."""
    around = [n for n, x in enumerate(site.loops, 1) if len(x.body) > 1]
    stage = state.stage[site.block.stage]
    for tensor in (stage.tensor, *(r.tensor for r in stage.reads)):
        home = homes.get(tensor, ())
        around += [n for n, x in enumerate(site.loops, 1) if x.name in home]
    return max(around, default=0)


def _copied(
    site: Site, depth: int, tensor: str, taken: set[str], used: set[str]
) -> tuple[tuple[Loop, ...], Block, Site]:
    """The loops inside `depth` and the block of another stage over some of its iterators."""
    bindings = tuple((n, e) for n, e in site.block.bindings if n in used)
    needed = {n for _, e in bindings for n in names(e)}
    needed |= {n for p in site.block.predicate for n in names(p)}
    table: dict[str, Expr] = {}
    chain: list[Loop] = []
    seen = set(taken)
    for loop in site.loops[depth:]:
        if loop.name in needed:
            fresh = unique(f"{loop.name}_{tensor}", seen)
            seen.add(fresh)
            table[loop.name] = Name(fresh)
            chain.append(replace(loop, name=fresh, body=()))
    block = Block(
        tensor,
        "whole",
        tuple((n, substitute(e, table)) for n, e in bindings),
        tuple(substitute(p, table) for p in site.block.predicate),
        tensorized=site.block.tensorized,
        shifts=tuple((str(table.get(n, n)), later) for n, later in site.block.shifts),
    )
    marked = block.tensorized
    if marked is not None and marked.loop in table:
        block = replace(block, tensorized=replace(marked, loop=str(table[marked.loop])))
    own = Site(block, (*site.loops[:depth], *chain), ())
    return tuple(chain), block, own


def _nest(chain: Sequence[Loop], block: Block) -> Node:
    node: Node = block
    for loop in reversed(chain):
        node = replace(loop, body=(node,))
    return node


def _inserted(
    root: tuple[Node, ...], site: Site, depth: int, nests: tuple[Node, ...]
) -> tuple[Node, ...]:
    """The tree with nests before the one of a block."""
    at = site.places[depth]
    if not depth:
        return (*root[:at], *nests, *root[at:])
    wanted = site.loops[depth - 1].name

    def edit(loop: Loop) -> tuple[Node, ...]:
        if loop.name != wanted:
            return (loop,)
        return (replace(loop, body=(*loop.body[:at], *nests, *loop.body[at:])),)

    return map_loops(root, edit)


# Lanes


def _lanes(
    site: Site, operands: Sequence[Access], intrinsic: Intrinsic
) -> tuple[tuple[str, str], ...]:
    """The loop that each iterator of an intrinsic is, from the block's marked loop inwards.

    Raises:
        HwgenError: H422 where loops are no lanes of it.
    """
    marked = site.block.tensorized
    assert marked is not None
    inside = site.names[site.names.index(marked.loop) :] if marked.loop in site.names else ()
    chain = [n for n in inside if site.extents[n] > 1]
    iterators = intrinsic.iterators
    for chosen in permutations(range(len(iterators)), len(chain)):
        rest = [e for n, (_, e) in enumerate(iterators) if n not in chosen]
        fits = all(iterators[i][1] == site.extents[n] for i, n in zip(chosen, chain, strict=True))
        if not fits or any(e > 1 for e in rest):
            continue
        lanes = {name: "" for name, _ in iterators}
        lanes |= {iterators[i][0]: n for i, n in zip(chosen, chain, strict=True)}
        if all(
            _moves_along(site, access, operand, lanes)
            for operand, access in zip(intrinsic.operands, operands, strict=True)
        ):
            return tuple(lanes.items())
    raise HwgenError(
        "H422",
        f"the loops of {site.block.name} from {marked.loop or 'none'} inwards are no lanes of "
        f"{intrinsic.name}",
        found=", ".join(f"{n}: {site.extents[n]}" for n in chain) or "no loop",
        allowed=", ".join(f"{n}: {e}" for n, e in iterators) or "no lanes",
        repair="split loops to the lanes' extents, and reorder those to the inside",
    )


def _moves_along(site: Site, access: Access, operand: Operand, lanes: Mapping[str, str]) -> bool:
    """Whether an access moves with a loop exactly where the operand's index has its iterator, and
    then by single steps of one index."""
    inner = {x for x in lanes.values() if x}
    for iterator, loop in lanes.items():
        if not loop:
            continue
        step = steps(site, access, loop, inner)
        if step is None:
            return False
        moved = [s for s in step if s]
        if (iterator in operand.indices) != bool(moved) or moved not in ([], [1]):
            return False
    return True
