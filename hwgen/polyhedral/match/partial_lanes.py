"""Loops that end inside a block: where all operations let fewer lanes take part, nothing is padded.

A loop of extent 100 on lanes of 16 has seven blocks, the last one of 4 lanes. If every intrinsic
on it has a field for that, each call of the last block does 4, on chip and off; otherwise all of
them do 16, and what lies past the end is padding of the images.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from hwgen.polyhedral.match.operations import Operation, Selection
from hwgen.polyhedral.scop import Scop
from hwgen.spec.hardware import Intrinsic

Lanes = tuple[str | None, ...]
"""For each dimension of an operand: the loop that runs along it, or None."""


def exact_tails(
    scop: Scop,
    selection: Selection,
    lanes: Mapping[str, Mapping[str, str | None]],
    storage_lanes: Mapping[str, Lanes],
    blocks: Mapping[str, int],
) -> dict[str, int]:
    """The lanes of the last block of each loop that all operations end exactly.

    `lanes`: by operation and iterator; `storage_lanes`: of the blocks of each storage.
    """
    result: dict[str, int] = {}
    for loop, block in blocks.items():
        rest = scop.extents[loop] % block
        alone = all(
            loop not in held or _ends_with(selection, storage, loop)
            for storage, held in storage_lanes.items()
        )
        if (
            rest
            and alone
            and all(
                _ends(o, lanes[o.name], storage_lanes, loop)
                for o in selection.operations
                if loop in o.loops or loop in lanes[o.name].values()
            )
        ):
            result[loop] = rest
    return result


def single_lanes(selection: Selection, lanes: Mapping[str, Mapping[str, str | None]]) -> bool:
    """Whether every iterator without a loop can do with one lane."""
    return all(
        along is not None or extent == 1 or _partial(o, iterator)
        for o in selection.operations
        for (iterator, extent) in o.intrinsic.iterators
        for along in (lanes[o.name][iterator],)
    )


def _ends_with(selection: Selection, storage: str, loop: str) -> bool:
    """Whether a dimension of a storage is that loop and nothing else, and no other moves with
    it."""
    moved = [i for i in selection.storage(storage).indices if loop in i.names]
    return len(moved) == 1 and moved[0].terms == ((loop, 1),) and not moved[0].constant


def _ends(
    operation: Operation,
    own: Mapping[str, str | None],
    storage_lanes: Mapping[str, Lanes],
    loop: str,
) -> bool:
    """Whether an operation does a part of a loop's block: by one iterator, or row by row."""
    along = [iterator for iterator, name in own.items() if name == loop]
    if len(along) > 1 or not all(_partial(operation, i) for i in along):
        return False
    if along:
        return True
    # A load that covers fewer dimensions of a block runs once for each of its rows.
    held = [storage_lanes[s] for s in operation.storages if s in storage_lanes]
    return operation.kind == "load" and any(loop in lanes for lanes in held)


def _partial(operation: Operation, iterator: str) -> bool:
    return all(iterator in i.partial for i in _intrinsics(operation))


def _intrinsics(operation: Operation) -> Iterator[Intrinsic]:
    yield operation.intrinsic
    if operation.first is not None:
        yield operation.first
