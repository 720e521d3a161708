"""The one walk over a kernel's loops that every C target shares."""

from __future__ import annotations

from typing import Protocol

from hwgen.codegen.c_expr import HELPERS, Helpers, IndexText, fits_int32
from hwgen.codegen.c_names import NameTable, comment, indent
from hwgen.codegen.names import expressions, loop_range, ranged
from hwgen.codegen.nodes import SERIAL, Call, If, Loop, Node, OfCode, Sync, SyncNode, calls
from hwgen.codegen.program import Program
from hwgen.codegen.storages import Image
from hwgen.spec.intervals import Interval


class Target(Protocol):
    """How one target writes what a kernel does; each method gives lines of C."""

    def call(self, call: Call, text: IndexText) -> list[str]: ...

    def sync(self, node: SyncNode) -> list[str]: ...

    def around(self, loop: Loop, variable: str, /) -> tuple[list[str], list[str]]:
        """What stands before a loop that is parallel or has a pragma, and where its body begins."""
        ...


class BodyWriter:
    """Writes the loops of a program; the same walk for every target."""

    def __init__(self, target: Target, helpers: Helpers, names: NameTable) -> None:
        self._target, self._helpers, self._names = target, helpers, names
        self._variables: dict[str, str] = {}
        self._ranges: dict[str, Interval] = {}
        self._loop_type = "int"

    def lines(self, body: tuple[Node, ...]) -> list[str]:
        """C statements for the whole body."""
        self._loop_type = "int" if narrow_body(body) else "int64_t"
        return self._nodes(body, ())

    def _text(self) -> IndexText:
        return IndexText(self._helpers, self._variables, self._ranges)

    def _nodes(self, nodes: tuple[Node, ...], outer: tuple[str, ...]) -> list[str]:
        lines: list[str] = []
        for node in nodes:
            match node:
                case Loop():
                    lines += self._loop(node, outer)
                case If(condition, then, otherwise):
                    lines += [f"if ({self._text()(condition)}) {{"]
                    lines += indent(self._nodes(then, outer))
                    if otherwise:
                        lines += ["} else {", *indent(self._nodes(otherwise, outer))]
                    lines += ["}"]
                case Call():
                    lines += self._target.call(node, self._text())
                case Sync():
                    lines += self._target.sync(node)
                case OfCode():
                    raise AssertionError("code is emitted by itself")
        return lines

    def _loop(self, loop: Loop, outer: tuple[str, ...]) -> list[str]:
        text = self._text()
        lower, upper = text(loop.lower), text(loop.upper)
        variable = self._names[loop.variable]
        self._variables[loop.variable] = variable
        self._ranges[loop.variable] = loop_range(loop, self._ranges)
        inside = _statements(loop.body)
        body = self._nodes(loop.body, inside)
        before: list[str] = []
        if loop.kind != SERIAL or loop.pragmas:
            before, begin = self._target.around(loop, variable)
            body = [*begin, *body]
        note = f" /* {comment(', '.join(inside))} */" if inside and inside != outer else ""
        head = (
            f"for ({self._loop_type} {variable} = {lower}; {variable} < {upper}; ++{variable}) {{"
        )
        return [*before, head + note, *indent(body), "}"]


def _statements(nodes: tuple[Node, ...]) -> tuple[str, ...]:
    """Names of the statements that the calls below serve, in textual order."""
    return tuple(dict.fromkeys(c.statement for c in calls(nodes) if c.statement))


def narrow_body(body: tuple[Node, ...]) -> bool:
    """Whether 32 bits hold every value of the body's index expressions."""
    return all(fits_int32(e, r) for node, r in ranged(body, {}) for e in expressions(node))


def index_helpers(prefix: str, index: str) -> Helpers:
    """A collector for the helpers of loop expressions, over the C type `index`."""
    return Helpers(prefix, {n: text.replace("int64_t", index) for n, text in HELPERS.items()})


def tables(program: Program) -> list[str]:
    """The comment that lists images, buffers and micro-kernels."""
    named = [*program.images, *program.buffers, *program.kernels]
    width = max((len(n.name) for n in named), default=0)
    rows: list[str] = ["Off-chip images (addresses count entries of the last brackets' shape):"]
    rows += [f"  {image.name:<{width}}  {image_text(image)}" for image in program.images]
    rows.append("On-chip buffers, each at a constant address of its memory:")
    for b in program.buffers:
        slots = f"{b.slots} slots of {b.slot_entries}" if b.slots > 1 else "one slot"
        if b.stride != b.slot_entries and b.slots > 1:
            slots += f" every {b.stride}"
        rows.append(
            f"  {b.name:<{width}}  {b.memory} entries {b.base} to {b.end - 1}, "
            f"{slots}, of {b.tensor}"
        )
        if b.layout:
            rows.append(f"    {b.layout}")
    if program.kernels:
        rows.append("Micro-kernels:")
    for k in program.kernels:
        loops = " x ".join(str(loop.extent) for loop in k.loops) or "1"
        rows.append(
            f"  {k.name:<{width}}  {k.intrinsic}: {_count(k.operations, 'micro-operation')} x "
            f"{loops}, {_count(len(k.bases), 'variant')}"
        )
    return [f" * {comment(row)}".rstrip() for row in rows]


def image_text(image: Image) -> str:
    """An image's shape, size and tensor in words."""
    outer, lanes = ("".join(f"[{n}]" for n in s) for s in (image.outer, image.lanes))
    return (
        f"{image.dtype} {outer} {lanes}, {image.bytes} bytes, "
        f"{image.role} {image.tensor}{', in place' if image.in_place else ''}"
    )


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'s' if number != 1 else ''}"
