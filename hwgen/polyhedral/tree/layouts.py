"""Primitives on layouts: storage_align, transform_layout, set_bank, set_address, pad."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hwgen.errors import HwgenError
from hwgen.polyhedral import isl
from hwgen.polyhedral.tree.build import unique
from hwgen.polyhedral.tree.copies import check_inner
from hwgen.polyhedral.tree.edit import find_loop, main_site, refuse, replace_loop, stages_of
from hwgen.polyhedral.tree.loop_tree import Block, LoopTree, Stage, Storage, Tensor, map_blocks
from hwgen.polyhedral.tree.placement import nest_beside, replace_reads
from hwgen.polyhedral.tree.rolling import rolls
from hwgen.polyhedral.tree.terms import isl_text
from hwgen.spec.expression import (
    Access,
    Binary,
    Call,
    Cast,
    Const,
    Expr,
    Name,
    Unary,
    names,
    substitute,
)
from hwgen.spec.typecheck import is_float


def storage_align(state: LoopTree, tensor: str, axis: int, factor: int, offset: int) -> LoopTree:
    """The stride of an axis becomes `offset` modulo `factor` elements.

    Raises:
        HwgenError: H413, H414.
    """
    check_inner(state, tensor, "aligned")
    rank = len(state.tensor[tensor].shape)
    storage = state.storage[tensor]
    dimensions = len(storage.layout) or rank
    if not 0 <= axis < dimensions or factor < 1 or not 0 <= offset < factor:
        raise refuse(
            f"{tensor} cannot be aligned so",
            f"axis {axis}, factor {factor}, offset {offset}",
            f"axis 0..{dimensions - 1}, factor >= 1, 0 <= offset < factor",
            f"storage_align({tensor!r}, 0, 16, 0)",
        )
    aligns = (*(a for a in storage.aligns if a[0] != axis), (axis, factor, offset))
    return state.with_storage(replace(storage, aligns=tuple(sorted(aligns))))


def transform_layout(
    state: LoopTree, tensor: str, variables: Sequence[str], dimensions: Sequence[Expr]
) -> LoopTree:
    """The element at `variables` is stored at the row-major place `dimensions`.

    Raises:
        HwgenError: H413, H414, H415 where two elements would share a place; with a remainder, as
            `[i % 4, j]`, they may, in turn: then H411 where one takes another's place too early.
    """
    check_inner(state, tensor, "laid out otherwise")
    shape = state.tensor[tensor].shape
    strangers = [n for d in dimensions for n in names(d) if n not in variables]
    if len(variables) != len(shape) or strangers or not dimensions:
        raise refuse(
            f"the layout of {tensor} does not fit it",
            f"[{', '.join(variables)}] -> [{', '.join(map(str, dimensions))}]",
            f"{len(shape)} different names, and expressions over them",
            f"for example [{', '.join(f'i{d}' for d in range(len(shape)))}]",
        )
    places = {v: Name(f"d{n}") for n, v in enumerate(variables)}
    layout = tuple(substitute(d, places) for d in dimensions)
    if not rolls(layout) or state.tensor[tensor].role != "intermediate":
        check_injective(tensor, shape, layout)  # Else legality sees to it.
    return state.with_storage(replace(state.storage[tensor], layout=layout, aligns=()))


def check_injective(tensor: str, shape: Sequence[int], layout: Sequence[Expr]) -> None:
    """Raises:
    HwgenError: H415 with two elements that share a place.
    """

    def element(suffix: str) -> tuple[list[str], list[str], list[str]]:
        variables = [f"d{n}{suffix}" for n in range(len(shape))]
        renamed = {f"d{n}": Name(v) for n, v in enumerate(variables)}
        bounds = [f"0 <= {v} < {e}" for v, e in zip(variables, shape, strict=True)]
        return variables, bounds, [isl_text(substitute(d, renamed)) for d in layout]

    a, bounds_a, at_a = element("")
    b, bounds_b, at_b = element("_")
    same = [f"{x} = {y}" for x, y in zip(at_a, at_b, strict=True)]
    different = " or ".join(f"{x} != {y}" for x, y in zip(a, b, strict=True)) or "0 = 1"
    conditions = [*bounds_a, *bounds_b, *same, f"({different})"]
    clash = isl.some_pair(
        f"{{ {tensor}[{', '.join(a)}] -> {tensor}[{', '.join(b)}] : {' and '.join(conditions)} }}"
    )
    if clash is not None:
        raise HwgenError(
            "H415",
            f"the layout of {tensor} puts two elements in one place",
            found=" and ".join(f"{name}[{', '.join(map(str, at))}]" for name, at in clash),
            allowed="a layout that tells all elements apart",
            repair="keep every index, for example both i // 16 and i % 16",
        )


def set_bank(state: LoopTree, tensor: str, bank: int) -> LoopTree:
    """A buffer lives in one bank of its memory; whether it has one, `check_places` says.

    Raises:
        HwgenError: H413, H414.
    """
    check_inner(state, tensor, "put into a bank")
    if bank < 0:
        raise refuse(
            f"{tensor} cannot be put into bank {bank}", f"bank {bank}", "from 0 on", "another bank"
        )
    return state.with_storage(replace(state.storage[tensor], bank=bank))


def set_address(state: LoopTree, tensor: str, address: int) -> LoopTree:
    """A buffer starts at a fixed byte of its memory; `check_places` says whether it has it.

    Raises:
        HwgenError: H413, H414.
    """
    check_inner(state, tensor, "put at an address")
    if address < 0:
        raise refuse(
            f"{tensor} cannot start there", f"byte {address}", "byte 0 or later", "address 0"
        )
    return state.with_storage(replace(state.storage[tensor], address=address))


def pad(state: LoopTree, loop: str, multiple: int) -> LoopTree:
    """A loop's range grows to a multiple; operands are padded with what changes no result.

    Raises:
        HwgenError: H413, H414.
    """
    found = find_loop(state, loop)
    inside = stages_of(found)
    site = main_site(state, inside[0])
    iterator = next((i for i, e in site.block.bindings if e == Name(loop)), "")
    if len(inside) != 1 or not iterator or found.kind != "serial":
        raise refuse(
            f"{loop} cannot be padded",
            f"{loop} holds {', '.join(inside)}" if len(inside) > 1 else f"{loop} was edited before",
            "an untouched loop of one stage",
            "pad before splitting and placing",
        )
    done = site.block.tensorized
    if done is not None and done.binding is not None:
        raise refuse(
            f"{loop} cannot be padded",
            f"{inside[0]} is a call of {done.intrinsic}, whose operands would change",
            "stages whose operands are still free",
            "pad first, tensorize last",
        )
    if multiple < 1:
        raise refuse(f"{loop} cannot be padded", str(multiple), "at least 1", "pad(loop, 16)")
    extent = -(-found.extent // multiple) * multiple
    if extent == found.extent:
        return state
    stage = state.stage[inside[0]]
    _check_neutral(state, stage, iterator, loop)
    for access in stage.reads:
        if any(iterator in names(i) for i in access.indices):
            state, name = _padded(state, stage, access, iterator, (found.extent, extent))
            stage = replace(stage, value=_reads_padded(stage.value, access, name))
            state = state.with_stages(stage.tensor, stage)
    return _widened(state, stage, iterator, extent)


def _reads_padded(value: Expr, access: Access, name: str) -> Expr:
    return replace_reads(
        value,
        access.tensor,
        lambda a: Access(name, a.indices) if a == access else a,
    )


def _check_neutral(state: LoopTree, stage: Stage, iterator: str, loop: str) -> None:
    """Contributions of the padding must be zero."""
    if iterator not in {n for n, _ in stage.reduction}:
        return
    exact = not is_float(state.tensor[stage.tensor].dtype)
    if stage.op != "+=" or not _zero(stage.value, iterator, exact):
        raise refuse(
            f"padding {loop} would change the result",
            f"{stage}: a contribution with operands of zero is not neutral",
            "reductions whose contributions vanish where an operand is zero, as a * b",
            "split the loop instead; its tail is guarded",
        )


def _zero(value: Expr, iterator: str, exact: bool) -> bool:
    """Whether the value is zero where every read that depends on the iterator gives zero.

    A float times zero is zero only where it is finite: both factors must be zero.
    """
    match value:
        case Access(_, indices):
            return any(iterator in names(i) for i in indices)
        case Const(number):
            return number == 0
        case Cast(_, operand) | Unary("-", operand):
            return _zero(operand, iterator, exact)
        case Binary("*", left, right):
            both = (_zero(left, iterator, exact), _zero(right, iterator, exact))
            return any(both) if exact else all(both)
        case Binary("+" | "-", left, right):
            return _zero(left, iterator, exact) and _zero(right, iterator, exact)
        case _:
            return False


def _padded(
    state: LoopTree, stage: Stage, access: Access, iterator: str, extents: tuple[int, int]
) -> tuple[LoopTree, str]:
    """A copy of an operand with zeros where the iterator leaves its range: `extents` are those
    before and after. The operand itself may go on there."""
    source = state.tensor[access.tensor]
    shape = list(source.shape)
    ends: dict[int, int] = {}
    for d, index in enumerate(access.indices):
        if index == Name(iterator):
            shape[d] = max(shape[d], extents[1])
            # A guarded read's loop may itself go past the operand.
            ends[d] = min(extents[0], source.shape[d])
        elif iterator in names(index):
            raise refuse(
                f"{access} cannot be padded",
                f"{iterator} stands in {index}",
                f"indices that are {iterator} alone",
                "split the loop instead; its tail is guarded",
            )
    name = unique(f"{source.name}_pad", state.tensor)
    iterators = tuple((f"{name}_{d}", e) for d, e in enumerate(shape))
    indices = tuple(Name(n) for n, _ in iterators)
    value: Expr = Access(source.name, indices)
    for d, end in ends.items():
        zero = Const(0.0 if is_float(source.dtype) else 0)
        value = Call("select", (Binary("<", indices[d], Const(end)), value, zero))
    copy = Stage(name, iterators, Access(name, indices), "=", value, "copy")
    held = Tensor(name, source.dtype, tuple(shape), "intermediate")
    made = state.with_tensor(held, Storage(name)).with_stages(stage.tensor, copy, stage)
    return nest_beside(made, copy, stage.tensor), name


def _widened(state: LoopTree, stage: Stage, iterator: str, extent: int) -> LoopTree:
    """The stage over the larger range; a spatial one writes a larger tensor, copied back."""
    iterators = tuple((n, extent if n == iterator else e) for n, e in stage.iterators)
    wide = replace(stage, iterators=iterators)
    loop = next(
        e.name
        for i, e in main_site(state, stage.tensor).block.bindings
        if i == iterator and isinstance(e, Name)
    )

    root = replace_loop(state.root, loop, lambda x: (replace(x, extent=extent),))
    state = replace(state, root=root)
    if iterator not in {n for n, _ in stage.spatial}:
        return state.with_stages(stage.tensor, wide)
    result = state.tensor[stage.tensor]
    shape = list(result.shape)
    for d, index in enumerate(stage.target.indices):
        if index == Name(iterator):
            shape[d] = max(shape[d], extent)
        elif iterator in names(index):
            raise refuse(
                f"{stage.target} cannot be padded",
                f"{iterator} stands in {index}",
                f"an index that is {iterator} alone",
                "split the loop instead; its tail is guarded",
            )
    name = unique(f"{result.name}_pad", state.tensor)
    wide = replace(wide, tensor=name, target=Access(name, stage.target.indices))
    variables = tuple((f"{result.name}_{d}", e) for d, e in enumerate(result.shape))
    indices = tuple(Name(n) for n, _ in variables)
    crop = Stage(
        result.name, variables, Access(result.name, indices), "=", Access(name, indices), "copy"
    )

    def renamed(block: Block) -> Block:
        return replace(block, stage=name) if block.stage == stage.tensor else block

    state = replace(state, root=map_blocks(state.root, renamed))
    held = Tensor(name, result.dtype, tuple(shape), "intermediate")
    made = state.with_tensor(held, Storage(name)).with_stages(stage.tensor, wide, crop)
    return nest_beside(made, crop, name, behind=True)
