"""A processor's program is run thread by thread when it is compiled and when it is verified."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from hwgen.codegen.instances import nests
from hwgen.codegen.nodes import Code
from hwgen.codegen.processor import lower as lowering
from hwgen.codegen.processor.lower import Placing, lower_nest
from hwgen.codegen.processor.races import check
from hwgen.errors import HwgenError
from hwgen.model.reference import random_inputs
from hwgen.passes.kernel import Kernel
from hwgen.passes.nest_pipeline import compile_nest
from hwgen.polyhedral.tree.cost import BlockCost, NestCost
from hwgen.report.text import describe, measure
from hwgen.spec.hardware import HardwareSpec
from hwgen.spec.load import load_hardware, load_workload, parse_workload
from hwgen.spec.workload import Workload
from hwgen.verify.examine import examine
from tests.planted.nests import IN_PLACE, executed_mutations, nest_mutations
from tests.unit.codegen_processor import samples
from tests.unit.codegen_processor.test_threads import tiled

BESIDE = "written beside"
ROOT = Path(__file__).resolve().parents[3]


def _chip(name: str) -> HardwareSpec:
    return load_hardware(ROOT / "hw_specs" / f"{name}.yaml")


def _refused(program: Code, hardware: HardwareSpec) -> bool:
    code = ""
    try:
        check(program, hardware)
    except HwgenError as error:
        code = error.code
    assert code in ("", "H757")
    return code != ""


def test_defects_of_a_small_program_are_found() -> None:
    """Tiles with tails, staged for a block of threads."""
    hardware = _chip("cuda_generic")
    program = samples.program(tiled())
    assert not _refused(program, hardware)
    found: Counter[str] = Counter()
    for name, changed in nest_mutations(program):
        if name == "dropped barrier" or found[name] == 0:
            refused = _refused(changed, hardware)
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
    hardware = _chip("cpu_generic")
    sizes = {"M": 300, "N": 500, "K": 700}
    workload = load_workload(ROOT / "workloads/matmul.yaml", sizes)
    program = compile_nest(workload, hardware, auto=False).program.codes[0]
    first = dict(reversed(list(nest_mutations(program))))
    assert _refused(first[BESIDE], hardware)
    assert _refused(first["one more iteration"], hardware)


def _copy(n: int = 12) -> Workload:
    tensors = {"a": f"int32[{n}]", "b": f"int32[{n}]"}
    return parse_workload({"name": "copy", "tensors": tensors, "compute": ["b[i] = a[i] + 1"]})


def test_every_compilation_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    hardware = _chip("cpu_generic")
    workload = _copy()

    def wrong(*arguments: object) -> tuple[Code, Placing]:
        made, placing = lower_nest(*arguments)  # pyright: ignore[reportArgumentType]
        return next(p for name, p in nest_mutations(made) if name == BESIDE), placing

    monkeypatch.setattr(lowering, "lower_nest", wrong)
    with pytest.raises(HwgenError) as raised:
        compile_nest(workload, hardware)
    assert raised.value.code == "H757"
    assert "b[12] is outside of 12" in raised.value.diagnostic.found


def test_every_compilation_is_held_against_its_tree(monkeypatch: pytest.MonkeyPatch) -> None:
    """One iteration less leaves every access in its buffer."""
    hardware = _chip("cpu_generic")

    def wrong(*arguments: object) -> tuple[Code, Placing]:
        made, placing = lower_nest(*arguments)  # pyright: ignore[reportArgumentType]
        named = executed_mutations(made)
        return next(p for name, p in named if name == "one iteration fewer"), placing

    monkeypatch.setattr(lowering, "lower_nest", wrong)
    with pytest.raises(HwgenError) as raised:
        compile_nest(_copy(), hardware)
    assert raised.value.code == "H747"
    assert raised.value.diagnostic.found.startswith("never: b at")


def test_what_is_not_proved_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a form that the proof does not know: no defect, so that the kernel is not refused."""

    def unknown(*_: object) -> tuple[str, ...]:
        return ("b: conditions of too many boxes",)

    monkeypatch.setattr(nests, "check_nest_instances", unknown)
    made = compile_nest(_copy(), _chip("cpu_generic"))
    told = "not proved to execute its tree: b: conditions of too many boxes"
    assert made.notes == (told,)
    assert made.stage("lower").endswith(told)
    assert told in describe(measure(made))
    examine(made, random_inputs(made.workload, 0))


def _with_code(c: Kernel, code: Code) -> Kernel:
    program = replace(c.program, body=(code,))
    return replace(c, lowering=replace(c.lowering, program=program))


def test_verification_checks_the_program() -> None:
    hardware = _chip("cpu_generic")
    c = compile_nest(_copy(), hardware)
    given = random_inputs(c.workload, 0)
    examine(c, given)
    mutated = nest_mutations(c.program.codes[0])
    wrong = next(p for name, p in mutated if name == "one more iteration")
    with pytest.raises(HwgenError) as raised:
        examine(_with_code(c, wrong), given)
    assert raised.value.code == "H757"


def test_cycles_below_the_bound_are_refused() -> None:
    hardware = _chip("cpu_generic")
    c = compile_nest(_copy(), hardware)
    slow = replace(c.program.codes[0], bound=c.cycles + 1)
    with pytest.raises(HwgenError) as raised:
        examine(_with_code(c, slow), random_inputs(c.workload, 0))
    assert raised.value.code == "H791"
    least = NestCost((BlockCost("b", 5.0, 8.0, 2.0, 5.0),), 0, 7)
    assert least.cycles == 5
