"""The schedule tree of a tiling: bands, sequences and marks, checked against the dependences."""

from __future__ import annotations

from dataclasses import dataclass

from hwgen.errors import HwgenError
from hwgen.polyhedral import isl
from hwgen.polyhedral.dependences import Dependences, init_name, spatial_loops
from hwgen.polyhedral.scop import Scop, ScopStatement
from hwgen.polyhedral.tiling import Tiling


@dataclass(frozen=True)
class ScheduleTree:
    """An isl schedule tree over statement instances and the tiling that it comes from."""

    tiling: Tiling
    tree: isl.Schedule
    text: str

    def __str__(self) -> str:
        return f"{self.tiling}\n{self.text}"


Loops = list[tuple[str, int]]


def build_schedule(scop: Scop, tiling: Tiling, found: Dependences) -> ScheduleTree:
    """The tree; refused where it breaks a dependence.

    Raises:
        HwgenError: H406 with the dependence and a pair of instances.
    """
    statements: list[tuple[str, Loops, ScopStatement]] = []
    for s in scop.statements:
        if s.accumulates:
            statements.append((init_name(s), spatial_loops(s), s))
        statements.append((s.name, list(s.loops), s))
    domain = "; ".join(isl.box(name, loops) for name, loops, _ in statements)
    spatial = [x.loop for x in tiling.loops[: tiling.spatial_depth]]
    body = _sequence(tiling, statements)
    lines = [f'domain: "{{ {domain} }}"', "child:"]
    lines += _indent(_tiles(tiling, statements, spatial, body))
    text = "\n".join(lines)
    tree = isl.Schedule(text)
    check_legal(tree, found)
    return ScheduleTree(tiling, tree, text)


def _indent(lines: list[str]) -> list[str]:
    return [f"  {line}" for line in lines]


def _band(
    statements: list[tuple[str, Loops, ScopStatement]], columns: list[tuple[str, str]]
) -> str:
    """isl text of a band: per column (loop, expression over the loop), a piece per statement."""
    members: list[str] = []
    for loop, expression in columns:
        pieces: list[str] = []
        for name, loops, _ in statements:
            variables = ", ".join(n for n, _ in loops)
            value = expression if any(n == loop for n, _ in loops) else "0"
            pieces.append(f"{name}[{variables}] -> [{value}]")
        members.append("{ " + "; ".join(pieces) + " }")
    return f'"[{", ".join(members)}]"'


def _tiles(
    tiling: Tiling,
    statements: list[tuple[str, Loops, ScopStatement]],
    loops: list[str],
    body: list[str],
) -> list[str]:
    """The band of the given tile loops around a body."""
    if not loops:
        return body
    columns = [(n, f"floor({n}/{tiling.tile[n] * tiling.match.block.get(n, 1)})") for n in loops]
    lines = [f"schedule: {_band(statements, columns)}", "permutable: 1", "child:"]
    return lines + _indent(body)


def _sequence(tiling: Tiling, statements: list[tuple[str, Loops, ScopStatement]]) -> list[str]:
    lines = ["sequence:"]
    for name, loops, statement in statements:
        only = [(name, loops, statement)]
        variables = ", ".join(n for n, _ in loops)
        inner = _points(tiling, name, loops, statement)
        if name == statement.name and statement.accumulates:
            reduction = [x.loop for x in tiling.loops[tiling.spatial_depth :]]
            inner = _tiles(tiling, only, reduction, inner)
        lines += [f'- filter: "{{ {name}[{variables}] }}"', "  child:"]
        lines += _indent(_indent(inner))
    return lines


def _points(tiling: Tiling, name: str, loops: Loops, statement: ScopStatement) -> list[str]:
    """The mark of a statement's intrinsics and the band of points that they execute."""
    kinds = ("init",) if name != statement.name else ("update", "map", "store")
    used = [
        o.intrinsic.name
        for o in tiling.match.selection.operations
        if o.statement == statement.name and o.kind in kinds
    ]
    mark = [f'mark: "{" ".join(used) or name}"', "child:"]
    if not loops:
        return [*mark, "  leaf"]
    columns = [(n, n) for n, _ in loops]
    return [*mark, f"  schedule: {_band([(name, loops, statement)], columns)}"]


def check_legal(tree: isl.Schedule, found: Dependences) -> None:
    """Every binding dependence must point forward in time.

    Raises:
        HwgenError: H406.
    """
    broken = found.binding.subtract(isl.in_order(tree.get_map()))
    if broken.is_empty():
        return
    witness = broken.sample()
    raise HwgenError(
        "H406",
        "the schedule breaks a dependence",
        found=f"{witness} would run backwards",
        allowed="an order in which every value is written before it is read",
        repair="keep the loops that carry this dependence outside",
    )
