"""Calls on all cores that have units of their own, each with a part of a loop's iterations."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import takewhile

from hwgen.errors import Tolerating
from hwgen.passes.kernel import REFUSALS, Kernel
from hwgen.passes.phase import SearchOptions
from hwgen.passes.trees import compile_tree
from hwgen.polyhedral import isl
from hwgen.polyhedral.schedule.schedule import Schedule
from hwgen.spec.hardware import HardwareSpec

PARALLEL = "parallel"


def on_all_cores(kernel: Kernel, options: SearchOptions) -> Kernel:
    """The same kernel with one loop around the calls of each nest in parallel, the one that makes
    it fastest; the kernel as it is where none does, or where there is one core.

        for j:                        for i (parallel):
          for i:             ->         for j:
            calls                         calls
    """
    if not _has_cores(kernel.hardware):
        return kernel
    best = kernel
    with isl.bounded():
        for loops in _nests(kernel.schedule):
            found = [best]
            for loop in loops:
                # Iterations may add to one sum, or leave each other what a core has for itself.
                with Tolerating(REFUSALS):
                    found.append(_parallel(best, loops, loop))
            best = min(found, key=options.measure)
    return best


def _has_cores(hardware: HardwareSpec) -> bool:
    processor = hardware.processor
    if processor is None or processor.teams == 1:
        return False
    return any(loop.kind == PARALLEL for loop in processor.loops)


def _nests(schedule: Schedule) -> Iterator[tuple[str, ...]]:
    """The loops around all blocks of each nest with a call, outermost first."""
    nests: dict[str, list[tuple[str, ...]]] = {}
    calls: set[str] = set()
    for site in schedule.state.sites:
        if site.names:
            nests.setdefault(site.names[0], []).append(site.names)
            if site.block.tensorized is not None:
                calls.add(site.names[0])
    for first, found in nests.items():
        if first in calls:
            shared = takewhile(lambda names: len({*names}) == 1, zip(*found, strict=False))
            yield tuple(names[0] for names in shared)


def _parallel(kernel: Kernel, loops: tuple[str, ...], loop: str) -> Kernel:
    """A kernel with one of the loops of a nest outermost and in parallel.

    Raises:
        HwgenError: as the primitives and `compile_tree`.
    """
    schedule = kernel.schedule.copy()
    if loop != loops[0]:
        schedule.reorder(loop, loops[0])
    schedule.parallel(loop)
    return compile_tree(schedule).with_account(kernel.account)
