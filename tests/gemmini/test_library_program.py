"""The library's stream as a program: right in the simulator, timed by instructions."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import partial

import pytest

from benchmarks.whole import simulate_timing
from hwgen.codegen.nodes import Call, calls
from hwgen.codegen.software_loops import written_out
from hwgen.model import functional
from hwgen.model.compiled import have_compiler
from hwgen.model.reference import run_reference
from hwgen.spec.expression import Const
from hwgen.spec.load import load_workload
from hwgen.verify.data import first_difference
from tests.gemmini import emitted
from tests.gemmini.emitted import Case, case, chip, compiled
from tests.gemmini.library_program import library_chip, library_convolution, library_program
from tests.gemmini.library_stream import GARBAGE
from tests.gemmini.tiled_conv_auto import Convolution, ConvTiles, conv_bytes_read, convolution
from tests.gemmini.tiled_matmul_auto import Problem, Tiles, bytes_read, matmul

SCALED = partial(Problem, scale=0.0078125)
PROBLEMS = (
    (SCALED(64, 48, 80), None),
    (SCALED(70, 112, 160), Tiles(2, 3, 2)),
    (SCALED(257, 112, 64, relu=True), None),
    (SCALED(90, 160, 96, bias="repeating"), Tiles(2, 5, 3)),
    (SCALED(7, 16, 272, bias="repeating", relu=True), None),
    (Problem(100, 96, 64, full_c=True), Tiles(3, 4, 3)),
    (Problem(70, 48, 64, full_c=True, bias="repeating"), Tiles(3, 2, 2)),
)
"""Several tiles in every loop, ragged rows, and whatever the library does at the end."""


LIBRARY = library_chip()


def _workload(p: Problem) -> Case:
    name = {
        (False, False): "gemm_unbiased",
        (False, True): "gemm_scaled",
        (True, False): "gemm_full",
        (True, True): "gemm_full_biased",
    }[p.full_c, p.bias != "none"]
    low = {} if p.full_c else {"LOW": 0 if p.relu else -128}
    return case(name, M=p.m, N=p.n, K=p.k, **low)


@pytest.mark.parametrize(("problem", "tiles"), PROBLEMS, ids=str)
def test_stream_is_right(problem: Problem, tiles: Tiles | None) -> None:
    program = library_program(problem, LIBRARY, tiles)
    which = _workload(problem)
    workload = load_workload(emitted.path(which.workload), dict(which.sizes))
    given = emitted.inputs(workload, 0)
    found = functional.run(program, LIBRARY, given)
    difference = first_difference(found.outputs, run_reference(workload, given))
    assert difference is None, str(difference)
    read = bytes_read(problem, tiles)
    for name, tensor in (("A", "a"), ("B", "b"), ("D", "bias")):
        assert found.traffic_bytes("dram", tensor, "read") == read.get(name, 0)
    issued = Counter(name.removeprefix("gemmini_extended_") for name, _ in matmul(problem, tiles))
    assert found.calls == sum(
        issued[name] for name in ("mvin", "mvin2", "mvin3", "preload", "mvout")
    )


@pytest.mark.parametrize(
    ("problem", "tiles"),
    [
        (Convolution(2, 7, 32, 48, scale=0.0078125), ConvTiles(1, 4, 5, 16, 2, 3, 16)),
        (Convolution(2, 20, 16, 16, scale=0.0078125), None),
    ],
    ids=str,
)
def test_convolution_is_right(problem: Convolution, tiles: ConvTiles | None) -> None:
    p = problem
    program = library_convolution(p, LIBRARY, tiles)
    sizes = {"N": p.batch, "H": p.size, "W": p.size, "C": p.channels, "O": p.outputs}
    workload = load_workload(emitted.path("conv2d_scaled"), sizes)
    given = emitted.inputs(workload, 0)
    found = functional.run(program, LIBRARY, given)
    difference = first_difference(found.outputs, run_reference(workload, given))
    assert difference is None, str(difference)
    read = conv_bytes_read(p, tiles)
    for name, tensor in (("A", "x"), ("B", "w")):
        assert found.traffic_bytes("dram", tensor, "read") == read[name]
    issued = Counter(name.removeprefix("gemmini_extended_") for name, _ in convolution(p, tiles))
    assert found.calls == sum(
        issued[name] for name in ("mvin", "mvin2", "mvin3", "preload", "mvout")
    )


def test_weights_that_nobody_preloaded_are_noticed() -> None:
    """The proof is one: a wrong address in the stream is a wrong result."""
    problem = SCALED(64, 48, 80)
    program = library_program(problem, chip())
    workload = load_workload(emitted.path("gemm_unbiased"), {"M": 64, "N": 48, "K": 80})
    given = emitted.inputs(workload, 0)
    wrong = tuple(
        replace(node, operands=(*node.operands[:2], replace(node.operands[2], address=Const(7952))))
        if isinstance(node, Call) and node.intrinsic == "matmul"
        else node
        for node in program.body
    )
    found = functional.run(replace(program, body=wrong), chip(), given)
    assert first_difference(found.outputs, run_reference(workload, given)) is not None


@pytest.mark.parametrize(("problem", "tiles"), PROBLEMS[:4], ids=str)
def test_array_cycles_are_those_of_the_stream(problem: Problem, tiles: Tiles | None) -> None:
    """16 cycles where a block of weights comes in, else one for each row, at least 4."""
    timing = simulate_timing(library_program(problem, LIBRARY, tiles), LIBRARY)
    busy = 0
    for name, arguments in matmul(problem, tiles):
        if name == "gemmini_extended_preload":
            rows = arguments[5]
            assert isinstance(rows, int)
            least = 4 if arguments[0] == GARBAGE else 16
            busy += max(rows, least)
    execute = timing.unit("execute")
    assert execute.busy == busy + 1  # and the configuration's cycle
    assert timing.cycles > busy


def test_the_next_tile_is_loaded_while_this_one_is_computed() -> None:
    """Four tiles: all but the first load and the last store are hidden behind the array."""
    timing = simulate_timing(library_program(SCALED(160, 192, 128), LIBRARY), LIBRARY)
    execute, load = timing.unit("execute").busy, timing.unit("load").busy
    assert load > execute // 4
    assert timing.cycles < execute + load // 3


@pytest.mark.skipif(not have_compiler(), reason="no C compiler")
@pytest.mark.parametrize(
    "which",
    [
        case("gemm_scaled", M=70, N=90, K=70),
        case("conv2d_scaled", H=17, W=7, C=48, O=17, S=2),
    ],
    ids=str,
)
def test_own_program_written_out(which: Case) -> None:
    """As many calls as the executed C issues instructions, the same results and traffic."""
    c = compiled(which)
    program = written_out(c.program, chip())
    given = emitted.inputs(c.workload, 0)
    shapes = {t.name: t.shape for t in c.workload.outputs}
    whole = functional.run(c.program, chip(), given, shapes=shapes)
    single = functional.run(program, chip(), given, shapes=shapes)
    assert first_difference(single.outputs, run_reference(c.workload, given)) is None
    assert single.traffic == whole.traffic
    issued = emitted.execute_source(c.source, given).instructions
    timing = dict(simulate_timing(program, chip()).calls)
    moves = issued["mvin"] + issued["mvin2"] + issued["mvin3"]
    assert sum(timing.get(n, 0) for n in ("mvin", "mvin_acc", "zero")) == moves
    assert timing["mvout"] == issued["mvout"]
    assert timing["matmul"] + timing.get("matmul_first", 0) == issued["preload"]
    assert timing["move_in"] == issued["config_ld"]
    fresh = [call for call in calls(program.body) if call.fresh is not None]
    assert fresh
    assert issued["compute_preloaded"] <= issued["preload"]
