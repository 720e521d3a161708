"""Campaigns as text: what became of what was drawn, and how failures are seen again."""

from __future__ import annotations

from hwgen.spec.table import Cell, table
from hwgen.verify.campaign import CampaignReport, Result
from hwgen.verify.natural.campaign import ChipTally, NaturalReport, Outcome
from hwgen.verify.natural.families import FAMILIES

# Kernels of a workload


def campaign_text(report: CampaignReport) -> str:
    """One line per workload, then reasons of refusals, then failures with their commands."""
    rows: list[tuple[Cell, ...]] = [
        (r.workload, r.passed, r.refused, r.c_runs, r.vacuous, _verdict(r)) for r in report.results
    ]
    parts = [
        f"{report.hardware}, seed {report.seed}",
        table(("workload", "passed", "refused", "ran C too", "nothing compared", "result"), rows),
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


# Natural workloads


def natural_text(report: NaturalReport) -> str:
    """The share of workloads that each chip compiled, by family; then refusals, the most natural
    first, and all that was wrong."""
    header = ("chip", "drawn", "ran", "share", *FAMILIES, "refused by code")
    runs = report.runs
    return "\n\n".join(
        [
            f"natural workloads, seed {report.seed}, data {runs.data}, engine {runs.engine}: "
            "compiled, run, equal to the reference",
            table(header, [_share(c) for c in report.chips]),
            table(_COMPARED, [_compared(c) for c in report.chips]),
            *(_refusals(c) for c in report.chips if c.refused),
            *(_wrong_workload(c, o) for c in report.chips for o in c.wrong),
        ]
    )


def _share(tally: ChipTally) -> tuple[Cell, ...]:
    families = (f"{tally.families[f]}/{tally.drawn[f]}" if tally.drawn[f] else "" for f in FAMILIES)
    codes = ", ".join(f"{code} {n}" for code, n in sorted(tally.codes.items()))
    return (tally.chip.stem, tally.drawn.total(), tally.ran, f"{tally.share:.0%}", *families, codes)


_COMPARED = ("chip", "ran", "as C too", "all compared", "in part", "nothing compared", "wrong")


def _compared(tally: ChipTally) -> tuple[Cell, ...]:
    part, none = tally.unbounded - tally.vacuous, tally.vacuous
    whole = tally.ran - tally.unbounded
    return (tally.chip.stem, tally.ran, tally.c_runs, whole, part, none, len(tally.wrong))


def _refusals(tally: ChipTally) -> str:
    lines = [f"{tally.chip.stem}: the most natural workloads that it refuses"]
    for outcome in tally.most_natural:
        w = outcome.workload
        special = f" ({', '.join(w.unusual)})" if w.unusual else ""
        lines.append(f"  {outcome.code} {w.family}{special}: {outcome.message}")
        lines += [f"    {text}" for text in _statements(outcome)]
    return "\n".join(lines)


def _statements(outcome: Outcome) -> list[str]:
    data = outcome.workload.data
    tensors = data["tensors"].items()
    declared = ", ".join(f"{n}: {t if isinstance(t, str) else t['type']}" for n, t in tensors)
    return [declared, *(statement["do"] for statement in data["compute"])]


def _wrong_workload(tally: ChipTally, outcome: Outcome) -> str:
    text = "\n  ".join(_statements(outcome))
    return f"{tally.chip.stem}: WRONG, {outcome.code}: {outcome.message}\n  {text}"
