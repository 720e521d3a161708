"""Numbers of a whole schedule against what C and memories hold, whatever edits led to them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod

from hwgen.polyhedral.limits import beyond, check_elements, check_extent, check_value, held
from hwgen.polyhedral.tree.loop_tree import LoopTree, Site, Storage, Tensor
from hwgen.polyhedral.tree.terms import interval, not_quasi_affine
from hwgen.spec.expression import Binary, Expr, Name, Unary, children, names
from hwgen.spec.limits import MAX_BYTES


def check_limits(state: LoopTree) -> None:
    """Extents, layouts, places and indices fit their types.

    Raises:
        HwgenError: H617.
    """
    for loop in state.loop.values():
        check_extent(loop.name, loop.extent)
    for tensor in state.tensors:
        check_elements(tensor.name, prod(tensor.shape))
        if tensor.name in state.storage:
            _check_storage(tensor, state.storage[tensor.name])
    for site in state.sites:
        _check_site(site)


def _check_storage(tensor: Tensor, storage: Storage) -> None:
    sizes = {f"d{n}": e for n, e in enumerate(tensor.shape)}
    extents = tensor.shape
    if storage.layout:
        ranges = [interval(e, sizes) for e in storage.layout]
        extents = tuple(high - low + 1 for low, high in ranges)
    strides = aligned(extents, storage.aligns)
    whole = strides[0] * extents[0] if extents else 1
    check_elements(tensor.name, whole * storage.slots)
    if storage.address is not None and storage.address > MAX_BYTES:
        raise beyond(
            f"the address of {tensor.name}", f"byte {storage.address}", f"at most {MAX_BYTES}",
            "an address inside its memory",
        )  # fmt: skip


def _check_site(site: Site) -> None:
    extents = site.extents
    conditions = [*site.block.predicate]
    if site.block.store_predicate is not None:
        conditions.append(site.block.store_predicate)
    for expr in (*(e for _, e in site.block.bindings), *conditions):
        for part in _terms(expr):
            _check_term(part, extents, site.block.stage)


def _terms(expr: Expr) -> Iterator[Expr]:
    """The largest parts that are numbers, of an expression or a condition."""
    if not not_quasi_affine(expr):
        yield expr
        return
    match expr:
        case Binary(_, left, right):
            yield from _terms(left)
            yield from _terms(right)
        case Unary(_, operand):
            yield from _terms(operand)
        case _:
            return


def _check_term(expr: Expr, extents: Mapping[str, int], stage: str) -> None:
    if isinstance(expr, Name):
        return  # A loop, or an iterator, of which extents are checked.
    # Over iterators of the stage, which lie inside its tensors, nothing grows.
    if all(n in extents for n in names(expr)):
        low, high = interval(expr, extents)
        if not (held(low) and held(high)):  # Only then is it worth its text.
            check_value(f"an index of {stage}, {str(expr)[:80]},", low, high)
    for part in children(expr):
        _check_term(part, extents, stage)


def aligned(extents: tuple[int, ...], aligns: tuple[tuple[int, int, int], ...]) -> tuple[int, ...]:
    """Strides, the last dimension's first: each is the least that holds what is inside it and is
    `offset` modulo `factor` where the axis is aligned."""
    wanted = {axis: (factor, offset) for axis, factor, offset in aligns}
    strides: list[int] = []
    inside = 1
    for axis in reversed(range(len(extents))):
        factor, offset = wanted.get(axis, (1, 0))
        stride = inside + (offset - inside) % factor
        strides.append(stride)
        inside = stride * extents[axis]
    return tuple(reversed(strides))
