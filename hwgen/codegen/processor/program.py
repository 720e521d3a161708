"""The program of a scheduled nest: buffers with flat addresses, loops, statements; all is decided.

Expressions are over loop variables and the coordinates of bound loops; every `Access` in them names
a buffer and has one index, the flat element. What a processor calls its loops stays a name here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

from hwgen.polyhedral.tree.loop_tree import Role
from hwgen.spec.expression import DTYPES, Access, Expr, UpdateOp


@dataclass(frozen=True, slots=True)
class Buffer:
    """One array of `elements`. `memory`: "" is the caller's array, else a workspace. `extents` and
    `strides` (elements) of its storage dimensions; `slots` copies of that follow one another.
    `address_bytes`: in a memory that is one pool, or in the room `within` which it lies. A room is
    a buffer of no tensor that holds others."""

    name: str
    tensor: str
    dtype: str
    role: Role
    memory: str
    extents: tuple[int, ...]
    strides: tuple[int, ...]
    slots: int = 1
    bank: int | None = None
    address_bytes: int | None = None
    within: str = ""

    @property
    def slot_elements(self) -> int:
        return self.strides[0] * self.extents[0] if self.extents else 1

    @property
    def elements(self) -> int:
        return self.slots * self.slot_elements

    @property
    def bytes(self) -> int:
        return self.elements * DTYPES[self.dtype]

    def __str__(self) -> str:
        text = f"{self.name}: {self.dtype}{list(self.extents)} strides {list(self.strides)}"
        text += f" x {self.slots}" if self.slots > 1 else ""
        text += f" in {self.within or self.memory or 'the caller'}"
        return text + (f" at {self.address_bytes}" if self.address_bytes is not None else "")


@dataclass(frozen=True, slots=True)
class For:
    """`for variable in 0 ..< bound`; `bound` is at most `extent`."""

    variable: str
    bound: Expr
    extent: int
    kind: str
    body: tuple[Node, ...]
    pragmas: tuple[tuple[str, int | str], ...] = ()


@dataclass(frozen=True, slots=True)
class If:
    condition: Expr
    body: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Assign:
    """`target op value`; the value is first converted to the target's data type. `block`: of the
    tree, whose instances it executes; nothing believes it."""

    stage: str
    target: Access
    op: UpdateOp
    value: Expr
    block: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class Allocate:
    """A buffer that lives while `body` runs."""

    buffer: str
    body: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Keep:
    """`target`, which `body` updates only, is kept in a scalar meanwhile."""

    target: Access
    body: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Barrier:
    """All threads of a block wait for each other; `reason`: for what."""

    reason: str = ""


@dataclass(frozen=True, slots=True)
class PrefetchOf:
    """Fetch the line that holds an element."""

    access: Access


@dataclass(frozen=True, slots=True)
class OperandOf:
    """An intrinsic's operand: its first element, and by how many elements it moves per loop."""

    name: str
    access: Access
    steps: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class IntrinsicCall:
    """One call of an intrinsic, for `meaning` at each point of `loops` (name, extent).
    `iterators`: the intrinsic's and the loop that each is ("" for a unit one)."""

    stage: str
    intrinsic: str
    operands: tuple[OperandOf, ...]
    loops: tuple[tuple[str, int], ...]
    meaning: Assign
    iterators: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class CombineAcrossThreads:
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
class Launch:
    """One start of blocks and threads. `coordinates`: loop kind, variable, extent of each bound
    loop in use; the body runs once per thread."""

    name: str
    coordinates: tuple[tuple[str, str, int], ...]
    body: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Routine:
    """A function of its own, in which no array reaches into another. `name`: by a buffer
    that it writes."""

    name: str
    body: tuple[Node, ...]


Node = (
    For
    | If
    | Assign
    | Allocate
    | Keep
    | Barrier
    | PrefetchOf
    | IntrinsicCall
    | CombineAcrossThreads
    | Launch
    | Routine
)


@dataclass(frozen=True)
class NestProgram:
    """Everything that emission needs. `inputs`, `outputs`: buffers of the caller, in the order of
    the C function's parameters."""

    name: str
    hardware: str
    buffers: tuple[Buffer, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    body: tuple[Node, ...]

    @cached_property
    def buffer(self) -> dict[str, Buffer]:
        return {b.name: b for b in self.buffers}

    def __str__(self) -> str:
        lines = [f"{self.name} on {self.hardware}", *(f"  {b}" for b in self.buffers)]
        return "\n".join([*lines, *_lines(self.body, 1)])


def nodes(body: tuple[Node, ...]) -> Iterator[Node]:
    """Every node, parents first."""
    for node in body:
        yield node
        yield from nodes(inner(node))


def inner(node: Node) -> tuple[Node, ...]:
    """The nodes directly inside one."""
    match node:
        case For() | If() | Allocate() | Keep() | Launch() | Routine():
            return node.body
        case Assign() | Barrier() | PrefetchOf() | IntrinsicCall() | CombineAcrossThreads():
            return ()


def _lines(body: tuple[Node, ...], depth: int) -> list[str]:
    lines: list[str] = []
    for node in body:
        lines.append("  " * depth + _head(node))
        lines += _lines(inner(node), depth + 1)
    return lines


def _head(node: Node) -> str:
    match node:
        case For(variable, bound, _, kind, _, pragmas):
            shown = "".join(f" [{k}={v}]" for k, v in pragmas)
            return f"for {variable} < {bound}{'' if kind == 'serial' else f' {kind}'}{shown}"
        case If(condition, _):
            return f"if {condition}"
        case Assign(_, target, op, value):
            return f"{target} {op} {value}"
        case Allocate(buffer, _):
            return f"with {buffer}"
        case Keep(target, _):
            return f"keep {target}"
        case Barrier(reason):
            return f"barrier{f' ({reason})' if reason else ''}"
        case PrefetchOf(access):
            return f"prefetch {access}"
        case IntrinsicCall(_, intrinsic, operands, _, _, _):
            shown = ", ".join(f"{o.name}={o.access} {dict(o.steps)}" for o in operands)
            return f"{intrinsic}({shown})"
        case CombineAcrossThreads(_, coordinates, _, partial, _, op, target, _, stores, _):
            over = ", ".join(f"{n}: {e}" for n, e in coordinates)
            where = f" where {' and '.join(map(str, stores))}" if stores else ""
            return f"{target} = {op} of {partial} over {over}{where}"
        case Launch(name, coordinates, _):
            return f"launch {name} " + ", ".join(f"{v}: {e}" for _, v, e in coordinates)
        case Routine(name, _):
            return f"routine for {name}"
