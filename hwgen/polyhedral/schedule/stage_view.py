"""One stage of a schedule: `s["c"]`, whose loops go by the names that the stage itself has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hwgen.errors import HwgenError
from hwgen.polyhedral.tree.edit import block_of, find_loop, refuse
from hwgen.spec.expression import names, substitute
from hwgen.spec.suggest import suggestion

if TYPE_CHECKING:
    from hwgen.polyhedral.schedule.schedule import Schedule


class _UnknownWordError(HwgenError, AttributeError):
    """The error of a word that stages do not have: to Python, a missing attribute."""


@dataclass(frozen=True, slots=True)
class StageView:
    """A stage, one of its blocks, or a group of stages, and the primitives that are about it.

    A loop may be called as in the workload's statement: `i`, where the schedule calls it `c_i`.
    """

    schedule: Schedule
    tensor: str

    def __str__(self) -> str:
        return self.tensor

    if not TYPE_CHECKING:  # Checkers of types are to see a misspelt method.

        def __getattr__(self, name: str) -> object:
            """Refuse other schedulers' words, `op` as in `s["c"].op.axis` among them."""
            if name.startswith("_"):
                raise AttributeError(name)
            known = [n for n in dir(self) if not n.startswith("_")]
            raise _UnknownWordError(
                "H418",
                f"a stage has no {name}",
                found=f"s[{self.tensor!r}].{name}",
                allowed=", ".join(known),
                repair=(name != "op" and suggestion(name, known))
                or f"its loops are s[{self.tensor!r}].loops, or .axis and .reduce_axis",
            )

    # What there is

    @property
    def loops(self) -> tuple[str, ...]:
        """The loops around the stage's block, outermost first."""
        return self.schedule.loops(self.tensor)

    @property
    def axis(self) -> tuple[str, ...]:
        """Those that lead to other elements of the result."""
        inside = self._spatial()
        return tuple(n for n in self.loops if n in inside)

    @property
    def reduce_axis(self) -> tuple[str, ...]:
        """Those that lead to other contributions to the same element."""
        inside = self._spatial()
        return tuple(n for n in self.loops if n not in inside)

    def _spatial(self) -> frozenset[str]:
        state = self.schedule.state
        block = block_of(state, self.tensor).block
        indices = (substitute(i, block.binding) for i in state.stage[block.stage].target.indices)
        return frozenset(n for i in indices for n in names(i))

    def loop(self, name: str) -> str:
        """What the schedule calls a loop of this stage.

        Raises:
            HwgenError: H414 a loop of no stage, or of others alone.
        """
        plain = self.schedule.name(name)
        own = self.loops
        for known in (plain, f"{self.tensor}_{plain}", f"{plain}_init"):
            if known in own:
                return name if known == plain else known
        find_loop(self.schedule.state, plain, own)
        raise refuse(
            f"{self.tensor} is in no loop {plain}",
            plain,
            ", ".join(own),
            "name one of the stage's loops",
            "H414",
        )

    # Loops

    def split(
        self,
        loop: str,
        factor: int | None = None,
        nparts: int | None = None,
        factors: Sequence[int | None] | None = None,
    ) -> tuple[str, ...]:
        """As `Schedule.split`."""
        if factors is None:
            return self.schedule.split(self.loop(loop), factor, nparts)
        return self.schedule.split(self.loop(loop), factors=factors)

    def tile(self, x: str, y: str, x_factor: int, y_factor: int) -> tuple[str, str, str, str]:
        """As `Schedule.tile`."""
        return self.schedule.tile(self.loop(x), self.loop(y), x_factor, y_factor)

    def fuse(self, outer: str, inner: str, *more: str) -> str:
        """As `Schedule.fuse`."""
        return self.schedule.fuse(self.loop(outer), self.loop(inner), *map(self.loop, more))

    def reorder(self, *loops: str) -> None:
        """As `Schedule.reorder`."""
        self.schedule.reorder(*map(self.loop, loops))

    def unroll(self, loop: str) -> None:
        """As `Schedule.unroll`."""
        self.schedule.unroll(self.loop(loop))

    def vectorize(self, loop: str) -> None:
        """As `Schedule.vectorize`."""
        self.schedule.vectorize(self.loop(loop))

    def parallel(self, loop: str) -> None:
        """As `Schedule.parallel`."""
        self.schedule.parallel(self.loop(loop))

    def bind(self, loop: str, thread: str) -> None:
        """As `Schedule.bind`."""
        self.schedule.bind(self.loop(loop), thread)

    def pragma(self, loop: str, key: str, value: int | str = "") -> None:
        """As `Schedule.pragma`."""
        self.schedule.pragma(self.loop(loop), key, value)

    def prefetch(self, tensor: str | StageView, loop: str, offset: int = 1) -> None:
        """As `Schedule.prefetch`."""
        self.schedule.prefetch(str(tensor), self.loop(loop), offset)

    def tensorize(self, loop: str, *intrinsics: str, lanes: bool = True) -> None:
        """As `Schedule.tensorize`."""
        self.schedule.tensorize(self.loop(loop), *intrinsics, lanes=lanes)

    # The stage

    def compute_at(self, parent: str | StageView, loop: str) -> None:
        """Compute it at the start of the body of a loop of another stage."""
        self.schedule.compute_at(self.tensor, self.schedule[parent].loop(loop))

    def reverse_compute_at(self, producer: str | StageView, loop: str) -> None:
        """As `Schedule.reverse_compute_at`, in a loop of a stage that it reads."""
        self.schedule.reverse_compute_at(self.tensor, self.schedule[producer].loop(loop))

    def compute_inline(self) -> None:
        """As `Schedule.compute_inline`."""
        self.schedule.compute_inline(self.tensor)

    def compute_root(self) -> None:
        """As `Schedule.compute_root`."""
        self.schedule.compute_root(self.tensor)

    def decompose_reduction(self, loop: str = "") -> str:
        """As `Schedule.decompose_reduction`."""
        return self.schedule.decompose_reduction(self.tensor, self.loop(loop) if loop else "")

    def decompose_padding(self) -> str:
        """As `Schedule.decompose_padding`."""
        return self.schedule.decompose_padding(self.tensor)

    def rfactor(self, loop: str, factor_axis: int = 0) -> str:
        """As `Schedule.rfactor`."""
        return self.schedule.rfactor(self.tensor, self.loop(loop), factor_axis)

    def set_store_predicate(self, condition: str) -> None:
        """As `Schedule.set_store_predicate`."""
        self.schedule.set_store_predicate(self.tensor, condition)

    # Its buffer

    def set_scope(self, memory: str) -> None:
        """As `Schedule.set_scope`."""
        self.schedule.set_scope(self.tensor, memory)

    def storage_align(self, axis: int, factor: int, offset: int = 0) -> None:
        """As `Schedule.storage_align`."""
        self.schedule.storage_align(self.tensor, axis, factor, offset)

    def double_buffer(self, slots: int = 2) -> None:
        """As `Schedule.double_buffer`."""
        self.schedule.double_buffer(self.tensor, slots)
