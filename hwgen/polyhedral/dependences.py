"""Dependences between statement instances: all pairs that conflict, in textual order.

An update starts from an initialisation `S_init` of its own. Updates of one element by one
statement are reorderable: their mutual dependences are kept apart and do not bind a schedule.
Those of an accumulation in order, `acc = f(acc, ...)`, bind it.
"""

from __future__ import annotations

from dataclasses import dataclass

from hwgen.polyhedral import isl
from hwgen.polyhedral.scop import Scop, ScopStatement


@dataclass(frozen=True)
class Dependences:
    """`binding`: source to sink instance, must stay in order; `reductions`: reorderable."""

    binding: isl.UnionMap
    reductions: isl.UnionMap
    live_out: tuple[str, ...]

    def __str__(self) -> str:
        return (
            f"binding   {self.binding}\nreduction {self.reductions}\n"
            f"live-out  {', '.join(self.live_out)}"
        )


def init_name(statement: ScopStatement) -> str:
    """Name of the initialisation that an update starts from."""
    return f"{statement.name}_init"


def spatial_loops(statement: ScopStatement) -> list[tuple[str, int]]:
    """Loops of the initialisation: those that select the element."""
    return [(n, e) for n, e in statement.loops if n in statement.spatial]


def dependences(scop: Scop) -> Dependences:
    """All flow, anti and output dependences of a scop."""
    domain: list[str] = []
    reads: list[str] = []
    writes: list[str] = []
    order: list[str] = []
    width = 1 + max(len(s.loops) for s in scop.statements)
    position = 0
    for s in scop.statements:
        if s.accumulates:
            loops = spatial_loops(s)
            name = init_name(s)
            domain.append(isl.box(name, loops))
            writes.append(_access(name, loops, str(s.target)))
            order.append(_time(name, loops, position, width))
            position += 1
            reads.append(s.access_text(s.target))
        domain.append(s.domain_text)
        reads += [s.access_text(r) for r in s.reads]
        writes.append(s.access_text(s.target))
        order.append(_time(s.name, list(s.loops), position, width))
        position += 1
    schedule = isl.union_map(order).intersect_domain(isl.union_set(domain))
    found = isl.conflicts(isl.union_map(reads), isl.union_map(writes), schedule)
    # By position: a name of the sink's own could be that of another loop.
    own = isl.union_map(
        isl.relation(
            s.name,
            [f"i{n}" for n in range(len(s.loops))],
            s.name,
            [f"o{n}" for n in range(len(s.loops))],
        )
        for s in scop.statements
        if s.op != "="
    )
    reductions = found.intersect(own)
    return Dependences(
        found.subtract(own).coalesce(),
        reductions.coalesce(),
        tuple(t.name for t in scop.workload.outputs),
    )


def _access(name: str, loops: list[tuple[str, int]], target: str) -> str:
    head, _, where = isl.box(name, loops).partition(" : ")
    return f"{head} -> {target}{' : ' + where if where else ''}"


def _time(name: str, loops: list[tuple[str, int]], position: int, width: int) -> str:
    variables = [n for n, _ in loops]
    vector = [str(position), *variables]
    vector += ["0"] * (width - len(vector))
    return isl.relation(name, variables, "", vector)
