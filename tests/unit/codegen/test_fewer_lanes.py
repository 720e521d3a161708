"""Loops that end inside a block of lanes: fewer lanes in the last block, and nothing padded."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.whole import simulate_timing
from hwgen.codegen.nodes import Call, Node, calls, rewritten
from hwgen.codegen.program import Program
from hwgen.errors import HwgenError
from hwgen.model.bound import lower_bound
from hwgen.model.columns import off_chip_traffic
from hwgen.model.functional import run
from hwgen.model.reference import run_reference
from hwgen.model.timing import estimate_cycles
from hwgen.passes import phase
from hwgen.passes.kernel import Kernel
from hwgen.pipeline import SearchOptions, compile_kernel
from hwgen.polyhedral.search.bound import least_work
from hwgen.spec.expression import Const
from hwgen.spec.hardware import HardwareSpec
from hwgen.spec.load import load_hardware, load_workload, parse_workload
from hwgen.verify.check_program import check_program
from hwgen.verify.data import first_difference, random_inputs
from tests.fuzz.edits import catch
from tests.fuzz.mutations_lanes import lane_mutations
from tests.sampling import QUICK, THOROUGH, WHOLE

ROOT = Path(__file__).parents[3]
SPEC = ROOT / "hw_specs" / "gemmini.yaml"
GEMM = ROOT / "tests" / "gemmini" / "workloads" / "gemm_full.yaml"
CHIP = load_hardware(SPEC)


def compiled(hardware: HardwareSpec = CHIP, options: SearchOptions = QUICK, **sizes: int) -> Kernel:
    found = compile_kernel(load_workload(GEMM, sizes), hardware, options=options)
    assert found.parts
    return found


def check(c: Kernel) -> None:
    """Right, with every rule of the calls, and as fast as the operations one by one."""
    check_program(c.program, c.hardware, c.workload)
    inputs = random_inputs(c.workload, 0)
    shapes = {t.name: t.shape for t in c.workload.outputs}
    outputs = run(c.program, c.hardware, inputs, shapes=shapes).outputs
    difference = first_difference(outputs, run_reference(c.workload, inputs))
    assert difference is None, str(difference)
    timing = simulate_timing(c.program, c.hardware)
    assert estimate_cycles(c.program, c.hardware).cycles == timing.cycles
    assert lower_bound(c.program, c.hardware).cycles <= timing.cycles


def without_range(tmp_path: Path, line: str, plain: str) -> HardwareSpec:
    """The chip with one iterator whose lanes always take part all."""
    text = SPEC.read_text()
    assert text.count(line) >= 1
    (tmp_path / "chip.yaml").write_text(text.replace(line, plain, 1))
    return load_hardware(tmp_path / "chip.yaml")


extents = st.one_of(st.integers(1, 40), st.sampled_from((47, 63, 65, 100)))


@THOROUGH
@given(m=extents, n=extents, k=extents)
@settings(max_examples=8, deadline=None)
def test_tensors_of_any_size_stay_where_they_are(m: int, n: int, k: int) -> None:
    c = compiled(M=m, N=n, K=k)
    check(c)
    if not all(i.in_place for i in c.program.images):
        assert "j<-m" in str(c.match)  # Faster, even when the host's work is counted.
        return
    for moved in off_chip_traffic(c.program, c.hardware, c.workload):
        assert moved.loaded + moved.stored >= moved.size
        assert (moved.loaded + moved.stored) % moved.size == 0 or moved.role == "input"


def test_each_call_has_all_lanes_or_those_of_the_last_block() -> None:
    c = compiled(options=WHOLE, M=14, N=34, K=36)
    check(c)
    assert dict(c.match.tails) == {"k": 4, "n": 2}
    assert all(i.in_place for i in c.program.images)
    seen = {(call.intrinsic, call.lanes) for call in calls(c.program.body)}
    products = {lanes for name, lanes in seen if name.startswith("matmul")}
    assert products == {(), (2, 16), (16, 4), (2, 4)}
    assert {lanes for name, lanes in seen if name == "mvin"} == {(), (4,), (2,)}
    assert {lanes for name, lanes in seen if name == "mvout_full"} == {(), (2,)}
    traffic = {
        t.tensor: t.loaded + t.stored for t in off_chip_traffic(c.program, c.hardware, c.workload)
    }
    assert traffic == {"a": 14 * 36, "b": 36 * 34, "c": 4 * 14 * 34}


def test_a_loop_of_extent_one_takes_one_lane() -> None:
    c = compiled(options=WHOLE, M=40, N=1, K=64)
    check(c)
    assert c.match.single
    assert all(i.in_place for i in c.program.images)
    assert {call.lanes for call in calls(c.program.body) if "matmul" in call.intrinsic} == {(1, 16)}


def test_operands_that_share_a_storage_agree_on_its_blocks() -> None:
    """The vector times itself: one operand reads a row of it, the other a block of rows."""
    text = {"name": "square", "sizes": {"M": 1, "K": 5}, "tensors": {"a": "int8[M, K]",
            "c": "int32[M, M]"}, "compute": ["c[m, n] += a[m, k] * a[n, k]"]}  # fmt: skip
    with pytest.raises(HwgenError) as found:
        compile_kernel(parse_workload(text), CHIP, options=QUICK)
    assert found.value.code == "H302"
    assert "a_spad" in found.value.diagnostic.found


def test_entries_off_chip_are_elements(tmp_path: Path) -> None:
    """Cycles of each entry written, in the bound as in the timing model."""
    old = "write: {latency_cycles: WRITE_LATENCY,"
    text = SPEC.read_text()
    assert old in text
    (tmp_path / "chip.yaml").write_text(text.replace(old, f"{old} cycles_per_entry: 3,"))
    slow = load_hardware(tmp_path / "chip.yaml")
    for m, n, k in ((16, 64, 16), (5, 19, 9)):
        c = compiled(slow, M=m, N=n, K=k)
        check(c)
        writes = 3 * m * n
        assert dict(lower_bound(c.program, slow).per_resource)["unit store"] == writes


def test_no_schedule_takes_less_than_the_floor_of_its_match() -> None:
    for m, n, k in ((300, 1, 16), (100, 17, 1), (9, 33, 5)):
        c = compiled(options=QUICK, M=m, N=n, K=k)
        assert least_work(CHIP, c.match) <= c.cycles


def test_configurations_may_name_lanes(tmp_path: Path) -> None:
    old = "\"{{ i.stride.a if i.stride.a != '0' else 1 }}\""
    text = SPEC.read_text()
    assert old in text
    (tmp_path / "chip.yaml").write_text(text.replace(old, '"{{ j.extent }}"'))
    c = compiled(load_hardware(tmp_path / "chip.yaml"), M=5, N=19, K=9)
    check(c)
    assert set(re.findall(r"configure array\[0\]: row_step=(\d+)", str(c.program))) == {"16", "3"}


def test_what_the_host_packs_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel that exchanges rows and columns is faster here, but the host packs all of it."""
    careful = compiled(options=WHOLE, M=7, N=17, K=48)
    assert all(i.in_place for i in careful.program.images)

    def idle(*_: object) -> int:
        return 0

    monkeypatch.setattr(phase, "_host_bytes", idle)
    careless = compiled(options=WHOLE, M=7, N=17, K=48)
    assert not any(i.in_place for i in careless.program.images)
    packed = sum(i.bytes for i in careless.program.images)
    beat = CHIP.bus["dma"].beat_bytes
    assert careless.cycles < careful.cycles <= careless.cycles + 2 * packed // beat


def test_whole_blocks_need_no_fewer() -> None:
    c = compiled(M=30, N=48, K=96)
    assert not c.match.tails
    assert not any(call.lanes for call in calls(c.program.body))


@pytest.mark.parametrize(
    ("line", "plain"),
    [
        pytest.param(
            "iterators: {j: 1..DIM, k: 1..DIM}", "iterators: {j: DIM, k: 1..DIM}", marks=THOROUGH
        ),
        pytest.param(
            "iterators: {j: 1..DIM, k: 1..DIM}", "iterators: {j: 1..DIM, k: DIM}", marks=THOROUGH
        ),
        ("iterators: {c: 1..DIM}", "iterators: {c: DIM}"),
    ],
    ids=["columns", "depth", "loads"],
)
def test_all_calls_end_inside_a_block_or_none(tmp_path: Path, line: str, plain: str) -> None:
    """One intrinsic that always does all lanes: what it touches is padded, for all of them."""
    chip = without_range(tmp_path, line, plain)
    c = compiled(chip, WHOLE, M=14, N=34, K=36)
    check(c)
    tails = dict(c.match.tails)
    whole = {"j: DIM": {"k"}, "k: DIM": {"n"}, "c: DIM": set[str]()}
    assert set(tails) == next(kept for text, kept in whole.items() if text in plain)
    in_place = {i.tensor for i in c.program.images if i.in_place}
    # With tails along k, `a` stays as it is; `b` is packed once.
    assert in_place == ({"c"} if tails == {"n": 2} else {"a"} if tails == {"k": 4} else set())


def _with_lanes(program: Program, intrinsic: str, lanes: tuple[int, ...]) -> Program:
    def edit(node: Node) -> tuple[Node, ...]:
        chosen = isinstance(node, Call) and node.intrinsic == intrinsic
        return (replace(node, lanes=lanes) if chosen else node,)

    return replace(program, body=rewritten(program.body, edit))


@pytest.mark.parametrize("lanes", [(17,), (0,), (16, 16)], ids=str)
def test_lanes_without_a_field_are_refused(lanes: tuple[int, ...]) -> None:
    c = compiled(M=16, N=16, K=16)
    wrong = _with_lanes(c.program, "mvin", lanes)
    with pytest.raises(HwgenError) as found:
        check_program(wrong, c.hardware)
    assert found.value.code == "H744"
    with pytest.raises(HwgenError) as found:
        run(wrong, c.hardware, random_inputs(c.workload, 0))
    assert found.value.code == ("H714" if len(lanes) == 1 else "H728")


def test_a_loop_that_needs_all_lanes_is_refused() -> None:
    c = compiled(M=16, N=64, K=64)
    blocks = [
        call
        for call in calls(c.program.body)
        if call.intrinsic == "mvin" and call.extents[-1] != Const(1)
    ]
    assert blocks
    wrong = _with_lanes(c.program, "mvin", (3,))
    with pytest.raises(HwgenError) as found:
        check_program(wrong, c.hardware)
    assert found.value.code == "H744"
    with pytest.raises(HwgenError) as found:
        run(wrong, c.hardware, random_inputs(c.workload, 0))
    assert found.value.code == "H714"


@pytest.mark.parametrize("number", [0, 1])
def test_planted_defects_are_found(number: int) -> None:
    c = compiled(M=5, N=18, K=35)
    inputs = random_inputs(c.workload, 0)
    mutation = lane_mutations(c.hardware)[number]
    for seed in range(12):
        mutant = mutation.mutate(c.program, seed)
        assert mutant is not None
        assert catch(mutant, c.hardware, c.workload, inputs) in mutation.caught_by
