"""What the shell completes, asked as the scripts of the shells ask."""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
import sys
from pathlib import Path
from unittest import mock

import pytest

from hwgen.cli import main
from hwgen.cli.stages import NEST_STAGES, STAGES
from hwgen.spec.expression import DTYPES
from tests.samples import CHIPS_WITH_UNITS

ROOT = Path(__file__).resolve().parents[3]


def asked(*words: str, folder: Path = ROOT, shell: str = "bash") -> list[str]:
    """What may stand in the place of the last word."""
    line = ["hwgen", *words]
    environment = {
        "bash": {"COMP_WORDS": "\n".join(line), "COMP_CWORD": str(len(words))},
        "zsh": {"_TYPER_COMPLETE_ARGS": " ".join(line)},
        "fish": {
            "_TYPER_COMPLETE_ARGS": " ".join(line),
            "_TYPER_COMPLETE_FISH_ACTION": "get-args",
        },
    }[shell]
    environment["_HWGEN_COMPLETE"] = f"complete_{shell}"
    out, told, before = io.StringIO(), io.StringIO(), Path.cwd()
    with (
        mock.patch.dict(os.environ, environment),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(told),
    ):
        os.chdir(folder)
        try:
            main([])
        finally:
            os.chdir(before)
    assert told.getvalue() == ""
    return out.getvalue().split()


def test_chips_by_name() -> None:
    for command in (["check"], ["generate", "--spec"], ["verify", "--spec"], ["init", "--like"]):
        found = asked(*command, "v")
        assert found == sorted(p.stem for p in CHIPS_WITH_UNITS if p.stem.startswith("v"))
        assert "vta" in found


def test_workloads_by_name_and_in_their_folders() -> None:
    assert asked("generate", "--spec", "vta", "--workload", "gem") == [
        "gemm", "gemm_requant", "gemm_scaled",
    ]  # fmt: skip
    folder = ROOT / "workloads" / "quantised"
    assert asked("simulate", "--workload", "quantised/") == [
        f"quantised/{p.stem}" for p in sorted(folder.glob("*.yaml"))
    ]


def test_what_is_in_the_current_folder_too(tmp_path: Path) -> None:
    (tmp_path / "hw_specs").mkdir()
    (tmp_path / "hw_specs" / "vector8.yaml").write_text("no chip, and nobody reads it\n")
    assert "vector8" in asked("check", "v", folder=tmp_path)


def test_a_file_here_goes_by_its_sections(tmp_path: Path) -> None:
    """A chip is no workload; neither is what has no section, or is no file that can be read."""
    (tmp_path / "my_chip.yaml").write_text("name: my_chip\nmemories: {\n")
    (tmp_path / "my_layer.yaml").write_text("name: my_layer\ntensors: {}\nunits: 3\n")
    (tmp_path / "my_notes.yaml").write_bytes(b"\xff note:\n  memories: 3\n  compute: 3\n")
    (tmp_path / "my_link.yaml").symlink_to("nowhere")
    assert asked("check", "my", folder=tmp_path) == ["my_chip"]
    assert asked("generate", "--workload", "my", folder=tmp_path) == ["my_layer"]


def test_stages() -> None:
    every = list(dict.fromkeys((*STAGES, *NEST_STAGES)))
    assert asked("generate", "--stage", "") == every
    assert asked("generate", "--stage", "s") == [s for s in every if s.startswith("s")]


def test_codes_and_commands() -> None:
    assert asked("help", "H42") == ["H421", "H422", "H423", "H424", "H425", "H426"]
    assert asked("help", "ge") == ["generate"]


GEMM = ("generate", "--spec", "vta", "--workload", "gemm")


def test_types_by_name_then_by_type() -> None:
    """Those that the workload names, then its tensors; the only one left, with each type."""
    assert asked(*GEMM, "--dtype", "") == ["T=", "ACC=", "OUT=", "a=", "b=", "acc=", "c="]
    assert asked(*GEMM, "--dtype", "A") == [f"ACC={t}" for t in DTYPES]
    assert asked(*GEMM, "--dtype", "T=fl") == [f"T={t}" for t in DTYPES if t.startswith("fl")]
    assert asked("simulate", "--workload", "relu", "--dtype", "x=b") == ["x=bfloat16"]
    assert asked("generate", "--dtype", "") == [], "no workload stands before it"


def test_parameters_and_sizes_of_what_the_line_names() -> None:
    every = asked(*GEMM, "--set", "")
    assert every[:3] == ["BATCH=", "BLOCK_IN=", "BLOCK_OUT="]
    assert every[-3:] == ["M=", "N=", "K="]
    assert asked(*GEMM, "--set", "K") == ["K=256"], "the value that the file has"
    assert asked("check", "vta", "--set", "BA") == ["BATCH=1"]
    assert asked("check", "no_such_chip", "--set", "") == []


def test_words_that_bash_takes_apart() -> None:
    """`=` ends a word there, and what it gets back is put behind that."""
    floats = [t for t in DTYPES if t.startswith("fl")]
    assert asked(*GEMM, "--dtype", "T", "=", "fl") == floats
    assert asked(*GEMM, "--dtype", "T", "=") == list(DTYPES)
    assert asked(*GEMM, "--dtype", "T", "=", "int8", "--set", "M", "=", "4", "--set", "K") == [
        "K=256"
    ]
    assert asked("check", "--set", "T", "=", "8", "vt") == ["vta", "vtcm_two_banks"]
    assert asked("generate", "--spec", "=", "vt") == ["vta", "vtcm_two_banks"]


def test_a_file_that_cannot_be_read_offers_nothing(tmp_path: Path) -> None:
    (tmp_path / "w.yaml").write_text("dtypes: {T: int8\nsizes: [")
    assert asked("generate", "--workload", "w.yaml", "--dtype", "", folder=tmp_path) == []
    (tmp_path / "v.yaml").write_text("dtypes: [T]\ntensors: {a: int8}\n")
    assert asked("generate", "--workload", "v.yaml", "--dtype", "a=int8", folder=tmp_path) == [
        "a=int8"
    ]


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_get_the_same(shell: str) -> None:
    assert "vta" in " ".join(asked("check", "vt", shell=shell))


def test_nothing_is_offered_for_a_path() -> None:
    """So that the shell completes files."""
    assert asked("check", "./hw_specs/v") == []


def test_completing_loads_nothing_heavy() -> None:
    heavy = ("numpy", "sympy", "islpy", "hypothesis", "rich", "ruamel", "lark", "jinja2")
    code = (
        "import sys\nfrom hwgen.cli import main\nmain([])\n"
        f"print(sorted(set({heavy!r}) & set(sys.modules)), file=sys.stderr)"
    )
    environment = {
        "COMP_WORDS": "hwgen generate --workload ge",
        "COMP_CWORD": "3",
        "_HWGEN_COMPLETE": "complete_bash",
    }
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | environment,
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "gemm" in done.stdout.split()
    assert done.stderr == "[]\n"


def test_the_script_of_a_shell_is_printed() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "hwgen", "--show-completion", "bash"],
        env=os.environ | {"_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "complete" in done.stdout
    assert "_HWGEN_COMPLETE=complete_bash" in done.stdout
