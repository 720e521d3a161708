"""A processor's program is run thread by thread when it is compiled and when it is verified."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from hwgen import nest_pipeline
from hwgen.codegen.processor.lower import Placing, lowered_nest
from hwgen.codegen.processor.program import NestProgram
from hwgen.codegen.processor.races import check
from hwgen.errors import HwgenError
from hwgen.model.reference import random_inputs
from hwgen.nest_pipeline import compile_nest
from hwgen.polyhedral.tree.cost import BlockCost, NestCost
from hwgen.spec.hardware import HardwareSpec
from hwgen.spec.load import load_hardware, load_workload, parse_workload
from hwgen.spec.processor import Processor
from hwgen.spec.workload import Workload
from hwgen.verify.examine_nest import examine_nest
from hwgen.verify.mutations_nest import IN_PLACE, executed_mutations, nest_mutations
from tests.unit.codegen_processor import samples
from tests.unit.codegen_processor.test_threads import tiled

BESIDE = "written beside"
ROOT = Path(__file__).resolve().parents[3]


def _chip(name: str) -> tuple[HardwareSpec, Processor]:
    hardware = load_hardware(ROOT / "hw_specs" / f"{name}.yaml")
    assert hardware.processor is not None
    return hardware, hardware.processor


def _refused(program: NestProgram, processor: Processor) -> bool:
    code = ""
    try:
        check(program, processor)
    except HwgenError as error:
        code = error.code
    assert code in ("", "H757")
    return code != ""


def test_defects_of_a_small_program_are_found() -> None:
    """Tiles with tails, staged for a block of threads."""
    processor = _chip("cuda_generic")[1]
    program = samples.program(tiled())
    assert not _refused(program, processor)
    found: Counter[str] = Counter()
    for name, changed in nest_mutations(program):
        if name == "dropped barrier" or found[name] == 0:
            refused = _refused(changed, processor)
            assert refused or name != "dropped barrier"
            found[name] += refused
    assert found["dropped barrier"] == 2
    moved = {f"{IN_PLACE} a_scratch at 0", f"{IN_PLACE} b_scratch at 32"}
    assert found.keys() == {
        "dropped barrier",
        "dropped guard",
        "one more iteration",
        BESIDE,
        *moved,
    }
    assert all(found.values())


def test_defects_of_a_large_program_are_found_at_the_corners_of_its_loops() -> None:
    """Far more steps than are run: the last elements lie in the last iterations."""
    hardware, processor = _chip("cpu_generic")
    sizes = {"M": 300, "N": 500, "K": 700}
    workload = load_workload(ROOT / "workloads/matmul.yaml", sizes)
    program = compile_nest(workload, hardware, auto=False).program
    first = dict(reversed(list(nest_mutations(program))))
    assert _refused(first[BESIDE], processor)
    assert _refused(first["one more iteration"], processor)


def _copy(n: int = 12) -> Workload:
    tensors = {"a": f"int32[{n}]", "b": f"int32[{n}]"}
    return parse_workload({"name": "copy", "tensors": tensors, "compute": ["b[i] = a[i] + 1"]})


def test_every_compilation_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    hardware, _ = _chip("cpu_generic")
    workload = _copy()

    def wrong(*arguments: object) -> tuple[NestProgram, Placing]:
        made, placing = lowered_nest(*arguments)  # pyright: ignore[reportArgumentType]
        return next(p for name, p in nest_mutations(made) if name == BESIDE), placing

    monkeypatch.setattr(nest_pipeline, "lowered_nest", wrong)
    with pytest.raises(HwgenError) as raised:
        compile_nest(workload, hardware)
    assert raised.value.code == "H757"
    assert "b[12] is outside of 12" in raised.value.diagnostic.found


def test_every_compilation_is_held_against_its_tree(monkeypatch: pytest.MonkeyPatch) -> None:
    """One iteration less leaves every access in its buffer."""
    hardware, _ = _chip("cpu_generic")

    def wrong(*arguments: object) -> tuple[NestProgram, Placing]:
        made, placing = lowered_nest(*arguments)  # pyright: ignore[reportArgumentType]
        named = executed_mutations(made)
        return next(p for name, p in named if name == "one iteration fewer"), placing

    monkeypatch.setattr(nest_pipeline, "lowered_nest", wrong)
    with pytest.raises(HwgenError) as raised:
        compile_nest(_copy(), hardware)
    assert raised.value.code == "H747"
    assert raised.value.diagnostic.found.startswith("never: b at")


def test_verification_checks_the_program() -> None:
    hardware, _ = _chip("cpu_generic")
    c = compile_nest(_copy(), hardware)
    given = random_inputs(c.workload, 0)
    examine_nest(c, given)
    wrong = next(p for name, p in nest_mutations(c.program) if name == "one more iteration")
    with pytest.raises(HwgenError) as raised:
        examine_nest(replace(c, program=wrong), given)
    assert raised.value.code == "H757"


def test_cycles_below_the_bound_are_refused() -> None:
    hardware, _ = _chip("cpu_generic")
    c = compile_nest(_copy(), hardware)
    with pytest.raises(HwgenError) as raised:
        examine_nest(replace(c, bound=c.cycles + 1), random_inputs(c.workload, 0))
    assert raised.value.code == "H791"
    least = NestCost((BlockCost("b", 5.0, 8.0, 2.0),), 0, 7)
    assert least.cycles == 5
