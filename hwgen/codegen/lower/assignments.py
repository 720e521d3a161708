"""Which loops are the lanes of calls: every way, and one for each that agrees with the others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product

from hwgen.codegen.lower.cuts import Cut, cut_of, longest
from hwgen.errors import HwgenError
from hwgen.polyhedral.nest.aliases import places_of
from hwgen.polyhedral.nest.state import Site, State
from hwgen.polyhedral.nest.tensorize import steps
from hwgen.spec.expression import Access
from hwgen.spec.hardware import Intrinsic, Operand

Lanes = tuple[tuple[str, str], ...]
"""The loop that each iterator of an intrinsic is ("" where one lane does)."""

Operands = Mapping[str, tuple[Intrinsic, tuple[Access, ...]]]
"""By block, its call's intrinsic and what its operands stand for."""


def assigned(state: State, calls: Operands) -> dict[str, Lanes]:
    """The lanes of each call: those that cut tensors as other calls do, where there is a choice.

    Raises:
        HwgenError: H422 where loops are no lanes of a call.
    """
    home = places_of(state)
    ways = {b: list(_ways(state.site[b], *call)) for b, call in calls.items()}
    for block, found in ways.items():
        if not found:
            raise _no_lanes(state.site[block], calls[block][0])
    known: dict[str, Cut] = {}
    result: dict[str, Lanes] = {}
    for block in sorted(ways, key=lambda b: len(ways[b])):
        intrinsic, accesses = calls[block]
        cuts = [_cuts(state.site[block], intrinsic, accesses, home, w) for w in ways[block]]
        agrees = [
            all(longest(known.get(t, c), c, exact=False) is not None for t, c in cut.items())
            for cut in cuts
        ]
        best = agrees.index(True) if True in agrees else 0
        result[block] = ways[block][best]
        for tensor, cut in cuts[best].items():
            both = longest(known.get(tensor, cut), cut, exact=False)
            known[tensor] = both if both is not None else cut
    return {b: result[b] for b in calls}


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


def _ways(site: Site, intrinsic: Intrinsic, operands: Sequence[Access]) -> Iterator[Lanes]:
    """Every way to run a block's loops, from its marked one inwards, as the lanes of a call; two
    iterators may be one loop, the diagonal of a block."""
    chain = _chain(site)
    for lanes in _assignments(intrinsic.iterators, chain, site.extents):
        if all(
            _moves_along(site, access, operand, lanes)
            for operand, access in zip(intrinsic.operands, operands, strict=True)
        ):
            yield tuple(lanes.items())


def _chain(site: Site) -> list[str]:
    marked = site.block.tensorized
    assert marked is not None
    inside = site.names[site.names.index(marked.loop) :] if marked.loop in site.names else ()
    return [n for n in inside if site.extents[n] > 1]


def _no_lanes(site: Site, intrinsic: Intrinsic) -> HwgenError:
    chain = _chain(site)
    return HwgenError(
        "H422",
        f"the loops inside {site.block.name} are no lanes of {intrinsic.name}",
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


def _moves_along(site: Site, access: Access, operand: Operand, lanes: Mapping[str, str]) -> bool:
    """Whether an access moves with a loop exactly where the operand's index has an iterator that is
    it, and then by single steps of one index."""
    inner = {x for x in lanes.values() if x}
    for loop in inner:
        step = steps(site, access, loop, inner)
        if step is None:
            return False
        moved = [s for s in step if s]
        along = any(lanes.get(i) == loop for i in operand.indices)
        if along != bool(moved) or moved not in ([], [1]):
            return False
    return True
