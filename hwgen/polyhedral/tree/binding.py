"""What a block runs as: the intrinsics that a script names, and the call that is decided on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from hwgen.spec.expression import Access
from hwgen.spec.hardware import Intrinsic

Lanes = tuple[tuple[str, str], ...]
"""The loop that each iterator of an intrinsic is ("" where one lane does)."""


@dataclass(frozen=True, slots=True)
class Binding:
    """The call that runs the instances of a block.

    `operands`: the access, over the stage's iterators, that each of the intrinsic's operands stands
    for; `filled`: iterators without a loop of which all lanes take part though fewer may; `first`:
    what runs the first contribution to each sum and sets it, where no block does.
    """

    intrinsic: Intrinsic
    operands: tuple[Access, ...]
    lanes: Lanes = ()
    immediates: tuple[tuple[str, int | float], ...] = ()
    filled: tuple[str, ...] = ()
    first: Intrinsic | None = None

    @property
    def single(self) -> tuple[str, ...]:
        """Iterators of which one lane takes part, as no loop runs along them."""
        return tuple(
            i
            for i, x in self.lanes
            if not x and i in self.intrinsic.partial and i not in self.filled
        )

    @property
    def named(self) -> Iterable[tuple[str, Access]]:
        """Each operand that is one of its own, by name, and what it stands for."""
        pairs = zip(self.intrinsic.operands, self.operands, strict=True)
        return sorted((o.name, access) for o, access in pairs if not o.same_as)

    def on(self, moved: Callable[[Access], Access]) -> Binding:
        """The same call on other accesses."""
        return replace(self, operands=tuple(map(moved, self.operands)))

    def along(self, loops: Mapping[str, str]) -> Binding:
        """The same call whose lanes are loops of other names."""
        return replace(self, lanes=tuple((i, loops.get(x, x)) for i, x in self.lanes))


@dataclass(frozen=True, slots=True)
class Tensorized:
    """The loops from `loop` inwards ("" where that is open; `single`: none) run as one call.

    `intrinsic`: its name, or the names of several, parted by spaces, that share the work of a stage
    on units; `stationary`: the tensors that units hold for several calls, where that is said;
    `binding`: the call itself, once it is decided.
    """

    intrinsic: str
    loop: str
    single: bool = False
    stationary: tuple[str, ...] = ()
    binding: Binding | None = None

    def on(self, moved: Callable[[Access], Access]) -> Tensorized:
        """The same on other accesses."""
        return self if self.binding is None else replace(self, binding=self.binding.on(moved))

    def along(self, loops: Mapping[str, str]) -> Tensorized:
        """The same in loops of other names."""
        binding = self.binding and self.binding.along(loops)
        return replace(self, loop=loops.get(self.loop, self.loop), binding=binding)
