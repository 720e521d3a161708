"""Edits made again in the schedule of a whole network, or told that they cannot be."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from hwgen.errors import HwgenError
from hwgen.passes import replaying
from hwgen.passes.replaying import joined
from hwgen.passes.start import Start
from hwgen.polyhedral.schedule.schedule import Schedule
from hwgen.polyhedral.schedule.script import Edit
from hwgen.spec.load import load_hardware, make_workload
from hwgen.spec.workload import Workload
from tests.conftest import Mutate

SPECS = Path(__file__).parents[2] / "hw_specs"
CPU = load_hardware(SPECS / "cpu_generic.yaml")
AVX2 = load_hardware(SPECS / "x86_avx2.yaml")


def chain(*names: str) -> Workload:
    """Each tensor one more than the one before."""
    return make_workload(
        "chain",
        tensors=dict.fromkeys(names, "float32[8]"),
        compute=[f"{mine}[i] = {before}[i] + 1" for before, mine in pairwise(names)],
    )


def test_a_part_is_made_again() -> None:
    part = Schedule(chain("x", "y"), CPU)
    part.split("i", factor=4)
    assert str(joined(Start(chain("x", "y"), CPU), [part]).schedule) == str(part)


def test_a_part_of_another_workload_is_refused() -> None:
    part = Schedule(chain("x", "y", "z"), CPU)
    part.split("i", factor=4)
    with pytest.raises(HwgenError, match="nothing like S1") as caught:
        joined(Start(chain("x", "y"), CPU), [part])
    assert caught.value.code == "H413"


def test_an_edit_that_makes_less_is_refused(mutate: Mutate) -> None:
    part = Schedule(chain("x", "y"), CPU)
    outer, inner = part.split("i", factor=4)

    def other(*_: object) -> Edit:
        return Edit("parallel", ("i",), (), ())

    mutate(replaying, "_renamed", other)
    with pytest.raises(HwgenError, match=f"{outer}, {inner}") as caught:
        joined(Start(chain("x", "y"), CPU), [part])
    assert caught.value.code == "H413"
