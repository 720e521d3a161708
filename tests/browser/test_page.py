"""The page in a real browser: it loads without complaint, shows every call, and answers.

How it looks is in `test_layout.py`.

Skipped where there is no Chromium, unless HWGEN_REQUIRE_BROWSER is set, as in CI.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import BrowserContext, FloatRect

from hwgen.exploration.page import explore_page
from hwgen.exploration.results import Results, Total
from hwgen.network.compiled import compile_model
from hwgen.network.page import network_page
from hwgen.passes.kernel import Kernel
from hwgen.pipeline import compile_kernel
from hwgen.report.html import page
from hwgen.report.recording import record
from hwgen.report.sweep import Point
from hwgen.spec.load import load_hardware, load_workload
from tests.browser.chromium import Shown, chromium
from tests.models import WITH_READER, small_network
from tests.samples import chip, gemm_requant_workload, gemm_workload
from tests.sampling import QUICK, tiered

BARS = "#timeline .bars .point"


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrowserContext]:
    """Chromium with a profile of its own."""
    with chromium(tmp_path_factory.mktemp("profile")) as context:
        yield context


@pytest.fixture(scope="module")
def short() -> Kernel:
    """A kernel that is drawn whole."""
    return compile_kernel(gemm_requant_workload(32, 64, 64), chip(), options=QUICK)


@pytest.fixture(scope="module")
def long() -> Kernel:
    """A kernel with more calls than a page draws."""
    return compile_kernel(gemm_workload(2048, 2048, 2048), chip(), options=QUICK)


@pytest.fixture(scope="module")
def banked() -> Kernel:
    """A kernel whose factors lie in a memory of two banks."""
    root = Path(__file__).parents[2]
    workload = load_workload(root / "workloads" / "matmul.yaml", {"M": 64, "N": 64, "K": 128})
    return compile_kernel(
        workload, load_hardware(root / "hw_specs" / "vtcm_two_banks.yaml"), options=QUICK
    )


@pytest.fixture
def shown(browser: BrowserContext, short: Kernel, tmp_path: Path) -> Iterator[Shown]:
    found = Shown(browser, page(short), tmp_path / "short.html")
    yield found
    found.view.close()


@pytest.fixture
def shown_long(browser: BrowserContext, long: Kernel, tmp_path: Path) -> Iterator[Shown]:
    found = Shown(browser, page(long, 100), tmp_path / "long.html")
    yield found
    found.view.close()


@pytest.fixture
def shown_banked(browser: BrowserContext, banked: Kernel, tmp_path: Path) -> Iterator[Shown]:
    found = Shown(browser, page(banked), tmp_path / "banked.html")
    yield found
    found.view.close()


def test_the_page_loads_without_a_message_or_a_request(shown: Shown) -> None:
    assert shown.messages == []
    assert shown.requests == [shown.url]
    assert "gemm_requant" in shown.view.title()
    for figure in ("timeline", "breakdown", "memory", "roofline", "tensors", "memories"):
        assert shown.view.locator(f"#{figure} svg.main-svg").count() >= 1


@WITH_READER
def test_a_network_has_a_bar_per_layer_and_a_box_per_buffer(
    browser: BrowserContext, tmp_path: Path
) -> None:
    """In both themes, without a panel of C."""
    path = tmp_path / "small.tflite"
    path.write_bytes(small_network())
    net = compile_model(path, "cpu_generic")
    found = Shown(browser, network_page(net), tmp_path / "network.html")
    for _ in range(2):
        assert found.view.locator("#layers .bars .point").count() == len(net.layers)
        places = len(net.plan.arena.places)
        assert found.view.locator("#arena .bars .point").count() == places
        found.view.click("#theme")
    assert (found.messages, found.requests) == ([], [found.url])
    found.view.close()


def test_the_timeline_has_a_bar_per_simulated_call(shown: Shown, short: Kernel) -> None:
    assert shown.view.locator(BARS).count() == short.timing.operations
    widths: list[float] = shown.view.evaluate(
        f"[...document.querySelectorAll('{BARS} path')].map(e => e.getBBox().width)"
    )
    assert len(widths) == short.timing.operations
    assert all(width > 0 for width in widths)


def test_pointing_at_a_bar_says_what_the_call_is(shown: Shown, short: Kernel) -> None:
    c = short
    recording = record(c.program, c.hardware, c.timing, 2000)
    longest = max(recording.calls, key=lambda call: call.cycles)
    assert longest.touched
    boxes = [bar.bounding_box() for bar in shown.view.locator(BARS).all()]
    box = max((b for b in boxes if b is not None), key=lambda b: b["width"])
    shown.view.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    label = shown.view.locator("#timeline .hoverlayer .hovertext")
    label.wait_for()
    text = label.text_content() or ""
    for expected in (
        longest.name,
        longest.unit,
        f"site {longest.site}",
        f"{longest.start:,} to {longest.end:,}: {longest.cycles:,} cycles",
        *(str(touched) for touched in longest.touched),
    ):
        assert expected in text
    assert shown.messages == []


def test_a_long_kernel_is_cut_and_the_whole_can_be_shown(shown_long: Shown, long: Kernel) -> None:
    view = shown_long.view
    assert "the first 100 of" in (view.locator("#cap").text_content() or "")
    assert view.locator(BARS).count() == 100 + len(long.hardware.units)
    end = "document.getElementById('{}').layout.xaxis.range[1]"
    assert shown_long.number(end.format("timeline")) < long.cycles / 2
    view.get_by_role("button", name="whole kernel").click()
    # The memory map follows the timeline.
    shown_long.until(f"{end.format('memory')} === {long.cycles}")
    assert shown_long.number(end.format("timeline")) == long.cycles
    view.get_by_role("button", name="drawn calls").click()
    shown_long.until(f"{end.format('memory')} < {long.cycles / 2}")
    assert shown_long.messages == []


def shown_cycles(shown: Shown, figure: str) -> tuple[float, float]:
    """The cycles that a figure's axis runs over."""
    axis = f"document.getElementById('{figure}').layout.xaxis.range"
    return shown.number(f"{axis}[0]"), shown.number(f"{axis}[1]")


def plot_area(shown: Shown, figure: str) -> FloatRect:
    """Where a figure's bars are, scrolled into view."""
    area = shown.view.locator(f"#{figure} .nsewdrag").first
    area.scroll_into_view_if_needed()
    box = area.bounding_box()
    assert box is not None
    return box


def drag(shown: Shown, figure: str, start: float, end: float) -> None:
    """Drag over a part of a figure, from one fraction of its width to another."""
    box = plot_area(shown, figure)
    middle = box["y"] + box["height"] / 2
    shown.view.mouse.move(box["x"] + start * box["width"], middle)
    shown.view.mouse.down()
    shown.view.mouse.move(box["x"] + end * box["width"], middle, steps=8)
    shown.view.mouse.up()


@pytest.mark.parametrize("zoomed", tiered(["timeline", "banks", "memory"], ["banks"]))
def test_zooming_one_figure_of_cycles_zooms_the_others(shown_banked: Shown, zoomed: str) -> None:
    figures = ("timeline", "banks", "memory")
    before = {f: shown_cycles(shown_banked, f) for f in figures}
    assert len(set(before.values())) == 1
    low, high = before[zoomed]
    drag(shown_banked, zoomed, 0.25, 0.5)
    axis = "document.getElementById('{}').layout.xaxis.range"
    for figure in figures:
        shown_banked.until(f"{axis.format(figure)}[1] < {low + 0.6 * (high - low)}")
    after = {f: shown_cycles(shown_banked, f) for f in figures}
    assert len(set(after.values())) == 1
    start, end = after["banks"]
    width = high - low
    assert start == pytest.approx(low + 0.25 * width, abs=0.02 * width)
    assert end == pytest.approx(low + 0.5 * width, abs=0.02 * width)
    # Within 300 ms, Plotly counts the drag as one click of a double-click.
    shown_banked.view.wait_for_timeout(500)
    box = plot_area(shown_banked, zoomed)
    shown_banked.view.mouse.dblclick(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    for figure in figures:
        shown_banked.until(f"{axis.format(figure)}[1] === {high}")
    assert {f: shown_cycles(shown_banked, f) for f in figures} == before
    assert shown_banked.messages == []


def test_no_button_sends_the_figure_away(shown: Shown) -> None:
    titles: list[str] = shown.view.evaluate(
        "[...document.querySelectorAll('.modebar-btn')].map(e => e.dataset.title)"
    )
    assert set(titles) == {"Download plot as a PNG", "Zoom", "Pan", "Reset axes"}
    links: list[str] = shown.view.evaluate(
        "[...document.querySelectorAll('[href], [src]')]"
        ".map(e => e.getAttribute('href') || e.getAttribute('src'))"
    )
    assert all(link.startswith(("#", "data:")) for link in links)


def test_a_request_would_be_refused_and_noticed(shown: Shown) -> None:
    shown.view.evaluate(
        "new Promise(done => { const i = new Image(); i.onerror = done; i.onload = done;"
        " i.src = 'https://example.invalid/x.png'; })"
    )
    assert any("Content Security Policy" in message for message in shown.messages)


def test_a_chip_that_is_clicked_is_marked_everywhere(
    browser: BrowserContext, tmp_path: Path
) -> None:
    chips = [
        Total((("A", n),), (Point("gemm", (("A", n),), (), 100 // n, 1, 1, area=float(n)),))
        for n in (1, 2, 5)
    ]
    reports = {chips[2]: [("gemm", "chips_kernels/gemm_5.html"), ("add", "chips_kernels/add.html")]}
    made = explore_page(Results("chip", ("cycles", "area"), tuple(chips)), reports)
    found = Shown(browser, made, tmp_path / "chips.html")
    marks = {f: f"document.getElementById('{f}').data.at(-1)" for f in ("front_0", "chips")}
    assert [found.number(f"{mark}.y.length") for mark in marks.values()] == [0, 0]
    box = found.view.locator("#front_0 .points path").first.bounding_box()
    assert box is not None
    found.view.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    found.until("document.querySelectorAll('#table-chips tr.on').length === 1")
    assert found.view.locator("#table-chips tr.on td").first.text_content() == "5"
    assert found.number(f"{marks['front_0']}.y[0]") == 20
    assert found.number(f"{marks['chips']}.y.length") == 3
    links = found.view.locator("#chosen a")
    assert links.all_text_contents() == ["gemm", "add"]
    assert links.first.get_attribute("href") == "chips_kernels/gemm_5.html"
    assert not found.view.locator("#chosen p").is_visible()
    found.view.click("#theme")  # Figures are drawn anew.
    found.until(f"{marks['front_0']}.y[0] === 20")
    last = found.view.locator("#front_0 .points path").nth(2).bounding_box()
    assert last is not None
    found.view.mouse.click(last["x"] + last["width"] / 2, last["y"] + last["height"] / 2)
    found.until("document.querySelector('#chosen h3').textContent === 'A=1'")
    assert links.count() == 0  # It has no reports, and the page says how to get them.
    assert found.view.locator("#chosen p").is_visible()
    assert (found.messages, found.requests) == ([], [found.url])
    found.view.close()
