"""What people do wrong with a first chip, a first workload and a first script: each mistake gives
exactly the text in the golden beside it, and the repair that the text names works."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

import hwgen
from tests.commands import Ran, run
from tests.conftest import Golden
from tests.sampling import tiered

HERE = Path(__file__).parent / "mistakes"
CASES = sorted(p.stem for p in HERE.glob("*.yaml"))


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files that a beginner starts from."""
    folder = tmp_path_factory.mktemp("first")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        from hwgen.cli.commands_files import Sync
        from hwgen.cli.init import new_chip

        new_chip("my_chip", 2, Sync.TOKENS)
    gemm = (folder / "gemm.yaml").read_text(encoding="utf-8")
    assert "{M: 8, N: 64, K: 64}" in gemm
    small = gemm.replace("{M: 8, N: 64, K: 64}", "{M: 2, N: 32, K: 32}")  # For quick kernels.
    (folder / "gemm.yaml").write_text(small, encoding="utf-8")
    kernel = hwgen.compile_kernel(
        hwgen.load_workload(folder / "gemm.yaml"), hwgen.load_hardware(folder / "my_chip.yaml")
    )
    (folder / "my.script").write_text(kernel.script, encoding="utf-8")
    return folder


def _edit(edits: list[dict[str, str]]) -> None:
    """Put each text in the place of another, which stands once; without one, write the file."""
    for edit in edits:
        path = Path(edit["file"])
        text = edit["by"]
        if "replace" in edit:
            before = path.read_text(encoding="utf-8")
            assert before.count(edit["replace"]) == 1, edit
            text = before.replace(edit["replace"], text)
        path.write_text(text, encoding="utf-8")


def _files() -> dict[str, str]:
    return {str(p): p.read_text("utf-8") for p in sorted(Path().rglob("*")) if p.is_file()}


def hinted(out: str) -> list[str]:
    return [x for x in out.splitlines() if "hint:" in x]


def _shown(line: str, ran: Ran, says: str) -> str:
    """What a person sees of a command; of one that succeeds, the lines that matter here."""
    text = ran.err
    if not ran.status:
        text = "\n".join(x for x in ran.out.splitlines() if "hint:" in x or says in x)
    return f"$ hwgen {line}\n{text.rstrip()}\nexit status {ran.status}\n"


@pytest.mark.parametrize("name", tiered(CASES, CASES[::3]))
def test_a_mistake(
    name: str,
    first: Path,
    golden: Golden,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    reader: Any = YAML(typ="safe", pure=True)
    case = reader.load(HERE / f"{name}.yaml")
    shutil.copytree(first, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    # Most repairs lead back to one workload on one chip.
    monkeypatch.setenv("HWGEN_CACHE_DIR", str(first.parent / "cache"))
    _edit(case.get("edit", []))
    line, seen = case["run"], ""
    for step in case["repairs"]:
        before = _files()
        ran = run(f"hwgen {line}", monkeypatch, capsys)
        assert _files() == before, "a command that fails writes nothing"
        seen += _shown(line, ran, step["says"])
        if "legitimate" in case:
            assert ran.status == 0, ran.err
        else:
            assert ran.status == 1, ran.out
            repairs = [x for x in ran.err.splitlines() if x.startswith("  repair:")]
            assert any(step["says"] in x for x in repairs), ran.err
        _edit(step.get("edit", []))
        line = step.get("run", line)
    golden(HERE / f"{name}.txt", seen)
    if "legitimate" in case and line == case["run"] and "edit" not in case["repairs"][-1]:
        return
    ran = run(f"hwgen {line}", monkeypatch, capsys)
    assert ran.status == 0, ran.err
    if "legitimate" in case and "edit" in case["repairs"][-1]:
        assert not any(case["repairs"][-1]["says"] in x for x in hinted(ran.out))


def test_there_are_enough_and_goldens_belong_to_them() -> None:
    assert len(CASES) >= 36
    assert sorted(p.stem for p in HERE.glob("*.txt")) == CASES
