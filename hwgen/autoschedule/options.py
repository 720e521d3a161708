"""What a user may ask of the automatic scheduler."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hwgen.spec.processor import Processor


@dataclass(frozen=True, slots=True)
class Options:
    """`attempts`: choices of one nest that are tried before it is left as it is; `parallel_cycles`:
    work from which on workers are started (what starting them takes); `seconds`: when to take what
    was found (never); `one_workspace`: whether the caller gives all memory, so that workers have
    none of their own from an allocator."""

    attempts: int = 40
    parallel_cycles: float | None = None
    seconds: float | None = None
    one_workspace: bool = False

    def worth(self, machine: Processor) -> float:
        """Cycles of work from which on workers are started."""
        given = self.parallel_cycles
        return machine.start_cycles if given is None else given


DEFAULTS = Options()
