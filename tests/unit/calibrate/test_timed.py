"""Kernels are timed by a clock in the program, in cycles of the machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from hwgen.calibrate.kernels import samples
from hwgen.calibrate.timed import FLAGS, cycles
from hwgen.calibrate.tools import find_tools
from hwgen.model.c_compiler import have_compiler
from hwgen.model.reference import random_inputs
from hwgen.spec.load import load_hardware

pytestmark = pytest.mark.skipif(not have_compiler(), reason="no C compiler")


def test_larger_kernels_take_longer(tmp_path: Path) -> None:
    """The sizes that fill one cache, the next, and none, each some 16 times the last."""
    hardware = load_hardware("cpu_generic", {"CORES": 1})
    found = [s.kernel for s in samples(hardware) if s.name.startswith("copy_words")]
    tools = find_tools([], FLAGS, [], emulated=False)
    times = [cycles(k.source, random_inputs(k.workload, 0), tools, tmp_path, 2**24) for k in found]
    assert len(times) == 3
    assert 2 * times[0] < times[1] < times[2] / 2
    elements = [k.workload.tensors[0].shape[0] * k.workload.tensors[0].shape[1] for k in found]
    assert 0.02 < times[2] / elements[2] < 100
