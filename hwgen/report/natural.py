"""A campaign of natural workloads as text."""

from __future__ import annotations

from hwgen.report.table import Cell, table
from hwgen.verify.natural.campaign import ChipTally, NaturalReport, Outcome
from hwgen.verify.natural.families import FAMILIES


def natural_text(report: NaturalReport) -> str:
    """The share of workloads that each chip compiled, by family; then refusals, the most natural
    first, and all that was wrong."""
    header = ("chip", "drawn", "ran", "share", *FAMILIES, "refused by code")
    return "\n\n".join(
        [
            f"natural workloads, seed {report.seed}: compiled, run, equal to the reference",
            table(header, [_row(c) for c in report.chips]),
            *(_refusals(c) for c in report.chips if c.refused),
            *(_wrong(c, o) for c in report.chips for o in c.wrong),
        ]
    )


def _row(tally: ChipTally) -> tuple[Cell, ...]:
    families = (f"{tally.families[f]}/{tally.drawn[f]}" if tally.drawn[f] else "" for f in FAMILIES)
    codes = ", ".join(f"{code} {n}" for code, n in sorted(tally.codes.items()))
    return (tally.chip.stem, tally.drawn.total(), tally.ran, f"{tally.share:.0%}", *families, codes)


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


def _wrong(tally: ChipTally, outcome: Outcome) -> str:
    text = "\n  ".join(_statements(outcome))
    return f"{tally.chip.stem}: WRONG, {outcome.code}: {outcome.message}\n  {text}"
