"""One chip with every kind of synchronisation: kernels are right, and need all that is in them."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from itertools import permutations, product
from pathlib import Path

import numpy as np
import pytest

import hwgen
from benchmarks.whole import simulate_timing
from hwgen.codegen.emit_c import emit
from hwgen.codegen.emit_sync import sync_nodes
from hwgen.codegen.nodes import Barrier, Pop, Push, Signal, Wait
from hwgen.errors import HwgenError
from hwgen.model.compiled import compile_model, find_compiler, have_compiler
from hwgen.model.numeric import Array
from hwgen.model.reference import random_inputs, run_reference
from hwgen.passes.kernel import Kernel
from hwgen.polyhedral.search.search import Candidate
from hwgen.spec.hardware import (
    Barriers,
    Events,
    HardwareSpec,
    Scoreboard,
    Synchronization,
    Tokens,
)
from hwgen.spec.workload import Workload
from hwgen.verify.examine import examine
from tests.conformance.test_another_chip import add, gemm, linear_relu
from tests.fuzz.edits import Mutation, catch
from tests.fuzz.mutations_synchronisation import NOT_THERE, REMOVABLE, synchronisation_mutations
from tests.planted.through_c import found_by_model
from tests.redundancy import check_minimal
from tests.sampling import QUICK, THOROUGH, some, tiered

ROOT = Path(__file__).parents[2]
SPECS = ROOT / "tests" / "specs"
NODES = {
    "two_stage": {Push, Pop},
    "two_stage_barrier": {Barrier},
    "two_stage_counted": {Barrier},
    "two_stage_events": {Signal, Wait},
    "two_stage_semaphores": {Signal, Wait},
    "two_stage_scoreboard": set[type](),
    "one_unit": set[type](),
}
TEXTS = {
    "two_stage_barrier": ("wait_core();", "wait_mover();"),
    "two_stage_counted": ("wait_core(0);", "wait_mover(6);"),
    "two_stage_events": ("set_flag(mover, core, ", "wait_flag(mover, core, "),
    "two_stage_semaphores": ("semaphore_up(", "semaphore_down("),
}
WORKLOADS: dict[str, Callable[[], Workload]] = {
    "linear_relu": lambda: linear_relu(5, 30, 48),
    "gemm": lambda: gemm(29, 17, 70),
    "add": lambda: add(5, 30, 0),
}


@cache
def chip(name: str) -> HardwareSpec:
    return hwgen.load_hardware(SPECS / f"{name}.yaml")


@cache
def compiled(name: str, workload: str) -> Kernel:
    return hwgen.compile_kernel(WORKLOADS[workload](), chip(name), options=QUICK)


def inputs_of(workload: Workload) -> dict[str, Array]:
    random = np.random.default_rng(0)
    # Small integers: every sum is exact in float32, whatever its order.
    return {t.name: random.integers(-4, 5, t.shape).astype(t.dtype) for t in workload.inputs}


@pytest.mark.parametrize(
    ("name", "workload"),
    tiered(
        list(product(NODES, WORKLOADS)),
        [(n, w) for n in NODES for w in WORKLOADS if w == "gemm" or (n, w) == ("two_stage", "add")]
        + [("two_stage_counted", "linear_relu")],
    ),
)
def test_kernels_are_right_and_minimal(name: str, workload: str) -> None:
    c = compiled(name, workload)
    inputs = inputs_of(c.workload)
    examine(c, inputs)
    check_minimal(c.program, c.hardware)
    assert {type(n) for n in sync_nodes(c.program.body)} <= NODES[name]
    assert simulate_timing(c.program, c.hardware).cycles == c.cycles
    if have_compiler():
        outputs = compile_model(c.source).run(inputs)
        np.testing.assert_array_equal(outputs["y"], run_reference(c.workload, inputs)["y"])


@pytest.mark.parametrize("name", NODES)
def test_units_that_share_buffers_are_synchronised(name: str) -> None:
    c = compiled(name, "gemm")
    several = len({u.name for u in c.hardware.units}) > 1
    assert any(b.slots == 2 for b in c.program.buffers) == several
    assert {type(n) for n in sync_nodes(c.program.body)} == NODES[name]
    assert all(text in c.source.c for text in TEXTS.get(name, ()))


def test_barriers_of_double_buffers_stand_in_every_second_iteration() -> None:
    """What one wait covers needs no other; a loop long enough to be cut shows the pattern."""
    c = hwgen.compile_kernel(gemm(8, 64, 448), chip("two_stage_barrier"), options=QUICK)
    check_minimal(c.program, c.hardware)
    assert "if k_o_o % 2 == 0:\n      barrier mover" in str(c.program)


def test_counted_waits_leave_the_other_slot_running() -> None:
    """The load into one slot is under way while the other is computed on."""
    plain, counted = (compiled(f"two_stage_{n}", "gemm") for n in ("barrier", "counted"))
    assert (plain.cycles, counted.cycles) == (6_018, 4_818)
    assert "\n  barrier mover but for the latest 6\n" in str(counted.program)
    assert "/* wait for mover but for the latest 6 */" in counted.source.model
    assert "wait_mover(6);" in counted.source.c


@pytest.mark.parametrize("most", tiered((0, 1, 3, 7, 40), (0, 3, 40)))
def test_waits_count_as_far_as_their_field(most: int) -> None:
    """What the field cannot say waits for more; without it, the kernel is that of barriers."""
    barriers = chip("two_stage_counted").barriers
    assert barriers is not None
    limited = replace(barriers, outstanding=most)
    hardware = replace(chip("two_stage_counted"), synchronization=limited)
    workload = gemm(8, 64, 448)
    c = hwgen.compile_kernel(workload, hardware, options=QUICK)
    examine(c, inputs_of(workload))
    check_minimal(c.program, hardware)
    numbers = {n.outstanding for n in sync_nodes(c.program.body) if isinstance(n, Barrier)}
    assert max(numbers) <= most
    assert bool(most) == any(numbers)
    assert simulate_timing(c.program, hardware).cycles == c.cycles


@pytest.mark.parametrize(
    ("most", "cycles"), [(0, 25_787), pytest.param(1, 22_475, marks=THOROUGH), (7, 17_647)]
)
def test_a_longer_field_leaves_more_running(most: int, cycles: int) -> None:
    """As docs/design/synchronisation.md has it."""
    barriers = chip("two_stage_counted").barriers
    assert barriers is not None
    limited = replace(barriers, outstanding=most)
    hardware = replace(chip("two_stage_counted"), synchronization=limited)
    assert hwgen.compile_kernel(gemm(8, 64, 448), hardware).cycles == cycles


@pytest.mark.parametrize("flags", [1, 2])
def test_fewer_flags_are_enough_for_some_schedule(flags: int, tmp_path: Path) -> None:
    text = (SPECS / "two_stage_events.yaml").read_text(encoding="utf-8")
    spec = tmp_path / "few.yaml"
    spec.write_text(text.replace("flags: 4", f"flags: {flags}"), encoding="utf-8")
    c = hwgen.compile_kernel(gemm(5, 30, 48), hwgen.load_hardware(spec), options=QUICK)
    examine(c, inputs_of(c.workload))
    used = [n for n in sync_nodes(c.program.body) if isinstance(n, Signal | Wait)]
    assert used
    assert all(n.first + n.count <= flags for n in used)


def test_schedules_that_need_more_flags_are_refused() -> None:
    c = compiled("two_stage_events", "gemm")
    events = c.hardware.events
    assert events is not None
    one = replace(c.hardware, synchronization=replace(events, flags=1))
    found: set[str] = set()
    fits = hwgen.compile_kernel(c.workload, one, options=QUICK)
    for candidate in (*c.account.search.candidates[:4], Candidate(fits.tiling, 0.0)):
        try:
            kernel = hwgen.compile_kernel(c.workload, one, candidate)
            check_minimal(kernel.program, one)
            found.add("fits")
        except HwgenError as error:
            found.add(error.code)
    assert found == {"fits", "H615"}


def _kinds(units: tuple[str, ...]) -> dict[str, Synchronization]:
    edges = tuple(permutations(units, 2))
    return {
        "tokens": Tokens(edges, "", "", 1),
        "barrier": Barriers(units, "wait", "wait_all", 4),
        "counted waits": Barriers(units, "wait", "wait_all", 4, 3),
        "one barrier for all": Barriers((), "", "wait_all", 4),
        "events": Events(edges, 8, False, 1, "", "", 1, 1),
        "semaphores": Events(edges, 16, True, 3, "", "", 0, 2),
        "scoreboard": Scoreboard(2, "", 0),
    }


THREE_UNITS = {
    "gemm_requant": ("vta", {"M": 24, "N": 160, "K": 96}),
    "add": ("vta", {"M": 40, "N": 70}),
    "linear_relu": ("npu_shared_buffer", {"M": 40, "N": 100, "K": 96}),
}


OTHERWISE = some(list(product(_kinds(()), THREE_UNITS)), 2)


@pytest.mark.parametrize(
    ("kind", "workload"), tiered(OTHERWISE, [*{kind: (kind, w) for kind, w in OTHERWISE}.values()])
)
def test_three_units(kind: str, workload: str) -> None:
    """Shipped chips of three units, as if they were synchronised in other ways."""
    spec, sizes = THREE_UNITS[workload]
    shipped = hwgen.load_hardware(ROOT / "hw_specs" / f"{spec}.yaml")
    made = _kinds(tuple(unit.name for unit in shipped.units))[kind]
    other = replace(shipped, synchronization=made, completion=None)
    loaded = hwgen.load_workload(ROOT / "workloads" / f"{workload}.yaml", sizes)
    c = hwgen.compile_kernel(loaded, other, options=QUICK)
    examine(c, random_inputs(loaded, 0))
    check_minimal(c.program, other)
    assert simulate_timing(c.program, other).cycles == c.cycles


MUTANTS = [
    pytest.param(name, mutation, id=f"{name}-{mutation.name}")
    for name in NODES
    for mutation in synchronisation_mutations(chip(name))
    if NODES[name]
]


@pytest.mark.parametrize(("name", "mutation"), MUTANTS)
def test_every_mutant_is_caught(name: str, mutation: Mutation) -> None:
    c = compiled(name, "gemm")
    inputs = inputs_of(c.workload)
    for seed in range(3):
        mutant = mutation.mutate(c.program, seed)
        if mutant is None:
            continue
        assert catch(mutant, c.hardware, c.workload, inputs) in mutation.caught_by, seed


QUICKLY = [p for p in MUTANTS if "dropped" in str(p.id) or "late" in str(p.id)]


@pytest.mark.skipif(not have_compiler(), reason="needs a C compiler")
@pytest.mark.parametrize(("name", "mutation"), QUICKLY)
def test_the_model_finds_what_changes_the_order(name: str, mutation: Mutation) -> None:
    c = compiled(name, "gemm")
    inputs = inputs_of(c.workload)
    mutant = mutation.mutate(c.program, 0)
    assert mutant is not None
    if catch(mutant, c.hardware, c.workload, inputs) not in (REMOVABLE, NOT_THERE):
        assert found_by_model(mutant, c.hardware, c.workload, inputs)


@pytest.mark.parametrize("name", [n for n in NODES if NODES[n]])
def test_the_unchanged_kernel_passes(name: str) -> None:
    c = compiled(name, "gemm")
    assert catch(c.program, c.hardware, c.workload, inputs_of(c.workload)) == ""


RUNTIME = """#include <stdint.h>
enum { mover, core };
void start(void); void finish(void);
void set_flag(int, int, int); void wait_flag(int, int, int);
void semaphore_up(int); void semaphore_down(int);
void fence(void);
uint32_t reserve(int); void release(uint32_t);
void upload(uint32_t, const void *, int); void download(void *, uint32_t, int);
void load_vec(int, uint32_t, int, int, int); void load_mat(int, uint32_t, int, int, int);
void load_out(int, uint32_t, int, int, int); void store(int, uint32_t, int, int, int);
void zero(int, int, int); void multiply(int, int, int, int, int, int, int);
"""


@pytest.mark.skipif(not have_compiler(), reason="needs a C compiler")
@pytest.mark.parametrize("name", [n for n in NODES if n != "two_stage"])
def test_the_vendors_c_compiles(name: str, tmp_path: Path) -> None:
    c = compiled(name, "gemm")
    counted = "int" if name == "two_stage_counted" else "void"
    waits = f"void wait_mover({counted}); void wait_core({counted});\n"
    (tmp_path / f"{name}.h").write_text(RUNTIME + waits, encoding="utf-8")
    (tmp_path / "kernel.c").write_text(c.source.c, encoding="utf-8")
    flags = ["-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic", "-fsyntax-only"]
    compiler = find_compiler()
    assert compiler is not None
    subprocess.run([*compiler, *flags, "-I", str(tmp_path), str(tmp_path / "kernel.c")], check=True)


def test_a_fence_is_written_and_changes_nothing_in_the_model() -> None:
    c = compiled("two_stage_scoreboard", "add")
    source = emit(replace(c.program, body=(*c.program.body, Barrier(""))), c.hardware, c.workload)
    assert "fence();" in source.c
    assert "fence();" not in c.source.c
    assert "/* wait for all units */" in source.model


@pytest.mark.parametrize("name", ["two_stage_barrier", "two_stage_events", "two_stage_scoreboard"])
def test_another_chips_synchronisation_is_refused(name: str) -> None:
    """A program made for tokens has no meaning on chips of other kinds."""
    program = compiled("two_stage", "gemm").program
    with pytest.raises(HwgenError, match="H602"):
        emit(program, chip(name), WORKLOADS["gemm"]())
