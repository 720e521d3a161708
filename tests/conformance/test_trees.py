"""Schedules that no tiling says, lowered as trees of loops: shipped scripts, and others."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import pytest

from hwgen.compiled import Compiled
from hwgen.errors import HwgenError
from hwgen.model.compiled import have_compiler
from hwgen.model.traffic import TensorTraffic, off_chip_traffic
from hwgen.pipeline import compile_kernel
from hwgen.schedule import Schedule
from hwgen.scripting import compile_script, script_of
from hwgen.spec.hardware import HardwareSpec
from hwgen.spec.load import load_hardware, load_workload
from hwgen.spec.workload import Workload
from hwgen.trees import TreeCompilation, compile_tree
from hwgen.verify.data import draw_inputs
from hwgen.verify.examine import examine
from tests.sampling import QUICK

ROOT = Path(__file__).resolve().parents[2]
SCHEDULES = ROOT / "workloads" / "schedules"
SHIPPED: dict[str, tuple[str, dict[str, int]]] = {
    "mlp_shared_rows": ("mlp", {"M": 256}),
    "attention_rows": ("attention", {"L": 128}),
    "layernorm_rows": ("layernorm", {"M": 256}),
}
"""By script: the workload that it is for, and sizes that are quickly run."""

PERMUTATIONS = 20


@cache
def chip() -> HardwareSpec:
    return load_hardware(ROOT / "hw_specs" / "npu_shared_buffer.yaml")


def workload(script: str, sizes: dict[str, int] | None = None) -> Workload:
    name, small = SHIPPED[script]
    return load_workload(ROOT / "workloads" / f"{name}.yaml", small if sizes is None else sizes)


def text(script: str) -> str:
    return (SCHEDULES / f"{script}.script").read_text(encoding="utf-8")


def edits(script: str) -> list[str]:
    return [x for x in text(script).splitlines() if not x.startswith("#")]


def compiled(script: str, lines: Sequence[str]) -> Compiled:
    return compile_script(workload(script), chip(), "".join(f"{x}\n" for x in lines))


def crossings(kernel: Compiled) -> dict[str, TensorTraffic]:
    found = off_chip_traffic(kernel.program, kernel.hardware, kernel.workload)
    return {t.tensor: t for t in found}


def right(kernel: Compiled) -> bool:
    """It computes what its workload says, on whichever engines there are."""
    engine = "both" if have_compiler() else "python"
    examine(kernel, draw_inputs(kernel.workload, 1), engine)
    return True


def test_every_script_is_tried() -> None:
    assert {p.name for p in SCHEDULES.iterdir()} == {f"{s}.script" for s in SHIPPED}


@pytest.mark.parametrize("script", SHIPPED)
def test_a_shipped_script_is_right(script: str) -> None:
    kernel = compile_script(workload(script), chip(), text(script))
    assert isinstance(kernel, TreeCompilation)
    assert right(kernel)
    assert kernel.cycles >= kernel.bound.cycles


@pytest.mark.parametrize("script", SHIPPED)
def test_the_file_says_how_it_is_compiled(script: str) -> None:
    head = "".join(x[1:].rstrip("\\") for x in text(script).splitlines() if x.startswith("#"))
    name, sizes = SHIPPED[script]
    assert f"--spec {chip().name} --workload {name} " in head
    assert f"--script workloads/schedules/{script}.script" in head
    assert re.findall(r"--set (\w+)=\d+", head) == list(sizes)


@pytest.mark.parametrize("script", ["mlp_shared_rows", "layernorm_rows"])
def test_each_byte_crosses_the_bus_once(script: str) -> None:
    found = crossings(compiled(script, edits(script)))
    tensors = workload(script)
    assert set(found) == {t.name for t in (*tensors.inputs, *tensors.outputs)}
    for tensor in tensors.inputs:
        traffic = found[tensor.name]
        assert (traffic.loaded, traffic.stored) == (traffic.size, 0), tensor.name
    for tensor in tensors.outputs:
        traffic = found[tensor.name]
        assert (traffic.loaded, traffic.stored) == (0, traffic.size), tensor.name


def test_what_is_between_the_steps_of_attention_stays_on_the_chip() -> None:
    kernel = compiled("attention_rows", edits("attention_rows"))
    found = crossings(kernel)
    assert {i.role for i in kernel.program.images} == {"input", "output"}
    assert list(found) == ["q", "k", "v", "y"]
    rows = 32
    assert {n: t.times for n, t in found.items()} == {"q": 1, "k": 1, "v": 128 / rows, "y": 1}


@pytest.mark.parametrize(
    ("script", "sizes", "most"),
    [
        ("mlp_shared_rows", {"M": 4096}, 1.05),
        ("attention_rows", {"L": 512}, 2.4),
        ("layernorm_rows", {"M": 4096}, 1.05),
    ],
)
def test_it_is_faster_than_what_the_search_finds(
    script: str, sizes: dict[str, int], most: float
) -> None:
    """At the sizes of the file's command, and not far from what no kernel can beat."""
    large = workload(script, sizes)
    kernel = compile_script(large, chip(), text(script))
    assert kernel.cycles < 0.6 * compile_kernel(large, chip(), options=QUICK).cycles
    assert kernel.cycles < most * kernel.bound.cycles


@pytest.mark.parametrize("script", SHIPPED)
def test_the_schedule_alone_makes_the_same_program(script: str) -> None:
    kernel = compiled(script, edits(script))
    schedule = Schedule(workload(script), chip()).replay(text(script))
    assert compile_tree(schedule).source.c == kernel.source.c
    assert compiled(script, script_of(kernel).splitlines()).source.c == kernel.source.c


def fewer() -> list[tuple[str, str]]:
    """Scripts, and lines that they can do without."""
    found: list[tuple[str, str]] = []
    for script in SHIPPED:
        found += [(script, x) for x in edits(script) if ".double_buffer(" in x]
        found += [(script, word) for word in (".shift(", ".double_buffer(")]
    return found


@pytest.mark.parametrize(("script", "without"), fewer())
def test_with_fewer_slots_or_no_shifts_it_is_slower(script: str, without: str) -> None:
    """A buffer whose slots no longer suffice for the shifts lives further out."""
    lines = edits(script)
    left = [x for x in lines if without not in x]
    assert len(left) < len(lines)
    kernel = compiled(script, left)
    assert right(kernel)
    assert kernel.cycles > compiled(script, lines).cycles


def permuted(lines: Sequence[str], draws: random.Random) -> list[str]:
    """Lines in another order, each after those whose results it uses; near or far from its own."""
    far = draws.choice((2, 4, 8, 16))
    wanted = [n + far * draws.random() for n in range(len(lines))]
    made: dict[str, int] = {}
    needs: list[set[int]] = []
    for n, line in enumerate(lines):
        results, assigns, call = line.rpartition(" = s.")
        used = re.findall(r"\w+", re.sub(r"'[^']*'", "", call))
        needs.append({made[name] for name in used if name in made})
        if assigns:
            made |= dict.fromkeys(results.split(", "), n)
    order: list[int] = []
    while len(order) < len(lines):
        ready = [n for n in range(len(lines)) if n not in order and needs[n] <= {*order}]
        order.append(min(ready, key=lambda n: wanted[n]))
    return [lines[n] for n in order]


@pytest.mark.parametrize("script", SHIPPED)
def test_the_order_of_independent_lines_changes_nothing(script: str) -> None:
    lines = edits(script)
    first = Schedule(workload(script), chip()).replay("\n".join(lines))
    texts = {str(first): compile_tree(first).source.c}
    again = 0
    for seed in range(PERMUTATIONS):
        other = permuted(lines, random.Random(seed))
        assert sorted(other) == sorted(lines)
        try:
            schedule = Schedule(workload(script), chip()).replay("\n".join(other))
        except HwgenError:
            continue  # An edit's place is among those that it changes, too.
        made = compile_tree(schedule).source.c
        again += str(schedule) in texts
        assert texts.setdefault(str(schedule), made) == made
    assert again >= PERMUTATIONS // 5
