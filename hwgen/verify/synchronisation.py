"""A chip must have what a program's synchronisation uses, and edges take flags in one way."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from hwgen.codegen.emit_sync import sync_nodes
from hwgen.codegen.nodes import Barrier, Pop, Push, Signal, Wait
from hwgen.codegen.program import Program
from hwgen.spec.hardware import HardwareSpec


def synchronisation_problems(
    program: Program, hardware: HardwareSpec
) -> Iterator[tuple[str, str, str]]:
    """The chip has what each synchronisation uses; edges take their flags in one way."""
    edges = hardware.tokens.edges if hardware.tokens else ()
    events = hardware.events
    units = [*hardware.barriers.units] if hardware.barriers else []
    if (hardware.barriers and hardware.barriers.emit_all) or (
        hardware.scoreboard and hardware.scoreboard.fence
    ):
        units.append("")
    rotations: dict[tuple[str, str], tuple[int, int]] = {}
    taken: dict[int, tuple[str, str]] = {}
    for node in sync_nodes(program.body):
        kind = type(node).__name__.lower()
        match node:
            case Push(source, target) | Pop(source, target):
                if (source, target) not in edges:
                    yield f"no queue for a {kind}", f"{source} -> {target}", _arrows(edges)
            case Barrier(unit):
                if unit not in units:
                    allowed = ", ".join(u or "all units" for u in units) or "none"
                    yield "no such barrier", unit or "all units", allowed
                most = hardware.barriers.outstanding if hardware.barriers and unit else 0
                if not 0 <= node.outstanding <= most:
                    found = f"{node.outstanding} of {unit or 'all units'}"
                    yield "a barrier leaves other numbers of calls running", found, f"0..{most}"
            case Signal(source, target, first, count) | Wait(source, target, first, count):
                edge = (source, target)
                if events is None or edge not in events.edges:
                    allowed = _arrows(events.edges if events else ())
                    yield f"no flag for a {kind}", f"{source} -> {target}", allowed
                    continue
                if first < 0 or count < 1 or first + count > events.flags:
                    found = f"flags {first}..{first + count - 1}"
                    yield f"no such flag for a {kind}", found, f"0..{events.flags - 1}"
                    continue
                if rotations.setdefault(edge, (first, count)) != (first, count):
                    start, number = rotations[edge]
                    allowed = f"{start}, {number} in turn, as the others"
                    yield f"a {kind} takes other flags", f"{first}, {count} in turn", allowed
                for flag in range(first, first + count) if events.shared else ():
                    if taken.setdefault(flag, edge) != edge:
                        yield "two edges share a flag", str(flag), _arrows([taken[flag]])
            case _:
                pass


def _arrows(edges: Iterable[tuple[str, str]]) -> str:
    return ", ".join(f"{a} -> {b}" for a, b in edges) or "none"
