"""Numbers that steer choices stand in one file, are few, and each makes a difference."""

from __future__ import annotations

import ast
import hashlib
import multiprocessing
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from itertools import pairwise
from pathlib import Path

import pytest

import hwgen
from hwgen import constants
from hwgen.pipeline import compile_workload
from tests.sampling import THOROUGH

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "hwgen"

MOST = 40
"""Numbers of `hwgen/constants.py`: they may only fall."""

FOLDERS = ("passes", "autoschedule", "polyhedral", "codegen/lower", "network", "completing.py")
"""Where choices are made."""

OUTSIDE = {
    "passes/interleaving.py": 1,
    "passes/phase.py": 3,
    "passes/pipeline_ranking.py": 7,
    "passes/worth.py": 1,
    "polyhedral/search/bank_share.py": 1,
    "polyhedral/search/choose.py": 9,
    "polyhedral/search/cost.py": 2,
    "polyhedral/search/estimate.py": 5,
    "polyhedral/search/search.py": 7,
    "polyhedral/search/tiling.py": 3,
}
"""Steering numbers by module that are not in the one file yet: they may only fall."""

OTHERS = {
    "codegen/lower/literals.py": {"MAX_CALLS"},  # more is an error
    "codegen/lower/ranges.py": {"ANY_EXTENT"},  # larger than any
    "network/onnx_reader.py": {"OPSET", "_SMALL"},
    "network/operators/elementwise.py": {"_ERF_END", "ERF_ERROR", "_ERF_P", "_ERF_Q"},
    "network/operators/moves.py": {"_MOST_RUNS"},  # more is an error
    "network/operators/sums.py": {"DEFAULT_EPSILON", "_INTEGER_BITS"},
    "network/operators/tables.py": {"_ONE", "_INTEGER_BITS", "_FRACTION"},
    "network/page.py": {"_ROW"},
    "network/report.py": {"_COLUMNS"},
    "network/tflite_reader.py": {"_MOST_ELEMENTS"},
    "passes/cache.py": {"FORMAT"},
    "passes/script_refit.py": {"TRIES", "TOGETHER"},  # of what an error suggests
    "polyhedral/isl.py": {"MAX_OPERATIONS", "QUESTION_OPERATIONS", "REMEMBERED"},
    "polyhedral/match/nearest.py": {"_OTHER_KIND", "_OTHER_FORM", "_NO_INTRINSIC"},  # of errors
    "polyhedral/phases.py": {"KEPT"},
    "polyhedral/schedule/script.py": {"MAX_SHOWN"},
    "polyhedral/search/search.py": {"WIDTH"},
    "polyhedral/tree/loop_edits.py": {"MAX_UNROLL"},
    "polyhedral/tree/pipelines.py": {"MAX_SHIFT"},
    "polyhedral/tree/placement.py": {"MAX_INLINED", "MAX_NESTED"},
    "polyhedral/tree/remembered.py": {"KEPT"},
    "polyhedral/tree/weighing.py": {"MOST_SHIFTED"},
}
"""Numbers that steer nothing: facts, guards whose excess is an error, caches, text."""

Kernel = tuple[str, str, dict[str, int]]

LAYERNORM: Kernel = ("npu_shared_buffer", "workloads/layernorm", {})
ATTENTION: Kernel = ("npu_shared_buffer", "workloads/attention", {})
MATTERS: dict[str, tuple[object, Kernel]] = {
    "RECOMPUTED": (1.0, ("npu_shared_buffer", "workloads/layernorm", {"M": 333})),
    "CHUNKS": ((2,), ATTENTION),
    "COVERS_TRIED": (1, LAYERNORM),
    "FREE_STEPS": (1 << 30, ("tpu_v1", "workloads/quantised/conv2d", {})),
    "MERGED_LOOPS": (1, ("x86_avx512", "workloads/layernorm", {})),
    "PIPELINED_KERNELS": (1, LAYERNORM),
    "PLACEMENTS": (1, ("vtcm_two_banks", "workloads/matmul", {})),
    "SHORT_REDUCTION": (0, ("vtcm_two_banks", "benchmarks/conv2d_nhwc", {})),
    "TAIL_SIZES": (1, ("npu_shared_buffer", "workloads/linear_relu", {})),
    "USUAL_BLOCK": (
        4096,
        ("npu_shared_buffer", "benchmarks/multi_head_attention", {"L": 128, "A": 2, "D": 32}),
    ),
    "WRITTEN_NODES": (0, ("gemmini", "workloads/quantised/softmax", {})),
}
"""For each number another value, and a kernel that differs with it."""

EFFORT = {
    "BLOCK_SIZES", "EQUAL_MATCHES", "FORMS_COMPILED", "HANDOVERS_TRIED", "JOINING_ROOM",
    "JOINING_SAVES",
    "MATCHES_SEEN", "STAGED_PADDING", "TAIL_GAIN", "UNSTAGED_READ",
    "CACHE_TILES", "CONSTANT_STEPS", "COVERS_RANKED", "COVER_TRIES", "FORMS", "MAX_OPTIONS",
    "MAX_ORDERED", "MAX_POINTS", "MAX_SHAPES", "LEAST_OPTIONS",
    "OPERAND_TILE", "PEELED_ITERATIONS", "POLYNOMIAL_TERMS",
    "SHORT_KERNEL", "SPILL_TRIES", "SPLIT_TERMS", "TOUCHED_RUNS", "WHOLE_SPACE", "WINDOW_ROWS",
}  # fmt: skip
"""Numbers for which no small shipped kernel is known yet, most of them limits of effort."""


def numbers(path: Path) -> Iterator[str]:
    """The names of a module's numbers, and of tuples of numbers."""
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                given = [(name, value)]
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                given = [(name, value)]
            case ast.Assign(targets=[ast.Tuple(elts=names)], value=ast.Tuple(elts=values)):
                both = zip(names, values, strict=True)
                given = [(n.id, v) for n, v in both if isinstance(n, ast.Name)]
            case _:
                continue
        for name, value in given:
            if name.isupper() and _is_number(value):
                yield name


def _is_number(value: ast.expr) -> bool:
    match value:
        case ast.Constant(value=number):
            return isinstance(number, int | float) and not isinstance(number, bool)
        case ast.BinOp(left=left, right=right):
            return _is_number(left) and _is_number(right)
        case ast.UnaryOp(operand=operand):
            return _is_number(operand)
        case ast.Tuple(elts=elements):
            return any(map(_is_number, elements))
        case ast.Call(func=ast.Name(id="tuple"), args=[ast.GeneratorExp(elt=ast.BinOp())]):
            return True
        case _:
            return False


def modules() -> Iterator[Path]:
    for folder in FOLDERS:
        path = PACKAGE / folder
        yield from [path] if path.is_file() else sorted(path.rglob("*.py"))


def digest(kernel: Kernel, name: str = "", value: object = None) -> str:
    """What a kernel's C is, one number being another."""
    chip, workload, sizes = kernel
    for module in [*sys.modules.values()]:
        if name and module.__name__.startswith("hwgen.") and hasattr(module, name):
            setattr(module, name, value)
    made = compile_workload(
        hwgen.load_workload(ROOT / f"{workload}.yaml", sizes),
        hwgen.load_hardware(ROOT / "hw_specs" / f"{chip}.yaml"),
    )
    text = "".join(f"{n}\n{made.files[n]}" for n in sorted(made.files))
    return hashlib.sha256(text.encode()).hexdigest()


def test_they_are_few() -> None:
    names = [*numbers(PACKAGE / "constants.py")]
    assert len(names) == MOST
    assert {*names} == {*MATTERS} | EFFORT
    assert {*MATTERS}.isdisjoint(EFFORT)


def test_each_says_what_it_is_for() -> None:
    body = ast.parse((PACKAGE / "constants.py").read_text(encoding="utf-8")).body
    for node, after in pairwise(body):
        if isinstance(node, ast.Assign):
            assert isinstance(after, ast.Expr), ast.unparse(node)


def test_no_other_module_has_one_of_its_own() -> None:
    found: dict[str, int] = {}
    for path in modules():
        key = str(path.relative_to(PACKAGE)).replace("\\", "/")
        count = len({*numbers(path)} - OTHERS.get(key, set()))
        if count:
            found[key] = count
    assert found == OUTSIDE


@THOROUGH
@pytest.mark.parametrize("name", MATTERS)
def test_it_matters(name: str) -> None:
    value, kernel = MATTERS[name]
    assert getattr(constants, name) != value
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        before = pool.submit(digest, kernel).result()
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        assert pool.submit(digest, kernel, name, value).result() != before
