"""Random shapes on this machine's own units, between guard pages; and kernels that are broken on
purpose, each of which the pages, the canaries or the comparison catch."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

import hwgen
from hwgen.model.native import lacking
from hwgen.passes.kernel import Kernel
from hwgen.pipeline import compile_workload
from hwgen.spec.load import load_hardware, load_workload
from tests.fuzz import native
from tests.fuzz.__main__ import main
from tests.fuzz.native import Outcome, judge, native_text, reduced, run_kernel, smaller
from tests.fuzz.native_draws import FAMILIES, MOST_POINTS, Draw, drawn, points
from tests.sampling import QUICK, examples


def on(chip: str) -> None:
    """Skip the test where this machine lacks a chip's instructions."""
    if found := lacking(load_hardware(chip)):
        pytest.skip(f"no {', '.join(found)}")


@pytest.mark.parametrize("chip", FAMILIES)
def test_random_shapes(chip: str) -> None:
    on(chip)
    for seed in range(examples(4)):
        _, draw = drawn(chip, seed)
        outcome = judge(draw, seed, QUICK)
        assert not outcome.wrong, f"{draw.command()}: {outcome.wrong}"
        assert not outcome.refused, f"{draw.command()}: {outcome.refused}"


def compiled(chip: str, name: str, sizes: Mapping[str, int], types: Mapping[str, str]) -> Kernel:
    return compile_workload(load_workload(name, sizes, types), load_hardware(chip), QUICK)


def layer() -> Kernel:
    """Thirteen columns, so that masks are of thirteen lanes."""
    return compiled("x86_avx512", "linear_relu", {"M": 2, "N": 13, "K": 3}, {})


def bytes_product() -> Kernel:
    """Results that the host unpacks from an image of its own."""
    types = {"a": "uint8", "OUT": "int32"}
    return compiled("x86_vnni", "gemm", {"M": 3, "N": 13, "K": 8}, types)


def replaced(pattern: str, by: str) -> Callable[[str], str]:
    """An edit of C that must find something."""

    def edit(text: str) -> str:
        made, count = re.subn(pattern, by, text)
        assert count
        return made

    return edit


def begins(statement: str) -> Callable[[str], str]:
    """A statement before those of the function that works."""
    return replaced(r"(static void \w+_run\([^)]*\)\n\{\n)", rf"\1  {statement}\n")


MUTATIONS: dict[str, tuple[Callable[[], Kernel], Callable[[str], str], str]] = {
    "a store of all lanes": (
        layer,
        replaced(r"(storeu_ps\(\(float \*\)y_image_dev[^(]*)\(1u << 13\)", r"\1(1u << 16)"),
        "SIGSEGV in plain, pages after arrays",
    ),
    "a load of all lanes": (
        layer,
        replaced(r"loadu_ps\([^,]*(, \(const float \*\)b_image_dev)", r"loadu_ps(65535\1"),
        "SIGSEGV in plain, pages after arrays",
    ),
    "a vector past the end": (
        layer,
        begins("volatile float past = ((const float *)w_image_dev)[3 * 13]; (void)past;"),
        "SIGSEGV in plain, pages after arrays",
    ),
    "an element before the start": (
        layer,
        begins("volatile float before = ((const float *)x_image_dev)[-1]; (void)before;"),
        "SIGSEGV in plain, pages before arrays",
    ),
    "a write before the start": (
        layer, begins("((float *)y_image_dev)[-1] = 1;"), "bytes next to y are written",
    ),
    "an input written": (
        layer, begins("((float *)x_image_dev)[0] = 0;"), "SIGSEGV in plain, pages after arrays",
    ),
    "an output not written": (
        layer, replaced(r"  _mm512_mask_storeu_ps\(\(float \*\)y_image_dev \+ 0 \+ 13.*", ""),
        "plain, pages after arrays: y",
    ),
    "a write past what is allocated": (
        bytes_product, replaced(r"c_image_dev \+ 0 \+ 32", "c_image_dev + 0 + 33"),
        "SIGSEGV in plain, pages after arrays",
    ),
    "a read past what is packed": (
        bytes_product,
        begins("volatile char past = ((const char *)b_image_dev)[128]; (void)past;"),
        "SIGSEGV in plain, pages after arrays",
    ),
    "what is never freed": (
        bytes_product, replaced(r"  free\(c_image_host\);\n", ""), "1 allocations are not freed",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MUTATIONS)
def test_broken_kernels_are_caught(name: str) -> None:
    make, edit, message = MUTATIONS[name]
    on("x86_avx512" if make is layer else "x86_vnni")
    kernel = make()
    assert not run_kernel(kernel, 0)
    source = replace(kernel.source, c=edit(kernel.source.c))
    broken = replace(kernel)
    vars(broken)["source"] = source
    assert message in run_kernel(broken, 0)


@pytest.mark.parametrize("chip", FAMILIES)
def test_draws_are_workloads_of_every_kind(chip: str) -> None:
    kinds: set[str] = set()
    for seed in range(60):
        kind, draw = drawn(chip, seed)
        kinds.add(kind)
        assert drawn(chip, seed) == (kind, draw)
        assert points(draw.load()) <= MOST_POINTS
        assert f"--spec {chip} " in draw.command()
    assert kinds == {*FAMILIES[chip]}


def equal(_: Draw, __: int) -> Outcome:
    return Outcome()


def no_calls(_: Draw, __: int) -> Outcome:
    return Outcome(refused="H423")


def right(_: Draw, __: int) -> str:
    return ""


def silent(_: int, __: int) -> None:
    """Show no progress."""


def test_a_failure_is_reduced_and_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The smallest workload that is wrong too, as a command; the exit status is 1."""

    def wrong(draw: Draw, _: int) -> Outcome:
        return Outcome(wrong="SIGSEGV" if draw.sizes.get("N", 0) >= 3 else "")

    monkeypatch.setattr(native, "judge", wrong)
    assert main(["native", "6", "--spec", "x86_avx512"]) == 1
    told = capsys.readouterr().out
    assert "--set N=3" in told
    assert "SIGSEGV" in told
    monkeypatch.setattr(native, "judge", equal)
    assert main(["native", "6", "--spec", "x86_avx512"]) == 0
    assert main(["native", "6", "--spec", "vta"]) == 2


def test_refusals_are_counted_by_their_codes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "judge", no_calls)
    text = native_text(native.campaign(["x86_bf16"], 5, 0, silent))
    assert "H423 " in text
    draw = Draw("vta", Path(hwgen.__file__), {"M": 2}, {})
    assert [d.sizes for d in smaller(draw)] == [{"M": 1}, {"M": 1}, {"M": 1}]
    assert reduced(draw, 0, right).sizes == {"M": 2}
