"""A verification campaign as text."""

from __future__ import annotations

from hwgen.report.table import Cell, table
from hwgen.verify.campaign import CampaignReport, Result


def campaign_text(report: CampaignReport) -> str:
    """One line per workload, then reasons of refusals, then failures with their commands."""
    rows: list[tuple[Cell, ...]] = [
        (r.workload, r.passed, r.refused, r.c_runs, _verdict(r)) for r in report.results
    ]
    parts = [
        f"{report.hardware}, seed {report.seed}",
        table(("workload", "passed", "refused", "ran C too", "result"), rows),
    ]
    for r in report.results:
        if r.reason:
            parts.append(f"{r.workload}: refused\n{_indent(r.reason)}")
    for r in report.results:
        if r.failure is not None:
            parts.append(
                f"{r.workload}: FAILED\n{_indent(r.failure.message)}\n"
                f"  reproduce: {r.failure.command}"
            )
    return "\n\n".join(parts)


def _verdict(result: Result) -> str:
    if result.failure is not None:
        return "FAILED"
    return "passed" if result.runnable else "cannot run"


def _indent(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.splitlines())
