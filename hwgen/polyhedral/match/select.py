"""Instruction selection for a whole phase: every way to cover its statements by intrinsics."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from hwgen.errors import HwgenError
from hwgen.polyhedral import isl
from hwgen.polyhedral.match.beginnings import first_element
from hwgen.polyhedral.match.matching import Match, ranked_matches
from hwgen.polyhedral.match.operations import NOTHING_SHARED, Operation, Selection, Sharing
from hwgen.polyhedral.match.plans import Apply, Plan, rank
from hwgen.polyhedral.match.selection import Selector
from hwgen.polyhedral.match.starting_value import Start, starting_value
from hwgen.polyhedral.scop import Reference, Scop, ScopStatement, reference
from hwgen.spec.expression import Access, Expr
from hwgen.spec.hardware import HardwareSpec


@dataclass(frozen=True, slots=True)
class Outcome:
    """What selection came to. `ways`: how many ways there are to accumulate. `start`: what the
    sums start from in the attempt that counts; `reached`: statements that it covered, and `error`:
    why no more."""

    selection: Selection | None
    ways: int
    start: Start | None
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
        ways.append(_select_with(scop, hardware, sharing, choice, found.start, trial=True))
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
    scop: Scop, hardware: HardwareSpec, sharing: Sharing = NOTHING_SHARED, *, trial: bool = False
) -> Outcome:
    """The first selection, or the error of the attempt that tells most.

    `trial`: of a repaired workload, in which no repairs that change types are looked for.
    """
    assert sum(s.accumulates for s in scop.statements) < 2, "a phase has one accumulation"
    first = _select_with(scop, hardware, sharing, 0, None, trial=trial)
    element = first_element(scop, scop.anchor)
    if first.error is not None and first.error.code == "H305" and element is not None:
        begun = Start(scop.statements, element)
        found = _select_with(scop, hardware, sharing, 0, begun, trial=trial)
        return first if found.selection is None else found
    # What is added to a sum afterwards may be what it starts from.
    taken = tuple(n for n, _ in sharing.takes)
    start = starting_value(scop, taken) if first.error is not None else None
    if first.error is None or first.error.code != "H301" or start is None:
        return first
    second = _select_with(scop, hardware, sharing, 0, start, trial=trial)
    if second.error is None or second.error.code != "H301":
        return second
    # Of two reasons, that of the statement which the first attempt failed at, and of that
    # without the addend only where it makes a difference.
    failed = scop.statements[first.reached]
    nearer = second.reached == first.reached and started(failed, start) != failed
    return second if nearer else first


def _select_with(
    scop: Scop,
    hardware: HardwareSpec,
    sharing: Sharing,
    choice: int,
    start: Start | None,
    *,
    trial: bool = False,
) -> Outcome:
    """The selection that takes one of the ways to accumulate, and how many ways there are."""
    selector = Selector(scop, hardware, sharing)
    ways, reached = 1, 0
    try:
        for original in scop.statements:
            ways = max(ways, advance(selector, original, start, choice, trial=trial))
            reached += 1
        anchor = scop.anchor
        reduction = anchor.reduction if anchor.accumulates else ()
        others = [n for o in selector.operations for n in o.loops if n not in reduction]
        selection = Selection(
            tuple(selector.storages.values()),
            tuple(selector.operations),
            tuple(dict.fromkeys([*anchor.spatial, *others])),
            reduction,
            start=begin.indices if (begin := started_from(scop, anchor, start)) else (),
            fetches=sharing.fetches,
            ordered=anchor.ordered,
        )
        assert not _after(selection), "what follows a sum runs over the loops that it leaves"
    except HwgenError as error:
        return Outcome(None, ways, start, reached, error)
    return Outcome(selection, ways, start, reached)


def advance(
    selector: Selector,
    original: ScopStatement,
    start: Start | None,
    choice: int = 0,
    *,
    trial: bool = False,
) -> int:
    """Cover one more statement; how many ways there are to accumulate in it.

    Raises:
        HwgenError: H301, H305.
    """
    sharing = selector.sharing
    statement = started(original, start)

    def refused() -> HwgenError:
        return uncovered(selector, statement, original, start, trial=trial)

    if statement.accumulates:
        begin = started_from(selector.scop, statement, start)
        ways = list(selector.update(statement))
        plans = [p for p in ways if _starts(selector, p, begin)]
        if ways and not plans and statement.ordered and begin is not None:
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
    if leaves and not _is_rewritten(selector.scop, original):
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


def started(statement: ScopStatement, start: Start | None) -> ScopStatement:
    """A statement without the addend that the sums start from."""
    if start is None:
        return statement
    return next(s for s in start.statements if s.name == statement.name)


def _is_read_again(scop: Scop, statement: ScopStatement) -> bool:
    """Whether a tensor that goes to off-chip memory is read in its phase too, outside the sums."""
    if {n for n, _ in statement.loops} & {n for s in scop.statements for n in s.reduction}:
        return False  # A store inside the accumulation's loops: there is none.
    tensor = statement.target.tensor
    return any(r.tensor == tensor for s in scop.statements for r in s.reads)


def started_from(scop: Scop, statement: ScopStatement, start: Start | None) -> Reference | None:
    """The elements that an accumulation starts from, where that is no number."""
    match statement.start:
        case Access() as access:
            return reference(access, {n: 0 for n, e in scop.extents.items() if e == 1})
        case _:
            return start.value if start and statement.accumulates else None


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


def uncovered(
    selector: Selector,
    statement: ScopStatement,
    original: ScopStatement,
    start: Start | None,
    *,
    trial: bool,
) -> HwgenError:
    """The error that names what comes nearest to a statement, and what it differs in. Whoever reads
    that finds it at this point of the selection: it ends here."""
    begins = start is not None and statement.value != original.value
    beginning = f" (the sums starting from {start.value})" if begins and start else ""

    def told() -> tuple[str, str]:
        from hwgen.polyhedral.match.nearest import Diagnosis

        with isl.bounded():
            reason, repair = Diagnosis(selector, trial=trial).nearest_miss(statement)
        return f"{original}: {reason}{beginning}", repair

    return HwgenError(
        "H301",
        f"no intrinsics of {selector.hardware.name} compute {statement.name}",
        location=statement.source.location,
        field="compute",
        allowed="a value that the chip's intrinsics compute step by step",
        statement=statement.source.name,
        told=told,
    )
