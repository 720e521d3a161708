"""A campaign of random schedules as text."""

from __future__ import annotations

import json
from typing import cast

from hwgen.report.table import Cell, counted, table
from hwgen.script import PRIMITIVES
from hwgen.verify.schedules import Failure, ScheduleReport


def schedules_text(report: ScheduleReport) -> str:
    """Calls per primitive, what became of the schedules, and every failure as a workload and a
    script."""
    tally = report.tally
    rows: list[tuple[Cell, ...]] = []
    for name in PRIMITIVES:
        refused = counted({c: n for (p, c), n in tally.refused.items() if p == name})
        rows.append((name, tally.tried[name], tally.taken[name], refused))
    outcomes: list[tuple[Cell, ...]] = [
        ("run, equal to the reference", tally.checked, ""),
        ("refused where storage or code is made", tally.lowering.total(), counted(tally.lowering)),
    ]
    if tally.inexact:
        outcomes.append(("not compared: floats too large to be exact", tally.inexact, ""))
    outcomes.append(("WRONG" if tally.failures else "wrong", len(tally.failures), ""))
    calls = sum(tally.tried.values())
    taken = sum(tally.taken.values())
    parts = [
        f"{report.hardware}, seed {report.seed}: {tally.sequences:,} sequences of primitives on "
        f"as many workloads\n{calls:,} calls, {taken:,} of them taken, at most "
        f"{max(tally.taken_calls, default=0)} in one schedule",
        table(("primitive", "tried", "taken", "refused"), rows),
        table(("schedules", "number", "codes"), outcomes),
        *(failure_text(f) for f in report.failures),
        *(() if report.ok or report.failures else ("Nothing was run.",)),
    ]
    return "\n\n".join(parts)


def failure_text(failure: Failure) -> str:
    """A failure with its workload and its script."""
    data = failure.case.data
    sizes = data.get("sizes", {})
    lines = [
        f"{failure.kind}: {failure.message}",
        f"data: seed {failure.case.seed}",
        "workload:",
        f"  name: {data['name']}",
        *([f"  sizes: {_flow(sizes)}"] if sizes else []),
        "  tensors:",
        *(f"    {n}: {_flow(t)}" for n, t in data["tensors"].items()),
        "  compute:",
    ]
    for statement in data["compute"]:
        lines.append(f"    - {_flow(statement)}")
    lines += ["script:", *(f"  {c}" for c in failure.case.calls)]
    return "\n".join(lines)


def _flow(value: object) -> str:
    """Plain data in one line of YAML."""
    if isinstance(value, dict):
        inside = ", ".join(f"{k}: {_flow(v)}" for k, v in cast(dict[str, object], value).items())
        return f"{{{inside}}}"
    return json.dumps(value)
