"""Windows that slide along a loop: rows that its iterations share are computed, or loaded, once.

Where a window reads rows around the one that it is for, blocks of rows need some of their
neighbours'. These stay on the chip from iteration to iteration, in a buffer that holds as many rows
as are still read, and those that the next iteration brings.
"""

from __future__ import annotations

from collections.abc import Collection
from fractions import Fraction
from math import prod

from hwgen.errors import Tolerating
from hwgen.polyhedral.schedule.schedule import Schedule
from hwgen.polyhedral.tree.copies import Window, window_of
from hwgen.polyhedral.tree.loop_tree import LoopTree, Site
from hwgen.spec.expression import Name


def slid(schedule: Schedule, loops: Collection[str]) -> Schedule:
    """The same, with what windows along some loops share kept from iteration to iteration, where
    nothing stands against it."""
    made = schedule.copy()
    # Who reads comes first: of what only it needs again, nothing is kept.
    for stage in reversed(made.state.stages):
        for loop in _of(made.state.site[stage.tensor], loops):
            window = window_of(made.state.site[stage.tensor], loop)
            if window is not None:
                with Tolerating(("H411", "H413")):
                    _slide(made, stage.tensor, loop, window)
    return made


def _slide(schedule: Schedule, tensor: str, loop: str, window: Window) -> None:
    """What an iteration computes stays for others, in a buffer that holds as much as is needed.

    Raises:
        HwgenError: H411, H413 where that cannot be.
    """
    schedule.retain(tensor, loop)
    if loop in schedule.homes[tensor]:
        return  # Nothing of an iteration before is read.
    rows = -(-window.extent // window.step) * window.step
    indices = schedule.state.stage[tensor].target.indices
    own = [f"d{n}" for n in range(len(indices))]
    held = [
        f"{name} % {rows}" if index == Name(window.iterator) else name
        for name, index in zip(own, indices, strict=True)
    ]
    schedule.transform_layout(tensor, f"[{', '.join(own)}] -> [{', '.join(held)}]")


def slides(state: LoopTree, loops: Collection[str]) -> bool:
    """Whether iterations of some loops share a part of what they compute of any stage."""
    return any(window_of(site, n) is not None for site in state.sites for n in _of(site, loops))


def instances(site: Site, loops: Collection[str]) -> Fraction:
    """Instances of a block that are executed once windows slide along some loops."""
    count = Fraction(prod(x.extent for x in site.loops))
    for loop in _of(site, loops):
        times, window = site.extents[loop], window_of(site, loop)
        if window is not None:
            count *= Fraction(window.step * (times - 1) + window.extent, window.extent * times)
    return count


def _of(site: Site, loops: Collection[str]) -> list[str]:
    return [n for n in site.names if n in loops]
