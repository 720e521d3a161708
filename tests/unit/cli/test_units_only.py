"""No workload falls from a chip's units to its processor without a word: a warning says why, and
`--units-only` makes it an error."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

import hwgen
from hwgen.cli import main
from hwgen.errors import HwgenError
from hwgen.passes.phase import SearchOptions

Text = pytest.CaptureFixture[str]

FLOATS = (
    "--spec",
    "x86_vnni",
    "--workload",
    "matmul",
    "--set",
    "M=4",
    "--set",
    "N=16",
    "--set",
    "K=8",
)
"""A product in float32, of which units multiply bytes alone."""

REQUANTISED = (
    "--spec", "x86_vnni", "--workload", "workloads/quantised/fully_connected.yaml", "--set", "N=16",
    "--set", "K=8",
)  # fmt: skip
"""Units multiply, the processor narrows."""

BYTES = (
    "--spec", "x86_vnni", "--workload", "gemm", "--set", "N=16", "--set", "K=8", "--dtype",
    "a=uint8", "--dtype", "OUT=int32",
)  # fmt: skip
"""Units do all of it."""


def run(capsys: Text, command: str, words: Sequence[str]) -> tuple[int, str, str]:
    """The exit status, and what is printed on either stream."""
    status = main([command, *words])
    told = capsys.readouterr()
    return status, told.out, told.err


@pytest.mark.parametrize(("words", "names"), [(FLOATS, "c"), (REQUANTISED, "acc_part, y")])
def test_a_warning_gives_the_reason(words: Sequence[str], names: str, capsys: Text) -> None:
    status, out, err = run(capsys, "generate", words)
    assert status == 0
    assert err.startswith(f"warning: the processor of x86_vnni computes {names}: its units cannot")
    assert "H301: no intrinsics of x86_vnni compute S" in err
    assert "repair: " in err
    assert "the processor computes " in out
    everything = "the units compute nothing, the processor everything: H301 no intrinsics of" in out
    assert everything == (words is FLOATS)


def test_the_warning_is_no_part_of_the_record(capsys: Text) -> None:
    status, out, err = run(capsys, "generate", (*FLOATS, "--json"))
    assert (status, out[0], err[:8]) == (0, "{", "warning:")


@pytest.mark.parametrize("command", ["generate", "simulate"])
@pytest.mark.parametrize("words", [FLOATS, REQUANTISED])
def test_units_only_refuses_the_processor(command: str, words: Sequence[str], capsys: Text) -> None:
    status, out, err = run(capsys, command, (*words, "--units-only"))
    assert (status, out) == (1, "")
    assert "error[H301]: no intrinsics of x86_vnni compute S" in err


def test_a_processor_alone_has_no_units(capsys: Text) -> None:
    words = ("--spec", "cpu_generic", "--workload", "matmul", "--units-only")
    status, _, err = run(capsys, "generate", words)
    assert status == 1
    assert "error[H301]: cpu_generic has no units" in err


def test_what_units_do_is_taken_without_a_word(capsys: Text) -> None:
    plain = run(capsys, "generate", (*BYTES, "--stage", "schedule"))
    assert plain[2] == ""
    assert run(capsys, "generate", (*BYTES, "--stage", "schedule", "--units-only")) == plain


def test_a_factor_that_only_the_processor_makes_unsigned_is_done_by_slower_units() -> None:
    """The processor is there for speed, which is no refusal: units alone do it another way."""
    sizes, types = {"M": 16, "N": 32, "K": 64}, {"OUT": "int32"}
    workload = hwgen.load_workload("gemm", sizes, types)
    both = hwgen.build(workload, "x86_vnni").compilation
    alone = hwgen.build(workload, "x86_vnni", options=SearchOptions(units_only=True)).compilation
    assert any(not code.once for code in both.program.codes)
    assert both.account.fallen is None
    assert not alone.program.codes
    assert both.cycles < alone.cycles


def test_a_script_says_itself_what_units_compute(capsys: Text) -> None:
    status, _, err = run(capsys, "generate", (*BYTES, "--script", "x.script", "--units-only"))
    assert status == 2
    assert "a script itself says what units compute" in err


def test_the_reason_is_kept_with_the_kernel() -> None:
    kernel = hwgen.build("matmul", "x86_vnni", sizes={"M": 4, "N": 16, "K": 8})
    fallen = kernel.compilation.account.fallen
    assert fallen is not None
    assert any(fallen.message in note for note in kernel.notes)
    options = SearchOptions(units_only=True)
    with pytest.raises(HwgenError, match="H301") as refused:
        hwgen.build("matmul", "x86_vnni", sizes={"M": 4, "N": 16, "K": 8}, options=options)
    assert refused.value.diagnostic == fallen
