"""Energies of a chip's file, and that a kernel's are what its calls, one by one, add up to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from math import prod
from pathlib import Path
from typing import Any, cast

import pytest

import hwgen
from hwgen.cli import main
from hwgen.codegen.nodes import Call, If, Loop, Node
from hwgen.errors import HwgenError
from hwgen.model.columns import program_energy
from hwgen.passes.kernel import Kernel
from hwgen.report.text import describe, measure
from hwgen.spec.expression import DTYPES, evaluate
from hwgen.spec.hardware import HardwareSpec
from hwgen.spec.load import load_hardware, parse_hardware
from hwgen.spec.source import read_document
from tests.sampling import THOROUGH

ROOT = Path(__file__).parents[3]
ENERGY = {"read": 3, "write": "READ / 4"}


def written(name: str, edits: Mapping[str, Any]) -> HardwareSpec:
    """A shipped chip with a parameter READ of 10, and energies at `section.name` of its file."""
    data = cast("dict[str, Any]", read_document(ROOT / "hw_specs" / f"{name}.yaml").data)
    data.setdefault("parameters", {})["READ"] = 10
    for place, energy in edits.items():
        section, entry = place.split(".")
        data[section][entry]["energy"] = energy
    return parse_hardware(data)


ON_VTA = {
    "memories.dram": {"read": 100, "write": 120.5},
    "memories.wgt": ENERGY,
    "memories.acc": {"read": 1, "write": 2},
    "intrinsics.gemm": "7 + 0.25 * iterations",
    "intrinsics.load_wgt": 11,
}
ON_ARRAY = {
    "memories.dram": {"read": 100, "write": 120},
    "memories.spad": ENERGY,
    "intrinsics.matmul": "i / 2",
    "intrinsics.mvout": 0.5,
}


def compiled(hardware: HardwareSpec, workload: str, **sizes: int) -> Kernel:
    path = ROOT / "workloads" / f"{workload}.yaml"
    return hwgen.compile_kernel(hwgen.load_workload(path, sizes), hardware)


def executed(
    nodes: Sequence[Node], values: dict[str, int]
) -> Iterator[tuple[Call, dict[str, int]]]:
    """Every call that is executed, with the values of the loops around it."""
    for node in nodes:
        match node:
            case Call():
                yield node, values
            case Loop(name, lower, upper, body):
                for n in range(int(evaluate(lower, values)), int(evaluate(upper, values))):
                    yield from executed(body, {**values, name: n})
            case If(condition, then, otherwise):
                yield from executed(then if evaluate(condition, values) else otherwise, values)
            case _:
                pass


def one_by_one(made: Kernel) -> Counter[str]:
    """Picojoules by memory and intrinsic: each iteration of each call of itself."""
    found: Counter[str] = Counter()
    hardware, program = made.hardware, made.lowering.program
    for call, values in executed(program.body, {}):
        intrinsic = hardware.intrinsic[call.intrinsic]
        extents = [int(evaluate(e, values)) for e in call.extents]
        around = intrinsic.software_loops
        own, count = prod(extents[around:]), prod(extents[:around])
        if call.kernel:
            own = program.kernel[call.kernel].iterations
        lanes = dict(intrinsic.narrowed(call.lanes).iterators)
        for operand in intrinsic.operands:
            each = prod(lanes[i] for i in operand.indices[: operand.rows]) * operand.entry_elements
            times = own * count
            if intrinsic.stationary is not None and operand.name == intrinsic.stationary.operand:
                given = next(o for o in call.operands if o.name == operand.name)
                steps = [int(evaluate(s, values)) for s in given.strides[:around]]
                at = [
                    sum(s * p for s, p in zip(steps, point, strict=True))
                    for point in points(extents[:around])
                ]
                changes = sum(a != b for a, b in zip(at[1:], at, strict=False))
                fresh = call.fresh is None or evaluate(call.fresh, values)
                times = changes + bool(fresh)
            memory = hardware.memory[operand.memory]
            energy = 0.0
            if operand.access != "write":
                energy += memory.read_energy
            if operand.access != "read":
                energy += memory.write_energy
            found[memory.name] += times * each * DTYPES[operand.dtype] * energy  # type: ignore[assignment]
        if intrinsic.energy is not None:
            names = {x.name: n for x, n in zip(intrinsic.loops, extents, strict=False)}
            names["iterations"] = own
            found[intrinsic.name] += count * evaluate(intrinsic.energy, names)  # type: ignore[assignment]
    return found


def points(extents: Sequence[int]) -> Iterator[tuple[int, ...]]:
    if not extents:
        yield ()
        return
    for first in range(extents[0]):
        yield from ((first, *rest) for rest in points(extents[1:]))


@pytest.mark.parametrize(
    ("chip", "edits", "workload", "sizes"),
    [
        ("vta", ON_VTA, "gemm", {"M": 5, "N": 48, "K": 40}),
        ("vta", ON_VTA, "gemm_requant", {"M": 8, "N": 32, "K": 64}),
        pytest.param(
            "gemmini", ON_ARRAY, "gemm_scaled", {"M": 40, "N": 36, "K": 60}, marks=THOROUGH
        ),
    ],
)
def test_energies_are_those_of_every_call(
    chip: str, edits: Mapping[str, Any], workload: str, sizes: dict[str, int]
) -> None:
    made = compiled(written(chip, edits), workload, **sizes)
    found = {p.name: p.picojoules for p in made.energies.parts}
    wanted = {n: e for n, e in one_by_one(made).items() if e}
    assert set(found) == set(wanted)
    for name, energy in wanted.items():
        assert found[name] == pytest.approx(energy, rel=1e-9)
    assert made.energy == pytest.approx(sum(wanted.values()))


def test_a_small_product_by_hand() -> None:
    """16 x 16 weights, 16 inputs and 16 results of a byte; sums of four bytes."""
    chip = written("vta", {"memories.dram": {"read": 100, "write": 1000}, "memories.wgt": ENERGY})
    made = compiled(chip, "gemm", M=1, N=16, K=16)
    parts = {p.name: (p.picojoules, p.bytes) for p in made.energies.parts}
    assert parts["dram"] == (100 * (256 + 16) + 1000 * 16, 288)
    assert parts["wgt"] == (256 * 3 + 256 * 2.5, 512)
    assert set(parts) == {"dram", "wgt"}


def test_reports_have_energies_where_the_file_has_some(capsys: pytest.CaptureFixture[str]) -> None:
    with_some = describe(measure(compiled(written("vta", ON_VTA), "gemm", M=1, N=16, K=16)))
    lines = with_some.splitlines()
    assert "energy" in lines
    assert lines[lines.index("energy") + 1].endswith(" pJ")
    plain = compiled(load_hardware(ROOT / "hw_specs" / "vta.yaml"), "gemm", M=1, N=16, K=16)
    assert "energy" not in describe(measure(plain))
    assert program_energy(plain.program, plain.hardware).parts == ()
    del capsys


@pytest.mark.parametrize(
    ("place", "energy", "code", "field"),
    [
        ("memories.dram", {"read": 0, "write": 1}, "H026", "memories.dram.energy.read"),
        ("memories.dram", {"read": 1, "write": "1 / 0"}, "H024", "memories.dram.energy.write"),
        ("memories.dram", {"read": 1}, "H030", "memories.dram.energy.write"),
        ("memories.dram", 4, "H032", "memories.dram.energy"),
        ("memories.heap", {"read": 1, "write": 1}, "H115", "memories.heap.energy"),
        ("intrinsics.gemm", "iterations - 1", "H123", "intrinsics.gemm.energy"),
        ("intrinsics.gemm", -2.5, "H123", "intrinsics.gemm.energy"),
        ("intrinsics.gemm", "transfer", "H025", "intrinsics.gemm.energy"),
        ("intrinsics.gemm", True, "H032", "intrinsics.gemm.energy"),
    ],
)
def test_what_is_no_energy_is_refused(place: str, energy: object, code: str, field: str) -> None:
    with pytest.raises(HwgenError) as caught:
        written("vta", {place: energy})
    assert caught.value.code == code
    assert caught.value.diagnostic.field == field


def test_an_objective_that_says_nothing_of_a_chip_is_refused(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for arguments, allowed in (
        ("--spec vta --workload gemm --objective energy", "cycles, traffic"),
        ("--spec cpu_generic --workload gemm --objective traffic", "cycles"),
    ):
        for command in ("generate", "simulate"):
            assert main([command, *arguments.split(), "--no-cache"]) == 1
            error = capsys.readouterr().err
            assert "H426" in error
            assert f"allowed: {allowed}\n" in error
    with pytest.raises(HwgenError, match="H426"):
        hwgen.build("gemm", "vta", objective="energy")
    with pytest.raises(HwgenError) as caught:
        hwgen.build("gemm", "vta", objective=cast(Any, "trafic"))
    assert caught.value.code == "H050"
    assert caught.value.diagnostic.repair == "did you mean traffic?"


@THOROUGH
def test_objectives_from_python() -> None:
    sizes = {"M": 256, "N": 256, "K": 256}
    fast = hwgen.build("gemm", "vta", sizes=sizes)
    thrifty = hwgen.build("gemm", "vta", sizes=sizes, objective="traffic")
    assert fast.cycles < thrifty.cycles
    assert fast.compilation.offchip_bytes > thrifty.compilation.offchip_bytes
    chip = written("vta", ON_VTA)
    least = hwgen.build("gemm", chip, sizes=sizes, objective="energy")
    assert 0 < least.compilation.energy <= hwgen.build("gemm", chip, sizes=sizes).compilation.energy
