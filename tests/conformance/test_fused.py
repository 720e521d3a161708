"""Stages that share loops over blocks of the result, found without a script."""

# pyright: reportPrivateUsage=false

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import partial
from itertools import product
from math import prod
from pathlib import Path

import pytest

from hwgen import pipeline
from hwgen.completing import complete_script
from hwgen.errors import HwgenError
from hwgen.model.columns import off_chip_traffic
from hwgen.passes import fusing, pipelining
from hwgen.passes.fusing import Sketch, begun, fused, fused_if_better
from hwgen.passes.handovers import in_pieces
from hwgen.passes.kernel import Kernel
from hwgen.passes.network import in_blocks
from hwgen.passes.parts import CompileUnits
from hwgen.passes.phase import SearchOptions
from hwgen.passes.pieces import hand_over
from hwgen.passes.pipelining import PipelineCandidate
from hwgen.passes.scripting import compile_script
from hwgen.passes.sliding import instances, slides
from hwgen.passes.start import Start
from hwgen.passes.trees import compile_tree
from hwgen.pipeline import compile_kernel, compile_workload
from hwgen.polyhedral.schedule.schedule import Schedule
from hwgen.spec.find import find_workload
from hwgen.spec.load import load_hardware, load_workload, parse_workload
from hwgen.spec.workload import Workload
from hwgen.verify.data import draw_inputs
from hwgen.verify.examine import examine
from tests.conftest import Mutate
from tests.redundancy import check_minimal
from tests.sampling import QUICK, THOROUGH

ROOT = Path(__file__).resolve().parents[2]
CHIPS, BENCHMARKS = ROOT / "hw_specs", ROOT / "benchmarks"
NPU = load_hardware(CHIPS / "npu_shared_buffer.yaml")


def workload(name: str, **sizes: int) -> Workload:
    return load_workload(find_workload(name), sizes)


def shared(name: str, **sizes: int) -> Kernel:
    """The kernel that a workload gets, whose stages share loops."""
    found = compile_workload(workload(name, **sizes), NPU)
    assert not found.parts
    return found


def offchip_bytes(found: Kernel) -> tuple[int, int]:
    """Bytes that a kernel moves, and those of its inputs and outputs."""
    moved = off_chip_traffic(found.program, found.hardware, found.workload)
    return sum(m.loaded + m.stored for m in moved), sum(m.size for m in moved)


# Figures of long networks: what the search finds, at what the problem allows.


@pytest.mark.parametrize(
    ("name", "sizes", "cycles"),
    [
        ("mlp", {"M": 4096}, 115_000),
        pytest.param("layernorm", {"M": 4096}, 230_000, marks=THOROUGH),
        pytest.param(
            "layernorm", {"M": 256}, 8_860, marks=THOROUGH
        ),  # 8,974 if the first loads keep their order.
        pytest.param("linear_relu", {"M": 4096}, 120_000, marks=THOROUGH),
        pytest.param("attention", {}, 12_900, marks=THOROUGH),
        pytest.param("attention", {"L": 512}, 181_000, marks=THOROUGH),
    ],
    ids=str,
)
def test_no_intermediate_leaves_the_chip(name: str, sizes: dict[str, int], cycles: int) -> None:
    found = compile_workload(workload(name, **sizes), NPU)
    moved = off_chip_traffic(found.program, found.hardware, found.workload)
    outside = {t.name for t in (*found.workload.inputs, *found.workload.outputs)}
    assert {m.tensor for m in moved} == outside
    assert found.cycles <= cycles


def test_blocks_of_one_unit_are_looked_at_where_a_few_cycles_count(mutate: Mutate) -> None:
    """Its tiles say all that blocks of a long kernel could, which sums once on one unit."""
    looked: list[Start] = []

    def none(seen: Start, *_: object) -> None:
        looked.append(seen)

    mutate(fusing, "fused", none)
    vta = load_hardware(CHIPS / "vta.yaml")
    for size, few in ((16, True), (256, False)):
        compile_workload(workload("gemm", M=size, N=size, K=size), vta)
        assert bool(looked) is few
        looked.clear()


@THOROUGH
def test_what_is_too_large_is_computed_in_blocks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where stages one after the other are refused for a limit, such as scores beyond what
    addresses reach, and not for what no calls compute."""
    chip = tmp_path / "chip.yaml"
    text = (CHIPS / "npu_shared_buffer.yaml").read_text(encoding="utf-8")
    assert text.count("global_address 0..1073741823") == 1
    chip.write_text(text.replace("0..1073741823", "0..12287"), encoding="utf-8")
    given, hardware = workload("attention", L=128, D=64), load_hardware(chip)

    def refused(code: str) -> HwgenError:
        where = given.location
        return HwgenError(code, "", location=where, found="", allowed="", repair="")

    def refuse(*_: object, **__: object) -> Kernel:
        raise refused("H616")

    monkeypatch.setattr(pipeline, "_searched", refuse)
    units = CompileUnits(partial(compile_kernel, hardware=hardware))
    assert in_blocks(Start(given, hardware), units, SearchOptions(), refused("H301")) is None
    found = compile_workload(given, hardware)
    assert not found.parts
    examine(found, draw_inputs(given, 1))


def test_a_softmax_loads_its_rows_once() -> None:
    tensors = {"x": "float32[64, 200]", "top": "float32[64]", "e": "float32[64, 200]"}
    tensors |= {"z": "float32[64]", "y": "float32[64, 200]"}
    compute = ["top[m] max= x[m, n]", "e[m, n] = exp(x[m, n] - top[m])"]
    compute += ["z[m] += e[m, n]", "y[m, n] = e[m, n] / z[m]"]
    given = parse_workload({"name": "softmax", "tensors": tensors, "compute": compute})
    found = compile_workload(given, NPU)
    assert not found.parts
    moved, least = offchip_bytes(found)
    assert moved == least
    assert found.cycles <= 8_500


def test_each_byte_crosses_the_bus_once() -> None:
    moved, least = offchip_bytes(shared("mlp", M=4096))
    assert moved == least


@pytest.mark.parametrize(
    ("chip", "name", "sizes"),
    [
        pytest.param("npu_shared_buffer", "mlp", {"M": 600}, marks=THOROUGH),
        ("npu_shared_buffer", "layernorm", {"M": 333}),
        pytest.param("npu_shared_buffer", "linear_relu", {"M": 1025}, marks=THOROUGH),
        pytest.param("npu_shared_buffer", "attention", {"L": 100}, marks=THOROUGH),
        pytest.param("vtcm_two_banks", "attention", {}, marks=THOROUGH),
    ],
    ids=str,
)
def test_kernels_are_right(chip: str, name: str, sizes: dict[str, int]) -> None:
    """Also where the last block is shorter than the others."""
    hardware = load_hardware(CHIPS / f"{chip}.yaml")
    found = fused(Start(workload(name, **sizes), hardware))
    assert found is not None
    examine(found, draw_inputs(found.workload, 3), "both")


def start(given: Workload) -> Start:
    return Start(given, NPU)


CONVOLUTIONS = ROOT / "workloads" / "schedules" / "two_convolutions.yaml"


def test_rows_that_blocks_share_are_loaded_and_computed_once() -> None:
    """9 rows are no multiple of any block's; each window reads two rows of the block before."""
    found = fused(start(load_workload(CONVOLUTIONS, {"H": 9, "W": 6, "C": 20})))
    assert found is not None
    assert {m.times for m in off_chip_traffic(found.program, NPU, found.workload)} == {1}
    examine(found, draw_inputs(found.workload, 3), "both")


def test_what_slides_is_counted_once() -> None:
    schedule = begun(start(load_workload(CONVOLUTIONS, {"H": 8, "W": 6, "C": 20})), Sketch(0, 2))
    (block,) = Sketch(0, 2).loops(schedule)
    assert slides(schedule.state, [block])
    for name in ("t", "h"):
        site, stage = schedule.state.site[name], schedule.state.stage[name]
        every = prod(x.extent for x in site.loops)
        assert instances(site, [block]) == prod(n for _, n in stage.iterators) < every


@pytest.mark.thorough
def test_a_chain_of_windows_is_one_loop_over_rows() -> None:
    """As the best script by hand, whose kernel takes 334,468 cycles and moves as much."""
    found = compile_workload(load_workload(CONVOLUTIONS), NPU)
    assert not found.parts
    moved, least = offchip_bytes(found)
    assert moved == least
    assert found.cycles <= 332_000


@THOROUGH
def test_its_script_makes_the_same_kernel() -> None:
    found = shared("mlp", M=128)
    again = compile_script(found.workload, NPU, found.schedule.trace())
    assert again.source.c == found.source.c
    assert again.cycles == found.cycles


# What is not taken


def test_a_kernel_near_its_bound_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    made = compile_kernel(workload("gemm"), load_hardware(CHIPS / "vta.yaml"))
    monkeypatch.setattr(fusing, "fused", None)
    assert fused_if_better(made.start, made) is made


def test_a_kernel_that_is_faster_stays() -> None:
    made = compile_kernel(workload("mlp"), NPU)
    assert made.parts
    assert fused_if_better(made.start, made) is made
    assert fused(made.start, most=(made.cycles,)) is None


def test_blocks_that_compute_the_same_again_are_not_looked_at() -> None:
    """Blocks along the features of the last layer need all of those before."""
    layers = start(workload("mlp", M=64))
    rows, features = (fusing.begun(layers, s) for s in (Sketch(0, 8), Sketch(1, 4)))
    assert fusing._once(rows, Sketch(0, 8))
    assert not fusing._once(features, Sketch(1, 4))


def test_a_limit_of_the_search_is_one_of_shared_loops_too(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []

    def compiled(schedule: Schedule) -> Kernel:
        made.append(schedule.trace())
        return compile_tree(schedule)

    monkeypatch.setattr(fusing, "compile_tree", compiled)
    assert fused(start(workload("mlp", M=512)), SearchOptions(work=1)) is not None
    assert len(made) == 1
    fused(start(workload("mlp", M=512)))
    assert len(made) > 4
    assert len({*made[1:]}) == len(made[1:])  # None of them twice.


# Pipelines


def test_a_pipeline_keeps_its_busiest_unit_at_work() -> None:
    """Three layers, whose matrix and vector unit wait for each other without one."""
    layers = start(workload("mlp", M=1024))
    schedule = begun(layers, Sketch(0, 64))
    completion = fusing.Completion(schedule, fusing.DEFAULTS, layers)
    loops = Sketch(0, 64).loops(schedule)
    plain = compile_tree(
        completion.written(fusing.Choice(loops, "whole", completion.covers(loops)[0]))
    )
    made = PipelineCandidate(plain).pipelined().kernel
    busiest = max(u.busy for u in made.timing.units)
    assert plain.cycles > 2 * busiest
    assert made.cycles < 1.15 * busiest
    shifts = {b.stage: dict(b.shifts) for b in (s.block for s in made.schedule.state.sites)}
    assert shifts["x_local"] == {}
    assert sum(shifts["y"].values()) > 0
    examine(made, draw_inputs(made.workload, 5), "python")


@pytest.mark.parametrize(
    ("statement", "shape", "blocks"),
    [
        ("y[0, n] = max(t[n], 0)", "float32[1, 40]", True),
        ("y[0, 0] += t[n]", "float32[1, 1]", False),
        ("y[39 - n] = max(t[n], 0)", "float32[40]", False),
    ],
    ids=["a constant index beside a loop", "no loop", "a loop backwards"],
)
def test_dimensions_without_a_loop_of_their_own_have_no_blocks(
    statement: str, shape: str, blocks: bool
) -> None:
    tensors = {"x": "float32[40]", "t": "float32[40]", "y": shape}
    compute = ["t[n] = x[n] * 2", statement]
    given = parse_workload({"name": "k", "tensors": tensors, "compute": compute})
    assert (fused(start(given)) is not None) == blocks


def test_slots_without_room_are_not_compiled() -> None:
    """What is left out for its room alone would be refused for that."""
    layers = start(workload("mlp", M=1024))
    schedule = begun(layers, Sketch(0, 128))
    completion = fusing.Completion(schedule, fusing.DEFAULTS, layers)
    loops = Sketch(0, 128).loops(schedule)
    plain = compile_tree(
        completion.written(fusing.Choice(loops, "whole", completion.covers(loops)[0]))
    )
    (band,) = pipelining._bands(plain.schedule.resolved)
    body = pipelining._body(plain, band)
    assert body is not None
    whole = body.with_loads([*pipelining._loaded_once(plain, body, band)])
    loads = len(whole.blocks) - len(body.blocks)
    assert loads
    ranked = [(body, d) for _, d in body.ranked]
    ranked += [(whole, (*d, *[-1] * loads)) for _, d in ranked]
    left_out: Counter[bool] = Counter()
    for (made, delays), spare in product(ranked, (0, 1, 2)):
        slots = made.needed(delays, spare)
        if not pipelining._fits(plain, made, slots, delays):
            left_out[made is whole] += 1
            with pytest.raises(HwgenError) as error:
                compile_tree(pipelining._shifted(plain.schedule, made, band, delays, slots))
            assert error.value.code == "H502"
    assert left_out[True] >= left_out[False] > 0


def test_operands_come_and_results_leave_in_pieces() -> None:
    """Of a short kernel, the first products begin with a part of the keys, and the last results
    are stored while others are computed; what is foretold to gain nothing is not compiled."""
    plain = _in_rows(workload("attention"))
    whole = PipelineCandidate(plain).pipelined()
    found = in_pieces(whole)
    assert found.kernel.cycles < 0.97 * whole.kernel.cycles
    assert {(p.source, p.target) for p in found.pieces} == {("k_local", "s"), ("y_local", "y")}
    examine(found.kernel, draw_inputs(found.kernel.workload, 3), "python")
    check_minimal(found.kernel.program, found.kernel.hardware)
    again = in_pieces(found)
    assert again.kernel.cycles <= found.kernel.cycles
    assert in_pieces(replace(found, body=None)).kernel is found.kernel


def test_pieces_that_no_loop_has_are_refused() -> None:
    found = in_pieces(PipelineCandidate(_in_rows(workload("attention"))).pipelined())
    schedule = found.plain.schedule.copy()
    with pytest.raises(HwgenError, match="in 7 pieces") as refused:
        hand_over(schedule, replace(found.pieces[0], count=7), found.band)
    assert refused.value.code == "H413"


def _in_rows(given: Workload) -> Kernel:
    """A kernel whose stages share a loop over blocks of 16 rows."""
    schedule = begun(start(given), Sketch(0, 16))
    completion = fusing.Completion(schedule, fusing.DEFAULTS, start(given))
    loops = Sketch(0, 16).loops(schedule)
    return compile_tree(
        completion.written(fusing.Choice(loops, "whole", completion.covers(loops)[0]))
    )


def test_heads_are_outside_of_rows_where_each_has_its_keys() -> None:
    """Of rows of all heads, each block would need all keys again; what all heads share stays."""
    heads = load_workload(BENCHMARKS / "multi_head_attention.yaml", {"L": 64, "A": 2, "D": 16})
    assert fusing._apart(start(heads), Sketch(0, 8)) == (1,)
    assert fusing._apart(start(workload("attention", L=64)), Sketch(0, 8)) == ()
    text = {
        "name": "shared",
        "tensors": {"x": "float32[64, 2, 16]", "w": "float32[16, 16]", "s": "float32[64, 2, 16]",
                    "y": "float32[64, 2, 16]"},
        "compute": ["s[i, a, d] += x[i, a, k] * w[k, d]", "y[i, a, d] = max(s[i, a, d], 0)"],
    }  # fmt: skip
    assert fusing._apart(start(parse_workload(text)), Sketch(0, 8)) == ()


@THOROUGH
def test_heads_one_after_the_other_are_right() -> None:
    heads = load_workload(BENCHMARKS / "multi_head_attention.yaml", {"L": 40, "A": 2, "D": 16})
    schedule = begun(start(heads), Sketch(0, 8, outer=(1,)))
    assert schedule is not None
    assert schedule.get_loops("y")[0] == "y_a_o"
    made = complete_script(heads, NPU, schedule.trace(), options=QUICK)
    assert made.script.startswith(schedule.trace())
    examine(made, draw_inputs(heads, 1))


# Sibling results


def products(rows: int, *widths: int) -> Workload:
    """Products of one input with weights of some widths, each a result."""
    tensors = {"x": f"float32[{rows}, 64]"}
    compute: list[str | dict[str, object]] = []
    for n, width in enumerate(widths):
        tensors |= {f"w{n}": f"float32[{width}, 64]", f"y{n}": f"float32[{rows}, {width}]"}
        compute.append(f"y{n}[m, f] += x[m, k] * w{n}[f, k]")
    return parse_workload({"name": "products", "tensors": tensors, "compute": compute})


def test_products_of_one_input_load_it_once() -> None:
    """By a script of twelve lines it takes 89,440 cycles, one after the other 107,550."""
    found = compile_workload(products(1024, 128, 128), NPU)
    moved, once = offchip_bytes(found)
    assert moved == once
    assert found.cycles <= 88_000


@pytest.mark.parametrize("widths", [(32, 32), (64, 24, 40)], ids=str)
def test_sibling_results_are_right(widths: tuple[int, ...]) -> None:
    found = fused(Start(products(96, *widths), NPU))
    assert found is not None
    assert found.cycles < compile_kernel(products(96, *widths), NPU).cycles
    examine(found, draw_inputs(found.workload, 1), "both")


def test_results_without_an_input_in_common_loop_over_the_same_dimension() -> None:
    tensors = {"a": "float32[64, 32]", "b": "float32[64, 32]"}
    tensors |= {"p": "float32[64, 32]", "q": "float32[64, 32]"}
    compute = ["p[i, j] = max(a[i, j], 0)", "q[i, j] = max(b[i, j], 0)"]
    given = parse_workload({"name": "apart", "tensors": tensors, "compute": compute})
    made = begun(Start(given, NPU), Sketch(1, 8))
    assert [made.get_loops(n)[0] for n in ("p", "q")] == ["q_j_o", "q_j_o"]


@pytest.mark.parametrize(
    ("result", "value", "sketch"),
    [
        ("p[i]", "+= a[i, j]", Sketch(1, 4)),  # It has one dimension.
        ("p[i, j]", "= a[i, i]", Sketch(1, 4, outer=(0,))),  # One loop reads in both places.
    ],
    ids=str,
)
def test_results_without_loops_alike_share_none(result: str, value: str, sketch: Sketch) -> None:
    shape = "float32[8, 8]" if "," in result else "float32[8]"
    tensors = {"a": "float32[8, 8]", "p": shape, "q": "float32[8, 8]"}
    compute = [f"{result} {value}", "q[i, j] = max(a[i, j], 0)"]
    given = parse_workload({"name": "unlike", "tensors": tensors, "compute": compute})
    with pytest.raises(HwgenError) as caught:
        begun(Start(given, NPU), sketch)
    assert caught.value.code == "H413"
