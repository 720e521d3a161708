"""Random sequences of primitives on random workloads: refused, or equal to the reference."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from hwgen.codegen.processor import lower
from hwgen.errors import HwgenError
from hwgen.model.compiled import have_compiler
from hwgen.polyhedral.schedule.schedule import Schedule
from hwgen.polyhedral.tree import legality
from hwgen.spec.expression import Expr
from hwgen.spec.load import load_hardware, load_workload, parse_workload
from tests.conftest import Mutate
from tests.fuzz.__main__ import main
from tests.fuzz.nest_calls import Call
from tests.fuzz.nest_runs import (
    CHECKS,
    HOST,
    Kernel,
    Target,
    run_kernels,
    user_target,
    user_targets,
)
from tests.fuzz.report import schedules_text
from tests.fuzz.schedules import (
    Case,
    Failure,
    ScheduleReport,
    Tally,
    check_case,
    lowered,
    reduced,
    run_batch,
)
from tests.sampling import THOROUGH, tiered
from tests.shim.cuda import device

pytestmark = pytest.mark.skipif(not have_compiler(), reason="no C compiler")

ROOT = Path(__file__).resolve().parents[2]
CPU = ROOT / "hw_specs" / "cpu_generic.yaml"
CALLS = ROOT / "tests" / "specs" / "cpu_small_calls.yaml"
CUDA = ROOT / "hw_specs" / "cuda_generic.yaml"
SHIM = Target(
    flags=("-std=c++17", "-O0", "-g0", "-w", f"-I{device.HERE}", *CHECKS[1:]),
    compiler="g++",
    suffix=".cpp",
    includes=("<cuda_runtime.h>",),
    rewrite=device.host_text,
    message="shim_message",
)


LOOPS = "split tile fuse reorder parallel vectorize compute_at cache_read pad"
PLACES = "compute_inline compute_root rfactor decompose_reduction cache_write"


@pytest.mark.parametrize(
    ("spec", "target", "count", "seed", "taken"),
    [
        (CPU, HOST, 44, 5, f"{LOOPS} {PLACES}"),
        pytest.param(CPU, HOST, 40, 1, LOOPS, marks=THOROUGH),
        (CALLS, HOST, 20, 3, "tensorize double_buffer transform_layout storage_align prefetch"),
        (CUDA, SHIM, 34, 6, "bind unroll set_scope set_store_predicate create_group pragma"),
    ],
    ids=["cpu", "cpu again", "calls", "cuda"],
)
def test_drawn_schedules(spec: Path, target: Target, count: int, seed: int, taken: str) -> None:
    tally = run_batch(load_hardware(spec, trust=True), count, seed, target)
    report = ScheduleReport(spec, seed, tally, tuple(tally.failures))
    assert not tally.failures, schedules_text(report)
    assert tally.sequences == count
    assert tally.checked >= 0.8 * count
    assert {n for n in taken.split() if not tally.taken[n]} == set()


def test_the_same_seed_draws_the_same() -> None:
    tallies = [run_batch(load_hardware(CPU), 8, 5, None) for _ in range(2)]
    assert tallies[0] == tallies[1]
    assert tallies[0].checked > 0
    assert run_batch(load_hardware(CPU), 8, 6, None) != tallies[0]


# What a campaign must find


def nothing(*_: object) -> None:
    """Stands in for a check that finds nothing wrong."""


def no_conditions(*_: object) -> dict[str, Expr]:
    """Stands in for the conditions of a block."""
    return {}


def kinds(count: int, seed: int = 0) -> set[str]:
    """Kinds of failures among some sequences."""
    return {f.kind for f in run_batch(load_hardware(CPU), count, seed).failures}


def test_a_legality_check_that_misses_dependences_is_found(
    mutate: Mutate,
) -> None:
    mutate(legality, "_flow", nothing)
    assert "wrong" in kinds(12, 2)


def test_guards_that_are_dropped_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lower, "needed", no_conditions)
    assert "wrong" in kinds(12)


def test_a_refusal_that_changes_something_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    reorder: Callable[..., None] = Schedule.reorder

    def careless(self: Schedule, *loops: str) -> None:
        reorder(self, *loops)
        raise HwgenError("H413", "no")

    monkeypatch.setattr(Schedule, "reorder", careless)
    assert kinds(15) == {"changed"}


def test_crashes_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def split(*_: object, **__: object) -> None:
        raise KeyError("loop")

    monkeypatch.setattr(Schedule, "split", split)
    assert kinds(10) == {"crash"}


def test_a_trace_that_leaves_something_out_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def empty(_: Schedule) -> str:
        return ""

    monkeypatch.setattr(Schedule, "trace", empty)
    assert kinds(5) == {"replay"}


def test_an_undo_that_does_nothing_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Schedule, "undo", nothing)
    assert kinds(5) == {"undo"}


# What is run and compared

DATA = {
    "name": "k",
    "tensors": {"x": "int32[5]", "t": "int32[5]", "y": "int32[4]", "z": "int32[5]"},
    "compute": [
        {"do": "t[i] = x[i] + 1", "loops": {"i": 5}},
        {"do": "y[i] = t[i] + t[i + 1]", "loops": {"i": 4}},
        {"do": "z[i] = x[i] * 2", "loops": {"i": 5}},
    ],
}


def kernel(change: Callable[[str], str], name: str = str(DATA["name"])) -> Kernel:
    """A right kernel whose text is changed."""
    found = lowered(Schedule(parse_workload({**DATA, "name": name}), load_hardware(CPU)), 1)
    text = change(found.source.c)
    assert text != found.source.c
    return replace(found, source=replace(found.source, c=text))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("i < 4", "i < 3", "y[3] is -1515870811"),
        ("i < 4", "i < 5", "heap-buffer-overflow"),
        ("free(t);", "", "LeakSanitizer"),
        ("free(t);", "free(t); free(t);", "attempting double-free"),
        ("free(t);", "free(t); t[0] = 2147483647 + x[0] / x[0];", "heap-use-after-free"),
        ("free(t);", "free(t", "compiler refuses"),
        ("y_i < 4", "y_i < 4; ++y[y_i]) for (int q = 0; q < 1", ""),
    ],
    ids=["incomplete", "outside", "leak", "twice", "after", "syntax", "changed"],
)
def test_what_is_wrong_with_a_kernel(old: str, new: str, message: str) -> None:
    bad = kernel(lambda t: t.replace(old, new))
    good = lowered(Schedule(parse_workload({**DATA, "name": "g"}), load_hardware(CPU)), 1)
    found = run_kernels([good, bad], load_hardware(CPU))
    assert found[0] == ""
    assert message in found[1]
    assert found[1] != ""


@pytest.mark.parametrize(
    "target",
    tiered(user_targets(), user_targets()[::5]),
    ids=lambda t: " ".join((t.compiler, *t.flags)),
)
def test_what_is_wrong_as_users_compile_only(target: Target) -> None:
    names = (f"k{n}" for n in range(100))
    made = (kernel(as_users_compile, name) for name in names)
    bad = next(k for k in made if user_target(k) == target)
    (found,) = run_kernels([bad], load_hardware(CPU))
    assert "y[3] is" in found
    assert found.endswith(f"({' '.join((target.compiler, *target.flags))})")


def as_users_compile(text: str) -> str:
    """A kernel that leaves one element out without sanitizers, as a wrong compiler might."""
    sanitized = "#if defined(__SANITIZE_ADDRESS__)\n#define LESS 0\n#else\n#define LESS 1\n#endif\n"
    return sanitized + text.replace("i < 4", "i < 4 - LESS")


def test_a_failure_is_reduced_and_can_be_replayed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    hardware = load_hardware(CPU)
    case = Case(
        DATA,
        (
            Call("unroll", ("z_i",)),
            Call("split", ("y_i",), (("factor", 3),)),
            Call("compute_root", ("t",)),
        ),
    )
    assert check_case(case, hardware) == ""
    monkeypatch.setattr(lower, "needed", no_conditions)
    message = check_case(case, hardware)
    assert message.startswith("wrong: ")
    small = reduced(Failure(case, "wrong", message), lambda c: check_case(c, hardware))
    assert [str(c) for c in small.case.calls] == ["s.split('y_i', factor=3)"]
    assert [x["do"][0] for x in small.case.data["compute"]] == ["t", "y"]
    text = schedules_text(ScheduleReport(CPU, 0, Tally(failures=[small]), (small,)))
    workload, _, script = text.partition("workload:\n")[2].partition("script:\n")
    file = tmp_path / "w.yaml"
    file.write_text("\n".join(line[2:] for line in workload.splitlines()))
    again = Schedule(load_workload(file), hardware)
    again.replay("\n".join(line.strip() for line in script.splitlines()))
    assert again.trace() == "y_i_o, y_i_i = s.split('y_i', factor=3)\n"


def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schedules", "3", "--spec", str(CPU), "--seed", "2"]) == 0
    shown = capsys.readouterr().out
    assert "3 sequences of primitives on as many workloads" in shown
    assert "\nset_address " in shown
    assert "\nwrong  " in shown
