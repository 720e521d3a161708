"""Scripts of the automatic scheduler: they replay to the same program, and can be edited."""

from __future__ import annotations

from pathlib import Path

import pytest

from hwgen.errors import HwgenError
from hwgen.pipeline import Compilation, compile_kernel
from hwgen.schedule import Schedule
from hwgen.scripting import compile_script, script_of
from hwgen.spec.load import load_hardware, load_workload, make_workload
from hwgen.verify.data import draw_inputs
from hwgen.verify.examine import examine
from tests.samples import PAIRS

ROOT = Path(__file__).resolve().parents[2]
VTA = ROOT / "hw_specs" / "vta.yaml"
ODD = {"M": 17, "N": 33, "K": 45, "H": 7, "W": 9, "C": 5, "O": 19}


def odd_sizes(path: Path) -> dict[str, int]:
    """Sizes that no lane and no tile divides, of those that the workload has."""
    names = dict(load_workload(path).sizes)
    return {name: value for name, value in ODD.items() if name in names}


def compiled(path: Path, chip: Path, sizes: dict[str, int]) -> Compilation:
    return compile_kernel(load_workload(path, sizes), load_hardware(chip))


@pytest.mark.parametrize("odd", [False, True], ids=["as_written", "odd"])
@pytest.mark.parametrize(("chip", "path"), PAIRS, ids=lambda p: p.stem)
def test_a_script_replays_to_the_same_bytes(path: Path, chip: Path, odd: bool) -> None:
    found = compiled(path, chip, odd_sizes(path) if odd else {})
    again = compile_script(found.workload, found.hardware, script_of(found))
    assert str(again.program) == str(found.program)
    assert again.source.c == found.source.c
    assert again.cycles == found.cycles


def gemm_script() -> tuple[Compilation, str]:
    found = compiled(ROOT / "workloads" / "gemm_requant.yaml", VTA, {})
    return found, script_of(found)


def edited(script: str, old: str, new: str) -> str:
    assert script.count(old) == 1, script
    return script.replace(old, new)


def test_two_changed_lines_make_another_right_kernel() -> None:
    found, script = gemm_script()
    script = edited(script, "s.split('c_0', factor=52)", "s.split('c_0', factor=32)")
    script = edited(script, "s.split(k_o, factor=2)", "s.split(k_o, factor=4)")
    other = compile_script(found.workload, found.hardware, script)
    assert other.schedule.tiling.tile["m"] == 32
    assert other.schedule.tiling.tile["k"] == 4
    assert other.cycles != found.cycles
    examine(other, draw_inputs(other.workload, 7))


def test_a_slot_less_is_slower_and_right() -> None:
    found, script = gemm_script()
    script = edited(script, "s.double_buffer(a_inp, 2)\n", "")
    other = compile_script(found.workload, found.hardware, script)
    assert other.cycles > found.cycles
    examine(other, draw_inputs(other.workload, 8))


def test_an_illegal_edit_is_refused_at_its_line() -> None:
    found, script = gemm_script()
    lines = script.splitlines()
    number = next(i for i, x in enumerate(lines) if "compute_at(a_inp" in x)
    lines[number] = "s.compute_at(a_inp, 'no_such_loop')"
    with pytest.raises(HwgenError, match="H414") as refused:
        compile_script(found.workload, found.hardware, "\n".join(lines), "my.py")
    location = refused.value.diagnostic.location
    assert location is not None
    assert (location.file, location.line) == ("my.py", number + 1)


def test_what_calls_cannot_run_is_refused() -> None:
    found, script = gemm_script()
    wider = edited(script, "s.split('n', factor=16)", "s.split('n', factor=8)")
    with pytest.raises(HwgenError, match="H416"):
        compile_script(found.workload, found.hardware, wider)
    missing = edited(script, "s.tensorize(n_i, 'gemm')\n", "")
    with pytest.raises(HwgenError, match="H420"):
        compile_script(found.workload, found.hardware, missing)


def test_a_tensor_read_in_two_ways_has_no_script() -> None:
    workload = make_workload(
        name="gram",
        sizes={},
        tensors={"a": "int8[32, 32]", "acc": "int32[32, 32]", "c": "int8[32, 32]"},
        compute=["acc[m, n] += a[m, k] * a[n, k]", "c[m, n] = int8(acc[m, n])"],
    )
    found = compile_kernel(workload, load_hardware(VTA))
    with pytest.raises(HwgenError, match="H419"):
        script_of(found)
    assert Schedule(workload, found.hardware).trace() == ""
