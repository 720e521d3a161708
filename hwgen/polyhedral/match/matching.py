"""Intrinsic matching: which statement loops become the lanes of which intrinsic.

An intrinsic's iterators have fixed extents. A match sends each of them to one loop, strip-mined
by the iterator's extent, or to none (the iterator then does one lane's work). It is valid when,
for every operand, the tensor element depends on the iterators only through the operand's own
index: the relation from (call, operand index) to element is single-valued, and injective for a
written operand. Arithmetic on affine indices proposes; isl decides.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice, product
from math import prod

from hwgen.constants import EQUAL_MATCHES
from hwgen.errors import HwgenError
from hwgen.polyhedral import isl
from hwgen.polyhedral.match.lane_padding import padding_problem
from hwgen.polyhedral.match.loads import in_whole_blocks
from hwgen.polyhedral.match.operations import Operation, Selection, Storage
from hwgen.polyhedral.match.partial_lanes import Lanes, exact_tails, single_lanes
from hwgen.polyhedral.match.refusal import Refusal, operands_in, shapes_differ
from hwgen.polyhedral.scop import Scop
from hwgen.polyhedral.semantics import copies, operand_iterators
from hwgen.spec.affine import Affine, combine, sparse


@dataclass(frozen=True)
class Match:
    """A selection with its lanes. `blocks`: lanes per loop; `coordinates`: for each storage, the
    entry's coordinates over block counters; `counts`: block counters' extents.

    `storage_lanes`, of extents `storage_shapes`: what a block of each storage holds. The leading
    ones, beyond those of one entry, are `rows`: consecutive entries.

    `tails`: lanes that take part in the last block of a loop, of those that all operations end
    exactly; `single`: where no loop runs along lanes, one of them takes part (`partial_lanes.py`).
    """

    selection: Selection
    lanes: tuple[tuple[str, tuple[tuple[str, str | None], ...]], ...]
    blocks: tuple[tuple[str, int], ...]
    storage_lanes: tuple[tuple[str, Lanes], ...]
    coordinates: tuple[tuple[str, tuple[Affine, ...]], ...]
    counts: tuple[tuple[str, int], ...]
    storage_shapes: tuple[tuple[str, tuple[int, ...]], ...] = ()
    tails: tuple[tuple[str, int], ...] = ()
    single: bool = False

    @property
    def main_intrinsic(self) -> str:
        """The intrinsic that does most of the arithmetic."""
        computing = [o for o in self.selection.operations if o.kind in ("update", "map")]
        updates = [o for o in computing if o.kind == "update"]
        return max(
            updates or computing or self.selection.operations,
            key=lambda o: prod(self.count[n] for n in o.loops),
        ).intrinsic.name

    @cached_property
    def storage_shape(self) -> dict[str, tuple[int, ...]]:
        return dict(self.storage_shapes)

    def rows(self, storage: str) -> tuple[tuple[str | None, int], ...]:
        """Loop and extent of the lanes of a block that run along consecutive entries."""
        lanes, shape = self.storage_lane[storage], self.storage_shape[storage]
        count = len(lanes) - self.selection.storage(storage).rank
        return tuple(zip(lanes[:count], shape[:count], strict=True))

    def moving(self, storage: str) -> frozenset[str]:
        """The loops that move what a storage holds."""
        return frozenset(n for c in self.coordinate[storage] for n in c.names)

    def span(self, storage: str) -> int:
        """Entries of one block of a storage."""
        return prod(extent for _, extent in self.rows(storage))

    def entry_elements(self, storage: str) -> int:
        """Elements of one entry of a storage."""
        return prod(self.storage_shape[storage][len(self.rows(storage)) :])

    def loose_rows(
        self, operation: Operation, operand: str, storage: str
    ) -> tuple[tuple[str | None, int], ...]:
        """Rows of a storage's blocks that one application of an operation does not cover: it is
        applied to each of them."""
        own = len(operand_iterators(operation.intrinsic, operand))
        rows = self.rows(storage)[: len(self.storage_lane[storage]) - own]
        return tuple((n, extent if n or not self.single else 1) for n, extent in rows)

    @cached_property
    def block(self) -> dict[str, int]:
        return dict(self.blocks)

    @cached_property
    def count(self) -> dict[str, int]:
        return dict(self.counts)

    @cached_property
    def coordinate(self) -> dict[str, tuple[Affine, ...]]:
        return dict(self.coordinates)

    @cached_property
    def storage_lane(self) -> dict[str, Lanes]:
        return dict(self.storage_lanes)

    @cached_property
    def lane(self) -> dict[str, tuple[tuple[str, str | None], ...]]:
        return dict(self.lanes)

    def cut(self, storage: Storage, dimension: int) -> tuple[str | None, int]:
        """The loop whose lanes run along a dimension of a stored tensor, and how many."""
        lanes = self.storage_lane[storage.name]
        for name in storage.indices[dimension].names:
            if self.block.get(name, 1) > 1 and name in lanes:
                return name, self.block[name]
        return None, 1

    def entries(self) -> dict[str, tuple[int, ...]]:
        """Elements of a stored tensor that an entry holds, along each of its dimensions."""
        found: dict[str, tuple[int, ...]] = {}
        for storage in self.selection.storages:
            lanes = self.storage_lane[storage.name]
            inside = {n: self.block[n] for n in lanes[len(self.rows(storage.name)) :] if n}
            cuts = [prod(inside.get(n, 1) for n in i.names) for i in storage.indices]
            found[storage.tensor] = tuple(cuts)
        return found

    @property
    def iterations(self) -> int:
        """Intrinsic applications of the costliest operation."""
        return max(prod(self.count[n] for n in o.loops) for o in self.selection.operations)

    def __str__(self) -> str:
        lines: list[str] = []
        for o in self.selection.operations:
            bound = ", ".join(
                f"{op.name}={storage}"
                for op, storage in zip(o.intrinsic.operands, o.storages, strict=True)
            )
            along = ", ".join(f"{it}<-{loop or 1}" for it, loop in self.lane[o.name])
            rest = " ".join(f"{n}:{self.count[n]}" for n in o.loops)
            values = "".join(f" {n}={v}" for n, v in o.immediates)
            lines.append(
                f"{o.statement}: {o.kind} by {o.intrinsic.name}({bound}){values}"
                f" lanes {along or '-'}; loops left {rest or '-'}"
            )
        return "\n".join(lines)


def match(scop: Scop, selections: list[Selection]) -> list[Match]:
    """Valid matches with the fewest applications of the costliest intrinsic, as they are found.

    Raises:
        HwgenError: H302 where no assignment of lanes is valid.
    """
    return next(ranked_matches(scop, selections))


def ranked_matches(
    scop: Scop, selections: list[Selection], cost: Callable[[Match], int] | None = None
) -> Iterator[list[Match]]:
    """Groups of valid matches, those with the fewest applications first. `cost`: of matches that
    are equally good so far, those with the least of it come first.

    Raises:
        HwgenError: H302 where no assignment of lanes is valid, H303 where isl finds no match to be
            one.
    """
    found: list[Match] = []
    reasons: list[Refusal] = []
    for selection in selections:
        for lanes in _assignments(scop, selection, _anchor(selection)):
            outcome = _complete(scop, selection, lanes)
            if isinstance(outcome, Refusal):
                reasons.append(outcome)
            else:
                found.append(outcome)
    if not found:
        anchor = _anchor(selections[0])
        statement = next(s for s in scop.statements if s.name == anchor.statement)
        reason = reasons[0] if reasons else Refusal("no loop fits an iterator")
        raise HwgenError(
            "H302",
            f"{anchor.intrinsic.name} matches {statement.name} in shape but not in its accesses",
            location=statement.source.location,
            field="compute",
            found=reason.found,
            allowed=reason.allowed,
            repair=reason.repair,
        )
    defect: HwgenError | None = None
    some = False
    known: dict[tuple[str, int], bool] = {}
    for iterations in sorted({m.iterations for m in found}):
        chosen: list[Match] = []
        equal = [*{str(m): m for m in found if m.iterations == iterations}.values()]
        for m in sorted(equal, key=cost) if cost is not None and len(equal) > 1 else equal:
            try:
                check_match(m, known)
            except HwgenError as error:
                defect = defect or error
                continue
            chosen.append(m)
            if len(chosen) == EQUAL_MATCHES:
                break
        if chosen:
            some = True
            yield chosen
    if defect is not None and not some:
        raise defect


def _anchor(selection: Selection) -> Operation:
    """The accumulation; where there is none, the last of the stores with most loops, or of the
    computations, where all of them stay on the chip for later phases, or of copies alone."""
    for operation in selection.operations:
        if operation.kind == "update":
            return operation
    stores = [o for o in selection.operations if o.kind == "store"]
    last = stores or [o for o in selection.operations if o.kind == "map"] or selection.operations
    return max(reversed(last), key=lambda o: len(o.loops))


def _assignments(
    scop: Scop, selection: Selection, anchor: Operation
) -> Iterator[dict[str, str | None]]:
    """Every assignment of an operation's iterators to loops of the right kind, or to none."""
    target = operand_iterators(anchor.intrinsic, anchor.intrinsic.written.name)
    options: list[tuple[str | None, ...]] = []
    for iterator, extent in anchor.intrinsic.iterators:
        spatial = [n for n in selection.spatial if n in anchor.loops]
        own = spatial if iterator in target else selection.reduction
        active = [n for n in own if scop.extents[n] > 1]
        if iterator not in target:
            # A spatial loop here too is a diagonal: zeros beside it keep the others out.
            active += [n for n in spatial if scop.extents[n] > 1]
        options.append((*active, None) if extent > 1 else (None,))
    names = [i for i, _ in anchor.intrinsic.iterators]
    for choice in product(*options):
        written = [n for i, n in zip(names, choice, strict=True) if n and i in target]
        others = [n for i, n in zip(names, choice, strict=True) if n and i not in target]
        distinct = len(set(written)) == len(written) and len(set(others)) == len(others)
        diagonal = [n for n in others if n in selection.spatial]
        if distinct and all(n in written for n in diagonal):
            yield dict(zip(names, choice, strict=True))


def _complete(
    scop: Scop, selection: Selection, anchor_lanes: dict[str, str | None]
) -> Match | Refusal:
    """Extend the anchor's lanes to every operation, or say what prevents it."""
    anchor = _anchor(selection)
    held = {s.name for s in selection.storages}
    lanes: dict[str, dict[str, str | None]] = {anchor.name: anchor_lanes}
    pinned: dict[str, Lanes] = {}
    shapes: dict[str, tuple[int, ...]] = {}
    problem = _pin(held, anchor, anchor_lanes, pinned, shapes)
    if problem:
        return Refusal(problem)
    pending = {n: o for n, o in enumerate(selection.operations) if o.name != anchor.name}
    users: dict[str, list[int]] = {}
    for n, o in pending.items():
        for storage in o.storages:
            users.setdefault(storage, []).append(n)
    done = [anchor]
    seen = 0
    while pending:
        # Who touches what was pinned in the last round: others that touch pinned ones are done.
        fresh = [*islice(reversed(pinned), len(pinned) - seen)]
        seen = len(pinned)
        ready = sorted({n for s in fresh for n in users.get(s, ()) if n in pending})
        if not ready:
            # Nothing connects the rest with the anchor: it takes the same lanes where it can.
            stores = (n for n, o in pending.items() if o.kind == "store")
            apart = pending.pop(next(stores, next(iter(pending))))
            lanes[apart.name] = _alike(apart, anchor, anchor_lanes)
            done.append(apart)
            problem = _pin(held, apart, lanes[apart.name], pinned, shapes)
            if problem:
                return Refusal(problem)
            continue
        for given in (pending.pop(n) for n in ready):
            o = in_whole_blocks(given, pinned)
            if o is not given:
                own = tuple(o if x is given else x for x in selection.operations)
                selection = replace(selection, operations=own)
            mapping = _derive(o, pinned, shapes, done)
            if isinstance(mapping, Refusal):
                return mapping
            mapping |= _diagonal(selection, o, mapping)
            lanes[o.name] = mapping
            done.append(o)
            problem = _pin(held, o, mapping, pinned, shapes)
            if problem:
                return Refusal(problem)
    blocks = _blocks(selection, lanes)
    if isinstance(blocks, str):
        return Refusal(blocks)
    coordinates: dict[str, tuple[Affine, ...]] = {}
    for storage in selection.storages:
        result = entry_coordinates(storage, pinned[storage.name], blocks)
        if isinstance(result, str):
            return Refusal(result)
        coordinates[storage.name] = _packed(scop, selection, storage, result)
    tails = exact_tails(scop, selection, lanes, pinned, blocks)
    single = single_lanes(selection, lanes)
    sums = [
        o for o in selection.operations if o.kind == "map" and o.intrinsic.semantics[0].op != "="
    ]
    for o in (anchor, *sums):
        problem = problem or padding_problem(scop, selection, o, lanes[o.name], {*tails}, single)
    if not problem:
        problem = _order_problem(scop, selection, anchor, anchor_lanes, blocks, tails)
    if problem:
        return Refusal(problem)
    loops = dict.fromkeys(n for o in selection.operations for n in o.loops)
    counts = {n: -(-scop.extents[n] // blocks.get(n, 1)) for n in loops}
    return Match(
        selection,
        tuple((o.name, tuple(lanes[o.name].items())) for o in selection.operations),
        tuple(blocks.items()),
        tuple(pinned.items()),
        tuple(coordinates.items()),
        tuple(counts.items()),
        tuple(shapes.items()),
        tuple(tails.items()),
        single,
    )


def _order_problem(
    scop: Scop,
    selection: Selection,
    anchor: Operation,
    lanes: Mapping[str, str | None],
    blocks: Mapping[str, int],
    tails: Collection[str],
) -> str:
    """In an accumulation in order, the lanes that a call takes in its own order must be consecutive
    iterations: those of the innermost loop, or of loops inside which all others are lanes too."""
    statement = next(s for s in scop.statements if s.name == anchor.statement)
    if not statement.ordered:
        return ""
    target = operand_iterators(anchor.intrinsic, anchor.intrinsic.written.name)
    taken = [lanes[i] for i, e in anchor.intrinsic.iterators if i not in target and e > 1]
    along = [n for n in taken if n]
    diagonal = [n for n in along if n in selection.spatial]
    order = [n for n in statement.reduction if n in along]
    for n in order:
        place = statement.reduction.index(n)
        # A last block that ends early stands in calls after all others.
        outside = statement.reduction[: place if n in tails else 0]
        several = (*outside, *statement.reduction[place + 1 :])
        if any(scop.extents[m] > blocks.get(m, 1) for m in several) or along != order or diagonal:
            return f"{anchor.intrinsic.name} would take the iterations of {n} out of their order"
    return ""


def _alike(
    apart: Operation, anchor: Operation, lanes: Mapping[str, str | None]
) -> dict[str, str | None]:
    """Lanes of an operation along the loops, and of the extents, that the anchor's lanes have."""
    target = anchor.intrinsic.written.name
    extents = dict(anchor.intrinsic.iterators)
    along = [(lanes[i], extents[i]) for i in operand_iterators(anchor.intrinsic, target)]
    result: dict[str, str | None] = {}
    for iterator, extent in apart.intrinsic.iterators:
        free = [n for n, e in along if e == extent and n in apart.loops]
        result[iterator] = next((n for n in free if n not in result.values()), None)
    return result


def _pin(
    held: Collection[str],
    operation: Operation,
    mapping: Mapping[str, str | None],
    pinned: dict[str, Lanes],
    shapes: dict[str, tuple[int, ...]],
) -> str:
    """Fix the lanes of an operation's storages, among those that are `held`; or why two of its
    operands cannot share one."""
    for operand, storage in zip(operation.intrinsic.operands, operation.storages, strict=True):
        if storage not in held:
            continue
        iterators = operand_iterators(operation.intrinsic, operand.name)
        lanes = tuple(mapping[i] for i in iterators)
        if storage not in pinned:
            pinned[storage], shapes[storage] = lanes, operand.shape
        elif operation.kind != "load" and (lanes, operand.shape) != (
            pinned[storage],
            shapes[storage],
        ):
            return (
                f"operands of {operation.intrinsic.name} disagree on the blocks of {storage}, "
                "which they both read"
            )
    return ""


def _derive(
    operation: Operation,
    pinned: Mapping[str, Lanes],
    shapes: Mapping[str, tuple[int, ...]],
    done: Sequence[Operation],
) -> dict[str, str | None] | Refusal:
    """The lanes of an operation that follow from those of the operations `done`."""
    mapping: dict[str, str | None] = {}
    for operand, storage in zip(operation.intrinsic.operands, operation.storages, strict=True):
        if storage not in pinned:
            continue
        iterators = operand_iterators(operation.intrinsic, operand.name)
        lanes, shape = pinned[storage], shapes[storage]
        # A load that covers fewer dimensions of a block runs once for each of its rows.
        by_rows = operation.kind == "load" and len(iterators) <= len(lanes)
        if operand.shape != shape and not by_rows:
            users = [(o.intrinsic, x) for o in done for x in operands_in(o, storage)]
            other = next((i, x) for i, x in users if x.shape == shape)
            return shapes_differ(storage, (operation.intrinsic, operand), other)
        for iterator, loop in zip(iterators, lanes[len(lanes) - len(iterators) :], strict=True):
            if mapping.setdefault(iterator, loop) != loop:
                return Refusal(
                    f"{operation.intrinsic.name} would need {iterator} to run along both "
                    f"{mapping[iterator]} and {loop}"
                )
    for iterator, _ in operation.intrinsic.iterators:
        mapping.setdefault(iterator, None)
    return mapping


def _diagonal(
    selection: Selection, operation: Operation, mapping: Mapping[str, str | None]
) -> dict[str, str | None]:
    """Lanes along which an operation sums up that no loop of a sum has: those of a loop that also
    leads to other results, where an operand moves with it; zeros beside the diagonal keep the
    others out."""
    only = operation.intrinsic.semantics[0]
    held = {s.name: s for s in selection.storages}
    target = operand_iterators(operation.intrinsic, only.target.tensor)
    extents = dict(operation.intrinsic.iterators)
    found: dict[str, str | None] = {}
    for iterator, extent in operation.intrinsic.iterators:
        if only.op == "=" or iterator in target or extent == 1 or mapping[iterator]:
            continue
        for operand, name in zip(operation.intrinsic.operands, operation.storages, strict=True):
            own = operand_iterators(operation.intrinsic, operand.name)
            if iterator not in own or name not in held:
                continue
            moving = {n for i in held[name].indices for n in i.names}
            free = moving - {mapping[i] for i in own}
            along = (mapping[i] for i in target if extents[i] == extent)
            found[iterator] = next((n for n in along if n in free), found.get(iterator))
    return found


def _blocks(
    selection: Selection, lanes: Mapping[str, Mapping[str, str | None]]
) -> dict[str, int] | str:
    blocks: dict[str, int] = {}
    for o in selection.operations:
        extents = dict(o.intrinsic.iterators)
        for iterator, loop in lanes[o.name].items():
            if loop and blocks.setdefault(loop, extents[iterator]) != extents[iterator]:
                return f"loop {loop} is cut into {blocks[loop]} and into {extents[iterator]} lanes"
    return blocks


def entry_coordinates(
    storage: Storage, lanes: Lanes, blocks: Mapping[str, int]
) -> tuple[Affine, ...] | str:
    """Coordinates of an element's entry, over block counters, or why there are none."""
    own = {loop for loop in lanes if loop}
    result: list[Affine] = []
    for index in storage.indices:
        cut = [n for n in index.names if blocks.get(n, 1) > 1]
        for n in cut:
            if n not in own:
                return (
                    f"the lanes along {n} select different entries of {storage.name}: "
                    f"its index {index} moves with {n}, its lanes do not"
                )
        if not cut:
            result.append(index)
            continue
        lane = cut[0]
        size = blocks[lane]
        others = [(n, c) for n, c in index.terms if n != lane]
        aligned = all(c % size == 0 for _, c in others) and index.constant % size == 0
        if index.coefficient(lane) != 1 or not aligned or len(cut) > 1:
            return (
                f"index {index} of {storage.tensor} does not split into an entry and a lane "
                f"of {size} along {lane}"
            )
        terms = [(n, c // size) for n, c in others]
        result.append(combine([*terms, (lane, 1)], index.constant // size))
    return tuple(result)


def _packed(
    scop: Scop, selection: Selection, storage: Storage, coordinates: tuple[Affine, ...]
) -> tuple[Affine, ...]:
    """The coordinates without the entries that lie between those which the only reader of an input
    takes: the host lays out what is read."""
    users = [o for o in selection.operations if storage.name in o.storages]
    only = [o.kind == "load" for o in users].count(False) == 1 and len(users) > 1
    if not only or not sparse(storage.indices, scop.extents):
        return coordinates
    return tuple(c.packed(scop.extents) for c in coordinates)


def check_match(found: Match, known: dict[tuple[str, int], bool]) -> None:
    """Let isl decide that a match is one: single-valued per operand, injective where written,
    but by copies: several lanes of theirs may write one element, as all of them write its value.
    `known`: by access and loops outside of calls, what was decided for other matches.

    Raises:
        HwgenError: H303 with the operand; only a defect of the matcher can cause it.
    """
    selection = found.selection
    for o in selection.operations:
        extents = dict(o.intrinsic.iterators)
        strip = [(it, loop) for it, loop in found.lane[o.name] if loop]
        outer = [(f"{n}_o", found.count[n]) for n in o.loops]
        inner = [(f"j_{it}", extents[it]) for it, _ in strip]
        diagonal = [
            f"j_{a} = j_{b}" for n, (a, m) in enumerate(strip) for b, k in strip[:n] if k == m
        ]
        point = {
            n: combine([(f"{n}_o", found.block.get(n, 1))])
            if n not in {loop for _, loop in strip}
            else combine([(f"{n}_o", found.block[n]), (f"j_{_lane_of(strip, n)}", 1)])
            for n in o.loops
        }
        written = o.intrinsic.written.name
        for operand, name in zip(o.intrinsic.operands, o.storages, strict=True):
            if all(s.name != name for s in selection.storages):
                continue
            storage = selection.storage(name)
            iterators = operand_iterators(o.intrinsic, operand.name)
            key = [n for n, _ in outer] + [
                f"j_{i}" for i in iterators if any(i == s for s, _ in strip)
            ]
            element = [_at(index, point) for index in storage.indices]
            access = _access(key, element, [*outer, *inner], diagonal)
            distinct = operand.name == written and not copies(o.intrinsic)
            asked = (access, len(outer) if distinct else -1)
            if asked not in known:
                known[asked] = _is_match(*asked)
            if not known[asked]:
                raise HwgenError("H303", f"{o.name}: operand {operand.name} is no valid match")


def _access(
    key: Sequence[str],
    element: Sequence[Affine],
    variables: Sequence[tuple[str, int]],
    diagonal: Sequence[str],
) -> str:
    """The elements that a call touches at an operand index, over all other variables: an isl
    map."""
    hidden = ", ".join(n for n, _ in variables if n not in key)
    images = [f"e{d}" for d in range(len(element))]
    where = [f"{image} = {value}" for image, value in zip(images, element, strict=True)]
    where += [f"0 <= {n} < {extent}" for n, extent in variables]
    condition = " and ".join([*where, *diagonal])
    quantified = f"exists ({hidden} : {condition})" if hidden else condition
    return f"{{ [{', '.join(key)}] -> [{', '.join(images)}] : {quantified} }}"


def _lane_of(strip: list[tuple[str, str]], loop: str) -> str:
    return next(it for it, n in strip if n == loop)


def _at(index: Affine, point: Mapping[str, Affine]) -> Affine:
    terms: list[tuple[str, int]] = []
    constant = index.constant
    for n, c in index.terms:
        inner = point[n]
        terms += [(m, c * k) for m, k in inner.terms]
        constant += c * inner.constant
    return combine(terms, constant)


def _is_match(access: str, outer: int) -> bool:
    """Whether an operand index is one element and, unless `outer` is negative, distinct operand
    indices are distinct elements in each call."""
    made = isl.Map(access)
    if outer < 0:
        return made.is_single_valued()
    fixed = made.move_dims(isl.dim_type.param, 0, isl.dim_type.in_, 0, outer)
    return made.is_single_valued() and fixed.is_injective()
