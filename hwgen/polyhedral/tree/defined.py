"""Elements that are read, or given to the caller, and that some statement has to write before."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from hwgen.errors import HwgenError
from hwgen.polyhedral import isl
from hwgen.polyhedral.tree.loop_tree import RUNNING, LoopTree, Stage, covers
from hwgen.polyhedral.tree.terms import interval, isl_text, not_quasi_affine
from hwgen.spec.expression import Access, Call, Expr, Unary, children
from hwgen.spec.intervals import within
from hwgen.spec.workload import Statement, Tensor, Workload


def guarded_reads(
    value: Expr, guards: tuple[Expr, ...] = ()
) -> Iterator[tuple[Access, tuple[Expr, ...]]]:
    """Every access, and the conditions of `select` on loops under which it is read."""
    match value:
        case Access():
            if value != RUNNING:
                yield value, guards
        case Call("select", (condition, yes, no)):
            yield from guarded_reads(condition, guards)
            for branch, holds in ((yes, condition), (no, Unary("not", condition))):
                known = () if not_quasi_affine(condition, condition=True) else (holds,)
                yield from guarded_reads(branch, (*guards, *known))
        case _:
            for child in children(value):
                yield from guarded_reads(child, guards)


def partial_writers(state: LoopTree, tensor: str) -> list[Stage]:
    """Stages that write a tensor in part; none where it is an input, or one writes all of it."""
    writers = [state.stage[t] for t in state.versions.get(tensor, ())]
    shape = state.tensor[tensor].shape
    whole = (covers(s.target.indices, dict(s.iterators), shape) for s in writers)
    return [] if any(whole) else writers


def reads_inside(state: LoopTree, value: Expr, new: Expr, extents: Mapping[str, int]) -> bool:
    """Whether a value reads what another one does under the same conditions, and beside that only
    what is in a tensor and written wherever iterators take it."""
    before = {*guarded_reads(value)}

    def inside(access: Access) -> bool:
        ends = zip(access.indices, state.tensor[access.tensor].shape, strict=True)
        known = all(within(interval(index, extents), (0, extent - 1)) for index, extent in ends)
        return known and not partial_writers(state, access.tensor)

    return all(r in before or inside(r[0]) for r in guarded_reads(new))


def check_defined(workload: Workload) -> None:
    """Hold what is read, and outputs, against what statements before write.

    Raises:
        HwgenError: H222, H225 with an element.
    """
    written: dict[str, list[Statement]] = {}
    for statement in workload.statements:
        for access, guards in guarded_reads(statement.value):
            tensor = workload.tensor[access.tensor]
            if tensor.role == "input":
                continue
            stray = _missing(tensor, written[tensor.name], statement, access.indices, guards)
            if stray is not None:
                raise _unwritten(statement, tensor, stray)
        written.setdefault(statement.target.tensor, []).append(statement)
    for tensor in workload.outputs:
        stray = _missing(tensor, written[tensor.name])
        if stray is not None:
            raise _incomplete(written[tensor.name][-1], tensor, stray)


def _missing(
    tensor: Tensor,
    written: Sequence[Statement],
    reader: Statement | None = None,
    indices: Sequence[Expr] = (),
    guards: Sequence[Expr] = (),
) -> str | None:
    """An element that nothing writes, of those read under guards; without a reader, of all."""
    if any(covers(s.target.indices, dict(s.loops), tensor.shape) for s in written):
        return None
    rank = range(len(tensor.shape))
    space = f"[{', '.join(f'e{d}' for d in rank)}]"

    def elements(loops: Sequence[tuple[str, int]], at: Sequence[Expr], more: Sequence[str]) -> str:
        within = [f"0 <= {n} < {e}" for n, e in loops]
        equal = [f"e{d} = {isl_text(i)}" for d, i in enumerate(at)]
        holds = " and ".join([*within, *equal, *more]) or "0 = 0"
        return f"{space} : exists ({', '.join(n for n, _ in loops) or 'z'} : {holds})"

    inside = " and ".join(f"0 <= e{d} < {e}" for d, e in enumerate(tensor.shape))
    wanted = f"{space} : {inside}"
    if reader is not None:
        wanted = elements(reader.loops, indices, [*map(isl_text, guards), inside])
    made = "; ".join(elements(s.loops, s.target.indices, ()) for s in written)
    found = isl.some_point(f"{{ {wanted} }}", f"{{ {made} }}")
    return None if found is None else f"{tensor.name}[{', '.join(map(str, found[1]))}]"


def _unwritten(statement: Statement, tensor: Tensor, element: str) -> HwgenError:
    return HwgenError(
        "H222",
        f"an element of {tensor.name!r} is read that nothing has written",
        location=statement.location,
        field="compute",
        found=f"{element}, in `{statement}`",
        allowed="elements that an earlier statement writes",
        repair=f"write all of {tensor.name} before, as with = 0, or read fewer elements",
    )


def _incomplete(statement: Statement, tensor: Tensor, element: str) -> HwgenError:
    return HwgenError(
        "H225",
        f"output {tensor.name!r} is not wholly written",
        location=statement.location,
        field="compute",
        found=f"no statement writes {element}",
        allowed=f"every element of {tensor.name}, by one statement or by several",
        repair="make the tensor smaller, or write the rest of it too",
    )
