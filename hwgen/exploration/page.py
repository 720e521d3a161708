"""The HTML page of an exploration: the front, all chips at once, layers, and what parameters do.

Figures are linked: a chip that is clicked in one is marked in the others and in the table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from markupsafe import Markup

from hwgen.exploration.points import Measure
from hwgen.exploration.results import UNITS, Results, Total
from hwgen.report.figures import (
    COLOURS,
    GREY,
    LIGHT,
    Figure,
    Json,
    axis,
    bars,
    colours,
    in_rows,
    layout,
)
from hwgen.report.html import Headline, Table, page_of

BEST, OTHERS = "on the front", "others"
DRAWN = 2000
"""Chips that figures draw at most: the front, then the first ones."""
ROWS = 500
"""Chips in the table at most."""
_ROW = 26
_MARGIN: Json = {"l": 96, "r": 96, "t": 16, "b": 56}
"""Titles of columns are wide."""
Kernels = Sequence[tuple[str, str]]
"""Names of a chip's kernels, and the addresses of their reports."""
_HOVER = "%{customdata[0]}<extra></extra>"


def explore_page(results: Results, kernels: Mapping[Total, Kernels] = {}) -> str:
    """The page; the same results give the same bytes. `kernels`: of chips, with their reports."""
    drawn = _drawn(results, DRAWN)
    planes = _planes(results.measures)
    figures = {f"front_{n}": _front(results, drawn, *pair) for n, pair in enumerate(planes)}
    if drawn:
        figures["chips"] = _parallel(results, drawn)
    if layers := _layers(results):
        figures["layers"] = layers
    effects = results.effects()
    if effects:
        figures["effects"] = _effects(results)
    rows = _drawn(results, ROWS)
    return page_of(
        "explore_page.html",
        figures,
        {"chips": {str(n): _places(results, t, planes, kernels.get(t, ())) for n, t in drawn}},
        name="chips compared",
        chip=results.chip,
        sizes="",
        statements=(),
        parameters="",
        headlines=_headlines(results),
        planes=[f"front_{n}" for n in range(len(planes))],
        measures=", ".join(UNITS[m] for m in results.measures),
        effects=bool(effects),
        layers=bool(layers),
        reports=bool(kernels),
        chips=_table(results, rows, kernels),
        numbers=[n for n, _ in rows],
        left_out=len(results.ran) - len(rows),
        refused=[(t.label, str(t.error)) for t in results.totals if t.error is not None][:ROWS],
    )


def _drawn(results: Results, most: int) -> list[tuple[int, Total]]:
    """Chips with their numbers: the front first, then the others that have kernels, by the first
    objective."""
    number = {t: n for n, t in enumerate(results.totals)}
    front = set(results.front)
    ran = sorted(results.ran, key=lambda t: (t not in front, results.values(t), number[t]))
    return [(number[t], t) for t in ran[:most]]


def _planes(measures: Sequence[Measure]) -> list[tuple[Measure, Measure]]:
    """Pairs of objectives: the first one upwards, each other one across."""
    return [(measures[0], m) for m in measures[1:]] or [(measures[0], measures[0])]


def _told(results: Results, total: Total) -> str:
    figures = (f"{total.value(m):,.6g} {UNITS[m]}" for m in results.measures)
    return "<br>".join((f"<b>{total.label}</b>", *figures))


def _front(
    results: Results, drawn: Sequence[tuple[int, Total]], up: Measure, across: Measure
) -> Figure:
    """Chips as points; those on the front of these two objectives' plane stand out."""
    best = set(results.front)
    traces: list[Json] = []
    for name, colour, of_front in ((OTHERS, COLOURS[0], False), (BEST, COLOURS[4], True)):
        mine = [(n, t) for n, t in drawn if (t in best) == of_front]
        if mine:
            traces.append(_dots(results, name, colour, mine, up, across))
    traces.append(_dots(results, "picked", COLOURS[1], (), up, across, size=15))
    kind = {"rangemode": "tozero", "tickformat": "~s"}
    axes = (axis(UNITS[m], **kind) for m in (across, up))
    return {"data": traces, "layout": layout(420, **dict(zip(("xaxis", "yaxis"), axes)))}  # noqa: B905


def _dots(
    results: Results,
    name: str,
    colour: str,
    chips: Sequence[tuple[int, Total]],
    up: Measure,
    across: Measure,
    size: int = 9,
) -> Json:
    return {
        "type": "scatter", "mode": "markers", "name": name,
        "x": [t.value(across) for _, t in chips], "y": [t.value(up) for _, t in chips],
        "customdata": [[_told(results, t), str(n)] for n, t in chips], "hovertemplate": _HOVER,
        "marker": {"color": colour, "size": size},
    }  # fmt: skip


def _columns(results: Results) -> list[tuple[str, Mapping[Total, float]]]:
    """Parameters in which the chips differ, then objectives."""
    names = dict.fromkeys(n for t in results.totals for n, _ in t.settings)
    of_chip = [(n, {t: float(dict(t.settings)[n]) for t in results.ran}) for n in names]
    varied = [column for column in of_chip if len(set(column[1].values())) > 1]
    return [*varied, *((UNITS[m], {t: t.value(m) for t in results.ran}) for m in results.measures)]


def _heights(results: Results, total: Total) -> list[Json]:
    """Where a chip's line crosses each column, from 0, its least value, to 1, its greatest."""
    found: list[Json] = []
    for _, value in _columns(results):
        low, high = min(value.values()), max(value.values())
        found.append((value[total] - low) / (high - low) if high > low else 0.5)
    return found


def _parallel(results: Results, drawn: Sequence[tuple[int, Total]]) -> Figure:
    """A line for each chip through its parameters and objectives."""
    best = set(results.front)
    titles = [
        f"{name}<br>{_short(min(v.values()))} to {_short(max(v.values()))}"
        for name, v in _columns(results)
    ]
    traces: list[Json] = []
    for number, total in reversed(drawn):  # The front last: it is drawn over the others.
        name, colour = (BEST, COLOURS[4]) if total in best else (OTHERS, GREY)
        told: Json = [[_told(results, total), str(number)]] * len(titles)
        traces.append(_line(name, colour, titles, _heights(results, total), told, 1))
    traces.append(_line("picked", COLOURS[1], [], [], [], 4))
    down = axis("least to greatest", range=[-0.05, 1.05], showticklabels=False, ticks="")
    across = axis("", type="category", gridcolor=LIGHT, tickformat="")
    return {"data": traces, "layout": layout(420, xaxis=across, yaxis=down, margin=_MARGIN)}


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 or value == int(value) else f"{value:.4g}"


def _line(name: str, colour: str, x: Json, y: Json, told: Json, width: int) -> Json:
    return {
        "type": "scatter", "mode": "lines", "name": name, "x": x, "y": y, "customdata": told,
        "hovertemplate": _HOVER, "line": {"color": colour, "width": width},
    }  # fmt: skip


def _layers(results: Results) -> Figure:
    """The cycles of each layer on the chips of the front."""
    front = results.front[: len(COLOURS)]
    of_networks = [p for t in front[:1] for p in t.points if p.layers]
    rows = [f"{p.workload} {label}" for p in of_networks for label, _ in p.layers]
    if not rows:
        return {}
    paint = colours([t.label for t in front])
    number = {t: n for n, t in enumerate(results.totals)}
    traces: list[Json] = []
    for total in front:
        cycles = [c for p in total.points for _, c in p.layers]
        told: list[Json] = [
            [f"<b>{row}</b><br>{total.label}<br>{c:,} cycles", str(number[total])]
            for row, c in zip(rows, cycles, strict=True)
        ]
        marker = {"color": paint[total.label]}
        traces.append(bars(total.label, rows, cycles, told, marker, "%{customdata[0]}", width=None))
    wide: dict[str, Json] = {"automargin": True}
    across = axis("cycles", rangemode="tozero")
    return in_rows(traces, rows, across, wide, _ROW + 6 * len(front), barmode="group")


def _effects(results: Results) -> Figure:
    """The factors by which parameters change the objectives."""
    effects = [e for e in results.effects() if e.factor is not None]
    paint = colours(UNITS[m] for m in results.measures)
    rows = list(dict.fromkeys(e.name for e in effects))
    traces: list[Json] = []
    for m in results.measures:
        mine = [e for e in effects if e.measure == m]
        lengths = [e.factor for e in mine]
        told = [f"<b>{e.name}</b><br>{UNITS[m]}: a factor of {e.factor:.3f}" for e in mine]
        names = [e.name for e in mine]
        traces.append(bars(UNITS[m], names, lengths, told, {"color": paint[UNITS[m]]}, width=None))
    across = axis("worst over best", tickformat=".3~g", rangemode="tozero")
    wide: dict[str, Json] = {"automargin": True}
    return in_rows(traces, rows, across, wide, barmode="group")


def _places(
    results: Results,
    total: Total,
    planes: Sequence[tuple[Measure, Measure]],
    kernels: Kernels,
) -> Json:
    """Where a chip lies in each figure that can mark it; its name, and its kernels' reports."""
    found: dict[str, Json] = {
        f"front_{n}": [[total.value(across)], [total.value(up)]]
        for n, (up, across) in enumerate(planes)
    }
    told: dict[str, Json] = {"name": total.label, "kernels": [list(k) for k in kernels]}
    return found | {"chips": [None, _heights(results, total)]} | told


def _headlines(results: Results) -> list[Headline]:
    ran, every = len(results.ran), len(results.totals)
    found = [
        Headline("Chips", f"{every:,}", f"{ran:,} have kernels for everything"),
        Headline("Front", f"{len(results.front):,}", "no other chip is better in all objectives"),
    ]
    return found + [_least(results, m) for m in results.measures if results.ran]


def _least(results: Results, measure: Measure) -> Headline:
    best = min(results.ran, key=lambda t: (t.value(measure), t.settings))
    return Headline(f"Least {UNITS[measure]}", f"{best.value(measure):,.6g}", best.label)


def _table(
    results: Results, rows: Sequence[tuple[int, Total]], kernels: Mapping[Total, Kernels]
) -> Table:
    names = list(dict.fromkeys(n for t in results.totals for n, _ in t.settings))
    columns = [*((n, True) for n in names), *((UNITS[m], True) for m in results.measures)]
    best = set(results.front)
    texts = [
        (*(str(dict(t.settings)[n]) for n in names),
         *(f"{v:,.6g}" if v < 1e6 else f"{v:,.0f}" for v in results.values(t)),
         "best" if t in best else "", _link(kernels.get(t, ())))
        for _, t in rows
    ]  # fmt: skip
    return Table((*columns, ("", False), ("", False)), tuple(texts))


def _link(kernels: Kernels) -> str:
    """The report of a chip's one kernel; the list beside the figures has those of several."""
    if len(kernels) != 1:
        return ""
    return Markup('<a href="{}">report</a>').format(kernels[0][1])
