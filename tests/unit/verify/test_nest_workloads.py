"""What random workloads for schedules are made of."""

from __future__ import annotations

import re
from random import Random

import numpy as np

from hwgen.model.numeric import load
from hwgen.spec.load import parse_workload
from tests.fuzz.nest_runs import difference
from tests.fuzz.nest_workloads import Draws, random_nests


def test_halves_and_sums_that_read_backwards_are_drawn() -> None:
    """Sums of floats read backwards in one of forty at least: what compilers got wrong."""
    backward = re.compile(r"\+= .*\[[^\]]*\d+ - [a-z]")
    found = {"float16": 0, "bfloat16": 0, "backwards": 0}
    for seed in range(200):
        data = random_nests(Draws(Random(seed).randrange), "drawn")
        workload = parse_workload(data)
        types = {t.dtype for t in workload.tensors}
        found["float16"] += "float16" in types
        found["bfloat16"] += "bfloat16" in types
        sums = any(backward.search(c["do"]) for c in data["compute"])
        found["backwards"] += sums and any("float" in dtype for dtype in types)
    assert min(found.values()) >= 5


def test_zeros_of_either_sign_are_the_same_in_every_type() -> None:
    zeros = np.array([0x0000, 0x8000], np.uint16)
    assert difference("y", *(load(z, "bfloat16").array for z in (zeros, zeros[::-1]))) == ""
