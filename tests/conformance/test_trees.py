"""Schedules that no tiling says, lowered as trees of loops: shipped scripts, and others."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import pytest

from hwgen.errors import HwgenError
from hwgen.model.columns import TensorTraffic, off_chip_traffic
from hwgen.model.compiled import have_compiler
from hwgen.passes.kernel import Kernel
from hwgen.passes.scripting import compile_script
from hwgen.passes.trees import compile_tree
from hwgen.pipeline import compile_kernel
from hwgen.polyhedral.schedule.schedule import Schedule
from hwgen.spec.hardware import HardwareSpec
from hwgen.spec.load import load_hardware, load_workload, make_workload
from hwgen.spec.workload import Workload
from hwgen.verify.data import draw_inputs
from hwgen.verify.examine import examine
from tests.sampling import QUICK, THOROUGH, tiered

ROOT = Path(__file__).resolve().parents[2]
SCHEDULES = ROOT / "workloads" / "schedules"
SHIPPED: dict[str, tuple[str, dict[str, int]]] = {
    "mlp_shared_rows": ("mlp", {"M": 256}),
    "attention_rows": ("attention", {"L": 128}),
    "layernorm_rows": ("layernorm", {"M": 256}),
}
"""By script: the workload that it is for, and sizes that are quickly run."""

REGISTERS = ("matmul_panels", "matmul_two_cores")
"""Those that `test_registers.py` and `test_cores.py` try."""

PERMUTATIONS = 20
SWAPS = 60


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


def compiled(script: str, lines: Sequence[str]) -> Kernel:
    return compile_script(workload(script), chip(), "".join(f"{x}\n" for x in lines))


def crossings(kernel: Kernel) -> dict[str, TensorTraffic]:
    found = off_chip_traffic(kernel.program, kernel.hardware, kernel.workload)
    return {t.tensor: t for t in found}


def right(kernel: Kernel) -> bool:
    """It computes what its workload says, on whichever engines there are."""
    engine = "both" if have_compiler() else "python"
    examine(kernel, draw_inputs(kernel.workload, 1), engine)
    return True


def test_every_script_is_tried() -> None:
    tried = {*SHIPPED, "two_convolutions", "two_convolutions_rows", *REGISTERS}
    assert {p.name for p in SCHEDULES.glob("*.script")} == {f"{s}.script" for s in tried}


def test_rows_between_two_convolutions_stay_on_the_chip() -> None:
    """Rows are computed again where two blocks of the second one's rows need them."""
    given = load_workload(SCHEDULES / "two_convolutions.yaml", {"H": 8, "W": 6, "C": 16})
    kernel = compile_script(given, chip(), text("two_convolutions"))
    found = crossings(kernel)
    assert {n: t.times for n, t in found.items() if n != "x"} == {"w1": 1, "w2": 1, "y": 1}
    assert found["x"].times == (8 // 2) * 6 / 12  # blocks of two rows, each from six of twelve
    assert right(kernel)


def convolutions(height: int, script: str) -> Kernel:
    given = load_workload(SCHEDULES / "two_convolutions.yaml", {"H": height, "W": 6, "C": 16})
    return compile_script(given, chip(), script)


@pytest.mark.parametrize("height", tiered([2, 4, 8, 9, 14], [2, 9]))
def test_rows_are_kept_while_a_window_reads_them(height: int) -> None:
    """Each byte crosses the bus once, no row is computed twice, four rows of the intermediate have
    room; the last rows of an odd height too."""
    kernel = convolutions(height, text("two_convolutions_rows"))
    assert {n: t.times for n, t in crossings(kernel).items()} == dict.fromkeys(
        ("x", "w1", "w2", "y"), 1
    )
    assert kernel.program.buffer["h"].slots == (4 if height > 2 else 1)
    assert right(kernel)


@pytest.mark.parametrize(("rows", "fewer"), [("h'[^%]*% ", 4), ("x_local[^%]*% ", 6)])
def test_a_row_that_is_still_read_is_not_overwritten(rows: str, fewer: int) -> None:
    """One row less than a window and those on the way take."""
    script = text("two_convolutions_rows")
    less = re.sub(rf"(transform_layout\('?{rows}){fewer}", rf"\g<1>{fewer - 1}", script)
    assert less != script
    with pytest.raises(HwgenError, match="H411") as caught:
        convolutions(8, less)
    assert "after" in caught.value.diagnostic.found
    assert "in its place" in caught.value.diagnostic.found
    more = re.sub(rf"(transform_layout\('?{rows}){fewer}", rf"\g<1>{fewer + 1}", script)
    assert right(convolutions(8, more))


def sliding(inputs: int, between: int) -> str:
    """The script that computes rows again, with those that windows share retained instead, and
    room for so many rows of the input and of what is between."""
    script = text("two_convolutions").replace("s.alias('h', 't')\n", "")
    layouts = "".join(
        f"s.transform_layout({tensor}, '[i, j, c] -> [i % {rows}, j, c]')\n"
        for tensor, rows in (("x_local", inputs), ("'h'", between))
    )
    retained = "".join(f"s.retain({tensor}, rows)\n" for tensor in ("x_local", "'h'", "'t'"))
    return script.replace("s.double_buffer(x_local, 2)\n", layouts + retained)


@pytest.mark.parametrize("height", [2, 8, 9])
def test_rows_that_windows_share_are_retained(height: int) -> None:
    kernel = convolutions(height, sliding(8, 4))
    assert {t.times for t in crossings(kernel).values()} == {1}
    assert right(kernel)


@pytest.mark.parametrize("rows", [(7, 4), (8, 3)])
def test_a_window_slides_over_no_row_that_is_still_read(rows: tuple[int, int]) -> None:
    with pytest.raises(HwgenError, match="H411") as caught:
        convolutions(8, sliding(*rows))
    assert "in its place" in caught.value.diagnostic.found


def test_rows_that_take_turns_are_in_no_other_place() -> None:
    with pytest.raises(HwgenError, match="H413") as caught:
        convolutions(8, text("two_convolutions_rows") + "s.alias('h', 't')\n")
    assert caught.value.diagnostic.found == "a layout of h that repeats"


@pytest.mark.parametrize("script", SHIPPED)
def test_a_shipped_script_is_right(script: str) -> None:
    kernel = compile_script(workload(script), chip(), text(script))
    assert not kernel.parts
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
    ("script", "sizes", "of_phases", "most"),
    [
        ("mlp_shared_rows", {"M": 4096}, 0.6, 1.05),
        ("attention_rows", {"L": 512}, 0.65, 2.4),
        ("layernorm_rows", {"M": 4096}, 0.6, 1.05),
    ],
)
def test_it_is_faster_than_phases_one_after_the_other(
    script: str, sizes: dict[str, int], of_phases: float, most: float
) -> None:
    """At the sizes of the file's command, and not far from what no kernel can beat."""
    large = workload(script, sizes)
    kernel = compile_script(large, chip(), text(script))
    assert kernel.cycles < of_phases * compile_kernel(large, chip(), options=QUICK).cycles
    assert kernel.cycles < most * kernel.bound.cycles


@pytest.mark.parametrize("script", SHIPPED)
def test_the_schedule_alone_makes_the_same_program(script: str) -> None:
    kernel = compiled(script, edits(script))
    schedule = Schedule(workload(script), chip()).replay(text(script))
    assert compile_tree(schedule).source.c == kernel.source.c
    assert compiled(script, kernel.script.splitlines()).source.c == kernel.source.c


def fewer() -> list[tuple[str, str]]:
    """Scripts, and lines that they can do without."""
    found: list[tuple[str, str]] = []
    for script in SHIPPED:
        found += [(script, x) for x in edits(script) if ".double_buffer(" in x]
        found += [(script, word) for word in (".shift(", ".double_buffer(")]
    return found


FEWER = list(fewer())


@pytest.mark.parametrize(("script", "without"), tiered(FEWER, FEWER[::7] + FEWER[-1:]))
def test_with_fewer_slots_or_no_shifts_it_is_slower_or_larger(script: str, without: str) -> None:
    """A buffer whose slots no longer suffice for the shifts lives further out: it holds what all
    iterations of a loop use, each its own entries, or is waited for."""
    lines = edits(script)
    left = [x for x in lines if without not in x]
    assert len(left) < len(lines)
    kernel = compiled(script, left)
    assert right(kernel)
    whole = compiled(script, lines)
    assert (kernel.cycles, kernel.onchip_bytes) > (whole.cycles, whole.onchip_bytes)
    assert kernel.cycles > whole.cycles or without != ".shift("


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


@pytest.mark.parametrize("script", ["two_convolutions", "two_convolutions_rows"])
def test_any_two_lines_that_may_change_places_do(script: str) -> None:
    """Many after each other: whatever order still is the same tree compiles to the same bytes."""
    given = load_workload(SCHEDULES / "two_convolutions.yaml", {"H": 8, "W": 6, "C": 16})
    lines, draws = edits(script), random.Random(0)
    first = Schedule(given, chip()).replay("\n".join(lines))
    order, swapped = lines, 0
    for _ in range(SWAPS):
        n = draws.randrange(len(lines) - 1)
        other = [*order[:n], order[n + 1], order[n], *order[n + 2 :]]
        try:
            schedule = Schedule(given, chip()).replay("\n".join(other))
        except HwgenError:
            continue  # The second needs the first.
        if str(schedule) == str(first):
            order, swapped = other, swapped + 1
    assert swapped > SWAPS // 2
    assert order != lines
    schedule = Schedule(given, chip()).replay("\n".join(order))
    assert compile_tree(schedule).source.c == compile_tree(first).source.c


@pytest.mark.parametrize("script", ["two_convolutions", "two_convolutions_rows"])
def test_copies_in_another_order_are_the_same_kernel(script: str) -> None:
    """Loads that nothing orders, in whatever order their stages were made."""
    given = load_workload(SCHEDULES / "two_convolutions.yaml", {"H": 8, "W": 6, "C": 16})
    lines = edits(script)
    first, second = (next(x for x in lines if x.startswith(f"{w}_local = ")) for w in ("w1", "w2"))
    turned = {first: second, second: first}
    other = "\n".join(turned.get(x, x) for x in lines)
    kernels = [compile_script(given, chip(), t) for t in ("\n".join(lines), other)]
    assert kernels[0].source.c == kernels[1].source.c


def chain(script: str) -> Kernel:
    """Three statements of one row after the other, each reading what the last one made."""
    shape = "float32[9, 16]"
    steps = make_workload(
        "steps",
        tensors=dict.fromkeys(("a", "b", "t", "c"), shape),
        compute=["b[i, j] = a[i, j] * 2", "t[i, j] = b[i, j] + 1", "c[i, j] = t[i, j] * 3"],
    )
    return compile_tree(Schedule(steps, chip()).replay(script))


INSIDE = """\
c_local = s.cache_write('c', 'local')
{loops}
s.compute_at(c_local, inner)
s.set_scope('t', 'local')
s.set_scope('b', 'local')
s.compute_at('t', inner)
s.compute_at('b', inner)
a_local = s.cache_read('a', 'local')
s.compute_at(a_local, inner)
{edits}
s.tensorize(a_local, 'load')
s.tensorize('b', 'mul_imm')
s.tensorize('t', 'add_imm')
s.tensorize(c_local, 'mul_imm')
s.tensorize('c', 'store')
"""
ONE = "inner, c_0_i = s.split('c_0', factor=2)"
TWO = "outer, inner, c_0_i, c_1_i = s.tile('c_0', 'c_1', 2, 4)"
TENSORS = ("a_local", "b", "t", "c_local")


@pytest.mark.parametrize(
    ("user", "maker", "slots"),
    [
        ((0, 1), (0, 0), 2),
        ((1, 0), (0, 0), 4),
        pytest.param((1, 0), (0, 0), 5, marks=THOROUGH),
        ((1, -3), (0, 0), 2),
        pytest.param((1, -3), (0, 0), 4, marks=THOROUGH),
        pytest.param((1, 0), (0, 2), 3, marks=THOROUGH),
        ((1, 0), (0, 3), 2),
        pytest.param((3, 2), (1, 3), 3, marks=THOROUGH),
        ((60, 0), (0, 0), 2),
    ],
)
def test_shifts_over_two_loops(user: tuple[int, int], maker: tuple[int, int], slots: int) -> None:
    """Tails and more iterations later than there are, too."""
    lines = [f"s.double_buffer(c_local, {slots})"]
    for stage, shifts in (("'c'", user), ("c_local", maker)):
        for loop, later in zip(("outer", "inner"), shifts, strict=True):
            lines.append(f"s.shift({stage}, {loop}, {later})")
    assert right(chain(INSIDE.format(loops=TWO, edits="\n".join(lines))))


def test_tensors_off_chip_in_one_place() -> None:
    """One image holds both."""
    kernel = chain("""\
b_local = s.cache_write('b', 'local')
t_local = s.cache_write('t', 'local')
c_local = s.cache_write('c', 'local')
a_local = s.cache_read('a', 'local')
b_again = s.cache_read('b', 'local')
t_again = s.cache_read('t', 'local')
s.alias('t', 'b')
s.tensorize(a_local, 'load')
s.tensorize(b_local, 'mul_imm')
s.tensorize('b', 'store')
s.tensorize(b_again, 'load')
s.tensorize(t_local, 'add_imm')
s.tensorize('t', 'store')
s.tensorize(t_again, 'load')
s.tensorize(c_local, 'mul_imm')
s.tensorize('c', 'store')
""")
    assert [i.name for i in kernel.program.images] == ["a_image", "b_image", "c_image"]
    assert right(kernel)


@pytest.mark.parametrize("seed", tiered(range(20), range(0, 20, 8)))
def test_whatever_is_shifted_and_shared_it_is_right(seed: int) -> None:
    """Slots, places and shifts drawn at random; those that are legal are taken."""
    draws = random.Random(seed)
    loops, names = draws.choice(((ONE, ("inner",)), (TWO, ("outer", "inner"))))
    edits = [f"s.double_buffer('{t}', {draws.randint(1, 4)})" for t in TENSORS]
    edits += [f"s.alias('{x}', '{y}')" for x, y in [draws.sample(TENSORS, 2)] * draws.randint(0, 1)]
    for loop in names:
        later = 0
        for stage in (*TENSORS, "c"):
            later += draws.choice((0, 0, 1, 2) if loop == names[0] else (0, 0, 1, -1, -3))
            edits.append(f"s.shift('{stage}', {loop}, {later})")
    taken: list[str] = []
    for edit in reversed(edits):  # Of shifts, those of readers first.
        try:
            chain(INSIDE.format(loops=loops, edits="\n".join([*taken, edit])))
        except HwgenError as error:
            if error.code not in ("H411", "H413"):
                raise
            continue
        taken.append(edit)
    assert len(taken) > len(TENSORS)
    kernel = chain(INSIDE.format(loops=loops, edits="\n".join(taken)))
    examine(kernel, draw_inputs(kernel.workload, seed), "python")
