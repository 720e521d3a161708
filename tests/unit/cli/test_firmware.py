"""`generate --target firmware`: what it writes, shows and refuses."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from hwgen.cli import main

Text = pytest.CaptureFixture[str]
SIZES = ("--set", "M=4", "--set", "N=32", "--set", "K=32")
KERNEL = ("generate", "--spec", "vta", "--workload", "gemm_requant", *SIZES)
SMALL = ("generate", "--spec", "vta", "--workload", "gemm", *SIZES)
NAME = "gemm_requant_vta_M4_N32_K32"
FOLDER = {"main.c", "Makefile", "CMakeLists.txt", "stub"}


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    np.save("b.npy", np.zeros((32, 32), np.int8))
    np.save("bias.npy", np.zeros(32, np.int32))


def written(folder: str = "out") -> set[str]:
    return {p.name for p in Path(folder).iterdir()}


def test_what_is_compiled_in_is_not_packed(capsys: Text) -> None:
    both = ("--weights", "b=b.npy", "--weights", "bias=bias.npy")
    assert main([*KERNEL, "--target", "firmware", *both, "-o", "out"]) == 0
    shown = capsys.readouterr().out
    assert f"firmware {NAME}: 0 bytes of workspace, 1,152 of constants" in shown
    ends = (".c", ".h", "_model.c", "_weights.c")
    assert written() == FOLDER | {f"{NAME}{end}" for end in ends}
    assert Path("out/stub/vta/runtime/runtime.h").is_file()


def test_without_weights_the_caller_packs(capsys: Text) -> None:
    assert main([*KERNEL, "--target", "firmware", "-o", "out"]) == 0
    assert f"{NAME}_pack.c" in written()
    assert "constants" not in capsys.readouterr().out.rsplit("firmware ", 1)[1]


def test_stages_show_the_firmware(capsys: Text) -> None:
    assert main([*KERNEL, "--target", "firmware", "--stage", "model"]) == 0
    assert "void *workspace)" in capsys.readouterr().out
    assert main([*KERNEL, "--target", "firmware", "--stage", "emit"]) == 0
    out = capsys.readouterr().out
    assert "malloc" not in out
    assert f"\nvoid {NAME}_run(" in out


def test_host_is_what_is_left_out(capsys: Text) -> None:
    assert main([*SMALL, "-o", "one"]) == 0
    assert main([*SMALL, "--target", "host", "-o", "two"]) == 0
    assert "firmware" not in capsys.readouterr().out
    assert written("one") == written("two")
    for path in Path("one").iterdir():
        assert path.read_bytes() == Path("two", path.name).read_bytes()


def test_a_processors_kernel_is_its_own_model(capsys: Text) -> None:
    kernel = ("generate", "--spec", "cpu_generic", "--workload", "gemm", *SIZES)
    assert main([*kernel, "--target", "firmware", "--weights", "b=b.npy", "-o", "out"]) == 0
    assert "of workspace, 1,024 of constants" in capsys.readouterr().out
    name = "gemm_cpu_generic_M4_N32_K32"
    ends = (".c", ".h", "_weights.c")
    assert written() == FOLDER - {"stub"} | {f"{name}{end}" for end in ends}
    assert main([*kernel, "--target", "firmware", "--stage", "emit"]) == 0
    assert "void *workspace" in capsys.readouterr().out


def test_every_workload_of_a_folder_is_one_library(capsys: Text) -> None:
    Path("workloads").mkdir()
    for name in ("one", "two"):
        text = f"""\
hwgen: 1
name: {name}
tensors: {{a: "int8[4, 16]", b: "int8[16, 16]", s: "int32[4, 16]", c: "int8[4, 16]"}}
compute:
  - s[m, n] += a[m, k] * b[n, k]
  - c[m, n] = int8(s[m, n])
"""
        Path("workloads", f"{name}.yaml").write_text(text)
    assert main(["generate", "--spec", "vta", "--target", "firmware", "-o", "out"]) == 0
    assert capsys.readouterr().out.count("\nfirmware ") == 2
    text = Path("out/Makefile").read_text()
    assert "SOURCES = one_vta.c two_vta.c\n" in text
    assert Path("out/main.c").read_text().count("!= 0)") == 2


@pytest.mark.parametrize(
    "words",
    [
        ("--weights", "b=b.npy"),
        ("--weights", "b=b.npy", "--target", "host"),
        ("--weights", "b=b.npy", "--target", "firmware", "--workload", "gemm"),
        ("--target", "board"),
    ],
)
def test_wrong_usage(words: tuple[str, ...], capsys: Text) -> None:
    assert main([*KERNEL, *words]) == 2
    assert capsys.readouterr().out == ""


def test_a_file_in_the_way_of_the_stub_leaves_nothing(capsys: Text) -> None:
    Path("out").mkdir()
    Path("out/stub").write_text("mine")
    assert main([*SMALL, "--target", "firmware", "-o", "out"]) == 1
    assert "error[H009]" in capsys.readouterr().err
    assert written() == {"stub"}
