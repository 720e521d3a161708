"""`hwgen.Schedule`: a workload's schedule, edited by primitives that are legal or refused.

Besides the primitives it has the words that other scheduling languages use for them, as scripts do.
Each becomes primitives, so that `trace` shows these alone.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING, overload

from hwgen.polyhedral.schedule.arguments import primitive
from hwgen.polyhedral.schedule.following import follow
from hwgen.polyhedral.schedule.primitives import Primitives
from hwgen.polyhedral.schedule.stage_view import StageView
from hwgen.polyhedral.tree.edit import find_stage, refuse

if TYPE_CHECKING:
    from typing_extensions import Self

VIRTUAL_THREAD = "vthread"
"""A coordinate that no chip needs to have: such a loop runs inside of a thread."""


class Schedule(Primitives):
    """A schedule of a workload for a chip. Loops and tensors are named by strings that stay valid
    until an edit replaces them; primitives return the names of what they make.

    >>> s = hwgen.Schedule(workload, hardware)
    >>> m_o, m_i = s.split("m", factor=32)
    >>> s.parallel(m_o)
    >>> print(s)
    """

    # What there is, in other words

    def __getitem__(self, tensor: str | StageView) -> StageView:
        """One stage: `s["c"].split("i", factor=32)` knows loop `i` of the stage, whatever its name
        in the whole schedule. Or one block, as `decompose_reduction` makes.

        Raises:
            HwgenError: H414 where nothing has this name.
        """
        name = self.name(str(tensor))
        if name not in dict(self.state.groups) and self.state.block(name) is None:
            find_stage(self.state, name)
        return StageView(self, name)

    def _stage(self, name: str) -> StageView:
        return self[name]

    @property
    def mod(self) -> Self:
        """The schedule itself, which prints as its loops."""
        return self

    def show(self) -> None:
        """Print the buffers and loops."""
        sys.stdout.write(f"{self}\n")

    def get_block(self, name: str) -> str:
        """The stage that computes a tensor.

        Raises:
            HwgenError: H414.
        """
        return find_stage(self.state, self.name(name)).tensor

    def get_loops(self, stage: str) -> tuple[str, ...]:
        """The loops around a stage's block, outermost first.

        Raises:
            HwgenError: H414.
        """
        return self.loops(stage)

    # Edits, in other words

    @overload
    def split(
        self, loop: str, factor: int | None = None, nparts: int | None = None
    ) -> tuple[str, str]: ...

    @overload
    def split(self, loop: str, *, factors: Sequence[int | None]) -> tuple[str, ...]: ...

    @primitive
    def split(
        self,
        loop: str,
        factor: int | None = None,
        nparts: int | None = None,
        factors: Sequence[int | None] | None = None,
    ) -> tuple[str, ...]:
        """An outer loop over tiles of `factor` (or `nparts` tiles) and an inner one over a tile; a
        tail is guarded. Or with `factors` as many loops as it says, outermost first, of which one
        may be None: as long as it must be.

        Raises:
            HwgenError: H413, H414; H418 other arguments.
        """
        if factors is None:
            return super().split(loop, factor, nparts)
        factors = self._one_free(loop, factors)
        free = [n for n, one in enumerate(factors) if one is None]
        if factor is not None or nparts is not None or len(free) != 1 or len(factors) < 2:
            raise refuse(
                f"{loop} cannot be split so",
                f"factors={list(factors)}",
                "two factors or more that make up the loop, one of them None or all given",
                "None in the place of the outermost factor",
            )
        made = self._split_inwards(loop, factors[: free[0]], factors[free[0] + 1 :])
        return tuple(made)

    def _one_free(self, loop: str, factors: Sequence[int | None]) -> Sequence[int | None]:
        """The factors with None for the outermost, where it is what the others leave."""
        first, *others = factors or (None,)
        known = [n for n in others if n is not None and n > 0]
        if first is None or not others or len(known) < len(others):
            return factors
        left = -(-self.extent(loop) // prod(known))
        return [None, *others] if left == first else factors

    def _split_inwards(
        self, loop: str, before: Sequence[int | None], behind: Sequence[int | None]
    ) -> list[str]:
        """Loops of so many iterations before and behind one that is as long as it must be."""
        outer, inner = list[str](), list[str]()
        with self.batch():
            for factor in reversed(behind):
                loop, made = super().split(loop, factor)
                inner.insert(0, made)
            for parts in before:
                made, loop = super().split(loop, None, parts)
                outer.append(made)
        return [*outer, loop, *inner]

    @primitive
    def rfactor(self, stage: str, loop: str, axis: int = 0, factor_axis: int | None = None) -> str:
        """A reduction loop as a dimension (place `axis`, or `factor_axis`) of partial results,
        reduced afterwards.

        Raises:
            HwgenError: H413, H414, H418.
        """
        return super().rfactor(stage, loop, axis if factor_axis is None else factor_axis)

    @primitive
    def bind(self, loop: str, thread: str) -> None:
        """Make a loop a coordinate of the grid of blocks or of a block's threads; as `"vthread"`,
        it is unrolled inside of a thread, where a chip has no such coordinate of its own.

        Raises:
            HwgenError: H412 to H414, H418.
        """
        machine = self.hardware.processor
        if thread == VIRTUAL_THREAD and machine is not None and thread not in machine.loop:
            return super().unroll(loop)
        return super().bind(loop, thread)

    @primitive
    def annotate(self, loop: str, key: str, value: int | str = "") -> None:
        """As `pragma`; `pragma_` before the key says nothing more.

        Raises:
            HwgenError: H413, H414, H418.
        """
        self.pragma(loop, key.removeprefix("pragma_"), value)

    @primitive
    def reverse_compute_at(self, stage: str, loop: str) -> None:
        """Compute a stage inside a loop of what it reads, each time what is there by then: its own
        loops are split as those, and merged with them.

        Raises:
            HwgenError: H411, H413, H414.
        """
        follow(self, stage, loop)
