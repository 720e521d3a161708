"""`help`: what an error's code means, and how a command is called."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from hwgen.cli import main
from hwgen.cli.help import primitive, section
from hwgen.polyhedral.schedule.script import PRIMITIVES

ROOT = Path(__file__).resolve().parents[3]
CODES = re.findall(r"^\| \[(H\d{3})\]", (ROOT / "docs/errors/index.md").read_text("utf-8"), re.M)

Text = pytest.CaptureFixture[str]


@pytest.mark.parametrize("topic", ["H422", "h422", "422"])
def test_a_code_is_explained(topic: str, capsys: Text) -> None:
    assert main(["help", topic]) == 0
    text = capsys.readouterr().out
    assert text.startswith("H422\n\nIntrinsics that do not compute the block")
    assert "\nRepair. Name other intrinsics" in text
    assert "\n    error[H422]: mul_imm cannot compute c_local\n      field: " in text
    assert "```" not in text
    assert "**" not in text


def test_every_code_has_a_section() -> None:
    assert len(CODES) > 150
    for code in CODES:
        text = section(code)
        assert text.startswith(f"{code}\n\n")
        assert "Repair. " in text


@pytest.mark.parametrize("name", PRIMITIVES)
def test_every_primitive_is_explained(name: str) -> None:
    text = primitive(name)
    assert text.startswith(f"s.{name}(")
    assert "\n- Legal: " in text
    assert "\n    error[H4" in text
    assert "```" not in text


def test_a_primitive_is_a_topic(capsys: Text) -> None:
    assert main(["help", "tensorize"]) == 0
    text = capsys.readouterr().out
    assert "every block needs its intrinsic, copies and initialisations too" in text
    assert main(["help", "tensorise"]) == 2
    assert "did you mean tensorize?" in " ".join(capsys.readouterr().err.split())


def test_an_internal_error_says_how_to_see_where() -> None:
    assert "HWGEN_TRACEBACK=1" in section("H000")


def test_a_family_is_listed(capsys: Text) -> None:
    assert main(["help", "H3"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == [c for c in CODES if c.startswith("H3")]
    assert main(["help", "H"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == CODES


@pytest.mark.parametrize("arguments", [[], ["generate"]])
def test_commands_say_what_their_help_does(arguments: list[str], capsys: Text) -> None:
    assert main(["help", *arguments]) == 0
    helped = capsys.readouterr().out
    assert main([*arguments, "--help"]) == 0
    assert helped.strip() == capsys.readouterr().out.strip()


@pytest.mark.parametrize(
    ("topic", "said"), [("H999", "hwgen help H4"), ("generat", "did you mean generate"), ("x", "")]
)
def test_an_unknown_topic_is_wrong_usage(topic: str, said: str, capsys: Text) -> None:
    assert main(["help", topic]) == 2
    assert said in " ".join(capsys.readouterr().err.split())
