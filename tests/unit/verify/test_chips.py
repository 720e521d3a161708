"""Campaigns of random chips: deterministic, in parts or in several processes, and not blind."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from functools import cache
from pathlib import Path
from random import Random

import pytest

from hwgen import pipeline
from hwgen.cli import main
from hwgen.codegen.nodes import Call, If, Node, Pop, Push
from hwgen.codegen.nodes import nodes as all_nodes
from hwgen.codegen.program import Program
from hwgen.errors import HwgenError
from hwgen.model.trace import CallEvent, walk
from hwgen.passes.kernel import Kernel
from hwgen.pipeline import SearchOptions
from hwgen.spec.hardware import HardwareSpec
from hwgen.spec.load import parse_hardware, parse_workload
from hwgen.spec.source import parse_document, read_document
from hwgen.spec.workload import Workload
from hwgen.verify import examine
from hwgen.verify.examine import compile_ranked
from hwgen.verify.natural.draws import Pick, Spec, Tape
from tests.fuzz import edits
from tests.fuzz.__main__ import main as fuzz
from tests.fuzz.chips import campaign
from tests.fuzz.chips import examine as chip_examine
from tests.fuzz.chips.campaign import ChipReport, Tally, chip_campaign
from tests.fuzz.chips.draw import Draw, draw_again, draw_of, random_chip
from tests.fuzz.chips.elements import element_chip
from tests.fuzz.chips.entries import entry_chip
from tests.fuzz.chips.examine import check
from tests.fuzz.chips.memories import draw_addresses
from tests.fuzz.chips.text import yaml_text
from tests.fuzz.chips.used import FEATURES
from tests.fuzz.mutations_synchronisation import synchronisation_mutations
from tests.fuzz.report import chips_text, failure_files, simulate_command
from tests.planted.kernels import with_program
from tests.planted.programs import mutations

ROOT = Path(__file__).resolve().parents[3]
CPU = ROOT / "hw_specs" / "cpu_generic.yaml"
SHARED = ROOT / "hw_specs" / "npu_shared_buffer.yaml"

Compile = Callable[[Workload, HardwareSpec, int], Kernel]


@cache
def first(verdict: str, start: int = 0) -> Draw:
    """The first draw that comes to a verdict."""
    return next(d for d in map(draw_of, range(start, start + 40)) if check(d).verdict == verdict)


@pytest.fixture
def compiling(monkeypatch: pytest.MonkeyPatch) -> Callable[[Compile], None]:
    """Put a function in the place of the compiler."""

    def set_to(compiled: Compile) -> None:
        def best(workload: Workload, hardware: HardwareSpec, options: SearchOptions) -> Kernel:
            try:
                return compiled(workload, hardware, 0)
            except HwgenError as error:
                units = pipeline.units_of(hardware, options)
                start = pipeline.rewritten(workload, hardware)
                return pipeline.otherwise(start, options, error, units)

        monkeypatch.setattr(examine, "compile_ranked", compiled)
        monkeypatch.setattr(pipeline, "compile_workload", best)

    return set_to


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Failures are reduced a little only."""
    monkeypatch.setattr(campaign, "SHRINK_RUNS", 15)
    monkeypatch.setattr(campaign, "SHOWN_FAILURES", 1)


def without_a_load(workload: Workload, hardware: HardwareSpec, rank: int) -> Kernel:
    """A compiler that forgets one transfer to the chip."""
    compiled = COMPILE(workload, hardware, rank)
    (forget,) = [m for m in mutations(hardware) if m.name == "missing load"]
    mutant = forget.mutate(compiled.program, 0)
    if mutant is None:
        return compiled
    return with_program(compiled, mutant)


COMPILE = examine.compile_ranked

# What is drawn


def test_texts_hold_what_was_drawn() -> None:
    for seed in range(30):
        data = random_chip(Pick(Random(seed).choice))
        text = yaml_text(data)
        assert parse_document(text, "chip.yaml").data == data
        assert text == yaml_text(data)


@pytest.mark.parametrize("path", [SHARED, *sorted((ROOT / "workloads").glob("*.yaml"))])
def test_texts_hold_what_files_say(path: Path) -> None:
    data = read_document(path).data
    assert isinstance(data, dict)
    assert parse_document(yaml_text(data), "again.yaml").data == data


def test_a_seed_and_its_choices_give_the_same_draw() -> None:
    draws = [draw_of(seed) for seed in range(20)]
    assert draws == [draw_of(seed) for seed in range(20)]
    assert draws == [draw_again(draw.choices) for draw in draws]
    assert len({draw.chip for draw in draws}) == 20


def test_the_simplest_draw_runs() -> None:
    simplest = draw_again(())
    assert not any(simplest.choices)
    assert check(simplest).verdict == "equal"


def test_a_position_past_the_end_is_the_last() -> None:
    tape = Tape(given=(1, 9))
    assert [tape.choose("abc") for _ in range(3)] == ["b", "c", "a"]
    assert tape.taken == [1, 2, 0]


def test_draws_differ_in_what_makes_chips_different() -> None:
    """Each feature in some of the chips, and absent in others."""
    specs = [random_chip(Pick(Random(seed).choice)) for seed in range(120)]
    operands = [
        [o for i in s["intrinsics"].values() for o in i["operands"].values()] for s in specs
    ]
    loops = [[x for i in s["intrinsics"].values() for x in i["loops"].values()] for s in specs]
    features = {
        "several buses": [len(s["buses"]) > 1 for s in specs],
        "micro-kernels": ["micro_kernels" in s for s in specs],
        "fetch": ["fetch" in s for s in specs],
        "part of a memory": [any("address" in o for o in some) for some in operands],
        "single elements": [not any(m.get("entry") for m in s["memories"].values()) for s in specs],
        "lanes of one": [1 in s["memories"].get("left", {}).get("entry", []) for s in specs],
        "odd lanes": [3 in s["memories"].get("left", {}).get("entry", []) for s in specs],
        "loops of one": [any(x["extent"] in ("1", "1..1") for x in some) for some in loops],
        "odd strides": [any("1..3" in x["strides"].values() for x in some) for some in loops],
        "one unit": [len(s["units"]) == 1 for s in specs],
        "three units": [len(s["units"]) == 3 for s in specs],
        "issue by a host": ["issue" in s for s in specs],
        "short queues": [any(u.get("queue_entries") == 1 for u in units(s)) for s in specs],
        "C loops": [any("software_loops" in i for i in intrinsics(s)) for s in specs],
        "stationary": [any("stationary" in i for i in intrinsics(s)) for s in specs],
        "several instructions": [any("instructions" in i for i in intrinsics(s)) for s in specs],
        "sums begun": [any(len(i["semantics"]) == 2 for i in intrinsics(s)) for s in specs],
        "configurations": [bool(s.get("configurations")) for s in specs],
        "several registers": [
            any(len(c.get("registers", ())) > 1 for c in s.get("configurations", {}).values())
            for s in specs
        ],
        "shared": [any(m.get("shared") for m in s["memories"].values()) for s in specs],
        "constants": [any(m.get("constants_only") for m in s["memories"].values()) for s in specs],
        "operands of several entries": [
            len(s["memories"].get("right", {}).get("entry", "12")) == 1 for s in specs
        ],
    }
    assert {name: sum(found) for name, found in features.items() if not 3 <= sum(found) < 118} == {}


def units(spec: Spec) -> list[Spec]:
    return list(spec["units"].values())


def intrinsics(spec: Spec) -> list[Spec]:
    return list(spec["intrinsics"].values())


@pytest.mark.parametrize("chip", [entry_chip, element_chip])
def test_calls_name_what_their_features_offer(chip: Callable[[Pick], Spec]) -> None:
    """Whether a stationary operand is new, which register they read, and what it is to hold."""
    found = {"fresh": 0, "id": 0, "word": 0, "field": 0}
    for seed in range(60):
        spec = chip(Pick(Random(seed).choice))
        states: Spec = spec.get("configurations", {})
        for intrinsic in intrinsics(spec):
            emit = str(intrinsic["emit"])
            if "stationary" in intrinsic:
                assert f"{{{{ {intrinsic['stationary']['operand']}.fresh }}}}" in emit
                found["fresh"] += 1
            for state, fields in intrinsic.get("configuration", {}).items():
                assert list(fields) == states[state]["fields"]
                for word in ("id", "word") if "registers" in states[state] else ():
                    assert f"{{{{ {state}.{word} }}}}" in emit
                    assert f"{{{{ register.{word} }}}}" in states[state]["emit"]
                    found[word] += 1
                found["field"] += any("{{" in text for text in fields.values())
    assert all(count >= 5 for count in found.values()), found


def test_features_that_kernels_use_are_counted() -> None:
    report = chip_campaign(3, 0)
    used = report.tally.features
    assert 0 < sum(used.values()) < len(FEATURES) * report.tally.count("equal")
    shown = chips_text(report, Path())
    assert all(
        re.search(rf"^{feature} +{used[feature]}$", shown, re.MULTILINE) for feature in FEATURES
    )
    again = Tally()
    again.add(report.tally)
    assert again.features == used


def test_address_fields_reach_a_part_of_their_memory() -> None:
    operands: Spec = {f"x{n}": {"memory": "m"} for n in range(60)}
    spec: Spec = {"intrinsics": {"f": {"operands": operands}}}
    draw_addresses(spec, Pick(Random(0).choice), {"m": 9})
    drawn = {o["address"] for o in operands.values() if "address" in o}
    steps = {f"0..8 step {n}" for n in (2, 3, 4, 16)}
    assert {"0..8", "0..3", "4..8", "3..8", "1..8"} == drawn - steps
    assert drawn & steps


# Campaigns


def test_a_campaign_is_the_same_again_in_parts_and_in_several_processes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(campaign, "BATCH", 3)
    whole = chip_campaign(5, 7).tally
    assert whole.drawn == 5
    assert whole.failures == []
    assert whole == chip_campaign(5, 7, processes=2).tally
    parts = Tally()
    for start, count in ((7, 3), (10, 2)):
        parts.add(chip_campaign(count, start).tally)
    assert whole == parts


def test_variants_of_a_chip() -> None:
    report = chip_campaign(3, 0, base=SHARED)
    assert report.ok, chips_text(report, Path())
    assert f"variants of {SHARED}, seed 0: 3 drawn" in chips_text(report, Path())
    drawn = read_document(SHARED).data
    assert isinstance(drawn, dict)
    assert parse_hardware(parse_data(draw_of(1, drawn).chip)).name == drawn["name"]


def parse_data(text: str) -> Spec:
    data = parse_document(text, "drawn.yaml").data
    assert isinstance(data, dict)
    return data


def test_a_processor_has_no_variants() -> None:
    with pytest.raises(HwgenError) as caught:
        chip_campaign(1, 0, base=CPU)
    assert caught.value.code == "H007"


def test_nothing_that_ran_is_no_success() -> None:
    assert not ChipReport(None, 0, Tally(drawn=3), ()).ok


# What a campaign must find


def test_a_defect_of_the_compiler_is_found_reduced_and_reproduced(
    compiling: Callable[[Compile], None],
    quick: None,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    del quick
    compiling(without_a_load)
    report = chip_campaign(2, 0)
    assert not report.ok
    failure = report.failures[0]
    assert "H747" in failure.outcome.message
    assert sum(failure.draw.choices) < sum(draw_of(failure.number).choices)
    assert check(draw_of(failure.number)).verdict == "wrong"
    for name, text in failure_files(report).items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    shown = chips_text(report, tmp_path)
    assert "\nWRONG " in shown
    assert f"drawn by:   python -m tests.fuzz chips 1 --seed {failure.number}" in shown
    chip, workload = (tmp_path / name for name in list(failure_files(report))[:2])
    command = simulate_command(failure.draw, chip, workload)
    assert f"reproduce:  {command}" in shown
    compiling(lambda w, h, rank, _options=None: without_a_load(w, h, rank))
    assert main(shlex.split(command)[1:]) == 1
    compiling(COMPILE)
    assert main(shlex.split(command)[1:]) == 0
    capsys.readouterr()


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (HwgenError("H406", "a dependence"), "compiling: error[H406]"),
        (HwgenError("H405", "no room"), "refused without a reason or a repair"),
        (ZeroDivisionError("division"), "crash: ZeroDivisionError in test_chips.py:failing"),
    ],
)
def test_errors_of_the_compiler_that_are_defects(
    compiling: Callable[[Compile], None], error: Exception, message: str
) -> None:
    draw = first("equal")

    def failing(*_: object) -> Kernel:
        raise error

    compiling(failing)
    outcome = check(draw)
    assert outcome.verdict == "wrong"
    assert outcome.message.startswith(message)


def test_a_refusal_is_counted_by_its_code(compiling: Callable[[Compile], None]) -> None:
    def refusing(*_: object) -> Kernel:
        raise HwgenError("H405", "no room", found="2 entries", allowed="1 entry")

    compiling(refusing)
    report = chip_campaign(3, 0)
    assert report.tally.refused["H405"] == 3 - report.tally.count("unread") > 0
    assert not report.ok


def test_a_blind_checker_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    draw = next(d for d in map(draw_of, range(300)) if d.mutant is not None and check(d).caught)

    def nothing(*_: object) -> str:
        return ""

    monkeypatch.setattr(edits, "catch", nothing)
    outcome = check(draw)
    assert outcome.verdict == "wrong"
    assert "is found by no check" in outcome.message


def test_only_kernels_of_several_phases_may_wait_too_often(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from hwgen.polyhedral.phases import split_phases
    from tests import redundancy

    def surplus(*_: object) -> None:
        raise HwgenError(chip_examine.SURPLUS, "synchronisation that orders nothing")

    single, several = (
        next(
            d
            for d in map(draw_of, range(start, 80))
            if (len(split_phases(parse_workload(parse_data(d.workload)))) > 1) == many
            and check(d).verdict == "equal"
        )
        for many, start in ((False, 0), (True, 35))
    )
    monkeypatch.setattr(redundancy, "check_minimal", surplus)
    assert check(single).verdict == "wrong"
    assert check(several).surplus


# The command


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["chips", "4", "--seed", "0", "--jobs", "1", "-o", str(tmp_path / "f")]
    assert fuzz(arguments) == 0
    shown = capsys.readouterr().out
    assert "invented chips, seed 0: 4 drawn, each with a workload" in shown
    assert "\nran, equal to the reference " in shown
    assert "\nwrong " in shown
    assert not (tmp_path / "f").exists()


def test_the_command_writes_failures_and_exits_with_one(
    compiling: Callable[[Compile], None],
    quick: None,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    del quick
    compiling(without_a_load)
    arguments = ["chips", "2", "--seed", "0", "--jobs", "1", "-o", str(tmp_path)]
    assert fuzz(arguments) == 1
    shown = capsys.readouterr().out
    files = sorted(p.name for p in tmp_path.iterdir())
    assert files
    assert all(name in shown for name in files)


def test_a_mutation_of_tokens_leaves_the_calls_as_they_are() -> None:
    """In this draw a condition decides on calls and on their tokens at once."""
    draw = draw_of(3281)
    chip, workload = draw.data
    hardware = parse_hardware(chip)
    program = compile_ranked(parse_workload(workload), hardware, draw.rank).program

    def executed(program: Program) -> list[tuple[int, tuple[int, ...]]]:
        return [(e.call.site, e.addresses) for e in walk(program) if isinstance(e, CallEvent)]

    assert any(_decides_on_both(n) for n in all_nodes(program.body))
    mutants = [
        mutant
        for mutation in synchronisation_mutations(hardware)
        for seed in range(4)
        if (mutant := mutation.mutate(program, seed)) is not None
    ]
    assert len(mutants) >= 12
    assert all(executed(m) == executed(program) for m in mutants)


def _decides_on_both(node: Node) -> bool:
    inside = list(all_nodes(node.then)) if isinstance(node, If) else []
    return all(any(isinstance(n, kind) for n in inside) for kind in (Call, Push | Pop))
