"""Whatever is done to a spec's text, it loads or gives a coded error: never anything else."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hwgen.errors import HwgenError
from hwgen.spec.load import load_hardware, load_workload
from tests.sampling import examples

ROOT = Path(__file__).parents[3]
JUNK = [
    "-1", "0", "1e999", "..", "1..", "null", "~", "[]", "{}", "'", '"', "true", "no", "012", "*x",
    "&x", "<<: *alu", "{{", "}}", "{%", "((((", "))", "9" * 30, "N/0", "1<<99999", "x[", "]", "\t",
    "\x00", "\u00e9", "\U0001d518", "---", "...", "!!int", "#", ": ", "- ", "? ", "|", ">", "@",
    "`", "%YAML 9", "max", "select(", "a.b", "{{ ''.__class__ }}", "\\", "1.5", "=", "and", "not",
]  # fmt: skip
WORD = re.compile(r"[A-Za-z_]+|[0-9]+")


@st.composite
def mutations(draw: st.DrawFn, text: str) -> str:
    """One to three edits: lines dropped or repeated, words replaced, junk inserted, the end cut."""
    for _ in range(draw(st.integers(1, 3))):
        lines, words = text.split("\n"), list(WORD.finditer(text))
        kind = draw(st.integers(0, 5))
        if kind == 0:
            del lines[draw(st.integers(0, len(lines) - 1))]
            text = "\n".join(lines)
        elif kind == 1:
            line = lines[draw(st.integers(0, len(lines) - 1))]
            lines.insert(draw(st.integers(0, len(lines))), line)
            text = "\n".join(lines)
        elif kind == 2 and words:
            word = draw(st.sampled_from(words))
            text = text[: word.start()] + draw(st.sampled_from(JUNK)) + text[word.end() :]
        elif kind == 3 and words:
            word, other = draw(st.sampled_from(words)), draw(st.sampled_from(words))
            text = text[: word.start()] + other.group() + text[word.end() :]
        elif kind == 4:
            at = draw(st.integers(0, len(text)))
            text = text[:at] + draw(st.sampled_from(JUNK)) + text[at:]
        else:
            at = draw(st.integers(len(text) // 2, len(text)))
            text = text[:at]
    return text


def _check(load: Callable[[Path], object], text: str, folder: Path) -> None:
    path = folder / "mutated.yaml"
    path.write_text(text, encoding="utf-8")
    try:
        load(path)
    except HwgenError as error:
        known = error.diagnostic
    else:
        return
    assert re.fullmatch(r"H\d{3}", known.code)
    assert known.location is not None
    assert known.location.file == str(path)


def _text(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


@settings(max_examples=examples(25), deadline=None, derandomize=True)
@given(text=mutations(_text("hw_specs/vta.yaml")))
def test_mutated_vta(text: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    _check(load_hardware, text, tmp_path_factory.getbasetemp())


@settings(max_examples=examples(60), deadline=None, derandomize=True)
@given(text=mutations(_text("tests/error/spec_valid.yaml")))
def test_mutated_small_chip(text: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    _check(load_hardware, text, tmp_path_factory.getbasetemp())


@settings(max_examples=examples(60), deadline=None, derandomize=True)
@given(text=mutations(_text("tests/error/spec_valid_processor.yaml")))
def test_mutated_processor(text: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    _check(load_hardware, text, tmp_path_factory.getbasetemp())


@settings(max_examples=examples(60), deadline=None, derandomize=True)
@given(text=mutations(_text("workloads/conv2d_requant.yaml")))
def test_mutated_workload(text: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    _check(load_workload, text, tmp_path_factory.getbasetemp())
