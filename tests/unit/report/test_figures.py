"""Figures against plotly's own schema, and against what they show."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import cast

import pytest

from hwgen.model.arithmetic import arithmetic
from hwgen.passes.kernel import Kernel
from hwgen.pipeline import compile_kernel
from hwgen.report.figures import Figure, Json, breakdown, colours, timeline
from hwgen.report.figures_roofline import Roofline, roofline, roofline_figure
from hwgen.report.html import figures_of
from hwgen.report.recording import record
from hwgen.report.text import measure
from tests.samples import chip, gemm_requant_workload, gemm_workload
from tests.sampling import QUICK

WORKLOADS = (
    gemm_workload(2, 20, 40),
    gemm_requant_workload(32, 64, 64),
    gemm_workload(512, 512, 512),
)


@cache
def compiled(number: int) -> Kernel:
    return compile_kernel(WORKLOADS[number], chip(), options=QUICK)


def traces(figure: Figure) -> list[dict[str, Json]]:
    return cast("list[dict[str, Json]]", figure["data"])


def values(trace: dict[str, Json], key: str) -> list[int]:
    return cast("list[int]", trace[key])


@pytest.mark.parametrize("number", range(len(WORKLOADS)))
@pytest.mark.parametrize("drawn", [5, 2000])
def test_plotly_accepts_every_figure(number: int, drawn: int) -> None:
    # The package is untyped; its constructor checks the name and value of every property.
    make: Callable[[Figure], object] = import_module("plotly.graph_objects").Figure
    found = figures_of(compiled(number), drawn)
    assert list(found) == ["timeline", "breakdown", "memory", "roofline", "tensors", "memories"]
    for figure in found.values():
        make(figure)
        # All that the bundle of the package draws.
        assert all(t["type"] in ("bar", "scatter") for t in traces(figure))


def test_a_memory_is_drawn_whole() -> None:
    c = compiled(0)
    layout = cast("dict[str, dict[str, Json]]", figures_of(c)["memory"]["layout"])
    ends = [axis["range"] for name, axis in layout.items() if name.startswith("yaxis")]
    used = {b.memory for b in c.program.buffers}
    memories = [m for m in c.hardware.memories if m.name in used]
    assert ends == [[0, m.capacity_entries] for m in memories]
    free = [trace for trace in traces(figures_of(c)["memory"]) if trace["name"] == "free"]
    assert [values(trace, "y") for trace in free] == [[m.capacity_entries] for m in memories]
    assert all(values(trace, "width") == [c.cycles] for trace in free)
    # A share of each by itself: buffers that share entries count once.
    notes = cast("list[dict[str, str]]", layout["annotations"])
    for memory, note in zip(memories, notes, strict=True):
        held = [range(b.base, b.end) for b in c.program.buffers if b.memory == memory.name]
        used = len({entry for entries in held for entry in entries})
        share = f"{used:,} of {memory.capacity_entries:,} entries used"
        assert note["text"].startswith(f"<b>{memory.name}</b>  {share}")


def test_a_memory_without_a_drawn_call_is_shown_free() -> None:
    drawn = traces(figures_of(compiled(2), 1)["memory"])
    used = {b.memory for b in compiled(2).program.buffers}
    assert sum(trace["name"] == "free" for trace in drawn) == len(used) > 1
    assert len(drawn) < 2 * len(used)


def test_plotly_refuses_a_figure_with_a_misspelt_property() -> None:
    make: Callable[[Figure], object] = import_module("plotly.graph_objects").Figure
    figure = figures_of(compiled(0))["timeline"]
    with pytest.raises(ValueError, match="hovertemplat"):
        make({**figure, "data": [{**traces(figure)[0], "hovertemplat": "x"}]})


def test_the_timeline_has_a_bar_per_call() -> None:
    c = compiled(1)
    recording = record(c.program, c.hardware, c.timing, 2000)
    bars = [
        (unit, base, base + length)
        for trace in traces(timeline(recording, c.hardware))
        for unit, base, length in zip(
            cast("list[str]", trace["y"]), values(trace, "base"), values(trace, "x"), strict=True
        )
    ]
    assert sorted(bars) == sorted((x.unit, x.start, x.end) for x in recording.calls)
    assert len(bars) == c.timing.operations


def test_what_is_not_drawn_is_one_bar_per_unit_that_adds_up() -> None:
    c = compiled(2)
    recording = record(c.program, c.hardware, c.timing, 20)
    *drawn, rest = traces(timeline(recording, c.hardware))
    assert sum(len(values(t, "x")) for t in drawn) == 20
    assert rest["meta"] == "rest"
    assert rest["y"] == [u.unit for u in c.timing.units]
    ends = [b + x for b, x in zip(values(rest, "base"), values(rest, "x"), strict=True)]
    assert ends == [c.cycles] * len(ends)
    hover = " ".join(cast("list[str]", rest["customdata"]))
    for unit in c.timing.units:
        assert f"{unit.busy - recording.busy[unit.unit]:,} more cycles" in hover


@pytest.mark.parametrize("number", range(len(WORKLOADS)))
def test_the_cycles_of_each_unit_add_up_to_all(number: int) -> None:
    timing = compiled(number).timing
    for row in range(len(timing.units)):
        shown = [values(t, "customdata")[row] for t in traces(breakdown(timing))]
        assert sum(shown) == timing.cycles


def line_of(c: Kernel) -> Roofline:
    m = measure(c)
    loaded, stored = sum(t.loaded for t in m.traffic), sum(t.stored for t in m.traffic)
    work = arithmetic(c.scop.statements)
    return roofline(work, loaded, stored, m.timing.cycles, m.bound, c.hardware)


@pytest.mark.parametrize("number", range(len(WORKLOADS)))
def test_no_kernel_is_above_its_roof_or_its_bound(number: int) -> None:
    line = line_of(compiled(number))
    assert 0 < line.achieved <= line.bound
    assert line.achieved <= line.roof(line.intensity)
    assert line.compute >= line.bound or line.compute == pytest.approx(line.bound)


def test_a_kernel_that_computes_most_of_the_time_is_near_the_compute_roof() -> None:
    c = compiled(2)
    line = line_of(c)
    assert line.unit == measure(c).bound.resource.removeprefix("unit ")
    assert line.roof(line.intensity) == line.compute == pytest.approx(line.achieved, rel=0.1)
    ridge = line.compute / line.bytes_per_cycle
    assert line.roof(ridge / 2) == pytest.approx(line.compute / 2)
    kernel = traces(roofline_figure(line))[-1]
    assert (kernel["x"], kernel["y"]) == ([line.intensity], [line.achieved])


def test_colours_do_not_depend_on_repetition() -> None:
    assert colours(["a", "b", "a"]) == colours(["a", "b"])
    assert len(set(colours("abcdefghij").values())) == 10
