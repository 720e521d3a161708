"""How the page looks: at both widths and in both themes no text covers another or sticks out, all
of it can be read, and a bar that is clicked shows its lines.

Skipped where there is no Chromium, unless HWGEN_REQUIRE_BROWSER is set, as in CI.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest
from playwright.sync_api import BrowserContext

from hwgen.passes.kernel import Kernel
from hwgen.passes.nest_pipeline import compile_nest
from hwgen.pipeline import compile_kernel
from hwgen.report.html import page
from hwgen.report.source_lines import Source, c_source, nest_source, script_source
from hwgen.spec.load import load_hardware, load_workload
from tests.browser.chromium import Shown, chromium
from tests.samples import chip, gemm_requant_workload
from tests.sampling import QUICK

ROOT = Path(__file__).resolve().parents[2]
WIDTHS = (1280, 400)
THEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")

CLICKS = 3
"""On a busy machine two clicks of two bars can reach the page as one double-click."""

LOOKS = (Path(__file__).parent / "looks.js").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrowserContext]:
    """Chromium with a profile of its own."""
    with chromium(tmp_path_factory.mktemp("profile")) as context:
        yield context


@pytest.fixture(scope="module")
def kernel() -> Kernel:
    """Many intrinsics, three memories."""
    return compile_kernel(gemm_requant_workload(32, 64, 64), chip(), options=QUICK)


@pytest.fixture(scope="module")
def nest() -> Kernel:
    """Blocks limited by arithmetic and by the memory, and starts of parallel loops."""
    workload = load_workload(ROOT / "workloads" / "gemm_requant.yaml")
    return compile_nest(workload, load_hardware(ROOT / "hw_specs" / "cpu_generic.yaml"))


@pytest.fixture(scope="module")
def banked() -> Kernel:
    """A memory of two banks."""
    workload = load_workload(ROOT / "workloads" / "matmul.yaml", {"M": 64, "N": 64, "K": 128})
    return compile_kernel(
        workload, load_hardware(ROOT / "hw_specs" / "vtcm_two_banks.yaml"), options=QUICK
    )


@pytest.fixture(scope="module", params=["units", "banks", "processor"])
def shown(
    request: pytest.FixtureRequest,
    browser: BrowserContext,
    kernel: Kernel,
    banked: Kernel,
    nest: Kernel,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Shown]:
    """A page of each kind."""
    texts = {
        "units": lambda: page(kernel),
        "banks": lambda: page(banked),
        "processor": lambda: page(nest),
    }
    file = tmp_path_factory.mktemp("page") / "page.html"
    found = Shown(browser, texts[request.param](), file)
    found.view.evaluate(LOOKS)
    yield found
    found.view.close()


def resize(shown: Shown, width: int, theme: Literal["light", "dark"]) -> None:
    """The page in a window of this width and with this theme, once every figure has followed."""
    shown.view.emulate_media(color_scheme=theme)
    shown.view.set_viewport_size({"width": width, "height": 900})
    shown.until(f"document.documentElement.dataset.theme === '{theme}'")
    shown.until(
        "[...document.querySelectorAll('.figure')].every(f => "
        "Math.abs(f.querySelector('.main-svg').getBoundingClientRect().width - f.clientWidth) < 2)"
    )


def settled(shown: Shown, expression: str) -> list[str]:
    """What is wrong once the figures have been drawn again, which takes a moment."""
    found: list[str] = []
    for _ in range(60):
        found = shown.view.evaluate(expression)
        if not found:
            return found
        shown.view.wait_for_timeout(50)
    return found


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("width", WIDTHS)
def test_texts_are_apart_inside_the_window_and_can_be_read(
    shown: Shown, width: int, theme: Literal["light", "dark"]
) -> None:
    resize(shown, width, theme)
    shown.until(f"document.documentElement.scrollWidth <= {width}")
    assert settled(shown, "looks.overlaps()") == []
    assert settled(shown, "looks.outside()") == []
    assert settled(shown, "looks.pale()") == []
    assert shown.messages == []


def test_what_overlaps_sticks_out_or_is_too_pale_would_be_found(shown: Shown) -> None:
    view = shown.view
    resize(shown, 400, "light")
    view.evaluate(
        "document.body.insertAdjacentHTML('beforeend', '<div id=planted>"
        '<p style="position: absolute; top: 10px; left: 20px; color: #ccc">planted one</p>'
        '<p style="position: absolute; top: 12px; left: 380px; width: 90px">planted two</p>'
        '<p style="position: absolute; top: 14px; left: 30px">planted three</p></div>\')'
    )
    assert any("planted one | planted three" in text for text in view.evaluate("looks.overlaps()"))
    assert "planted two" in view.evaluate("looks.outside()")
    assert any(text.startswith("planted one") for text in view.evaluate("looks.pale()"))
    assert view.evaluate("document.documentElement.scrollWidth") > 400
    view.evaluate("document.getElementById('planted').remove()")


def test_the_button_changes_the_theme_and_keeps_what_is_zoomed(shown: Shown) -> None:
    resize(shown, 1280, "light")
    figure = "timeline" if shown.view.locator("#timeline").count() else "blocks"
    shown.view.evaluate(f"Plotly.relayout('{figure}', {{'xaxis.range': [10, 20]}})")
    back = "getComputedStyle(document.body).backgroundColor"
    before = shown.view.evaluate(back)
    shown.view.locator("#theme").click()
    shown.until(f"{back} !== '{before}'")
    assert shown.number(f"document.getElementById('{figure}').layout.xaxis.range[1]") == 20
    shown.view.locator("#theme").click()
    shown.until(f"{back} === '{before}'")
    shown.view.evaluate(f"Plotly.relayout('{figure}', {{'xaxis.autorange': true}})")


def test_a_name_of_the_legend_hides_its_bars(shown: Shown) -> None:
    resize(shown, 1280, "light")
    figure = "timeline" if shown.view.locator("#timeline").count() else "blocks"
    bars = f"document.querySelectorAll('#{figure} .bars .point').length"
    before = int(shown.number(bars))
    button = shown.view.locator(f".legend[data-of={figure}] button").first
    button.click()
    shown.until(f"{bars} < {before}")
    assert button.get_attribute("aria-pressed") == "false"
    shown.view.locator("#theme").click()  # What is hidden stays so.
    shown.until("document.documentElement.dataset.theme === 'dark'")
    assert int(shown.number(bars)) < before
    shown.view.locator("#theme").click()
    shown.view.locator(f".legend[data-of={figure}] button").first.click()
    shown.until(f"{bars} === {before}")


def clicked(shown: Shown, figure: str, point: int, trace: int) -> None:
    """Click the middle of a bar."""
    shown.view.wait_for_timeout(350)  # Sooner, it is a double-click to plotly.
    group = shown.view.locator(f"#{figure} .trace.bars").nth(trace)
    box = group.locator(".point").nth(point).bounding_box()
    assert box is not None
    shown.view.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)


def marked(shown: Shown, text: str) -> list[int]:
    """Numbers of the lines that are marked in a text."""
    return shown.view.evaluate(
        f"[...document.querySelectorAll('pre[data-text={text}] span')]"
        ".map((e, n) => e.classList.contains('on') ? n + 1 : 0).filter(n => n)"
    )


def becomes(shown: Shown, text: str, wanted: list[int]) -> bool:
    """Whether these lines get marked within two seconds."""
    for _ in range(40):
        if marked(shown, text) == wanted:
            return True
        shown.view.wait_for_timeout(50)
    return False


def check_lines(shown: Shown, figure: str, sources: dict[str, Source]) -> None:
    """Every kind of bar marks the lines that `sources` has for it."""
    traces: list[list[list[str]]] = shown.view.evaluate(
        f"document.getElementById('{figure}').data.map(t => t.customdata)"
    )
    found = 0
    for number, points in enumerate(traces):
        _, in_c, in_script = points[0]
        if in_c == "-1" or not in_c:
            continue
        wanted = list(sources["c"].lines[in_c])
        for _ in range(CLICKS):
            clicked(shown, figure, 0, number)
            if becomes(shown, "c", wanted):
                break
        assert marked(shown, "c") == wanted
        assert marked(shown, "script") == list(sources["script"].lines.get(in_script, ()))
        visible = shown.view.evaluate(
            "(() => { const p = document.querySelector('pre[data-text=c]').getBoundingClientRect(),"
            " l = document.querySelector('pre[data-text=c] .on').getBoundingClientRect();"
            " return l.top >= p.top && l.bottom <= p.bottom; })()"
        )
        assert visible
        found += 1
    assert found > 1


def test_a_bar_that_is_clicked_marks_its_lines(
    browser: BrowserContext, kernel: Kernel, tmp_path: Path
) -> None:
    shown = Shown(browser, page(kernel), tmp_path / "page.html")
    resize(shown, 1280, "light")
    names = {n: n for n, _ in kernel.timing.calls}
    sources = {"c": c_source(kernel), "script": script_source(kernel.script, names)}
    lines = sources["c"].text.split("\n")
    assert shown.view.locator("pre[data-text=c]").text_content() == sources["c"].text
    check_lines(shown, "timeline", sources)
    last = lines[marked(shown, "c")[0] - 1].strip()
    assert last.endswith(";") or last.endswith("}")
    assert "cycles" in (shown.view.locator("#picked").text_content() or "")
    shown.view.get_by_role("button", name="script").click()
    assert shown.view.locator("pre[data-text=script]").is_visible()
    assert not shown.view.locator("pre[data-text=c]").is_visible()
    assert shown.messages == []
    shown.view.close()


def test_the_listing_opens_at_the_function_of_the_kernel(shown: Shown) -> None:
    """The line of its head is the first that can be seen, with the preamble above it."""
    line, above, seen = shown.view.evaluate(
        "(() => { const p = document.querySelector('pre[data-text=c]');"
        " const n = Number(p.dataset.opening), rows = p.firstElementChild.children;"
        " const top = p.getBoundingClientRect().top;"
        " const at = m => rows[m].getBoundingClientRect();"
        " return [rows[n - 1].textContent, at(n - 2).bottom - top, at(n - 1).top - top]; })()"
    )
    assert "(" in line
    assert above <= 4
    assert 0 <= seen <= 4


@pytest.mark.thorough
def test_a_block_that_is_clicked_marks_its_loop(
    browser: BrowserContext, nest: Kernel, tmp_path: Path
) -> None:
    shown = Shown(browser, page(nest), tmp_path / "page.html")
    resize(shown, 1280, "light")
    blocks = {b.block: b.block for b in nest.cost.blocks}
    sources = {"c": nest_source(nest), "script": script_source(nest.script, blocks)}
    check_lines(shown, "blocks", sources)
    assert shown.messages == []
    shown.view.close()
