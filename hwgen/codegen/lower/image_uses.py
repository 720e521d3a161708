"""Images that the calls of a match would load and store, before there is a tree: a phase's calls
must agree with those of other phases, and the host should have little to rearrange."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from math import lcm

from hwgen.codegen.lower.images import image_of
from hwgen.codegen.storages import Image
from hwgen.errors import HwgenError
from hwgen.polyhedral import isl
from hwgen.polyhedral.match.cuts import Cut, sizes_of
from hwgen.polyhedral.match.matching import Match, entry_coordinates
from hwgen.polyhedral.match.operations import Operation, Storage
from hwgen.polyhedral.scop import Scop, ScopStatement
from hwgen.polyhedral.semantics import operand_iterators
from hwgen.polyhedral.tree.loop_tree import Role, Tensor
from hwgen.spec.hardware import HardwareSpec, Operand
from hwgen.spec.workload import Tensor as Declared


@dataclass(frozen=True, slots=True)
class ImageUse:
    """What an operation loads from or stores to. `cut`: how its lanes cut the tensor; `reach`: by
    dimension, the first element that it takes and the one after the last."""

    tensor: str
    stores: bool
    cut: Cut
    reach: tuple[tuple[int, int], ...]
    image: Image

    def agrees(self, other: ImageUse) -> bool:
        """Whether one image can serve both, perhaps with more padding at the end: each lane is of a
        dimension of its own, and elements lie in one order."""
        along = [d for d, extent in self.cut if extent > 1]
        plain = None not in along and len({*along}) == len(along)
        one, two = ((i.dtype, i.memory, i.lanes, i.index) for i in (self.image, other.image))
        return plain and one == two


def image_uses(scop: Scop, hardware: HardwareSpec, match: Match) -> list[ImageUse] | HwgenError:
    """The images of loads, of stores, and of what sums start from; or why there are none: calls
    would take entries that the tensor's elements do not fill."""
    found: list[ImageUse] = []
    for operation in match.selection.operations:
        operand = hardware.offchip_operand(operation.intrinsic)
        if operand is None:
            continue
        names = [o.name for o in operation.intrinsic.operands]
        there = operation.storages[names.index(operand.name)]
        if operation.kind == "load":
            pairs = zip(operation.intrinsic.operands, operation.storages, strict=True)
            held = next(s for o, s in pairs if not hardware.is_offchip(o.memory))
            storage = match.selection.storage(held)
        elif operation.kind == "init":
            storage = Storage(there, operand.memory, there, match.selection.start)
        elif operation.kind == "store":
            statement = next(s for s in scop.statements if s.name == operation.statement)
            storage = Storage(there, operand.memory, there, statement.target.indices)
        else:
            continue
        use = _use(scop, hardware, match, operation, storage, operand)
        if isinstance(use, HwgenError):
            return use
        found.append(use)
    return found


def images_refused(hardware: HardwareSpec, scop: Scop, match: Match) -> HwgenError | None:
    """Why the images of a match do not do; None where they do, as most."""
    targets = [s.target for s in scop.statements]
    whole = all(str(i) in ("0", *i.names) for t in targets for i in t.indices)
    if whole and len({t.tensor for t in targets}) == len(targets):
        return None
    uses = image_uses(scop, hardware, match)
    if isinstance(uses, HwgenError):
        return uses
    stores = sorted((u for u in uses if u.stores), key=lambda u: u.tensor)
    for tensor, group in groupby(stores, key=lambda u: u.tensor):
        first, *others = group
        differ = next((u for u in others if not first.agrees(u)), None)
        if differ is not None:
            return _parts_differ(scop.workload.tensor[tensor], first.image, differ.image)
    return None


def packed_bytes(scop: Scop, hardware: HardwareSpec, match: Match) -> int:
    """Bytes of images that the host fills from tensors in each call, or tensors from them: not of
    constants, nor of what it copies as it is to memory that is not its own; more than any image has
    where calls cannot lay one out."""
    uses = image_uses(scop, hardware, match)
    if isinstance(uses, HwgenError) or images_refused(hardware, scop, match) is not None:
        return sys.maxsize
    images = dict.fromkeys(u.image for u in uses)
    return sum(i.bytes for i in images if not _is_copied(scop, hardware, i))


def _is_copied(scop: Scop, hardware: HardwareSpec, image: Image) -> bool:
    """Whether the host rearranges nothing for an image in a call."""
    apart = not hardware.memory[image.memory].shared
    tensor = scop.workload.tensor[image.tensor]
    whole = image.is_tensor(tensor.dtype, tensor.shape)
    return image.in_place or tensor.constant or (apart and whole)


def _use(
    scop: Scop,
    hardware: HardwareSpec,
    match: Match,
    operation: Operation,
    storage: Storage,
    operand: Operand,
) -> ImageUse | HwgenError:
    mapping = dict(match.lane[operation.name])
    lanes = [mapping[i] for i in operand_iterators(operation.intrinsic, operand.name)]
    # A load that covers fewer dimensions of a block runs once for each of its rows.
    rows = match.storage_lane.get(storage.name, ()) if operation.kind == "load" else ()
    entries = entry_coordinates(storage, (*rows, *lanes), match.block)
    if isinstance(entries, str):
        statement = next(s for s in scop.statements if s.name == operation.statement)
        return HwgenError(
            "H302",
            f"{operation.intrinsic.name} matches {statement.name} in shape but not in its accesses",
            location=statement.source.location,
            field="compute",
            found=entries,
            allowed=f"entries of {storage.tensor} that the lanes fill, one after the other",
            repair="let each part begin where an entry does, or add an intrinsic for this access",
        )
    blocks = [_lanes_along(storage, d, match) for d in range(len(storage.indices))]
    single = hardware.memory[operand.memory].by_element and match.single
    cut: list[tuple[int | None, int]] = []
    for loop, extent in zip(lanes, operand.shape, strict=True):
        dimension = next((d for d, (n, _) in enumerate(blocks) if n and n == loop), None)
        cut.append((dimension, 1 if dimension is None and loop is None and single else extent))
    counted = (c.interval(match.count) for c in entries)
    reach = [
        (low * size, (high + 1) * size)
        for (low, high), (_, size) in zip(counted, blocks, strict=True)
    ]
    view = scop.view.get(storage.tensor) if operation.kind != "store" else None
    role: Role = "output" if operation.kind == "store" else "input"
    tensor = _declared(scop, storage.tensor, role)
    source = _declared(scop, view.source, "input") if view is not None else tensor
    whole = {n for n, _ in match.tails}
    units = [
        lcm(size, n) if loop not in whole else 1
        for (loop, n), size in zip(blocks, sizes_of(len(blocks), tuple(cut)), strict=True)
    ]
    padded = [-(-e // unit) * unit for e, unit in zip(tensor.shape, units, strict=True)]
    image = image_of(tensor, operand, tuple(cut), padded, hardware, view, source, "")
    return ImageUse(storage.tensor, operation.kind == "store", tuple(cut), tuple(reach), image)


def _lanes_along(storage: Storage, dimension: int, match: Match) -> tuple[str, int]:
    """The loop along a dimension of a tensor that is cut into lanes, and how many; "" and 1."""
    cut = [n for n in storage.indices[dimension].names if match.block.get(n, 1) > 1]
    return (cut[0], match.block[cut[0]]) if cut else ("", 1)


def _declared(scop: Scop, name: str, role: Role) -> Tensor:
    tensor = scop.workload.tensor[name]
    return Tensor(name, tensor.dtype, tensor.shape, role)


def written_part(tensor: Declared, statements: Sequence[ScopStatement]) -> str:
    """The elements of a tensor that statements write, as isl text; empty where they are all."""
    parts = [
        isl.Map(f"{{ {s.access_text(replace(s.target, tensor=''))} }}").range()
        for s in statements
        if s.target.tensor == tensor.name
    ]
    written = parts[0]
    for part in parts[1:]:
        written = written.union(part)
    whole = isl.Set(f"{{ {_elements(tensor)} }}")
    return "" if whole.is_subset(written) else str(written)


def fetch_refused(
    tensor: Declared, written: str, stored: ImageUse, loads: Sequence[ImageUse]
) -> HwgenError | None:
    """Why loads cannot bring what one phase stores for another: they take it in other entries, or
    bring entries of which nothing is written. `written`: as `written_part` gives it."""
    for load in loads:
        if not stored.agrees(load):
            return HwgenError(
                "H504",
                f"{tensor.name} is stored in another layout than it is loaded in",
                location=tensor.location,
                field=f"tensors.{tensor.name}",
                found=f"{_text(stored.image)} and {_text(load.image)}",
                allowed="one layout of a tensor that goes through off-chip memory between two "
                "phases",
                repair="an intrinsic that loads entries as they are stored, or a workload for "
                "each phase, between which the host rearranges it",
            )
        gap = _gap(tensor, written, load) if written else ()
        if gap:
            return HwgenError(
                "H505",
                f"loads of {tensor.name} would bring what no statement writes",
                location=tensor.location,
                field=f"tensors.{tensor.name}",
                found=f"{tensor.name}{list(gap)}, between elements that are read",
                allowed="a part without gaps, of a tensor that goes through off-chip memory "
                "between two phases",
                repair=f"let {tensor.name} hold what is written and nothing else, each dimension "
                "indexed by one loop",
            )
    return None


def _gap(tensor: Declared, written: str, load: ImageUse) -> tuple[int, ...]:
    """An element in an entry that a load brings and no statement writes; () where there is none.

    Loads bring whole boxes of entries; outside of the tensor these may hold anything.
    """
    names = [f"d{d}" for d in range(len(tensor.shape))]
    held = len(load.image.lanes)
    sizes = sizes_of(len(names), load.cut[len(load.cut) - held :]) if held else (1,) * len(names)
    entry = ", ".join(f"floor({n}/{size})" for n, size in zip(names, sizes, strict=True))
    entries = isl.Map(f"{{ [{', '.join(names)}] -> [{entry}] }}")
    bounds = zip(names, load.reach, tensor.shape, strict=True)
    box = " and ".join(f"{low} <= {n} < {min(high, e)}" for n, (low, high), e in bounds)
    brought = isl.Set(f"{{ [{', '.join(names)}] : {box} }}")
    missing = brought.apply(entries).subtract(isl.Set(written).apply(entries))
    point = isl.some_point(str(missing.apply(entries.reverse()).intersect(brought)))
    return () if point is None else tuple(point[1])


def _elements(tensor: Declared) -> str:
    return isl.box("", [(f"d{d}", extent) for d, extent in enumerate(tensor.shape)])


def _parts_differ(tensor: Declared, *images: Image) -> HwgenError:
    return HwgenError(
        "H504",
        f"statements store parts of {tensor.name} in different layouts",
        location=tensor.location,
        field=f"tensors.{tensor.name}",
        found=" and ".join(dict.fromkeys(map(_text, images))),
        allowed="one layout of a tensor, whichever statement stores an element",
        repair=f"a tensor of its own for each statement that stores a part of {tensor.name}",
    )


def _text(image: Image) -> str:
    shape = [*image.outer, *image.lanes]
    at = ", ".join(map(str, image.index))
    return f"{image.dtype}{shape} at ({at}){f' in {image.memory}' if image.memory else ''}"
