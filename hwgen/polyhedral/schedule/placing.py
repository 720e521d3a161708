"""`compute_at` in any order of edits: a stage keeps the loops that it was given before.

A stage that is computed at a loop gets a nest for what is needed there. Edits of its former loops
are made again on that nest, as if they had come behind: with them stages that stand in those loops.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from hwgen.polyhedral.schedule.script import Argument, Edit
from hwgen.polyhedral.tree.edit import main_site, stages_of
from hwgen.polyhedral.tree.loop_tree import LoopTree

OF_WHOLE_STAGE = ("merge", "rfactor", "rescale", "interleave")
"""Primitives on loops that cannot come behind the placement of what they are about."""

OF_BLOCK = ("decompose_reduction", "tensorize")
"""Primitives on the loops of a stage that may name it alone."""


@dataclass(frozen=True, slots=True)
class Made:
    """An edit in the order in which it counts. `units`: whether a stage that it places keeps loops
    of one iteration."""

    edit: Edit
    units: bool = False


def named(edit: Edit) -> set[str]:
    """The loops that an edit names or makes, and the stage whose loops it is about."""
    found = {*texts(edit.arguments), *edit.results}
    return found if edit.primitive not in OF_BLOCK else found | {_whole(str(edit.arguments[0]))}


def _whole(block: str) -> str:
    """What stands for all loops of a block."""
    return f"loops of {block}"


def touched(state: LoopTree, stage: str, names: set[str]) -> bool:
    """Whether edits with these names may be about a stage's loops."""
    blocks = {_whole(stage), _whole(f"{stage}_init")}
    return not names.isdisjoint({*_own(state, stage), *blocks})


def behind(state: LoopTree, made: Sequence[Made], stage: str, loop: str) -> set[int]:
    """Which edits are to come behind one that computes a stage at a loop; none where one of them
    cannot."""
    if stage not in state.stage or loop not in state.loop:
        return set()
    moved: set[int] = set()
    mentioned = {*_own(state, stage), _whole(stage), _whole(f"{stage}_init")}
    size = -1
    while size != len(mentioned):
        size = len(mentioned)
        for number, edit in enumerate(m.edit for m in made):
            if not mentioned.isdisjoint(found := named(edit)):
                moved.add(number)
                mentioned |= {n for n in found if n not in state.stage}
                if edit.primitive == "compute_at":
                    mentioned |= {*_own(state, str(edit.arguments[0]))}
    bad = any(made[n].edit.primitive in OF_WHOLE_STAGE for n in moved)
    return set[int]() if bad or loop in mentioned else moved


def _own(state: LoopTree, stage: str) -> Iterable[str]:
    """The loops around a stage that hold none of its readers."""
    if stage not in state.stage:
        return ()
    readers = {s.tensor for s in state.readers(stage)}
    around = main_site(state, stage).loops
    return [x.name for x in around if readers.isdisjoint(stages_of(x))]


def texts(arguments: Iterable[Argument]) -> Iterable[str]:
    """The names among arguments."""
    for argument in arguments:
        if isinstance(argument, str):
            yield argument
        elif isinstance(argument, tuple):
            yield from texts(argument)
