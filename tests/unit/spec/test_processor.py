"""Processors, resolved: the shipped ones, pointer operands, and templates that render."""

from __future__ import annotations

from pathlib import Path

import pytest

from hwgen.codegen.templates import Fields, render
from hwgen.report.chip import summary
from hwgen.spec.hardware import HardwareSpec
from hwgen.spec.load import load_hardware
from hwgen.spec.processor import Processor
from hwgen.spec.ranges import Range

ROOT = Path(__file__).parents[3]
CPU = ROOT / "hw_specs/cpu_generic.yaml"
CUDA = ROOT / "hw_specs/cuda_generic.yaml"
GEMV = ROOT / "tests/specs/cpu_gemv.yaml"


def processor(path: Path, parameters: dict[str, int] | None = None) -> Processor:
    found = load_hardware(path, parameters).processor
    assert found is not None
    return found


def test_a_processor_alone_has_no_units() -> None:
    for path in (CPU, CUDA, GEMV):
        chip = load_hardware(path)
        assert (chip.units, chip.buses, chip.tokens) == ((), (), None)
        assert chip.memories == chip.of_kind("workspace")


def test_the_cpu_follows_its_parameters() -> None:
    chip = load_hardware(CPU, {"CORES": 7, "VECTOR_BYTES": 64})
    cpu = chip.machine
    assert (cpu.workers, cpu.lanes_bytes, cpu.default_memory) == (7, 64, "heap")
    line = render(cpu.loop["parallel"].emit, {"CORES": 7, "extent": 9, "variable": "i"}, None, "")
    assert "num_threads(7)" in line
    assert chip.memory["heap"].capacity_bytes == 0
    assert chip.memory["stack"].capacity_bytes == 256 << 10
    assert [c.shared_by for c in cpu.caches] == ["thread", "thread", "kernel"]


def test_the_heap_rounds_sizes_up_to_its_alignment() -> None:
    heap = load_hardware(CPU).memory["heap"]
    buffer = {"type": "float", "name": "x", "elements": 17, "bytes": 68}
    text = render(heap.allocate, buffer, None, "")
    assert text.startswith("float *x = (float *)aligned_alloc(64, 128);")
    assert render(heap.free, buffer, None, "") == "free(x);"


def test_limits_of_the_gpu() -> None:
    gpu = processor(CUDA)
    extents = {x.name: x.extent.maximum for x in gpu.loops if x.kind == "bind"}
    assert extents == {
        "blockIdx.x": 2**31 - 1, "blockIdx.y": 65535, "blockIdx.z": 65535,
        "threadIdx.x": 1024, "threadIdx.y": 1024, "threadIdx.z": 64,
    }  # fmt: skip
    assert (gpu.threads, gpu.warp, gpu.language, gpu.suffix) == (1024, 32, "c++", ".cu")
    shared = load_hardware(CUDA).memory["shared"]
    assert (shared.shared_by, shared.capacity_bytes) == ("block", 48 << 10)
    assert shared.banks is not None
    assert (shared.banks.ways, shared.banks.run) == (32, 4)
    assert "vectorize" not in gpu.loop
    assert {x.name for x in gpu.loops if x.reduces} == {"threadIdx.x", "threadIdx.y", "threadIdx.z"}


def test_a_launch_lists_every_coordinate_in_order() -> None:
    gpu = processor(CUDA)
    assert [x.name for x in gpu.coordinates("block")] == ["blockIdx.x", "blockIdx.y", "blockIdx.z"]
    values = {"name": "run", "arguments": "a, b", "blocks": (4, 2, 1), "threads": (32, 1, 1)}
    text = render(gpu.launch, values, None, "")
    assert text.startswith("run<<<dim3(4, 2, 1), dim3(32, 1, 1)>>>(a, b);")


def test_operands_in_any_memory() -> None:
    gemv = load_hardware(GEMV).intrinsic["gemv"]
    found = {o.name: (o.memory, o.access, o.shape, o.strides) for o in gemv.operands}
    one = Range(1, 1)
    assert found == {
        "y": ("", "update", (16,), (one,)),
        "a": ("", "read", (16, 64), (Range(0, (1 << 48) - 1), one)),
        "x": ("", "read", (64,), (one,)),
    }
    assert gemv.unit == ""
    values: dict[str, object] = {
        name: Fields({"pointer": f"{name}0", "stride": strides})
        for name, strides in (("y", ("1",)), ("a", ("640", "1")), ("x", ("1",)))
    }
    assert render(gemv.emit, values, None, "") == "gemv_16x64(y0, a0, x0, 640);"


def test_operands_without_strides_are_dense() -> None:
    chip = load_hardware(ROOT / "tests/error/spec_valid_processor.yaml", {"N": 4})
    dot = chip.intrinsic["dot"]
    assert dot.operand("y").strides == (Range(1, 1),)
    assert dot.operand("a").strides == (Range(1, 4),)


@pytest.mark.parametrize(
    ("path", "words"),
    [
        (CPU, ("heap (default)", "vectorize", "4 workers", "262,144")),
        (CUDA, ("1024 threads a block in warps of 32", "32 x 4 bytes", "1..65535")),
        (GEMV, ("intrinsics: gemv",)),
    ],
    ids=["cpu", "cuda", "gemv"],
)
def test_a_summary_names_what_is_there(path: Path, words: tuple[str, ...]) -> None:
    chip: HardwareSpec = load_hardware(path)
    text = summary(chip)
    assert "unit " not in text
    for word in words:
        assert word in text
