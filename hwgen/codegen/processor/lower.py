"""From a scheduled state to a program of loops and statements with flat addresses.

The tree is walked once from the leaves up: each node comes with the conditions that it still needs,
and a condition settles at the outermost loop that it depends on, as a tighter bound where it can.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from hwgen.codegen.limits import check_nest
from hwgen.codegen.nodes import (
    Allocate,
    Assign,
    Code,
    If,
    IntrinsicCall,
    Launch,
    Node,
    OperandOf,
    PrefetchOf,
    ThreadBarrier,
    with_inner,
)
from hwgen.codegen.nodes import Loop as CodeLoop
from hwgen.codegen.processor import pools, rooms
from hwgen.codegen.processor.barriers import needed_barriers
from hwgen.codegen.processor.boxes import Use, block_uses, uses
from hwgen.codegen.processor.combine import Gathering
from hwgen.codegen.processor.conditions import least, needed, upper_bound
from hwgen.codegen.processor.guards import Guarded, common, settled, touched
from hwgen.codegen.processor.inits import separate
from hwgen.codegen.processor.keeps import keep
from hwgen.codegen.processor.launches import Kernel, Plan, plan_launches
from hwgen.codegen.processor.prefetching import prefetches
from hwgen.codegen.processor.routines import outlined
from hwgen.codegen.processor.storage import Placed, place
from hwgen.codegen.processor.unswitching import unswitched
from hwgen.codegen.storages import Array
from hwgen.errors import HwgenError
from hwgen.polyhedral.tree.aliases import in_one_place
from hwgen.polyhedral.tree.idle_steps import plain
from hwgen.polyhedral.tree.loop_tree import RUNNING, Block, Loop, LoopTree, Site, first_of, sites
from hwgen.polyhedral.tree.loop_tree import Node as TreeNode
from hwgen.polyhedral.tree.reductions import beginning
from hwgen.polyhedral.tree.relations import combining
from hwgen.polyhedral.tree.terms import addends, simplify
from hwgen.spec.expression import (
    Access,
    Binary,
    Const,
    Expr,
    Name,
    names,
    rewrite,
    substitute,
)
from hwgen.spec.hardware import HardwareSpec
from hwgen.spec.processor import Processor

Homes = Mapping[str, tuple[str, ...]]
Around = tuple[Loop, ...]


@dataclass(frozen=True)
class Placing:
    """What a program was lowered from, reductions that begin themselves taken apart. `placed`: by
    tensor; `partial`: by block and tensor, what threads combine; `variables`: of bound loops."""

    state: LoopTree
    placed: Mapping[str, Placed]
    partial: Mapping[tuple[str, str], Placed]
    variables: Mapping[str, str]


def lower_nest(state: LoopTree, homes: Homes, hardware: HardwareSpec) -> tuple[Code, Placing]:
    """The program of a legal state; `homes`: loops around the buffer of each tensor written.

    Raises:
        HwgenError: H510 to H515 storage that cannot be; H620 to H623 a nest that cannot be lowered.
    """
    processor = hardware.processor
    if processor is None:
        raise HwgenError(
            "H621",
            f"{hardware.name} has no processor",
            field="processor",
            found="a chip of intrinsics only",
            allowed="chips whose spec has a processor",
            repair="compile for this chip without a schedule of loops",
        )
    state = plain(in_one_place(separate(state)))
    found: dict[str, list[Use]] = {}
    for use in uses(state, state.root):
        found.setdefault(use.access.tensor, []).append(use)
    for tensor in state.tensors:
        if tensor.role != "intermediate":
            found.setdefault(tensor.name, [])
    placed = place(state, found, homes, hardware)
    plan = plan_launches(state, processor)
    # Addresses follow from where buffers live, and barriers from addresses.
    lowering = Lowering(state, hardware, placed, plan)
    buffers = {p.buffer.name: p.buffer for p in placed.values()}
    body = lowering.program()
    buffers = pools.plan(body, buffers | lowering.extra, hardware)
    placed = {t: replace(p, buffer=buffers[p.buffer.name]) for t, p in placed.items()}
    placing = Placing(state, placed, lowering.partials, plan.variables)
    if plan.kernels:
        extra = {n: buffers[n] for n in lowering.extra}
        barriers = needed_barriers(state, hardware, placed, extra, plan)
        body = Lowering(state, hardware, placed, plan, barriers).program()
    body, buffers = rooms.share(body, buffers, hardware)
    body = keep(outlined(body, buffers, hardware), adding(processor))
    if not plan.launches:  # Threads choose each for itself.
        body = unswitched(body, processor)
    program = Code(
        tuple(t.name for t in state.tensors if t.role == "input"),
        tuple(t.name for t in state.tensors if t.role == "output"),
        tuple(buffers.values()),
        body,
    )
    check_nest(program)
    return program, placing


def adding(processor: Processor) -> tuple[str, ...]:
    """Kinds of loops that may add to one variable."""
    return (*in_order(processor), *(k.name for k in processor.loops if k.sum))


def in_order(processor: Processor) -> tuple[str, ...]:
    """Kinds of loops whose iterations run one after the other."""
    return ("serial", *(k.name for k in processor.loops if k.kind == "unroll"))


@dataclass(slots=True)
class Lowering:
    """One walk over a state. `barriers`: per body (a loop's name, or a launch's) the places of
    barriers in it. `extra`: buffers that the walk adds."""

    state: LoopTree
    hardware: HardwareSpec
    placed: Mapping[str, Placed]
    plan: Plan
    barriers: Mapping[str, Mapping[int, str]] = field(default_factory=dict[str, dict[int, str]])
    extra: dict[str, Array] = field(default_factory=dict[str, Array])
    kernel: Kernel | None = None
    seen: dict[str, str] = field(default_factory=dict[str, str])
    partial: dict[tuple[str, str], Placed] = field(default_factory=dict[tuple[str, str], Placed])
    partials: dict[tuple[str, str], Placed] = field(default_factory=dict[tuple[str, str], Placed])

    def program(self) -> tuple[Node, ...]:
        return settled(self.body(self.state.root, "", ()), {})

    # Bodies

    def body(self, nodes: tuple[TreeNode, ...], key: str, around: Around) -> list[Guarded]:
        """The nodes of one body, with buffers allocated around those that use them."""
        items: list[Guarded] = []
        on_host = self.plan.launches and self.kernel is None
        for n, node in enumerate(nodes):
            if n in self.barriers.get(key, {}):
                items.append(Guarded(ThreadBarrier(self.barriers[key][n]), {}))
            if not on_host:
                items += self.node(node, around)
            elif (key, n) in self.plan.kernels:
                items.append(self.launch(self.plan.kernels[key, n]))
            elif isinstance(node, Loop) and node.name in self.plan.host:
                items.append(self.loop(node, around))
        if len(nodes) in self.barriers.get(key, {}):
            items.append(Guarded(ThreadBarrier(self.barriers[key][len(nodes)]), {}))
        return self.allocated(items, key)

    def allocated(self, items: list[Guarded], key: str) -> list[Guarded]:
        """Buffers at home in this body, around the items that touch them."""
        for placed in self.placed.values():
            name = placed.buffer.name
            places = [n for n, i in enumerate(items) if name in i.touches]
            if not places or not placed.buffer.memory or self.home(placed) != key:
                continue
            self.check_seen(name)
            inner = items[places[0] : places[-1] + 1]
            shared = common(inner)
            node = Allocate(name, settled(inner, shared))
            whole = Guarded(node, shared, touched(inner) - {name})
            items = [*items[: places[0]], whole, *items[places[-1] + 1 :]]
        return items

    def home(self, placed: Placed) -> str:
        """The body in which a buffer is allocated."""
        key = placed.home[-1] if placed.home else ""
        if not self.plan.launches:
            return key
        hosted = not key or key in self.plan.host
        if self.hardware.memory[placed.buffer.memory].shared_by == "kernel":
            # Only the host allocates it.
            outer = [x for x in placed.home if x in self.plan.host]
            return key if hosted else next(reversed(outer), "")
        if hosted and self.kernel is not None:
            self.seen.setdefault(placed.buffer.name, self.kernel.name)
            return self.kernel.name
        return key

    def check_seen(self, name: str) -> None:
        """Memory of blocks and threads does not outlive a launch."""
        if self.kernel and self.seen.get(name, self.kernel.name) != self.kernel.name:
            raise HwgenError(
                "H512",
                f"{name} is touched by more than one launch",
                found=f"{self.seen[name]} and {self.kernel.name}",
                allowed="one launch for a buffer in memory of a block or a thread",
                repair="a memory that the whole kernel shares, or one nest for all that touch it",
            )

    def launch(self, kernel: Kernel) -> Guarded:
        self.kernel = kernel
        items = self.body(kernel.root, kernel.name, kernel.around)
        self.kernel = None
        node = Launch(kernel.name, kernel.coordinates, settled(items, {}))
        return Guarded(node, {}, touched(items))

    # Nodes

    def node(self, node: TreeNode, around: Around) -> list[Guarded]:
        match node:
            case Block():
                return [self.block(node, around)]
            case Loop() if self.gathering(node, around):
                return self.gathered(node, around)
            case Loop() if node.name in self.plan.variables:
                # A coordinate is no loop: the launch runs the body once per value.
                return self.body(node.body, node.name, (*around, node))
            case Loop() if self.tensorized(node) is not None:
                return [self.intrinsic(node, around)]
            case Loop():
                return [self.loop(node, around)]

    def loop(self, loop: Loop, around: Around) -> Guarded:
        around = (*around, loop)
        items = self.body(loop.body, loop.name, around)
        shared = common(items)
        extents = self.extents(around)
        inside: dict[str, Expr] = {}
        bound: Expr = Const(loop.extent)
        for text, condition in shared.items():
            if loop.name in names(condition):
                limit = upper_bound(condition, loop.name, extents)
                if limit is None:
                    inside[text] = condition
                else:
                    bound = least(bound, limit, extents)
        outside = {t: c for t, c in shared.items() if loop.name not in names(c)}
        tightened = {t: c for t, c in shared.items() if t not in inside}
        ahead = prefetches(self.state, self.placed, loop, around, self.hardware.machine)
        body = settled(items, tightened)
        ahead = [self.renamed(n, around) for n in ahead]
        node = CodeLoop(
            loop.name, Const(0), bound, (*ahead, *body), loop.kind, loop.extent, loop.pragmas
        )
        return Guarded(node, outside, touched(items))

    def renamed(self, node: Node, around: Around) -> Node:
        """A prefetch's nest over loops, bound ones as their coordinates."""
        match node:
            case If(condition):
                node = replace(node, condition=self.own(condition, around))
            case PrefetchOf(Access(buffer, indices)):
                return PrefetchOf(Access(buffer, tuple(self.own(i, around) for i in indices)))
            case _:
                pass
        return with_inner(node, lambda body: tuple(self.renamed(n, around) for n in body))

    def extents(self, around: Around) -> dict[str, int]:
        """Ranges of loops and of the launch's coordinates."""
        result = {x.name: x.extent for x in around}
        return result | (self.kernel.extents if self.kernel else {})

    def own(self, expr: Expr, around: Around) -> Expr:
        """An expression over loops, bound ones as their coordinates."""
        variables = {x.name: Name(self.plan.variables[x.name]) for x in around
                     if x.name in self.plan.variables}  # fmt: skip
        return substitute(expr, variables) if variables else expr

    def conditions(self, block: Block, around: Around) -> dict[str, Expr]:
        """What must hold for a block to run, at its own loops and coordinates."""
        found = [*block.predicate]
        threads = combining(self.state, Site(block, around, ()))
        if block.store_predicate is not None and not threads:
            found.append(block.store_predicate)
        return self.needed(found, around)

    def needed(self, found: Sequence[Expr], around: Around) -> dict[str, Expr]:
        """Those of some conditions, and of the launch's coordinates, that ranges do not imply."""
        found = [self.own(p, around) for p in found]
        if self.kernel:
            bound = {x.kind: x for x in around}
            for kind, variable, extent in self.kernel.coordinates:
                if kind not in bound:
                    found.append(first_of(variable))
                elif bound[kind].extent < extent:
                    found.append(Binary("<", Name(variable), Const(bound[kind].extent)))
        return needed(found, self.extents(around))

    def tensorized(self, loop: Loop) -> Block | None:
        """The block whose call replaces the loops from this one inwards."""
        node: TreeNode = loop
        while isinstance(node, Loop):
            if len(node.body) != 1:
                return None
            node = node.body[0]
        found = node.tensorized
        return node if found is not None and found.loop == loop.name else None

    # Reductions over threads

    def gathering(self, loop: Loop, around: Around) -> list[Site]:
        """The blocks whose partial results meet after a loop of threads."""
        inside = [s for s in sites((loop,), around) if s.block.part != "init"]
        return [s for s in inside if (t := combining(self.state, s)) and t[0] == loop]

    def gathered(self, loop: Loop, around: Around) -> list[Guarded]:
        """The loop's body between the start of partial results and where they meet."""
        found = [Gathering(self, site, loop) for site in self.gathering(loop, around)]
        items = [i for g in found for i in g.start()]
        for g in found:
            self.partial[g.key] = self.partials[g.key] = g.partial
        items += self.body(loop.body, loop.name, (*around, loop))
        for g in found:
            del self.partial[g.key]
        items += [i for g in found for i in g.end()]
        for g in found:
            items = [g.allocated(items)]
        return items

    # Statements

    def flat(self, use: Use) -> Access:
        """A buffer's element."""
        placed = self.partial.get((use.block.name, use.access.tensor) if use.writes else ("", ""))
        placed = placed or self.placed[use.access.tensor]
        index = self.own(placed.flat(use), use.loops)
        return Access(placed.buffer.name, (simplify(index, self.extents(use.loops)),))

    def block(self, block: Block, around: Around) -> Guarded:
        node = self.statement(block, around)
        found = frozenset(self.flat(u).tensor for u in block_uses(self.state, block, around))
        return Guarded(node, self.conditions(block, around), found)

    def statement(self, block: Block, around: Around) -> Assign:
        stage = self.state.stage[block.stage]
        target, *reads = block_uses(self.state, block, around)
        given = stage.reads_in(block.part)
        table = {r: self.flat(u) for r, u in zip(given, reads, strict=True)}
        binding = {n: self.own(e, around) for n, e in block.bindings}
        op, value = stage.op, stage.value
        if block.part == "init":
            op, value = "=", beginning(stage, self.state.tensor[stage.tensor].dtype)
        table[RUNNING] = self.flat(target)
        value = over_buffers(value, binding, table)
        return Assign(stage.tensor, self.flat(target), op, value, block.name)

    def intrinsic(self, loop: Loop, around: Around) -> Guarded:
        """One call for the loops from this one inwards."""
        chain = [loop]
        while isinstance(chain[-1].body[0], Loop):
            chain.append(chain[-1].body[0])
        block = self.tensorized(loop)
        assert block is not None
        call = block.call
        inner = (*around, *chain)
        stage = self.state.stage[block.stage]
        found = block_uses(self.state, block, inner)
        given = stage.reads_in(block.part)
        by_access = dict(zip((stage.target, *given), found, strict=True))
        operands: list[OperandOf] = []
        for name, access in call.named:
            flat = self.flat(by_access[access])
            operands.append(self.operand(name, flat, chain, self.extents(inner)))
        meaning = self.statement(block, inner)
        node = IntrinsicCall(
            stage.tensor,
            call.intrinsic.name,
            tuple(operands),
            tuple((x.name, x.extent) for x in chain),
            meaning,
            tuple(sorted(call.lanes)),
        )
        buffers = frozenset(self.placed[u.access.tensor].buffer.name for u in found)
        return Guarded(node, self.conditions(block, inner), buffers)

    def operand(
        self, name: str, flat: Access, chain: list[Loop], extents: dict[str, int]
    ) -> OperandOf:
        """The first element, and by how many elements each loop of the call moves."""
        start = substitute(flat.indices[0], {x.name: Const(0) for x in chain})
        base = simplify(start, extents)
        steps: dict[str, int] = {x.name: 0 for x in chain}
        for coefficient, term in addends(flat.indices[0]):
            if isinstance(term, Name) and term.name in steps:
                steps[term.name] += coefficient
            elif term is not None and not set(names(term)).isdisjoint(steps):
                raise HwgenError(
                    "H623",
                    f"operand {name} has no constant steps",
                    found=str(term),
                    allowed="addresses that are linear in the loops of the call",
                    repair="choose tiles that the layout does not cut",
                )
        return OperandOf(name, Access(flat.tensor, (base,)), tuple(steps.items()))


def over_buffers(value: Expr, binding: Mapping[str, Expr], table: Mapping[Access, Access]) -> Expr:
    """A stage's value with iterators bound and accesses replaced by buffers' elements."""

    def placed(part: Expr) -> Expr:
        match part:
            case Access():
                return table[part]
            case Name(name):
                return binding.get(name, part)
            case _:
                return part

    return rewrite(value, placed)
