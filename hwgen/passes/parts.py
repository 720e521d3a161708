"""Parts of a workload, compiled for a chip's units: what forms have in common is one kernel."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from hwgen.errors import HwgenError
from hwgen.passes.kernel import Kernel
from hwgen.spec.workload import Workload


@dataclass(frozen=True)
class CompileUnits:
    """What compiles phases one after the other, each workload once; `compiled`: how."""

    compiled: Callable[[Workload], Kernel]
    _known: dict[object, Kernel | HwgenError] = field(
        default_factory=dict[object, Kernel | HwgenError], init=False
    )

    def __call__(self, workload: Workload) -> Kernel:
        """The kernel of a workload.

        Raises:
            HwgenError: why there is none.
        """
        said = tuple((s.name, s.loops, str(s)) for s in workload.statements)
        key = said, workload.tensors
        if key not in self._known:
            try:
                self._known[key] = self.compiled(workload)
            except HwgenError as error:
                self._known[key] = error
        found = self._known[key]
        if isinstance(found, HwgenError):
            raise found
        return found
