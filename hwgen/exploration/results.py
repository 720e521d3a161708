"""Results of an exploration: chips with their sums, the front, sensitivity, text and data."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import exp, log
from pathlib import Path

from hwgen.errors import Diagnostic
from hwgen.exploration.points import Measure, Settings
from hwgen.report.output import write_files
from hwgen.report.records import Record, error_record
from hwgen.report.sweep import Point, pareto
from hwgen.spec.shown import Brief, Printed
from hwgen.spec.table import Cell, counted, table

SHOWN = 40
"""Chips up to which the table shows all of them, and not the front alone."""
UNITS = {
    "cycles": "cycles", "traffic": "off-chip bytes", "energy": "energy pJ", "area": "area mm2",
}  # fmt: skip
KEYS = {
    "cycles": "cycles", "traffic": "off_chip_bytes", "energy": "energy_picojoules",
    "area": "area_mm2",
}  # fmt: skip


@dataclass(frozen=True, slots=True, repr=False)
class Total(Brief):
    """A chip, and its points: one for each problem."""

    settings: Settings
    points: tuple[Point, ...]

    @property
    def error(self) -> Diagnostic | None:
        """The first, where a problem has no kernel."""
        return next((p.error for p in self.points if p.error is not None), None)

    def value(self, measure: Measure) -> float:
        """The sum over all problems; the chip's own area."""
        match measure:
            case "cycles":
                return sum(p.cycles for p in self.points)
            case "traffic":
                return sum(p.off_chip_bytes for p in self.points)
            case "energy":
                return sum(p.energy or 0.0 for p in self.points)
            case "area":
                return self.points[0].area or 0.0

    def brief(self) -> str:
        found = ", ".join(f"{p.cycles:,} cycles of {p.workload}" for p in self.points)
        return f"{self.label}: {self.error.code if self.error else found}"

    @property
    def label(self) -> str:
        return ", ".join(f"{n}={v}" for n, v in self.settings) or "as the file has it"


@dataclass(frozen=True, slots=True)
class Effect:
    """What a parameter does to an objective. `factor`: the worst over the best where it alone
    differs, the geometric mean over all such groups; None where there is no such group. `least`:
    the best for each of its values."""

    name: str
    measure: Measure
    factor: float | None
    least: tuple[tuple[int, float], ...]


@dataclass(frozen=True, repr=False)
class Results(Printed):
    """All chips of an exploration, in the order in which they were asked for."""

    chip: str
    measures: tuple[Measure, ...]
    totals: tuple[Total, ...]

    @cached_property
    def ran(self) -> tuple[Total, ...]:
        """The chips with a kernel for every problem."""
        return tuple(t for t in self.totals if t.error is None)

    @cached_property
    def front(self) -> tuple[Total, ...]:
        """The Pareto front of all objectives, by the first one."""
        values = [self.values(t) for t in self.ran]
        best = sorted(pareto(values), key=lambda n: (values[n], n))
        return tuple(self.ran[n] for n in best)

    def values(self, total: Total) -> tuple[float, ...]:
        """Its objectives, in their order."""
        return tuple(total.value(m) for m in self.measures)

    def brief(self) -> str:
        return f"{self.chip}: {len(self.totals):,} chips, {len(self.front):,} on the front"

    def __str__(self) -> str:
        return results_text(self)

    def report(self, path: Path | str | None = None) -> str:
        """The page with linked figures, as HTML; written to a file too, where one is named.

        Raises:
            HwgenError: H009 where it cannot be written.
        """
        from hwgen.exploration.page import explore_page

        text = explore_page(self)
        if path is not None:
            write_files(Path(path).parent, {Path(path).name: text})
        return text

    def effects(self) -> tuple[Effect, ...]:
        """The sensitivity of each objective to each parameter that has several values."""
        names = dict.fromkeys(n for t in self.ran for n, _ in t.settings)
        found = [self._effect(name, m) for name in names for m in self.measures]
        return tuple(e for e in found if len(e.least) > 1)

    def _effect(self, name: str, measure: Measure) -> Effect:
        groups: dict[Settings, list[float]] = {}
        least: dict[int, float] = {}
        for total in self.ran:
            value, others = total.value(measure), tuple(s for s in total.settings if s[0] != name)
            own = dict(total.settings)[name]
            groups.setdefault(others, []).append(value)
            least[own] = min(value, least.get(own, value))
        several = [g for g in groups.values() if len(g) > 1 and min(g) > 0]
        logs = [log(max(g) / min(g)) for g in several]
        factor = exp(sum(logs) / len(logs)) if logs else None
        return Effect(name, measure, factor, tuple(sorted(least.items())))


def results_text(results: Results) -> str:
    """The table of chips, the sensitivity, and the errors by code."""
    front, few = results.front, len(results.totals) <= SHOWN
    shown = results.totals if few else front
    names = list(dict.fromkeys(n for t in shown for n, _ in t.settings))
    rows: list[tuple[Cell, ...]] = []
    for total in shown:
        given, error = dict(total.settings), total.error
        figures = [_rounded(v) for v in results.values(total)] if error is None else ()
        mark = "best" if total in front else error.code if error else ""
        empty = ["-"] * (len(results.measures) - len(figures))
        rows.append((*(str(given.get(n, "")) for n in names), *figures, *empty, mark))
    header = (*names, *(UNITS[m] for m in results.measures), "")
    many = len(results.totals)
    said = f"{results.chip}, {many:,} chip{'s' if many != 1 else ''}, {len(front):,} on the front"
    parts = [said, table(header, rows) if rows else "no chip has a kernel for everything"]
    if effects := results.effects():
        parts.append(_effects_text(effects))
    codes: dict[str, int] = {}
    for total in results.totals:
        if total.error is not None:
            codes[total.error.code] = codes.get(total.error.code, 0) + 1
    if codes:
        parts.append(f"chips without a kernel: {counted(codes)}")
        first = next(t for t in results.totals if t.error is not None)
        parts.append(f"the first of them, {first.label}\n{first.error}")
    return "\n\n".join(parts)


def _rounded(value: float) -> Cell:
    return int(value) if value == int(value) or value >= 1e6 else value


def _effects_text(effects: Sequence[Effect]) -> str:
    rows: list[tuple[Cell, ...]] = []
    for e in effects:
        value, best = min(e.least, key=lambda pair: (pair[1], pair[0]))
        factor: Cell = "-" if e.factor is None else e.factor
        rows.append((e.name, UNITS[e.measure], factor, str(value), _rounded(best)))
    return table(("parameter", "changes", "by a factor of", "least at", "which is"), rows)


def results_record(results: Results) -> Record:
    """The same as data, with every point."""
    front = results.front
    return {
        "chip": results.chip,
        "objectives": list(results.measures),
        "chips": [
            {
                "set": dict(t.settings),
                **{KEYS[m]: None if t.error else t.value(m) for m in results.measures},
                "best": t in front,
                "error": None if t.error is None else error_record(t.error),
                "points": [_point(p) for p in t.points],
            }
            for t in results.totals
        ],
        "sensitivity": [
            {
                "parameter": e.name, "objective": e.measure, "factor": e.factor,
                "least": {str(v): least for v, least in e.least},
            }
            for e in results.effects()
        ],
    }  # fmt: skip


def _point(p: Point) -> Record:
    failed = p.error is not None
    return {
        "workload": p.workload,
        "set": dict(p.sizes),
        "cycles": None if failed else p.cycles,
        "lower_bound_cycles": None if failed else p.bound,
        "off_chip_bytes": None if failed else p.off_chip_bytes,
        "energy_picojoules": p.energy,
        "layers": [{"layer": n, "cycles": c} for n, c in p.layers],
        "error": None if p.error is None else error_record(p.error),
    }


def row_types(results: Results) -> dict[str, type]:
    """The columns of `rows`, with the types of their cells."""
    names = dict.fromkeys(n for t in results.totals for p in t.points for n, _ in p.settings)
    figures = {"cycles": int, "lower_bound_cycles": int, "off_chip_bytes": int}
    costs = {"energy_picojoules": float, "area_mm2": float}
    return {
        **dict.fromkeys(names, int), "workload": str, **figures, **costs, "best": bool,
        "error": str,
    }  # fmt: skip


def rows(results: Results) -> Iterator[dict[str, int | float | str | None]]:
    """A row for each chip and problem; None where nothing is known."""
    best = set(results.front)
    for t in results.totals:
        for p in t.points:
            figures = (p.cycles, p.bound, p.off_chip_bytes, p.energy)
            known = (None, None, None, None) if p.error else figures
            marks = {"best": t in best, "error": p.error.code if p.error else None}
            names = ("cycles", "lower_bound_cycles", "off_chip_bytes", "energy_picojoules")
            row = dict(p.settings) | {"workload": p.workload} | dict(zip(names, known, strict=True))
            yield row | {"area_mm2": p.area} | marks


def results_csv(results: Results) -> str:
    """The rows as text."""
    text = io.StringIO()
    writer = csv.DictWriter(text, [*row_types(results)], lineterminator="\n")
    writer.writeheader()
    for row in rows(results):
        writer.writerow(row | {"best": "yes" if row["best"] else ""})
    return text.getvalue()
