"""Schedules by hand, in the order and words of those who asked the questions of `docs/answers`.

They compile at any size, in any order of lines that do not depend on each other, and are fast."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from random import Random

import pytest

import hwgen
from hwgen.completing import compile_scripted
from hwgen.model.columns import moved_bytes
from hwgen.model.compiled import have_compiler
from hwgen.passes.kernel import Kernel
from hwgen.pipeline import SearchOptions, compile_workload
from hwgen.polyhedral.schedule.schedule import Schedule
from hwgen.spec.hardware import HardwareSpec
from hwgen.spec.load import load_hardware, load_workload
from hwgen.spec.workload import Workload
from hwgen.verify.check_program import check_program
from hwgen.verify.data import draw_inputs
from hwgen.verify.examine import examine
from tests.sampling import EVERYTHING, QUICK, THOROUGH, WHOLE, tiered

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "tests" / "by_hand"
LARGEST_RUN = 1 << 22
"""Multiplications of a kernel that is run too, and not only compiled and checked."""

Sizes = dict[str, int]


def sizes(names: str, *values: tuple[int, ...]) -> tuple[Sizes, ...]:
    return tuple(dict(zip(names.split(), one, strict=True)) for one in values)


PRODUCTS = sizes(
    "M N K", (64, 64, 128), (1, 1, 1), (67, 131, 300), (128, 128, 512), (1, 64, 1), (512, 512, 1024)
)
LAYERS = sizes(
    "M K N", (1, 48, 64), (1, 1, 1), (7, 33, 50), (64, 48, 64), (3, 100, 17), (256, 512, 512)
)
BLOCKS = sizes("O N M", (1, 16, 16), (1, 1, 1), (1, 15, 17), (1, 4, 4), (3, 5, 2), (1, 64, 64))
ROWS = sizes(
    "M N K",
    (128, 128, 128),
    (16, 16, 16),
    (4, 16, 48),
    (20, 80, 16),
    (1, 128, 128),
    (128, 512, 512),
)
COPIES = sizes("P Q R", (4, 4, 1), (1, 1, 1), (3, 5, 1), (2, 2, 7), (1, 64, 1), (13, 17, 2))


PACKED: list[tuple[str, str, Sizes, Sizes]] = [
    *(("vta", "blocks", {"N": n, "M": m}, Sizes()) for n, m in (
        (16, 16), (16, 8), (16, 15), (32, 16), (32, 32), (48, 48), (64, 64), (256, 256))),
    *(("vta", "blocks", {"O": o}, Sizes()) for o in (4, 16)),
    ("vta", "blocks", {"O": 3, "N": 5, "M": 2}, Sizes()),
    ("gemmini", "blocks_of_rows", {}, Sizes()),
    ("gemmini", "blocks_of_rows", {"O": 2, "N": 15, "M": 15}, Sizes()),
    ("tpu_v1", "blocks", {"N": 256, "M": 256, "L": 256}, Sizes()),
    ("tpu_v1", "blocks", {}, {"N": 16}),
]  # fmt: skip
"""Chips, workloads and sizes of tensors that lie in the order of the chip's own entries, also where
a block's number and a place in it have one extent."""


@dataclass(frozen=True)
class Case:
    """A script for a chip and a workload, at several sizes, the author's first. `most`: its cycles
    over those of the schedule that is found without it, at the author's sizes."""

    script: str
    chip: str
    workload: str
    sizes: tuple[Sizes, ...]
    most: float = 1.1
    spec: Sizes = field(default_factory=Sizes)
    auto: bool = True

    @property
    def hardware(self) -> HardwareSpec:
        own = FOLDER / f"{self.chip}.yaml"
        path = own if own.exists() else ROOT / "hw_specs" / f"{self.chip}.yaml"
        return load_hardware(path, self.spec)

    def problem(self, values: Sizes) -> Workload:
        own = FOLDER / f"{self.workload}.yaml"
        path = own if own.exists() else ROOT / "workloads" / f"{self.workload}.yaml"
        return load_workload(path, values)

    @property
    def text(self) -> str:
        return (FOLDER / f"{self.script}.script").read_text()

    def compiled(self, values: Sizes, text: str = "", options: SearchOptions = QUICK) -> Kernel:
        parts = self.problem(values), self.hardware, text or self.text
        return compile_scripted(*parts, options=options, auto=self.auto)

    def __str__(self) -> str:
        return f"{self.script}-{self.chip}" + "".join(f"-{n}{v}" for n, v in self.spec.items())


CASES = (
    Case("load_in_tiles_of_a_sum", "vtcm_two_banks", "matmul", PRODUCTS),
    Case("loads_before_the_sum_is_placed", "vtcm_two_banks", "matmul", PRODUCTS[3:] + PRODUCTS[:3]),
    Case("tile_of_one", "vtcm_two_banks", "matmul", PRODUCTS[1:] + PRODUCTS[:1]),
    Case("input_in_tiles_of_a_sum", "npu_shared_buffer", "layer", LAYERS, most=1.2),
    Case("sum_outermost", "vta", "blocks", BLOCKS),
    Case("loads_block_by_block", "vta", "blocks", BLOCKS),
    Case("call_without_a_beginning", "vta", "blocks", BLOCKS),
    Case("rows_none", "vta", "rows", ROWS, most=1.12),
    Case("rows_1", "vta", "rows", ROWS, most=1.12),
    Case("rows_2", "vta", "rows", ROWS[1:] + ROWS[:1], spec={"BATCH": 2}),
    Case("rows_4", "vta", "rows", ROWS, spec={"BATCH": 4}),
    Case("calls_of_stages", "accel", "copy", COPIES, auto=False),
    Case("calls_of_loops", "accel", "copy", COPIES, auto=False),
)
FEW = tuple(c for c in CASES if c.chip != "vta" or c.script in ("sum_outermost", "rows_2"))
"""Those of `make test`: one by each search, and the shortest."""
FEWER = tuple(c for c in FEW if c.script not in ("sum_outermost", "tile_of_one"))
"""Those that are compiled again with other lines."""


def check(made: Kernel) -> None:
    """The kernel fits its chip and does what its workload says."""
    check_program(made.program, made.hardware, made.workload)
    if _work(made.workload) <= LARGEST_RUN:
        examine(made, draw_inputs(made.workload, 1, "small"), "c" if have_compiler() else "python")


def _work(workload: Workload) -> int:
    return prod(extent for _, extent in workload.statements[0].loops)


@pytest.mark.parametrize("case", tiered(CASES, FEWER), ids=str)
def test_as_it_was_asked(case: Case) -> None:
    made = case.compiled(case.sizes[0], options=WHOLE)
    check(made)
    if case.auto:
        found = compile_workload(made.workload, made.hardware)
        assert made.cycles <= case.most * found.cycles


def test_calls_of_stages_have_the_lanes_of_calls_of_loops() -> None:
    made = {c.script: c.compiled(c.sizes[0]).cycles for c in CASES if c.script.startswith("calls")}
    assert made["calls_of_stages"] == made["calls_of_loops"]


SIZED = [(c, n) for c in CASES for n in (range(1, 6) if EVERYTHING else (1, 3, 5))]


@pytest.mark.parametrize(
    ("case", "number"),
    tiered(
        SIZED,
        [
            (c, n)
            for c, n in SIZED
            if n == 1 and c in FEW and c.script not in ("rows_2", "tile_of_one")
        ],
    ),
    ids=str,
)
def test_any_size(case: Case, number: int) -> None:
    check(case.compiled(case.sizes[number]))


RESHAPING = ("split", "tile", "fuse", "reorder", "merge")
"""Edits that lines which name the same loops cannot be exchanged with."""


def shuffled(case: Case, seed: int) -> str:
    """The script's lines in another order, but for lines that name the same loops where one edits
    these, and what is made by one and named by another."""
    schedule = Schedule(case.problem(case.sizes[0]), case.hardware)
    lines = case.text.splitlines()
    made: list[set[str]] = []
    named: list[set[str]] = []
    for edits in range(len(lines)):
        before = {*schedule.state.loop, *schedule.state.tensor}
        schedule = Schedule(schedule.workload, schedule.hardware)
        schedule.replay("\n".join(lines[: edits + 1]))
        made.append({*schedule.state.loop, *schedule.state.tensor} - before)
        tree = [*ast.walk(ast.parse(lines[edits]))]
        named.append({n.id for n in tree if isinstance(n, ast.Name)} - {"s"})
        named[-1] |= {str(n.value) for n in tree if isinstance(n, ast.Constant)} - {*MEMORIES}
    kinds = [line.split("s.")[-1].split("(")[0] for line in lines]

    def tied(first: int, second: int) -> bool:
        reshapes = kinds[first] in RESHAPING or kinds[second] in RESHAPING
        results = {n.strip() for n in lines[first].rpartition(" = ")[0].split(",")}
        both = named[first] & named[second]
        return bool((made[first] | results) & named[second] or (reshapes and both))

    random, left, order = Random(seed), [*range(len(lines))], list[int]()
    while left:
        free = [n for n in left if not any(m < n and tied(m, n) for m in left)]
        order.append(random.choice(free))
        left.remove(order[-1])
    return "".join(f"{lines[n]}\n" for n in order)


MEMORIES = ("vtcm", "vmem", "local", "acc", "inp", "wgt", "sram")

SHUFFLES = [(c, seed) for c in CASES for seed in range(10 if EVERYTHING else 2)]


@pytest.mark.parametrize(
    ("case", "seed"),
    tiered(SHUFFLES, [(c, s) for c, s in SHUFFLES if s == 0 and c in FEWER]),
    ids=str,
)
def test_any_order_of_lines(case: Case, seed: int) -> None:
    given = case.compiled(case.sizes[0])
    made = case.compiled(case.sizes[0], shuffled(case, seed))
    check(made)
    assert made.cycles <= 1.02 * given.cycles


@pytest.mark.parametrize(
    ("chip", "workload", "values", "spec"),
    tiered(PACKED, [PACKED[0], PACKED[1], PACKED[9], PACKED[12]]),
)
def test_packed_tensors_are_not_packed_again(
    chip: str, workload: str, values: Sizes, spec: Sizes
) -> None:
    case = Case("", chip, workload, (values,), spec=spec)
    text = compile_workload(case.problem(values), case.hardware, QUICK).source.c
    assert all(word not in text for word in ("_fill_", "_unpack_"))


def layer_of(shape: tuple[int, int, int]) -> Workload:
    m, k, n = shape
    return hwgen.workload(
        "layer",
        tensors={"x": f"float32[{m}, {k}]", "w": f"float32[{k}, {n}]", "b": f"float32[{n}]",
                 "acc": f"float32[{m}, {n}]", "y": f"float32[{m}, {n}]"},
        compute=["acc[i, j] += x[i, k] * w[k, j]", "y[p, q] = max(acc[p, q] + b[q], 0)"],
    )  # fmt: skip


@THOROUGH
def test_a_consumer_in_its_producers_tiles_is_not_slower() -> None:
    chip = load_hardware(ROOT / "hw_specs" / "npu_shared_buffer.yaml")
    cycles: list[int] = []
    for inside in (False, True):
        s = hwgen.Schedule(layer_of((512, 768, 1024)), chip)
        _, j_o, _, _ = s.tile("i", "j", 64, 64)
        if inside:
            s.reverse_compute_at("y", j_o)
        cycles.append(compile_scripted(s.workload, chip, s.trace()).cycles)
    assert cycles[1] <= cycles[0]


BESIDE = [(1, 48, 64), (7, 33, 50), (64, 48, 64)]


@pytest.mark.parametrize("shape", tiered(BESIDE, BESIDE[:1], values=True))
def test_a_sum_that_is_written_beside_its_reader_stays_on_the_chip(
    shape: tuple[int, int, int],
) -> None:
    chip = load_hardware(ROOT / "hw_specs" / "npu_shared_buffer.yaml")
    s = hwgen.Schedule(layer_of(shape), chip)
    j_o, _ = s.split("j", factor=16)
    s.reverse_compute_at("y", j_o)
    s.cache_write("acc", "local")
    made = compile_scripted(s.workload, chip, s.trace(), options=QUICK)
    check(made)
    m, k, n = shape
    assert moved_bytes(made.program, chip, made.workload) == 4 * (m * k + k * n + n + m * n)
