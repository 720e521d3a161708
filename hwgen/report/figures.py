"""The figures of a kernel's page, as plain data in the form that plotly.js draws.

Plain data because plotly's Python classes are untyped and slow to import; the tests validate every
figure against them. Times are cycles since the launch.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from hwgen.codegen.program import Program
from hwgen.model.timing import TimingResult
from hwgen.report.movement import MemoryTraffic
from hwgen.report.recording import RecordedCall, Recording, SlotUse
from hwgen.spec.hardware import HardwareSpec
from hwgen.spec.memory import Memory

Json = str | int | float | bool | None | Sequence["Json"] | Mapping[str, "Json"]
Figure = dict[str, Json]

COLOURS = (
    "#2f6db5", "#e08214", "#3a923a", "#8c5fb8", "#c44e52",
    "#17939b", "#a6761d", "#d6619f", "#5b7083", "#8aa329",
    "#4ba3f0", "#f2a7b5", "#2e7d68", "#6f4e37",
)  # fmt: skip
GREY, LIGHT, TEXT, LINE = "#9aa5b1", "#e4e8ed", "#1f2933", "#d5dbe1"
FONT = "Inter, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"
ROW = 46
"""Height in pixels of one bar's row."""
SEPARATED = 100
"""Bars of one name up to which lines part neighbours; lines between more would hide them."""


def colours(names: Iterable[str]) -> dict[str, str]:
    """A colour for each name, in their order."""
    return {n: COLOURS[i % len(COLOURS)] for i, n in enumerate(dict.fromkeys(names))}


def layout(height: int, **changes: Json) -> dict[str, Json]:
    """What all figures share."""
    shared: dict[str, Json] = {
        "height": height,
        "margin": {"l": 96, "r": 24, "t": 16, "b": 48},
        "font": {"family": FONT, "size": 13, "color": TEXT},
        # The page's own background shows through, in either of its themes.
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "hoverlabel": {
            "align": "left",
            "bgcolor": "#ffffff",
            "bordercolor": LINE,
            "font": {"family": FONT, "size": 12, "color": TEXT},
        },
        "hovermode": "closest",
        "barmode": "overlay",
        # The page writes legends itself, above the figure: these wrap, and cover nothing.
        "showlegend": False,
        "modebar": {"bgcolor": "rgba(0,0,0,0)", "color": GREY, "activecolor": "#52606d"},
    }
    return shared | changes


def axis(title: str, **changes: Json) -> dict[str, Json]:
    """An axis with thin lines; its numbers have thousands separated."""
    shared: dict[str, Json] = {
        "title": {"text": title, "font": {"size": 12, "color": "#52606d"}},
        "gridcolor": LIGHT,
        "linecolor": LINE,
        "zeroline": False,
        "ticks": "outside",
        "tickcolor": LINE,
        "separatethousands": True,
        "tickformat": ",d",
    }
    return shared | changes


def bars(
    name: str,
    rows: Sequence[str],
    lengths: Sequence[Json],
    told: Sequence[Json],
    marker: Json,
    hover: str = "%{customdata}",
    **more: Json,
) -> dict[str, Json]:
    """Bars to the right in the rows that have a name. `told`: of each bar, what `hover` shows."""
    shared: dict[str, Json] = {
        "type": "bar",
        "orientation": "h",
        "name": name,
        "y": rows,
        "x": lengths,
        "width": 0.72,
        "customdata": told,
        "hovertemplate": f"{hover}<extra></extra>",
        "marker": marker,
    }
    return shared | more


def in_rows(
    traces: list[Json],
    rows: Sequence[str],
    across: Json,
    down: Mapping[str, Json] | None = None,
    row: int = ROW,
    **changes: Json,
) -> Figure:
    """Bars in rows from the top down; `down`: what else their axis has; `row`: pixels of each."""
    names = axis(
        "",
        type="category",
        categoryorder="array",
        categoryarray=rows[::-1],
        range=[-0.5, len(rows) - 0.5],
        fixedrange=True,
        ticks="",
        **(down or {}),
    )
    height = 84 + row * max(1, len(rows))
    return {"data": traces, "layout": layout(height, xaxis=across, yaxis=names, **changes)}


def since_launch(recording: Recording) -> Json:
    """The axis of the cycles that are shown at first."""
    return axis("cycles since the launch", range=[0, recording.shown], rangemode="nonnegative")


def striped(colour: str, background: str, pale: str) -> Json:
    """The marker of bars that stand for what is not shown, or for waiting."""
    pattern = {"shape": "/", "fgcolor": pale, "bgcolor": background, "size": 6}
    return {"color": colour, "pattern": pattern}


def _pixels(rows: int, base: int = 84) -> int:
    return base + ROW * max(1, rows)


def units_of(recording: Recording, hardware: HardwareSpec) -> list[str]:
    """The chip's units, and the processor beside them where it runs a part."""
    timed = (u.unit for u in recording.timing.units)
    return list(dict.fromkeys((*(u.name for u in hardware.units), *timed)))


def timeline(recording: Recording, hardware: HardwareSpec) -> Figure:
    """One bar per recorded call, a row per unit; the rest of each unit as one bar."""
    by_name: dict[str, list[RecordedCall]] = {}
    for call in recording.calls:
        by_name.setdefault(call.name, []).append(call)
    paint = colours([*(n for n in _order(hardware) if n in by_name), *sorted(by_name)])
    traces: list[Json] = []
    for name in paint:
        mine = by_name[name]
        parting = 0.5 if len(mine) <= SEPARATED else 0
        traces.append(
            bars(
                name,
                [c.unit for c in mine],
                [c.cycles for c in mine],
                # What to say, and the keys of the call's lines in the C and in the script.
                [[_describe(c), str(c.site), c.name] for c in mine],
                {"color": paint[name], "line": {"color": "#ffffff", "width": parting}},
                "%{customdata[0]}",
                meta="calls",
                base=[c.start for c in mine],
            )
        )
    if not recording.complete:
        traces.append(_rest(recording, hardware))
    return in_rows(traces, units_of(recording, hardware), since_launch(recording))


def _order(hardware: HardwareSpec) -> list[str]:
    return [i.name for i in hardware.intrinsics]


def _describe(call: RecordedCall) -> str:
    lines = [f"<b>{call.name}</b> on {call.unit}"]
    if call.site >= 0:
        loops = ", ".join(f"{n} = {v}" for n, v in call.loops)
        lines.append(f"site {call.site}" + (f": {loops}" if loops else ""))
    lines.append(f"{call.start:,} to {call.end:,}: {call.cycles:,} cycles")
    if call.extents:
        lines.append("over " + " x ".join(f"{e:,}" for e in call.extents))
    if call.waited:
        lines.append(f"after {call.waited:,} cycles of waiting for {call.waited_for}")
    lines += [str(t) for t in call.touched]
    return "<br>".join(lines)


def _rest(recording: Recording, hardware: HardwareSpec) -> Json:
    """What is not drawn, as one pale bar per unit from the last drawn call to the kernel's end."""
    timing = recording.timing
    ends: dict[str, int] = {u.unit: 0 for u in timing.units}
    for call in recording.calls:
        ends[call.unit] = max(ends[call.unit], call.end)
    left = Counter(dict(timing.calls))
    left.subtract(recording.counts)
    homes = unit_of(hardware)
    rows: list[str] = []
    for unit in timing.units:
        names = [f"{n} {left[n]:,}" for n in sorted(left) if left[n] and homes.get(n) == unit.unit]
        rows.append(
            f"<b>{unit.unit}: not drawn</b><br>calls: {', '.join(names) or 'none'}<br>"
            f"busy for {unit.busy - recording.busy[unit.unit]:,} more cycles"
        )
    return bars(
        "not drawn one by one",
        [u.unit for u in timing.units],
        [timing.cycles - ends[u.unit] for u in timing.units],
        rows,
        striped(LIGHT, "#f5f7fa", GREY),
        meta="rest",
        base=[ends[u.unit] for u in timing.units],
    )


def unit_of(hardware: HardwareSpec) -> dict[str, str]:
    """The unit of everything that is executed by name; an empty operation has several."""
    homes = {i.name: i.unit for i in hardware.intrinsics}
    for intrinsic in hardware.intrinsics:
        if intrinsic.micro_kernel is not None:
            homes[intrinsic.micro_kernel.load_name] = intrinsic.unit
    if hardware.completion is not None:
        homes["finish"] = hardware.completion.unit
    return homes


def breakdown(timing: TimingResult) -> Figure:
    """Where the cycles of each unit went, over the whole kernel."""
    units = [u.unit for u in timing.units]
    parts: tuple[tuple[str, str, list[int]], ...] = (
        ("busy", COLOURS[0], [u.busy for u in timing.units]),
        ("waits for another unit", "#f2b35e", [u.tokens for u in timing.units]),
        ("bus shared", "#c44e52", [u.bus for u in timing.units]),
        ("fetch", "#8c5fb8", [u.fetch for u in timing.units]),
        ("queue full", "#17939b", [u.queue for u in timing.units]),
        ("banks taken", "#d6619f", [u.banks for u in timing.units]),
        (
            "idle",
            LIGHT,
            [
                # What the bus costs is part of the busy cycles of the reads that it slows down.
                max(0, timing.cycles - u.busy - u.tokens - u.fetch - u.queue - u.banks)
                for u in timing.units
            ],
        ),
    )
    slowed = parts[2][2]
    traces: list[Json] = []
    for name, colour, cycles in parts:
        if not any(cycles):
            continue
        shown = [c - s for c, s in zip(cycles, slowed, strict=True)] if name == "busy" else cycles
        shares = [100 * c / timing.cycles for c in shown]
        hover = "%{y}: " + name + " %{customdata:,d} cycles, %{x:.1f} %"
        traces.append(bars(name, units, shares, shown, {"color": colour}, hover, width=0.6))
    changes: dict[str, Json] = {
        "barmode": "stack",
        "xaxis": axis("share of the kernel's cycles, %", range=[0, 100], fixedrange=True),
        "yaxis": axis("", type="category", autorange="reversed", fixedrange=True, ticks=""),
    }
    return {"data": traces, "layout": layout(_pixels(len(units), 74), **changes)}


def memory_map(
    recording: Recording,
    uses: Sequence[SlotUse],
    program: Program,
    hardware: HardwareSpec,
    paint: Mapping[str, str],
) -> Figure:
    """Each memory with buffers over time, up to its capacity: free room pale, and a box per slot
    from its first fill to its last use."""
    memories = [m for m in hardware.memories if any(b.memory == m.name for b in program.buffers)]
    pixels = max(260, 150 * len(memories))
    gap = 0.09
    height = (1 - gap * (len(memories) - 1)) / max(1, len(memories))
    traces: list[Json] = []
    changes: dict[str, Json] = {}
    notes: list[Json] = []
    for row, memory in enumerate(memories):
        mine = [u for u in uses if u.memory == memory.name]
        suffix = str(row + 1) if row else ""
        top = 1 - row * (height + gap)
        bottom = max(0.0, top - height)
        axes: dict[str, Json] = {"xaxis": f"x{suffix}", "yaxis": f"y{suffix}", "offset": 0}
        share = memory_share(memory, program)
        traces.append(_free(memory, share, recording, axes))
        for tensor in sorted({u.tensor for u in mine}):
            of = [u for u in mine if u.tensor == tensor]
            # A line of its own colour keeps a box of a few entries visible in a large memory.
            thin = max(u.entries for u in of) * pixels * height < 3 * memory.capacity_entries
            parting = 1 if len(mine) <= SEPARATED else 0.5
            line: Json = {
                "color": paint[tensor] if thin else "#ffffff",
                "width": 2 if thin else parting,
            }
            lives = [
                (u.start, max(1, u.end - u.start), u.base, u.entries, _describe_use(u)) for u in of
            ]
            traces.append(boxes(tensor, lives, paint[tensor], line, legendgroup=tensor, **axes))
        last = row == len(memories) - 1
        changes[f"xaxis{suffix}"] = axis(
            "cycles since the launch" if last else "",
            anchor=f"y{suffix}",
            range=[0, recording.shown],
            showticklabels=last,
            **({"matches": "x"} if row else {}),
        )
        changes[f"yaxis{suffix}"] = axis(
            "",
            anchor=f"x{suffix}",
            domain=[bottom, top],
            range=[0, memory.capacity_entries],
            nticks=5,
        )
        notes.append(
            {
                "text": f"<b>{memory.name}</b>  {share}",
                "xref": "paper",
                "yref": "paper",
                "x": 0,
                "y": top,
                "xanchor": "left",
                "yanchor": "bottom",
                "showarrow": False,
                "font": {"size": 12, "color": "#52606d"},
            }
        )
    changes["annotations"] = notes
    changes["margin"] = {"l": 96, "r": 24, "t": 28, "b": 48}
    return {"data": traces, "layout": layout(80 + pixels, **changes)}


def boxes(
    name: str,
    lives: Sequence[tuple[float, float, int, int, str]],
    colour: str,
    line: Json = None,
    **more: Json,
) -> Json:
    """Boxes that begin and last across, and have a base and a size down, with what each tells."""
    shared: dict[str, Json] = {
        "type": "bar",
        "name": name,
        "offset": 0,
        "x": [start for start, *_ in lives],
        "width": [length for _, length, *_ in lives],
        "base": [base for _, _, base, *_ in lives],
        "y": [size for *_, size, _ in lives],
        "customdata": [told for *_, told in lives],
        "hovertemplate": "%{customdata}<extra></extra>",
        "marker": {"color": colour, "line": line or {"color": "#ffffff", "width": 1}},
    }
    return shared | more


def memory_share(memory: Memory, program: Program) -> str:
    """Entries of a memory that buffers cover, of all, in words."""
    held = sorted((b.base, b.end) for b in program.buffers if b.memory == memory.name)
    used = reached = 0
    for base, end in held:
        used += max(0, end - max(base, reached))
        reached = max(reached, end)
    entries = memory.capacity_entries
    return f"{used:,} of {entries:,} entries used ({used / entries:.1%})"


def _free(memory: Memory, share: str, recording: Recording, axes: Mapping[str, Json]) -> Json:
    """A pale box behind all buffers of a memory, over the drawn calls."""
    return {
        "type": "bar",
        "name": "free",
        "legendgroup": "free",
        "meta": "free",
        **axes,
        "x": [0],
        "width": [recording.shown],
        "base": [0],
        "y": [memory.capacity_entries],
        "customdata": [f"<b>{memory.name}</b>: free<br>{share}"],
        "hovertemplate": "%{customdata}<extra></extra>",
        "marker": {"color": LIGHT},
    }


def _describe_use(use: SlotUse) -> str:
    return (
        f"<b>{use.buffer}</b> slot {use.slot}: {use.tensor}<br>"
        f"{use.memory} entries {use.base:,} to {use.base + use.entries - 1:,}<br>"
        f"{use.start:,} to {use.end:,}: {use.end - use.start:,} cycles, {use.calls:,} calls"
    )


def tensor_traffic(rows: Sequence[tuple[str, int, int, int]]) -> Figure:
    """Off-chip bytes of each tensor (name, loaded, stored, compulsory) beside the compulsory."""
    names = [name for name, _, _, _ in rows]
    bars: tuple[tuple[str, str, str, list[int]], ...] = (
        ("compulsory", "b", GREY, [r[3] for r in rows]),
        ("loaded", "a", COLOURS[0], [r[1] for r in rows]),
        ("stored", "a", COLOURS[1], [r[2] for r in rows]),
    )
    traces: list[Json] = [
        {
            "type": "bar",
            "orientation": "h",
            "name": name,
            "y": names,
            "x": values,
            "base": [r[1] for r in rows] if name == "stored" else 0,
            "offsetgroup": group,
            "hovertemplate": "%{y}: %{customdata:,d} bytes " + name + "<extra></extra>",
            "customdata": values,
            "marker": {"color": colour},
        }
        for name, group, colour, values in bars
        if any(values)
    ]
    return _byte_bars(traces, len(names), "group")


def memory_traffic(rows: Sequence[MemoryTraffic], paint: Mapping[str, str]) -> Figure:
    """Bytes that calls read from and write to each memory, by tensor."""
    traces: list[Json] = []
    memories = list(dict.fromkeys(r.memory for r in rows))
    for tensor in dict.fromkeys(r.tensor for r in rows):
        mine = {r.memory: r for r in rows if r.tensor == tensor}
        traces.append(
            {
                "type": "bar",
                "orientation": "h",
                "name": tensor,
                "y": list(mine),
                "x": [r.read + r.written for r in mine.values()],
                "customdata": [
                    f"<b>{tensor}</b> in {r.memory}<br>{r.read:,} bytes read, {r.written:,} written"
                    for r in mine.values()
                ],
                "hovertemplate": "%{customdata}<extra></extra>",
                "marker": {"color": paint[tensor]},
            }
        )
    return _byte_bars(traces, len(memories), "stack", memories)


def _byte_bars(
    traces: list[Json], rows: int, mode: str, order: Sequence[str] | None = None
) -> Figure:
    category: dict[str, Json] = {"autorange": "reversed"}
    if order is not None:
        category |= {"categoryorder": "array", "categoryarray": list(order)}
    changes: dict[str, Json] = {
        "barmode": mode,
        "bargap": 0.35,
        "xaxis": axis("bytes", tickformat="~s", fixedrange=True, rangemode="tozero"),
        "yaxis": axis("", type="category", fixedrange=True, ticks="", **category),
        "margin": {"l": 72, "r": 24, "t": 16, "b": 48},
    }
    return {"data": traces, "layout": layout(_pixels(rows, 84), **changes)}
