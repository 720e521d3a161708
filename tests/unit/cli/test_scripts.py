"""Schedule scripts on the command line: printed, changed, completed, refused."""

from __future__ import annotations

import re
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from hwgen.cli import main
from hwgen.cli.searching import Search, searching
from hwgen.pipeline import SearchOptions
from hwgen.spec.load import load_hardware
from tests.commands import run
from tests.samples import CHIPS_WITH_UNITS, ROOT
from tests.sampling import THOROUGH, tiered

CHIP = next(p for p in CHIPS_WITH_UNITS if p.stem == "vta")
LOOPS = next(
    p
    for p in sorted((ROOT / "hw_specs").glob("*.yaml"))
    if load_hardware(p).processor is not None and not load_hardware(p).units
)
GEMM = ROOT / "workloads" / "gemm.yaml"
SIZES = ["--set", "M=4", "--set", "N=256", "--set", "K=64"]
KERNEL = ["--spec", str(CHIP), "--workload", str(GEMM), *SIZES, "--no-cache"]
SPLIT = re.compile(r"(?<=s\.split\(c_n_o, factor=)\d+")
"""The tile of the output's columns, in blocks."""

Text = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def printed() -> list[str]:
    """The script, once it has been printed."""
    return []


@pytest.fixture
def script(printed: list[str], capsys: Text) -> str:
    if not printed:
        assert main(["generate", *KERNEL, "--stage", "script"]) == 0
        printed.append(capsys.readouterr().out)
    assert len(SPLIT.findall(printed[0])) == 1, printed[0]
    return printed[0]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "my.py"


def generated(file: Path, capsys: Text, *options: str) -> str:
    """What a stage shows of the kernel of a script."""
    assert main(["generate", *KERNEL, "--script", str(file), *options]) == 0
    return capsys.readouterr().out


def refused(file: Path, capsys: Text, *options: str) -> str:
    """The message; nothing else is printed."""
    assert main(["generate", *KERNEL, "--script", str(file), *options]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    return captured.err


@pytest.mark.parametrize("options", [[], ["--no-auto"]])
def test_a_printed_script_makes_the_same_kernel(
    options: list[str], script: str, file: Path, capsys: Text
) -> None:
    file.write_text(script)
    assert generated(file, capsys, "--stage", "script", *options) == script
    again = generated(file, capsys, "--stage", "emit", *options)
    assert main(["generate", *KERNEL, "--stage", "emit"]) == 0
    assert again == capsys.readouterr().out


def test_a_changed_number_makes_another_kernel(script: str, file: Path, capsys: Text) -> None:
    changed = SPLIT.sub("2", script)
    file.write_text(changed)
    assert generated(file, capsys, "--no-auto", "--stage", "script") == changed
    assert "for c_n_o_o in 0..<8:" in generated(file, capsys, "--no-auto")
    assert main(["simulate", *KERNEL, "--script", str(file), "--no-auto"]) == 0
    shown = capsys.readouterr().out
    assert "equal to the reference, bit for bit" in shown


def test_the_scheduler_goes_on_from_a_partial_script(script: str, file: Path, capsys: Text) -> None:
    begun = "".join(SPLIT.sub("2", script).splitlines(keepends=True)[:3])
    assert "factor=2" in begun
    file.write_text(f'"""My first lines."""\n\n{begun}')
    whole = generated(file, capsys, "--stage", "script")
    assert whole.startswith(begun)
    assert whole.count("tensorize") == script.count("tensorize")
    file.write_text(whole)
    assert main(["simulate", *KERNEL, "--script", str(file), "--no-auto"]) == 0
    assert "equal to the reference, bit for bit" in capsys.readouterr().out


def test_a_script_without_an_end_where_nothing_completes_it(
    script: str, file: Path, capsys: Text
) -> None:
    """The processor's, but for what it keeps in a memory of units."""
    lines = script.splitlines(keepends=True)
    file.write_text("".join(lines[:3]))
    assert "the processor computes c: " in generated(file, capsys, "--no-auto")
    assert main(["generate", *KERNEL, "--no-auto"]) == 0
    out = capsys.readouterr().out
    assert "the processor computes c: " in out
    assert "the units compute nothing, the processor everything: no block has a call" in out
    file.write_text(script)
    assert "the units compute nothing" not in generated(file, capsys, "--no-auto")
    file.write_text("".join(line for line in lines if "tensorize" not in line))
    assert refused(file, capsys, "--no-auto").startswith(
        f"{file}: error[H512]: not all who touch a_inp see it in inp"
    )


@THOROUGH
def test_a_beginning_that_the_search_does_not_make_is_completed(
    script: str, file: Path, capsys: Text
) -> None:
    first = script.splitlines()[0]
    begun = f"{first}\ns.compute_at('acc', 'c_m')\n"
    file.write_text(f"# Mine.\n{begun}")
    assert begun in generated(file, capsys, "--stage", "script")


@pytest.mark.parametrize("options", [[], ["--no-auto"]])
@pytest.mark.parametrize(
    ("second", "code"),
    [
        ("import os", "H418"),
        ("outer = [", "H418"),
        ("s.no_such_primitive('c_m')", "H418"),
        ("s.split('no_such_loop', factor=2)", "H414"),
        ("s.compute_at('c', 'c_m')", "H413"),
    ],
)
def test_a_wrong_line_is_named(
    second: str, code: str, options: list[str], script: str, file: Path, capsys: Text
) -> None:
    file.write_text(f"{script.splitlines()[0]}\n{second}\n")
    message = refused(file, capsys, *options)
    assert re.match(rf"{re.escape(str(file))}:2(:1)?: error\[{code}\]: ", message), message


def test_files_that_are_no_scripts(file: Path, capsys: Text) -> None:
    assert "error[H001]" in refused(file, capsys)
    file.write_bytes(b"\xff\xfe")
    assert refused(file, capsys).startswith(f"{file}: error[H418]: ")


TOO_LARGE = [(2048, 1024), (4096, 1024), (9000, 1024)]


@pytest.mark.parametrize(("tile", "fits"), tiered(TOO_LARGE, TOO_LARGE[:1]))
def test_a_tile_that_is_too_large_is_an_error_of_the_script(
    tile: int, fits: int, file: Path, capsys: Text
) -> None:
    sizes = ["--set", "M=4096", "--set", "N=16", "--set", "K=16"]
    kernel = ["--spec", str(CHIP), "--workload", str(GEMM), *sizes, "--no-cache"]
    assert main(["generate", *kernel, "--stage", "script"]) == 0
    text, changed = re.subn(r"(?<=s\.split\('c_m', factor=)\d+", str(tile), capsys.readouterr().out)
    assert changed == 1
    file.write_text(text)
    assert main(["generate", *kernel, "--script", str(file), "--no-auto"]) == 1
    message = capsys.readouterr().err
    assert message.startswith(f"{file}:1:1: error[H502]: ")
    assert f"{file}:1: c_m_o, c_m_i = s.split('c_m', factor={fits})" in message
    file.write_text(text.replace(f"factor={tile}", f"factor={fits}", 1))
    assert main(["generate", *kernel, "--script", str(file), "--no-auto"]) == 0


def test_a_script_and_a_rank_exclude_each_other(file: Path, capsys: Text) -> None:
    file.write_text("")
    assert main(["simulate", *KERNEL, "--script", str(file), "--schedule", "1"]) == 2
    assert "a script has one schedule" in capsys.readouterr().err


def test_a_script_is_for_one_workload(file: Path, capsys: Text) -> None:
    file.write_text("")
    for workloads in ([], ["--workload", "gemm", "--workload", "relu"]):
        assert main(["generate", "--spec", str(CHIP), *workloads, "--script", str(file)]) == 2
        assert "a script is for one workload" in capsys.readouterr().err


def test_a_search_for_the_rest_reports_its_steps(
    script: str, file: Path, capsys: Text, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[int] = []

    def note(done: int, _: int) -> None:
        steps.append(done)

    @contextmanager
    def listening(name: str, search: Search) -> Generator[SearchOptions, None, None]:
        with searching(name, search) as options:
            yield replace(options, progress=note)

    monkeypatch.setattr("hwgen.cli.generate.searching", listening)
    file.write_text(script.splitlines()[0])
    generated(file, capsys)
    assert steps
    assert steps == sorted(steps)


def test_scripts_of_processors_can_be_simulated(file: Path, capsys: Text) -> None:
    kernel = ["--spec", str(LOOPS), "--workload", str(GEMM), *SIZES]
    assert main(["generate", *kernel, "--stage", "script"]) == 0
    file.write_text(capsys.readouterr().out)
    assert main(["simulate", *kernel, "--script", str(file), "--no-auto"]) == 0
    assert "equal to the reference" in capsys.readouterr().out


GEMM_SCALED = "--spec gemmini --workload gemm_scaled --set M=32 --set N=32 --set K=32"


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        (["s.set_address('a_spad', 1000)"], "repair:  address 992"),
        (["s.set_address('a_spad', 262144)"], "repair:  address 262128"),
        (
            ["s.set_address('a_spad', 0)", "s.set_address('b_spad', 512)"],
            "has no room at entry 32 of spad",
        ),
    ],
    ids=["between entries", "past the end", "in another's place"],
)
def test_addresses_by_hand_that_cannot_be(
    lines: list[str], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    made = run(f"hwgen generate {GEMM_SCALED} --stage script", monkeypatch, capsys).out
    script = tmp_path / "mine.py"
    script.write_text(made + "\n".join(lines) + "\n", encoding="utf-8")
    ran = run(f"hwgen generate {GEMM_SCALED} --script {script} --no-auto", monkeypatch, capsys)
    assert ran.status == 1
    assert says in ran.err, ran.err
    if "no room" in says:
        assert "found:   a_spad in 0..63, where b_spad has to be in 32..95" in ran.err


def test_a_type_that_nobody_names_says_where_it_would_stand(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ran = run(
        "hwgen generate --spec vtcm_two_banks --workload matmul --dtype T=float16",
        monkeypatch, capsys,
    )  # fmt: skip
    assert "matmul.yaml: error[H005]: nothing here is called T" in ran.err
    assert "write dtypes: {T: float16} there" in ran.err
