"""The order of a buffer's coordinates: the one with the fewest calls, as the steps that hardware
loops take are limited. In doubt, that of the tensor.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from math import inf, prod

from hwgen.codegen.lower.place import Place, Places
from hwgen.codegen.lower.sites import CallSite, Known
from hwgen.codegen.lower.trials import Trials
from hwgen.constants import FREE_STEPS
from hwgen.errors import Tolerating
from hwgen.polyhedral.match.bind import BoundTree
from hwgen.spec.hardware import Intrinsic


def in_best_order(
    covered: BoundTree, places: Places, whole: Mapping[str, Collection[str]], known: Known
) -> Places:
    """The same places, buffers laid out for the calls on them. `whole`: see `peeled`."""
    found = {p.name: p for p in places.values()}
    particular = [p.name for p in found.values() if _is_particular(covered, places, p)]
    if not particular:
        return places
    trials = Trials(covered, whole, known)
    for name in particular:
        users = frozenset(block for (block, _), p in places.items() if p.name == name)
        costs: list[float] = []
        ways: list[Place] = []
        for strides in _ways(found[name]):
            ways.append(replace(found[name], strides=strides))
            tried = trials.sites(_with(places, found | {name: ways[-1]}), users)
            calls, sites = _calls(tried, min(costs, default=inf))
            costs.append(calls)
            if trials.whole(sites, users):
                break  # No other order has fewer.
        found[name] = ways[costs.index(min(costs))]
    return _with(places, found)


def _with(places: Places, found: Mapping[str, Place]) -> Places:
    return {use: found[p.name] for use, p in places.items()}


def _calls(sites: Iterator[CallSite], fewest: float) -> tuple[float, list[CallSite]]:
    """Calls in all iterations, and their sites, where these are fewer than some; else infinitely
    many."""
    seen: list[CallSite] = []
    calls = 0
    with Tolerating("H614"):  # No call can be so.
        for site in sites:
            calls += site.absorbed.issued * prod(x.high - x.low for x in site.loops)
            if calls >= fewest or not _begins(site):
                return inf, []
            seen.append(site)
        return calls, seen
    return inf, []


def _begins(site: CallSite) -> bool:
    """Whether calls begin where the address fields of their operands may."""
    for operand, address in zip(site.operation.intrinsic.operands, site.addresses, strict=True):
        step = operand.address.step
        moving = [c for n, c in address.offset.terms if n not in site.repeats]
        moving += [address.slot_stride] if address.turn is not None else []
        if any(c % step for c in moving):
            return False
    return True


def _is_particular(covered: BoundTree, places: Places, place: Place) -> bool:
    """Whether some hardware loop takes few steps of a buffer, or its blocks are no whole multiples
    of what addresses are counted in."""
    if place.image is not None or place.dimensions:
        return False
    if place.span % place.granule:
        return True
    if sum(n > 1 for n in place.counts) < 2:
        return False
    return any(
        _takes_few(call.intrinsic, call.intrinsic.operands[k].name)
        for (block, k), p in places.items()
        if p.name == place.name
        for call in [covered.state.site[block].block.call]
    )


def _takes_few(intrinsic: Intrinsic, operand: str) -> bool:
    rules = (x.stride(operand) for x in intrinsic.loops if not x.software)
    return any(
        rule.range.maximum > 0
        and not rule.dense_after
        and (rule.range.gaps or rule.range.maximum - rule.range.minimum < FREE_STEPS)
        for rule in rules
    )


def _ways(place: Place) -> Iterator[tuple[int, ...]]:
    """The strides of every order; dense first, then rows of more and more coordinates apart, so
    that calls begin where addresses may."""
    whole = place.span % place.granule == 0
    rank = len(place.counts)
    for padded in (None,) if whole else (None, *reversed(range(rank))):
        for order in _orders(place.counts):
            yield place.arranged(order, padded)


def _orders(counts: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """The tensor's order, and those in which another coordinate is the innermost."""
    rank = len(counts)
    moving = [d for d in range(rank) if counts[d] > 1]
    still = [d for d in range(rank) if counts[d] == 1]
    for d in reversed(moving):
        yield (*still, *(n for n in moving if n != d), d)
    if not moving:
        yield (*still,)
