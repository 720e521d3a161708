"""Buffers that do not fit: every error names them, the room, and the nearest tiling that fits."""

from __future__ import annotations

import re
import shutil
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

import hwgen
from hwgen.errors import HwgenError
from hwgen.passes.phase import DEFAULTS
from hwgen.passes.phased import PhaseSearch
from hwgen.passes.scripting import compile_schedule, compile_script
from hwgen.passes.spilling import ALL_KEPT, Refused
from hwgen.passes.start import Start
from hwgen.pipeline import compile_kernel
from hwgen.polyhedral import isl
from hwgen.polyhedral.phases import split_phases
from hwgen.polyhedral.schedule.schedule import Schedule
from hwgen.polyhedral.search.search import Candidate
from hwgen.spec.hardware import HardwareSpec
from hwgen.spec.workload import Workload
from tests.conftest import Golden
from tests.sampling import QUICK, THOROUGH

ROOT = Path(__file__).parents[2]
GOLDENS = Path(__file__).parent / "compile"
GEMM = {"M": 4096, "N": 16, "K": 16}
MLP = {"M": 200, "K": 64, "H": 200, "G": 40, "N": 30}


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files by names that are the same everywhere."""
    for name in ("vta", "npu_shared_buffer", "cuda_generic"):
        shutil.copy(ROOT / "hw_specs" / f"{name}.yaml", tmp_path)
    for name in ("gemm", "mlp", "add", "conv2d"):
        shutil.copy(ROOT / "workloads" / f"{name}.yaml", tmp_path)
    monkeypatch.chdir(tmp_path)


def chip(name: str = "vta", *edits: tuple[str, str]) -> HardwareSpec:
    """A shipped chip with some text replaced."""
    path = Path(f"{name}.yaml")
    text = path.read_text(encoding="utf-8")
    for old, new in edits:
        assert old in text
        text = text.replace(old, new)
    path.write_text(text, encoding="utf-8")
    return hwgen.load_hardware(path)


def gemm(**sizes: int) -> Workload:
    return hwgen.load_workload(Path("gemm.yaml"), GEMM | sizes)


def mlp(**sizes: int) -> Workload:
    return hwgen.load_workload(Path("mlp.yaml"), MLP | sizes)


def changed(script: str, pattern: str, new: str) -> str:
    text, count = re.subn(pattern, new, script)
    assert count == 1
    return text


def refused(workload: Workload, hardware: HardwareSpec, script: str) -> HwgenError:
    with pytest.raises(HwgenError) as caught:
        compile_script(workload, hardware, script, "mine.py")
    return caught.value


def repaired(script: str, error: HwgenError) -> str:
    """The script with the lines that the error prints, as a user would put them in."""
    lines = script.splitlines()
    found = re.findall(r"^ *mine\.py:(\d+): (.*)$", error.diagnostic.repair, re.MULTILINE)
    assert found, str(error)
    for number, line in found:
        lines[int(number) - 1] = line
    return "".join(f"{line}\n" for line in lines)


# Scripts


@cache
def best() -> str:
    return compile_kernel(gemm(), chip()).script


@pytest.fixture
def script() -> str:
    return best()


def test_of_a_script(script: str, golden: Golden) -> None:
    text = "# Mine.\n" + changed(script, r"(?<='c_m', factor=)\d+", "2048")
    error = refused(gemm(), chip(), text)
    golden(GOLDENS / "capacity_script.txt", str(error))
    assert compile_script(gemm(), chip(), repaired(text, error)).cycles


def test_of_a_statement_of_two_lines(script: str) -> None:
    text = changed(script, r"= (s\.split\('c_m', factor=)\d+\)", r"= \\\n  \g<1>2048)")
    repair = refused(gemm(), chip(), text).diagnostic.repair
    assert re.search(r"mine\.py:1: c_m_o, c_m_i = s\.split\('c_m', factor=\d+\)$", repair)


def test_of_a_script_in_other_words(script: str) -> None:
    """Lines of several edits, and of none, are left as they are."""
    text = changed(script, r"s\.split\('c_m', factor=\d+\)", "s['c'].split('m', factor=2048)")
    text = changed(text, r"s\.double_buffer\('?a_inp'?, (\d+)\)", r"s['a_inp'].double_buffer(\1)")
    text = f"i, j = s.get_loops('c')\ns['c'].split('n', factors=[1, 1, None])\n{text}"
    text = text.replace("'c_n'", "'c_n_i_i'")
    error = refused(gemm(), chip(), text)
    assert error.code == "H502"
    assert "s['c'].split('m', factor=" in error.diagnostic.repair
    assert compile_script(gemm(), chip(), repaired(text, error)).cycles


@pytest.mark.parametrize("tile", [4096, 9000])
def test_of_a_tile_that_leaves_no_loop(tile: int, script: str, golden: Golden) -> None:
    text = changed(script, r"(?<='c_m', factor=)\d+", str(tile))
    error = refused(gemm(), chip(), text)
    golden(GOLDENS / f"capacity_script_{tile}.txt", str(error))
    assert compile_script(gemm(), chip(), repaired(text, error)).cycles


def test_of_slots(script: str, golden: Golden) -> None:
    """A tile of one block cannot be smaller."""
    hardware = chip("vta", ("size: 32 KiB", "size: 80 B"))
    text = changed(script, r"(?<=s\.double_buffer\(a_inp, )\d+", "8")
    text = changed(text, r"(?<='c_m', factor=)\d+", "1")
    text = changed(text, r"s\.reorder\('m', n_o", "s.reorder(n_o")
    text = changed(text, r"decompose_reduction\('acc', 'm'\)", "decompose_reduction('acc', n_o)")
    error = refused(gemm(), hardware, text)
    golden(GOLDENS / "capacity_slots.txt", str(error))
    assert compile_script(gemm(), hardware, repaired(text, error)).cycles


def test_numbers_that_are_larger_do_not_fit(script: str) -> None:
    """The one that is changed is the largest that fits, and no other alone changes less."""
    text = changed(script, r"(?<='c_m', factor=)\d+", "2048")
    better = repaired(text, refused(gemm(), chip(), text))
    (found,) = re.findall(r"(?<='c_m', factor=)\d+", better)
    larger = changed(text, r"(?<='c_m', factor=)\d+", str(int(found) + 1))
    assert refused(gemm(), chip(), larger).code in ("H502", "H612")
    for pattern in (r"(?<='acc', )\d+", r"(?<=a_inp, )\d+"):
        other = re.sub(rf"double_buffer.*{pattern}", lambda m: m[0][:-1] + "1", text)
        assert other != text
        assert refused(gemm(), chip(), other).code == "H502"


def test_two_numbers_where_one_is_not_enough(script: str) -> None:
    """Neither half the sums nor half the input alone makes room."""
    hardware = chip("vta", ("size: 32 KiB", "size: 80 B"))
    text = changed(script, r"(?<=s\.double_buffer\(a_inp, )\d+", "8")
    text = changed(text, r"(?<='c_m', factor=)\d+", "1024")
    error = refused(gemm(), hardware, text)
    assert len(re.findall(r"^mine\.py:", error.diagnostic.repair, re.MULTILINE)) == 2
    assert compile_script(gemm(), hardware, repaired(text, error)).cycles


def test_of_a_users_own_names(script: str) -> None:
    text = changed(script, r"(?<='c_m', factor=)\d+", "2048")
    text = text.replace("c_m_o", "outer").replace('"', "'")
    error = refused(gemm(), chip(), text)
    assert "outer, c_m_i = s.split('c_m', factor=1024)" in error.diagnostic.repair
    assert compile_script(gemm(), chip(), repaired(text, error)).cycles


def test_of_a_load_that_stands_too_far_out(golden: Golden) -> None:
    """No tile or slot makes room for all of b: its load has to move."""
    workload = gemm(M=64, N=1024, K=1024)
    text = compile_kernel(workload, chip()).script
    text = changed(text, r"s\.compute_at\(b_inp, .*\n", "")
    text = changed(text, r"s\.double_buffer\(b_inp, .*\n", "")
    error = refused(workload, chip(), text)
    golden(GOLDENS / "capacity_place.txt", str(error))
    ((number, line),) = re.findall(r"behind mine\.py:(\d+):\n(.*)", error.diagnostic.repair)
    lines = text.splitlines()
    lines.insert(int(number), line)
    assert compile_script(workload, chip(), "\n".join(lines)).cycles


def test_of_a_schedule_without_a_file(script: str, golden: Golden) -> None:
    made = Schedule(gemm(), chip()).replay(changed(script, r"(?<='c_m', factor=)\d+", "2048"))
    with pytest.raises(HwgenError) as caught:
        compile_schedule(made)
    golden(GOLDENS / "capacity_schedule.txt", str(caught.value))


@THOROUGH
def test_of_several_phases(golden: Golden) -> None:
    hardware = chip("npu_shared_buffer")
    text = compile_kernel(mlp(), hardware).script
    text = changed(text, r"(?<='h1_m', factor=)\d+", "512")
    error = refused(mlp(), hardware, text)
    golden(GOLDENS / "capacity_phases.txt", str(error))
    assert compile_script(mlp(), hardware, repaired(text, error)).cycles


def test_a_schedule_that_is_wrong_otherwise_is_not_called_too_large(script: str) -> None:
    text = changed(script, r"(?<='c_m', factor=)\d+", "4096")
    text = changed(text, r"s\.tensorize\(c_n_i, 'store_out'\)\n", "")
    assert refused(gemm(), chip(), text).code == "H421"


NEST = """i_o, j_o, i_i, j_i = s.tile('i', 'j', 64, 64)
s.bind(i_o, 'blockIdx.y')
s.bind(j_o, 'blockIdx.x')
k_o, k_i = s.split('k', factor=256)
s.reorder(k_o, i_i, j_i, k_i)
a_s = s.cache_read('a', 'shared')
s.compute_at(a_s, k_o)
b_s = s.cache_read('b', 'shared')
s.compute_at(b_s, k_o)
s.bind(i_i, 'threadIdx.y')
"""


def test_of_a_script_for_a_processor(golden: Golden) -> None:
    tensors = dict.fromkeys("abc", "float32[1024, 1024]")
    workload = hwgen.workload("square", tensors=tensors, compute=["c[i, j] += a[i, k] * b[k, j]"])
    with pytest.raises(HwgenError) as caught:
        hwgen.compile_nest(workload, chip("cuda_generic"), NEST, auto=False, file="mine.py")
    golden(GOLDENS / "capacity_nest.txt", str(caught.value))
    text = repaired(NEST, caught.value)
    assert hwgen.compile_nest(workload, chip("cuda_generic"), text, auto=False).cycles


# Tilings and searches


def test_of_a_tiling(golden: Golden) -> None:
    tiling = compile_kernel(gemm(), chip(), options=QUICK).tiling
    too_large = replace(tiling, tiles=tuple(sorted((tiling.tile | {"m": 2048}).items())))
    with pytest.raises(HwgenError) as caught:
        compile_kernel(gemm(), chip(), schedule=Candidate(too_large, 0.0))
    golden(GOLDENS / "capacity_tiling.txt", str(caught.value))


SMALL_ACC = (
    ("size: 128 KiB", "size: 64 B"),
    ("address: 0..2047", "address: 0..0"),
    ("inp, address: 0..0", "inp, address: 0..2047"),
)


def test_of_a_search_the_memory_must_grow_so_much() -> None:
    """What the error says is enough, and one entry less is not."""
    wide = {"a": "int32", "b": "int32"}  # No products with weights take these.
    workload = hwgen.load_workload(Path("add.yaml"), dtypes=wide)
    with pytest.raises(HwgenError, match="H405") as caught:
        compile_kernel(workload, chip("vta", *SMALL_ACC), options=QUICK)
    repair = caught.value.diagnostic.repair
    found = re.search(r"memory acc of at least (\d+) bytes, (\d+) entries", repair)
    assert found is not None, repair
    assert int(found[1]) == 64 * int(found[2]) == 128
    assert f"addresses up to {int(found[2]) - 1} of " in repair
    grown = (("size: 64 B", f"size: {found[1]} B"), ("0..0}", f"0..{int(found[2]) - 1}}}"))
    text = Path("vta.yaml").read_text(encoding="utf-8")
    for old, new in grown[:1]:
        text = text.replace(old, new)
    text = re.sub(r"address: (&\w+ )?0\.\.0\b", rf"address: \g<1>0..{int(found[2]) - 1}", text)
    Path("vta.yaml").write_text(text, encoding="utf-8")
    assert compile_kernel(workload, hwgen.load_hardware(Path("vta.yaml")), options=QUICK).cycles


def test_where_there_is_no_room_another_form_is_tried() -> None:
    """Of int8, products with weights add up in one entry."""
    kernel = compile_kernel(
        hwgen.load_workload(Path("add.yaml")), chip("vta", *SMALL_ACC), options=QUICK
    )
    assert "weigh" in kernel.script


def kept(workload: Workload, hardware: HardwareSpec) -> HwgenError | None:
    """Why a kernel is refused whose tensors all stay on the chip; None where it is not."""
    with isl.bounded():
        phases = PhaseSearch(Start(workload, hardware), split_phases(workload), DEFAULTS)
        found = phases.attempt(ALL_KEPT)
    return found.error if isinstance(found, Refused) else None


def test_of_a_search_of_phases(golden: Golden) -> None:
    error = kept(mlp(H=300), chip("npu_shared_buffer"))
    golden(GOLDENS / "capacity_search_phases.txt", str(error))


@pytest.mark.parametrize("dimension", [0, pytest.param(1, marks=THOROUGH)])
def test_of_a_search_a_tensor_may_be_so_large(dimension: int) -> None:
    """The extent that the error allows fits; one more does not."""
    hardware = chip("npu_shared_buffer")
    error = kept(wide(300, 300), hardware)
    assert error is not None
    assert error.code == "H405"
    text = rf"dimension {dimension} of at most (\d+) instead of 300"
    found = re.search(text, error.diagnostic.repair)
    assert found is not None
    extents = [300, 300]
    extents[dimension] = int(found[1])
    assert kept(wide(*extents), hardware) is None
    extents[dimension] += 1
    error = kept(wide(*extents), hardware)
    assert error is not None
    assert error.code == "H405"


def wide(rows: int, columns: int) -> Workload:
    """Two products; what is between them stays on the chip."""
    return hwgen.workload(
        "wide",
        tensors={
            "x": f"float32[{rows}, 4]",
            "w": f"float32[4, {columns}]",
            "h": f"float32[{rows}, {columns}]",
            "v": f"float32[{columns}, 4]",
            "y": f"float32[{rows}, 4]",
        },
        compute=["h[m, n] += x[m, k] * w[k, n]", "y[m, n] += h[m, k] * v[k, n]"],
    )
