"""The page: complete, self-contained, small and the same every time."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import cache
from html.parser import HTMLParser
from pathlib import Path

import pytest

from hwgen.model.arithmetic import arithmetic
from hwgen.passes.account import Account
from hwgen.passes.kernel import Kernel
from hwgen.passes.nest_pipeline import compile_nest
from hwgen.pipeline import compile_kernel
from hwgen.report.highlight import highlighted
from hwgen.report.html import DRAWN_CALLS, embedded, page
from hwgen.spec.load import load_hardware, load_workload
from tests.samples import chip, gemm_requant_workload, gemm_workload
from tests.sampling import QUICK

REFERENCES = ("src", "href", "action", "data", "poster", "srcset", "formaction", "xlink:href")


class Elements(HTMLParser):
    """Elements with their attributes, text outside scripts and styles, and script texts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.text = ""
        self.scripts: list[str] = []
        self._inside = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {k: v or "" for k, v in attrs}))
        if tag in ("script", "style"):
            self._inside = tag
            self.scripts.append("")

    def handle_endtag(self, tag: str) -> None:
        if tag == self._inside:
            self._inside = ""

    def handle_data(self, data: str) -> None:
        if self._inside:
            self.scripts[-1] += data
        else:
            self.text += data


@cache
def compiled() -> Kernel:
    return compile_kernel(gemm_requant_workload(32, 64, 64), chip(), options=QUICK)


@cache
def small() -> str:
    return page(compiled())


@cache
def nest() -> Kernel:
    root = Path(__file__).resolve().parents[3]
    workload = load_workload(root / "workloads" / "gemm_requant.yaml", {"M": 64})
    return compile_nest(workload, load_hardware(root / "hw_specs" / "cpu_generic.yaml"))


@cache
def of_processor() -> str:
    return page(nest())


@pytest.mark.parametrize("made", [small, of_processor])
def test_the_page_refers_to_nothing_outside_itself(made: Callable[[], str]) -> None:
    elements = Elements(made()).elements
    found = [v for _, attributes in elements for k, v in attributes.items() if k in REFERENCES]
    assert found
    assert all(v.startswith(("#", "data:")) for v in found), found
    assert not [tag for tag, _ in elements if tag in ("iframe", "object", "embed", "base", "form")]
    style = re.findall(r"<style>(.*?)</style>", made(), re.DOTALL)
    assert len(style) == 1
    assert "url(" not in style[0]
    assert "@import" not in style[0]


@pytest.mark.parametrize("made", [small, of_processor])
def test_the_page_forbids_requests(made: Callable[[], str]) -> None:
    policies = [a for _, a in Elements(made()).elements if "http-equiv" in a]
    assert [p["http-equiv"] for p in policies] == ["Content-Security-Policy"]
    rules = dict(rule.strip().split(" ", 1) for rule in policies[0]["content"].split(";"))
    assert rules["default-src"] == rules["form-action"] == rules["base-uri"] == "'none'"
    assert "http" not in policies[0]["content"]
    assert "unsafe-eval" not in policies[0]["content"]


def test_a_reference_to_the_network_would_be_found() -> None:
    elements = Elements('<script src="https://cdn.example/x.js"></script>').elements
    assert elements == [("script", {"src": "https://cdn.example/x.js"})]


def test_the_headline_has_cycles_bound_ratio_utilisation_and_bytes() -> None:
    from hwgen.report.text import measure

    m = measure(compiled())
    text = Elements(small()).text
    busiest = max(u.busy for u in m.timing.units) / m.timing.cycles
    for shown in (
        f"{m.timing.cycles:,}",
        f"{m.bound.cycles:,}",
        f"{m.ratio:.3f}",
        f"{busiest:.1%}",
        f"{m.off_chip_bytes:,}",
        f"set by {m.bound.resource}",
    ):
        assert shown in text


def test_every_section_and_figure_is_there() -> None:
    found = Elements(small())
    ids = [a["id"] for _, a in found.elements if "id" in a]
    assert len(ids) == len(set(ids))
    for section in ("timeline", "memory", "roofline", "traffic", "loops", "explain"):
        assert f"section-{section}" in ids
    data = json.loads(found.scripts[ids_of_scripts(found).index("figures")])
    assert set(data) <= set(ids)
    assert str(compiled().program) in found.text
    for e in compiled().explanations:
        assert (e.binding or e.reason).replace("`", "") in found.text
        assert e.binding or e.repair.replace("`", "") in found.text
    assert "`" not in found.text
    assert "<code>+=</code>" in small()


def ids_of_scripts(found: Elements) -> list[str]:
    return [a.get("id", "") for tag, a in found.elements if tag in ("script", "style")]


def test_the_same_kernel_gives_the_same_bytes() -> None:
    again = compile_kernel(gemm_requant_workload(32, 64, 64), chip(), options=QUICK)
    assert page(again) == small()


def test_a_short_kernel_is_drawn_whole_without_a_note() -> None:
    assert compiled().timing.operations <= DRAWN_CALLS
    assert 'id="cap"' not in small()
    assert "not drawn one by one" not in small()


def test_a_kernel_of_phases_shows_the_statements_of_each() -> None:
    c = compiled()
    other = compile_kernel(gemm_workload(2, 20, 40), chip(), options=QUICK)
    phases = Account.of_phases(c.start, c.cycles, (c, other), ())
    shown = Elements(page(c.with_account(phases))).text
    for phase in (c, other):
        assert all(str(s) in shown for s in phase.scop.statements)
    work = arithmetic(c.scop.statements) + arithmetic(other.scop.statements)
    assert f"{work:,} arithmetic operations" in shown


def test_a_long_kernel_says_what_is_drawn_and_stays_small() -> None:
    c = compile_kernel(gemm_workload(8192, 8192, 8192), chip(), options=QUICK)
    text = page(c)
    shown = Elements(text).text
    calls = c.timing.operations
    assert f"the first {DRAWN_CALLS:,} of {calls:,} calls" in shown
    assert f"The other {calls - DRAWN_CALLS:,} calls are aggregated" in shown
    # What is not plotly's own JavaScript.
    assert len(text) - len(small()) < 2_000_000
    assert len(text) < 4_000_000
    assert len(small()) < 1_500_000


def test_text_inside_scripts_and_programs_cannot_end_them() -> None:
    hostile = "</script><script>alert(1)</script>\u2028"
    text = embedded({"x": {"name": hostile}})
    assert "<" not in text
    assert "\u2028" not in text
    assert json.loads(text)["x"]["name"] == hostile
    assert highlighted("for i in 0..<4: </pre>") == (
        "<b>for</b> i <b>in</b> 0..&lt;4: &lt;/pre&gt;"
    )


def test_the_page_has_the_c_and_the_script_and_where_calls_are_in_them() -> None:
    found = Elements(small())
    assert compiled().source.c in found.text
    assert compiled().script in found.text
    places = json.loads(found.scripts[ids_of_scripts(found).index("places")])
    figures = json.loads(found.scripts[ids_of_scripts(found).index("figures")])
    bars = [p for t in figures["timeline"]["data"] for p in t["customdata"]]
    sites = {site for _, site, _ in bars} - {"-1"}
    assert sites
    assert sites <= places["c"].keys()
    assert {"gemm", "load_wgt"} <= places["script"].keys()


def test_the_page_of_a_processor_has_its_figures_text_and_blocks() -> None:
    c = nest()
    found = Elements(of_processor())
    assert page(c) == of_processor()
    assert c.source.c in found.text
    assert c.script in found.text
    for shown in (
        f"{c.cycles:,}",
        f"{c.bound.cycles:,}",
        f"{c.cost.memory_bytes:,}",
        str(c.account.report),
    ):
        assert shown in found.text
    figures = json.loads(found.scripts[ids_of_scripts(found).index("figures")])
    assert list(figures) == ["blocks", "bytes", "roofline"]
    ends: dict[str, float] = {}
    for trace in figures["blocks"]["data"]:
        for row, begin, length in zip(trace["y"], trace["base"], trace["x"], strict=True):
            ends[row] = begin + length
    assert set(ends) == {b.block for b in c.cost.blocks} | {"starts of parallel loops"}
    assert max(ends.values()) == pytest.approx(c.cycles, abs=1)
