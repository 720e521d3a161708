"""Layers one after the other: what is between them goes through DRAM, behind a fence."""

from __future__ import annotations

from dataclasses import replace
from math import prod

import numpy as np
import pytest

from hwgen.codegen.nodes import Barrier
from hwgen.codegen.program import Program
from hwgen.model.compiled import have_compiler
from hwgen.model.reference import run_reference
from hwgen.passes.kernel import Kernel
from hwgen.verify.examine import examine
from tests.fuzz.edits import catch
from tests.gemmini import emitted
from tests.gemmini.emitted import Case, assert_agrees, case, chip, compiled
from tests.sampling import tiered

needs_compiler = pytest.mark.skipif(not have_compiler(), reason="no C compiler")

CASES = (
    case("layers"),
    case("layers", M=7, K=33, H=17, G=1, N=40),
    case("layers", M=70, K=16, H=257, G=30, N=7),
    case("two_layers"),
    case("two_layers", M=19, K=7, H=33, N=5),
)
BETWEEN = {"layers": ["h1", "h2"], "two_layers": ["h"]}


def phased(which: Case) -> Kernel:
    c = compiled(which)
    assert c.account.phases
    return c


@needs_compiler
@pytest.mark.parametrize("which", tiered(CASES, CASES[:1]), ids=str)
def test_kernel(which: Case) -> None:
    """Against the header, which shares no code with the compiler: one fence for each layer."""
    c = phased(which)
    assert [s.tensor for s in c.account.spills] == BETWEEN[which.workload]
    assert all("goes through off-chip memory" in note for note in c.notes)
    found = assert_agrees(c)
    heap = [moved for name, moved in found.traffic.items() if name.startswith("heap")]
    # The images that are not in place are what is allocated last.
    staged = iter(heap[len(heap) - sum(not i.in_place for i in c.program.images) :])
    for image in c.program.images:
        read, written = found.traffic[image.tensor] if image.in_place else next(staged)
        match image.role:
            case "input":
                assert read
                assert not written
            case "output":
                assert written
                assert not read
            case "temporary":
                assert 0 < written <= image.bytes
                assert read >= written
    assert len(fences(c.program)) == len(BETWEEN[which.workload])


@pytest.mark.parametrize("which", tiered(CASES, CASES[:1]), ids=str)
def test_every_check(which: Case) -> None:
    c = phased(which)
    inputs = emitted.inputs(c.workload, 0)
    if have_compiler():
        examine(c, inputs, "c")
    found = examine(c, inputs)
    assert found.functional is not None
    for name in BETWEEN[which.workload]:
        size = prod(c.workload.tensor[name].shape)
        assert found.functional.traffic_bytes("dram", name, "write") >= size
    y = next(iter(run_reference(c.workload, inputs).values()))
    assert np.count_nonzero(np.abs(y.astype(int)) < 127) > y.size // 4  # not all is saturated


def fences(program: Program) -> list[int]:
    return [n for n, node in enumerate(program.body) if isinstance(node, Barrier)]


@pytest.mark.parametrize("which", [CASES[0], CASES[3]], ids=str)
def test_a_load_that_does_not_wait_is_a_race(which: Case) -> None:
    c = phased(which)
    body = list(c.program.body)
    del body[fences(c.program)[0]]
    broken = replace(c.program, body=tuple(body))
    assert catch(broken, chip(), c.workload, emitted.inputs(c.workload, 0)) == "H760"


@needs_compiler
@pytest.mark.parametrize("fence", [0, 1])
def test_the_header_notices_it_too(fence: int) -> None:
    c = phased(CASES[0])
    head, *rest = c.source.c.split("gemmini_fence();")
    assert len(rest) == 3  # the last one ends the kernel
    rest.insert(fence, rest.pop(fence))
    text = head + "".join(
        (";" if n == fence else "gemmini_fence();") + part for n, part in enumerate(rest)
    )
    found = emitted.execute_source(replace(c.source, c=text), emitted.inputs(c.workload, 0))
    assert found.code == "DRAM_FENCE", found
