"""`list`: what a bare name reaches, here and with hwgen."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hwgen.cli import main
from hwgen.cli.listing import Entry
from hwgen.errors import HwgenError
from hwgen.spec.find import find_spec, find_workload

ROOT = Path(__file__).resolve().parents[3]
CHIP = "name: mine\ndescription: A chip. Its second sentence.\nmemories: {}\n"

Text = pytest.CaptureFixture[str]


def _is_workload(path: Path) -> bool:
    return "compute:" in path.read_text(encoding="utf-8")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder, the current one."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.usefixtures("here")
def test_all_that_comes_with_hwgen_is_shown_from_anywhere(capsys: Text) -> None:
    assert main(["list", "--json"]) == 0
    made = json.loads(capsys.readouterr().out)
    for kind, folder, find in (
        ("chips", "hw_specs", find_spec),
        ("workloads", "workloads", find_workload),
    ):
        inner = sorted((ROOT / folder).glob("*/*.yaml"))
        files = [*sorted((ROOT / folder).glob("*.yaml")), *(p for p in inner if _is_workload(p))]
        assert [Path(e["file"]) for e in made[kind]] == files
        for e in made[kind]:
            assert list(e) == ["name", "description", "where", "file"]
            assert e["where"] == "with hwgen"
            assert e["description"]
            assert find(e["name"]) == Path(e["file"])


def test_the_text_has_a_line_for_each(here: Path, capsys: Text) -> None:
    (here / "workloads").mkdir()
    (here / "workloads" / "gemm.yaml").write_text("description: Mine (of two).\n")
    (here / "mine.yaml").write_text(CHIP)
    (here / "compose.yaml").write_text("services: {}\n")
    (here / "broken.yaml").write_text("a: [\n")
    assert main(["list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if line[0] != " "] == ["chips", "workloads"]
    words = {line.split()[0]: " ".join(line.split()[1:]) for line in lines}
    assert words["mine"] == "A chip mine.yaml"
    assert words["gemm"] == f"Mine {Path('workloads/gemm.yaml')}"
    assert words["matmul"] == "c = a . b in float32 with hwgen"
    assert not {"compose", "broken"} & set(words)
    assert words["quantised/conv2d"].endswith("with hwgen")
    given = [*(ROOT / "hw_specs").glob("*.yaml"), *(ROOT / "workloads").rglob("*.yaml")]
    assert len(lines) == 2 + 1 + len(given)
    assert max(map(len, lines)) <= 120


def test_a_file_that_cannot_be_read_says_why(here: Path, capsys: Text) -> None:
    (here / "hw_specs").mkdir()
    (here / "hw_specs" / "broken.yaml").write_text("a: 1\na: 2\n")
    assert main(["list"]) == 0
    assert "  H011: the key 'a' occurs twice in one mapping  " in capsys.readouterr().out
    assert main(["list", "--json"]) == 0
    chips = {e["name"]: e for e in json.loads(capsys.readouterr().out)["chips"]}
    assert chips["broken"]["error"] == "H011: the key 'a' occurs twice in one mapping"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", ""),
        ("A thing. Another.", "A thing"),
        ("C = A . B (exact), then more.", "C = A . B, then more"),
        ("y = max(x . w, 0)", "y = max(x . w, 0)"),
        ("word " * 40, "word " * 13 + "..."),
    ],
)
def test_a_line_is_the_first_sentence(text: str, line: str) -> None:
    assert Entry("x", text, Path("x.yaml"), "").line(72) == line


def test_names_here_are_told_where_none_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A chip here is no workload, and is not proposed as one."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_chip.yaml").write_text("memories: {}\n", "utf-8")
    (tmp_path / "my_work.yaml").write_text("tensors: {}\n", "utf-8")
    for find, mine, other in (
        (find_spec, "my_chip", "my_work"),
        (find_workload, "my_work", "my_chip"),
    ):
        with pytest.raises(HwgenError) as refused:
            find("my_")
        said = refused.value.diagnostic
        assert said.repair == f"did you mean {mine}?"
        assert mine in said.allowed.split(", ")
        assert other not in said.allowed
