"""What a schedule's calls are synchronised on."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from hwgen.codegen.lower import program
from hwgen.codegen.lower.stream import Stream
from hwgen.codegen.synchronisation import SyncSite
from hwgen.passes.trees import compile_tree
from hwgen.polyhedral.schedule.schedule import Schedule
from hwgen.spec.hardware import HardwareSpec


def stream_of(schedule: Schedule) -> Stream:
    """The calls of a schedule's program, before any of them waits.

    Raises:
        HwgenError: as `compile_tree`, but for what synchronisation refuses.
    """
    found: list[Stream] = []

    def recorded(hardware: HardwareSpec, stream: Stream) -> Sequence[SyncSite]:
        del hardware
        found.append(stream)
        return ()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(program, "synchronise", recorded)
        compile_tree(schedule)
    return found[-1]
