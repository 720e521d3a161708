"""The shipped chip, resolved: facts, parameters, JSON, and what `dense` and aliases mean."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hwgen.errors import HwgenError
from hwgen.spec.expression import Access, Assign, Const, evaluate
from hwgen.spec.hardware import HardwareSpec, Immediate, StrideRule
from hwgen.spec.load import load_hardware, parse_hardware
from hwgen.spec.ranges import Range
from hwgen.spec.source import read_document

ROOT = Path(__file__).parents[3]
VTA = ROOT / "hw_specs/vta.yaml"
TINY = ROOT / "tests/error/spec_valid.yaml"


@pytest.fixture(scope="module")
def vta() -> HardwareSpec:
    return load_hardware(VTA)


@pytest.mark.parametrize("batch", [1, 2, 4])
def test_vta_memories(batch: int) -> None:
    vta = load_hardware(VTA, {"BATCH": batch})
    assert dict(vta.parameters)["BATCH"] == batch
    found = {
        m.name: (m.entry_shape, m.entry_bytes, m.capacity_entries)
        for m in vta.of_kind("scratchpad")
    }
    assert found == {
        "inp": ((batch, 16), 16 * batch, 2048 // batch),
        "wgt": ((16, 16), 256, 1024),
        "acc": ((batch, 16), 64 * batch, 2048 // batch),
    }
    gemm = vta.intrinsic["gemm"]
    assert gemm.iterators == (("b", batch), ("o", 16), ("i", 16))
    assert [(o.name, o.dtype, o.access, o.shape) for o in gemm.operands] == [
        ("dst", "int32", "update", (batch, 16)),
        ("src", "int8", "read", (batch, 16)),
        ("wgt", "int8", "read", (16, 16)),
    ]


def test_vta_costs_and_limits(vta: HardwareSpec) -> None:
    def cycles(name: str, **values: int) -> int | float:
        return evaluate(vta.intrinsic[name].cycles, values)

    assert cycles("gemm", iterations=256) == 263
    assert cycles("reset", iterations=16) == 23
    assert cycles("add", iterations=16) == 39
    assert cycles("max_imm", iterations=16) == 23
    assert cycles("load_inp", transfer=100) == 105
    gemm = vta.intrinsic["gemm"]
    assert [loop.extent for loop in gemm.loops] == [Range(1, 16383)] * 2
    assert gemm.loops[0].stride("wgt") == StrideRule(Range(0, 1023))
    assert gemm.operand("dst").address == Range(0, 2047)
    assert gemm.micro_kernel is not None
    assert gemm.micro_kernel.capacity_operations == 2048
    assert gemm.micro_kernel.rewrite_distance == 3
    bus = vta.bus["axi"]
    assert (bus.read.latency_cycles, bus.write.latency_cycles) == (20, 21)
    assert (bus.beat_bytes, bus.burst_beats, bus.burst_boundary_bytes) == (8, 16, 128)
    assert vta.fetch is not None
    assert (vta.fetch.first_cycles, vta.fetch.group_cycles) == (38, 47)
    assert vta.completion is not None
    assert vta.completion.wait_units == ("store", "load")


def test_merged_intrinsics_keep_their_own_fields(vta: HardwareSpec) -> None:
    kernels = {n: vta.intrinsic[n].micro_kernel for n in ("add_imm", "max_imm", "shr_imm")}
    values = {n: dict(k.values)["opcode"] for n, k in kernels.items() if k}
    assert values == {"add_imm": 2, "max_imm": 1, "shr_imm": 3}
    assert vta.intrinsic["max_imm"].immediates[0].range == Range(-32768, 32767)
    assert vta.intrinsic["shr_imm"].immediates[0].range == Range(0, 31)
    assert vta.intrinsic["max_imm"].unit == "compute"
    assert vta.intrinsic["max_imm"].result_latency_iterations == 2
    assert str(vta.intrinsic["max_imm"].semantics[0]) == "dst[b, o] = max(src[b, o], imm)"
    assert vta.intrinsic["max_imm"].operand("src").same_as == "dst"


def test_operands_without_an_index_are_single_elements() -> None:
    npu = load_hardware(ROOT / "hw_specs/npu_shared_buffer.yaml")
    lowest, scaled = npu.intrinsic["lowest"], npu.intrinsic["mul_imm"]
    assert npu.memory["local"].entry_shape == ()
    assert lowest.iterators == ()
    assert lowest.semantics[0] == Assign(Access("dst", ()), "=", Const(float("-inf")))
    assert [o.shape for o in scaled.operands] == [(), ()]
    assert [o.access for o in scaled.operands] == ["write", "read"]
    assert npu.intrinsic["row_max"].operand("dst").access == "update"
    assert scaled.immediates == (Immediate("imm", "float32", None),)


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("float32", Immediate("imm", "float32", None)),
        ("float32, range: -1..1", Immediate("imm", "float32", Range(-1, 1))),
        ("float16", Immediate("imm", "float16", None, exact=True)),
        ("bfloat16", Immediate("imm", "bfloat16", None, exact=True)),
        ("float64", Immediate("imm", "float64", None)),
    ],
)
def test_floating_immediates(tmp_path: Path, written: str, expected: Immediate) -> None:
    text = (ROOT / "hw_specs/npu_shared_buffer.yaml").read_text(encoding="utf-8")
    text = text.replace("{imm: {dtype: float32}}", f"{{imm: {{dtype: {written}}}}}", 1)
    if expected.dtype == "float64":
        text = text.replace("dtype: float32", "dtype: float64")
    path = tmp_path / "chip.yaml"
    path.write_text(text, encoding="utf-8")
    (found,) = load_hardware(path).intrinsic["add_imm"].immediates
    assert found == expected
    assert found.admits(0.5)
    assert found.admits(1e30) is (expected.range is None)
    assert not found.admits(float("inf"))
    assert found.allowed == ("-1..1" if expected.range else f"any finite {expected.dtype}")


def test_dense_refers_to_the_next_inner_loop(vta: HardwareSpec) -> None:
    outer, inner = vta.intrinsic["load_wgt"].loops
    assert outer.stride("dst") == StrideRule(Range(1, 65535), dense_after="x")
    assert outer.stride("src") == StrideRule(Range(0, 65535))
    assert inner.stride("dst") == StrideRule(Range(1, 1))


def test_access_of_operands(vta: HardwareSpec) -> None:
    access = {i.name: {o.name: o.access for o in i.operands} for i in vta.intrinsics}
    assert access["load_inp"] == {"dst": "write", "src": "read"}
    assert access["reset"] == {"dst": "write"}
    assert access["add"] == {"dst": "update", "src": "read"}
    assert access["shr_imm"] == {"dst": "write", "src": "read"}


def test_parameters_reach_every_number() -> None:
    vta = load_hardware(
        VTA, {"READ_LATENCY": 100, "WRITE_LATENCY": 7, "BLOCK_IN": 32, "BLOCK_OUT": 8}
    )
    assert vta.bus["axi"].read.latency_cycles == 100
    assert vta.bus["axi"].write.latency_cycles == 8
    assert vta.fetch is not None
    assert vta.fetch.group_cycles == 127
    assert vta.memory["wgt"].entry_shape == (8, 32)
    assert dict(vta.intrinsic["gemm"].iterators) == {"b": 1, "o": 8, "i": 32}


def test_parameters_may_depend_on_parameters() -> None:
    data = read_document(TINY).data
    assert isinstance(data, dict)
    data["parameters"] = {"LOG": {"value": 3, "range": "0..6"}, "N": "1 << LOG", "M": "2*N"}
    assert parse_hardware(data).parameters == (("LOG", 3), ("N", 8), ("M", 16))
    changed = parse_hardware(data, {"LOG": 4})
    assert changed.parameters == (("LOG", 4), ("N", 16), ("M", 32))
    assert changed.memory["acc"].entry_shape == (16,)
    assert parse_hardware(data, {"N": 4}).parameters == (("LOG", 3), ("N", 4), ("M", 8))


def test_json_equals_yaml(tmp_path: Path, vta: HardwareSpec) -> None:
    path = tmp_path / "vta.json"
    path.write_text(json.dumps(read_document(VTA).data, indent=2), encoding="utf-8")
    assert load_hardware(path) == vta
    assert load_hardware(path, {"BATCH": 2}) != vta


def test_errors_in_plain_data_name_the_field() -> None:
    data = read_document(TINY).data
    assert isinstance(data, dict)
    data["units"] = {"dma": {"queue_entries": -1}, "alu": {}}
    with pytest.raises(HwgenError) as caught:
        parse_hardware(data)
    assert caught.value.diagnostic.field == "units.dma.queue_entries"
    assert caught.value.code == "H026"


def test_priority_defaults_to_the_order_of_the_file() -> None:
    text = TINY.read_text(encoding="utf-8").replace("    priority: [load]\n", "")
    from hwgen.spec.source import parse_document

    data = parse_document(text, "tiny.yaml").data
    assert isinstance(data, dict)
    assert parse_hardware(data).bus["axi"].priority == ("fetch", "load")


def test_addresses_default_to_the_whole_memory() -> None:
    tiny = load_hardware(TINY)
    assert tiny.intrinsic["clear"].operand("dst").address == Range(0, 127)
    assert tiny.memory["acc"].capacity_entries == 128


@pytest.mark.parametrize(
    ("memory", "code", "valid"),
    [
        ("shared: true", "", False),
        ("shared: true", '  epilogue: " "\n', False),
        ("shared: true", '  epilogue: "fence();"\n', True),
        ("shared: true", '  epilogue: "/* calls return when done */"\n', True),
        ("shared: true", '  handle_type: "handle "\n', True),  # a copy follows the calls
        ("shared: false", "", True),
    ],
)
def test_results_in_place_are_waited_for(
    memory: str, code: str, valid: bool, tmp_path: Path
) -> None:
    text = TINY.read_text(encoding="utf-8")
    text = text.replace("kind: offchip,", f"kind: offchip, {memory},").replace(
        "code:\n", f"code:\n{code}"
    )
    assert f", {memory}," in text
    spec = tmp_path / "tiny.yaml"
    spec.write_text(text, encoding="utf-8")
    if valid:
        load_hardware(spec)
        return
    with pytest.raises(HwgenError) as caught:
        load_hardware(spec)
    assert caught.value.code == "H145"


@pytest.mark.parametrize(
    ("text", "hertz"),
    [("1 GHz", 1e9), ("1.5 MHz", 1.5e6), ("32 kHz", 32e3), ("N*100Hz", 800.0), ("1 / 4 GHz", 25e7)],
)
def test_a_clock_has_a_unit_and_may_be_an_expression(
    tmp_path: Path, text: str, hertz: float
) -> None:
    file = tmp_path / "chip.yaml"
    given = TINY.read_text(encoding="utf-8")
    file.write_text(given.replace("name: tiny\n", f"name: tiny\nclock: {text}\n"), "utf-8")
    assert load_hardware(file).clock_hz == hertz
    assert load_hardware(TINY).clock_hz is None


@pytest.mark.parametrize(
    ("text", "code"),
    [("1", "H032"), ("'1'", "H109"), ("1 ghz", "H109"), ("0 MHz", "H026"), ("inf Hz", "H026"),
     ("GHz", "H020"), ("M MHz", "H025"), ("1..2 GHz", "H024")],
)  # fmt: skip
def test_a_clock_that_is_none_is_refused(tmp_path: Path, text: str, code: str) -> None:
    file = tmp_path / "chip.yaml"
    given = TINY.read_text(encoding="utf-8")
    file.write_text(given.replace("name: tiny\n", f"name: tiny\nclock: {text}\n"), "utf-8")
    with pytest.raises(HwgenError) as caught:
        load_hardware(file)
    assert caught.value.code == code
    assert caught.value.diagnostic.field == "clock"
