"""The pages of error codes: their examples print what they say, and nothing is missing or dead."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import hwgen
from hwgen.codegen.program import Program
from hwgen.errors import HwgenError
from hwgen.model.functional import run as run_program
from hwgen.model.sync_check import check_synchronisation
from hwgen.passes.kernel import Kernel
from hwgen.verify.check_instances import check_instances
from hwgen.verify.check_program import check_program
from hwgen.verify.data import draw_inputs
from scripts.error_pages import PAGES, Meaning, families, pages
from tests.commands import ROOT, run
from tests.conftest import Golden
from tests.planted.instances import instance_mutations
from tests.planted.programs import mutations
from tests.redundancy import check_minimal

HERE = Path(__file__).parent / "pages"
ALL = [m for f in families() for m in f.codes]
WORKLOADS: dict[str, tuple[str, dict[str, int]]] = {
    "vta": ("gemm", {"M": 16, "N": 32, "K": 32}),
    "gemmini": ("gemm_scaled", {"M": 16, "N": 16, "K": 20}),
    "npu_shared_buffer": ("linear_relu", {}),
}
"""What defects are planted in the kernels of."""


@pytest.mark.parametrize("name", sorted(p.name for p in HERE.glob("*.py")))
def test_a_program(name: str, golden: Golden, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)  # Files are named from there.
    code = compile((HERE / name).read_text(encoding="utf-8"), name, "exec")
    with pytest.raises(HwgenError) as caught:
        exec(code, {})
    golden((HERE / name).with_suffix(".txt"), str(caught.value).replace(f"{ROOT}/", ""))


@pytest.mark.parametrize("name", sorted(p.name for p in HERE.glob("*.sh")))
def test_commands(
    name: str,
    golden: Golden,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """All but the last succeed."""
    monkeypatch.chdir(tmp_path)
    for file in (*HERE.glob("*.yaml"), *HERE.glob("*.script")):
        shutil.copy(file, tmp_path)
    *before, last = (HERE / name).read_text(encoding="utf-8").splitlines()
    for line in before:
        assert run(line, monkeypatch, capsys).status == 0, line
    golden((HERE / name).with_suffix(".txt"), run(last, monkeypatch, capsys).err)


@pytest.mark.parametrize("meaning", [m for m in ALL if m.planted], ids=lambda m: m.code)
def test_a_planted_defect(meaning: Meaning, golden: Golden) -> None:
    assert meaning.planted is not None
    kernel = _right(meaning.planted.chip)
    known = (*mutations(kernel.hardware), *instance_mutations())
    (mutation,) = (m for m in known if m.name == meaning.planted.defect)
    program = mutation.mutate(kernel.program, meaning.planted.seed)
    assert program is not None
    found = [e for e in _refusals(program, kernel) if e.code == meaning.code]
    golden(HERE / f"{meaning.code}.txt", str(found[0]))


@cache
def _right(chip: str) -> Kernel:
    name, sizes = WORKLOADS[chip]
    return hwgen.compile_kernel(hwgen.load_workload(name, sizes), hwgen.load_hardware(chip))


def _refusals(program: Program, kernel: Kernel) -> Iterator[HwgenError]:
    """What each check by itself says."""
    workload, hardware = kernel.workload, kernel.hardware
    shapes = {t.name: t.shape for t in workload.outputs}
    for check in (
        lambda: check_program(program, hardware, workload),
        lambda: check_instances(program, kernel.lowering),
        lambda: run_program(program, hardware, draw_inputs(workload, 0), shapes=shapes),
        lambda: check_synchronisation(program, hardware),
        lambda: check_minimal(program, hardware),
    ):
        try:
            check()
        except HwgenError as error:
            yield error
        except (AssertionError, IndexError, KeyError):
            continue  # A check may rely on those before it.


def test_the_pages_are_what_is_generated(golden: Golden) -> None:
    """`python -m scripts.error_pages`, or --update-goldens, writes them."""
    made = pages()
    assert {p.name for p in PAGES.glob("*.md")} == set(made)
    for name, text in made.items():
        golden(PAGES / name, text)


def test_every_code_has_a_section_and_no_other() -> None:
    sources = (p.read_text(encoding="utf-8") for p in (ROOT / "hwgen").rglob("*.py"))
    used = {code for text in sources for code in re.findall(r"[\"\[](H\d{3})[\"\]]", text)}
    assert sorted(used) == [m.code for m in ALL]
    assert all(m.code.startswith(f.name) for f in families() for m in f.codes)


@pytest.mark.parametrize("page", sorted((ROOT / "docs").glob("*.md")), ids=lambda p: p.name)
def test_tables_name_codes_that_there_are_and_each_once(page: Path) -> None:
    cells = re.findall(r"^\| (H\d{3}[^|]*)\|", page.read_text(encoding="utf-8"), re.MULTILINE)
    named = [code for cell in cells for code in re.findall(r"H\d{3}", cell)]
    assert {*named} <= {m.code for m in ALL}
    assert len(named) == len({*named})


def test_meanings_are_texts_and_no_labels() -> None:
    for m in ALL:
        assert m.title[-1] not in ".:", m.code
        assert len(m.cause.split()) >= 8, m.code
        for text in (m.cause, m.repair):
            assert text.rstrip()[-1] == ".", m.code


def test_every_example_of_its_own_is_shown() -> None:
    shown = {m.example for m in ALL}
    assert {f"pages/{p.stem}" for p in HERE.glob("H*.txt")} <= shown
