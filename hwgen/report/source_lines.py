"""Which lines of a kernel's C and of its script a call comes from.

The C is emitted once more with marks around each call's text. Calls are written in the program's
order, so the marks tell the sites apart, and without them the text is that of the kernel's file.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from hwgen.codegen.emit_c import emit
from hwgen.codegen.nodes import Code, calls
from hwgen.codegen.software_loops import written_out

if TYPE_CHECKING:
    from hwgen.passes.kernel import Kernel

BEGIN, END = "/*@hwgen call@*/", "/*@hwgen end@*/"
"""No template has them: a text that did would differ once the marks are taken out."""

Lines = tuple[int, ...]
"""Numbers of lines, from 1."""


@dataclass(frozen=True, slots=True)
class Source:
    """A text, and the lines of what the timeline shows, by the key that its bars have."""

    text: str
    lines: Mapping[str, Lines]

    @property
    def opening(self) -> int:
        """The line at which a reader begins: the head of the first function with such lines."""
        first = min((n for numbers in self.lines.values() for n in numbers), default=1)
        above = self.text.splitlines()[: first - 1]
        heads = [n for n, line in enumerate(above, 1) if re.match(r"[A-Za-z_].*\(", line)]
        return heads[-1] if heads else 1


def c_source(compilation: Kernel) -> Source:
    """The C for the vendor's runtime, with the lines of each call site."""
    c = compilation
    chip = replace(
        c.hardware,
        intrinsics=tuple(
            replace(i, emit=f"{BEGIN}{i.emit.rstrip()}{END}") for i in c.hardware.intrinsics
        ),
    )
    text, ranges = unmarked(emit(c.program, chip, c.workload).c)
    if text != c.source.c:
        return Source(c.source.c, {})
    written = written_out(c.program, c.hardware)
    parts = (p for p in written.parts if not isinstance(p, Code))
    sites = [call.site for part in parts for call in calls(part.body)]
    if len(sites) != len(ranges):
        return Source(text, {})
    found: dict[str, Lines] = {}
    for site, lines in zip(sites, ranges, strict=True):
        found[str(site)] = (*found.get(str(site), ()), *lines)
    return Source(text, found)


def unmarked(marked: str) -> tuple[str, list[Lines]]:
    """The text without its marks, and the lines between each two of them.

    A line that has nothing but a mark is none: a template's own first and last newlines are taken
    off only where they are at its ends.
    """
    kept: list[str] = []
    ranges: list[Lines] = []
    begun = 0
    for line in marked.split("\n"):
        bare = line.replace(BEGIN, "").replace(END, "")
        alone = bare != line and not bare.strip()
        if BEGIN in line:
            begun = len(kept) + 1
        if not alone:
            kept.append(bare)
        if END in line:
            ranges.append(tuple(range(begun, len(kept) + 1)))
    return "\n".join(kept), ranges


def script_source(script: str, names: Mapping[str, str]) -> Source:
    """A script, with the lines that name a call's intrinsic, or a block. `names`: by key."""
    lines = script.splitlines()
    found = {
        key: tuple(
            n for n, line in enumerate(lines, 1) if re.search(rf"\b{re.escape(name)}\b", line)
        )
        for key, name in names.items()
    }
    return Source(script, {key: numbers for key, numbers in found.items() if numbers})


def nest_source(compilation: Kernel) -> Source:
    """The text for the processor, with the lines of each block's innermost loop.

    A loop keeps its name where the language has no such word; a block without one that is found
    has no lines.
    """
    text = compilation.source.c
    lines = text.split("\n")
    found: dict[str, Lines] = {}
    for site in compilation.schedule.resolved.sites:
        for variable in reversed(site.names):
            begin = rf"\bfor \([\w ]+\b{re.escape(variable)} = "
            starts = [n for n, line in enumerate(lines) if re.search(begin, line)]
            if len(starts) == 1:
                found[site.block.name] = _statement(lines, starts[0])
                break
    return Source(text, found)


def _statement(lines: list[str], start: int) -> Lines:
    """The lines of a loop that begins at an index: to the bracket that closes it."""
    indent = len(lines[start]) - len(lines[start].lstrip())
    closing = " " * indent + "}"
    end = next((n for n in range(start + 1, len(lines)) if lines[n] == closing), start)
    return tuple(range(start + 1, end + 2))
