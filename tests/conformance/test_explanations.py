"""What `explain` and the error H301 say is true, and their repairs lead on.

Every shipped workload of one phase against every shipped chip with units, and numbers that no
shipped chip computes with.
"""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
import yaml

import hwgen
from hwgen.errors import HwgenError
from hwgen.passes.covering import started
from hwgen.passes.start import Start
from hwgen.polyhedral.match.explain import Explanation, explain
from hwgen.polyhedral.match.select import outcome, select
from hwgen.polyhedral.phases import split_phases
from hwgen.polyhedral.scop import Scop, build_scop
from hwgen.spec.expression import Access, Assign, Name
from hwgen.spec.grammar import parse_expression
from hwgen.spec.hardware import HardwareSpec
from hwgen.spec.load import parse_hardware
from hwgen.spec.typecheck import check_assign
from hwgen.spec.workload import Workload

ROOT = Path(__file__).parents[2]


@cache
def chip(name: str) -> HardwareSpec:
    return hwgen.load_hardware(ROOT / "hw_specs" / f"{name}.yaml")


def load(name: str, **sizes: int) -> Workload:
    return hwgen.load_workload(ROOT / "workloads" / f"{name}.yaml", sizes)


def form(workload: Workload, hardware: HardwareSpec) -> Scop:
    """The form that is nearest to what calls compute."""
    return build_scop(started(Start(workload, hardware), nearest=True).workload)


def refused(workload: Workload, hardware: HardwareSpec) -> tuple[HwgenError, list[Explanation]]:
    scop = form(workload, hardware)
    with pytest.raises(HwgenError) as caught:
        select(scop, hardware)
    return caught.value, explain(scop, hardware, None)


def reason(found: list[Explanation], statement: str, intrinsic: str) -> str:
    return next(e.reason for e in found if (e.statement, e.intrinsic) == (statement, intrinsic))


CHIPS = sorted(p.stem for p in (ROOT / "hw_specs").glob("*.yaml") if chip(p.stem).units)
NAMES = sorted(p.stem for p in (ROOT / "workloads").glob("*.yaml"))


def refusals() -> list[tuple[str, str]]:
    """The pairs of chip and workload that no intrinsics serve."""
    pairs: list[tuple[str, str]] = []
    for name in NAMES:
        workload = load(name)
        if len(split_phases(workload)) > 1:
            continue
        for on in CHIPS:
            error = outcome(form(workload, chip(on)), chip(on), trial=True).error
            if error is not None and error.code == "H301":
                pairs.append((on, name))
    return pairs


@pytest.fixture(scope="module", params=refusals(), ids=":".join)
def pair(request: pytest.FixtureRequest) -> tuple[HardwareSpec, Workload]:
    on, name = request.param
    return chip(on), load(name)


def test_both_name_the_same_reason_and_repair(pair: tuple[HardwareSpec, Workload]) -> None:
    error, found = refused(pair[1], pair[0])
    told = re.search(r": (\w+) comes nearest(?: to `.*?`)?, but (.*)$", error.diagnostic.found)
    if told is None:
        assert re.search("no intrinsic computes|no store writes", error.diagnostic.found)
        return
    mine = [e for e in found if e.intrinsic == told[1] and e.reason in told[2]]
    assert error.diagnostic.repair in [e.repair for e in mine]


def test_no_intrinsic_is_cheaper_than_one_that_does_nothing(
    pair: tuple[HardwareSpec, Workload],
) -> None:
    """Where there is no kernel, nothing was taken instead."""
    for e in refused(pair[1], pair[0])[1]:
        assert "cheaper" not in e.reason
        assert "instead, at no more cost" not in e.reason


DECLARE = re.compile(r"declare (.*?)(?: and write `(.*)`)?(?:; then|, or add|$)")


def test_a_tensor_can_be_declared_as_a_repair_says(pair: tuple[HardwareSpec, Workload]) -> None:
    """The statements stay well typed, and the one that failed is covered."""
    hardware, workload = pair
    error, found = refused(workload, hardware)
    scop = build_scop(workload)
    position = {s.name: n for n, s in enumerate(scop.statements)}
    failed = re.match(r"(\w+):", error.diagnostic.found)
    assert failed is not None
    repairs = {(e.statement, e.repair) for e in found} | {(failed[1], error.diagnostic.repair)}
    for statement, repair in sorted(repairs):
        declared = DECLARE.search(repair)
        if declared is None or "constant: true" in repair:
            continue
        dtypes: dict[str, str] = {}
        for names, dtype in re.findall(r"([\w, ]+?) as (\w+)", declared[1]):
            dtypes |= dict.fromkeys(re.findall(r"\w+", names.replace(" and ", " ")), dtype)
        assert dtypes.keys() - {"and"} <= workload.tensor.keys(), repair
        source = scop.statements[position[statement]].source
        value = parse_expression(declared[2]) if declared[2] else source.value
        changed = replace(
            workload,
            tensors=tuple(replace(t, dtype=dtypes.get(t.name, t.dtype)) for t in workload.tensors),
            statements=tuple(
                replace(s, value=value) if s is source else s for s in workload.statements
            ),
        )

        def type_of(node: Access | Name, changed: Workload = changed) -> str:
            return changed.tensor[node.tensor].dtype if isinstance(node, Access) else "int32"

        for s in changed.statements:
            check_assign(Assign(s.target, s.op, s.value), type_of)
        after = outcome(build_scop(changed), hardware)
        assert after.error is None or after.reached > position[statement], repair


@pytest.mark.parametrize(
    ("on", "name", "statement", "intrinsic", "expected"),
    [
        ("npu_shared_buffer", "gemm", "S0", "matmul", "a and b are int8, operands a and b are"),
        ("npu_shared_buffer", "gemm_requant", "S0", "matmul", "a and b are int8, operands a and"),
        ("vta", "linear_relu", "S0", "gemm", "x and w are float32, operands src and wgt are int8"),
        ("vta", "matmul", "S0", "gemm", "a and b are float32, operands src and wgt are int8"),
        ("davinci_core", "matmul", "S0", "mad", "a and b are float32, operands a and b are float"),
    ],
)
def test_operands_of_another_type_are_named(
    on: str, name: str, statement: str, intrinsic: str, expected: str
) -> None:
    error, found = refused(load(name), chip(on))
    assert expected in reason(found, statement, intrinsic)
    assert f"{intrinsic} comes nearest, but {expected}" in error.diagnostic.found


@pytest.mark.parametrize("intrinsic", ["reset", "max", "max_imm"])
def test_float_results_are_not_computed_in_integers(intrinsic: str) -> None:
    _, found = refused(load("linear_relu"), chip("vta"))
    assert re.search("int32.* float|float.* int32", reason(found, "S1", intrinsic))


def test_what_would_serve_says_which_statement_fails() -> None:
    _, found = refused(load("gemm_scaled"), chip("tpu_v1"))
    told = reason(found, "S0", "matrix_multiply")
    assert told == "it accumulates `a[m, k] * b[k, n]`, but no intrinsics compute S1"


@pytest.mark.parametrize(
    ("on", "name", "sizes", "intrinsic", "has", "wanted"),
    [
        ("tpu_v1", "gemm_requant", {"HIGH": 100}, "activate_bias", 127, 100),
        ("gemmini", "gemm_scaled", {"LOW": -100}, "mvout", -128, -100),
    ],
)
def test_another_constant_is_named(
    on: str, name: str, sizes: dict[str, int], intrinsic: str, has: int, wanted: int
) -> None:
    error, found = refused(load(name, **sizes), chip(on))
    expected = f"it has the constant {has} where the statement has {wanted}"
    assert reason(found, "S1", intrinsic) == expected
    assert f"{intrinsic} comes nearest, but {expected}" in error.diagnostic.found
    told = "(the sums starting from bias[n])"
    assert (told in error.diagnostic.found) == (on == "gemmini"), "tpu_v1 adds what it loads"
    number = {-100: "LOW", 100: "HIGH"}[wanted]
    written = load(name, **{number: has})
    assert outcome(form(written, chip(on)), chip(on)).error is None


def test_what_the_kernel_takes_instead_is_named() -> None:
    compiled = hwgen.compile_kernel(load("linear_relu"), chip("npu_shared_buffer"))
    assert compiled.parts
    told = "it computes `x[m, k] * w[k, n]` too, the kernel takes matmul instead, at no more cost"
    assert reason(compiled.explanations, "S0", "mul") == told


def test_a_bias_that_the_sums_start_from_is_named() -> None:
    compiled = hwgen.compile_kernel(load("gemm_scaled"), chip("gemmini"))
    assert compiled.parts
    assert reason(compiled.explanations, "S1", "mvin_acc") == "the statement reads no input"
    (begun,) = (
        e for e in compiled.explanations if (e.statement, e.intrinsic) == ("S0", "mvin_acc")
    )
    assert begun.binding.startswith("init by mvin_acc(dst=acc_acc, src=bias)")


def test_a_tensor_that_must_be_constant_is_named() -> None:
    workload = hwgen.workload(
        "gemm",
        tensors={
            "a": "int8[16, 32]", "b": "int8[16, 32]", "acc": "int32[16, 16]", "c": "int8[16, 16]",
        },
        compute=["acc[m, n] += a[m, k] * b[n, k]", "c[m, n] = int8(acc[m, n])"],
    )  # fmt: skip
    error, found = refused(workload, chip("tpu_v1"))
    assert "constant tensors there, which b is not" in reason(found, "S0", "matrix_multiply")
    assert error.diagnostic.repair == "declare b with `constant: true`"


def test_the_operand_that_nothing_computes_is_named() -> None:
    """Not an immediate of another instruction, which would take a number in its place."""
    tensors = {"x": "float32[8, 8]", "y": "float32[8, 8]", "z": "float32[8, 8]"}
    given = hwgen.workload(
        "gate", tensors=tensors, compute=["z[i, j] = x[i, j] / (tanh(x[i, j]) + 1.0) * y[i, j]"]
    )
    error, _ = refused(given, chip("npu_shared_buffer"))
    assert error.diagnostic.found.endswith("no intrinsic computes `tanh(x[i, j])`")
    assert error.diagnostic.repair == "an intrinsic with semantics `... = tanh(x)`"


def test_results_that_one_instruction_updates_together_are_named() -> None:
    walk = """
  arg_max:
    unit: vector
    semantics: ["at[] = select(x[] > top[], place[], at[])", "top[] = max(top[], x[])"]
    operands: {at: &local {memory: local}, top: *local, x: *local, place: *local}
    loops: {c: {extent: 1..64, strides: {x: 0..64, place: 0..64}}}
    cycles: 4 + iterations
    emit: "npu_argmax({{ at.address }}, {{ top.address }}, {{ x.address }}, {{ place.address }});"
"""
    text = (ROOT / "hw_specs" / "npu_shared_buffer.yaml").read_text(encoding="utf-8")
    given = hwgen.workload(
        "walk",
        tensors={"x": "float32[4, 8]", "n": "float32[8]", "at": "float32[4]"},
        compute=[
            "at[m] = 0",
            {"do": "at[m] = select(x[m, k] > 0, n[k], at[m])", "loops": {"m": 4, "k": 8}},
        ],
    )
    (before, _), (error, _) = (
        refused(given, parse_hardware(yaml.safe_load(t)))
        for t in (text, text.replace("\ncode:\n", f"{walk}\ncode:\n"))
    )
    assert before.diagnostic.found.endswith("no intrinsic accumulates with `=`")
    assert "arg_max updates at and top in one walk" in error.diagnostic.found
    assert error.diagnostic.repair == "an intrinsic with semantics `... = select(x, y, z)`"
