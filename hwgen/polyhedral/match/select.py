"""Instruction selection for a whole phase: every way to cover its statements by intrinsics."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from hwgen.errors import HwgenError
from hwgen.polyhedral import isl
from hwgen.polyhedral.match.matching import Match, ranked_matches
from hwgen.polyhedral.match.operations import (
    NOTHING_SHARED,
    Apply,
    Operation,
    Plan,
    Selection,
    Sharing,
    rank,
)
from hwgen.polyhedral.match.selection import Selector
from hwgen.polyhedral.scop import Reference, Scop, ScopStatement, reference
from hwgen.spec.expression import Access, Expr
from hwgen.spec.hardware import HardwareSpec


@dataclass(frozen=True, slots=True)
class Outcome:
    """What selection came to. `ways`: how many ways there are to accumulate; `reached`: statements
    that it covered, and `error`: why no more."""

    selection: Selection | None
    ways: int
    reached: int = 0
    error: HwgenError | None = None


def select(
    scop: Scop, hardware: HardwareSpec, sharing: Sharing = NOTHING_SHARED
) -> list[Selection]:
    """Cover all statements; one selection per way to perform the accumulation that leads on.

    Raises:
        HwgenError: H301 where no intrinsic covers a statement, H305 where an accumulator cannot
            be initialised.
    """
    found = outcome(scop, hardware, sharing)
    ways = [found]
    for choice in range(1, found.ways):
        ways.append(outcome(scop, hardware, sharing, choice, trial=True))
    selections = [way.selection for way in ways if way.selection is not None]
    if not selections:
        assert found.error is not None
        raise found.error
    return selections


def every_match(scop: Scop, hardware: HardwareSpec) -> Iterator[Match]:
    """Every way to run a workload of one phase, the best first.

    Raises:
        HwgenError: as `select` and `ranked_matches`.
    """
    for group in ranked_matches(scop, select(scop, hardware)):
        yield from group


def outcome(
    scop: Scop,
    hardware: HardwareSpec,
    sharing: Sharing = NOTHING_SHARED,
    choice: int = 0,
    *,
    trial: bool = False,
) -> Outcome:
    """The selection that takes one of the ways to accumulate, and how many ways there are.

    `trial`: of a repaired workload, in which no repairs that change types are looked for.
    """
    assert sum(s.accumulates for s in scop.statements) < 2, "a phase has one accumulation"
    selector = Selector(scop, hardware, sharing)
    ways, reached = 1, 0
    try:
        for statement in scop.statements:
            ways = max(ways, advance(selector, statement, choice, trial=trial))
            reached += 1
        anchor = scop.anchor
        reduction = anchor.reduction if anchor.accumulates else ()
        others = [n for o in selector.operations for n in o.loops if n not in reduction]
        selection = Selection(
            tuple(selector.storages.values()),
            tuple(selector.operations),
            tuple(dict.fromkeys([*anchor.spatial, *others])),
            reduction,
            start=begin.indices if (begin := started_from(scop, anchor)) else (),
            fetches=sharing.fetches,
            ordered=anchor.ordered,
        )
        assert not _after(selection), "what follows a sum runs over the loops that it leaves"
    except HwgenError as error:
        return Outcome(None, ways, reached, error)
    return Outcome(selection, ways, reached)


def advance(
    selector: Selector, statement: ScopStatement, choice: int = 0, *, trial: bool = False
) -> int:
    """Cover one more statement; how many ways there are to accumulate in it.

    Raises:
        HwgenError: H301, H305.
    """
    sharing = selector.sharing

    def refused() -> HwgenError:
        return uncovered(selector, statement, trial=trial)

    if statement.accumulates:
        begin = started_from(selector.scop, statement)
        ways = list(selector.update(statement))
        plans = [p for p in ways if _starts(selector, p, begin)]
        if ways and not plans and begin is not None:
            raise _no_beginning(selector, ways[0], begin, statement)
        if not plans:
            raise refused()
        selector.accumulate(statement, plans[choice], begin)
        return len(plans)
    declared = selector.scop.workload.tensor.get(statement.target.tensor)
    leaves = statement.target.tensor in sharing.leaves
    stored = declared is not None and declared.role == "output" and not leaves
    both = stored and _is_read_again(selector.scop, statement)
    if stored and not both:
        plan = _cover_off_chip(selector, statement.value, statement)
        if plan is None:
            raise refused()
        selector.build(plan, statement)
        return 1
    covers = [
        c
        for memory in selector.onchip
        if dict(sharing.places).get(statement.target.tensor, memory) == memory
        and (not both or selector.stores(memory, statement))
        and (c := selector.cover(statement.value, memory, statement)) is not None
    ]
    if not covers:
        raise refused()
    best = min(covers, key=rank)
    selector.settle(statement, selector.build(best, statement))
    if leaves and not _is_rewritten(selector.scop, statement):
        selector.leave(statement)
    if both and not _store(selector, statement):
        raise refused()
    return 1


def _cover_off_chip(selector: Selector, value: Expr, statement: ScopStatement) -> Plan | None:
    """The cheapest way to have a value in an off-chip memory; of two as cheap, in the first."""
    found = (selector.cover(value, m.name, statement) for m in selector.hardware.changing)
    return min((p for p in found if p is not None), key=rank, default=None)


def _store(selector: Selector, statement: ScopStatement) -> bool:
    """Store what a statement left on the chip, which then stays; whether a call does that."""
    target = statement.target
    selector.reads[target.tensor] += 1
    value = Access(target.tensor, tuple(i.expression() for i in target.indices))
    plan = _cover_off_chip(selector, value, statement)
    if plan is not None:
        selector.build(plan, statement)
    return plan is not None


def _is_rewritten(scop: Scop, statement: ScopStatement) -> bool:
    """Whether a later statement writes the same elements."""
    later = scop.statements[scop.statements.index(statement) + 1 :]
    extents = dict(statement.loops)
    return any(
        s.target == statement.target
        and all(dict(s.loops)[n] == extents[n] for i in s.target.indices for n in i.names)
        for s in later
    )


def _is_read_again(scop: Scop, statement: ScopStatement) -> bool:
    """Whether a tensor that goes to off-chip memory is read in its phase too, outside the sums."""
    if {n for n, _ in statement.loops} & {n for s in scop.statements for n in s.reduction}:
        return False  # A store inside the accumulation's loops: there is none.
    tensor = statement.target.tensor
    return any(r.tensor == tensor for s in scop.statements for r in s.reads)


def started_from(scop: Scop, statement: ScopStatement) -> Reference | None:
    """The elements that an accumulation starts from, where that is no number."""
    match statement.start:
        case Access() as access:
            return reference(access, {n: 0 for n, e in scop.extents.items() if e == 1})
        case _:
            return None


def _starts(selector: Selector, plan: Apply, begin: Reference | None) -> bool:
    """Whether the memory that a plan sums in can be filled with what the sums start from."""
    if begin is None:
        return True
    target = plan.intrinsic.written
    outside = selector.is_input(begin.tensor) and begin.tensor not in selector.taken
    return outside and selector.loader(target.memory, selector.scop.dtype[begin.tensor]) is not None


def _no_beginning(
    selector: Selector, plan: Apply, begin: Reference, statement: ScopStatement
) -> HwgenError:
    memory = plan.intrinsic.written.memory
    return HwgenError(
        "H305",
        f"nothing brings {begin.tensor} to {memory}, from which {statement.target.tensor} starts",
        location=statement.source.location,
        field="compute",
        found=f"{statement}, from {begin}",
        allowed=f"an input that a copy loads into {memory} as {selector.scop.dtype[begin.tensor]}",
        repair="start from a number, or add such a copy to the chip",
    )


def _after(selection: Selection) -> list[Operation]:
    """What follows an accumulation and runs over the loops that it sums up."""
    return [
        o
        for o in selection.operations
        if o.kind in ("map", "store")
        and not {*o.loops}.isdisjoint(selection.reduction)
        and not (o.kind == "map" and selection.early(o))
    ]


def uncovered(selector: Selector, statement: ScopStatement, *, trial: bool) -> HwgenError:
    """The error that names what comes nearest to a statement, and what it differs in. Whoever reads
    that finds it at this point of the selection: it ends here."""
    scop = selector.scop
    begin = started_from(scop, scop.anchor)
    begun = begin is not None and scop.anchor.target.tensor in {r.tensor for r in statement.reads}
    beginning = f" (the sums starting from {begin})" if begun else ""

    def told() -> tuple[str, str]:
        from hwgen.polyhedral.match.nearest import Diagnosis

        with isl.bounded():
            reason, repair = Diagnosis(selector, trial=trial).nearest_miss(statement)
        return f"{statement}: {reason}{beginning}", repair

    return HwgenError(
        "H301",
        f"no intrinsics of {selector.hardware.name} compute {statement.name}",
        location=statement.source.location,
        field="compute",
        allowed="a value that the chip's intrinsics compute step by step",
        statement=statement.source.name,
        told=told,
    )
