"""Several values of a `--set`: every combination, which of them are best, and the pictures."""

from __future__ import annotations

import json
import re
from itertools import product
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hwgen.cli import main
from hwgen.cli.axes import MAX_POINTS, expand
from hwgen.errors import HwgenError
from hwgen.report.sweep import Point, front, sweep_svg, sweep_text, terminal_plot

KERNEL = ["generate", "--spec", "vta", "--workload", "gemm", "--set", "N=32", "--set", "K=32"]
Text = pytest.CaptureFixture[str]


def point(cycles: int, moved: int, chip: int = 0, size: int = 1) -> Point:
    return Point("gemm", (("T", chip),), (("M", size),), cycles, 1, moved)


def test_every_combination_is_compiled_and_the_last_name_changes_fastest(capsys: Text) -> None:
    assert main([*KERNEL, "--set", "BATCH=1,2", "--set", "M=2,3,5", "--json"]) == 0
    points = json.loads(capsys.readouterr().out)["points"]
    assert [(p["set"]["BATCH"], p["set"]["M"]) for p in points] == list(product((1, 2), (2, 3, 5)))
    for p in points:
        settings = [f"--set={n}={v}" for n, v in p["set"].items()]
        assert main([*KERNEL, *settings, "--no-cache", "--json"]) == 0
        (kernel,) = json.loads(capsys.readouterr().out)["kernels"]
        assert p["cycles"] == kernel["cycles"]
        assert p["lower_bound_cycles"] == kernel["lower_bound_cycles"]
        assert p["off_chip_bytes"] == kernel["off_chip_bytes"]


def test_the_table_marks_the_best_and_lists_what_has_no_kernel(capsys: Text) -> None:
    assert main([*KERNEL, "--set", "M=4", "--set", "BATCH=1,2,99"]) == 0
    text = capsys.readouterr().out
    rows = [line.split() for line in text.splitlines() if line.startswith("gemm  ")]
    assert [row[1] for row in rows] == ["1", "2", "99"]
    assert "best" in {row[-1] for row in rows}
    assert rows[2][-1] == "H111"
    assert "gemm, BATCH=99: cannot run, [H111] parameter BATCH is out of range" in text


def test_a_chip_that_is_a_processor_is_swept_too(capsys: Text) -> None:
    command = ["generate", "--spec", "cpu_generic", "--workload", "gemm", "--set", "N=16"]
    assert main([*command, "--set", "M=1,8", "--json"]) == 0
    points = json.loads(capsys.readouterr().out)["points"]
    assert points[0]["cycles"] < points[1]["cycles"]


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9), st.integers(1, 2)), max_size=12))
def test_the_front_is_what_nothing_of_its_sizes_beats(drawn: list[tuple[int, int, int]]) -> None:
    points = [point(c, b, n, size) for n, (c, b, size) in enumerate(drawn)]
    best = front(points)
    for p in points:
        others = [q for q in points if q.sizes == p.sizes and q != p]
        beaten = any(
            q.cycles <= p.cycles
            and q.off_chip_bytes <= p.off_chip_bytes
            and (q.cycles, q.off_chip_bytes) != (p.cycles, p.off_chip_bytes)
            for q in others
        )
        assert (p in best) == (bool(others) and not beaten)


def test_the_terminal_picture_has_a_sign_where_each_point_lies() -> None:
    points = [point(100, 400, 1), point(200, 200, 2), point(400, 100, 3), point(400, 400, 4)]
    best = front(points)
    assert {p.parameters[0][1] for p in best} == {1, 2, 3}
    lines = terminal_plot("gemm", points, best).splitlines()
    body = [line.partition("|")[2] for line in lines if "|" in line]
    signs = {(x, y): c for y, row in enumerate(body) for x, c in enumerate(row) if c != " "}
    assert sorted(signs.values()) == ["*", "*", "*", "o"]
    places = {(x, y) for (x, y), c in signs.items() if c == "*"}
    left_to_right = [y for _, y in sorted(places)]
    assert left_to_right == sorted(left_to_right)  # Fewer cycles, so lower, for more bytes.
    assert lines[-1].split() == ["100", "400"]


def test_the_svg_is_well_formed_and_names_every_point() -> None:
    points = [point(100, 400, 1), point(90_000, 200, 2), Point("<&>", (), (("M", 3),), 5, 1, 7)]
    root = ElementTree.fromstring(sweep_svg("chip", points))
    space = "{http://www.w3.org/2000/svg}"
    told = [t.text for t in root.iter(f"{space}title")]
    assert sorted(told, key=str) == sorted(
        [
            "T=1, M=1: 100 cycles, 400 bytes",
            "T=2, M=1: 90,000 cycles, 200 bytes",
            "M=3: 5 cycles, 7 bytes",
        ]
    )
    texts = [t.text or "" for t in root.iter(f"{space}text")]
    assert any("cycles, logarithmic" in t for t in texts)
    assert any(t.startswith("<&>: ") for t in texts)


def test_the_picture_is_written(tmp_path: Path, capsys: Text) -> None:
    picture = tmp_path / "new" / "gemm.svg"
    assert main([*KERNEL, "--set", "M=1,2", "--plot", str(picture)]) == 0
    assert "wrote gemm.svg" in capsys.readouterr().out
    assert ElementTree.parse(picture).getroot().tag.endswith("svg")


def test_nothing_that_compiles_is_status_1(capsys: Text) -> None:
    assert main([*KERNEL, "--set", "BATCH=98,99"]) == 1
    assert len(re.findall("H111", capsys.readouterr().out)) == 4


@pytest.mark.parametrize(
    ("settings", "found"),
    [
        (["M=1,x"], "M=x"),
        (["M=1,,2"], "M="),
        (["M=1,1"], "M=1,1"),
        ([f"M={','.join(map(str, range(1, 99)))}", "N=1,2,3,4,5,6,7,8,9,10,11"], "1,078"),
    ],
)
def test_what_cannot_be_swept_is_refused(settings: list[str], found: str) -> None:
    with pytest.raises(HwgenError) as caught:
        expand(settings)
    assert caught.value.code == "H004"
    assert caught.value.diagnostic.found == found


def test_the_largest_sweep_is_taken() -> None:
    half = ",".join(map(str, range(32)))
    assert len(expand([f"M={half}", f"N={half}"])) == MAX_POINTS


@pytest.mark.parametrize(
    "option",
    [
        ["--stage", "emit"], ["-o", "x"], ["--report", "x"], ["--trace", "x"], ["--no-auto"],
        ["--script", "x"], ["--target", "firmware"], ["--plot", "x.png"],
    ],
)  # fmt: skip
def test_what_is_of_one_kernel_does_not_go_with_several(option: list[str], capsys: Text) -> None:
    assert main([*KERNEL, "--set", "M=1,2", *option]) == 2
    assert option[0].strip("-")[0] in capsys.readouterr().err


def test_a_picture_needs_several_values(capsys: Text) -> None:
    assert main([*KERNEL, "--plot", "x.svg"]) == 2
    assert "several values" in capsys.readouterr().err


def test_the_text_does_not_depend_on_the_order_of_equal_points() -> None:
    points = [point(5, 5, 1), point(5, 5, 2)]
    text = sweep_text("chip", points)
    assert text.count("best\n") == 2
