"""What a program consists of: loops, conditions, calls of units, code of a processor, and what
orders them.

Integer expressions (`Expr`) range over loop variables, with `+ - * // %`, `min` and `max`. In the
code of a processor every `Access` names an array and has one index, the flat element.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property

from hwgen.codegen.storages import Array
from hwgen.codegen.sync_nodes import Barrier, Pop, Push, Signal, Sync, Wait
from hwgen.spec.expression import Access, Const, Expr, UpdateOp

SERIAL = "serial"
"""The kind of a loop whose iterations run one after another."""


@dataclass(frozen=True, slots=True)
class Loop:
    """`for variable in lower ..< upper`, step 1. `kind`: "serial", or a loop kind of the processor.

    Around calls that is a parallel one, whose iterations run on different workers, in any order and
    at once; each has units and memories of its own, of which it knows nothing where it begins.
    `extent`: in code, whose loops begin at 0, how many iterations there are at most."""

    variable: str
    lower: Expr
    upper: Expr
    body: tuple[Node, ...]
    kind: str = SERIAL
    extent: int = 0
    pragmas: tuple[tuple[str, int | str], ...] = ()


@dataclass(frozen=True, slots=True)
class If:
    """Condition: a comparison or `and`/`or` of comparisons over loop variables."""

    condition: Expr
    then: tuple[Node, ...]
    otherwise: tuple[Node, ...] = ()


# Calls of units


@dataclass(frozen=True, slots=True)
class CallOperand:
    """`buffer` names a `Buffer` or an `Image`; `strides`: one per hardware loop."""

    name: str
    buffer: str
    address: Expr
    strides: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class Intended:
    """Which instances a call says that it executes: those of a block of the tree in which loops
    have these values; of loops that it takes itself, all. Nothing believes it."""

    block: str
    loops: tuple[tuple[str, Expr], ...]


@dataclass(frozen=True, slots=True)
class Call:
    """One call site. `extents`: one per hardware loop of the intrinsic, outermost first.

    Where the intrinsic is a micro-kernel, `kernel` names it and `variant` selects its bases:
    these are what is executed, and `address`, `strides` and `extents` restate them.
    `registers`: by configuration that the call depends on, the register that it reads.
    `fresh`: inside C loops around a call, where its stationary operand is a new one.
    `lanes`: extents of the intrinsic's iterators, in its order; () where all lanes take part.
    `intended`: what it is there for.
    """

    site: int
    intrinsic: str
    unit: str
    operands: tuple[CallOperand, ...]
    extents: tuple[Expr, ...]
    immediates: tuple[tuple[str, int | float], ...] = ()
    kernel: str = ""
    variant: Expr | None = None
    statement: str = ""
    registers: tuple[tuple[str, int], ...] = ()
    fresh: Expr | None = None
    lanes: tuple[int, ...] = ()
    intended: Intended | None = field(default=None, compare=False)


# What stands between calls: `sync_nodes.py`, and


@dataclass(frozen=True, slots=True)
class Configure(Sync):
    """Writes a register of a configuration; `values`: the C text of each field."""

    configuration: str
    register: int
    values: tuple[tuple[str, str], ...]


# The code of a processor


@dataclass(frozen=True)
class Code(Sync):
    """What a processor runs: all of a kernel, or, beside units, once all calls before are done and
    before any later one is issued. It stands at the root of a program alone; nothing that calls
    left on the chip outlives it. `inputs`, `outputs`: arrays from outside, whole tensors in their
    own order, by name. `cycles`: modelled, of the chip's clock, with the hand-over from units and
    back; `bound`: below which no schedule of it gets; `instructions`: that it
    retires, where the chip's spec counts them; `memory_bytes`: modelled, to and from the
    processor's memory. `ranges`: what elements of inputs lie in, where that is less than their
    type. `once`: it reads constants alone, and runs where they are packed: no call
    of the kernel's spends anything on it."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    arrays: tuple[Array, ...]
    body: tuple[Node, ...]
    cycles: int = 0
    bound: int = 0
    memory_bytes: int = 0
    instructions: int = 0
    ranges: tuple[tuple[str, tuple[int, int]], ...] = ()
    once: bool = False

    @property
    def name(self) -> str:
        """What it computes for others."""
        return ", ".join(self.outputs)

    @cached_property
    def array(self) -> dict[str, Array]:
        return {a.name: a for a in self.arrays}


@dataclass(frozen=True, slots=True)
class OfCode:
    """What only code has, never beside calls; a base class, so that walks name it once."""


@dataclass(frozen=True, slots=True)
class Assign(OfCode):
    """`target op value`; the value is first converted to the target's data type. `block`: of the
    tree, whose instances it executes; nothing believes it."""

    stage: str
    target: Access
    op: UpdateOp
    value: Expr
    block: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class Allocate(OfCode):
    """An array that lives while `body` runs."""

    buffer: str
    body: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Keep(OfCode):
    """`target`, which `body` updates only, is kept in a scalar meanwhile."""

    target: Access
    body: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class ThreadBarrier(OfCode):
    """All threads of a block wait for each other; `reason`: for what."""

    reason: str = ""


@dataclass(frozen=True, slots=True)
class PrefetchOf(OfCode):
    """Fetch the line that holds an element."""

    access: Access


@dataclass(frozen=True, slots=True)
class OperandOf:
    """An intrinsic's operand: its first element, and by how many elements it moves per loop."""

    name: str
    access: Access
    steps: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class IntrinsicCall(OfCode):
    """One call of an intrinsic by code, for `meaning` at each point of `loops` (name, extent).
    `iterators`: the intrinsic's and the loop that each is ("" for a unit one)."""

    stage: str
    intrinsic: str
    operands: tuple[OperandOf, ...]
    loops: tuple[tuple[str, int], ...]
    meaning: Assign
    iterators: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class CombineAcrossThreads(OfCode):
    """`result = op` over the threads that differ in `coordinates` only (name, extent), each with
    its own `partial`; `scratch` has a place for every thread of the block. The threads wait for
    each other, so every thread of the block runs it; `leading`: also before `scratch` is written.
    `others`: the block's other coordinates.

    Those threads for which `participates` and `stores` hold then write `target`.
    """

    stage: str
    coordinates: tuple[tuple[str, int], ...]
    others: tuple[tuple[str, int], ...]
    partial: Access
    scratch: str
    op: UpdateOp
    target: Access
    participates: tuple[Expr, ...] = ()
    stores: tuple[Expr, ...] = ()
    leading: bool = False


@dataclass(frozen=True, slots=True)
class Launch(OfCode):
    """One start of blocks and threads. `coordinates`: loop kind, variable, extent of each bound
    loop in use; the body runs once per thread."""

    name: str
    coordinates: tuple[tuple[str, str, int], ...]
    body: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Routine(OfCode):
    """A function of its own, in which no array reaches into another. `name`: by an array
    that it writes."""

    name: str
    body: tuple[Node, ...]


SyncNode = Push | Pop | Barrier | Signal | Wait | Configure | Code
CodeNode = (
    Assign
    | Allocate
    | Keep
    | ThreadBarrier
    | PrefetchOf
    | IntrinsicCall
    | CombineAcrossThreads
    | Launch
    | Routine
)
Node = Loop | If | Call | SyncNode | CodeNode

Body = tuple[Node, ...]


def counted(variable: str, extent: int, body: Body) -> Loop:
    """A loop of code over all of `extent`, in order."""
    return Loop(variable, Const(0), Const(extent), body, extent=extent)


def inner(node: Node) -> Body:
    """The nodes directly inside one; code is one step of the program that it stands in."""
    match node:
        case Loop() | Allocate() | Keep() | Launch() | Routine():
            return node.body
        case If():
            return (*node.then, *node.otherwise)
        case _:
            return ()


def with_inner(node: Node, change: Callable[[Body], Body]) -> Node:
    """A node with each body inside it changed."""
    match node:
        case Loop() | Allocate() | Keep() | Launch() | Routine():
            return replace(node, body=change(node.body))
        case If():
            return replace(node, then=change(node.then), otherwise=change(node.otherwise))
        case _:
            return node


def nodes(body: Body) -> Iterator[Node]:
    """Every node, parents first, in textual order."""
    waiting = [*reversed(body)]
    while waiting:
        node = waiting.pop()
        yield node
        waiting += reversed(inner(node))


def rewritten(body: Body, edit: Callable[[Node], Body]) -> Body:
    """The nodes after an edit; what replaces a node is not edited again."""
    result: list[Node] = []
    for node in body:
        edited = edit(node)
        if edited == (node,):
            edited = (with_inner(node, lambda b: rewritten(b, edit)),)
        result += edited
    return tuple(result)


def calls(body: Body) -> Iterator[Call]:
    """Every call site, in textual order."""
    return (n for n in nodes(body) if isinstance(n, Call))


def own_calls(body: Body) -> tuple[Call, ...]:
    """The calls of one worker: those in no parallel loop among these nodes, in textual order."""
    found: list[Call] = []
    for node in body:
        if isinstance(node, Call):
            found.append(node)
        elif not isinstance(node, Loop) or node.kind == SERIAL:
            found += own_calls(inner(node))
    return tuple(found)
