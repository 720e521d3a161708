"""Instruction selection for a whole phase: every way to cover its statements by intrinsics."""

from __future__ import annotations

from hwgen.errors import HwgenError
from hwgen.polyhedral.operations import NOTHING_SHARED, Selection, Sharing
from hwgen.polyhedral.scop import Scop, ScopStatement
from hwgen.polyhedral.selection import Apply, Selector
from hwgen.polyhedral.starting_value import Start, starting_value
from hwgen.spec.hardware import HardwareSpec


def select(
    scop: Scop, hardware: HardwareSpec, sharing: Sharing = NOTHING_SHARED
) -> list[Selection]:
    """Cover all statements; one selection per way to perform the accumulation.

    Raises:
        HwgenError: H301 where no intrinsic covers a statement, H305 where an accumulator cannot
            be initialised, H404 where more than one accumulation would have to be fused.
    """
    reductions = [s for s in scop.statements if s.op != "="]
    if len(reductions) > 1:
        raise HwgenError(
            "H404",
            f"{len(reductions)} accumulations in one kernel",
            location=reductions[1].source.location,
            field="compute",
            found="; ".join(str(s) for s in reductions),
            allowed="one accumulation and the elementwise statements around it",
            repair="give each accumulation a workload of its own",
        )
    start: Start | None = None
    try:
        first, ways = _select_with(scop, hardware, sharing, 0, None)
    except HwgenError as error:
        # What is added to a sum afterwards may be what it starts from.
        start = starting_value(scop)
        if error.code != "H301" or start is None:
            raise
        try:
            first, ways = _select_with(scop, hardware, sharing, 0, start)
        except HwgenError as other:
            # Of two reasons, that of the statement which the first attempt failed at.
            same = other.diagnostic.message == error.diagnostic.message
            raise (other if same or other.code != "H301" else error) from None
    others = range(1, ways)
    return [first, *(_select_with(scop, hardware, sharing, n, start)[0] for n in others)]


def _select_with(
    scop: Scop, hardware: HardwareSpec, sharing: Sharing, choice: int, start: Start | None
) -> tuple[Selection, int]:
    """The selection that takes one of the ways to accumulate, and how many ways there are."""
    selector = Selector(scop, hardware, sharing)
    ways = 1
    for statement in start.statements if start else scop.statements:
        if statement.op != "=":
            plans = [p for p in selector.update(statement) if _starts(selector, p, start)]
            if not plans:
                raise uncovered(selector, statement)
            ways = len(plans)
            selector.accumulate(statement, plans[choice], start.value if start else None)
            continue
        declared = scop.workload.tensor.get(statement.target.tensor)
        leaves = statement.target.tensor in sharing.leaves
        stored = declared is not None and declared.role == "output" and not leaves
        both = stored and _is_read_again(scop, statement)
        if stored and not both:
            plan = selector.cover(statement.value, hardware.offchip.name, statement)
            if plan is None:
                raise uncovered(selector, statement)
            selector.build(plan, statement)
            continue
        covers = [
            c
            for memory in selector.onchip
            if (not both or selector.stores(memory, statement))
            and (c := selector.cover(statement.value, memory, statement)) is not None
        ]
        if not covers:
            raise uncovered(selector, statement)
        best = min(covers, key=lambda p: p.cost)
        selector.held[statement.target.tensor] = selector.build(best, statement)
        if leaves:
            selector.leave(statement)
        if both and not selector.store(statement):
            raise uncovered(selector, statement)
    anchor = scop.anchor
    reduction = anchor.reduction if anchor.op != "=" else ()
    others = [n for o in selector.operations for n in o.loops if n not in reduction]
    selection = Selection(
        tuple(selector.storages.values()),
        tuple(selector.operations),
        tuple(dict.fromkeys([*anchor.spatial, *others])),
        reduction,
        start=start.value.indices if start else (),
        fetches=sharing.fetches,
    )
    _check_after(scop, selection)
    return selection, ways


def _is_read_again(scop: Scop, statement: ScopStatement) -> bool:
    """Whether a tensor that goes to off-chip memory is read in its phase too, outside the sums."""
    if {n for n, _ in statement.loops} & {n for s in scop.statements for n in s.reduction}:
        return False  # A store inside the accumulation's loops: there is none.
    tensor = statement.target.tensor
    return any(r.tensor == tensor for s in scop.statements for r in s.reads)


def _starts(selector: Selector, plan: Apply, start: Start | None) -> bool:
    """Whether the memory that a plan sums in can be filled with what the sums start from."""
    if start is None:
        return True
    target = plan.intrinsic.operand(plan.intrinsic.semantics[0].target.tensor)
    return selector.loader(target.memory, selector.scop.dtype[start.value.tensor]) is not None


def _check_after(scop: Scop, selection: Selection) -> None:
    """What follows an accumulation must not run over the loops that it sums up.

    Raises:
        HwgenError: H401.
    """
    for operation in selection.operations:
        again = [n for n in operation.loops if n in selection.reduction]
        if again and operation.kind in ("map", "store") and not selection.early(operation):
            statement = next(s for s in scop.statements if s.name == operation.statement)
            raise HwgenError(
                "H401",
                f"{statement.name} cannot be fused with {scop.anchor.name}",
                location=statement.source.location,
                field="compute",
                found=f"{statement} runs over {again[0]}, which {scop.anchor.name} reduces",
                allowed="statements over the loops that an accumulation leaves",
                repair=f"split the workload in two, so that what {scop.anchor.name} computes is "
                "an output of the first",
            )


def uncovered(selector: Selector, statement: ScopStatement) -> HwgenError:
    """The error that names the first part of a statement that no intrinsic performs."""
    from hwgen.polyhedral.explain import nearest_miss

    reason, repair = nearest_miss(selector, statement)
    return HwgenError(
        "H301",
        f"no intrinsics of {selector.hardware.name} compute {statement.name}",
        location=statement.source.location,
        field="compute",
        found=f"{statement}: {reason}",
        allowed="a value that the chip's intrinsics compute step by step",
        repair=repair,
    )
