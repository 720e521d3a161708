"""Results of explorations: sums, the front, sensitivity, the table, CSV and the page."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Sequence
from importlib import import_module

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hwgen.errors import Diagnostic
from hwgen.exploration.page import explore_page
from hwgen.exploration.points import Measure
from hwgen.exploration.results import (
    SHOWN,
    Results,
    Total,
    results_csv,
    results_record,
    results_text,
)
from hwgen.report.sweep import Point, pareto
from tests.unit.report.test_html import Elements

REFUSED = Diagnostic("H301", "no intrinsics compute <S0>", found="a & b")


def total(settings: dict[str, int], *cycles: int, area: float = 1.0) -> Total:
    """A chip with a problem of so many cycles each; none where that is 0."""
    chosen = tuple(settings.items())
    points = [
        Point(
            f"w{n}", chosen, (), c, c, 10 * c, None if c else REFUSED, 2.5 * c, area,
            (("0 conv", c), ("1 add", 0)) if c else (),
        )
        for n, c in enumerate(cycles)
    ]  # fmt: skip
    return Total(chosen, tuple(points))


def results(totals: Sequence[Total], *measures: Measure) -> Results:
    return Results("chip", measures or ("cycles", "area"), tuple(totals))


GRID = [
    total({"A": 1, "B": 1}, 100, 50, area=1.0),
    total({"A": 1, "B": 2}, 100, 50, area=4.0),
    total({"A": 2, "B": 1}, 40, 10, area=2.0),
    total({"A": 2, "B": 2}, 0, 10, area=8.0),
]


def test_values_are_sums_over_all_problems() -> None:
    every = results(GRID, "cycles", "traffic", "energy", "area")
    assert every.values(GRID[2]) == (50, 500, 125.0, 2.0)


def test_the_front_leaves_out_what_cannot_run_everything() -> None:
    assert results(GRID).front == (GRID[2], GRID[0])
    assert GRID[3].error == REFUSED


@given(st.lists(st.tuples(*[st.integers(0, 4)] * 3), max_size=14))
def test_pareto_is_what_nothing_beats(values: list[tuple[int, int, int]]) -> None:
    def beaten(v: tuple[int, int, int]) -> bool:
        return any(w != v and all(a <= b for a, b in zip(w, v, strict=True)) for w in values)

    assert list(pareto(values)) == [n for n, v in enumerate(values) if not beaten(v)]


def test_sensitivity_compares_chips_that_differ_in_one_parameter() -> None:
    found = {(e.name, e.measure): e for e in results(GRID).effects()}
    assert found["A", "cycles"].factor == pytest.approx(3.0)  # 150 and 50, where B is 1.
    assert found["B", "cycles"].factor == pytest.approx(1.0)
    assert found["B", "area"].factor == pytest.approx(4.0)
    assert found["A", "cycles"].least == ((1, 150), (2, 50))
    apart = results([GRID[1], GRID[2]]).effects()
    assert [e.factor for e in apart] == [None] * 4


def test_a_table_of_many_chips_is_that_of_the_front() -> None:
    many = [total({"A": n}, 100 + n, area=float(n)) for n in range(SHOWN + 1)]
    text = results_text(results(many))
    assert f"chip, {SHOWN + 1} chips, 1 on the front" in text
    rows = text.split("\n\n")[1].splitlines()[2:]
    assert [row.split()[0] for row in rows] == ["0"]
    few = results_text(results(many[:SHOWN]))
    assert len(few.split("\n\n")[1].splitlines()) == SHOWN + 2


def test_no_chip_at_all_has_a_report() -> None:
    none = results([total({"A": 1}, 0)])
    assert "chips without a kernel: H301 1" in results_text(none)
    assert "no intrinsics compute" in results_text(none)
    assert "0 have kernels for everything" in Elements(explore_page(none)).text


def test_csv_has_a_line_for_each_chip_and_problem() -> None:
    rows = list(csv.DictReader(io.StringIO(results_csv(results(GRID)))))
    assert len(rows) == 8
    assert [r["cycles"] for r in rows] == ["100", "50", "100", "50", "40", "10", "", "10"]
    assert [r["best"] for r in rows[:2]] == ["yes", "yes"]
    assert rows[6]["error"] == "H301"
    assert rows[0]["area_mm2"] == "1.0"


def test_the_record_is_plain_data() -> None:
    found = results_record(results(GRID))
    assert json.loads(json.dumps(found)) == found
    chips = found["chips"]
    assert isinstance(chips, list)
    assert len(chips) == 4


@pytest.mark.parametrize("measures", [("cycles",), ("cycles", "traffic", "energy", "area")])
def test_plotly_accepts_every_figure(measures: tuple[Measure, ...]) -> None:
    make: Callable[[object], object] = import_module("plotly.graph_objects").Figure
    page = Elements(explore_page(results(GRID, *measures)))
    figures = json.loads(next(s for s in page.scripts if s.startswith('{"front_0"')))
    planes = [name for name in figures if name.startswith("front_")]
    assert len(planes) == max(1, len(measures) - 1)
    for figure in figures.values():
        make(figure)
    drawn = sum(len(t["x"]) for t in figures["front_0"]["data"])
    assert drawn == 3
    assert len(figures["chips"]["data"]) == 3 + 1  # The last one marks the chip that is clicked.
    (layers,) = (f for name, f in figures.items() if name == "layers")
    assert layers["data"][0]["x"] == [40, 0, 10, 0]


def test_the_page_is_the_same_each_time_and_escapes_what_it_shows() -> None:
    made = explore_page(results(GRID))
    assert made == explore_page(results(GRID))
    page = Elements(made)
    assert "no intrinsics compute <S0>" in page.text
    assert not [v for _, a in page.elements for k, v in a.items() if k == "src"]


def test_chips_past_the_table_are_counted() -> None:
    many = [total({"A": n}, 100 + n) for n in range(510)]
    assert "10 chips are not in this table" in Elements(explore_page(results(many))).text
