"""Where a nest's buffers lie when the caller gives all memory: a workspace for what would come from
an allocator, and 32-bit loop variables where they are enough."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from hwgen.codegen.c_expr import fits_int32
from hwgen.codegen.c_names import comment
from hwgen.codegen.emit_host import framed
from hwgen.codegen.host_plan import ALIGNMENT_BYTES, workspace_macros, workspace_rule
from hwgen.codegen.names import expressions, ranged
from hwgen.codegen.nodes import Allocate, Code, If, Loop, Node, inner
from hwgen.errors import HwgenError
from hwgen.spec.expression import Access, Expr, walk
from hwgen.spec.hardware import HardwareSpec

INDEX = "int64_t"
"""The C type of loop variables and addresses, where nothing says that less is enough."""


@dataclass(frozen=True, slots=True)
class Room:
    """`places`: bytes from the workspace's start, by buffer; what has none is allocated as the
    spec says. `pointer`: the parameter. `compiled_in`: constants that the caller does not pass.
    `index`: the C type of loop variables."""

    pointer: str = ""
    places: Mapping[str, int] = field(default_factory=dict[str, int])
    bytes: int = 0
    alignment: int = 1
    compiled_in: frozenset[str] = frozenset()
    index: str = INDEX


HEAP = Room()
"""Everything is allocated as the spec says."""


def room(program: Code, hardware: HardwareSpec, pointer: str, compiled_in: frozenset[str]) -> Room:
    """The workspace of a program: scopes inside one another follow each other in it.

    Raises:
        HwgenError: H041 a processor that starts blocks; H042 iterations that run at once and
            allocate each for itself.
    """
    if hardware.machine.launch:
        raise HwgenError(
            "H041",
            f"there is no firmware for {hardware.name}",
            location=hardware.location,
            field="processor.launch",
            found="a processor that the host starts blocks of",
            allowed="processors that run their loops themselves, and chips with units",
            repair="hwgen generate --target host",
        )
    placing = _Placing(program, hardware)
    placing.body(program.body, 0, "")
    alignment = max([ALIGNMENT_BYTES, *(m.align_bytes for m in hardware.memories if m.free)])
    # Where 32 bits hold every bound, condition and address.
    found = ((expr, r) for node, r in ranged(program.body, {}) for expr in _integers(node))
    index = "int32_t" if all(fits_int32(*one) for one in found) else INDEX
    return Room(pointer, placing.places, placing.end, alignment, compiled_in, index)


@dataclass(slots=True)
class _Placing:
    program: Code
    hardware: HardwareSpec
    places: dict[str, int] = field(default_factory=dict[str, int])
    end: int = 0

    def body(self, nodes: tuple[Node, ...], top: int, many: str) -> None:
        """Give a place from `top` on to each buffer of the nodes; `many`: the loop around them
        whose iterations run at once."""
        for node in nodes:
            here, loop = top, many
            if isinstance(node, Allocate):
                here = self._buffer(node.buffer, top, many)
            elif isinstance(node, Loop) and self.hardware.machine.runs(node.kind) == "parallel":
                loop = node.variable
            self.body(inner(node), here, loop)

    def _buffer(self, name: str, top: int, many: str) -> int:
        """Where the next buffer may begin."""
        buffer = self.program.array[name]
        memory = self.hardware.memory[buffer.memory]
        if buffer.within or memory.pool or not memory.free:
            return top
        if many:
            declared = [m.name for m in self.hardware.of_kind("workspace") if not m.free]
            raise HwgenError(
                "H042",
                f"iterations of {many} that run at once would share one workspace",
                field=f"memories.{memory.name}",
                found=f"{name}, {buffer.bytes} bytes of {memory.name} for each of them",
                allowed="buffers outside of such loops, or in a memory without `free`",
                repair="one worker (--set), or a script that puts it elsewhere (set_scope"
                + (f" to {' or '.join(declared)}" if declared else "")
                + ", compute_at)",
            )
        align = max(ALIGNMENT_BYTES, memory.align_bytes)
        start = -(-top // align) * align
        self.places[name] = start
        self.end = max(self.end, start + buffer.bytes)
        return start + buffer.bytes


def _integers(node: Node) -> Iterator[Expr]:
    """A node's expressions over loop variables; those in values are 32 bits wide anyway."""
    for expr in expressions(node):
        if isinstance(node, Loop | If):
            yield expr
        for part in walk(expr):
            if isinstance(part, Access):
                yield from part.indices


def firmware_header(
    name: str, summary: str, given: Room, constants: Sequence[str], shown: str, signature: str
) -> str:
    """The header of a kernel that works in a workspace; `constants`: declarations of what is
    compiled in; `shown`: what is true of the tensors of the `signature`."""
    files = [f"{name}.c", *([f"{name}_weights.c"] if constants else [])]
    head = [
        f"/* {comment(summary)}",
        " *",
        " * Nothing here takes memory from an allocator. Compile and link with",
        f" *   cc -std=c11 -O2 -ffreestanding -c {' '.join(files)}",
        " * memcpy and memset, which compilers call by themselves, and what <math.h> declares come",
        " * from the C library, or are yours.",
        " *",
        " * Re-entrancy: nothing that is static is ever written. Calls that overlap in time need a",
        " * workspace each, and outputs of their own; a call leaves nothing behind in either.",
        " */",
    ]
    body = workspace_macros(name, given.bytes, given.alignment)
    if constants:
        body += [f"/* Compiled in: {name}_weights.c. */"]
        body += [*(f"extern {declaration};" for declaration in constants), ""]
    body += [
        f"/* {shown}.",
        *workspace_rule(name, given.pointer, given.bytes),
    ]
    body[-1] += " */"
    return framed(name, head, ["<stdint.h>"], [*body, f"{signature};"])
