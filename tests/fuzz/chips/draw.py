"""One draw: a chip, a workload for it, data and a schedule, all from a list of choices."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random

from hwgen.errors import HwgenError
from hwgen.spec.load import parse_hardware
from hwgen.verify.data import STYLES, Style
from hwgen.verify.natural.draws import Pick, Spec, Tape
from tests.fuzz.chips.banks import draw_banks
from tests.fuzz.chips.calls import rewrite_texts
from tests.fuzz.chips.changes import change_chip
from tests.fuzz.chips.elements import element_chip
from tests.fuzz.chips.entries import entry_chip
from tests.fuzz.chips.features import mark_constants
from tests.fuzz.chips.lanes import draw_lanes
from tests.fuzz.chips.memories import (
    draw_addresses,
    draw_buses,
    draw_side_bus,
    draw_sizes,
    sizes_in_entries,
    without_addresses,
)
from tests.fuzz.chips.phases import phased_workload
from tests.fuzz.chips.suited import computes_elements, workload_for
from tests.fuzz.chips.sync import synchronise_otherwise
from tests.fuzz.chips.text import yaml_text
from tests.fuzz.chips.workloads import random_workload

RANKS = (0, 0, 0, 1, 2, 5)
"""Schedules that are tried, by their rank in the search's order."""


@dataclass(frozen=True, slots=True)
class Draw:
    """`chip`, `workload`: the texts of two YAML files. `rank`: of the schedule; `mutant`: which
    defect is planted, None where none is; `choices`: the positions that give this draw again;
    `data`: what reading the two files gives."""

    kind: str
    chip: str
    workload: str
    seed: int
    style: Style
    rank: int
    use_c: bool
    mutant: int | None
    choices: tuple[int, ...]
    data: tuple[Spec, Spec] = field(compare=False, repr=False)


def draw_of(seed: int, base: Spec | None = None) -> Draw:
    """The draw of a seed; `base`: the chip to vary, None for an invented one."""
    return drawn(Tape(Random(seed)), base)


def draw_again(choices: Sequence[int], base: Spec | None = None) -> Draw:
    """The draw that some choices give, the simplest where they end."""
    return drawn(Tape(given=choices), base)


def drawn(tape: Tape, base: Spec | None) -> Draw:
    """A chip, then a workload in its data types, then how it is run."""
    pick = Pick(tape.choose)
    chip = random_chip(pick, base)
    single = not any(m.get("entry") for m in chip["memories"].values())
    held = {m.get("dtype") for m in chip["memories"].values()}
    phased = single and not pick.chance(5)
    if phased:
        workload = phased_workload(pick.choose)
    elif pick(range(10)) < (7 if "int8" in held and computes_elements(chip) else 9):
        workload = workload_for(chip, pick.choose)
    else:
        workload = random_workload(pick.choose)  # Mostly in int8.
    if any(m.get("constants_only") for m in chip["memories"].values()):
        mark_constants(workload, pick)
    text = yaml_text(workload)
    floats = "float" in str(workload["tensors"])
    seed = pick(range(1000))
    # Mostly floats that stay small integers: their sums are exact in any order.
    style = pick(("small", "small", "small", "special")) if floats else pick(STYLES[:3])
    rank = 0 if phased else pick(RANKS)
    use_c = pick.chance(16)
    mutant = pick(range(64)) if pick.chance(8) else None
    if pick.chance(2):
        draw_lanes(chip, pick)
    return Draw(
        str(chip["synchronization"]["kind"]),
        yaml_text(chip),
        text,
        seed=seed,
        style=style,
        rank=rank,
        use_c=use_c,
        mutant=mutant,
        choices=tuple(tape.taken),
        data=(chip, workload),
    )


def random_chip(pick: Pick, base: Spec | None = None) -> Spec:
    """A chip as plain data: an invented one, or a variant of a given one.

    Some are refused when they are read: data cannot reach a memory, units cannot be ordered.
    """
    if base is None:
        spec = pick((entry_chip, entry_chip, element_chip))(pick)
        if "issue" in spec and pick.chance(3):
            synchronise_otherwise(spec, pick, "scoreboard")
        elif not pick.chance(5):
            synchronise_otherwise(spec, pick)
    else:
        spec = variant(base, pick)
    if pick.chance(2):
        draw_memories(spec, pick)
    if pick.chance(3):
        draw_buses(spec, pick)
    if pick.chance(4):
        draw_side_bus(spec, pick)
    if pick.chance(3):
        draw_banks(spec, pick)
    return spec


def variant(base: Spec, pick: Pick) -> Spec:
    """A given chip, changed here and there; its C text becomes plain calls."""
    spec = bare(copy.deepcopy(base))
    sizes_in_entries(spec, parse_hardware(spec))
    change_chip(spec, pick)
    return bare(spec)


def bare(spec: Spec) -> Spec:
    """Without what changes would contradict: the C text of calls and the ranges of addresses."""
    without_addresses(spec)
    rewrite_texts(spec)
    return spec


def draw_memories(spec: Spec, pick: Pick) -> None:
    """Sizes and reachable parts of the memories on the chip."""
    try:
        hardware = parse_hardware(spec)
    except HwgenError:
        return  # Refused already: reading it again counts as that.
    entries = draw_sizes(spec, pick, hardware)
    if pick.chance(2):
        draw_addresses(spec, pick, entries)
