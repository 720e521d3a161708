"""A campaign of random schedules for chips with units as text."""

from __future__ import annotations

import shlex

from hwgen.report.schedules import failure_text
from hwgen.report.table import Cell, counted, table
from hwgen.verify.schedules import Failure
from hwgen.verify.tree_campaign import TREES, TreeReport


def trees_text(report: TreeReport) -> str:
    """What became of draws and schedules, and every failure as a workload and a script."""
    tally = report.tally
    draws: list[tuple[Cell, ...]] = [
        ("refused when they are read", tally.unread.total(), counted(tally.unread)),
        ("refused by the compiler", tally.uncompiled.total(), counted(tally.uncompiled)),
    ]
    schedules: list[tuple[Cell, ...]] = [
        ("run, equal to the reference", tally.right, ""),
        ("refused", tally.refused.total(), counted(tally.refused)),
        ("WRONG" if tally.failures else "wrong", len(tally.failures), ""),
    ]
    chip = report.hardware or "chips that are drawn too"
    begun = f"interrupted before {report.count:,} schedules: " if report.interrupted else ""
    parts = [
        f"{begun}{chip}, seed {report.seed}: {tally.trees:,} schedules near those of "
        f"{tally.draws:,} kernels",
        table(("kernels", "number", "codes"), draws),
        table(("schedules", "number", "codes"), schedules),
        *(_failure(report, *f) for f in report.failures),
        *(() if tally.right or tally.failures else ("Nothing was run.",)),
    ]
    return "\n\n".join(parts)


def _failure(report: TreeReport, number: int, failure: Failure) -> str:
    again = ["hwgen", "verify", "--schedules", str(TREES), "--seed", str(number)]
    if report.hardware is not None:
        again += ["--spec", str(report.hardware)]
    return f"{failure_text(failure)}\ndrawn by: {shlex.join(again)}"
