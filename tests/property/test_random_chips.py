"""Random chips under small workloads: compiled and right, or refused properly."""

from __future__ import annotations

import copy
from pathlib import Path
from random import Random
from typing import cast

import pytest

from hwgen.errors import HwgenError
from hwgen.pipeline import compile_kernel
from hwgen.polyhedral.phases import split_phases
from hwgen.spec.load import parse_hardware, parse_workload
from hwgen.spec.source import read_document
from hwgen.verify.natural.draws import Pick, Spec
from tests.fuzz.chips.campaign import chip_campaign
from tests.fuzz.chips.draw import bare, draw_of, random_chip
from tests.fuzz.chips.elements import element_chip
from tests.fuzz.chips.examine import check
from tests.fuzz.chips.phases import phased_workload
from tests.fuzz.chips.sync import KINDS, synchronise_otherwise
from tests.fuzz.chips.used import FEATURES
from tests.fuzz.report import chips_text
from tests.property.oracle import judge, read
from tests.sampling import THOROUGH, examples, tiered

ROOT = Path(__file__).parents[2]
VTA = ROOT / "hw_specs" / "vta.yaml"
SHIPPED = cast(Spec, read_document(VTA).data)

GEMM: Spec = {
    "name": "gemm",
    "sizes": {"M": 17, "N": 33, "K": 40},
    "tensors": {"a": "int8[M, K]", "b": "int8[N, K]", "s": "int32[M, N]", "y": "int8[M, N]"},
    "compute": ["s[m, n] += a[m, k] * b[n, k]", "y[m, n] = int8(s[m, n])"],
}
ROWS: Spec = {
    "name": "rows",
    "sizes": {"M": 17, "K": 40},
    "tensors": {"a": "int8[M, K]", "s": "int32[M]", "y": "int8[M]"},
    "compute": ["s[m] += max(a[m, k], 0)", "y[m] = int8(s[m])"],
}


def chip() -> Spec:
    return bare(copy.deepcopy(SHIPPED))


@pytest.mark.parametrize("entries", [1, 2, 3, 7])
def test_memories_of_a_few_entries(entries: int) -> None:
    spec = chip()
    for name, memory in spec["memories"].items():
        if memory["kind"] == "scratchpad":
            memory["size"] = entries * {"inp": 16, "wgt": 256, "acc": 64}[name]
    assert judge(parse_workload(GEMM), parse_hardware(spec)) == ""


def test_a_tile_that_does_not_fit_is_named() -> None:
    spec = chip()
    spec["memories"]["acc"]["size"] = 64
    with pytest.raises(HwgenError) as caught:
        compile_kernel(parse_workload(ROWS), parse_hardware(spec))
    assert caught.value.code == "H405"
    text = str(caught.value)
    assert "no tiling fits memory acc" in text
    assert "2 entries, 128 bytes" in text
    assert "s_acc 1" in text
    assert "a_acc 1" in text
    assert "1 entries, 64 bytes" in text


@pytest.mark.parametrize("variants", [1, 2, 99])
@pytest.mark.parametrize("operations", [8, 64])
def test_small_micro_kernel_memories(variants: int, operations: int) -> None:
    spec = chip()
    spec["micro_kernels"]["uop"] |= {
        "max_variants": variants, "capacity_operations": operations, "rewrite_distance": 1
    }  # fmt: skip
    assert judge(parse_workload(GEMM), parse_hardware(spec)) == ""


def test_result_latency_without_micro_kernels() -> None:
    spec = chip()
    del spec["micro_kernels"]
    spec["buses"]["axi"]["priority"].remove("load_uop")
    for intrinsic in spec["intrinsics"].values():
        intrinsic.pop("micro_kernel", None)
    spec = bare(spec)
    assert judge(parse_workload(ROWS), parse_hardware(spec)) == ""


def test_one_unit_without_synchronisation() -> None:
    spec = chip()
    spec["units"] = {"compute": {}}
    spec["synchronization"] = {"kind": "none"}
    for intrinsic in spec["intrinsics"].values():
        intrinsic["unit"] = "compute"
    assert judge(parse_workload(GEMM), parse_hardware(spec)) == ""


@pytest.mark.parametrize("fields", ["7..40", "2000..2047"])
def test_address_fields_that_begin_late(fields: str) -> None:
    """Buffers start where every call on them reaches."""
    spec = chip()
    for intrinsic in spec["intrinsics"].values():
        for operand in intrinsic["operands"].values():
            if operand["memory"] == "acc":
                operand["address"] = fields
    hardware = parse_hardware(spec)
    assert judge(parse_workload(GEMM), hardware) == ""
    compiled = compile_kernel(parse_workload(GEMM), hardware)
    low, high = map(int, fields.split(".."))
    held = [b for b in compiled.program.buffers if b.memory == "acc"]
    assert held
    assert all(low <= b.base and b.base + b.entries <= high + 1 for b in held)


def test_address_fields_that_have_nothing_in_common() -> None:
    spec = chip()
    spec["intrinsics"]["gemm"]["operands"]["dst"]["address"] = "0..1023"
    spec["intrinsics"]["store_out"]["operands"]["src"]["address"] = "1024..2047"
    assert judge(parse_workload(GEMM), parse_hardware(spec)) == "H405"


def test_sums_that_can_be_stored_whole_and_loaded_again() -> None:
    """A value is not computed by way of itself, stored and loaded."""
    spec = chip()
    store = copy.deepcopy(spec["intrinsics"]["store_out"])
    store["operands"]["dst"]["dtype"] = "int32"
    store["operands"]["src"].pop("written_by")
    spec["intrinsics"]["store_acc"] = store | {"semantics": "dst[b, o] = src[b, o]"}
    times = copy.deepcopy(spec["intrinsics"]["add"])
    spec["intrinsics"]["times"] = times | {"semantics": "dst[b, o] = dst[b, o] * src[b, o]"}
    assert judge(parse_workload(GEMM), parse_hardware(bare(spec))) == ""


def test_a_load_that_is_missing_is_named() -> None:
    """Not the data types, which agree or widen."""
    spec = chip()
    del spec["intrinsics"]["load_acc"]
    spec["buses"]["axi"]["priority"].remove("load_acc")
    both = {"name": "both", "sizes": {"M": 17}, "tensors": dict.fromkeys("abd", "int8[M]")}
    workload = parse_workload(both | {"compute": ["d[m] = int8(max(a[m], b[m]))"]})
    with pytest.raises(HwgenError) as caught:
        compile_kernel(workload, parse_hardware(spec))
    assert caught.value.code == "H301"
    assert "nothing loads a (int8) into acc, where dst is" in str(caught.value)


@pytest.mark.parametrize(("size", "code"), [(16, ""), (1, "H614")])
def test_loops_that_run_at_least_twice(size: int, code: str) -> None:
    spec = chip()
    strides = dict.fromkeys(("dst", "src", "wgt"), "0..15")
    spec["intrinsics"]["gemm"]["loops"] = {"n": {"extent": "2..64", "strides": strides}}
    workload = parse_workload(GEMM, {"M": size, "N": 1, "K": 1})
    assert judge(workload, parse_hardware(spec)) == code


@pytest.mark.parametrize(
    "base", [None, pytest.param(SHIPPED, marks=THOROUGH)], ids=["invented", "variants"]
)
def test_most_chips_are_read(base: Spec | None) -> None:
    """A generator of refused chips would let every other test pass."""
    specs = [random_chip(Pick(Random(seed).choice), base) for seed in range(60)]
    assert sum(read(lambda s=s: parse_hardware(s)) is not None for s in specs) >= 45
    assert len({repr(s) for s in specs}) >= 50
    kinds = [s["synchronization"]["kind"] for s in specs]
    assert all(kinds.count(kind) >= 3 for kind in ("tokens", "barrier", "events", "scoreboard"))


def test_most_vector_chips_and_phased_workloads_are_read() -> None:
    """Most of what is drawn is read, and most of the workloads have several phases."""
    specs = [element_chip(Pick(Random(seed).choice)) for seed in range(40)]
    assert sum(read(lambda s=s: parse_hardware(s)) is not None for s in specs) >= 30
    workloads = [parse_workload(phased_workload(Random(seed).choice)) for seed in range(40)]
    assert sum(len(split_phases(w)) > 1 for w in workloads) >= 25


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_synchronisation(kind: str) -> None:
    """Some chip of each kind orders a kernel with tiles in two slots."""
    found: set[str] = set()
    for seed in range(4):
        spec = chip()
        synchronise_otherwise(spec, Pick(Random(seed).choice), kind)
        hardware = read(lambda s=spec: parse_hardware(s))
        if hardware is not None:
            found.add(judge(parse_workload(GEMM, {"M": 3, "N": 17}), hardware, seed))
    assert "" in found


RARE = {
    "padding against conflicts": (503, 1057),
    "sums in order": (11, 14),
    "tensors through off-chip memory": (219,),
    "calls of fewer lanes": (89, 91),
}
"""Features that a few draws of a hundred have, and seeds of such."""


@pytest.mark.parametrize(
    ("base", "count", "seed"),
    [
        (None, 20, 40),
        pytest.param(None, 20, 0, marks=THOROUGH),
        (VTA, 8, 0),
        pytest.param(ROOT / "tests" / "specs" / "two_stage.yaml", 5, 0, marks=THOROUGH),
    ],
    ids=lambda value: value.stem if isinstance(value, Path) else str(value or 0),
)
def test_random_chips(base: Path | None, count: int, seed: int) -> None:
    """Some; more where the environment asks for them, and by `python -m tests.fuzz chips`."""
    report = chip_campaign(examples(count), seed, base=base)
    assert report.ok, chips_text(report, Path())
    assert report.tally.count("equal") >= 0.25 * report.tally.drawn
    if base is None:
        missing = {f for f in FEATURES if not report.tally.features[f]}
        assert missing <= set(RARE)


@pytest.mark.parametrize(
    ("feature", "seeds"),
    tiered([*RARE.items()], [(f, s) for f, s in RARE.items() if "sums" in f]),
)
def test_rare_features_are_drawn(feature: str, seeds: tuple[int, ...]) -> None:
    """One of some draws at least."""
    found = [check(draw_of(seed)) for seed in seeds]
    assert all(outcome.verdict == "equal" for outcome in found)
    assert any(feature in outcome.features for outcome in found)


def test_a_sum_of_single_elements_begins() -> None:
    """Of one contribution each, in tiles of one element: no loop is its own."""
    assert check(draw_of(60139)).verdict == "equal"


def test_variants_keep_the_features_of_their_chip() -> None:
    """Runs of calls, stationary operands and state of a chip, and loops that are not its own."""
    base = cast(Spec, read_document(ROOT / "tests" / "specs" / "row_array.yaml").data)
    draws = [random_chip(Pick(Random(seed).choice), base) for seed in range(60)]
    specs = [s for s in draws if read(lambda s=s: parse_hardware(s)) is not None]
    intrinsics = [i for s in specs for i in s["intrinsics"].values()]
    original = {repr(i["loops"]) for i in base["intrinsics"].values() if "loops" in i}
    changed = [i for i in intrinsics if repr(i.get("loops")) not in original]
    assert len(specs) >= 40
    assert sum("issue" in s for s in specs) == len(specs)
    for feature in ("software_loops", "stationary", "configuration"):
        assert sum(feature in i for i in changed) >= 10
    assert len({str(i["cycles"]) for i in changed if "stationary" in i}) >= 1
    assert {len(c["registers"]) for s in specs for c in s["configurations"].values()
            if "registers" in c} >= {1, 2}  # fmt: skip


@THOROUGH
def test_most_variants_of_a_small_array_have_workloads_that_they_run() -> None:
    """What its stores make of a sum: no plain cast."""
    report = chip_campaign(examples(8), 0, base=ROOT / "tests" / "specs" / "row_array.yaml")
    assert report.ok, chips_text(report, Path())
    assert report.tally.features["stationary operands"] >= 0.2 * report.tally.drawn


def test_variants_whose_results_are_in_place_are_waited_for() -> None:
    """A chip without an epilogue gets one where its memory becomes the host's own."""
    base = cast(Spec, read_document(ROOT / "tests" / "specs" / "block_rows.yaml").data)
    assert "epilogue" not in base["code"]
    draws = [random_chip(Pick(Random(seed).choice), base) for seed in range(40)]
    shared = [s for s in draws if any("shared" in m for m in s["memories"].values())]
    assert shared
    assert all(s["code"]["epilogue"].strip() for s in shared)


def test_a_sum_whose_results_are_stored_together_is_in_their_loops() -> None:
    """These are in no loop of the stage that stores them all at once."""
    assert check(draw_of(62052)).verdict == "equal"
