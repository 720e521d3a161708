"""Random fields for how many lanes take part, and off-chip addresses that count elements."""

from __future__ import annotations

import re
from math import prod

from hwgen.verify.natural.draws import Pick, Spec
from tests.fuzz.chips.calls import rewrite_texts


def draw_lanes(spec: Spec, pick: Pick) -> None:
    """Some iterators of a chip, in all intrinsics or in most, become partial; moves then address
    single elements. A chip with parameters loses such fields instead."""
    rewrite = "parameters" in spec
    for intrinsic in spec["intrinsics"].values():
        for name, extent in intrinsic.get("iterators", {}).items():
            if rewrite and isinstance(extent, str) and ".." in extent and pick.chance(2):
                intrinsic["iterators"][name] = extent.partition("..")[2]
    if not rewrite:
        _add(spec, pick)
    rewrite_texts(spec)


def _add(spec: Spec, pick: Pick) -> None:
    names = dict.fromkeys(n for i in spec["intrinsics"].values() for n in i.get("iterators", {}))
    chosen = [name for name in names if not pick.chance(4)]
    far = {name for name, memory in spec["memories"].items() if memory["kind"] == "offchip"}
    for memory in far:
        spec["memories"][memory]["addressing"] = "elements"
    for intrinsic in spec["intrinsics"].values():
        lanes: Spec = intrinsic.get("iterators", {})
        moved = [n for n, o in intrinsic["operands"].items() if o["memory"] in far]
        dense = prod(lanes.values())
        for loop in intrinsic.get("loops", {}).values():
            for operand in moved:
                if operand in loop["strides"]:
                    loop["strides"][operand] = _scaled(loop["strides"][operand], dense)
            if moved and pick.chance(6):
                loop["lanes"] = "all"
        if "micro_kernel" in intrinsic or pick.chance(20):
            continue
        # What a move leaves out must not lie between what it moves.
        able = [n for at, n in enumerate(lanes) if not moved or _outermost(lanes, at)]
        intrinsic["iterators"] = {
            name: f"1..{extent}" if name in able and name in chosen and extent > 1 else extent
            for name, extent in lanes.items()
        }


def _outermost(lanes: Spec, at: int) -> bool:
    """Whether the iterators before this one have one lane."""
    return prod([*lanes.values()][:at]) == 1


def _scaled(stride: int | str, by: int) -> int | str:
    """A stride in elements, of one in entries."""
    if isinstance(stride, int):
        return stride * by
    return re.sub(r"\d+", lambda number: str(int(number[0]) * by), stride)
