"""The loops of an operation inside its tile, as steps of its operands: what a call absorbs."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from hwgen.codegen.absorption import Walk
from hwgen.polyhedral.affine import Affine
from hwgen.polyhedral.operations import Operation
from hwgen.polyhedral.tiling import Tiling


@dataclass(frozen=True, slots=True)
class Steps:
    """Where an operand's blocks lie: coordinates, the step of each, and of each row, in entries."""

    coordinates: tuple[Affine, ...]
    strides: tuple[int, ...]
    rows: tuple[int, ...]


def store_key(operation: Operation, tensor: str, images: Collection[str]) -> str:
    """The key of the image that a store writes: the tensor's name, or one of the operation's own
    where other statements store other parts of the tensor."""
    own = f"{operation.name} {tensor}"
    return own if own in images else tensor


def walks_of(
    tiling: Tiling,
    operation: Operation,
    steps: Mapping[str, Steps],
    depth: int,
    last: frozenset[str] = frozenset(),
) -> list[Walk]:
    """The loops of an operation inside `depth` tile loops, of which those in `last` are at their
    last tile. `steps`: by storage or tensor, as the operation names them."""
    if operation.kind == "load":
        storage = next(s for s in operation.storages if s in tiling.match.coordinate)
        box = tiling.box(storage, last)
        found = [
            Walk(extent, tuple(steps[name].strides[d] for name in operation.storages))
            for d, extent in enumerate(box)
        ]
    else:
        extents = tiling.extents(depth, last)
        found = [
            Walk(extents[loop], tuple(_step(steps[name], loop) for name in operation.storages))
            for loop in operation.loops
        ]
    return [*found, *_rows(tiling, operation, steps)]


@dataclass(frozen=True, slots=True)
class Cut:
    """Some iterations of an operation in a tile: where each operand's first one lies, past that of
    all. `ends`: the loops at a last block in which fewer lanes take part; `past`: those of them
    whose earlier blocks are in other cuts."""

    offsets: tuple[int, ...]
    walks: tuple[Walk, ...]
    ends: frozenset[str] = frozenset()
    past: frozenset[str] = frozenset()


def cuts(
    tiling: Tiling, operation: Operation, walks: Sequence[Walk], depth: int, last: Collection[str]
) -> list[Cut]:
    """The loops that `walks_of` gives, the last block of each that ends in fewer lanes apart."""
    match = tiling.match
    tails = dict(match.tails)
    elsewhere = {x.loop for x in tiling.loops[:depth]}.difference(last)
    result = [Cut((0,) * len(operation.intrinsic.operands), tuple(walks))]
    names = _stepped(tiling, operation)
    for n, loop in enumerate(names):
        if loop not in tails or loop in elsewhere:
            continue
        rows = [
            r for r, (name, _) in enumerate(_loose(tiling, operation), len(names)) if name == loop
        ]
        result = [
            part
            for cut in result
            for part in _at_last_block(cut, n, loop, dict.fromkeys(rows, tails[loop]))
        ]
    return result


def _at_last_block(cut: Cut, n: int, loop: str, rows: Mapping[int, int]) -> Iterator[Cut]:
    """Iterations before the last block of walk `n`, and those of it, with fewer `rows`."""
    whole = cut.walks[n]
    before = whole.extent - 1
    if before:
        head = [*cut.walks]
        head[n] = Walk(before, whole.strides)
        yield replace(cut, walks=tuple(head))
    tail = [*cut.walks]
    tail[n] = Walk(1, whole.strides)
    for row, extent in rows.items():
        tail[row] = Walk(extent, tail[row].strides)
    offsets = (o + before * s for o, s in zip(cut.offsets, whole.strides, strict=True))
    past = cut.past | {loop} if before else cut.past
    yield Cut(tuple(offsets), tuple(tail), cut.ends | {loop}, past)


def _stepped(tiling: Tiling, operation: Operation) -> list[str]:
    """The loop that each walk but those of rows steps through; "" where it is no one loop."""
    if operation.kind != "load":
        return list(operation.loops)
    storage = next(s for s in operation.storages if s in tiling.match.coordinate)
    return [
        c.names[0] if len(c.terms) == 1 and c.terms[0][1] == 1 and not c.constant else ""
        for c in tiling.match.coordinate[storage]
    ]


def _step(steps: Steps, loop: str) -> int:
    pairs = zip(steps.coordinates, steps.strides, strict=True)
    return sum(c.coefficient(loop) * s for c, s in pairs)


def _rows(tiling: Tiling, operation: Operation, steps: Mapping[str, Steps]) -> list[Walk]:
    """Rows of a block that the operation is applied to one by one."""
    return [
        Walk(extent, tuple(steps[s].rows[row] for s in operation.storages))
        for row, (_, extent) in enumerate(_loose(tiling, operation))
    ]


def _loose(tiling: Tiling, operation: Operation) -> tuple[tuple[str | None, int], ...]:
    """Loop and extent of these rows."""
    for operand, name in zip(operation.intrinsic.operands, operation.storages, strict=True):
        if name in tiling.match.coordinate:
            return tiling.match.loose_rows(operation, operand.name, name)
    return ()
