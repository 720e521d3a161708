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
    """The same kernel with one loop around the calls of each nest in parallel, or a part of it for
    each core, whichever makes it fastest; the kernel as it is where none does, or where there is
    one core.

        for j:                        for i_part (parallel):
          for i:             ->         for j:
            calls                         for i_rest:
                                            calls
    """
    if not _has_cores(kernel.hardware):
        return kernel
    best = kernel
    with isl.bounded():
        for loops in _nests(kernel.schedule):
            found = [best]
            for depth in range(len(loops)):
                # Iterations may add to one sum, or leave each other what a core has for itself.
                with Tolerating(REFUSALS):
                    found.append(_parallel(best, loops[: depth + 1]))
            best = min(found, key=options.measure)
    return best


def _has_cores(hardware: HardwareSpec) -> bool:
    processor = hardware.processor
    return processor is not None and processor.teams > 1 and PARALLEL in processor.loop


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


def _parallel(kernel: Kernel, loops: tuple[str, ...]) -> Kernel:
    """A kernel with the last of some nested loops in parallel: each core takes one part of its
    iterations, through all others in the order that they had.

    Raises:
        HwgenError: as the primitives and `compile_tree`.
    """
    schedule, (*outer, loop) = kernel.schedule.copy(), loops
    if outer:
        processor = kernel.hardware.processor
        assert processor is not None
        loop, _ = schedule.split(loop, nparts=processor.teams)
        schedule.reorder(loop, *outer)
    schedule.parallel(loop)
    return compile_tree(schedule).with_account(kernel.account)
