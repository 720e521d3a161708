"""Which loops are the lanes of calls: every way, and one for each that agrees with the others.

All loops from the marked one inwards are lanes. Of a block that is called as a whole no loop is
marked: as many of its innermost loops are lanes as the calls on the same tensors agree on.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from heapq import heappop, heappush
from itertools import product, takewhile

from hwgen.errors import HwgenError
from hwgen.polyhedral.match.cuts import Cut, cut_of, longest
from hwgen.polyhedral.tree.aliases import places_of
from hwgen.polyhedral.tree.loop_tree import LoopTree, Site, listed
from hwgen.polyhedral.tree.tensorize import steps
from hwgen.spec.expression import Access, names
from hwgen.spec.hardware import Intrinsic, Operand

Lanes = tuple[tuple[str, str], ...]
"""The loop that each iterator of an intrinsic is ("" where one lane does)."""

Operands = Mapping[str, tuple[Intrinsic, tuple[Access, ...]]]
"""By block, its call's intrinsic and what its operands stand for."""


def laid_out(state: LoopTree) -> set[str]:
    """The tensors that the host lays out as each call wants them: off chip, and not computed."""
    made = {x.block.stage for x in state.sites}
    return {t.name for t in state.tensors if t.name not in made and not state.memory(t.name)}


def assigned(state: LoopTree, calls: Operands) -> dict[str, Lanes]:
    """The lanes of each call: those that cut tensors as other calls do, where there is a choice.

    Raises:
        HwgenError: H422 where loops are no lanes of a call.
    """
    host = laid_out(state)
    home = {t: place for t, place in places_of(state).items() if t not in host}
    ways: dict[str, list[Lanes]] = {}
    moving: dict[str, int] = {}
    for block, call in calls.items():
        ways[block] = list(_ways(state.site[block], *call, None))
        moving[block] = len(ways[block])
        ways[block] += _ways(state.site[block], *call, host)
        if not ways[block]:
            raise _no_lanes(state.site[block], call[0])
    cuts = {b: [_cuts(state.site[b], *calls[b], home, w) for w in ways[b]] for b in ways}
    users = listed((t, b) for b in cuts for t in dict.fromkeys(t for cut in cuts[b] for t in cut))
    place = {b: n for n, b in enumerate(ways)}
    known: dict[str, Cut] = {}
    result: dict[str, Lanes] = {}
    agreeing: dict[str, list[int]] = {}
    waiting: list[tuple[int, int, int, str]] = []

    def look(block: str) -> None:
        """See which ways of a block agree with what is known."""
        found = _agreeing(cuts[block], known)
        # Operands that are laid out again take more room: only where nothing else agrees.
        agreeing[block] = [n for n in found if n < moving[block]] or found
        heappush(waiting, (len(agreeing[block]), len(ways[block]), place[block], block))

    for block in ways:
        look(block)
    while waiting:
        count, _, _, block = heappop(waiting)
        if block in result or count != len(agreeing[block]):
            continue
        best, *others = agreeing[block] or [0]
        beside = dict.fromkeys(b for t in cuts[block][best] for b in users[t])
        beside = [b for b in beside if b != block and b not in result]
        if others:
            able = [cuts[b] for b in beside if agreeing[b]]
            after = ((n, _together(known, cuts[block][n])) for n in (best, *others))
            leaves = (n for n, cut in after if all(_agreeing(c, cut) for c in able))
            best = next(leaves, best)
        result[block] = ways[block][best]
        known = _together(known, cuts[block][best])
        # What is decided for one call leaves fewer ways for those that touch the same tensors.
        for other in beside:
            look(other)
    return {b: result[b] for b in calls}


def _together(known: Mapping[str, Cut], cuts: Mapping[str, Cut]) -> dict[str, Cut]:
    """How calls cut tensors, with one call more."""
    result = dict(known)
    for tensor, cut in cuts.items():
        both = longest(known.get(tensor, cut), cut, exact=False)
        result[tensor] = both if both is not None else cut
    return result


def _agreeing(cuts: Sequence[Mapping[str, Cut]], known: Mapping[str, Cut]) -> list[int]:
    """The ways that cut tensors as is known of them."""
    return [
        n
        for n, mine in enumerate(cuts)
        if all(longest(known.get(t, c), c, exact=False) is not None for t, c in mine.items())
    ]


def _cuts(
    site: Site,
    intrinsic: Intrinsic,
    accesses: Sequence[Access],
    home: Mapping[str, str],
    lanes: Lanes,
) -> dict[str, Cut]:
    """How lanes cut the tensors of a call that are not in the caller's hands."""
    return {
        home[access.tensor]: cut_of(site, lanes, operand, access)
        for operand, access in zip(intrinsic.operands, accesses, strict=True)
        if access.tensor in home
    }


def misfit(
    state: LoopTree,
    site: Site,
    intrinsic: Intrinsic,
    operands: Sequence[Access],
    used: Collection[str],
) -> int:
    """How badly a call takes the loops of a block that move some iterators as its lanes: 0 where
    all operands move with them, more where only fewer loops can be lanes, then where operands are
    to be laid out again, and most where it takes them not at all."""
    pairs = list(zip(intrinsic.operands, operands, strict=True))
    binding = site.block.binding
    needed = {n for i in used if i in binding for n in names(binding[i])}
    needed |= {n for p in site.block.predicate for n in names(p)}
    ways = [*product((None, laid_out(state)), _chains(site))]
    for fit, (again, loops) in enumerate(ways):
        chain = [n for n in loops if n in needed]
        for lanes in _assignments(intrinsic.iterators, chain, site.extents):
            if all(_moves_along(site, a, o, lanes, again) for o, a in pairs):
                return fit
    return len(ways)


def _ways(
    site: Site,
    intrinsic: Intrinsic,
    operands: Sequence[Access],
    again: Collection[str] | None,
) -> Iterator[Lanes]:
    """Every way to run a block's innermost loops as the lanes of a call, those with most loops
    first; two iterators may be one loop, the diagonal of a block. Every operand moves with its
    lanes, or, with `again`, some are laid out for that (`_moves_along`)."""
    pairs = list(zip(intrinsic.operands, operands, strict=True))
    for lanes in (
        x for c in _chains(site) for x in _assignments(intrinsic.iterators, c, site.extents)
    ):
        moves = all(_moves_along(site, a, o, lanes, None) for o, a in pairs)
        if again is None:
            fits = moves
        else:
            fits = not moves and all(_moves_along(site, a, o, lanes, again) for o, a in pairs)
        if fits:
            yield tuple(lanes.items())


def _chains(site: Site) -> list[list[str]]:
    """The loops that are a call's lanes: from the marked one inwards, or, where that is open, every
    choice of those around this block alone, the most loops first."""
    call = site.block.tensorized
    assert call is not None
    if call.loop or call.single:
        inside = site.names[site.names.index(call.loop) :] if call.loop in site.names else ()
        return [[n for n in inside if site.extents[n] > 1]]
    alone = takewhile(lambda x: len(x.body) == 1, reversed(site.loops))
    own = [x.name for x in alone if x.extent > 1][::-1]
    return [own[n:] for n in range(len(own) + 1)]


def _no_lanes(site: Site, intrinsic: Intrinsic) -> HwgenError:
    (chain,) = _chains(site)
    return HwgenError(
        "H422",
        f"the loops inside {site.block.name} are no lanes of {intrinsic.name}",
        field=f"blocks.{site.block.name}",
        found=", ".join(f"{n}: {site.extents[n]}" for n in chain) or "no loop",
        allowed=", ".join(f"{n}: {e}" for n, e in intrinsic.iterators) or "no lanes",
        repair="split loops to the lanes' extents, and reorder those to the inside",
    )


def _assignments(
    iterators: Sequence[tuple[str, int]], chain: Sequence[str], extents: Mapping[str, int]
) -> Iterator[dict[str, str]]:
    """Every way to give each loop an iterator of its extent, then those that give some two."""
    options = [("", *(n for n in chain if extents[n] == extent)) for _, extent in iterators]
    found = [
        dict(zip((n for n, _ in iterators), chosen, strict=True))
        for chosen in product(*options)
        if set(chain) <= {*chosen}
    ]
    yield from sorted(found, key=lambda lanes: sum(map(bool, lanes.values())))


def _moves_along(
    site: Site,
    access: Access,
    operand: Operand,
    lanes: Mapping[str, str],
    again: Collection[str] | None,
) -> bool:
    """Whether an access moves with a loop exactly where the operand's index has an iterator that is
    it, and then by single steps of one index. With `again`, what is only read may stand still too,
    and tensors of it may move in any way, as the host lays them out."""
    inner = {x for x in lanes.values() if x}
    may_stand = again is not None and operand.access == "read"
    any_way = may_stand and again is not None and access.tensor in again
    for loop in inner:
        step = steps(site, access, loop, inner)
        if step is None:
            return False
        moved = [s for s in step if s]
        along = any(lanes.get(i) == loop for i in operand.indices)
        if moved and not along:
            return False
        if (along and not moved and not may_stand) or (moved not in ([], [1]) and not any_way):
            return False
    return True
