"""Natural workloads: what is drawn, what becomes of it, and how it is counted."""

from __future__ import annotations

from pathlib import Path

import pytest

from hwgen.cli import main
from hwgen.model import functional
from hwgen.report.campaigns import natural_text
from hwgen.spec.load import load_hardware, parse_workload
from hwgen.verify.natural.campaign import ChipTally, NaturalReport, Outcome, outcome_of
from hwgen.verify.natural.draft import Numbers, numbers_of
from hwgen.verify.natural.families import FAMILIES, Natural, natural_workload

SPECS = Path(__file__).parents[3] / "hw_specs"
BYTES = Numbers("int8", "int32", "int8")
KINDS = (BYTES, Numbers("float32", "float32", "float32"), Numbers("float16", "float32", "float16"))


@pytest.mark.parametrize(
    ("chip", "numbers"),
    [("vta", KINDS[:1]), ("npu_shared_buffer", KINDS[1:2]), ("davinci_core", KINDS[2:])],
)
def test_a_chip_is_asked_in_its_own_numbers(chip: str, numbers: tuple[Numbers, ...]) -> None:
    assert numbers_of(load_hardware(SPECS / f"{chip}.yaml")) == numbers


@pytest.mark.parametrize("numbers", KINDS, ids=str)
def test_every_draw_is_a_workload(numbers: Numbers) -> None:
    drawn = [natural_workload(seed, (numbers,)) for seed in range(150)]
    for natural in drawn:
        parse_workload(natural.data)
    assert drawn == [natural_workload(seed, (numbers,)) for seed in range(150)]
    assert len({repr(n.data) for n in drawn}) == 150
    expected = set(FAMILIES) if numbers.floats else set(FAMILIES) - {"normalisation"}
    assert {n.family for n in drawn} == expected
    text = " ".join(statement["do"] for n in drawn for statement in n.data["compute"])
    for special in ("+=", "max=", "min=", "select(", "clip(", "2*", " + 1]", ">= 1 and"):
        assert special in text, special
    unusual = {word for n in drawn for word in n.unusual}
    assert unusual >= {"stride", "offset", "transpose", "diagonal", "select", "two outputs"}


def test_an_outcome_is_equal_refused_or_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    chip = load_hardware(SPECS / "vta.yaml")
    natural = Natural(
        "elementwise",
        (),
        {
            "name": "one",
            "tensors": {"x": "int8[4]", "y": "int8[4]"},
            "compute": [{"do": "y[i] = int8(x[i] + 1)", "loops": {"i": 4}}],
        },
    )
    other = {"do": "y[i] = int8(x[i] * x[i])", "loops": {"i": 4}}
    refused = Natural("elementwise", (), {**natural.data, "compute": [other]})
    assert outcome_of(natural, chip, 0).verdict == "equal"
    assert outcome_of(refused, chip, 0).verdict in ("equal", "refused")

    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("planted")

    monkeypatch.setattr(functional, "run", broken)
    found = outcome_of(natural, chip, 0)
    assert (found.verdict, found.code, found.message) == ("wrong", "ZeroDivisionError", "planted")


def test_the_most_natural_refusals_come_first() -> None:
    def refused(seed: int, unusual: tuple[str, ...]) -> Outcome:
        data = natural_workload(seed, (BYTES,)).data
        return Outcome(Natural("product", unusual, data), "refused", "H301", "no way")

    tally = ChipTally(Path("some.yaml"))
    for seed in range(30):
        tally.note(refused(seed, tuple("ab"[: seed % 3])))
    tally.note(Outcome(natural_workload(1, (BYTES,)), "wrong", "H790", "another number"))
    assert [len(o.workload.unusual) for o in tally.most_natural] == [0, 1, 2]
    report = NaturalReport(0, (tally,))
    assert not report.ok
    text = natural_text(report)
    assert "H301 product: no way" in text
    assert "WRONG, H790: another number" in text


def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        main(["verify", "--workloads", "3", "--seed", "4", "--spec", str(SPECS / "vta.yaml")]) == 0
    )
    assert "share" in capsys.readouterr().out
    assert main(["verify", "--workloads", "2", "--examples", "2"]) == 2
    assert "not --workloads" in capsys.readouterr().err
