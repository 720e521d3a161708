"""What a processor runs, executed from its program: right, and what is wrong is found."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from hwgen.codegen.nodes import Code, CombineAcrossThreads, Launch, nodes
from hwgen.codegen.processor.lower import lower_nest
from hwgen.errors import HwgenError
from hwgen.model import code
from hwgen.model.code import CodeRun, run_code
from hwgen.model.reference import random_inputs, run_reference
from hwgen.polyhedral.schedule.schedule import Schedule
from hwgen.spec.hardware import HardwareSpec
from hwgen.spec.load import load_hardware, make_workload
from hwgen.spec.workload import Workload
from tests.planted.nests import nest_mutations
from tests.samples import ROOT

CPU = load_hardware(ROOT / "hw_specs" / "cpu_generic.yaml")
CUDA = load_hardware(ROOT / "hw_specs" / "cuda_generic.yaml")

TWO = make_workload(
    "two",
    sizes={"M": 9, "N": 12, "K": 6},
    tensors={"a": "int32[M, K]", "b": "int32[K, N]", "t": "int32[M, N]", "y": "int32[M, N]"},
    compute=["t[m, n] += a[m, k] * b[k, n]", "y[m, n] = t[m, n] + 1"],
)
SUMS = make_workload(
    "sums",
    sizes={"M": 5, "K": 70},
    tensors={"a": "int32[M, K]", "y": "int32[M]"},
    compute=["y[m] += a[m, k]"],
)


def tiles() -> Code:
    """Rows of the first statement computed in tiles of the second, the last of them short."""
    s = Schedule(TWO, CPU)
    outer, _ = s.split(s.loops("y")[0], factor=4)
    s.compute_at("t", outer)
    s.decompose_reduction("t", s.loops("t")[-1])
    return lower_nest(s.resolved, s.homes, CPU)[0]


def on_threads() -> Code:
    """The same tile in a memory that the threads of a block share, with a barrier between."""
    s = Schedule(TWO, CUDA)
    outer, inner = s.split(s.loops("y")[0], factor=4)
    s.bind(outer, "blockIdx.x")
    s.bind(inner, "threadIdx.x")
    s.compute_at("t", outer)
    s.set_scope("t", "shared")
    s.bind(s.loops("t")[1], "threadIdx.x")
    return lower_nest(s.resolved, s.homes, CUDA)[0]


def combined() -> Code:
    """A sum over threads: in each block of rows the threads of a row put their parts together."""
    s = Schedule(SUMS, CUDA)
    _, k = s.split("k", factor=16)
    s.bind("m", "blockIdx.x")
    s.bind(k, "threadIdx.x")
    return lower_nest(s.resolved, s.homes, CUDA)[0]


PROGRAMS = [(tiles, TWO, CPU), (on_threads, TWO, CUDA), (combined, SUMS, CUDA)]


def ran(program: Code, chip: HardwareSpec, workload: Workload) -> CodeRun:
    return run_code(program, chip, random_inputs(workload, 0))


@pytest.mark.parametrize("points", [code.POINTS, 16])
@pytest.mark.parametrize(("make", "workload", "chip"), PROGRAMS, ids=["cpu", "gpu", "sums"])
def test_it_agrees_with_the_reference(
    make: type, workload: Workload, chip: HardwareSpec, points: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether all blocks run at once or not."""
    monkeypatch.setattr(code, "POINTS", points)
    outputs = ran(make(), chip, workload).outputs
    expected = run_reference(workload, random_inputs(workload, 0))
    assert np.array_equal(outputs["y"], expected["y"])


def test_instances_and_reads_are_counted() -> None:
    run = ran(tiles(), CPU, TWO)
    assert run.instances == 9 * 12 * (1 + 6 + 1)
    assert run.read_elements == 9 * 12 * (2 * 6 + 1)


def test_the_samples_have_what_they_are_for() -> None:
    assert any(isinstance(n, Launch) for n in nodes(on_threads().body))
    assert any(isinstance(n, CombineAcrossThreads) for n in nodes(combined().body))


@pytest.mark.parametrize(("make", "workload", "chip"), PROGRAMS, ids=["cpu", "gpu", "sums"])
def test_defects_are_found(make: type, workload: Workload, chip: HardwareSpec) -> None:
    """Told, or another result. A barrier decides only who runs first: that is not its business; and
    a guard, or a loop's end, may be implied by others."""
    expected = run_reference(workload, random_inputs(workload, 0))["y"]
    found: Counter[tuple[str, str]] = Counter()
    for name, wrong in nest_mutations(make()):
        try:
            same = np.array_equal(ran(wrong, chip, workload).outputs["y"], expected)
        except HwgenError as error:
            found[name, error.code] += 1
        else:
            found[name, "same" if same else "another result"] += 1
    beside = {outcome: n for (name, outcome), n in found.items() if name == "written beside"}
    assert beside
    assert "same" not in beside
    assert {outcome for _, outcome in found} <= {"H729", "another result", "same"}
    assert found["one more iteration", "H729"] + found["dropped guard", "H729"] > 0


def test_a_condition_further_in_keeps_an_element_inside() -> None:
    """Two statements of a loop that is longer than the buffer that one of them writes."""
    workload = make_workload(
        "padded",
        tensors={"x": "int8[13]", "w": "int8[3]", "y": "int32[13, 3]"},
        compute=[{"do": "y[i, n] max= x[12 - i] * w[n]", "loops": {"i": 13, "n": 3}}],
    )
    script = """
s.pad('n', 16)
s.cache_read('w', 'heap')
s.compute_at('w_heap', 'w_pad_0')
s.cache_write('w_heap', 'heap', readers=['w_pad'])
s.compute_at('w_heap_heap', 'w_pad_0')
"""
    s = Schedule(workload, CPU).replay(script)
    outputs = ran(lower_nest(s.resolved, s.homes, CPU)[0], CPU, workload).outputs
    expected = run_reference(workload, random_inputs(workload, 0))
    assert np.array_equal(outputs["y"], expected["y"])


def test_a_buffer_is_fresh_in_every_iteration_around_it() -> None:
    """What nothing writes in this tile is not what the tile before left."""
    program = tiles()
    lost = next(w for n, w in nest_mutations(program) if n == "written beside")
    with pytest.raises(HwgenError, match="H729"):
        ran(lost, CPU, TWO)


@pytest.mark.parametrize("given", ["nothing", "another shape", "another type"])
def test_a_missing_input_is_refused(given: str) -> None:
    assert CPU.processor is not None
    inputs = dict(random_inputs(TWO, 0))
    match given:
        case "nothing":
            del inputs["a"]
        case "another shape":
            inputs["a"] = inputs["a"][1:]
        case _:
            inputs["a"] = inputs["a"].astype(np.int64)
    with pytest.raises(HwgenError, match="H726"):
        run_code(tiles(), CPU, inputs)


def test_an_output_that_is_not_written_whole_is_found() -> None:
    program = tiles()
    short = replace(program, body=())
    with pytest.raises(HwgenError, match="never written"):
        ran(short, CPU, TWO)
