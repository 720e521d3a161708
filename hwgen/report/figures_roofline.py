"""The roofline: what the chip's units and its bus allow at each intensity, and the kernel there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import log10

from hwgen.model.bound import Bound
from hwgen.report.figures import COLOURS, TEXT, Figure, Json, axis, layout
from hwgen.spec.hardware import HardwareSpec

SPAN = 16.0
"""How far to both sides of the kernel's intensity the figure reaches."""


@dataclass(frozen=True, slots=True)
class Roofline:
    """A kernel between its roofs; performance in operations per cycle.

    `intensity`: operations per off-chip byte moved. `compute`: the unit with the most work that it
    cannot avoid, and what it allows. `bytes_per_cycle`: what the bus carries at most of the
    kernel's own mix of reads and writes, which have a channel each. `bound`: operations over the
    lower bound.
    """

    operations: int
    intensity: float
    achieved: float
    bound: float
    unit: str
    compute: float
    bytes_per_cycle: float

    def roof(self, intensity: float) -> float:
        """The performance that no kernel of this mix exceeds."""
        slope = self.bytes_per_cycle * intensity
        return min(slope, self.compute) if self.compute else slope


def roofline(
    operations: int, loaded: int, stored: int, cycles: int, bound: Bound, hardware: HardwareSpec
) -> Roofline:
    """Place a kernel of so many operations, bytes and cycles."""
    moving = {i.unit for i in hardware.intrinsics if hardware.offchip_operand(i) is not None}
    computing = {i.unit for i in hardware.intrinsics if hardware.offchip_operand(i) is None}
    needs = {
        name.removeprefix("unit "): needed
        for name, needed in bound.per_resource
        if name.startswith("unit ") and name.removeprefix("unit ") in computing
    }
    only = {u: n for u, n in needs.items() if u not in moving} or needs
    unit = max(sorted(only), key=lambda u: only[u], default="")
    beat = hardware.bus[hardware.offchip.bus].beat_bytes
    moved = max(1, loaded + stored)
    return Roofline(
        operations,
        operations / moved,
        operations / cycles,
        operations / max(1, bound.cycles),
        unit,
        operations / only[unit] if unit else 0.0,
        beat * moved / max(1, loaded, stored),
    )


def roofline_figure(line: Roofline) -> Figure:
    """Both roofs, the kernel's lower bound, and the kernel."""
    ridge = line.compute / line.bytes_per_cycle if line.compute else line.intensity
    low = min(line.intensity, ridge) / SPAN
    high = max(line.intensity, ridge) * SPAN
    traces: list[Json] = [
        _curve(
            f"traffic roof: {line.bytes_per_cycle:.4g} bytes per cycle",
            {x: x * line.bytes_per_cycle for x in (low, ridge if line.compute else high)},
            COLOURS[5],
        )
    ]
    if line.compute:
        traces.append(
            _curve(
                f"compute roof: {line.compute:.4g} operations per cycle on {line.unit}",
                dict.fromkeys((ridge, high), line.compute),
                COLOURS[1],
            )
        )
    traces.append(
        _curve(
            f"lower bound: {line.bound:.4g} operations per cycle",
            dict.fromkeys((line.intensity / 3, line.intensity * 3), line.bound),
            TEXT,
            dash="dot",
        )
    )
    kernel: Json = {
        "type": "scatter",
        "mode": "markers",
        "name": f"this kernel: {line.achieved:.4g} operations per cycle",
        "x": [line.intensity],
        "y": [line.achieved],
        "hovertemplate": f"<b>this kernel</b><br>{line.achieved:.4g} operations per cycle<br>"
        f"{line.intensity:.4g} operations per off-chip byte<br>"
        f"{line.achieved / line.bound:.1%} of its lower bound<extra></extra>",
        "marker": {"size": 13, "color": COLOURS[4], "line": {"color": "#ffffff", "width": 2}},
    }
    floor = min(line.achieved, line.roof(low)) / 2
    roof = max(line.compute, line.bound, line.achieved, line.roof(high))
    changes: dict[str, Json] = {
        "xaxis": _log("operations per off-chip byte", low, high),
        "yaxis": _log("operations per cycle", floor, roof * 2),
        "margin": {"l": 96, "r": 24, "t": 16, "b": 52},
    }
    return {"data": [*traces, kernel], "layout": layout(360, **changes)}


def _log(title: str, low: float, high: float) -> Json:
    return axis(title, type="log", range=[log10(low), log10(high)], tickformat="~g", dtick="D2")


def _curve(name: str, points: Mapping[float, float], colour: str, dash: str = "solid") -> Json:
    return {
        "type": "scatter",
        "mode": "lines",
        "name": name,
        "x": list(points),
        "y": list(points.values()),
        "line": {"color": colour, "width": 2.5, "dash": dash},
        "hovertemplate": f"{name}<extra></extra>",
    }
