"""Kernels of several phases: right, and every tensor crosses the bus once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import prod
from pathlib import Path
from types import MappingProxyType
from typing import cast

import pytest

from hwgen.errors import HwgenError
from hwgen.model.compiled import have_compiler
from hwgen.passes.kernel import Kernel
from hwgen.pipeline import compile_kernel
from hwgen.polyhedral.phases import split_phases
from hwgen.spec.expression import DTYPES
from hwgen.spec.hardware import HardwareSpec
from hwgen.spec.load import (
    load_hardware,
    load_workload,
    make_workload,
    parse_hardware,
    parse_workload,
)
from hwgen.spec.source import read_document
from hwgen.verify.check_program import check_program
from hwgen.verify.data import draw_inputs
from hwgen.verify.examine import examine
from hwgen.verify.natural.draws import Spec
from tests.sampling import QUICK, THOROUGH, tiered

ROOT = Path(__file__).resolve().parents[2]
ENGINES = ("python", "c") if have_compiler() else ("python",)

CASES: list[tuple[str, dict[str, int]]] = [
    ("linear_relu", {}),
    ("linear_relu", {"M": 7, "K": 33, "N": 17}),
    ("mlp", {}),
    ("mlp", {"M": 17, "K": 5, "H": 31, "G": 1, "N": 3}),
    ("attention", {}),
    ("attention", {"L": 19, "D": 7}),
    ("attention", {"L": 1, "D": 1}),
    ("layernorm", {}),
    ("layernorm", {"M": 3, "N": 50}),
]


def chip() -> HardwareSpec:
    return load_hardware(ROOT / "hw_specs" / "npu_shared_buffer.yaml")


def compiled(name: str, sizes: dict[str, int]) -> Kernel:
    return compile_kernel(
        load_workload(ROOT / "workloads" / f"{name}.yaml", sizes), chip(), options=QUICK
    )


@pytest.mark.parametrize(("name", "sizes"), tiered(CASES, CASES[1::4]), ids=str)
def test_each_byte_crosses_the_bus_once(name: str, sizes: dict[str, int]) -> None:
    kernel = compiled(name, sizes)
    inputs = draw_inputs(kernel.workload, 1)
    for engine in ENGINES:
        found = examine(kernel, inputs, engine)
        if found.functional is None:
            continue
        for tensor in kernel.workload.tensors:
            size = prod(tensor.shape) * DTYPES[tensor.dtype]
            read, written = (
                found.functional.traffic_bytes("global", tensor.name, way)
                for way in ("read", "write")
            )
            assert read == (size if tensor.role == "input" else 0), tensor.name
            assert written == (size if tensor.role == "output" else 0), tensor.name


def test_phases_are_as_few_as_statements_allow() -> None:
    for name, count in (("linear_relu", 1), ("mlp", 3), ("attention", 4), ("layernorm", 2)):
        workload = load_workload(ROOT / "workloads" / f"{name}.yaml")
        phases = split_phases(workload)
        assert len(phases) == count
        statements = [s for phase in phases for s in phase.workload.statements]
        assert statements == list(workload.statements)


def test_buffers_share_addresses_only_one_after_the_other() -> None:
    kernel = compiled("mlp", {})
    assert kernel.account.phases
    buffers = {b.name: b for b in kernel.program.buffers}
    first, kept = buffers["h1"], buffers["s2"]
    check_program(kernel.program, kernel.hardware)
    # It must not lie where the call that fills it reads.
    moved = tuple(replace(b, base=first.base) if b is kept else b for b in kernel.program.buffers)
    with pytest.raises(HwgenError, match="H733"):
        check_program(replace(kernel.program, buffers=moved), kernel.hardware)


@THOROUGH
def test_an_intermediate_that_does_not_fit_goes_through_off_chip_memory() -> None:
    workload = make_workload(
        name="too_wide",
        sizes={},
        tensors={
            "x": "float32[300, 300]",
            "w": "float32[300, 300]",
            "h": "float32[300, 300]",
            "v": "float32[300, 300]",
            "y": "float32[300, 300]",
        },
        compute=["h[m, n] += x[m, k] * w[k, n]", "y[m, n] += h[m, k] * v[k, n]"],
    )
    kernel = compile_kernel(workload, chip(), options=QUICK)
    assert kernel.account.phases
    assert [s.tensor for s in kernel.account.spills] == ["h"]
    assert "no tiling fits" in kernel.account.spills[0].reason
    size = 4 * 300 * 300
    for engine in ENGINES:
        found = examine(kernel, draw_inputs(workload, 1, "small"), engine).functional
        if found is not None:
            assert found.traffic_bytes("global", "h", "write") == size
            assert found.traffic_bytes("global", "h", "read") == size


def test_a_phase_without_accumulation_that_stores_nothing() -> None:
    """All of its results stay on the chip: they feed both factors of a product."""
    workload = make_workload(
        name="gram",
        sizes={"M": 3, "N": 4},
        tensors={"x": "float32[M, N]", "g": "float32[M, N]", "y": "float32[M, M]"},
        compute=["g[m, n] = max(x[m, n], 0)", "y[m, n] += g[m, k] * g[n, k]"],
    )
    assert len(split_phases(workload)) == 2
    kernel = compile_kernel(workload, chip(), options=QUICK)
    examine(kernel, draw_inputs(workload, 1, "small"))


def test_what_stays_on_the_chip_is_not_rearranged() -> None:
    workload = make_workload(
        name="slice",
        sizes={},
        tensors={"x": "float32[8, 8]", "h": "float32[8]", "p": "float32[4]", "y": "float32[4]"},
        compute=["h[m] += x[m, k]", "p[i] = h[i + 2]", "y[i] = p[i] + 1.0"],
    )
    with pytest.raises(HwgenError, match="H408"):
        compile_kernel(workload, chip(), options=QUICK)


def test_inputs_are_kept_only_where_they_fit() -> None:
    workload = make_workload(
        name="twice",
        sizes={},
        tensors={
            "x": "float32[8, 260]",
            "w": "float32[260, 260]",
            "a": "float32[8, 260]",
            "y": "float32[8, 260]",
        },
        compute=["a[m, n] += x[m, k] * w[k, n]", "y[m, n] += a[m, k] * w[k, n]"],
    )
    kernel = compile_kernel(workload, chip(), options=QUICK)
    found = examine(kernel, draw_inputs(workload, 2)).functional
    assert found is not None
    assert found.traffic_bytes("global", "w", "read") == 2 * 4 * 260 * 260


@pytest.mark.parametrize("rows", tiered([265, 266, 280, 400, 4096], [265, 266]))
def test_a_tensor_under_two_names_takes_its_room_once(rows: int) -> None:
    """`x` stays whole for the second phase, in 256 rows of 8 numbers, and the sums `s` in 8: tiles
    of `w` fit into what is left, be it one row."""
    workload = make_workload(
        name="pairs",
        sizes={},
        tensors={
            "x": "int32[32, 64]",
            "w": "int32[32, 64]",
            "s": "int32[64]",
            "t": "int32[64]",
        },
        compute=["s[c] += x[r, c] * x[31 - r, c] * w[r, c]", "t[c] += x[r, c] * s[c]"],
    )
    wide = load_hardware(ROOT / "tests" / "specs" / "wide_rows.yaml", {"rows": rows})
    kernel = compile_kernel(workload, wide, options=QUICK)
    assert kernel.account.phases
    first = kernel.parts[0].match.selection
    assert sum(s.tensor == "x" and s.shape == (32, 64) for s in first.storages) == 2
    assert kernel.account.search.refused == 0
    for engine in ENGINES:
        examine(kernel, draw_inputs(workload, 3), engine)


PARTS: dict[str, tuple[tuple[str, int], tuple[str, int]]] = {
    "another phase reads more": (
        ("s[c] += x[r + 1, c] * w[r, c]", 31),
        ("t[c] += x[r, c] * s[c]", 32),
    ),
    "two places in one phase": (
        ("s[c] += x[r, c] * x[r + 1, c] * w[r, c]", 31),
        ("t[c] += x[r, c] * s[c]", 32),
    ),
    "every other row": (
        ("s[c] += x[2*r, c] * w[r, c]", 16),
        ("t[c] += x[r, c] * x[r + 1, c] * s[c]", 31),
    ),
}


@pytest.mark.parametrize("case", PARTS)
def test_an_input_stays_only_where_all_of_it_was_loaded(case: str) -> None:
    workload = make_workload(
        name="part",
        sizes={},
        tensors={
            "x": "int32[32, 16]",
            "w": f"int32[{PARTS[case][0][1]}, 16]",
            "s": "int32[16]",
            "t": "int32[16]",
        },
        compute=[{"do": do, "loops": {"r": rows, "c": 16}} for do, rows in PARTS[case]],
    )
    wide = load_hardware(ROOT / "tests" / "specs" / "wide_rows.yaml")
    kernel = compile_kernel(workload, wide, options=QUICK)
    for engine in ENGINES:
        examine(kernel, draw_inputs(workload, 4), engine)


@pytest.mark.parametrize("entries", tiered([64, 96, 128, 512], [96]))
def test_an_output_is_not_stored_inside_the_loops_of_a_sum(entries: int) -> None:
    """`h` shares loops with a term of `y`; its store stood outside the loops that compute it."""
    shapes = {"a": "7, 6", "b": "7, 6", "g": "7, 6", "h": "7, 6", "c": "6, 9", "y": "7, 9"}
    tensors = {name: f"float32[{shape}]" for name, shape in shapes.items()}
    compute = [
        "g[m, k] = a[m, k] + b[m, k]",
        "h[m, k] = g[m, k] + b[m, k]",
        "y[m, n] += g[m, k] * c[k, n]",
    ]
    workload = parse_workload({"name": "both", "tensors": tensors, "compute": compute})
    assert [t.name for t in workload.outputs] == ["h", "y"]
    assert [len(p.workload.statements) for p in split_phases(workload)] == [2, 1]
    path = ROOT / "tests" / "specs" / "interleaved_banks.yaml"
    kernel = compile_kernel(workload, load_hardware(path, {"ENTRIES": entries}), options=QUICK)
    examine(kernel, draw_inputs(workload, 1, "small"))


def with_local(size: int, reach: Mapping[str, str] = MappingProxyType({})) -> Spec:
    """The chip with a local memory of so many bytes. `reach`: addresses of an intrinsic's operands,
    where they are not all."""
    spec = cast(Spec, read_document(ROOT / "hw_specs" / "npu_shared_buffer.yaml").data)
    spec["memories"]["local"]["size"] = size
    for name, intrinsic in spec["intrinsics"].items():
        for operand in intrinsic["operands"].values():
            if operand["memory"] == "local":
                operand["address"] = reach.get(name, f"0..{size // 4 - 1}")
    return spec


def events(spec: Spec, flags: int) -> Spec:
    """So many flags for all pairs of units that have tokens."""
    return {
        "kind": "events", "scope": "chip", "flags": flags, "signal_cycles": 1, "wait_cycles": 1,
        "edges": spec["synchronization"]["edges"], "signal": "", "wait": "",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("size", "kind"),
    tiered(
        [(1600, "tokens"), (1600, "events"), (3500, "tokens"), (3500, "events")],
        [(1600, "tokens"), (3500, "events")],
    ),
)
def test_a_phase_waits_for_the_slot_that_an_earlier_one_used_last(size: int, kind: str) -> None:
    """Which of a buffer's slots that is depends on the number of tiles; buffers share room."""
    spec = with_local(size)
    if kind == "events":
        spec["synchronization"] = events(spec, 24)
    kernel = compile_kernel(SOFTMAX_PRODUCT, parse_hardware(spec), options=QUICK)
    examine(kernel, draw_inputs(kernel.workload, 1))
    assert any(b.slots > 1 for b in kernel.program.buffers)


SOFTMAX_PRODUCT = parse_workload(
    {
        "name": "weighted",
        "tensors": {
            "x": "float32[40, 30]", "r": "float32[40]", "e": "float32[40, 30]",
            "t": "float32[40]", "p": "float32[40, 30]", "v": "float32[30, 8]",
            "y": "float32[40, 8]",
        },
        "compute": [
            "r[i] max= x[i, j]",
            "e[i, j] = exp(x[i, j] - r[i])",
            "t[i] += e[i, j]",
            "p[i, j] = e[i, j] / t[i]",
            "y[i, n] += p[i, k] * v[k, n]",
        ],
    }
)  # fmt: skip


def test_phases_whose_calls_reach_different_parts_of_a_memory() -> None:
    """Each buffer lies where the calls of its own phases reach."""
    spec = with_local(1024, {"matmul": "0..127", "row_max": "128..255"})
    workload = parse_workload(
        {
            "name": "apart",
            "tensors": {"x": "float32[9, 7]", "w": "float32[7, 8]", "y": "float32[9, 8]",
                        "v": "float32[9, 30]", "r": "float32[9]"},
            "compute": ["y[m, n] += x[m, k] * w[k, n]", "r[m] max= v[m, n]"],
        }
    )  # fmt: skip
    kernel = compile_kernel(workload, parse_hardware(spec))
    examine(kernel, draw_inputs(workload, 1))
    for buffer in kernel.program.buffers:
        first = buffer.tensor in ("x", "w", "y")
        assert (buffer.base + buffer.entries <= 128) if first else (buffer.base >= 128), buffer


def test_phases_that_need_too_many_flags_together_do_with_fewer_slots() -> None:
    """Each phase keeps to eight flags by itself."""
    spec = with_local(8192)
    spec["synchronization"] = events(spec, 8)
    hardware = parse_hardware(spec)
    workload = load_workload(ROOT / "workloads" / "attention.yaml", {"L": 33, "D": 16})
    kernel = compile_kernel(workload, hardware, options=QUICK)
    examine(kernel, draw_inputs(workload, 1))
    assert kernel.account.phases
    alone = [compile_kernel(p.workload, hardware, options=QUICK) for p in split_phases(workload)]
    slots = [[n for _, n in c.tiling.slots] for c in (*alone, *kernel.account.phases)]
    assert sum(map(sum, slots[len(alone) :])) < sum(map(sum, slots[: len(alone)]))


def test_statements_that_share_no_loop_have_phases_of_their_own() -> None:
    """In one nest, each output would be stored in every tile of the other."""
    workload = parse_workload(
        {
            "name": "two",
            "tensors": {"x": "float32[32, 24]", "y": "float32[32, 24]",
                        "u": "float32[40, 28]", "z": "float32[40, 28]"},
            "compute": ["y[i, j] = max(x[i, j], 0)", "z[i, j] = max(u[i, j], 0)"],
        }
    )  # fmt: skip
    kernel = compile_kernel(workload, parse_hardware(with_local(1600)), options=QUICK)
    found = examine(kernel, draw_inputs(workload, 1)).functional
    assert found is not None
    for tensor in workload.tensors:
        way = "read" if tensor.role == "input" else "write"
        assert found.traffic_bytes("global", tensor.name, way) == 4 * prod(tensor.shape)
